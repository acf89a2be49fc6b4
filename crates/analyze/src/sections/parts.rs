//! What some processes hold of a state: their parts of what is shared, and what no RSS counts.

use crate::shares::Share;
use crate::{Composition, HolderGroup};
use memtrace_model::{Bytes, Kind};
use memtrace_report::Cell;
use memtrace_report::words::bytes;
use std::collections::HashMap;

/// Memory of some processes, every page once; RSS where no kinds are known.
pub(super) struct HeldBy {
    all: Share,
    rss: Option<Bytes>,
    /// Of how many the kinds are unknown: they are in no sum.
    unknown_count: usize,
}

impl HeldBy {
    pub(super) fn sum(&self) -> Bytes {
        self.rss.unwrap_or(self.all.bytes())
    }

    /// Whether it can be off by so much that it must be said.
    pub(super) fn is_estimate(&self) -> bool {
        self.rss.is_none() && self.all.is_estimate()
    }

    /// Said before it where it can be less, or is an estimate.
    pub(super) fn bound(&self) -> &'static str {
        match self.unknown_count > 0 && self.rss.is_none() {
            true => "at least ",
            false if self.is_estimate() => "about ",
            false => "",
        }
    }

    fn add(&mut self, share: &Share) {
        let all = &mut self.all;
        all.anon_bytes = all.anon_bytes + share.anon_bytes;
        all.off_by_bytes = all.off_by_bytes + share.off_by_bytes;
        all.shmem_bytes = all.shmem_bytes + share.shmem_bytes;
        all.huge_bytes = all.huge_bytes + share.huge_bytes;
        all.page_tables_bytes = all.page_tables_bytes + share.page_tables_bytes;
    }

    pub(super) fn in_words(&self) -> String {
        if let Some(rss) = self.rss {
            return format!("{} of RSS", bytes(rss));
        }
        let kinds = [
            ("in page tables", self.all.page_tables_bytes),
            ("in huge pages", self.all.huge_bytes),
            ("shared", self.all.shmem_bytes),
            ("anonymous", self.all.anon_bytes),
        ];
        let largest = kinds.into_iter().max_by_key(|(_, bytes)| *bytes);
        let (kind, largest) = largest.unwrap_or_default();
        let (sum, largest) = (bytes(self.sum()), bytes(largest));
        let bound = self.bound();
        match sum == largest {
            true => format!("{bound}{sum}, {kind}"),
            false => format!("{bound}{sum}, of which {largest} is {kind}"),
        }
    }
}

/// What the mark of an estimate stands for.
pub(super) const ESTIMATE: &str =
    "~ marks an estimate: how much a fork has copied of what it shared was not read (in full)";

/// An amount with the mark of an estimate, where it is one.
pub(super) fn marked(held: Cell, is_estimate: bool) -> Cell {
    match is_estimate {
        true => held.shown_as(format!("~{}", held.shown())),
        false => held,
    }
}

/// What each process held at an instant.
pub(super) struct Parts<'a>(HashMap<usize, &'a Share>);

impl<'a> Parts<'a> {
    pub(super) fn of(state: &'a Composition) -> Self {
        let shares = state.shares.iter();
        Self(shares.map(|share| (share.process, share)).collect())
    }

    /// What some processes held.
    pub(super) fn held_by(&self, group: &HolderGroup) -> HeldBy {
        let mut held = HeldBy {
            all: Share::default(),
            rss: None,
            unknown_count: 0,
        };
        for member in &group.who.members {
            match self.0.get(member) {
                Some(share) => held.add(share),
                None => held.unknown_count += 1,
            }
        }
        // Where the kinds of none are known there is RSS alone.
        if held.unknown_count == group.who.members.len() {
            held.rss = group.totals[Kind::Rss].bytes();
        }
        held
    }

    /// What several groups held together, and whether that is an estimate.
    pub(super) fn held_by_all(&self, groups: &[HolderGroup]) -> (Bytes, bool) {
        let each: Vec<HeldBy> = groups.iter().map(|group| self.held_by(group)).collect();
        let sum = each.iter().map(HeldBy::sum).sum();
        (sum, each.iter().any(HeldBy::is_estimate))
    }
}
