//! Memory that grows step by step, each step reported: what is missing of a recording that was
//! cut off shows as steps.

use crate::Workload;
use crate::args::Args;
use crate::sys::{self, Mapping};
use std::io;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "steps",
    help: "--bytes B --count N --gap-ms G: touches B more every G, and tells",
    run,
};

fn run(args: &Args) -> io::Result<()> {
    let bytes = args.size("bytes", 2 << 20)?;
    let count = usize::try_from(args.number("count", 50)?).map_err(io::Error::other)?;
    let gap_ns = args.number("gap-ms", 100)?.cast_signed() * 1_000_000;
    let mapping = Mapping::anon(bytes * count)?;
    mapping.advise(libc::MADV_NOHUGEPAGE)?;
    for step in 0..count {
        mapping.touch_range(step * bytes, (step + 1) * bytes);
        sys::say(&format!(
            "{{\"pid\":{},\"boot_ns\":{},\"rss_bytes\":{}}}",
            std::process::id(),
            sys::boot_ns(),
            sys::status().vmrss_bytes,
        ))?;
        sys::sleep_ns(gap_ns);
    }
    Ok(())
}
