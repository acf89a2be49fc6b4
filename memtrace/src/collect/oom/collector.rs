//! Writes `oom` from the kernel log alone, for backends without an event for it.

use super::kmsg::KmsgReader;
use super::report::KernelOom;
use crate::collect::{CollectError, Collector, Tick, World};
use crate::model::{DurationNs, OomRow, Record, Upid};

/// A reading of an empty log costs one refused read(2).
const PERIOD: DurationNs = DurationNs(100_000_000);

/// Follows the kernel log. It has to be asked before the backend that notices ends, so
/// that a victim is still known when the log names it.
#[derive(Debug)]
pub struct OomCollector {
    reader: KmsgReader,
    /// The log names processes by their ids in the initial pid namespace. From inside
    /// another one they can't be told.
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
        world: &mut World,
        out: &mut Vec<Record>,
    ) -> Result<(), CollectError> {
        if self.is_initial_pid_ns {
            world.observe_oom_kills();
        }
        let kills = self.reader.poll(tick.boot).map_err(|error| CollectError {
            subject: "/dev/kmsg".to_owned(),
            message: error.to_string(),
        })?;
        for kill in kills {
            let victim = self
                .is_initial_pid_ns
                .then(|| world.note_oom_kill(kill.victim_tgid, None))
                .flatten();
            out.push(Record::Oom(kill.into_row(victim, tick)));
        }
        Ok(())
    }
}

impl KernelOom {
    /// The row of `oom` for a kill that only the log tells of.
    pub fn into_row(self, victim: Option<Upid>, tick: &Tick) -> OomRow {
        OomRow {
            ts: tick.clock.to_wall(self.boot),
            boot_ns: self.boot,
            victim_upid: victim,
            victim_tgid: self.victim_tgid,
            victim_comm: Some(self.victim_comm),
            // The log gives the id of the thread, if any; not which process it is of.
            trigger_upid: None,
            trigger_tgid: None,
            trigger_comm: self.trigger_comm,
            victim_rss_anon_bytes: self.anon,
            victim_rss_file_bytes: self.file,
            victim_rss_shmem_bytes: self.shmem,
            victim_oom_score_adj: self.oom_score_adj,
            constraint: self.constraint,
            memcg: self.memcg,
            memcg_limit_bytes: self.limit,
            memcg_usage_bytes: self.usage,
        }
    }
}
