//! Anonymous memory of processes that forks made, every page once.
//!
//! What one exec made, and every copy that forks made of it, is a family: its members can hold
//! the same pages. The eldest holds all of its own; a copy holds for certain what it grew by
//! since the fork. Beyond that a family can hold *extra* pages: those that a member wrote to and
//! so has a copy of, and those that the eldest has dropped and a copy still holds. No counter
//! tells of them. It is none at a fork, and known when every member's PSS was read since the
//! last one came or went; between two such instants it is taken to be between the two.

use super::Held;
use crate::analyze::process::Process;
use crate::analyze::sharing::Execs;
use crate::model::tables::{FirstSeenBy, PssRow};
use crate::model::{BootNs, Bytes};
use std::collections::{BTreeMap, BTreeSet};

/// Of pages that a reading did not look at the PSS is estimated, and taken to be off by one part
/// in so many.
const SAMPLED_PART: i64 = 200;

/// Since when a process runs what it runs.
#[derive(Clone, Copy, Debug)]
struct Stay {
    from: BootNs,
    family: u32,
    /// A copy that exec replaces: it is no member, only what it grew by counts.
    is_replaced: bool,
    /// Whether exec made it, or nobody knows of whom it could be a copy.
    is_founder: bool,
}

/// What comes to be known of a family.
#[derive(Clone, Copy, Debug)]
struct News {
    family: u32,
    /// The extra pages at this instant.
    now: Option<Held>,
    /// The extra pages at the next instant at which they are known, if nobody leaves before.
    next: Option<Held>,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A process goes over to its next stay.
    Exec(usize),
    Family(News),
}

#[derive(Clone, Copy, Debug, Default)]
struct Member {
    stay: Option<u32>,
    is_present: bool,
    anon: i64,
    /// What fork gave it; `None` before its first row where nothing told.
    inherited: Option<i64>,
}

#[derive(Debug, Default)]
struct Family {
    /// Living members; the eldest comes first.
    members: BTreeSet<usize>,
    /// What all hold, shared pages in each.
    anon: i64,
    /// What all grew by since the fork that made each.
    grown: i64,
    last: Held,
    /// Whether `last` was measured and nobody came or went since.
    is_measured: bool,
    /// The certain part when `last` was known.
    certain_then: i64,
    next: Option<Held>,
}

/// All families of a recording, as they stand at an instant.
#[derive(Debug)]
pub(super) struct Families {
    stays: Vec<Vec<Stay>>,
    members: Vec<Member>,
    families: Vec<Family>,
    /// What is to come, the latest first.
    events: Vec<(BootNs, Event)>,
    sum: Held,
}

impl Families {
    /// Nobody holds anything yet. `readings`: every measured PSS, in any order.
    pub(super) fn of(processes: &[Process], execs: &Execs, readings: &[Reading]) -> Self {
        let (stays, count) = stays(processes, execs);
        // The row of one that an exec replaced tells of what it became.
        let is_replaced = |stays: &Vec<Stay>| stays.first().is_some_and(|stay| stay.is_replaced);
        let inherited = processes.iter().zip(&stays).map(|(process, stays)| {
            let inherited = process.inherited_anon_bytes.map(|bytes| bytes.0);
            inherited.filter(|_| !is_replaced(stays))
        });
        let mut inherited: Vec<Option<i64>> = inherited.collect();
        let mut events = Vec::new();
        for (process, stays) in stays.iter().enumerate() {
            let later = stays.iter().skip(1);
            events.extend(later.map(|stay| (stay.from, Event::Exec(process))));
        }
        let courses = courses(processes, &stays, readings, &mut inherited);
        events.extend(courses.map(|(at, news)| (at, Event::Family(news))));
        // Stable: those of one instant stay in their order.
        events.sort_by_key(|(at, _)| *at);
        events.reverse();
        let mut families = Vec::new();
        families.resize_with(count, Family::default);
        let members = inherited.into_iter().map(|inherited| Member {
            inherited,
            ..Member::default()
        });
        Self {
            stays,
            members: members.collect(),
            families,
            events,
            sum: Held::default(),
        }
    }

    /// When something changes by itself.
    pub(super) fn next_change(&self) -> Option<BootNs> {
        self.events.last().map(|(at, _)| *at)
    }

    /// Takes what changes by itself until an instant.
    pub(super) fn pass(&mut self, until: BootNs) {
        while let Some((at, event)) = self.events.last().copied()
            && at <= until
        {
            self.events.pop();
            match event {
                Event::Exec(process) => self.exec(process),
                Event::Family(news) => self.hear(news),
            }
        }
    }

    /// A process holds `anon` from now on; `None` when it has ended.
    pub(super) fn set(&mut self, process: usize, anon: Option<Bytes>) {
        if self.members.len() <= process {
            self.members.resize(process + 1, Member::default());
        }
        let was_present = self.members[process].is_present;
        let Some(anon) = anon else {
            if was_present {
                self.leave(process);
            }
            return;
        };
        if was_present {
            return self.change(process, anon.0);
        }
        let member = &mut self.members[process];
        member.anon = anon.0;
        let stay = *member.stay.get_or_insert(0);
        let is_founder = self.stay(process, stay).is_none_or(|stay| stay.is_founder);
        if !is_founder {
            self.members[process].inherited.get_or_insert(anon.0);
        }
        self.enter(process);
    }

    /// What all hold.
    pub(super) fn held(&self) -> Held {
        self.sum
    }

    fn exec(&mut self, process: usize) {
        let was_present = self.members[process].is_present;
        if was_present {
            self.leave(process);
        }
        let member = &mut self.members[process];
        member.stay = Some(member.stay.map_or(1, |stay| stay + 1));
        if was_present {
            self.enter(process);
        }
    }

    fn stay(&self, process: usize, stay: u32) -> Option<Stay> {
        self.stays.get(process)?.get(stay as usize).copied()
    }

    fn present(&self, process: usize) -> Option<Stay> {
        self.stay(process, self.members[process].stay?)
    }

    /// What a member is known to hold for itself.
    fn grown(&self, process: usize) -> i64 {
        let member = &self.members[process];
        let is_founder = self.present(process).is_none_or(|stay| stay.is_founder);
        let inherited = if is_founder {
            0
        } else {
            member.inherited.unwrap_or(0)
        };
        (member.anon - inherited).max(0)
    }

    /// A member holds something else.
    fn change(&mut self, process: usize, anon: i64) {
        if self.members[process].anon == anon {
            return;
        }
        let stay = self.present(process);
        let place = stay.filter(|stay| !stay.is_replaced);
        let place = place.map(|stay| stay.family as usize);
        let before = place.map_or_else(Held::default, |place| self.held_by(place));
        let grown_before = self.grown(process);
        let more = anon - std::mem::replace(&mut self.members[process].anon, anon);
        let grown = self.grown(process) - grown_before;
        let after = match place {
            Some(place) => {
                self.families[place].anon += more;
                self.families[place].grown += grown;
                self.held_by(place)
            }
            None => Held::exact(if stay.is_some() { grown } else { more }),
        };
        self.sum = self.sum.minus(before).plus(after);
    }

    /// Puts a member in.
    fn enter(&mut self, process: usize) {
        self.members[process].is_present = true;
        let grown = self.grown(process);
        let Some(stay) = self.present(process) else {
            self.sum = self.sum.plus(Held::exact(self.members[process].anon));
            return;
        };
        if stay.is_replaced {
            self.sum = self.sum.plus(Held::exact(grown));
            return;
        }
        let place = stay.family as usize;
        let before = self.held_by(place);
        let family = &mut self.families[place];
        if family.members.len() == 1 {
            // A fork copies no page.
            family.last = Held::default();
            family.certain_then = family.anon;
        }
        family.members.insert(process);
        family.anon += self.members[process].anon;
        family.grown += grown;
        self.sum = self.sum.minus(before).plus(self.held_by(place));
    }

    /// Takes a member out.
    fn leave(&mut self, process: usize) {
        self.members[process].is_present = false;
        let (anon, grown) = (self.members[process].anon, self.grown(process));
        let Some(stay) = self.present(process) else {
            self.sum = self.sum.minus(Held::exact(anon));
            return;
        };
        if stay.is_replaced {
            self.sum = self.sum.minus(Held::exact(grown));
            return;
        }
        let place = stay.family as usize;
        let before = self.held_by(place);
        let family = &mut self.families[place];
        family.members.remove(&process);
        // With it went the pages that it alone had.
        family.last.at_least = Bytes(0);
        family.anon -= anon;
        family.grown -= grown;
        self.sum = self.sum.minus(before).plus(self.held_by(place));
    }

    /// A member came or went, or the extra pages came to be known.
    fn hear(&mut self, news: News) {
        let place = news.family as usize;
        let before = self.held_by(place);
        let certain = self.certain(place);
        let family = &mut self.families[place];
        match news.now {
            Some(now) => {
                family.last = now;
                family.is_measured = true;
                family.certain_then = certain;
            }
            None => family.is_measured = false,
        }
        family.next = news.next;
        self.sum = self.sum.minus(before).plus(self.held_by(place));
    }

    /// What a family holds for certain: all of the eldest, and what the others grew by.
    fn certain(&self, place: usize) -> i64 {
        let family = &self.families[place];
        let Some(&eldest) = family.members.first() else {
            return 0;
        };
        family.grown - self.grown(eldest) + self.members[eldest].anon
    }

    fn held_by(&self, place: usize) -> Held {
        let family = &self.families[place];
        if family.members.len() < 2 {
            return Held::exact(family.anon);
        }
        let certain = self.certain(place);
        let room = (family.anon - certain).max(0);
        // What the eldest dropped, a copy can still hold.
        let dropped = (family.certain_then - certain).max(0);
        let mut extra = family.last;
        extra.at_most = extra.at_most + Bytes(dropped);
        match family.next {
            Some(next) => extra = extra.hull(next),
            None if family.is_measured => {}
            None => {
                extra.at_least = Bytes(0);
                extra.at_most = Bytes(room);
            }
        }
        let within = |bytes: Bytes| Bytes(bytes.0.clamp(0, room));
        Held::exact(certain).plus(Held {
            at_least: within(extra.at_least),
            bytes: within(extra.bytes),
            at_most: within(extra.at_most),
        })
    }
}

/// A measured PSS of anonymous memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    process: usize,
    at: BootNs,
    pss: i64,
    rss: i64,
    error: i64,
}

impl Reading {
    pub(super) const COLUMNS: &[&str] = &[
        "boot_ns",
        "upid",
        "pss_anon_bytes",
        "rss_anon_bytes",
        "sampled_share",
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
        })
    }
}

/// Who is of which family since when, and how many families there are.
fn stays(processes: &[Process], execs: &Execs) -> (Vec<Vec<Stay>>, usize) {
    let mut all: Vec<Vec<Stay>> = Vec::with_capacity(processes.len());
    let mut count = 0;
    let mut founder = |from| {
        count += 1;
        Stay {
            from,
            family: count - 1,
            is_replaced: false,
            is_founder: true,
        }
    };
    for process in processes {
        let start = process.start.boot_ns;
        let mut begins: Vec<BootNs> = execs.get(&process.upid).cloned().unwrap_or_default();
        begins.retain(|begin| *begin > start);
        begins.sort_unstable();
        let mut stays = Vec::with_capacity(begins.len() + 1);
        let of_parent = process.parent.filter(|_| is_copy(process, processes));
        let of_parent = of_parent.and_then(|parent| all.get(parent));
        let of_parent = of_parent.and_then(|stays| stay_at(stays, start));
        stays.push(match of_parent {
            Some(parent) => Stay {
                from: start,
                family: parent.family,
                is_replaced: !begins.is_empty(),
                is_founder: false,
            },
            None => founder(start),
        });
        stays.extend(begins.into_iter().map(&mut founder));
        all.push(stays);
    }
    (all, count as usize)
}

fn stay_at(stays: &[Stay], at: BootNs) -> Option<Stay> {
    let past = stays.partition_point(|stay| stay.from <= at);
    stays.get(past.max(1) - 1).copied()
}

/// Whether it is a copy of its parent, or can be: one that was not seen to begin, and runs the
/// same file.
fn is_copy(process: &Process, processes: &[Process]) -> bool {
    match process.first_seen_by {
        Some(FirstSeenBy::Fork) => true,
        Some(FirstSeenBy::Command) => false,
        _ => {
            let parent = process.parent.and_then(|parent| processes.get(parent));
            parent.is_some_and(|parent| parent.exe.is_some() && parent.exe == process.exe)
        }
    }
}

/// What happens to a member of a family, in this order where it is at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Leave,
    Join,
    Read(usize),
}

/// What comes to be known of the families that ever have two members.
fn courses<'a>(
    processes: &'a [Process],
    stays: &'a [Vec<Stay>],
    readings: &'a [Reading],
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
    steps.into_iter().flat_map(move |(family, mut steps)| {
        steps.sort_unstable();
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
    members: BTreeSet<usize>,
    /// By process: what was read, and what of it the process had grown by.
    read: BTreeMap<usize, (Reading, i64)>,
    pss: i64,
    grown: i64,
    error: i64,
}

impl Round {
    fn begin(&mut self) {
        self.read.clear();
        (self.pss, self.grown, self.error) = (0, 0, 0);
    }

    fn take(&mut self, reading: Reading, grown: i64) {
        if !self.members.contains(&reading.process) {
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

    /// The extra pages, where every member was read.
    fn extra(&self) -> Option<Held> {
        let is_whole = self.members.len() > 1 && self.read.len() == self.members.len();
        let (eldest, grown) = self.read.get(self.members.first()?)?;
        let certain = self.grown - grown + eldest.rss;
        is_whole.then(|| around(self.pss - certain, self.error))
    }
}

fn course(
    family: u32,
    steps: &[(BootNs, Step, usize)],
    inherited: impl Fn(usize) -> i64,
    readings: &[Reading],
) -> Vec<(BootNs, News)> {
    let mut round = Round::default();
    let mut told: Vec<(BootNs, Step, Option<Held>)> = Vec::new();
    for &(at, step, process) in steps {
        match step {
            Step::Join => {
                round.members.insert(process);
                round.begin();
            }
            Step::Leave => {
                round.members.remove(&process);
                round.begin();
            }
            Step::Read(place) => {
                let reading = readings[place];
                let grown = (reading.rss - inherited(process)).max(0);
                round.take(reading, grown);
                if round.extra().is_none() {
                    continue;
                }
            }
        }
        told.push((at, step, round.extra()));
    }
    let mut next = None;
    let mut news: Vec<(BootNs, News)> = Vec::with_capacity(told.len());
    for (at, step, now) in told.into_iter().rev() {
        news.push((at, News { family, now, next }));
        next = match step {
            Step::Leave => None,
            Step::Join => next,
            Step::Read(_) => now,
        };
    }
    news.reverse();
    news
}
