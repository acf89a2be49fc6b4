//! A child that ended and is not waited for.

use crate::Workload;
use crate::args::Args;
use crate::sys::{self, Mapping};
use std::io;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "zombie",
    help: "--bytes B --hold-ms H: a child ends, and is taken off H later",
    run,
};

fn run(args: &Args) -> io::Result<()> {
    let bytes = args.size("bytes", 16 << 20)?;
    let hold_ns = args.number("hold-ms", 1_000)?.cast_signed() * 1_000_000;
    let child = sys::fork_child(|| {
        Mapping::anon(bytes)?.touch(bytes);
        Ok(())
    })?;
    sys::wait_until_zombie(child)?;
    let zombie_boot_ns = sys::boot_ns();
    sys::sleep_ns(hold_ns);
    let ended = sys::wait_success(child)?;
    sys::say(&format!(
        "{{\"pid\":{child},\"zombie_boot_ns\":{zombie_boot_ns},\"ru_maxrss_bytes\":{}}}",
        ended.maxrss_bytes
    ))
}
