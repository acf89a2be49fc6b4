//! How long a program waits for its own address space while somebody looks into it.
//!
//! A thread maps, touches and unmaps a little memory over and over beside a large heap or
//! many mappings. A wait for a lock is a voluntary switch of the thread and is distinguished
//! from time in which the thread could have run and did not get a CPU.

use crate::Workload;
use crate::args::Args;
use crate::sys::{self, Mapping};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "stall",
    help: "--bytes B --mappings M: worst wait of mmap, page fault and munmap, until standard input closes",
    run,
};

/// What one round maps.
const ROUND_BYTES: usize = 64 << 10;
const PAUSE_NS: i64 = 200_000;

/// The longest of one operation, in nanoseconds.
#[derive(Default)]
struct Worst {
    operations: u64,
    /// The longest of all.
    any_ns: i64,
    /// Of those in which the thread slept.
    slept_ns: i64,
}

fn run(args: &Args) -> io::Result<()> {
    let bytes = args.size("bytes", 1 << 30)?;
    let mappings = args.size("mappings", 1)?.max(1);
    let heap = fill(bytes, mappings)?;
    sys::say(&format!("{{\"pid\":{}}}", std::process::id()))?;
    let stop = AtomicBool::new(false);
    let worst = std::thread::scope(|scope| {
        let rounds = scope.spawn(|| rounds(&stop));
        let ended = sys::until_stdin_closes();
        stop.store(true, Ordering::Relaxed);
        let worst = rounds
            .join()
            .map_err(|_| io::Error::other("the thread failed"))?;
        ended.and(worst)
    })?;
    // Only now: this is the reading that holds the lock for long.
    let pss_bytes = own_pss()?;
    drop(heap);
    sys::say(&format!(
        "{{\"operations\":{},\"worst_ns\":{},\"worst_slept_ns\":{},\"pss_bytes\":{pss_bytes}}}",
        worst.operations, worst.any_ns, worst.slept_ns
    ))
}

fn own_pss() -> io::Result<i64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    let kib: Option<i64> = kib.and_then(|kib| kib.parse().ok());
    kib.map(|kib| kib * 1024)
        .ok_or_else(|| io::Error::other("smaps_rollup has no Pss"))
}

/// Memory of one mapping, or of many that the kernel cannot merge: a page without rights
/// lies behind each.
fn fill(bytes: usize, mappings: usize) -> io::Result<Vec<Mapping>> {
    let page = sys::page_size();
    let each = (bytes / mappings / page).max(1) * page;
    // Each one is split in two by the page at its end.
    let count = if mappings == 1 { 1 } else { mappings / 2 };
    let each = if mappings == 1 { each } else { each * 2 };
    (0..count)
        .map(|_| {
            let mapping = Mapping::anon(each + page)?;
            mapping.advise(libc::MADV_NOHUGEPAGE)?;
            mapping.touch(each);
            // SAFETY: the last page of the mapping, which nothing reads or writes.
            let last = unsafe { mapping.start().add(each) };
            // SAFETY: as above.
            sys::check(unsafe { libc::mprotect(last.cast(), page, libc::PROT_NONE) })?;
            Ok(mapping)
        })
        .collect()
}

fn rounds(stop: &AtomicBool) -> io::Result<Worst> {
    let mut worst = Worst::default();
    while !stop.load(Ordering::Relaxed) {
        let mapping = worst.time(|| Mapping::anon(ROUND_BYTES))?;
        worst.time(|| mapping.touch(ROUND_BYTES));
        worst.time(|| drop(mapping));
        sys::sleep_ns(PAUSE_NS);
    }
    Ok(worst)
}

impl Worst {
    fn time<T>(&mut self, operation: impl FnOnce() -> T) -> T {
        let sleeps = voluntary_switches();
        let start = sys::clock_ns(libc::CLOCK_MONOTONIC);
        let result = operation();
        let took = sys::clock_ns(libc::CLOCK_MONOTONIC) - start;
        self.operations += 1;
        self.any_ns = self.any_ns.max(took);
        if voluntary_switches() != sleeps {
            self.slept_ns = self.slept_ns.max(took);
        }
        result
    }
}

fn voluntary_switches() -> i64 {
    // SAFETY: all zeroes is a valid rusage, and the call fills it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nvcsw
    }
}
