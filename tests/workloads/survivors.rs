//! A root that ends and leaves processes and shared memory behind.

use crate::Workload;
use crate::args::Args;
use crate::sys::{self, Mapping};
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::fd::AsRawFd;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "survivors",
    help: "--bytes B --hold-ms H: leaves a daemon, one that ignores SIGTERM, a supervisor that \
           forks, and shared memory",
    run,
};

/// How a process that lives on takes SIGTERM.
#[derive(Clone, Copy)]
enum Manner {
    /// SIGTERM ends it.
    Plain,
    /// It does not care.
    Deaf,
    /// It waits for its children, and starts another for each that ends.
    Supervisor,
}

fn run(args: &Args) -> io::Result<()> {
    let bytes = args.size("bytes", 32 << 20)?;
    let hold_ns = args.number("hold-ms", 500)?.cast_signed() * 1_000_000;
    let (mut ready_reader, ready_writer) = io::pipe()?;
    for manner in [Manner::Plain, Manner::Deaf, Manner::Supervisor] {
        let middle = sys::fork_child(|| {
            // SAFETY: setsid takes nothing, and the child of a fork leads no group.
            sys::check(unsafe { libc::setsid() })?;
            sys::fork_child(|| lives_on(manner, bytes, ready_writer.as_raw_fd())).map(drop)
        })?;
        sys::wait_success(middle)?;
    }
    drop(ready_writer);
    let mut pids = String::new();
    ready_reader.read_to_string(&mut pids)?;
    let mut pids: Vec<&str> = pids.split_whitespace().collect();
    // In the order in which they were forked, not in which they came to write.
    pids.sort_by_key(|pid| (pid.len(), *pid));
    let (file, segment) = leave_shared_memory(bytes)?;
    sys::say(&format!(
        "{{\"pids\":[{}],\"file\":{file:?},\"segment\":{segment}}}",
        pids.join(",")
    ))?;
    sys::sleep_ns(hold_ns);
    Ok(())
}

/// A file in /dev/shm and a System V segment that nobody has mapped when we are gone.
fn leave_shared_memory(bytes: usize) -> io::Result<(String, i32)> {
    let path = format!("/dev/shm/memtrace-left-{}", std::process::id());
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    file.set_len(bytes as u64)?;
    Mapping::file(bytes, file.as_raw_fd())?.touch(bytes);
    // SAFETY: plain numbers.
    let segment = sys::check(unsafe { libc::shmget(libc::IPC_PRIVATE, bytes, 0o600) })?;
    Ok((path, segment))
}

fn lives_on(manner: Manner, bytes: usize, ready: i32) -> io::Result<()> {
    let deaf = matches!(manner, Manner::Deaf);
    if deaf {
        // SAFETY: ignoring a signal.
        unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
    }
    let mapping = Mapping::anon(bytes)?;
    mapping.touch(bytes);
    let line = format!("{} ", std::process::id());
    // SAFETY: a live buffer of that length; descriptors that are this process's own copies
    // and not used again. Who reads our output must not wait for us.
    unsafe {
        libc::write(ready, line.as_ptr().cast(), line.len());
        for descriptor in [ready, 0, 1, 2] {
            libc::close(descriptor);
        }
    }
    if matches!(manner, Manner::Supervisor) {
        supervise()?;
    }
    // A test that fails must not leave them for ever.
    sys::sleep_ns(120_000_000_000);
    drop(mapping);
    Ok(())
}

/// Starts another child for each that ends, and never comes back.
fn supervise() -> io::Result<()> {
    loop {
        let child = sys::fork_child(|| {
            sys::sleep_ns(120_000_000_000);
            Ok(())
        })?;
        sys::wait(child)?;
    }
}
