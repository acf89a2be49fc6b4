//! Anonymous memory of processes that forks made, every page once.
//!
//! A fork family is the process that an exec made and every fork of it: its members can share
//! pages. The eldest holds all of its own pages; a fork holds for certain what it grew by since.
//! Beyond that a family can hold *extra* pages: those that a member wrote to, and so has a copy
//! of, and those that the eldest gave back and a fork still holds. No counter tells of extra
//! pages. There are none at a fork. Their amount is known when the PSS of every member was read
//! after the last one came or went; between two such instants it lies between the two amounts.
//! After the last of them, and while members are read one after the other, page faults can have
//! added to it.

use super::Held;
use super::readings::{self, Copied, Extra, FamilyReading, Reading};
use super::stays::{Families, Stay, stays};
use crate::analyze::process::Process;
use crate::analyze::sharing::Execs;
use crate::model::{BootNs, Bytes, Order};
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A process goes over to its next stay.
    Exec(usize),
    Reading(FamilyReading),
}

#[derive(Clone, Copy, Debug, Default)]
struct Member {
    stay: Option<u32>,
    is_present: bool,
    anon: i64,
    /// What fork gave it; `None` before its first row where nothing told.
    inherited: Option<i64>,
    /// Of this stay: the family that it is a member of, if it is of any, and what fork gave it.
    family: Option<u32>,
    given: i64,
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
    last: Held,
    /// Whether `last` was measured and nobody came or went since.
    is_measured: bool,
    /// The certain part when `last` was known, and what all held.
    certain_then: i64,
    anon_then: i64,
    /// Since one left: the extra pages right before, at most, and what can have been copied.
    left: Option<(i64, Bytes)>,
    /// By how much either has been below that since: pages that were given back can have been
    /// extra ones, and what the eldest gave back a copy can still hold.
    dropped: i64,
    next: Option<Held>,
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
    /// What each process of them grew by since the fork or exec that made it, all together: by its
    /// counter alone, whatever is learned of what they share.
    grown: i64,
}

impl ForkFamilies {
    /// Takes who there is, and `readings`: measured PSS, in any order. What is later than `since`
    /// replaces what was known of that time; what is earlier has passed.
    pub(super) fn prepare(
        &mut self,
        processes: &[Process],
        execs: &Execs,
        (readings, copies): (&[Reading], &[Copied]),
        since: Option<BootNs>,
    ) {
        let stays = stays(processes, execs, &mut self.founded);
        // The row of one that an exec replaced tells of what it became.
        let is_replaced = |stays: &Vec<Stay>| stays.first().is_some_and(|stay| stay.is_replaced);
        let members = &self.members;
        let inherited = processes.iter().zip(&stays).enumerate();
        let inherited = inherited.map(|(position, (process, stays))| {
            let met = members.get(position).filter(|member| member.is_present);
            let inherited = process.inherited_anon_bytes.map(|bytes| bytes.0);
            let inherited = inherited.filter(|_| !is_replaced(stays));
            met.and_then(|member| member.inherited).or(inherited)
        });
        let mut inherited: Vec<Option<i64>> = inherited.collect();
        let mut events = Vec::new();
        for (process, stays) in stays.iter().enumerate() {
            let later = stays.iter().skip(1);
            events.extend(later.map(|stay| (stay.from, Event::Exec(process))));
        }
        let news = readings::news(processes, &stays, readings, copies, &mut inherited);
        events.extend(news.map(|(at, news)| (at, Event::Reading(news))));
        events.retain(|(at, _)| since.is_none_or(|since| *at > since));
        // Stable: those of one instant stay in their order.
        events.order_by_key(|(at, _)| *at);
        events.reverse();
        self.families
            .resize_with(self.founded.count(), ForkFamily::default);
        if self.members.len() < inherited.len() {
            self.members.resize(inherited.len(), Member::default());
        }
        let members = self.members.iter_mut().zip(inherited);
        for (member, inherited) in members.filter(|(member, _)| !member.is_present) {
            member.inherited = inherited;
        }
        self.stays = stays;
        self.events = events;
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
                Event::Reading(news) => self.learn(news),
            }
        }
    }

    /// A process holds `anon` from now on; `None` when it has ended.
    #[inline]
    pub(super) fn set(&mut self, process: usize, anon: Option<Bytes>) {
        if self.members.len() <= process {
            self.members.resize(process + 1, Member::default());
        }
        let member = &mut self.members[process];
        match (anon, member.is_present) {
            (Some(anon), true) => self.change(process, anon.0),
            (Some(anon), false) => {
                member.anon = anon.0;
                member.stay.get_or_insert(0);
                self.enter(process);
            }
            (None, true) => self.leave(process),
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
        family.note_drop();
        self.sum = family.counted(self.sum);
    }

    /// Puts a member in.
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
        let (anon, grown) = (member.anon, member.grown());
        self.grown = self.grown.saturating_add(grown);
        let Some(place) = member.family else {
            self.sum = self.sum.plus(Held::exact(grown));
            return;
        };
        let family = &mut self.families[place as usize];
        if family.members.len() == 1 && !family.is_measured {
            // A fork copies no page.
            family.last = Held::default();
            (family.certain_then, family.anon_then) = (family.anon, family.anon);
            family.dropped = 0;
        }
        family.anon_then += anon;
        family.certain_then += grown;
        family.members.insert(process);
        family.anon += anon;
        family.grown += grown;
        family.find_eldest(&self.members);
        self.sum = family.counted(self.sum);
    }

    /// Takes a member out.
    fn leave(&mut self, process: usize) {
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
        family.anon_then -= anon;
        // With it went the pages that it alone had.
        family.last.at_least = Bytes(0);
        family.anon -= anon;
        family.grown -= grown;
        let certain = family.certain;
        family.find_eldest(&self.members);
        let less = certain - family.certain;
        family.certain_then -= less;
        // What the eldest shared with others is theirs from now on, but all together is no more.
        let is_eldest = family.eldest.is_some_and(|eldest| eldest > process);
        if let (Some((most, _)), true) = (&mut family.left, is_eldest) {
            *most += less;
        }
        self.sum = family.counted(self.sum);
    }

    /// A member came or went, or the extra pages came to be known.
    fn learn(&mut self, news: FamilyReading) {
        let family = &mut self.families[news.family as usize];
        match news.extra {
            Extra::Read(now) => {
                family.last = now;
                family.is_measured = true;
                (family.certain_then, family.anon_then) = (family.certain, family.anon);
                family.dropped = 0;
            }
            Extra::Bound(now) => family.last = now,
            Extra::Unknown => family.is_measured = false,
            Extra::Left(copied) => {
                family.is_measured = false;
                family.left = Some((family.held.at_most.0 - family.certain, copied));
            }
            Extra::Copied(copied) => {
                if let Some((_, since)) = &mut family.left {
                    *since = copied;
                }
            }
        }
        if matches!(news.extra, Extra::Read(_) | Extra::Unknown) {
            family.left = None;
        }
        family.next = news.next;
        self.sum = family.counted(self.sum);
    }
}

impl ForkFamily {
    /// Somebody came or went.
    fn find_eldest(&mut self, members: &[Member]) {
        self.eldest = self.members.first().copied();
        let eldest = self.eldest.map(|eldest| &members[eldest]);
        self.certain = eldest.map_or(0, |eldest| self.grown - eldest.grown() + eldest.anon);
    }

    fn note_drop(&mut self) {
        if self.members.len() >= 2 {
            let below = (self.certain_then - self.certain).max(self.anon_then - self.anon);
            self.dropped = self.dropped.max(below);
        }
    }

    /// The sum of all, with what this one holds now.
    fn counted(&mut self, sum: Held) -> Held {
        let now = self.now();
        let before = std::mem::replace(&mut self.held, now);
        sum.minus(before).plus(self.held)
    }

    fn now(&self) -> Held {
        if self.members.len() < 2 {
            return Held::exact(self.anon);
        }
        let room = (self.anon - self.certain).max(0);
        let mut extra = self.last;
        extra.at_least = (extra.at_least - Bytes(self.dropped)).max(Bytes(0));
        extra.at_most = extra.at_most + Bytes(self.dropped);
        match self.next {
            Some(next) => extra = extra.hull(next),
            None if self.is_measured => {}
            None => {
                extra.at_least = Bytes(0);
                let most = self.left.map(|(most, copied)| Bytes(most) + copied);
                extra.at_most = most.map_or(Bytes(room), |most| most + Bytes(self.dropped));
            }
        }
        let within = |bytes: Bytes| Bytes(bytes.0.clamp(0, room));
        Held::exact(self.certain).plus(Held {
            at_least: within(extra.at_least),
            bytes: within(extra.bytes),
            at_most: within(extra.at_most),
        })
    }
}
