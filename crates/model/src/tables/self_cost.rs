//! `self_cost`: what the recording itself costs.

use crate::table::table;
use crate::{BootNs, Bytes, DurationNs, Upid, WallNs};

table! {
    /// The recorder's own cost. Times and counts run up from the start of the recording. A row every 10 s, and whenever the recorder's memory has moved or it lost something.
    pub struct SelfCostRow in "self_cost" {
        /// Wall-clock time (UTC).
        ts: WallNs,
        /// Time on CLOCK_BOOTTIME.
        boot_ns: BootNs,
        /// CPU time of the recorder in user mode, all threads. Counts up.
        cpu_user_ns: DurationNs,
        /// CPU time of the recorder in the kernel, all threads. Counts up.
        cpu_system_ns: DurationNs,
        /// Resident memory of the recorder.
        rss_bytes: Option<Bytes>,
        /// Anonymous part of it.
        rss_anon_bytes: Option<Bytes>,
        /// Memory cgroup that the recorder runs in; null when unknown.
        cgroup: Option<String>,
        /// The recorder's own identity, where it is itself part of the recording.
        upid: Option<Upid>,
        /// Peak resident memory of the recorder's own image (VmHWM; elsewhere than on Linux ru_maxrss). Null where Linux has no /proc.
        peak_rss_bytes: Option<Bytes>,
        /// Time spent in memtrace's BPF programs, in the traced processes' context: measured in a short share of the time and scaled to the whole. Counts up; null without BPF, or when the kernel refuses BPF_ENABLE_STATS (5.8).
        bpf_run_ns: Option<DurationNs>,
        /// Runs of memtrace's BPF programs, scaled in the same way. Counts up.
        bpf_run_count: Option<i64>,
        /// Time from one snapshot to the next at present; grows when the recorder backs off.
        interval_ns: DurationNs,
        /// CPU time that the last snapshot took, reading and decoding included.
        snapshot_ns: Option<DurationNs>,
        /// Processes being observed.
        process_count: i64,
        /// Rows written. Counts up.
        row_count: i64,
        /// Bytes written to disk. Counts up.
        written_bytes: Bytes,
        /// Events lost, all classes; each loss is a row of `diag` too. Counts up.
        lost_event_count: i64,
    }
}
