//! Address space that is mapped and not touched: it moves no page.

use crate::Workload;
use crate::args::Args;
use crate::sys::{self, Mapping};
use std::io;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "reserve",
    help: "--bytes B --hold-ms M: maps B without touching it, holds it for M, unmaps it",
    run,
};

fn run(args: &Args) -> io::Result<()> {
    let bytes = args.size("bytes", 1 << 30)?;
    let hold_ns = args.number("hold-ms", 3_000)?.cast_signed() * 1_000_000;
    // Long enough ago that starting up is over.
    sys::sleep_ns(500_000_000);
    let before_bytes = sys::status().vm_size_bytes;
    let mapping = Mapping::anon(bytes)?;
    let mapped_boot_ns = sys::boot_ns();
    sys::sleep_ns(hold_ns);
    drop(mapping);
    sys::say(&format!(
        "{{\"pid\":{},\"before_bytes\":{before_bytes},\"mapped_bytes\":{bytes},\
         \"mapped_boot_ns\":{mapped_boot_ns}}}",
        std::process::id()
    ))
}
