//! Limits that no cgroup sets: what a process may map, and how full each tmpfs was.

use super::clock::RunClock;
use super::mappings::Sizes;
use super::process::Process;
use super::process_table::ProcessTable;
use super::who::Who;
use memtrace_model::labels;
use memtrace_model::tables::TmpfsRow;
use memtrace_model::{Bytes, Instant, Order, RowSource};
use memtrace_report::words::bytes;
use memtrace_report::{visible, words};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;

/// So many of each kind are reported, the nearest first.
const LIMITS_MAX: usize = 20;

labels! {
    /// What a limit is of.
    pub enum LimitKind {
        /// The address space of a process (RLIMIT_AS).
        AddressSpace = "address_space",
        /// The private writable memory of a process (RLIMIT_DATA). What it had is not known.
        Data = "data",
        /// A file system in memory.
        Tmpfs = "tmpfs",
    }
}

/// A limit that no cgroup sets.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LimitUse {
    /// What it is of.
    pub kind: LimitKind,
    /// The process that has it, or that sees the tmpfs.
    #[serde(flatten)]
    pub who: Who,
    /// Where the tmpfs is mounted; `None` for a limit of a process.
    pub mount_point: Option<String>,
    /// How much there may be.
    pub limit_bytes: Bytes,
    /// The most that there was; `None` when unknown.
    pub used_bytes: Option<Bytes>,
    /// When that was; `None` for a process.
    pub at: Option<Instant>,
}

impl LimitUse {
    /// How near it was.
    pub(super) fn share(&self) -> f64 {
        let used = self.used_bytes.unwrap_or_default();
        used.0 as f64 / self.limit_bytes.0.max(1) as f64
    }

    /// `64 MiB of the 64 MiB of /dev/shm were in use at +3.2s (100%)`.
    pub(super) fn in_words(&self, clock: &RunClock) -> String {
        let (limit, who) = (bytes(self.limit_bytes), self.who.in_words());
        let used = self.used_bytes.map(bytes);
        let share = words::share(self.used_bytes, Some(self.limit_bytes));
        match (self.kind, used) {
            (LimitKind::Tmpfs, Some(used)) => {
                let path = visible(self.mount_point.as_deref().unwrap_or_default());
                let at = self.at.map(|at| clock.when(at)).unwrap_or_default();
                format!("{used} of the {limit} of {path} were in use at {at} ({share})")
            }
            (LimitKind::AddressSpace, Some(used)) => format!(
                "{who} had mapped {used} of the {limit} of address space that RLIMIT_AS allows it \
                 ({share})"
            ),
            (LimitKind::Data, _) => {
                format!("RLIMIT_DATA allows {who} {limit} of private memory")
            }
            (_, None) => format!("RLIMIT_AS allows {who} {limit} of address space"),
        }
    }
}

/// The limits that there were, of each kind the nearest first.
pub(super) fn read<S: RowSource>(
    source: &S,
    sizes: &Sizes,
    table: &ProcessTable,
    clock: &RunClock,
) -> Result<Vec<LimitUse>, S::Error> {
    let mut fullest: HashMap<String, TmpfsRow> = HashMap::new();
    source.scan(&[], |row: TmpfsRow| {
        let known = fullest.get(&row.device);
        if known.is_none_or(|known| known.used_bytes < row.used_bytes) {
            fullest.insert(row.device.clone(), row);
        }
    })?;
    let of_process = |kind, process: &Process, limit, used| LimitUse {
        kind,
        who: Who::from(process),
        mount_point: None,
        limit_bytes: limit,
        used_bytes: used,
        at: None,
    };
    let processes = table.processes.iter();
    let spaces = processes
        .clone()
        .enumerate()
        .filter_map(|(place, process)| {
            let used = sizes.of(place);
            Some(of_process(
                LimitKind::AddressSpace,
                process,
                process.rlimits.as_ref()?.as_bytes?,
                used,
            ))
        });
    let data = processes.filter_map(|process| {
        Some(of_process(
            LimitKind::Data,
            process,
            process.rlimits.as_ref()?.data_bytes?,
            None,
        ))
    });
    let full = fullest.into_values().map(|row| {
        let who = table.find(row.seen_by_upid);
        LimitUse {
            kind: LimitKind::Tmpfs,
            who: who.map_or_else(Who::default, |place| Who::from(&table.processes[place])),
            mount_point: Some(row.mount_point),
            limit_bytes: row.size_bytes,
            used_bytes: Some(row.used_bytes),
            at: Some(clock.at(row.boot_ns)),
        }
    });
    let mut reported = Vec::new();
    for mut all in [spaces.collect::<Vec<_>>(), data.collect(), full.collect()] {
        all.order_by(|a, b| {
            let by_share = b.share().total_cmp(&a.share());
            by_share
                .then(a.limit_bytes.cmp(&b.limit_bytes))
                .then(a.who.cmp(&b.who))
        });
        all.truncate(LIMITS_MAX);
        reported.extend(all);
    }
    Ok(reported)
}
