//! Writes `oom` from the kernel log alone, for backends without an event for it.

use super::kmsg::KmsgReader;
use crate::{CollectError, Collector, Pass, Tick};
use memtrace_model::{DurationNs, OomRow, Upid};

/// A reading of an empty log costs one refused read(2).
const PERIOD: DurationNs = DurationNs(100_000_000);

/// Follows the kernel log. It has to be asked before the backend that notices ends, so
/// that a victim is still known when the log names it.
#[derive(Debug)]
pub struct OomCollector {
    reader: KmsgReader,
    /// The log names processes by their ids in the initial pid namespace. From inside
    /// another one they can't be reported.
    is_initial_pid_ns: bool,
}

impl OomCollector {
    /// A collector on an open log.
    pub fn new(reader: KmsgReader, is_initial_pid_ns: bool) -> Self {
        Self {
            reader,
            is_initial_pid_ns,
        }
    }
}

impl Collector for OomCollector {
    fn name(&self) -> &'static str {
        "oom"
    }

    fn period(&self) -> DurationNs {
        PERIOD
    }

    fn collect(&mut self, pass: &mut Pass<'_>) -> Result<(), CollectError> {
        if self.is_initial_pid_ns {
            pass.table.observe_oom_kills();
        }
        let kills = self
            .reader
            .poll(pass.tick.boot)
            .map_err(|error| CollectError::new("/dev/kmsg", error))?;
        for kill in kills {
            let victim = self
                .is_initial_pid_ns
                .then(|| pass.table.note_oom_kill(kill.victim_tgid, None))
                .flatten();
            pass.write(logged(kill, victim, pass.tick));
        }
        Ok(())
    }
}

/// The row for a kill that only the log tells of. It names the thread that triggered the kill, not
/// which process that is of.
pub fn logged(kill: OomRow, victim: Option<Upid>, tick: &Tick) -> OomRow {
    OomRow {
        ts: tick.clock.to_wall(kill.boot_ns),
        victim_upid: victim,
        ..kill
    }
}

/// The row for a kill of which the probe tells too: from the log is what only that knows, and what
/// the probe could not read.
pub fn complete(probed: OomRow, kill: OomRow) -> OomRow {
    OomRow {
        ts: probed.ts,
        boot_ns: probed.boot_ns,
        victim_upid: probed.victim_upid,
        victim_comm: probed.victim_comm.or(kill.victim_comm),
        trigger_upid: probed.trigger_upid,
        trigger_tgid: probed.trigger_tgid,
        trigger_comm: probed.trigger_comm,
        victim_rss_anon_bytes: probed.victim_rss_anon_bytes.or(kill.victim_rss_anon_bytes),
        victim_rss_file_bytes: probed.victim_rss_file_bytes.or(kill.victim_rss_file_bytes),
        victim_rss_shmem_bytes: probed
            .victim_rss_shmem_bytes
            .or(kill.victim_rss_shmem_bytes),
        victim_oom_score_adj: probed.victim_oom_score_adj.or(kill.victim_oom_score_adj),
        ..kill
    }
}
