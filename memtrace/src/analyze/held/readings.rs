//! What readings of PSS tell of memory that forks share.

use super::Held;
use super::stays::{Stay, stay_at};
use crate::analyze::process::Process;
use crate::model::tables::{CowRow, PssRow};
use crate::model::{BootNs, Bytes, DurationNs, Order};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Of pages that a reading did not look at the PSS is estimated, and taken to be off by one part
/// in so many.
const SAMPLED_PART: i64 = 200;

/// What comes to be known of a family.
#[derive(Clone, Copy, Debug)]
pub(super) struct FamilyReading {
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
    /// Nothing new was read; copies since then move the upper bound.
    Bound(Held),
    /// One came.
    Unknown,
    /// Since one left: no more than before, and what can have been copied since.
    Left(Bytes),
    /// As much more has been copied since then.
    Copied(Bytes),
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

/// What a process can have copied so far.
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

/// What a family can have copied, in order of time.
#[derive(Debug, Default)]
struct Copies {
    /// So much by then, at least: what was found by then.
    found: Vec<(BootNs, i64)>,
    /// So much right after, at most: what the look after that found.
    possible: Vec<(BootNs, i64)>,
}

impl Copies {
    fn of(mut copied: Vec<Copied>) -> Self {
        copied.order_by_key(|one| (one.process, one.until));
        let mut copies = Self::default();
        let mut before: Option<&Copied> = None;
        for one in &copied {
            let before = before.replace(one);
            let before = before.filter(|before| before.process == one.process);
            let more = (one.bytes - before.map_or(Bytes(0), |before| before.bytes)).0;
            copies.found.push((one.until, more));
            copies.possible.push((one.from, more));
        }
        for steps in [&mut copies.found, &mut copies.possible] {
            steps.sort_unstable();
            let mut sum: i64 = 0;
            for (_, more) in steps {
                sum = sum.saturating_add(*more);
                *more = sum;
            }
        }
        copies
    }

    /// From one instant until right after another, at most.
    fn between(&self, from: BootNs, until: BootNs) -> Bytes {
        let sum = |steps: &[(BootNs, i64)], at: BootNs| {
            let past = steps.partition_point(|(step, _)| *step <= at);
            past.checked_sub(1).map_or(0, |last| steps[last].1)
        };
        let copied = sum(&self.possible, until).saturating_sub(sum(&self.found, from));
        Bytes(copied.max(0))
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
) -> impl Iterator<Item = (BootNs, FamilyReading)> + 'a {
    let mut steps: BTreeMap<u32, Vec<(BootNs, Step, usize)>> = BTreeMap::new();
    for (process, stays) in stays.iter().enumerate() {
        let ends = stays.iter().skip(1).map(|stay| Some(stay.from));
        let ends = ends.chain([processes[process].exit_boot_ns()]);
        for (stay, end) in stays.iter().zip(ends) {
            // One that was not there for any time leaves before it joins.
            if stay.is_replaced || end.is_some_and(|end| end <= stay.from) {
                continue;
            }
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
    let mut copied: HashMap<u32, Vec<Copied>> = HashMap::new();
    for one in copies {
        let stay = stays.get(one.process);
        if let Some(stay) = stay.and_then(|stays| stay_at(stays, one.until))
            && let Some(steps) = steps.get_mut(&stay.family)
        {
            steps.push((one.from, Step::Copied, one.process));
            copied.entry(stay.family).or_default().push(*one);
        }
    }
    steps.into_iter().flat_map(move |(family, mut steps)| {
        steps.sort_unstable();
        let copies = Copies::of(copied.remove(&family).unwrap_or_default());
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
    /// When each of these readings began.
    from: BTreeSet<(BootNs, usize)>,
    rss: i64,
    pss: i64,
    grown: i64,
    error: i64,
}

impl Round {
    fn begin(&mut self, at: BootNs) {
        self.begun = at;
        self.read.clear();
        self.from.clear();
        (self.rss, self.pss, self.grown, self.error) = (0, 0, 0, 0);
    }

    fn take(&mut self, reading: Reading, grown: i64) {
        // One that had begun before found some pages shared by others than there are now.
        if reading.from < self.begun || !self.members.contains(&reading.process) {
            return;
        }
        if let Some((old, grown)) = self.read.insert(reading.process, (reading, grown)) {
            self.from.remove(&(old.from, old.process));
            self.rss -= old.rss;
            self.pss -= old.pss;
            self.error -= old.error;
            self.grown -= grown;
        }
        self.from.insert((reading.from, reading.process));
        self.rss += reading.rss;
        self.pss += reading.pss;
        self.error += reading.error;
        self.grown += grown;
    }

    /// What they tell, where every member was read.
    fn measured(&self) -> Option<Measured> {
        let is_whole = self.members.len() > 1 && self.read.len() == self.members.len();
        let (eldest, grown) = self.read.get(self.members.first()?)?;
        let certain = self.grown - grown + eldest.rss;
        let (from, _) = self.from.first()?;
        is_whole.then(|| Measured {
            extra: around(self.pss - certain, self.error),
            from: *from,
            rss: self.rss,
        })
    }
}

/// What readings of all members tell.
#[derive(Clone, Copy)]
struct Measured {
    /// The extra pages, as if all had been read at once and nothing copied since.
    extra: Held,
    /// When the first was read.
    from: BootNs,
    /// What all held, shared pages in each.
    rss: i64,
}

/// A member came or went, all have been read by now, or more was copied since.
struct Turn {
    at: BootNs,
    step: Step,
    measured: Option<Measured>,
    /// What can have been copied since the last one came or went.
    copied: Bytes,
}

fn course(
    family: u32,
    steps: &[(BootNs, Step, usize)],
    inherited: impl Fn(usize) -> i64,
    readings: &[Reading],
    copies: &Copies,
) -> Vec<(BootNs, FamilyReading)> {
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
        let measured = round.measured();
        if measured.is_some() || !matches!(step, Step::Read(_)) {
            turns.push(Turn {
                at,
                step,
                measured,
                copied: copies.between(round.begun, at),
            });
        }
    }
    let mut next: Option<(BootNs, Held, i64)> = None;
    let news = turns.iter().rev().map(|turn| {
        let bounded = turn.measured.map(|measured| {
            let extra = measured.extra;
            let most = |until| extra.at_most + copies.between(measured.from, until);
            // Where nothing was given back until all are read again, it is no more than they
            // then have.
            let again = next.filter(|(.., rss)| *rss >= measured.rss);
            let found = again.map_or(Bytes(i64::MAX), |(_, next, _)| next.at_most);
            let now = Held {
                at_most: found.clamp(extra.at_most, most(turn.at)),
                ..extra
            };
            // More is found than was counted: it came at any time until then.
            let is_counted = next.is_some_and(|(at, next, _)| next.at_least <= most(at));
            (now, is_counted)
        });
        let now = bounded.map(|(now, _)| now);
        let counted = bounded.filter(|(_, is_counted)| *is_counted);
        let news = FamilyReading {
            family,
            extra: match (now, turn.step) {
                (Some(now), Step::Copied) => Extra::Bound(now),
                (Some(now), _) => Extra::Read(now),
                (None, Step::Leave) => Extra::Left(turn.copied),
                (None, Step::Copied) => Extra::Copied(turn.copied),
                (None, _) => Extra::Unknown,
            },
            next: next.map(|(_, next, _)| Held {
                at_most: counted.map_or(next.at_most, |(now, _)| now.at_most),
                ..next
            }),
        };
        next = match turn.step {
            Step::Leave => None,
            // What a new one holds says nothing of what others gave back.
            Step::Join => next.map(|(at, next, _)| (at, next, i64::MIN)),
            Step::Copied => next,
            Step::Read(_) => now
                .zip(turn.measured)
                .map(|(now, measured)| (turn.at, now, measured.rss)),
        };
        (turn.at, news)
    });
    let mut news: Vec<(BootNs, FamilyReading)> = news.collect();
    news.reverse();
    news
}
