//! A child that ended and is not waited for.

use crate::Workload;
use crate::args::Args;
use crate::sys::{self, Mapping};
use std::io;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "zombie",
    help: "--bytes B --hold-ms H: a child ends, and is waited for H later",
    run,
};

fn run(args: &Args) -> io::Result<()> {
    let bytes = args.size("bytes", 16 << 20)?;
    let hold_ns = args.number("hold-ms", 1_000)?.cast_signed() * 1_000_000;
    let child = sys::fork_child(|| {
        Mapping::anon(bytes)?.touch(bytes);
        Ok(())
    })?;
    while !is_zombie(child)? {
        sys::sleep_ns(1_000_000);
    }
    let zombie_boot_ns = sys::boot_ns();
    sys::sleep_ns(hold_ns);
    let ended = sys::wait_success(child)?;
    sys::say(&format!(
        "{{\"pid\":{child},\"zombie_boot_ns\":{zombie_boot_ns},\"ru_maxrss_bytes\":{}}}",
        ended.maxrss_bytes
    ))
}

fn is_zombie(child: i32) -> io::Result<bool> {
    let stat = std::fs::read_to_string(format!("/proc/{child}/stat"))?;
    let state = stat.rsplit(") ").next();
    Ok(state.is_some_and(|rest| rest.starts_with('Z')))
}
