//! One kernel operation as fast as one CPU can: what tracing it costs.

use crate::Workload;
use crate::args::{Args, bad};
use crate::sys::{self, Mapping};
use std::io;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "storm",
    help: "--kind fault|mmap|brk|getppid --ms M: operations, and ns for each; again per byte of input",
    run,
};

/// Memory that one round of faults goes through.
const FAULT_BYTES: usize = 16 << 20;
const MAP_BYTES: usize = 1 << 20;

fn run(args: &Args) -> io::Result<()> {
    let kind = args.text("kind", "fault");
    let length_ns = args.number("ms", 1_000)?.cast_signed() * 1_000_000;
    let round: fn() -> io::Result<u64> = match kind.as_str() {
        "fault" => faults,
        "mmap" => maps,
        "brk" => breaks,
        "getppid" => calls,
        _ => return Err(bad(format!("there is no kind {kind:?}"))),
    };
    round()?;
    loop {
        storm(&kind, round, length_ns)?;
        if !sys::comes_a_byte()? {
            return Ok(());
        }
    }
}

/// Goes on for a while and tells what each operation took.
fn storm(kind: &str, round: fn() -> io::Result<u64>, length_ns: i64) -> io::Result<()> {
    let wall_ns = sys::clock_ns(libc::CLOCK_MONOTONIC);
    let cpu_ns = sys::clock_ns(libc::CLOCK_THREAD_CPUTIME_ID);
    let mut operations = 0;
    let mut passed_ns = 0;
    while passed_ns < length_ns {
        operations += round()?;
        passed_ns = sys::clock_ns(libc::CLOCK_MONOTONIC) - wall_ns;
    }
    // CPU time next to wall time: others that use the machine show in the second only.
    let cpu_ns = sys::clock_ns(libc::CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
    sys::say(&format!(
        "{{\"storm\":\"{kind}\",\"pid\":{},\"operations\":{operations},\
         \"wall_ns_per_operation\":{:.2},\"cpu_ns_per_operation\":{:.2}}}",
        std::process::id(),
        passed_ns as f64 / operations as f64,
        cpu_ns as f64 / operations as f64,
    ))
}

fn faults() -> io::Result<u64> {
    let mapping = Mapping::anon(FAULT_BYTES)?;
    mapping.advise(libc::MADV_NOHUGEPAGE)?;
    mapping.touch(FAULT_BYTES);
    Ok((FAULT_BYTES / sys::page_size()) as u64)
}

fn maps() -> io::Result<u64> {
    for _ in 0..1_000 {
        drop(Mapping::anon(MAP_BYTES)?);
    }
    Ok(1_000)
}

fn breaks() -> io::Result<u64> {
    // SAFETY: asks for the present break and changes nothing.
    let start = unsafe { libc::syscall(libc::SYS_brk, 0) };
    let raised = start + MAP_BYTES as i64;
    for _ in 0..500 {
        // SAFETY: the break goes up and back to where it was before the allocator, which
        // is not called in between, can have used what lies above.
        let reached = unsafe {
            let reached = libc::syscall(libc::SYS_brk, raised);
            libc::syscall(libc::SYS_brk, start);
            reached
        };
        if reached != raised {
            return Err(io::Error::other("brk was refused"));
        }
    }
    Ok(1_000)
}

fn calls() -> io::Result<u64> {
    for _ in 0..10_000 {
        // SAFETY: getppid takes nothing and can't fail.
        unsafe { libc::syscall(libc::SYS_getppid) };
    }
    Ok(10_000)
}
