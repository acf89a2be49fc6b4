//! How near each cgroup came to its limit, over the whole recording: by every reading of it, and by
//! the kernel's own mark, which knows of what no reading met.

use super::{LimitKind, LimitUse};
use crate::clock::RunClock;
use memtrace_model::tables::CgroupMemRow;
use memtrace_model::{BootNs, Bytes, RowSource};
use std::collections::BTreeMap;

/// The mark is reported where it exceeds every reading by one part of the limit in so many: less is what
/// counts lag by.
const MARK_PART: f64 = 100.0;

/// What was in use of a group at an instant, beside what could be reclaimed.
#[derive(Clone, Copy, Debug)]
struct Used {
    at: BootNs,
    limit: Bytes,
    bytes: Bytes,
    reclaimable: Option<Bytes>,
}

impl Used {
    fn share(&self) -> f64 {
        self.bytes.0 as f64 / self.limit.0.max(1) as f64
    }

    /// With what could be reclaimed.
    fn whole(self) -> Bytes {
        self.bytes + self.reclaimable.unwrap_or_default()
    }

    /// Whether it is so much nearer to the limit that it is worth telling.
    fn is_beyond(&self, known: &Self) -> bool {
        self.share() > known.share() + 1.0 / MARK_PART
    }
}

/// A group while it is read.
#[derive(Debug, Default)]
struct Group {
    /// `None` while it had none.
    limit: Option<Bytes>,
    nearest: Option<Used>,
    /// The same by the kernel's mark.
    marked: Option<Used>,
    /// The mark of the first reading, which can be from before the recording.
    earlier: Option<Used>,
    /// The mark of the last reading, and what could be reclaimed then.
    last: Option<(Bytes, Option<Bytes>)>,
}

/// Reads `cgroup_mem`, which has the groups of the recorded processes and those above them that have
/// a limit.
pub(super) fn read<S: RowSource>(source: &S, clock: &RunClock) -> Result<Vec<LimitUse>, S::Error> {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    let columns = [
        "boot_ns",
        "cgroup",
        "current_bytes",
        "peak_bytes",
        "limit_bytes",
        "file_bytes",
        "shmem_bytes",
        "slab_reclaimable_bytes",
    ];
    source.scan(&columns, |row: CgroupMemRow| {
        match groups.get_mut(&row.cgroup) {
            Some(group) => group.take(&row),
            None => groups.entry(row.cgroup.clone()).or_default().take(&row),
        }
    })?;
    let limits = groups.into_iter().filter_map(|(path, group)| {
        let (used, is_kernel_mark) = group.highest();
        let limit = used.map(|used| used.limit).or(group.limit)?;
        Some(LimitUse {
            cgroup: Some(path),
            used_bytes: used.map(|used| used.bytes),
            reclaimable_bytes: used.and_then(|used| used.reclaimable),
            at: used.map(|used| clock.at(used.at)),
            is_kernel_mark,
            earlier_mark_bytes: group.earlier_beyond(used).map(Used::whole),
            ..LimitUse::of(LimitKind::Cgroup, limit)
        })
    });
    Ok(limits.collect())
}

impl Group {
    fn take(&mut self, row: &CgroupMemRow) {
        self.limit = row.limit_bytes.or(self.limit);
        let reclaimable = row.reclaimable_bytes();
        let last = row.peak_bytes.map(|mark| (mark, reclaimable));
        let last = std::mem::replace(&mut self.last, last);
        let Some(limit) = row.limit_bytes else {
            return;
        };
        let used = |bytes: Bytes, reclaimable: Option<Bytes>| {
            let reclaimable = reclaimable.map(|reclaimable| reclaimable.min(bytes));
            Used {
                at: row.boot_ns,
                limit,
                bytes: bytes - reclaimable.unwrap_or_default(),
                reclaimable,
            }
        };
        let keep = |kept: &mut Option<Used>, used: Used| {
            if kept.is_none_or(|kept| kept.share() < used.share()) {
                *kept = Some(used);
            }
        };
        if let Some(current) = row.current_bytes {
            keep(&mut self.nearest, used(current, reclaimable));
        }
        let first = row
            .peak_bytes
            .filter(|mark| last.is_none() && *mark <= limit);
        if let Some(mark) = first {
            self.earlier = self.earlier.or(Some(used(mark, reclaimable)));
        }
        // A mark that did not rise between two readings can be from before the recording, and one above
        // the limit is from before that was lowered.
        let risen = row.peak_bytes.zip(last);
        let risen = risen.filter(|(mark, (before, _))| before < mark && *mark <= limit);
        if let Some((mark, (_, before))) = risen {
            // Cache that came or went between the readings is none of what had to be there.
            keep(&mut self.marked, used(mark, reclaimable.max(before)));
        }
    }

    /// The nearest that it came, and whether only the mark tells that.
    fn highest(&self) -> (Option<Used>, bool) {
        let Some(nearest) = self.nearest else {
            return (self.marked, self.marked.is_some());
        };
        match self.marked.filter(|marked| marked.is_beyond(&nearest)) {
            Some(marked) => (Some(marked), true),
            None => (Some(nearest), false),
        }
    }

    /// The mark of the first reading, where it exceeds what is known.
    fn earlier_beyond(&self, known: Option<Used>) -> Option<Used> {
        self.earlier
            .filter(|earlier| known.is_some_and(|known| earlier.is_beyond(&known)))
    }
}
