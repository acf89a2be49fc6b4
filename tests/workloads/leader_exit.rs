//! The main thread ends while another lives on and grows: /proc/PID/statm of such a
//! process reads as zero, though its memory is all there.

use crate::Workload;
use crate::args::Args;
use crate::sys::{self, Mapping};
use std::io;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "leader-exit",
    help: "--bytes B --hold-ms H: a child's main thread ends, another grows to B",
    run,
};

fn run(args: &Args) -> io::Result<()> {
    let bytes = args.size("bytes", 32 << 20)?;
    let hold_ns = args.number("hold-ms", 500)?.cast_signed() * 1_000_000;
    let child = sys::fork_child(|| {
        std::thread::Builder::new().spawn(move || {
            // The leader's end is seen before the growth begins.
            sys::sleep_ns(50_000_000);
            let Ok(mapping) = Mapping::anon(bytes) else {
                sys::exit(1)
            };
            mapping.touch(bytes);
            sys::sleep_ns(hold_ns);
            sys::exit(0)
        })?;
        // SAFETY: SYS_exit ends this thread only; nothing of its stack is used by others.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
        unreachable!("exit came back")
    })?;
    sys::sleep_ns(hold_ns / 2 + 50_000_000);
    let stat = std::fs::read_to_string(format!("/proc/{child}/stat"))?;
    let is_leader_gone = stat
        .rsplit(") ")
        .next()
        .is_some_and(|rest| rest.starts_with('Z'));
    let ended = sys::wait_success(child)?;
    sys::say(&format!(
        "{{\"pid\":{child},\"leader_was_gone\":{is_leader_gone},\"ru_maxrss_bytes\":{}}}",
        ended.maxrss_bytes
    ))
}
