//! Memory that stands for a few milliseconds, again and again.

use crate::Workload;
use crate::args::{Args, bad};
use crate::sys::{self, Mapping, Random};
use std::io;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "spike",
    help: "--bytes B --hold-ms H --count N --kind anon|shm|thp --gap-ms G --jitter-ms J \
           --churn N: 2 MiB up and down before each; --first-fall B: so much 1 ms before the rest",
    run,
};

const HUGE_PAGE: usize = 2 << 20;
const CHURN_BYTES: usize = 2 << 20;

fn run(args: &Args) -> io::Result<()> {
    let bytes = args.size("bytes", 32 << 20)?;
    let hold_ns = args.number("hold-ms", 10)?.cast_signed() * 1_000_000;
    let count = args.number("count", 5)?;
    let kind = args.text("kind", "anon");
    let gap_ns = args.number("gap-ms", 150)? * 1_000_000;
    let jitter_ns = args.number("jitter-ms", 0)? * 1_000_000;
    let churn = args.number("churn", 0)?;
    let first_fall = args.size("first-fall", 0)?;
    let mut random = Random::new(args.number("seed", 1)?);
    for index in 0..count {
        sys::sleep_ns((gap_ns + random.below(jitter_ns)).cast_signed());
        let base = sys::walked_rss_bytes();
        for _ in 0..churn {
            map(&kind, CHURN_BYTES)?.touch(usize::MAX);
        }
        let begin_ns = sys::boot_ns();
        let mapping = map(&kind, bytes)?;
        mapping.touch(usize::MAX);
        let high_ns = sys::boot_ns();
        let high = sys::walked_rss_bytes();
        let huge_bytes = if kind == "thp" { huge_bytes()? } else { 0 };
        sys::sleep_ns(hold_ns - (sys::boot_ns() - high_ns));
        let release_ns = sys::boot_ns();
        if first_fall > 0 {
            mapping.drop_range(0, first_fall)?;
            sys::sleep_ns(1_000_000);
        }
        drop(mapping);
        let end_ns = sys::boot_ns();
        sys::say(&format!(
            "{{\"spike\":{index},\"pid\":{},\"kind\":\"{kind}\",\"base_rss_bytes\":{base},\
             \"high_rss_bytes\":{high},\"huge_bytes\":{huge_bytes},\"vmhwm_bytes\":{},\
             \"begin_boot_ns\":{begin_ns},\"high_boot_ns\":{high_ns},\
             \"release_boot_ns\":{release_ns},\"end_boot_ns\":{end_ns}}}",
            std::process::id(),
            sys::status().vmhwm_bytes,
        ))?;
    }
    sys::sleep_ns(gap_ns.cast_signed());
    Ok(())
}

fn map(kind: &str, bytes: usize) -> io::Result<Mapping> {
    match kind {
        "anon" => {
            let mapping = Mapping::anon(bytes)?;
            mapping.advise(libc::MADV_NOHUGEPAGE)?;
            Ok(mapping)
        }
        "shm" => Mapping::shared(bytes),
        "thp" => {
            // One more, because the kernel need not give an aligned start.
            let mapping = Mapping::anon(bytes + HUGE_PAGE)?;
            mapping.advise(libc::MADV_HUGEPAGE)?;
            Ok(mapping)
        }
        _ => Err(bad(format!("there is no kind {kind:?}"))),
    }
}

/// How much of this process is huge pages: the proof that `thp` was what it says.
fn huge_bytes() -> io::Result<i64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("AnonHugePages:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<i64>().ok());
    kib.map(|kib| kib * 1024)
        .ok_or_else(|| io::Error::other("smaps_rollup does not tell AnonHugePages"))
}
