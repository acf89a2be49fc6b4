//! A sum of what some processes hold, and what is measured of it while time goes by.
//!
//! Rows of one time belong together (a snapshot reads all processes at once), so what a sum holds
//! is taken in only when all of them are: with the first row of a later time that changes it. A
//! sum that nobody touches costs nothing.

use super::{Amounts, Gauge, Series, Totals};
use crate::model::{BootNs, Bytes, DurationNs, Kind, Label, PerKind};
use std::ops::{Index, IndexMut};
use std::sync::Arc;

const BUCKETS: usize = 64;

/// A curve is kept of what is older than this. What comes before is warm-up, and a build has
/// thousands of programs that live for an instant.
pub(crate) const CURVE_AFTER: DurationNs = DurationNs(60_000_000_000);

/// What gauges may note together: some 100 MiB. A hundred thousand phases and dozens of roles can
/// make more, which would not fit into the memory that a report may take.
const GAUGE_STEPS_MAX: usize = 1_000_000;

/// A highest value and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct High {
    pub(crate) bytes: Bytes,
    pub(crate) boot_ns: BootNs,
}

impl High {
    /// Of two as high the earlier stays. Nothing held is no highest.
    pub(crate) fn raise(high: &mut Option<Self>, bytes: Bytes, boot_ns: BootNs) {
        if bytes > high.map_or(Bytes(0), |high| high.bytes) {
            *high = Some(Self { bytes, boot_ns });
        }
    }
}

/// A sum over processes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lane {
    /// What they hold now, of the kinds that are added up.
    pub(crate) now: Totals,
    kinds: &'static [Kind],
    /// The highest of each kind, where anything was ever held; only of RSS where no course is
    /// kept.
    pub(crate) highest: PerKind<Option<High>>,
    /// When the first process came; `None` when none ever did.
    pub(crate) first: Option<BootNs>,
    /// How it went, where that was asked for.
    pub(crate) course: Option<Box<Course>>,
    /// How many processes it is of.
    pub(crate) member_count: usize,
    /// When it changed last.
    since: BootNs,
    gauge: Option<Gauge<Amounts>>,
}

/// How a sum went over time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Course {
    /// How many changes it is of.
    pub(crate) change_count: u32,
    /// Until when there was a process.
    pub(crate) there_until: BootNs,
    pub(crate) kinds: PerKind<KindCourse>,
    /// Nothing after this counts.
    until: Option<BootNs>,
}

/// How one kind of it went.
#[derive(Clone, Debug, Default)]
pub(crate) struct KindCourse {
    pub(crate) byte_seconds: f64,
    /// Whether it was ever known of a process.
    pub(crate) is_known: bool,
    /// Since the first process came; `None` for what was never more than nothing.
    pub(crate) curve: Option<Box<Series>>,
}

impl Lane {
    /// RSS alone, of which the highest is kept.
    pub(crate) fn of_rss() -> Self {
        Self {
            kinds: &[Kind::Rss],
            ..Self::default()
        }
    }

    /// All kinds, and what is held of them at these instants.
    pub(crate) fn of_kinds(instants: &Arc<[BootNs]>) -> Self {
        Self {
            kinds: Kind::ALL,
            ..Self::of_rss().with_gauge(instants)
        }
    }

    /// With what is held at these instants.
    pub(crate) fn with_gauge(self, instants: &Arc<[BootNs]>) -> Self {
        let gauge = Gauge::new(Arc::clone(instants));
        Self {
            gauge: Some(gauge).filter(|gauge| !gauge.is_empty()),
            ..self
        }
    }

    /// With the highest of every kind, and how each went until an instant.
    pub(crate) fn with_course(self, until: Option<BootNs>) -> Self {
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
    pub(crate) fn take_gauge(&mut self) -> Option<Gauge<Amounts>> {
        self.gauge.take().filter(|_| self.first.is_some())
    }

    fn step_count(&self) -> usize {
        self.gauge.as_ref().map_or(0, Gauge::step_count)
    }

    /// Whether nothing has changed at this time yet.
    fn is_before(&self, time: BootNs) -> bool {
        self.since != time || self.first.is_none()
    }

    /// A process holds `before` and is going to hold `after` from `time` on; `None` when it is
    /// not there.
    pub(super) fn change(
        &mut self,
        before: Option<&Amounts>,
        after: Option<&Amounts>,
        time: BootNs,
    ) {
        if self.is_before(time) {
            self.hold_until(time);
        }
        self.first.get_or_insert(time);
        self.now.replace(self.kinds, before, after);
        self.member_count += usize::from(after.is_some());
        self.member_count -= usize::from(before.is_some());
        if let Some(course) = &mut self.course {
            course.change_count = course.change_count.saturating_add(1);
        }
    }

    /// Takes in what was held until `time`.
    fn hold_until(&mut self, time: BootNs) {
        let from = std::mem::replace(&mut self.since, time);
        let Some(first) = self.first else { return };
        if let Some(gauge) = &mut self.gauge {
            gauge.hold(from, time, self.now.amounts());
            if self.now[Kind::Rss].unknown_count() > 0 {
                gauge.note_unknown();
            }
        }
        let mut raise = |kind, bytes| High::raise(&mut self.highest[kind], bytes, from);
        match &mut self.course {
            Some(course) => {
                let is_there = self.member_count > 0;
                course.hold(first, (from, time), &self.now, is_there, raise);
            }
            None => {
                if let Some(bytes) = self.now.known(Kind::Rss) {
                    raise(Kind::Rss, bytes);
                }
            }
        }
    }

    /// The recording is over, and all rows are in.
    pub(super) fn finish(&mut self, end: BootNs) {
        self.hold_until(end);
        if let Some(gauge) = &mut self.gauge {
            gauge.hold_to_the_end(end, self.now.amounts());
        }
    }
}

impl Course {
    fn hold(
        &mut self,
        first: BootNs,
        (from, time): (BootNs, BootNs),
        held: &Totals,
        is_there: bool,
        mut raise: impl FnMut(Kind, Bytes),
    ) {
        let to = self.until.map_or(time, |until| until.min(time));
        let seconds = (to - from).as_secs_f64().max(0.0);
        for &kind in Kind::ALL {
            let course = &mut self.kinds[kind];
            course.is_known |= held[kind].is_known();
            // Most sums never have a page of swap or of shared memory, and no curve of it.
            let is_none = |bytes: Bytes| bytes.0 == 0 && course.curve.is_none();
            let Some(bytes) = held.known(kind).filter(|bytes| !is_none(*bytes)) else {
                continue;
            };
            raise(kind, bytes);
            if course.curve.is_none() && time - first >= CURVE_AFTER {
                let mut curve = Series::new(first, BUCKETS);
                if course.byte_seconds == 0.0 {
                    curve.hold(first, from, 0);
                }
                course.curve = Some(Box::new(curve));
            }
            course.byte_seconds += bytes.0 as f64 * seconds;
            // Where nobody is there the curve has a gap: that is not a fall.
            if let Some(curve) = course.curve.as_mut().filter(|_| is_there) {
                curve.hold(from, to, bytes.0);
            }
        }
        if is_there {
            self.there_until = to;
        }
    }
}

/// A place among the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LaneId(u32);

impl LaneId {
    /// How many were added before it.
    pub(crate) fn place(self) -> usize {
        self.0 as usize
    }
}

/// Many sums, of which few change at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lanes {
    list: Vec<Lane>,
    changed: Vec<LaneId>,
    gauge_step_count: usize,
    /// Whether there was so much to note at instants that nothing is kept of it.
    pub(crate) has_too_many_steps: bool,
    /// The same of sums of RSS alone.
    pub(crate) has_too_many_sums_of_rss: bool,
}

impl Lanes {
    /// Adds a sum.
    pub(crate) fn add(&mut self, lane: Lane) -> LaneId {
        self.list.push(lane);
        LaneId(self.list.len() as u32 - 1)
    }

    /// A process of a sum holds something else from `time` on, as in [`Lane::change`].
    pub(super) fn change(
        &mut self,
        place: LaneId,
        before: Option<&Amounts>,
        after: Option<&Amounts>,
        time: BootNs,
    ) {
        let lane = &mut self.list[place.place()];
        if lane.is_before(time) {
            self.changed.push(place);
            let step_count = lane.step_count();
            lane.hold_until(time);
            self.gauge_step_count += lane.step_count() - step_count;
            if self.gauge_step_count > GAUGE_STEPS_MAX {
                self.forget_gauges();
            }
        }
        self.list[place.place()].change(before, after, time);
    }

    /// All rows of one time are in, and were looked at.
    pub(super) fn pass(&mut self) {
        self.changed.clear();
    }

    /// Those that changed at the time whose rows are in.
    pub(crate) fn changed(&self) -> &[LaneId] {
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
