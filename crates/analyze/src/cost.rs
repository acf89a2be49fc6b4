//! What the recording itself cost, from `self_cost`.

use memtrace_model::tables::SelfCostRow;
use memtrace_model::{BootNs, Bytes, DurationNs, RowSource};
use schemars::JsonSchema;
use serde::Serialize;

/// The recorder's own cost over the recording.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RecorderCost {
    /// CPU time of the recorder, user and system.
    pub cpu_ns: DurationNs,
    /// That time as a share of one CPU, 1.0 for a whole one, between the first and the last
    /// measurement; `None` for a recording too short to tell.
    pub cpu_share: Option<f64>,
    /// Peak resident memory of the recorder.
    pub peak_rss_bytes: Option<Bytes>,
    /// Time in memtrace's BPF programs, spent by the traced processes.
    pub bpf_run_ns: Option<DurationNs>,
    /// Bytes written to the recording.
    pub written_bytes: Bytes,
    /// Rows written to the recording.
    pub row_count: i64,
    /// Events that were lost.
    pub lost_event_count: i64,
    /// The interval at the end; longer than asked for when the recorder backed off.
    pub interval_ns: DurationNs,
    /// The first and the last row.
    #[serde(skip)]
    pub(super) span: (BootNs, BootNs),
}

/// Reads `self_cost`; `None` when it is empty.
pub(super) fn read<S: RowSource>(source: &S) -> Result<Option<RecorderCost>, S::Error> {
    let mut ends: Option<(SelfCostRow, SelfCostRow)> = None;
    let mut peak_rss = None;
    source.scan(&[], |row: SelfCostRow| {
        peak_rss = peak_rss.max(row.peak_rss_bytes).max(row.rss_bytes);
        match &mut ends {
            None => ends = Some((row.clone(), row)),
            Some((_, last)) => *last = row,
        }
    })?;
    Ok(ends.map(|(first, last)| summary(&first, &last, peak_rss)))
}

fn summary(first: &SelfCostRow, last: &SelfCostRow, peak_rss: Option<Bytes>) -> RecorderCost {
    let cpu = |row: &SelfCostRow| row.cpu_user_ns.0.saturating_add(row.cpu_system_ns.0);
    // Between the first row and the last, because the first row already carries the start-up:
    // over seconds that would read as a steady load.
    let span_ns = (last.boot_ns - first.boot_ns).0;
    let share = (cpu(last).saturating_sub(cpu(first))) as f64 / span_ns as f64;
    RecorderCost {
        cpu_ns: DurationNs(cpu(last)),
        cpu_share: (span_ns >= 1_000_000_000).then_some(share),
        peak_rss_bytes: peak_rss,
        bpf_run_ns: last.bpf_run_ns,
        written_bytes: last.written_bytes,
        row_count: last.row_count,
        lost_event_count: last.lost_event_count,
        interval_ns: last.interval_ns,
        span: (first.boot_ns, last.boot_ns),
    }
}
