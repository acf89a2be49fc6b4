//! Double-forked daemons: own session, reparented away from the one who started them.

use crate::Workload;
use crate::args::Args;
use crate::sys::{self, Mapping};
use std::io::{self, Read};
use std::os::fd::AsRawFd;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "daemons",
    help: "--count N --bytes B --hold-ms H: they end when this process does",
    run,
};

fn run(args: &Args) -> io::Result<()> {
    let count = args.number("count", 4)?;
    let bytes = args.size("bytes", 100 << 20)?;
    let hold_ns = args.number("hold-ms", 1_000)?.cast_signed() * 1_000_000;
    // Nobody writes: it reads as ended when the last writing end, ours, is gone.
    let (end_reader, end_writer) = io::pipe()?;
    let (mut ready_reader, ready_writer) = io::pipe()?;
    for _ in 0..count {
        let middle = sys::fork_child(|| {
            // SAFETY: setsid takes nothing, and the child of a fork leads no group.
            sys::check(unsafe { libc::setsid() })?;
            let middle = std::process::id();
            sys::fork_child(|| {
                // SAFETY: the descriptor is this process's own copy.
                sys::check(unsafe { libc::close(end_writer.as_raw_fd()) })?;
                daemon(
                    middle,
                    bytes,
                    ready_writer.as_raw_fd(),
                    end_reader.as_raw_fd(),
                )
            })
            .map(drop)
        })?;
        sys::wait_success(middle)?;
    }
    drop(ready_writer);
    // Ends when the last daemon closed its end, having said that it is ready.
    let mut lines = String::new();
    ready_reader.read_to_string(&mut lines)?;
    sys::say(lines.trim_end())?;
    sys::sleep_ns(hold_ns);
    drop(end_writer);
    Ok(())
}

fn daemon(middle: u32, bytes: usize, ready: i32, end: i32) -> io::Result<()> {
    let mapping = Mapping::anon(bytes)?;
    mapping.touch(bytes);
    // SAFETY: getppid can't fail.
    while unsafe { libc::getppid() }.cast_unsigned() == middle {
        sys::sleep_ns(100_000);
    }
    let mut byte = 0_u8;
    // The first round is the rehearsal: it closes no descriptor, writes and awaits nothing,
    // so that after the second one's reading no page is touched for the first time.
    for is_final in [false, true] {
        let line = format!(
            "{{\"pid\":{},\"middle_pid\":{middle},\"vmhwm_bytes\":{},\"walked_bytes\":{}}}\n",
            std::process::id(),
            sys::status().vmhwm_bytes,
            sys::walked_rss_bytes()
        );
        let (length, closed, awaited) = if is_final {
            (line.len(), ready, 1)
        } else {
            (0, -1, 0)
        };
        // SAFETY: the line is live and of that length at least. It is shorter than
        // PIPE_BUF, so those of several daemons don't mix. The descriptor that is closed is
        // this process's own copy and not used again. The byte is live and writable; nobody
        // writes one: the read returns when the other end is closed.
        unsafe {
            libc::syscall(libc::SYS_write, ready, line.as_ptr(), length);
            libc::syscall(libc::SYS_close, closed);
            libc::syscall(libc::SYS_read, end, &raw mut byte, awaited);
        }
        sys::exit_or_rehearse(is_final);
    }
    unreachable!("the final round ends the process")
}
