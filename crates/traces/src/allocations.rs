//! Which operators took and gave back memory (`profile_memory=True`): each change belongs to the innermost
//! operator, or named range, in which its thread was then, as torch's own sums by name have it.
//!
//! Events of a trace come in no order, so all are kept until the end: 32 bytes each, up to a bound.

use super::self_time::{Moment, Named, Sorted};
use memtrace_model::Bytes;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

/// Of more changes it is not known whose they are: some 130 MB.
const CHANGES_MAX: usize = 4 << 20;

/// What an operator took and gave back of a device, without what it called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OperatorMemory {
    /// The operator, or the range that the program named; `None` outside of all.
    pub name: Option<String>,
    /// How many changes it made.
    pub count: u64,
    /// What it took.
    pub allocated_bytes: Bytes,
    /// What it gave back, also of what others took.
    pub freed_bytes: Bytes,
}

/// The operators that took and gave back most of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OperatorMemories {
    /// Each of them, the one with most first.
    pub list: Vec<OperatorMemory>,
    /// How many names are not in the list.
    pub other_name_count: usize,
    /// How many changes those made.
    pub other_count: u64,
    /// What those took.
    pub other_allocated_bytes: Bytes,
    /// What those gave back.
    pub other_freed_bytes: Bytes,
}

/// The changes so far.
#[derive(Debug, Default)]
pub(super) struct Changes {
    list: Vec<Moment<Change>>,
    has_too_many: bool,
}

#[derive(Clone, Copy, Debug)]
struct Change {
    /// The place of the device.
    device: u16,
    /// Whether it raised the device to its peak.
    is_peak: bool,
    bytes: i64,
}

/// Those of one device, by the name of the operator.
pub(super) type Owned = HashMap<Option<Named>, Amounts>;

/// What a name took and gave back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Amounts {
    count: u64,
    allocated: i64,
    freed: i64,
}

impl Amounts {
    fn add(&mut self, bytes: i64) {
        self.count += 1;
        let amount = match bytes {
            0.. => &mut self.allocated,
            _ => &mut self.freed,
        };
        *amount = amount.saturating_add(bytes.saturating_abs());
    }

    fn join(&mut self, other: Self) {
        self.count += other.count;
        self.allocated = self.allocated.saturating_add(other.allocated);
        self.freed = self.freed.saturating_add(other.freed);
    }
}

impl Changes {
    /// Takes a change of a device, by the places of the device and of the thread. Answers the place of the
    /// change; `None` where there are too many.
    pub(super) fn take(&mut self, device: u16, thread: u32, at: i64, bytes: i64) -> Option<usize> {
        let place = self.list.len();
        if self.has_too_many || place == CHANGES_MAX {
            self.has_too_many = true;
            self.list = Vec::new();
            return None;
        }
        let is_peak = false;
        let what = Change {
            device,
            is_peak,
            bytes,
        };
        self.list.push(Moment { thread, at, what });
        Some(place)
    }

    /// Whose the changes of each device are, and in which operator the changes were that raised devices to
    /// their `peaks` (by their places); `None` where there were too many changes or operators.
    pub(super) fn owned(
        mut self,
        spans: &Sorted,
        peaks: impl Iterator<Item = usize>,
    ) -> Option<(BTreeMap<u16, Owned>, BTreeMap<u16, Named>)> {
        if self.has_too_many {
            return None;
        }
        for place in peaks {
            self.list[place].what.is_peak = true;
        }
        let (mut owned, mut at_peak) = (BTreeMap::<u16, Owned>::new(), BTreeMap::new());
        spans.enclosing(&mut self.list, |moment, name| {
            let Change {
                device,
                is_peak,
                bytes,
            } = moment.what;
            let of_device = owned.entry(device).or_default();
            of_device.entry(name).or_default().add(bytes);
            if is_peak {
                at_peak.extend(name.map(|name| (device, name)));
            }
        })?;
        Some((owned, at_peak))
    }
}

/// Those with most. `name` knows the names.
pub(super) fn reported(
    owned: Owned,
    top: usize,
    name: impl Fn(Named) -> String,
) -> OperatorMemories {
    let mut all: Vec<(Option<Named>, Amounts)> = owned.into_iter().collect();
    all.sort_unstable_by_key(|(name, amounts)| {
        let moved = amounts.allocated.saturating_add(amounts.freed);
        (Reverse(moved), *name)
    });
    let rest = all.split_off(top.min(all.len()));
    let mut other = Amounts::default();
    for (_, amounts) in &rest {
        other.join(*amounts);
    }
    let list = all.into_iter().map(|(named, amounts)| OperatorMemory {
        name: named.map(&name),
        count: amounts.count,
        allocated_bytes: Bytes(amounts.allocated),
        freed_bytes: Bytes(amounts.freed),
    });
    OperatorMemories {
        list: list.collect(),
        other_name_count: rest.len(),
        other_count: other.count,
        other_allocated_bytes: Bytes(other.allocated),
        other_freed_bytes: Bytes(other.freed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::self_time::Spans;

    #[test]
    fn of_too_many_changes_nobody_is_the_owner() {
        let mut changes = Changes::default();
        for at in 0..=CHANGES_MAX as i64 {
            changes.take(0, 0, at, 1);
        }
        let spans = Spans::default().sorted().expect("there are none");
        let owned = changes.owned(&spans, std::iter::empty());
        assert!(owned.is_none());
    }
}
