//! A process that tells when it began to run.

use crate::Workload;
use crate::args::Args;
use crate::sys;
use std::io;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "now",
    help: "prints CLOCK_BOOTTIME and ends",
    run,
};

fn run(_: &Args) -> io::Result<()> {
    let boot_ns = sys::boot_ns();
    sys::say(&format!(
        "{{\"pid\":{},\"boot_ns\":{boot_ns}}}",
        std::process::id()
    ))
}
