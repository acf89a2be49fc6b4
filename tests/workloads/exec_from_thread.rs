//! exec from a thread that does not lead its process: the thread becomes the leader and
//! takes over its id, so the process stays the same one.

use crate::Workload;
use crate::args::Args;
use crate::sys::{self, Mapping};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "exec-from-thread",
    help: "--bytes B: a thread of a child of B execs `hwm`",
    run,
};

fn run(args: &Args) -> io::Result<()> {
    let bytes = args.size("bytes", 32 << 20)?;
    let own = std::env::current_exe()?;
    let (mut first_reader, first_writer) = io::pipe()?;
    let child = sys::fork_child(|| {
        let mapping = Mapping::anon(bytes)?;
        mapping.touch(bytes);
        let line = sys::status().vmhwm_bytes.to_string();
        io::Write::write_all(&mut (&first_writer), line.as_bytes())?;
        let thread = std::thread::spawn(move || {
            let tid = own_tid();
            let error = Command::new(own).arg("hwm").exec();
            format!("thread {tid}: {error}")
        });
        // Only reached when exec failed: it ends every other thread.
        let error = thread.join().unwrap_or_else(|_| "panicked".to_owned());
        Err(io::Error::other(error))
    })?;
    drop(first_writer);
    let first = io::read_to_string(&mut first_reader)?;
    let ended = sys::wait_success(child)?;
    sys::say(&format!(
        "{{\"pid\":{child},\"first_image_vmhwm_bytes\":{first},\"ru_maxrss_bytes\":{}}}",
        ended.maxrss_bytes
    ))
}

fn own_tid() -> i64 {
    // SAFETY: gettid takes nothing and can't fail.
    unsafe { libc::syscall(libc::SYS_gettid) }
}
