//! What the memory cgroups of the recorded processes are charged: the kernel's own count of every
//! page once.
//!
//! A reading holds for its instant. Until the next one what is held is what it was then and what the
//! processes gained or gave back since. Where others live in the groups too, what they can hold is
//! taken off, and what is left are bounds.

use super::{Held, HeldBasis, HeldKinds};
use crate::analyze::RowSource;
use crate::analyze::process_table::ProcessTable;
use crate::analyze::surroundings::is_within;
use crate::model::tables::{CgroupMemRow, SelfCostRow};
use crate::model::{BootNs, Bytes, DurationNs, Order};
use std::collections::{BTreeMap, BTreeSet};

/// Of a group that is still read there is a row every 10 s: one that had none for this long is gone.
const SILENCE: DurationNs = DurationNs(15_000_000_000);

/// The first reading is this much after the start, at most, where nothing kept it.
const EARLY: DurationNs = DurationNs(2_000_000_000);

/// The counters of processes and of groups are each off by a little: more than this, and one part in
/// so many, is no error of theirs.
const SLACK: i64 = 4 << 20;
const SLACK_PART: i64 = 50;

/// What the recorded processes hold of one kind, by a reading of their groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Charged {
    least: i64,
    most: i64,
}

impl Charged {
    fn plus(self, other: Self) -> Self {
        Self {
            least: self.least.saturating_add(other.least),
            most: self.most.saturating_add(other.most),
        }
    }
}

/// What moves as the counters of processes do: anonymous memory that each gained since the fork or exec
/// that made it, and the largest part of shared memory in any one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) anon: i64,
    pub(super) shared: i64,
}

/// A reading of all groups, and whether nobody else lives in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reading {
    at: BootNs,
    anon: Charged,
    shared: Charged,
    /// The most that was in use until then, page cache and kernel memory included; `None` where the
    /// kernel keeps no mark.
    mark: Option<i64>,
    is_alone: bool,
}

/// The readings of a recording, as they stand at an instant.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    /// What is to come, the latest first.
    coming: Vec<Reading>,
    /// The last that has passed, and what the counters of processes were then.
    last: Option<(Reading, Counted)>,
    /// Whether the first reading came right after the start: what was there before it is what it found,
    /// as far as the processes can have held that.
    is_early: bool,
}

impl Account {
    /// Reads `cgroup_mem` and `self_cost`. What is later than `since` replaces what was known of that
    /// time; what is earlier has passed.
    pub(super) fn prepare<S: RowSource>(
        &mut self,
        source: &S,
        table: &ProcessTable,
        start: BootNs,
        since: Option<BootNs>,
    ) -> Result<(), S::Error> {
        let mut coming = readings(source, table)?;
        if self.last.is_none() {
            let first = coming.first();
            self.is_early = first.is_some_and(|first| first.at - start <= EARLY);
        }
        coming.retain(|reading| since.is_none_or(|since| reading.at > since));
        coming.reverse();
        self.coming = coming;
        Ok(())
    }

    /// When the next reading is.
    pub(super) fn next_change(&self) -> Option<BootNs> {
        self.coming.last().map(|reading| reading.at)
    }

    /// Takes the readings until and with an instant.
    pub(super) fn pass(&mut self, until: BootNs, counted: Counted) {
        while let Some(reading) = self.coming.pop_if(|reading| reading.at <= until) {
            self.last = Some((reading, counted));
        }
    }

    /// What was held at the last reading for certain.
    pub(super) fn least_then(&self) -> Bytes {
        let last = self.last.as_ref();
        last.map_or(Bytes(0), |(last, _)| {
            Bytes(last.anon.least + last.shared.least)
        })
    }

    /// What is held, where this is what the processes are thought to hold by themselves.
    pub(super) fn settle(&self, thought: HeldKinds, counted: Counted) -> HeldKinds {
        let Some((last, then)) = &self.last else {
            let first = self.coming.last().filter(|_| self.is_early);
            return first.map_or(thought, |first| before(thought, first));
        };
        let next = self.coming.last().unwrap_or(last);
        let is_alone = last.is_alone && next.is_alone;
        let anon = Between {
            last: last.anon,
            next: next.anon,
            moved: counted.anon - then.anon,
            is_counted_once: true,
        };
        let shared = Between {
            last: last.shared,
            next: next.shared,
            moved: counted.shared - then.shared,
            is_counted_once: false,
        };
        let anon = anon.held(thought.anon, is_alone);
        let shared = shared.held(thought.shared, is_alone);
        match (anon, shared) {
            (Some(anon), Some(shared)) => {
                // While one kind is given back another can come: no more than was ever in use.
                let anon = match next.mark {
                    Some(mark) => no_more_than(mark, anon, shared),
                    None => anon,
                };
                HeldKinds {
                    anon,
                    shared,
                    basis: match is_alone {
                        true => HeldBasis::Cgroup,
                        false => HeldBasis::Bounds,
                    },
                }
            }
            // More is held for certain than was charged: the charge is elsewhere.
            _ => thought,
        }
    }
}

/// What is held before the first reading.
fn before(thought: HeldKinds, first: &Reading) -> HeldKinds {
    let kind = |thought: Held, first: Charged| {
        let at_most = thought.at_most.0.min(first.most.max(thought.bytes.0));
        Held {
            at_least: thought.at_least,
            bytes: Bytes(first.least.clamp(thought.bytes.0, at_most)),
            at_most: Bytes(at_most),
        }
    };
    HeldKinds {
        anon: kind(thought.anon, first.anon),
        shared: kind(thought.shared, first.shared),
        basis: HeldBasis::Bounds,
    }
}

/// Anonymous memory of which there is no more than a mark leaves beside shared memory.
fn no_more_than(mark: i64, anon: Held, shared: Held) -> Held {
    let less =
        |bytes: Bytes, beside: Bytes| Bytes(bytes.0.min(mark - beside.0).max(anon.at_least.0));
    Held {
        at_least: anon.at_least,
        bytes: less(anon.bytes, shared.bytes),
        at_most: less(anon.at_most, shared.at_most),
    }
}

/// What was charged of a kind before and after an instant, and what moved since.
struct Between {
    last: Charged,
    next: Charged,
    moved: i64,
    /// Whether what moved is memory that came or went, and not what was mapped once more.
    is_counted_once: bool,
}

impl Between {
    /// What is held then. `None` where the processes hold more for certain than their groups can have
    /// been charged.
    fn held(&self, thought: Held, is_alone: bool) -> Option<Held> {
        let (last, next) = (self.last, self.next);
        let most = last.most.saturating_add(self.moved).max(next.most);
        let least = last.least.saturating_add(self.moved).min(next.least);
        if thought.at_least.0 > most + most / SLACK_PART + SLACK {
            return None;
        }
        let at_least = least.max(thought.at_least.0);
        let at_most = match is_alone {
            true => most,
            false => most.min(thought.at_most.0),
        };
        let at_most = at_most.max(at_least);
        // A fall that the next reading knows nothing of was none: what one gave back another held.
        let lowest = last.most.min(next.most);
        let figure = match (is_alone, self.is_counted_once) {
            (true, true) => last.most.saturating_add(self.moved).max(lowest),
            (true, false) => {
                let highest = last.most.max(next.most);
                last.most.saturating_add(self.moved).clamp(lowest, highest)
            }
            (false, _) => thought.bytes.0,
        };
        Some(Held {
            at_least: Bytes(at_least),
            bytes: Bytes(figure.clamp(at_least, at_most)),
            at_most: Bytes(at_most),
        })
    }
}

/// What a group was charged, and until when that holds at most.
#[derive(Clone, Copy)]
struct Group {
    at: BootNs,
    anon: Charged,
    shared: Charged,
    mark: Option<i64>,
    is_alone: bool,
}

/// The sums over all groups with recorded processes, in the order of time; none where such a group
/// could not be read.
fn readings<S: RowSource>(source: &S, table: &ProcessTable) -> Result<Vec<Reading>, S::Error> {
    let mut recorder: Vec<(BootNs, i64)> = Vec::new();
    let mut recorder_group = None;
    source.scan(
        &["boot_ns", "rss_anon_bytes", "cgroup", "upid"],
        |row: SelfCostRow| {
            // Where it is recorded itself it is one of the processes.
            if row.upid.is_none() {
                recorder_group = row.cgroup.or(recorder_group.take());
                recorder.push((row.boot_ns, row.rss_anon_bytes.unwrap_or_default().0));
            }
        },
    )?;
    let named = table
        .processes
        .iter()
        .filter_map(|process| process.cgroup.as_deref());
    let named: BTreeSet<&str> = named.collect();
    let is_below_another = |path: &str| {
        let others = named.iter().filter(|other| **other != path);
        others.into_iter().any(|other| is_within(path, other))
    };
    let tops: BTreeSet<&str> = named
        .iter()
        .copied()
        .filter(|path| !is_below_another(path))
        .collect();
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    let mut found: Vec<Reading> = Vec::new();
    source.scan(
        &[
            "boot_ns",
            "cgroup",
            "anon_bytes",
            "shmem_bytes",
            "peak_bytes",
            "other_process_count",
            "other_anon_bytes",
        ],
        |row: CgroupMemRow| {
            let (Some(anon), Some(shared)) = (row.anon_bytes, row.shmem_bytes) else {
                return;
            };
            if !tops.contains(row.cgroup.as_str()) {
                return;
            }
            let has_recorder = recorder_group.as_deref();
            let has_recorder = has_recorder.is_some_and(|group| is_within(group, &row.cgroup));
            let recorder_anon = match recorder.partition_point(|(at, _)| *at <= row.boot_ns) {
                _ if !has_recorder => 0,
                0 => recorder.first().map_or(0, |(_, anon)| *anon),
                place => recorder[place - 1].1,
            };
            let anon = (anon.0 - recorder_anon).max(0);
            let is_alone = row.other_process_count == Some(0);
            let of_others = match (is_alone, row.other_anon_bytes) {
                (true, _) => 0,
                (false, Some(others)) => others.0,
                (false, None) => anon,
            };
            let group = Group {
                at: row.boot_ns,
                anon: Charged {
                    least: (anon - of_others).max(0),
                    most: anon,
                },
                shared: Charged {
                    least: if is_alone { shared.0 } else { 0 },
                    most: shared.0,
                },
                mark: row.peak_bytes.map(|peak| peak.0),
                is_alone,
            };
            groups.insert(row.cgroup, group);
            groups.retain(|_, group| row.boot_ns - group.at <= SILENCE);
            let whole = Reading {
                at: row.boot_ns,
                mark: Some(0),
                is_alone: true,
                ..Reading::default()
            };
            found.push(groups.values().fold(whole, |sum, group| Reading {
                at: sum.at,
                anon: sum.anon.plus(group.anon),
                shared: sum.shared.plus(group.shared),
                mark: sum.mark.zip(group.mark).map(|(sum, mark)| sum + mark),
                is_alone: sum.is_alone && group.is_alone,
            }));
        },
    )?;
    found.order_by_key(|reading| reading.at);
    Ok(found)
}
