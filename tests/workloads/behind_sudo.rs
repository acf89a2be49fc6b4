//! What a program sees that is run by sudo: a process of the calling user above, below it
//! one of root's that was given the caller's environment, and below that the program.

use crate::Workload;
use crate::args::Args;
use crate::sys;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "behind-sudo",
    help: "--uid U --script S: a shell of root's runs S, whose parent is a process of U",
    run,
};

fn run(args: &Args) -> io::Result<()> {
    let uid = u32::try_from(args.number("uid", 65_534)?).map_err(io::Error::other)?;
    let script = args.text("script", "");
    // SAFETY: plain numbers. The saved id stays root's, so that the child may be root.
    sys::check(unsafe { libc::setresuid(uid, uid, 0) })?;
    // /proc shows what changed its user as root's, unless it says otherwise.
    // SAFETY: plain numbers.
    sys::check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1) })?;
    let child = sys::fork_child(|| {
        // SAFETY: plain numbers.
        sys::check(unsafe { libc::setresuid(0, 0, 0) })?;
        Err(Command::new("/bin/sh").arg("-c").arg(&script).exec())
    })?;
    let status = sys::wait(child)?.status;
    let code = if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        128 + libc::WTERMSIG(status)
    };
    sys::exit(code)
}
