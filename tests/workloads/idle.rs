//! Many processes that sleep.

use crate::Workload;
use crate::args::Args;
use crate::sys::{self, Mapping};
use std::io;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "idle",
    help: "--processes N --bytes B: sleeping processes, until standard input closes",
    run,
};

fn run(args: &Args) -> io::Result<()> {
    let processes = args.number("processes", 500)?;
    let bytes = args.size("bytes", 1 << 20)?;
    let children = start(processes, |_| {
        let mapping = Mapping::anon(bytes.max(1))?;
        mapping.touch(bytes);
        Ok(mapping)
    })?;
    finish(&children)
}

/// Starts processes that each run `set_up`, keep what it gave, and sleep until killed.
/// Says their ids when all are set up.
pub(crate) fn start<T>(
    processes: u64,
    set_up: impl Fn(u64) -> io::Result<T>,
) -> io::Result<Vec<i32>> {
    let (mut ready_reader, ready_writer) = io::pipe()?;
    let mut children = Vec::new();
    for index in 0..processes {
        children.push(sys::fork_child(|| {
            sys::die_with_parent()?;
            let _kept = set_up(index)?;
            io::Write::write_all(&mut (&ready_writer), b".")?;
            loop {
                sys::sleep_ns(3_600_000_000_000);
            }
        })?);
    }
    drop(ready_writer);
    let mut ready = vec![0; children.len()];
    io::Read::read_exact(&mut ready_reader, &mut ready)?;
    let pids: Vec<String> = children.iter().map(i32::to_string).collect();
    sys::say(&format!(
        "{{\"root\":{},\"pids\":[{}]}}",
        std::process::id(),
        pids.join(",")
    ))?;
    Ok(children)
}

/// Waits for the end of standard input and ends the processes.
pub(crate) fn finish(children: &[i32]) -> io::Result<()> {
    sys::until_stdin_closes()?;
    for child in children {
        // SAFETY: the child is ours and not yet waited for, so its id is not reused.
        sys::check(unsafe { libc::kill(*child, libc::SIGKILL) })?;
    }
    for child in children {
        sys::wait(*child)?;
    }
    Ok(())
}
