//! The rows of `self_cost`: what this recorder has cost so far.

use super::output::Output;
use memtrace_collect::{ProcessTable, Tick};
use memtrace_host::clock;
use memtrace_model::{Bytes, DurationNs, SelfCostRow, Tgid};
use std::path::Path;

/// The cost up to now.
pub(super) fn row(
    tick: &Tick,
    table: &ProcessTable,
    output: &Output,
    interval: DurationNs,
    own_cgroup: Option<&str>,
) -> SelfCostRow {
    let resident = resident();
    let usage = usage();
    let stats = output.stats();
    let bpf = table.bpf_run_time();
    SelfCostRow {
        ts: tick.wall(),
        boot_ns: tick.boot,
        cpu_user_ns: duration(usage.ru_utime),
        cpu_system_ns: duration(usage.ru_stime),
        rss_bytes: resident.map(|(all, _)| all),
        rss_anon_bytes: resident.map(|(_, anon)| anon),
        cgroup: own_cgroup.map(str::to_owned),
        upid: table.upid(Tgid(std::process::id())),
        peak_rss_bytes: own_peak(Path::new("/proc/self"), &usage),
        bpf_run_ns: bpf.map(|(time, _)| time),
        bpf_run_count: bpf.map(|(_, count)| count),
        interval_ns: interval,
        snapshot_ns: table.snapshot_cost(),
        process_count: i64::try_from(table.len()).unwrap_or(i64::MAX),
        row_count: stats.row_count,
        written_bytes: stats.written_bytes,
        lost_event_count: table.lost_event_count(),
    }
}

/// CPU time of a closure on this thread.
pub(super) fn timed<T>(work: impl FnOnce() -> T) -> (T, DurationNs) {
    let before = clock::thread_cpu();
    let result = work();
    (result, DurationNs(clock::thread_cpu().0 - before.0))
}

fn usage() -> libc::rusage {
    // SAFETY: rusage is integers only, so zeroed is valid, and the call fills it.
    unsafe {
        let mut usage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    }
}

/// ru_maxrss in bytes: the kernel counts KiB on Linux and bytes on macOS.
pub(super) fn max_resident(usage: &libc::rusage) -> Bytes {
    let unit = if cfg!(target_os = "macos") { 1 } else { 1024 };
    Bytes(usage.ru_maxrss.saturating_mul(unit))
}

fn duration(time: libc::timeval) -> DurationNs {
    // suseconds_t has 32 bits on macOS.
    #[allow(clippy::useless_conversion)]
    let microseconds = i64::from(time.tv_usec);
    DurationNs(time.tv_sec * 1_000_000_000 + microseconds * 1_000)
}

/// The highest RSS of this program's own image (VmHWM), by what /proc says of it. Unknown where
/// there is no /proc: ru_maxrss is carried over by exec on Linux, and would be what the process that
/// started memtrace held, where that was more.
#[cfg(target_os = "linux")]
fn own_peak(own: &Path, _usage: &libc::rusage) -> Option<Bytes> {
    let status = std::fs::read_to_string(own.join("status")).ok()?;
    let mut lines = status.lines();
    let high = lines.find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: i64 = high.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(Bytes(kib * 1024))
}

/// The highest RSS of this process, as far as other systems tell it.
#[cfg(not(target_os = "linux"))]
fn own_peak(_own: &Path, usage: &libc::rusage) -> Option<Bytes> {
    Some(max_resident(usage))
}

/// Resident memory of this process, and the anonymous part of it; unknown where there is no
/// /proc.
fn resident() -> Option<(Bytes, Bytes)> {
    #[cfg(target_os = "linux")]
    {
        let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
        let mut words = statm.split(' ').skip(1);
        let mut pages = || words.next()?.parse::<i64>().ok();
        let (all, shared) = (pages()?, pages()?);
        let page = i64::try_from(rustix::param::page_size()).ok()?;
        Some((Bytes(all * page), Bytes((all - shared) * page)))
    }
    #[cfg(not(target_os = "linux"))]
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_own_peak_is_what_the_kernel_says_of_this_image_or_unknown() {
        let own = tempfile::tempdir().unwrap();
        let peak = || own_peak(own.path(), &usage());
        assert_eq!(peak(), None, "no /proc");
        std::fs::write(own.path().join("status"), "VmHWM:\t    3000 kB\n").unwrap();
        assert_eq!(peak(), Some(Bytes(3000 << 10)));
    }
}
