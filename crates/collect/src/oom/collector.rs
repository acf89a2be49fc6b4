//! Writes `oom` from the kernel log alone, for backends without an event for it.

use super::kmsg::KmsgReader;
use super::report::KernelOom;
use crate::{CollectError, Collector, ProcessTable, Tick};
use memtrace_model::{DurationNs, OomRow, Record, Upid};

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

    fn collect(
        &mut self,
        tick: &Tick,
        table: &mut ProcessTable,
        out: &mut Vec<Record>,
    ) -> Result<(), CollectError> {
        if self.is_initial_pid_ns {
            table.observe_oom_kills();
        }
        let kills = self.reader.poll(tick.boot).map_err(|error| CollectError {
            subject: "/dev/kmsg".to_owned(),
            message: error.to_string(),
        })?;
        for kill in kills {
            let victim = self
                .is_initial_pid_ns
                .then(|| table.note_oom_kill(kill.victim_tgid, None))
                .flatten();
            out.push(kill.into_row(victim, tick).into());
        }
        Ok(())
    }
}

impl KernelOom {
    /// The row of `oom` for a kill that only the log tells of.
    pub fn into_row(self, victim: Option<Upid>, tick: &Tick) -> OomRow {
        let mut row = OomRow::of_victim(tick.clock.to_wall(self.boot), self.boot, self.victim_tgid);
        row.victim_upid = victim;
        // The log gives the id of the thread, if any; not which process it is of.
        row.trigger_comm.clone_from(&self.trigger_comm);
        self.complete(&mut row);
        row
    }

    /// Adds to a row what only the log knows, and what the row lacks.
    pub fn complete(self, row: &mut OomRow) {
        row.constraint = self.constraint;
        row.memcg = self.memcg;
        row.memcg_limit_bytes = self.limit;
        row.memcg_usage_bytes = self.usage;
        row.victim_comm.get_or_insert(self.victim_comm);
        row.victim_rss_anon_bytes = row.victim_rss_anon_bytes.or(self.anon);
        row.victim_rss_file_bytes = row.victim_rss_file_bytes.or(self.file);
        row.victim_rss_shmem_bytes = row.victim_rss_shmem_bytes.or(self.shmem);
        row.victim_oom_score_adj = row.victim_oom_score_adj.or(self.oom_score_adj);
        let kinds = self.memcg_kinds;
        row.memcg_anon_bytes = kinds.anon;
        row.memcg_file_bytes = kinds.file;
        row.memcg_shmem_bytes = kinds.shmem;
        row.memcg_kernel_bytes = kinds.kernel;
        row.memcg_slab_bytes = kinds.slab;
        row.memcg_slab_reclaimable_bytes = kinds.slab_reclaimable;
        row.memcg_pagetables_bytes = kinds.pagetables;
        row.memcg_swap_bytes = kinds.swap;
    }
}
