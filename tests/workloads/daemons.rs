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
    let (mut end_reader, end_writer) = io::pipe()?;
    let (mut ready_reader, ready_writer) = io::pipe()?;
    for _ in 0..count {
        let middle = sys::fork_child(|| {
            // SAFETY: setsid takes nothing, and the child of a fork leads no group.
            sys::check(unsafe { libc::setsid() })?;
            let middle = std::process::id();
            sys::fork_child(|| {
                // SAFETY: the descriptor is this process's own copy.
                sys::check(unsafe { libc::close(end_writer.as_raw_fd()) })?;
                daemon(middle, bytes, &ready_writer, &mut end_reader)
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

fn daemon(
    middle: u32,
    bytes: usize,
    ready: &io::PipeWriter,
    end: &mut io::PipeReader,
) -> io::Result<()> {
    let mapping = Mapping::anon(bytes)?;
    mapping.touch(bytes);
    // SAFETY: getppid can't fail.
    while unsafe { libc::getppid() }.cast_unsigned() == middle {
        sys::sleep_ns(100_000);
    }
    let line = format!(
        "{{\"pid\":{},\"middle_pid\":{middle},\"vmhwm_bytes\":{}}}\n",
        std::process::id(),
        sys::status().vmhwm_bytes
    );
    // A line is shorter than PIPE_BUF, so those of several daemons don't mix.
    let mut writer = ready;
    io::Write::write_all(&mut writer, line.as_bytes())?;
    // SAFETY: the descriptor is this process's own copy, and not used again.
    sys::check(unsafe { libc::close(ready.as_raw_fd()) })?;
    end.read(&mut [0]).map(drop)
}
