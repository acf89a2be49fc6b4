//! Anonymous memory of processes that forks made: what each holds for certain.
//!
//! A fork family is the process that an exec made and every fork of it: its members can share
//! pages. The eldest counts all of its pages, and a fork those that it got since, or that a reading
//! found to be mapped by nobody else: so no page counts twice. All together hold no more than the
//! sum of their counters.
//!
//! Of a copy that ran before the recording nobody knows what fork gave it. Until all of it is read it is
//! thought to share what its next reading finds: what it gained until then is its own, and what it
//! wrote to meanwhile is not known.

use super::stays::{Families, Stay, stay_at, stays};
use super::{Held, Part};
use crate::process::Process;
use crate::sharing::Execs;
use memtrace_model::tables::{FirstSeenBy, PssRow};
use memtrace_model::{BootNs, Bytes, DurationNs, Order};
use std::collections::{BTreeSet, HashMap};

/// How much of a process's anonymous memory others can map, too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    process: usize,
    /// When it began, and when it was done.
    from: BootNs,
    at: BootNs,
    shared: i64,
    /// Whether it is of all pages, and no estimate.
    is_whole: bool,
}

impl Reading {
    /// `None` where the reading did not distinguish anonymous memory.
    pub(super) fn of(process: usize, row: &PssRow) -> Option<Self> {
        let rss = row.rss_anon_bytes?;
        let shared = match row.uss_anon_bytes {
            Some(own) => rss - own,
            // Of a page that several map at most half counts for one of them.
            None => {
                let of_others = rss - row.pss_anon_bytes?;
                of_others + of_others
            }
        };
        Some(Self {
            process,
            from: row.boot_ns + DurationNs(-row.span_ns.0),
            at: row.boot_ns,
            shared: shared.0.max(0),
            is_whole: row.is_anon_unshared || row.sampled_share.is_none_or(|share| share >= 1.0),
        })
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A process goes over to its next stay.
    Exec(usize),
    Read(Reading),
}

#[derive(Clone, Copy, Debug, Default)]
struct Member {
    stay: Option<u32>,
    is_present: bool,
    anon: i64,
    /// What fork gave it; `None` before its first row where nothing reported.
    inherited: Option<i64>,
    /// Of this stay: the family that it is a member of, if it is of any, what fork gave it, and how
    /// much others can map, too.
    family: Option<u32>,
    given: i64,
    shared: i64,
    /// And how much of that others are thought to map.
    thought_shared: i64,
    /// What its first reading finds to be shared, where nobody knows what fork gave it.
    first_read: Option<i64>,
    /// Whether all of it was read.
    is_read: bool,
    /// Whether it ran before the recording, and no reading tells what fork gave it.
    is_unread: bool,
}

/// Whether a process ran before the recording, so that nobody knows what fork gave it.
fn is_unknown(process: &Process) -> bool {
    process.inherited_anon_bytes.is_none() && process.first_seen_by == Some(FirstSeenBy::Snapshot)
}

impl Member {
    /// What it got since the fork.
    fn grown(&self) -> i64 {
        (self.anon - self.given).max(0)
    }
}

#[derive(Clone, Debug, Default)]
struct ForkFamily {
    /// Living members; the eldest comes first.
    members: BTreeSet<usize>,
    eldest: Option<usize>,
}

/// All families of a recording, as they stand at an instant.
#[derive(Clone, Debug, Default)]
pub(super) struct ForkFamilies {
    founded: Families,
    stays: Vec<Vec<Stay>>,
    members: Vec<Member>,
    families: Vec<ForkFamily>,
    /// What is to come, the latest first.
    events: Vec<(BootNs, Event)>,
    /// What all hold for certain, what they are thought to hold, and what their counters come to.
    certain: i64,
    thought: i64,
    most: i64,
    /// What each process got since the fork or exec that made it, all together: by its counter alone,
    /// whatever is learned of what they share.
    grown: i64,
    /// The sum of their counters, also of copies that exec replaces later.
    in_rss: i64,
    /// What copies that ran before the recording may have alone beyond what they are thought to.
    unread: i64,
    /// Those whose certain part may have changed although their counters did not.
    touched: Vec<usize>,
}

impl ForkFamilies {
    /// Takes who there is, and `readings` in any order. What is later than `since` replaces what was
    /// known of that time; what is earlier has passed.
    pub(super) fn prepare(
        &mut self,
        processes: &[Process],
        execs: &Execs,
        readings: &[Reading],
        since: Option<BootNs>,
    ) {
        self.stays = stays(processes, execs, &mut self.founded);
        self.families
            .resize_with(self.founded.count(), ForkFamily::default);
        if self.members.len() < processes.len() {
            self.members.resize(processes.len(), Member::default());
        }
        let members = self.members.iter_mut().zip(processes).zip(&self.stays);
        for ((member, process), stays) in members.filter(|((member, _), _)| !member.is_present) {
            let inherited = process.inherited_anon_bytes.map(|bytes| bytes.0);
            // The row of one that an exec replaced tells of what it became.
            let is_replaced = stays.first().is_some_and(|stay| stay.is_replaced);
            member.inherited = inherited.filter(|_| !is_replaced);
        }
        self.take_first_readings(processes, readings);
        let mut events = Vec::new();
        for (process, stays) in self.stays.iter().enumerate() {
            let later = stays.iter().skip(1);
            events.extend(later.map(|stay| (stay.from, Event::Exec(process))));
        }
        let readings = readings.iter().filter(|reading| {
            let stays = self.stays.get(reading.process);
            // One that began under another program tells of both.
            stays.is_some_and(|stays| {
                let stay = |at| stay_at(stays, at).map(|stay| stay.from);
                stay(reading.from) == stay(reading.at)
            })
        });
        events.extend(readings.map(|reading| (reading.at, Event::Read(*reading))));
        events.retain(|(at, _)| since.is_none_or(|since| *at > since));
        // Stable: those of one instant stay in their order.
        events.order_by_key(|(at, _)| *at);
        events.reverse();
        self.events = events;
    }

    /// Of those who ran before the recording: what they are thought to share until they are read, and of whom
    /// no reading tells.
    fn take_first_readings(&mut self, processes: &[Process], readings: &[Reading]) {
        let mut first: HashMap<usize, &Reading> = HashMap::new();
        for reading in readings {
            let first = first.entry(reading.process).or_insert(reading);
            if reading.at < first.at {
                *first = reading;
            }
        }
        for (position, reading) in first {
            // Of what exec replaced, a later reading says nothing.
            let is_one_program = self.stays[position].len() == 1;
            if is_unknown(&processes[position]) && is_one_program {
                self.members[position].first_read = Some(reading.shared);
            }
        }
        let members = self.members.iter_mut().zip(processes).zip(&self.stays);
        for ((member, process), stays) in members.filter(|((member, _), _)| !member.is_present) {
            member.is_unread =
                is_unknown(process) && stays.len() == 1 && member.first_read.is_none();
        }
    }

    /// When something changes by itself.
    pub(super) fn next_change(&self) -> Option<BootNs> {
        self.events.last().map(|(at, _)| *at)
    }

    /// Takes what changes by itself until an instant.
    pub(super) fn pass(&mut self, until: BootNs) {
        while let Some((_, event)) = self.events.pop_if(|(at, _)| *at <= until) {
            match event {
                Event::Exec(process) => self.exec(process),
                Event::Read(reading) => self.read(reading),
            }
        }
    }

    /// A process holds `anon` from now on; `None` when it has ended.
    #[inline]
    pub(super) fn set(&mut self, process: usize, anon: Option<Bytes>) {
        if self.members.len() <= process {
            self.members.resize(process + 1, Member::default());
        }
        let is_present = self.members[process].is_present;
        match (anon, is_present) {
            (Some(anon), true) if self.members[process].anon != anon.0 => {
                self.count(process, -1);
                self.members[process].anon = anon.0;
                self.count(process, 1);
            }
            (Some(anon), false) => {
                let member = &mut self.members[process];
                member.anon = anon.0;
                member.stay.get_or_insert(0);
                self.enter(process);
            }
            (None, true) => self.leave(process),
            (Some(_), true) | (None, false) => {}
        }
    }

    /// What all hold.
    #[inline]
    pub(super) fn held(&self) -> Held {
        Held {
            at_least: Bytes(self.certain),
            bytes: Bytes(self.thought),
            at_most: Bytes(self.most),
        }
    }

    /// What all grew by, by their counters alone.
    #[inline]
    pub(super) fn grown(&self) -> i64 {
        self.grown
    }

    /// What all have in RSS, pages that they share in each.
    #[inline]
    pub(super) fn in_rss(&self) -> i64 {
        self.in_rss
    }

    /// What copies that ran before the recording, and were never read, may have alone beyond that.
    #[inline]
    pub(super) fn unread(&self) -> i64 {
        self.unread
    }

    /// What a process was last said to have, shared pages in it; `None` where it is not there.
    pub(super) fn anon(&self, process: usize) -> Option<Bytes> {
        Some(Bytes(self.present(process)?.anon))
    }

    /// The anonymous part of a process: what it is thought to have alone, and beside that what it can
    /// have made copies of.
    pub(super) fn part(&self, process: usize) -> Part {
        let Some(member) = self.present(process) else {
            return Part::default();
        };
        let (certain, own) = self.counted(process);
        // Of a copy that exec replaces there is no more.
        let whole = member.family.map_or(own, |_| member.anon);
        let (inherited, unread) = match member.is_read || member.first_read.is_some() {
            true => (whole - own, 0),
            false => (0, whole - own),
        };
        Part {
            own,
            supposed: own - certain,
            inherited,
            unread,
            ..Part::default()
        }
    }

    /// Those whose certain part may have moved although they did not, since this was asked last.
    pub(super) fn take_touched(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.touched)
    }

    fn present(&self, process: usize) -> Option<&Member> {
        self.members.get(process).filter(|member| member.is_present)
    }

    /// What counts of a process for certain, and what is thought to.
    fn counted(&self, process: usize) -> (i64, i64) {
        let member = &self.members[process];
        let beside = |shared: i64| (member.anon - shared).max(0);
        match member.family.map(|place| &self.families[place as usize]) {
            Some(family) if family.eldest == Some(process) => (member.anon, member.anon),
            Some(_) => (beside(member.shared), beside(member.thought_shared)),
            None => (member.grown(), member.grown()),
        }
    }

    /// Puts a process into the sums, or takes it out.
    #[inline]
    fn count(&mut self, process: usize, sign: i64) {
        let member = &self.members[process];
        let most = member.family.map_or(member.grown(), |_| member.anon);
        self.grown = self.grown.saturating_add(sign * member.grown());
        self.most = self.most.saturating_add(sign * most);
        self.in_rss = self.in_rss.saturating_add(sign * member.anon);
        self.count_own(process, sign);
    }

    fn count_own(&mut self, process: usize, sign: i64) {
        let (certain, thought) = self.counted(process);
        self.certain = self.certain.saturating_add(sign * certain);
        self.thought = self.thought.saturating_add(sign * thought);
        let member = &self.members[process];
        if member.is_unread && member.family.is_some() {
            self.unread = self.unread.saturating_add(sign * (member.anon - thought));
        }
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

    fn enter(&mut self, process: usize) {
        let member = &mut self.members[process];
        let stay = member
            .stay
            .and_then(|stay| self.stays.get(process)?.get(stay as usize));
        let is_founder = stay.is_none_or(|stay| stay.is_founder);
        if !is_founder {
            member.inherited.get_or_insert(member.anon);
        }
        member.is_present = true;
        member.family = stay
            .filter(|stay| !stay.is_replaced)
            .map(|stay| stay.family);
        member.given = member.inherited.filter(|_| !is_founder).unwrap_or(0);
        member.shared = member.given;
        let first_read = member.first_read.filter(|_| !is_founder);
        member.thought_shared = first_read.unwrap_or(member.given).min(member.given);
        member.is_read = false;
        member.is_unread &= !is_founder && member.stay == Some(0);
        let family = member.family;
        self.count(process, 1);
        if let Some(place) = family {
            self.families[place as usize].members.insert(process);
            self.elect(place);
        }
    }

    fn leave(&mut self, process: usize) {
        self.count(process, -1);
        self.members[process].is_present = false;
        if let Some(place) = self.members[process].family {
            let family = &mut self.families[place as usize];
            family.members.remove(&process);
            // An empty set keeps its room.
            if family.members.is_empty() {
                family.members = BTreeSet::new();
            }
            family.eldest = family.eldest.filter(|eldest| *eldest != process);
            self.elect(place);
        }
    }

    /// Somebody came or went: another can be the eldest now.
    fn elect(&mut self, place: u32) {
        let family = &self.families[place as usize];
        let (before, after) = (family.eldest, family.members.first().copied());
        if before == after {
            return;
        }
        let both = || before.into_iter().chain(after);
        both().for_each(|process| self.count_own(process, -1));
        self.families[place as usize].eldest = after;
        both().for_each(|process| self.count_own(process, 1));
        self.touched.extend(both());
    }

    /// A reading of a process: no more than that is of others, whatever fork gave it. What is an estimate
    /// says so only where nothing else does.
    fn read(&mut self, reading: Reading) {
        let process = reading.process;
        if self.present(process).is_none() {
            return;
        }
        self.count_own(process, -1);
        let member = &mut self.members[process];
        if reading.is_whole {
            member.shared = member.shared.min(reading.shared);
            member.thought_shared = member.shared;
            member.is_read = true;
            member.is_unread = false;
        } else if member.first_read.is_some() && !member.is_read {
            member.thought_shared = member.shared.min(reading.shared);
        }
        self.count_own(process, 1);
        self.touched.push(process);
    }
}
