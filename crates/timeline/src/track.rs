//! One process during the sweep.

use super::{Amounts, CURVE_AFTER, Gauge, LaneId, Latest, Series, SeriesPoint};
use memtrace_model::{BootNs, DurationNs};
use std::sync::Arc;

const BUCKETS: usize = 64;
/// Most processes end before this age, and have no curve.
const EARLY: DurationNs = DurationNs(10_000_000_000);
/// From this age on the time after the warm-up is long enough for a verdict.
const YOUNG: DurationNs = DurationNs(2 * CURVE_AFTER.0);

/// What is measured of a process, and where it counts.
#[derive(Clone, Debug, Default)]
pub struct Member {
    /// The sums that it is part of with all it holds.
    pub whole: Arc<[LaneId]>,
    /// The sum that it is part of with its own part of that.
    pub own: Option<LaneId>,
    /// Until then it is a copy that exec replaces: its own is only what it grew by since the
    /// fork, for the rest are its parent's pages.
    pub copy_until: Option<BootNs>,
    /// Whether a curve is kept of it.
    pub has_curve: bool,
    /// Notes what it holds at some instants.
    pub gauge: Option<Box<Gauge<Amounts>>>,
}

/// What is known of a process.
#[derive(Clone, Debug, Default)]
pub struct Track {
    /// The highest that was its own of what it held.
    pub highest: Amounts,
    /// When that was.
    pub highest_boot_ns: BootNs,
    /// What it held when it ended; nothing while it runs.
    pub at_end: Amounts,
    /// Rows, also those after its end.
    pub row_count: u32,
    /// When its first row was.
    pub first: BootNs,
    /// Its curve, once it has lived for so long.
    pub curve: Option<Box<Curve>>,
    /// What it holds. Before its first row and after its end that is nothing.
    pub(super) held: Latest<Amounts>,
    /// Its own part of that, while it is a copy.
    pub(super) own: Option<Box<Amounts>>,
    pub(super) since: BootNs,
    pub(super) is_present: bool,
    pub(super) has_ended: bool,
    /// What is measured of it.
    pub member: Member,
    /// What fork gave it, while it is a copy.
    given: Option<Box<Amounts>>,
}

/// How the memory of a process went.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    /// RSS from early on, of one that is young.
    early: Option<Series>,
    /// RSS once it has lived for longer.
    late: Option<Series>,
    /// What it held when its age had doubled again.
    levels: Vec<(BootNs, Amounts)>,
}

impl Curve {
    fn hold(&mut self, (first, from): (BootNs, BootNs), time: BootNs, held: &Amounts) {
        let age = time - first;
        let new = || Series::new(from, BUCKETS);
        let early = (age < YOUNG).then(|| self.early.take().unwrap_or_else(new));
        let late = (age >= CURVE_AFTER).then(|| self.late.take().unwrap_or_else(new));
        (self.early, self.late) = (early, late);
        if let Some(rss) = held.rss() {
            let curves = [&mut self.early, &mut self.late].into_iter().flatten();
            curves.for_each(|curve| curve.hold(from, time, rss.0));
        }
        let last = self.levels.last().map(|(at, _)| (*at - first).0);
        if last.is_none_or(|last| age.0 / 2 >= last) {
            self.levels.push((time, *held));
        }
    }

    /// RSS over time.
    pub fn points(&self) -> impl Iterator<Item = SeriesPoint> {
        let curve = self.early.as_ref().or(self.late.as_ref());
        curve.into_iter().flat_map(Series::points)
    }

    /// What it held some time before an instant, at half of that age or later.
    pub fn level_before(&self, at: BootNs) -> Option<&Amounts> {
        let past = self.levels.partition_point(|(time, _)| *time <= at);
        self.levels[..past].last().map(|(_, held)| held)
    }
}

impl Track {
    pub(super) fn new(member: Member) -> Self {
        Self {
            highest: Amounts::UNKNOWN,
            member,
            ..Self::default()
        }
    }

    /// What it holds; `None` before its first row and after its end.
    pub fn held(&self) -> Option<&Amounts> {
        self.is_present.then(|| self.held.now())
    }

    /// Its own part of that.
    pub fn own_now(&self) -> Option<&Amounts> {
        self.own.as_deref().or(self.held())
    }

    /// A row was read.
    #[inline]
    pub(super) fn saw(&mut self, amounts: &Amounts, boot_ns: BootNs) {
        if self.row_count == 0 {
            self.first = boot_ns;
            self.since = boot_ns;
        }
        if self.member.copy_until.is_none_or(|until| boot_ns >= until) {
            self.given = None;
        } else if self.row_count == 0 {
            self.given = Some(Box::new(*amounts));
        }
        self.row_count = self.row_count.saturating_add(1);
        let own = self.own_of(amounts);
        let own = own.as_ref().unwrap_or(amounts);
        // None < Some: any known amount is above the unknown one.
        if own.rss() > self.highest.rss() {
            self.highest = *own;
            self.highest_boot_ns = boot_ns;
        }
    }

    /// Its own part of what it holds, where that is not all of it.
    #[inline]
    pub(super) fn own_of(&self, amounts: &Amounts) -> Option<Amounts> {
        let given = self.given.as_deref();
        given.map(|given| amounts.beyond(given))
    }

    /// Takes in what it held until `time`.
    #[inline]
    pub(super) fn hold_until(&mut self, time: BootNs) {
        let from = std::mem::replace(&mut self.since, time);
        if self.member.has_curve && time - self.first >= EARLY && self.curve.is_none() {
            self.curve = Some(Box::default());
        }
        if let Some(curve) = &mut self.curve {
            curve.hold((self.first, from), time, self.held.now());
        }
        if let (Some(gauge), true) = (&mut self.member.gauge, self.is_present) {
            gauge.hold(from, time, *self.held.now());
        }
    }

    /// What it would be if the recording were over then.
    #[must_use]
    pub fn until(&self, end: BootNs) -> Self {
        let mut track = self.clone();
        track.finish(end);
        track
    }

    /// The recording is over.
    pub(super) fn finish(&mut self, end: BootNs) {
        if self.row_count == 0 {
            return;
        }
        if self.is_present {
            self.hold_until(end);
        }
        if let Some(gauge) = &mut self.member.gauge {
            gauge.hold_to_the_end(self.since, *self.held.now());
        }
    }
}
