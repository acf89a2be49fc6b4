//! A process that shares its parent's address space without being a thread of it
//! (CLONE_VM alone): the memory is one, the processes are two.

use crate::Workload;
use crate::args::Args;
use crate::sys::{self, Mapping};
use std::ffi::c_void;
use std::io;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "clone-vm",
    help: "--bytes B --hold-ms H: a child touches B in the address space it shares",
    run,
};

const STACK_BYTES: usize = 64 << 10;

/// What the child needs; it lives in the parent's frame, which waits for the child.
struct Work {
    mapping: Mapping,
    bytes: usize,
    hold_ns: i64,
}

fn run(args: &Args) -> io::Result<()> {
    let bytes = args.size("bytes", 32 << 20)?;
    let hold_ns = args.number("hold-ms", 300)?.cast_signed() * 1_000_000;
    let mut work = Work {
        mapping: Mapping::anon(bytes)?,
        bytes,
        hold_ns,
    };
    let stack = Mapping::anon(STACK_BYTES)?;
    let before = sys::status();
    // SAFETY: the child gets a stack of its own, whose top is aligned and not used by
    // others, and `work` outlives it because this function waits for it below.
    let child = unsafe {
        libc::clone(
            child,
            stack.start().add(STACK_BYTES).cast(),
            libc::CLONE_VM | libc::SIGCHLD,
            (&raw mut work).cast(),
        )
    };
    let ended = sys::wait_success(sys::check(child)?)?;
    let after = sys::status();
    sys::say(&format!(
        "{{\"pid\":{},\"child\":{},\"before_rss_bytes\":{},\"vmhwm_bytes\":{},\
         \"child_ru_maxrss_bytes\":{}}}",
        std::process::id(),
        ended.pid,
        before.vmrss_bytes,
        after.vmhwm_bytes,
        ended.maxrss_bytes
    ))
}

extern "C" fn child(work: *mut c_void) -> i32 {
    // SAFETY: the parent passes a live `Work` and does not use it until the child ended.
    let work = unsafe { &*work.cast::<Work>() };
    work.mapping.touch(work.bytes);
    sys::sleep_ns(work.hold_ns);
    0
}
