//! What readings of PSS tell of memory that forks share.

use super::Held;
use super::stays::{Stay, stay_at};
use crate::analyze::process::Process;
use crate::model::tables::{CowRow, PssRow};
use crate::model::{BootNs, Bytes, DurationNs};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Of pages that a reading did not look at the PSS is estimated, and taken to be off by one part
/// in so many.
const SAMPLED_PART: i64 = 200;

/// What comes to be known of a family.
#[derive(Clone, Copy, Debug)]
pub(super) struct News {
    pub(super) family: u32,
    pub(super) extra: Extra,
    /// The extra pages at the next instant at which they are known, if nobody leaves before.
    pub(super) next: Option<Held>,
}

/// The extra pages from an instant on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Extra {
    /// All members have been read by now.
    Read(Held),
    /// By the same readings as before, with other bounds.
    Bound(Held),
    /// One came or went.
    Unknown,
}

/// A measured PSS of anonymous memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    process: usize,
    at: BootNs,
    pss: i64,
    rss: i64,
    error: i64,
    /// When it began.
    from: BootNs,
}

impl Reading {
    pub(super) const COLUMNS: &[&str] = &[
        "boot_ns",
        "upid",
        "pss_anon_bytes",
        "rss_anon_bytes",
        "sampled_share",
        "span_ns",
    ];

    /// `None` where the row does not tell.
    pub(super) fn of(process: usize, row: &PssRow) -> Option<Self> {
        let pss = row.pss_anon_bytes?.0;
        let unseen = 1.0 - row.sampled_share.unwrap_or(1.0).clamp(0.0, 1.0);
        Some(Self {
            process,
            at: row.boot_ns,
            pss,
            rss: row.rss_anon_bytes?.0,
            error: (pss as f64 * unseen) as i64 / SAMPLED_PART,
            from: row.boot_ns + DurationNs(-row.span_ns.0),
        })
    }
}

/// What processes can have copied so far, all that can share pages with one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copied {
    process: usize,
    /// It was copied after this, and by `until`.
    from: BootNs,
    until: BootNs,
    bytes: Bytes,
}

impl Copied {
    pub(super) fn of(process: usize, row: &CowRow) -> Self {
        Self {
            process,
            from: row.unchanged_until_boot_ns,
            until: row.boot_ns,
            bytes: row.copied_bytes,
        }
    }
}

/// What a family can have copied so far, in order of time.
#[derive(Debug, Default)]
struct Copies(Vec<Copied>);

impl Copies {
    /// What from one instant until right after another, at most.
    fn between(&self, from: BootNs, until: BootNs) -> Bytes {
        let bytes = |count: usize| match count.checked_sub(1) {
            Some(last) => self.0[last].bytes,
            None => Bytes(0),
        };
        let before = bytes(self.0.partition_point(|copied| copied.until <= from));
        let after = bytes(self.0.partition_point(|copied| copied.from <= until));
        (after - before).max(Bytes(0))
    }
}

/// What happens to a member of a family, in this order where it is at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Leave,
    Join,
    Read(usize),
    Copied,
}

/// What comes to be known of the families that ever have two members.
pub(super) fn news<'a>(
    processes: &'a [Process],
    stays: &'a [Vec<Stay>],
    readings: &'a [Reading],
    copies: &[Copied],
    inherited: &'a mut [Option<i64>],
) -> impl Iterator<Item = (BootNs, News)> + 'a {
    let mut steps: BTreeMap<u32, Vec<(BootNs, Step, usize)>> = BTreeMap::new();
    for (process, stays) in stays.iter().enumerate() {
        let ends = stays.iter().skip(1).map(|stay| Some(stay.from));
        let ends = ends.chain([processes[process].exit_boot_ns()]);
        for (stay, end) in stays.iter().zip(ends).filter(|(stay, _)| !stay.is_replaced) {
            let steps = steps.entry(stay.family).or_default();
            steps.push((stay.from, Step::Join, process));
            steps.extend(end.map(|end| (end, Step::Leave, process)));
        }
    }
    steps.retain(|_, steps| steps.iter().filter(|step| step.1 == Step::Join).count() > 1);
    for (place, reading) in readings.iter().enumerate() {
        let stay = stays.get(reading.process);
        let stay = stay.and_then(|stays| stay_at(stays, reading.at));
        if let Some(stay) = stay.filter(|stay| !stay.is_replaced)
            && let Some(steps) = steps.get_mut(&stay.family)
        {
            if !stay.is_founder {
                inherited[reading.process].get_or_insert(reading.rss);
            }
            steps.push((reading.at, Step::Read(place), reading.process));
        }
    }
    let inherited: &[Option<i64>] = inherited;
    let mut copied: HashMap<u32, Copies> = HashMap::new();
    for one in copies {
        let stay = stays.get(one.process);
        if let Some(stay) = stay.and_then(|stays| stay_at(stays, one.until))
            && let Some(steps) = steps.get_mut(&stay.family)
        {
            steps.push((one.from, Step::Copied, one.process));
            let copies = copied.entry(stay.family).or_default();
            copies.0.push(*one);
        }
    }
    steps.into_iter().flat_map(move |(family, mut steps)| {
        steps.sort_unstable();
        let mut copies = copied.remove(&family).unwrap_or_default();
        copies.0.sort_unstable_by_key(|copied| copied.until);
        course(
            family,
            &steps,
            |process| {
                let is_founder = stays[process]
                    .iter()
                    .any(|stay| stay.family == family && stay.is_founder);
                if is_founder {
                    0
                } else {
                    inherited[process].unwrap_or(0)
                }
            },
            readings,
            &copies,
        )
    })
}

fn around(extra: i64, error: i64) -> Held {
    Held {
        at_least: Bytes((extra - error).max(0)),
        bytes: Bytes(extra.max(0)),
        at_most: Bytes(extra.max(0) + error),
    }
}

/// The readings of those who are there, since the last one came or went.
#[derive(Default)]
struct Round {
    /// When the last one came or went.
    begun: BootNs,
    members: BTreeSet<usize>,
    /// By process: what was read, and what of it the process had grown by.
    read: BTreeMap<usize, (Reading, i64)>,
    pss: i64,
    grown: i64,
    error: i64,
}

impl Round {
    fn begin(&mut self, at: BootNs) {
        self.begun = at;
        self.read.clear();
        (self.pss, self.grown, self.error) = (0, 0, 0);
    }

    fn take(&mut self, reading: Reading, grown: i64) {
        // One that had begun before found some pages shared by others than there are now.
        if reading.from < self.begun || !self.members.contains(&reading.process) {
            return;
        }
        if let Some((old, grown)) = self.read.insert(reading.process, (reading, grown)) {
            self.pss -= old.pss;
            self.error -= old.error;
            self.grown -= grown;
        }
        self.pss += reading.pss;
        self.error += reading.error;
        self.grown += grown;
    }

    /// When the first reading of them began.
    fn from(&self) -> Option<BootNs> {
        self.read.values().map(|(reading, _)| reading.from).min()
    }

    /// The extra pages, where every member was read.
    fn extra(&self) -> Option<Held> {
        let is_whole = self.members.len() > 1 && self.read.len() == self.members.len();
        let (eldest, grown) = self.read.get(self.members.first()?)?;
        let certain = self.grown - grown + eldest.rss;
        is_whole.then(|| around(self.pss - certain, self.error))
    }
}

/// A member came or went, all have been read by now, or more was copied since.
struct Turn {
    at: BootNs,
    step: Step,
    /// The extra pages, as if all had been read at once and nothing copied since, and when the
    /// first was read.
    measured: Option<(Held, BootNs)>,
}

fn course(
    family: u32,
    steps: &[(BootNs, Step, usize)],
    inherited: impl Fn(usize) -> i64,
    readings: &[Reading],
    copies: &Copies,
) -> Vec<(BootNs, News)> {
    let mut round = Round::default();
    let mut turns: Vec<Turn> = Vec::new();
    for &(at, step, process) in steps {
        match step {
            Step::Join => {
                round.members.insert(process);
                round.begin(at);
            }
            Step::Leave => {
                round.members.remove(&process);
                round.begin(at);
            }
            Step::Read(place) => {
                let reading = readings[place];
                let grown = (reading.rss - inherited(process)).max(0);
                round.take(reading, grown);
            }
            Step::Copied => {}
        }
        let measured = round.extra().zip(round.from());
        if measured.is_some() || matches!(step, Step::Join | Step::Leave) {
            turns.push(Turn { at, step, measured });
        }
    }
    let mut next: Option<(BootNs, Held)> = None;
    let news = turns.iter().rev().map(|turn| {
        let bounded = turn.measured.map(|(measured, from)| {
            let most = |until| measured.at_most + copies.between(from, until);
            // What is found when those who copied were read again bounds it, too.
            let found = next.map_or(Bytes(i64::MAX), |(_, next)| next.at_most);
            let now = Held {
                at_most: found.clamp(measured.at_most, most(turn.at)),
                ..measured
            };
            // What is found beyond all that was counted came at any time until then.
            let is_counted = next.is_some_and(|(at, next)| next.at_least <= most(at));
            (now, is_counted)
        });
        let now = bounded.map(|(now, _)| now);
        let counted = bounded.filter(|(_, is_counted)| *is_counted);
        let news = News {
            family,
            extra: match (now, turn.step) {
                (Some(now), Step::Copied) => Extra::Bound(now),
                (Some(now), _) => Extra::Read(now),
                (None, _) => Extra::Unknown,
            },
            next: next.map(|(_, next)| Held {
                at_most: counted.map_or(next.at_most, |(now, _)| now.at_most),
                ..next
            }),
        };
        next = match turn.step {
            Step::Leave => None,
            Step::Join | Step::Copied => next,
            Step::Read(_) => now.map(|now| (turn.at, now)),
        };
        (turn.at, news)
    });
    let mut news: Vec<(BootNs, News)> = news.collect();
    news.reverse();
    news
}
