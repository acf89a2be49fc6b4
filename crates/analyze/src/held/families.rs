//! Anonymous memory of processes that forks made, every page once.
//!
//! A fork family is the process that an exec made and every fork of it: its members can share
//! pages. The eldest holds all of its own pages, and a fork what it grew by since: that is certain.
//! All together hold no more than the sum of their counters. How much it is in between, the PSS of
//! all members tells, where each was read since the last one came or went.

use super::Held;
use super::stays::{Families, Stay, stay_at, stays};
use crate::process::Process;
use crate::sharing::Execs;
use memtrace_model::tables::PssRow;
use memtrace_model::{BootNs, Bytes, DurationNs, Order};
use std::collections::BTreeSet;

/// What a process was found to share when its PSS was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    process: usize,
    /// When it began, and when it was done.
    from: BootNs,
    at: BootNs,
    /// Of its anonymous memory, what counts for those who share it.
    shared_away: i64,
}

impl Reading {
    /// `None` where anonymous memory was not distinguished.
    pub(super) fn of(process: usize, row: &PssRow) -> Option<Self> {
        let shared_away = row.rss_anon_bytes? - row.pss_anon_bytes?;
        Some(Self {
            process,
            from: row.boot_ns + DurationNs(-row.span_ns.0),
            at: row.boot_ns,
            shared_away: shared_away.0.max(0),
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
    /// Of this stay: the family that it is a member of, if it is of any, and what fork gave it.
    family: Option<u32>,
    given: i64,
    /// What counts for others, and in which round of its family that was read.
    shared_away: i64,
    round: u64,
}

impl Member {
    /// What it is known to hold for itself.
    fn grown(&self) -> i64 {
        (self.anon - self.given).max(0)
    }
}

#[derive(Clone, Debug, Default)]
struct ForkFamily {
    /// Living members; the eldest comes first.
    members: BTreeSet<usize>,
    eldest: Option<usize>,
    /// What all hold, shared pages in each.
    anon: i64,
    /// What all grew by since the fork that made each.
    grown: i64,
    /// What they hold for certain: all of the eldest, and what the others grew by.
    certain: i64,
    /// As it is part of the sum.
    held: Held,
    /// A round begins when somebody comes or goes: by then, how many were read in it, and what of
    /// theirs counts for others.
    round: u64,
    begun: BootNs,
    read_count: usize,
    shared_away: i64,
    /// What was held beyond what is certain when all had been read last.
    extra: i64,
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
    sum: Held,
    /// Those whose own part may have changed without a change of theirs: they became the eldest.
    promoted: Vec<usize>,
    /// Whether somebody asks for them.
    is_watched: bool,
    /// What each process of them grew by since the fork or exec that made it, all together: by its
    /// counter alone, whatever is learned of what they share.
    grown: i64,
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

    /// When something changes by itself.
    pub(super) fn next_change(&self) -> Option<BootNs> {
        self.events.last().map(|(at, _)| *at)
    }

    /// Takes what changes by itself until an instant.
    pub(super) fn pass(&mut self, until: BootNs) {
        while let Some((at, event)) = self.events.pop_if(|(at, _)| *at <= until) {
            match event {
                Event::Exec(process) => self.exec(process, at),
                Event::Read(reading) => self.read(reading),
            }
        }
    }

    /// A process holds `anon` from `at` on; `None` when it has ended.
    #[inline]
    pub(super) fn set(&mut self, process: usize, anon: Option<Bytes>, at: BootNs) {
        if self.members.len() <= process {
            self.members.resize(process + 1, Member::default());
        }
        let member = &mut self.members[process];
        match (anon, member.is_present) {
            (Some(anon), true) => self.change(process, anon.0),
            (Some(anon), false) => {
                member.anon = anon.0;
                member.stay.get_or_insert(0);
                self.enter(process, at);
            }
            (None, true) => self.leave(process, at),
            (None, false) => {}
        }
    }

    /// What all hold.
    #[inline]
    pub(super) fn held(&self) -> Held {
        self.sum
    }

    /// What all grew by, by their counters alone.
    #[inline]
    pub(super) fn grown(&self) -> i64 {
        self.grown
    }

    /// What a process was last said to have, shared pages in it; `None` where it is not there.
    pub(super) fn anon(&self, process: usize) -> Option<Bytes> {
        let member = self.members.get(process).filter(|member| member.is_present);
        member.map(|member| Bytes(member.anon))
    }

    /// What of it is of a process for certain: all of the eldest of a family, and of a fork what it
    /// grew by since; and what it has beside that, of which it can have made copies.
    pub(super) fn own(&self, process: usize) -> (i64, i64) {
        let member = self.members.get(process).filter(|member| member.is_present);
        let Some(member) = member else {
            return (0, 0);
        };
        let grown = member.grown();
        match member.family.map(|place| &self.families[place as usize]) {
            Some(family) if family.eldest == Some(process) => (member.anon, 0),
            Some(_) => (grown, (member.anon - grown).max(0)),
            // A copy that exec replaces.
            None => (grown, 0),
        }
    }

    /// Somebody is going to ask for those who are promoted.
    pub(super) fn watch(&mut self) {
        self.is_watched = true;
    }

    /// Those whose part moved although they did not, since this was asked last.
    pub(super) fn take_promoted(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.promoted)
    }

    fn exec(&mut self, process: usize, at: BootNs) {
        let was_present = self.members[process].is_present;
        if was_present {
            self.leave(process, at);
        }
        let member = &mut self.members[process];
        member.stay = Some(member.stay.map_or(1, |stay| stay + 1));
        if was_present {
            self.enter(process, at);
        }
    }

    /// A member holds something else.
    #[inline]
    fn change(&mut self, process: usize, anon: i64) {
        let member = &mut self.members[process];
        if member.anon == anon {
            return;
        }
        let grown_before = member.grown();
        let more = anon - std::mem::replace(&mut member.anon, anon);
        let grown = member.grown() - grown_before;
        self.grown = self.grown.saturating_add(grown);
        let Some(place) = member.family else {
            self.sum = self.sum.plus(Held::exact(grown));
            return;
        };
        let family = &mut self.families[place as usize];
        family.anon += more;
        family.grown += grown;
        let is_eldest = family.eldest == Some(process);
        family.certain += if is_eldest { more } else { grown };
        self.sum = family.counted(self.sum);
    }

    /// Puts a member in.
    fn enter(&mut self, process: usize, at: BootNs) {
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
        let (anon, grown) = (member.anon, member.grown());
        self.grown = self.grown.saturating_add(grown);
        let Some(place) = member.family else {
            self.sum = self.sum.plus(Held::exact(grown));
            return;
        };
        let family = &mut self.families[place as usize];
        family.members.insert(process);
        family.anon += anon;
        family.grown += grown;
        let promoted = family.begin_round(&self.members, at);
        self.promoted.extend(promoted.filter(|_| self.is_watched));
        self.sum = family.counted(self.sum);
    }

    /// Takes a member out.
    fn leave(&mut self, process: usize, at: BootNs) {
        let member = &mut self.members[process];
        member.is_present = false;
        let (anon, grown) = (member.anon, member.grown());
        self.grown = self.grown.saturating_sub(grown);
        let Some(place) = member.family else {
            self.sum = self.sum.minus(Held::exact(grown));
            return;
        };
        let family = &mut self.families[place as usize];
        family.members.remove(&process);
        family.anon -= anon;
        family.grown -= grown;
        let promoted = family.begin_round(&self.members, at);
        self.promoted.extend(promoted.filter(|_| self.is_watched));
        self.sum = family.counted(self.sum);
    }

    /// The PSS of a process was read.
    fn read(&mut self, reading: Reading) {
        let member = self.members.get_mut(reading.process);
        let Some(member) = member.filter(|member| member.is_present) else {
            return;
        };
        let family = member
            .family
            .map(|place| &mut self.families[place as usize]);
        // One that began before found pages shared by others than there are now.
        let Some(family) = family.filter(|family| reading.from >= family.begun) else {
            return;
        };
        if member.round == family.round {
            family.shared_away -= member.shared_away;
        } else {
            member.round = family.round;
            family.read_count += 1;
        }
        member.shared_away = reading.shared_away;
        family.shared_away += reading.shared_away;
        self.sum = family.counted(self.sum);
    }
}

impl ForkFamily {
    /// Somebody came or went. Answers who is the eldest now, if that is another.
    fn begin_round(&mut self, members: &[Member], at: BootNs) -> Option<usize> {
        let before = std::mem::replace(&mut self.eldest, self.members.first().copied());
        let eldest = self.eldest.map(|eldest| &members[eldest]);
        self.certain = eldest.map_or(0, |eldest| self.grown - eldest.grown() + eldest.anon);
        // A fork copies no page; who is alone shares none.
        if self.members.len() < 2 {
            self.extra = 0;
        }
        self.round += 1;
        (self.begun, self.read_count, self.shared_away) = (at, 0, 0);
        self.eldest.filter(|eldest| before != Some(*eldest))
    }

    /// The sum of all, with what this one holds now.
    fn counted(&mut self, sum: Held) -> Held {
        let now = self.now();
        let before = std::mem::replace(&mut self.held, now);
        sum.minus(before).plus(self.held)
    }

    fn now(&mut self) -> Held {
        let most = self.anon.max(self.certain);
        if self.read_count == self.members.len() {
            self.extra = (self.anon - self.shared_away - self.certain).max(0);
        }
        Held {
            at_least: Bytes(self.certain),
            bytes: Bytes((self.certain + self.extra).min(most)),
            at_most: Bytes(most),
        }
    }
}
