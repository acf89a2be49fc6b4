//! Children that end at once, as many and as fast as asked for, beside a process that renames
//! itself all the time.

use crate::Workload;
use crate::args::Args;
use crate::sys::{self, Ended, Forked};
use std::ffi::CString;
use std::io;
use std::process::Command;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "swarm",
    help: "--count N --rate R --execs E --renames M: children that end, every E-th after exec",
    run,
};

/// Children that run at once.
const AT_ONCE: usize = 16;
/// Exit codes go round.
const CODES: usize = 200;

fn run(args: &Args) -> io::Result<()> {
    let count = args.size("count", 2_000)?;
    let rate = args.number("rate", 0)?;
    let execs = args.size("execs", 0)?;
    let renames = args.number("renames", 0)?;
    let renamer = match renames {
        0 => None,
        _ => Some(sys::fork_child(|| rename(renames))?),
    };
    let start_ns = sys::clock_ns(libc::CLOCK_MONOTONIC);
    let mut ended: Vec<Ended> = Vec::with_capacity(count);
    let mut running = 0;
    for index in 0..count {
        if let Some(pause_ns) = 1_000_000_000_u64.checked_div(rate) {
            let due_ns = start_ns + (index as u64 * pause_ns).cast_signed();
            let early_ns = due_ns - sys::clock_ns(libc::CLOCK_MONOTONIC);
            if early_ns > 0 {
                sys::sleep_ns(early_ns);
            }
        }
        if running >= AT_ONCE {
            take(renamer, &mut ended)?;
            running -= 1;
        }
        let does_exec = execs > 0 && index % execs == 0;
        let code = (index % CODES).to_string();
        if does_exec {
            let child = Command::new("/bin/sh")
                .args(["-c", &format!("exit {code}")])
                .spawn()?;
            // It is waited for with the others.
            drop(child);
        } else if let Forked::Child = sys::fork()? {
            sys::exit(i32::try_from(index % CODES).unwrap_or(0));
        }
        running += 1;
    }
    for _ in 0..running {
        take(renamer, &mut ended)?;
    }
    let mut lines = String::new();
    for child in ended {
        lines.push_str(&format!(
            "{{\"pid\":{},\"exit_code\":{},\"ru_maxrss_bytes\":{}}}\n",
            child.pid,
            libc::WEXITSTATUS(child.status),
            child.maxrss_bytes
        ));
    }
    sys::say(lines.trim_end())?;
    if let Some(renamer) = renamer {
        sys::say(&format!(
            "{{\"renamer\":{renamer},\"name\":\"n-{}\"}}",
            renames - 1
        ))?;
    }
    sys::until_stdin_closes()?;
    if let Some(renamer) = renamer {
        // SAFETY: the child is ours and not yet waited for, so its id is not reused.
        sys::check(unsafe { libc::kill(renamer, libc::SIGKILL) })?;
        sys::wait(renamer)?;
    }
    Ok(())
}

/// Waits for one child.
fn take(renamer: Option<i32>, ended: &mut Vec<Ended>) -> io::Result<()> {
    let child = sys::wait(-1)?;
    if Some(child.pid) == renamer {
        return Err(io::Error::other("the process that renames itself ended"));
    }
    ended.push(child);
    Ok(())
}

fn rename(times: u64) -> io::Result<()> {
    sys::die_with_parent()?;
    for index in 0..times {
        let name = CString::new(format!("n-{index}"))?;
        // SAFETY: the name ends in NUL and lives through the call.
        sys::check(unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) })?;
    }
    loop {
        sys::sleep_ns(3_600_000_000_000);
    }
}
