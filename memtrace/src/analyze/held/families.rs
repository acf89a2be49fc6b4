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
use super::stays::{Stay, stays};
use crate::analyze::process::Process;
use crate::analyze::sharing::Execs;
use crate::model::{BootNs, Bytes};
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
}

#[derive(Debug, Default)]
struct ForkFamily {
    /// Living members; the eldest comes first.
    members: BTreeSet<usize>,
    /// What all hold, shared pages in each.
    anon: i64,
    /// What all grew by since the fork that made each.
    grown: i64,
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
#[derive(Debug)]
pub(super) struct ForkFamilies {
    stays: Vec<Vec<Stay>>,
    members: Vec<Member>,
    families: Vec<ForkFamily>,
    /// What is to come, the latest first.
    events: Vec<(BootNs, Event)>,
    sum: Held,
}

impl ForkFamilies {
    /// Nobody holds anything yet. `readings`: every measured PSS, in any order.
    pub(super) fn of(
        processes: &[Process],
        execs: &Execs,
        readings: &[Reading],
        copies: &[Copied],
    ) -> Self {
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
        let news = readings::news(processes, &stays, readings, copies, &mut inherited);
        events.extend(news.map(|(at, news)| (at, Event::Reading(news))));
        // Stable: those of one instant stay in their order.
        events.sort_by_key(|(at, _)| *at);
        events.reverse();
        let mut families = Vec::new();
        families.resize_with(count, ForkFamily::default);
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
                Event::Reading(news) => self.learn(news),
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
                self.note_drop(place);
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
        if family.members.len() == 1 && !family.is_measured {
            // A fork copies no page.
            family.last = Held::default();
            (family.certain_then, family.anon_then) = (family.anon, family.anon);
            family.dropped = 0;
        }
        family.anon_then += self.members[process].anon;
        family.certain_then += grown;
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
        let certain = self.certain(place);
        let family = &mut self.families[place];
        family.members.remove(&process);
        family.anon_then -= anon;
        // With it went the pages that it alone had.
        family.last.at_least = Bytes(0);
        family.anon -= anon;
        family.grown -= grown;
        let is_eldest = family.members.first().is_some_and(|next| *next > process);
        let less = certain - self.certain(place);
        let family = &mut self.families[place];
        family.certain_then -= less;
        // What the eldest shared with others is theirs from now on, but all together is no more.
        if let (Some((most, _)), true) = (&mut family.left, is_eldest) {
            *most += less;
        }
        self.sum = self.sum.minus(before).plus(self.held_by(place));
    }

    /// A member came or went, or the extra pages came to be known.
    fn learn(&mut self, news: FamilyReading) {
        let place = news.family as usize;
        let before = self.held_by(place);
        let certain = self.certain(place);
        let family = &mut self.families[place];
        match news.extra {
            Extra::Read(now) => {
                family.last = now;
                family.is_measured = true;
                (family.certain_then, family.anon_then) = (certain, family.anon);
                family.dropped = 0;
            }
            Extra::Bound(now) => family.last = now,
            Extra::Unknown => family.is_measured = false,
            Extra::Left(copied) => {
                family.is_measured = false;
                family.left = Some((before.at_most.0 - certain, copied));
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

    fn note_drop(&mut self, place: usize) {
        if self.families[place].members.len() < 2 {
            return;
        }
        let certain = self.certain(place);
        let family = &mut self.families[place];
        let below = (family.certain_then - certain).max(family.anon_then - family.anon);
        family.dropped = family.dropped.max(below);
    }

    fn held_by(&self, place: usize) -> Held {
        let family = &self.families[place];
        if family.members.len() < 2 {
            return Held::exact(family.anon);
        }
        let certain = self.certain(place);
        let room = (family.anon - certain).max(0);
        let mut extra = family.last;
        extra.at_least = (extra.at_least - Bytes(family.dropped)).max(Bytes(0));
        extra.at_most = extra.at_most + Bytes(family.dropped);
        match family.next {
            Some(next) => extra = extra.hull(next),
            None if family.is_measured => {}
            None => {
                extra.at_least = Bytes(0);
                let most = family.left.map(|(most, copied)| Bytes(most) + copied);
                extra.at_most = most.map_or(Bytes(room), |most| most + Bytes(family.dropped));
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
