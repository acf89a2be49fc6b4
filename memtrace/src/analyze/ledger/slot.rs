//! One process in the books.

use crate::analyze::growth::{self, Growth};
use crate::model::BootNs;
use crate::sweep::{Amounts, CURVE_AFTER, Gauge, LaneId, Series};

const PROCESS_BUCKETS: usize = 64;

/// What the pass found out about one process.
#[derive(Debug)]
pub(in crate::analyze) struct Seen {
    pub(in crate::analyze) highest: Amounts,
    pub(in crate::analyze) highest_boot_ns: BootNs,
    pub(in crate::analyze) growth: Option<Growth>,
    /// What it held when it ended; nothing while it runs.
    pub(in crate::analyze) at_end: Amounts,
}

/// What is known of a process during the pass.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) now: Amounts,
    pub(super) saved: Amounts,
    pub(super) saved_at_maximum: u32,
    pub(super) highest: Amounts,
    pub(super) highest_boot_ns: BootNs,
    pub(super) first_boot_ns: BootNs,
    pub(super) changed_boot_ns: BootNs,
    pub(super) row_count: u32,
    /// The sums that it is part of with all it holds, and the one with its own part of that.
    pub(super) in_trees: [Option<LaneId>; 2],
    pub(super) in_role: Option<LaneId>,
    pub(super) is_present: bool,
    pub(super) copy_until: Option<BootNs>,
    /// What fork gave it, while it is a copy that exec is going to replace.
    pub(super) given: Option<Box<Amounts>>,
    /// Its own part of what it holds.
    pub(super) own_now: Amounts,
    pub(super) has_ended: bool,
    pub(super) curve: Option<Box<Series>>,
    pub(super) gauge: Option<Box<Gauge<Amounts>>>,
    pub(super) growth: Option<Growth>,
    pub(super) at_end: Amounts,
}

impl Slot {
    pub(super) fn new(in_trees: [Option<LaneId>; 2], in_role: Option<LaneId>) -> Self {
        Self {
            now: Amounts::NONE,
            saved: Amounts::NONE,
            saved_at_maximum: 0,
            highest: Amounts::UNKNOWN,
            highest_boot_ns: BootNs(0),
            first_boot_ns: BootNs(0),
            changed_boot_ns: BootNs(0),
            row_count: 0,
            in_trees,
            in_role,
            is_present: false,
            copy_until: None,
            given: None,
            own_now: Amounts::NONE,
            has_ended: false,
            curve: None,
            gauge: None,
            growth: None,
            at_end: Amounts::NONE,
        }
    }

    pub(super) fn saw(&mut self, amounts: Amounts, boot_ns: BootNs) {
        if self.row_count == 0 {
            self.first_boot_ns = boot_ns;
            self.changed_boot_ns = boot_ns;
        }
        if self.copy_until.is_none_or(|until| boot_ns >= until) {
            self.given = None;
        } else if self.row_count == 0 {
            self.given = Some(Box::new(amounts));
        }
        self.row_count = self.row_count.saturating_add(1);
        let own = self.own(amounts);
        // None < Some: any known amount is above the unknown one.
        if own.rss() > self.highest.rss() {
            self.highest = own;
            self.highest_boot_ns = boot_ns;
        }
    }

    /// Its own part of what it holds: of a copy that exec replaces what it grew by since the fork,
    /// for the rest are its parent's pages.
    pub(super) fn own(&self, amounts: Amounts) -> Amounts {
        let given = self.given.as_deref();
        given.map_or(amounts, |given| amounts.beyond(given))
    }

    pub(super) fn hold_until(&mut self, time: BootNs) {
        let from = self.changed_boot_ns;
        self.changed_boot_ns = time;
        if self.curve.is_none() && time - self.first_boot_ns >= CURVE_AFTER {
            self.curve = Some(Box::new(Series::new(from, PROCESS_BUCKETS)));
        }
        if let (Some(curve), Some(rss)) = (&mut self.curve, self.now.rss()) {
            curve.hold(from, time, rss.0);
        }
        if let (Some(gauge), true) = (&mut self.gauge, self.is_present) {
            gauge.hold(from, time, self.now);
        }
    }

    pub(super) fn at_maximum(&self, maximum: u32) -> Amounts {
        if self.saved_at_maximum == maximum {
            self.saved
        } else {
            self.now
        }
    }

    pub(super) fn finish(&mut self, end: BootNs) -> Option<Seen> {
        if self.row_count == 0 {
            return None;
        }
        if self.is_present {
            self.hold_until(end);
        }
        if let Some(gauge) = &mut self.gauge {
            gauge.hold_to_the_end(self.changed_boot_ns, self.now);
        }
        self.fit_until(end);
        Some(Seen {
            highest: self.highest,
            highest_boot_ns: self.highest_boot_ns,
            growth: self.growth,
            at_end: self.at_end,
        })
    }

    /// The life is over: the curve has told what it can, and its memory is for the next one.
    pub(super) fn fit_until(&mut self, end: BootNs) {
        if let Some(curve) = self.curve.take() {
            let life = (self.first_boot_ns, end);
            self.growth = growth::fit(curve.points(), life, self.row_count);
        }
    }
}
