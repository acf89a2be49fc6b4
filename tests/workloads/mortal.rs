//! Processes that grow fast and are slow to give back what they hold when they end: a trainer
//! that is started for every step. The end of each is reported before its memory is free again.

use crate::Workload;
use crate::args::Args;
use crate::sys::{self, Mapping};
use std::io;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "mortal",
    help: "--bytes B --ramp-ms R --hold-ms H --count N --gap-ms G: one after the other grows in R \
           ms, and ends on a CPU that another process uses",
    run,
};

/// A quarter of a CPU remains beside one that is not nice.
const NICE: i32 = 6;
const STEPS: usize = 128;

fn run(args: &Args) -> io::Result<()> {
    let bytes = args.size("bytes", 1 << 30)?;
    let ramp_ns = args.number("ramp-ms", 500)?.cast_signed() * 1_000_000;
    let hold_ns = args.number("hold-ms", 0)?.cast_signed() * 1_000_000;
    let count = args.number("count", 3)?;
    let gap_ns = args.number("gap-ms", 500)?.cast_signed() * 1_000_000;
    // What the other process reads: whether to use the CPU.
    let shared = Mapping::shared(sys::page_size())?;
    shared.touch(usize::MAX);
    let is_ending = shared.start();
    // SAFETY: a live page that all of them share, as long as they live.
    let set_ending = |to: u8| unsafe { is_ending.write_volatile(to) };
    set_ending(0);
    let other = sys::fork_child(|| {
        sys::die_with_parent()?;
        stay_on_one_cpu()?;
        loop {
            // SAFETY: as above.
            if unsafe { is_ending.read_volatile() } == 0 {
                sys::sleep_ns(1_000_000);
            }
        }
    })?;
    for _ in 0..count {
        sys::sleep_ns(gap_ns);
        let begin_ns = sys::boot_ns();
        let child = sys::fork_child(|| {
            sys::die_with_parent()?;
            let mapping = Mapping::anon(bytes)?;
            mapping.advise(libc::MADV_NOHUGEPAGE)?;
            let step = bytes.div_ceil(STEPS);
            for (index, from) in (0..bytes).step_by(step).enumerate() {
                mapping.touch_range(from, from + step);
                let due = ramp_ns / STEPS as i64 * (index as i64 + 1);
                sys::sleep_ns(due - (sys::boot_ns() - begin_ns));
            }
            sys::sleep_ns(hold_ns);
            stay_on_one_cpu()?;
            // SAFETY: takes numbers.
            sys::check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) })?;
            set_ending(1);
            sys::exit(0)
        })?;
        sys::wait_success(child)?;
        set_ending(0);
        let end_ns = sys::boot_ns();
        sys::say(&format!(
            "{{\"pid\":{child},\"begin_boot_ns\":{begin_ns},\"end_boot_ns\":{end_ns}}}"
        ))?;
    }
    // SAFETY: the child is ours and not yet waited for, so its id is not reused.
    sys::check(unsafe { libc::kill(other, libc::SIGKILL) })?;
    sys::wait(other).map(drop)
}

/// The first CPU that this process may use.
fn stay_on_one_cpu() -> io::Result<()> {
    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: all zeroes is an empty set.
    let mut allowed: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: writes a set of the size that is given.
    sys::check(unsafe { libc::sched_getaffinity(0, size, &raw mut allowed) })?;
    // SAFETY: the set is initialised, and the index is within it.
    let is_in = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &allowed) };
    let first = (0..libc::CPU_SETSIZE as usize).find(is_in).unwrap_or(0);
    // SAFETY: as above.
    let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the index is within the set.
    unsafe { libc::CPU_SET(first, &mut one) };
    // SAFETY: reads a set of the size that is given.
    sys::check(unsafe { libc::sched_setaffinity(0, size, &raw const one) }).map(drop)
}
