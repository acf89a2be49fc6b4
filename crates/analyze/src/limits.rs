//! The limits there were, and how near to each it came: of cgroups, of what a process may map, and of
//! each tmpfs.

mod groups;

use super::clock::RunClock;
use super::mappings::Sizes;
use super::process::Process;
use super::process_table::ProcessTable;
use super::who::Who;
use memtrace_model::labels;
use memtrace_model::tables::TmpfsRow;
use memtrace_model::{Bytes, Instant, Order, RowSource};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;

/// So many of each kind are reported, the nearest first.
const LIMITS_MAX: usize = 20;

labels! {
    /// What a limit is of.
    pub enum LimitKind {
        /// The memory of a cgroup.
        Cgroup = "cgroup",
        /// The address space of a process (RLIMIT_AS).
        AddressSpace = "address_space",
        /// The private writable memory of a process (RLIMIT_DATA). What it had is not known.
        Data = "data",
        /// A file system in memory.
        Tmpfs = "tmpfs",
    }
}

/// A limit, and how near it came.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LimitUse {
    /// What it is of.
    pub kind: LimitKind,
    /// The process that has it, or that sees the tmpfs.
    #[serde(flatten)]
    pub who: Who,
    /// Where the tmpfs is mounted; else `None`.
    pub mount_point: Option<String>,
    /// The path of the cgroup; else `None`.
    pub cgroup: Option<String>,
    /// How much there may be.
    pub limit_bytes: Bytes,
    /// The most that there was; `None` when unknown. Of a cgroup without what could be reclaimed.
    pub used_bytes: Option<Bytes>,
    /// What the cgroup had beside that and the kernel could take back without swapping: page cache
    /// and reclaimable slab. `None` for others, and where that is not known.
    pub reclaimable_bytes: Option<Bytes>,
    /// When that was; `None` for a process.
    pub at: Option<Instant>,
    /// Whether only the kernel's own mark of the cgroup tells it: it was reached between the reading
    /// of that time and the one before.
    pub is_kernel_mark: bool,
    /// What the kernel's mark of the cgroup was at its first reading, page cache included, where that is nearer
    /// to the limit even without what could be reclaimed then: it can be from before the recording. `None` for
    /// others.
    pub earlier_mark_bytes: Option<Bytes>,
}

impl LimitUse {
    /// A limit of which nothing else is known.
    fn of(kind: LimitKind, limit: Bytes) -> Self {
        Self {
            kind,
            who: Who::default(),
            mount_point: None,
            cgroup: None,
            limit_bytes: limit,
            used_bytes: None,
            reclaimable_bytes: None,
            at: None,
            is_kernel_mark: false,
            earlier_mark_bytes: None,
        }
    }

    /// How near it was.
    pub(crate) fn share(&self) -> f64 {
        let used = self.used_bytes.unwrap_or_default();
        used.0 as f64 / self.limit_bytes.0.max(1) as f64
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
        who: Who::from(process),
        used_bytes: used,
        ..LimitUse::of(kind, limit)
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
            who: who.map_or_else(Who::default, |place| Who::from(&table.processes[place])),
            mount_point: Some(row.mount_point),
            used_bytes: Some(row.used_bytes),
            at: Some(clock.at(row.boot_ns)),
            ..LimitUse::of(LimitKind::Tmpfs, row.size_bytes)
        }
    });
    let groups = groups::read(source, clock)?;
    let mut reported = Vec::new();
    for mut all in [
        groups,
        spaces.collect::<Vec<_>>(),
        data.collect(),
        full.collect(),
    ] {
        all.order_by(|a, b| {
            let by_share = b.share().total_cmp(&a.share());
            by_share
                .then(a.limit_bytes.cmp(&b.limit_bytes))
                .then(a.who.cmp(&b.who))
                .then_with(|| a.cgroup.cmp(&b.cgroup))
        });
        all.truncate(LIMITS_MAX);
        reported.extend(all);
    }
    Ok(reported)
}
