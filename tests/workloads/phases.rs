//! A program that marks phases around memory of a known size.

use crate::Workload;
use crate::args::Args;
use crate::marks::Marker;
use crate::sys::{self, Mapping};
use std::io;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "phases",
    help: "--bytes B --steps N --leak L --gap-ms G: a phase that adds B, steps that add L each",
    run,
};

fn run(args: &Args) -> io::Result<()> {
    let bytes = args.size("bytes", 64 << 20)?;
    let steps = args.size("steps", 6)?;
    let leak = args.size("leak", 4 << 20)?;
    let gap_ns = args.number("gap-ms", 400)?.cast_signed() * 1_000_000;
    let mapping = Mapping::anon(bytes + steps * leak)?;
    mapping.advise(libc::MADV_NOHUGEPAGE)?;
    let mut marker = Marker::connect()?;
    // A poll sees what stands longer than its interval: what a phase begins with has stood since the
    // one before it.
    sys::sleep_ns(gap_ns);
    let mut phase = |name: &str, from: usize, to: usize| {
        let before = sys::status().vmrss_bytes;
        marker.send("begin", name, sys::boot_ns(), true)?;
        mapping.touch_range(from, to);
        sys::sleep_ns(gap_ns);
        marker.send("end", name, sys::boot_ns(), true)?;
        sys::say(&format!(
            "{{\"phase\":\"{name}\",\"pid\":{},\"delta_bytes\":{}}}",
            std::process::id(),
            sys::status().vmrss_bytes - before,
        ))
    };
    phase("load", 0, bytes)?;
    for step in 0..steps {
        let from = bytes + step * leak;
        phase(&format!("step_{step}_work"), from, from + leak)?;
    }
    sys::sleep_ns(gap_ns);
    Ok(())
}
