//! Memory of every kind that more than one process can hold, one kind after the other.

use crate::args::Args;
use crate::sys::{self, Mapping};
use crate::{Workload, idle};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "holdings",
    help: "--bytes B --hold-ms H: programs started, pages inherited, written to, shared, and a file in /dev/shm",
    run,
};

const BETWEEN_NS: i64 = 600_000_000;
/// So late do children write that a recorder has read them before.
const LATE_NS: i64 = 1_200_000_000;

fn run(args: &Args) -> io::Result<()> {
    let bytes = args.size("bytes", 512 << 20)?;
    let hold_ns = args.number("hold-ms", 3_000)?.cast_signed() * 1_000_000;
    let own = Mapping::anon(bytes)?;
    own.touch(bytes);
    hold("anonymous", hold_ns)?;

    let by_fork = sys::fork_child(|| Err(sleeper().exec()))?;
    let mut by_vfork = sleeper().spawn()?;
    hold("programs", hold_ns)?;
    for child in [by_fork, by_vfork.id().cast_signed()] {
        // SAFETY: the child is ours and not yet waited for, so its id is not reused.
        sys::check(unsafe { libc::kill(child, libc::SIGKILL) })?;
    }
    sys::wait(by_fork)?;
    by_vfork.wait()?;

    let readers = idle::start(4, |_| {
        for offset in (0..bytes).step_by(sys::page_size()) {
            // SAFETY: inside of the mapping, which lives as long as this process.
            unsafe { own.start().add(offset).read_volatile() };
        }
        Ok(())
    })?;
    hold("read", hold_ns)?;
    end(&readers)?;

    let writers = idle::start(2, |_| {
        sys::sleep_ns(LATE_NS);
        own.touch(bytes);
        Ok(())
    })?;
    hold("written", hold_ns)?;
    end(&writers)?;

    let shared = Mapping::shared(bytes)?;
    let mappers = idle::start(3, |_| {
        shared.touch(bytes);
        Ok(())
    })?;
    hold("shared", hold_ns)?;
    end(&mappers)?;
    drop(shared);
    // Else as much is held right after it, and who looks now and then takes it for the same.
    sys::sleep_ns(BETWEEN_NS);

    let path = format!("/dev/shm/memtrace-workload-{}", std::process::id());
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path)?;
    let filled = fill(&mut file, bytes).and_then(|()| hold("file", hold_ns));
    std::fs::remove_file(&path)?;
    filled
}

/// A program that sleeps for longer than anybody holds.
fn sleeper() -> Command {
    let mut command = Command::new("/bin/sleep");
    command.arg("600").stdin(Stdio::null());
    command
}

fn fill(file: &mut std::fs::File, bytes: usize) -> io::Result<()> {
    let block = vec![1; 1 << 20];
    for _ in 0..bytes >> 20 {
        file.write_all(&block)?;
    }
    Ok(())
}

fn hold(what: &str, hold_ns: i64) -> io::Result<()> {
    let from = sys::boot_ns();
    sys::sleep_ns(hold_ns);
    let to = sys::boot_ns();
    sys::say(&format!(
        "{{\"held\":\"{what}\",\"from_boot_ns\":{from},\"to_boot_ns\":{to}}}"
    ))
}

fn end(children: &[i32]) -> io::Result<()> {
    for child in children {
        // SAFETY: the child is ours and not yet waited for, so its id is not reused.
        sys::check(unsafe { libc::kill(*child, libc::SIGKILL) })?;
    }
    for child in children {
        sys::wait(*child)?;
    }
    Ok(())
}
