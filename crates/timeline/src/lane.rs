//! A sum of what some processes hold, and what is measured of it while time goes by.
//!
//! Rows of one time belong together (a snapshot reads all processes at once), so what a sum holds
//! of a kind is taken in only when all of them are: with the first row of a later time that changes
//! it. Most rows change one or two kinds; the others cost nothing.

use super::amounts::Turn;
use super::{Amounts, Gauge, Series, Totals};
use memtrace_model::{BootNs, Bytes, DurationNs, Kind, Label, PerKind};
use std::ops::{Index, IndexMut};
use std::sync::Arc;

const BUCKETS: usize = 64;

/// A curve is kept of what is older than this. What comes before is warm-up, and a build has
/// thousands of programs that live for an instant.
pub const CURVE_AFTER: DurationNs = DurationNs(60_000_000_000);

/// What gauges may note together: some 100 MiB. A hundred thousand phases and dozens of roles can
/// make more, which would not fit into the memory that a report may take.
const GAUGE_STEPS_MAX: usize = 1_000_000;

/// A highest value and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct High {
    /// How much it was.
    pub bytes: Bytes,
    /// When it was first that much.
    pub boot_ns: BootNs,
}

impl High {
    /// Of two as high the earlier stays. Nothing held is no highest.
    pub fn raise(high: &mut Option<Self>, bytes: Bytes, boot_ns: BootNs) {
        if bytes > high.map_or(Bytes(0), |high| high.bytes) {
            *high = Some(Self { bytes, boot_ns });
        }
    }
}

/// A sum over processes.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    /// What they hold now, of the kinds that are added up.
    pub now: Totals,
    kinds: &'static [Kind],
    /// The highest of each kind, where anything was ever held; only of RSS where no course is
    /// kept.
    pub highest: PerKind<Option<High>>,
    /// When the first process came; `None` when none ever did.
    pub first: Option<BootNs>,
    /// How it went, where that was asked for.
    pub course: Option<Box<Course>>,
    /// How many processes it is of.
    pub member_count: usize,
    /// When it changed last.
    since: BootNs,
    /// When each kind changed last: what it is since then is not taken in yet.
    kind_since: PerKind<BootNs>,
    gauge: Option<Gauge<Amounts>>,
}

/// How a sum went over time.
#[derive(Clone, Debug, Default)]
pub struct Course {
    /// How many changes it is of.
    pub change_count: u32,
    /// Until when there was a process.
    pub there_until: BootNs,
    pub kinds: PerKind<KindCourse>,
    /// Nothing after this counts.
    until: Option<BootNs>,
}

/// How one kind of it went.
#[derive(Clone, Debug, Default)]
pub struct KindCourse {
    /// What was held, times how long.
    pub byte_ns: i128,
    /// Whether it was ever known of a process.
    pub is_known: bool,
    /// Since the first process came; `None` for what was never more than nothing.
    pub curve: Option<Box<Series>>,
}

impl Lane {
    /// RSS alone, of which the highest is kept.
    pub fn of_rss() -> Self {
        Self {
            kinds: &[Kind::Rss],
            ..Self::default()
        }
    }

    /// All kinds, and what is held of them at these instants.
    pub fn of_kinds(instants: &Arc<[BootNs]>) -> Self {
        Self {
            kinds: Kind::ALL,
            ..Self::of_rss().with_gauge(instants)
        }
    }

    /// With what is held at these instants.
    pub fn with_gauge(self, instants: &Arc<[BootNs]>) -> Self {
        let gauge = Gauge::new(Arc::clone(instants));
        Self {
            gauge: Some(gauge).filter(|gauge| !gauge.is_empty()),
            ..self
        }
    }

    /// With the highest of every kind, and how each went until an instant.
    pub fn with_course(self, until: Option<BootNs>) -> Self {
        let course = Course {
            until,
            ..Course::default()
        };
        Self {
            course: Some(Box::new(course)),
            ..self
        }
    }

    /// What was held at its instants; `None` where there is nothing to tell.
    pub fn take_gauge(&mut self) -> Option<Gauge<Amounts>> {
        self.gauge.take().filter(|_| self.first.is_some())
    }

    fn step_count(&self) -> usize {
        self.gauge.as_ref().map_or(0, Gauge::step_count)
    }

    /// Whether nothing has changed at this time yet.
    fn is_before(&self, time: BootNs) -> bool {
        self.since != time || self.first.is_none()
    }

    /// What a process holds changes at `time`.
    #[inline]
    pub(super) fn change(&mut self, turn: &Turn<'_>, time: BootNs) {
        if self.is_before(time) {
            self.hold_until(time);
        }
        match &turn.more {
            Some(more) => {
                for &kind in self.kinds {
                    if more[kind] != 0 {
                        self.settle(kind, time);
                        self.now.grow(kind, more[kind]);
                    }
                }
            }
            None => {
                // What is unknown of one is a matter of what is unknown of others.
                for &kind in self.kinds {
                    self.settle(kind, time);
                }
                for &kind in self.kinds {
                    self.now.replace(kind, turn.before, turn.after);
                }
                self.first.get_or_insert(time);
                self.member_count += usize::from(turn.after.is_some());
                self.member_count -= usize::from(turn.before.is_some());
            }
        }
        if let Some(course) = &mut self.course {
            course.change_count = course.change_count.saturating_add(1);
        }
    }

    /// Takes in what is not of one kind alone, until `time`.
    fn hold_until(&mut self, time: BootNs) {
        let from = std::mem::replace(&mut self.since, time);
        if let (Some(gauge), Some(_)) = (&mut self.gauge, self.first) {
            gauge.hold(from, time, self.now.amounts());
            if self.now[Kind::Rss].unknown_count() > 0 {
                gauge.note_unknown();
            }
        }
    }

    fn is_followed(&self, kind: Kind) -> bool {
        kind == Kind::Rss || self.course.is_some()
    }

    /// A kind is going to be another from `time` on.
    #[inline]
    fn settle(&mut self, kind: Kind, time: BootNs) {
        if self.is_followed(kind) && self.kind_since[kind] != time {
            self.take_in(kind, time);
        }
    }

    /// Takes in what was held of a kind until `time`.
    #[inline]
    fn take_in(&mut self, kind: Kind, time: BootNs) {
        let from = std::mem::replace(&mut self.kind_since[kind], time);
        let Some(first) = self.first else { return };
        let bytes = self.now.known(kind);
        if let Some(bytes) = bytes {
            High::raise(&mut self.highest[kind], bytes, from);
        }
        if let Some(course) = &mut self.course {
            let is_there = self.member_count > 0;
            let is_known = self.now[kind].is_known();
            course.take_in(kind, (first, from, time), bytes, (is_there, is_known));
        }
    }

    /// The recording is over, and all rows are in.
    pub(super) fn finish(&mut self, end: BootNs) {
        self.hold_until(end);
        for &kind in self.kinds {
            if self.is_followed(kind) {
                self.take_in(kind, end);
            }
        }
        if let Some(gauge) = &mut self.gauge {
            gauge.hold_to_the_end(end, self.now.amounts());
        }
    }
}

impl Course {
    /// Of a kind so much was held from a time until another.
    fn take_in(
        &mut self,
        kind: Kind,
        (first, from, time): (BootNs, BootNs, BootNs),
        bytes: Option<Bytes>,
        (is_there, is_known): (bool, bool),
    ) {
        let to = self.until.map_or(time, |until| until.min(time));
        if is_there {
            self.there_until = to;
        }
        let of_kind = &mut self.kinds[kind];
        of_kind.is_known |= is_known;
        if let Some(bytes) = bytes {
            of_kind.hold(first, (from, to), bytes, is_there);
        }
    }
}

impl KindCourse {
    fn hold(&mut self, first: BootNs, (from, to): (BootNs, BootNs), bytes: Bytes, is_there: bool) {
        // Most sums never have a page of swap or of shared memory, and no curve of it.
        if bytes.0 == 0 && self.curve.is_none() {
            return;
        }
        if self.curve.is_none() && to - first >= CURVE_AFTER {
            let mut curve = Series::new(first, BUCKETS);
            if self.byte_ns == 0 {
                curve.hold(first, from, 0);
            }
            self.curve = Some(Box::new(curve));
        }
        self.byte_ns += i128::from(bytes.0) * i128::from((to - from).0.max(0));
        // Where nobody is there the curve has a gap: that is not a fall.
        if let Some(curve) = self.curve.as_mut().filter(|_| is_there) {
            curve.hold(from, to, bytes.0);
        }
    }
}

/// A place among the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(u32);

impl LaneId {
    /// How many were added before it.
    pub fn place(self) -> usize {
        self.0 as usize
    }
}

/// Many sums, of which few change at a time.
#[derive(Clone, Debug, Default)]
pub struct Lanes {
    list: Vec<Lane>,
    changed: Vec<LaneId>,
    gauge_step_count: usize,
    /// Whether there was so much to note at instants that nothing is kept of it.
    pub has_too_many_steps: bool,
    /// The same of sums of RSS alone.
    pub has_too_many_sums_of_rss: bool,
}

impl Lanes {
    /// Adds a sum.
    pub fn add(&mut self, lane: Lane) -> LaneId {
        self.list.push(lane);
        LaneId(self.list.len() as u32 - 1)
    }

    /// What a process of a sum holds changes, as in [`Lane::change`].
    pub(super) fn change(&mut self, place: LaneId, turn: &Turn<'_>, time: BootNs) {
        let lane = &mut self.list[place.place()];
        if lane.course.is_some() && lane.is_before(time) {
            self.changed.push(place);
        }
        if lane.gauge.is_none() {
            return lane.change(turn, time);
        }
        let step_count = lane.step_count();
        lane.change(turn, time);
        self.gauge_step_count += lane.step_count() - step_count;
        if self.gauge_step_count > GAUGE_STEPS_MAX {
            self.forget_gauges();
        }
    }

    /// All rows of one time are in, and were looked at.
    pub(super) fn pass(&mut self) {
        self.changed.clear();
    }

    /// Those with a course that changed at the time whose rows are in.
    pub fn changed(&self) -> &[LaneId] {
        &self.changed
    }

    /// Keeps nothing of what was noted: at first of sums of RSS alone, which say least.
    fn forget_gauges(&mut self) {
        let is_alone = |lane: &Lane| lane.kinds.len() == 1 && lane.gauge.is_some();
        let has_others = self.list.iter().any(is_alone);
        self.has_too_many_sums_of_rss |= has_others;
        self.has_too_many_steps |= !has_others;
        for lane in &mut self.list {
            if !has_others || is_alone(lane) {
                lane.gauge = None;
            }
        }
        self.gauge_step_count = self.list.iter().map(Lane::step_count).sum();
    }

    /// The recording is over, and all rows are in.
    pub(super) fn finish(&mut self, end: BootNs) {
        self.list.iter_mut().for_each(|lane| lane.finish(end));
    }
}

impl Index<LaneId> for Lanes {
    type Output = Lane;
    fn index(&self, lane: LaneId) -> &Lane {
        &self.list[lane.place()]
    }
}

impl IndexMut<LaneId> for Lanes {
    fn index_mut(&mut self, lane: LaneId) -> &mut Lane {
        &mut self.list[lane.place()]
    }
}
