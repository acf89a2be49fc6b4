//! A process that renames itself, as workers of Ray and vLLM do.

use crate::Workload;
use crate::args::Args;
use crate::sys;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "titles",
    help: "--count N --gap-ms G --title T: new names by prctl, titles over the argument area",
    run,
};

fn run(args: &Args) -> io::Result<()> {
    let count = args.number("count", 5)?;
    let gap_ns = args.number("gap-ms", 100)?.cast_signed() * 1_000_000;
    let base = args.text("title", "worker");
    let padding = args.text("padding", "");
    if padding.is_empty() {
        // A title needs room, so the process starts itself again with more arguments.
        let own = std::env::current_exe()?;
        return Err(Command::new(own)
            .arg("titles")
            .args(["--count", &count.to_string()])
            .args(["--gap-ms", &(gap_ns / 1_000_000).to_string()])
            .args(["--title", &base])
            .args(["--padding", &"x".repeat(256)])
            .exec());
    }
    let (area, room) = argument_area()?;
    for index in 0..count {
        let title = format!("{base}::phase-{index}");
        let name = CString::new(format!("phase-{index}"))?;
        let mut bytes = vec![0; room];
        bytes[..title.len()].copy_from_slice(title.as_bytes());
        // SAFETY: the range is the process's argument area, which is writable; the
        // options were copied out of it at the start.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), area, room) };
        // SAFETY: the name ends in NUL and lives through the call.
        sys::check(unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) })?;
        let boot_ns = sys::boot_ns();
        let cmdline = std::fs::read("/proc/self/cmdline")?;
        let seen = cmdline.split(|byte| *byte == 0).next().unwrap_or_default();
        sys::say(&format!(
            "{{\"pid\":{},\"boot_ns\":{boot_ns},\"comm\":{:?},\"title\":{:?}}}",
            std::process::id(),
            name.to_string_lossy(),
            OsStr::from_bytes(seen).to_string_lossy()
        ))?;
        sys::sleep_ns(gap_ns);
    }
    Ok(())
}

/// Where the kernel reads /proc/PID/cmdline from, out of /proc/self/stat.
fn argument_area() -> io::Result<(*mut u8, usize)> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let rest = stat.rsplit(") ").next().unwrap_or_default();
    // arg_start and arg_end are fields 48 and 49, and this begins with field 3.
    let mut fields = rest.split_whitespace().skip(45).map(str::parse::<usize>);
    match (fields.next(), fields.next()) {
        (Some(Ok(start)), Some(Ok(end))) if start != 0 && start < end => {
            // One byte stays NUL: with another there the kernel reads on into the
            // environment.
            Ok((start as *mut u8, end - start - 1))
        }
        _ => Err(io::Error::other("/proc/self/stat does not tell arg_start")),
    }
}
