//! What the memory cgroups of the recorded processes are charged: the kernel's own count of every
//! page once.
//!
//! A reading holds for its instant. Until the next one what is held is what it was then and what the
//! processes gained or gave back since. Where others live in the groups too, what they can hold is
//! taken off, and what is left are bounds.

use super::{Held, HeldBasis, HeldKinds};
use crate::analyze::RowSource;
use crate::analyze::process_table::ProcessTable;
use crate::analyze::surroundings::{ancestry, is_within};
use crate::model::tables::{CgroupMemRow, SelfCostRow};
use crate::model::{BootNs, Bytes, DurationNs};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

/// Of a group that is still read there is a row every 10 s: one that had none for this long is gone.
const SILENCE: DurationNs = DurationNs(15_000_000_000);

/// Readings no further apart are of the same look at all groups.
const TOGETHER: DurationNs = DurationNs(20_000_000);
/// So many are kept: 80 MiB.
const READINGS_MAX: usize = 1 << 20;

/// The first reading is this much after the start, at most, where nothing kept it.
const EARLY: DurationNs = DurationNs(2_000_000_000);

/// The counters of processes and of groups are each off by a little: more than this, and one part in
/// so many, is no error of theirs.
const SLACK: i64 = 4 << 20;
const SLACK_PART: i64 = 50;

/// What the recorded processes hold of one kind, by a reading of their groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Charged {
    pub(super) least: i64,
    pub(super) most: i64,
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
pub(super) struct Reading {
    pub(super) at: BootNs,
    pub(super) anon: Charged,
    pub(super) shared: Charged,
    /// The most that was in use until then, page cache and kernel memory included; `None` where the
    /// kernel keeps no mark.
    pub(super) mark: Option<i64>,
    pub(super) is_alone: bool,
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

    /// What was held at the last reading for certain: nothing where others live there, who can have
    /// grown since they were counted.
    pub(super) fn least_then(&self) -> Bytes {
        let last = self.last.as_ref().filter(|(last, _)| last.is_alone);
        let least = |(last, _): &(Reading, _)| last.anon.least.saturating_add(last.shared.least);
        Bytes(last.map_or(0, least))
    }

    /// What is held, where this is what the processes are thought to hold by themselves.
    pub(super) fn settle(&self, thought: HeldKinds, counted: Counted) -> HeldKinds {
        let Some((last, then)) = &self.last else {
            let first = self.coming.last().filter(|_| self.is_early);
            return first.map_or(thought, |first| before(thought, first));
        };
        let next = self.coming.last();
        let is_alone = last.is_alone && next.is_none_or(|next| next.is_alone);
        let anon = Between {
            last: last.anon,
            next: next.map(|next| next.anon),
            moved: counted.anon.saturating_sub(then.anon),
            is_counted_once: true,
        };
        let shared = Between {
            last: last.shared,
            next: next.map(|next| next.shared),
            moved: counted.shared.saturating_sub(then.shared),
            is_counted_once: false,
        };
        let anon = anon.held(thought.anon, is_alone);
        let shared = shared.held(thought.shared, is_alone);
        match (anon, shared) {
            (Some(anon), Some(shared)) => {
                // While one kind is given back another can come: no more than was ever in use.
                let anon = match next.and_then(|next| next.mark) {
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
            bytes: Bytes(first.least.min(at_most).max(thought.bytes.0)),
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
    let less = |bytes: Bytes, beside: Bytes| {
        Bytes(
            bytes
                .0
                .min(mark.saturating_sub(beside.0))
                .max(anon.at_least.0),
        )
    };
    Held {
        at_least: anon.at_least,
        bytes: less(anon.bytes, shared.bytes),
        at_most: less(anon.at_most, shared.at_most).max(less(anon.bytes, shared.bytes)),
    }
}

/// What was charged of a kind before and after an instant, and what moved since.
struct Between {
    last: Charged,
    /// `None` after the last reading.
    next: Option<Charged>,
    moved: i64,
    /// Whether what moved is memory that came or went, and not what was mapped once more.
    is_counted_once: bool,
}

impl Between {
    /// What is held then. `None` where the processes hold more for certain than their groups can have
    /// been charged.
    fn held(&self, thought: Held, is_alone: bool) -> Option<Held> {
        let moved = Charged {
            least: self.last.least.saturating_add(self.moved),
            most: self.last.most.saturating_add(self.moved),
        };
        let next = self.next.unwrap_or(moved);
        let most = moved.most.max(next.most);
        let slack = (most / SLACK_PART).saturating_add(SLACK);
        if thought.at_least.0 > most.saturating_add(slack) {
            return None;
        }
        let least = moved.least.min(next.least);
        let (at_least, at_most) = match is_alone {
            true => (least.max(thought.at_least.0), most),
            // Others are counted now and then: what they have grown by since is none of the tree's.
            false => (
                least.min(thought.at_most.0).max(thought.at_least.0),
                most.min(thought.at_most.0),
            ),
        };
        let at_most = at_most.max(at_least);
        // A fall that the next reading knows nothing of was none: what one gave back another held.
        let lowest = self.last.most.min(next.most);
        let highest = self.last.most.max(next.most);
        let figure = match (is_alone, self.is_counted_once) {
            (true, true) => moved.most.max(lowest),
            (true, false) => moved.most.clamp(lowest, highest),
            (false, _) => thought.bytes.0,
        };
        Some(Held {
            at_least: Bytes(at_least),
            bytes: Bytes(figure.clamp(at_least, at_most)),
            at_most: Bytes(at_most),
        })
    }
}

/// The sum over groups, moved along by one reading of one of them at a time.
#[derive(Default)]
struct Groups {
    last: HashMap<String, Reading>,
    /// Every reading in the order of time: of a group that had none for long, the last is taken out.
    ages: VecDeque<(BootNs, String)>,
    sum: Reading,
    mark_sum: i64,
    unmarked_count: usize,
    shared_count: usize,
}

impl Groups {
    /// A group was read. Answers what all groups come to now.
    fn take(&mut self, path: String, reading: Reading) -> Reading {
        let is_old = |(at, _): &(BootNs, String)| reading.at - *at > SILENCE;
        while self.ages.front().is_some_and(is_old)
            && let Some((at, path)) = self.ages.pop_front()
        {
            if self.last.get(&path).is_some_and(|last| last.at == at) {
                self.remove(&path);
            }
        }
        self.remove(&path);
        self.count(&reading, 1);
        self.ages.push_back((reading.at, path.clone()));
        self.last.insert(path, reading);
        Reading {
            at: reading.at,
            mark: (self.unmarked_count == 0).then_some(self.mark_sum),
            is_alone: self.shared_count == 0,
            ..self.sum
        }
    }

    fn remove(&mut self, path: &str) {
        if let Some(last) = self.last.remove(path) {
            self.count(&last, -1);
        }
    }

    fn count(&mut self, reading: &Reading, sign: i64) {
        let add = |sum: &mut i64, amount: i64| {
            *sum = sum.saturating_add(amount.saturating_mul(sign));
        };
        add(&mut self.sum.anon.least, reading.anon.least);
        add(&mut self.sum.anon.most, reading.anon.most);
        add(&mut self.sum.shared.least, reading.shared.least);
        add(&mut self.sum.shared.most, reading.shared.most);
        add(&mut self.mark_sum, reading.mark.unwrap_or_default());
        let one = |count: &mut usize| *count = count.wrapping_add_signed(sign as isize);
        if reading.mark.is_none() {
            one(&mut self.unmarked_count);
        }
        if !reading.is_alone {
            one(&mut self.shared_count);
        }
    }
}

/// Where there are more readings, two neighbours become one, within what both were.
pub(super) fn coarsen(readings: &mut Vec<Reading>) {
    let hull = |one: Charged, other: Charged| Charged {
        least: one.least.min(other.least),
        most: one.most.max(other.most),
    };
    let pairs = readings.chunks(2).map(|pair| match *pair {
        [one, other] => Reading {
            at: one.at,
            anon: hull(one.anon, other.anon),
            shared: hull(one.shared, other.shared),
            mark: other.mark,
            is_alone: one.is_alone && other.is_alone,
        },
        _ => pair[0],
    });
    *readings = pairs.collect();
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
                let anon = row.rss_anon_bytes.unwrap_or_default().0;
                // It hardly moves: a row that says the same says nothing.
                if recorder.last().is_none_or(|(_, last)| *last != anon) {
                    recorder.push((row.boot_ns, anon));
                }
            }
        },
    )?;
    let recorder_anon = |at: BootNs| match recorder.partition_point(|(time, _)| *time <= at) {
        0 => recorder.first().map_or(0, |(_, anon)| *anon),
        place => recorder[place - 1].1,
    };
    let named = table
        .processes
        .iter()
        .filter_map(|process| process.cgroup.as_deref());
    let named: BTreeSet<&str> = named.collect();
    // Of groups below each other the one above has it all.
    let tops: HashSet<&str> = named
        .iter()
        .copied()
        .filter(|path| !ancestry(path).skip(1).any(|above| named.contains(above)))
        .collect();
    let mut groups = Groups::default();
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
            let shared = shared.0.max(0);
            if !tops.contains(row.cgroup.as_str()) {
                return;
            }
            let recorder = recorder_group.as_deref();
            let recorder = recorder.filter(|group| is_within(group, &row.cgroup));
            let own = recorder.map_or(0, |_| recorder_anon(row.boot_ns));
            let anon = anon.0.saturating_sub(own).max(0);
            let is_alone = row.other_process_count == Some(0);
            let of_others = match (is_alone, row.other_anon_bytes) {
                (true, _) => 0,
                (false, Some(others)) => others.0,
                (false, None) => anon,
            };
            let reading = Reading {
                at: row.boot_ns,
                anon: Charged {
                    least: anon.saturating_sub(of_others).max(0),
                    most: anon,
                },
                shared: Charged {
                    least: if is_alone { shared } else { 0 },
                    most: shared,
                },
                mark: row.peak_bytes.map(|peak| peak.0),
                is_alone,
            };
            let whole = groups.take(row.cgroup, reading);
            match found.last_mut() {
                // Groups that are read one after the other are one reading.
                Some(last) if whole.at - last.at <= TOGETHER => *last = whole,
                _ => found.push(whole),
            }
            if found.len() >= READINGS_MAX {
                coarsen(&mut found);
            }
        },
    )?;
    Ok(found)
}
