//! A sum of what some processes hold, and what is measured of it while time goes by.
//!
//! Rows of one time belong together (a snapshot reads all processes at once), so a sum is
//! compared with its highest only when all of them are in. What it held until then is taken in
//! once, when the first of them changes it: a sum that nobody touches costs nothing.

use super::{Amounts, Gauge, Series, Totals};
use crate::model::{BootNs, Bytes, DurationNs, Kind, Label, PerKind};
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
#[derive(Debug)]
pub(crate) struct Lane {
    now: Totals,
    member_count: usize,
    /// The kinds of which the highest is kept.
    kinds: &'static [Kind],
    highest: PerKind<Option<High>>,
    /// What it held from `since` on, when all rows of that time were in.
    settled: Amounts,
    since: BootNs,
    /// When the first process came; `None` when none ever did.
    first: Option<BootNs>,
    course: Option<Box<Course>>,
    gauge: Option<Gauge<Amounts>>,
    is_touched: bool,
}

/// How a sum went over time.
#[derive(Debug)]
pub(crate) struct Course {
    /// Nothing after this counts.
    until: Option<BootNs>,
    /// Until when there was a process.
    there_until: BootNs,
    change_count: u32,
    kinds: PerKind<KindCourse>,
}

/// How one kind of it went.
#[derive(Debug, Default)]
pub(crate) struct KindCourse {
    byte_seconds: f64,
    /// Whether it was ever known of a process.
    is_known: bool,
    curve: Option<Box<Series>>,
}

impl Lane {
    /// Only the highest RSS is kept.
    pub(crate) fn of_rss() -> Self {
        Self {
            now: Totals::default(),
            member_count: 0,
            kinds: &[Kind::Rss],
            highest: PerKind::default(),
            settled: Amounts::NONE,
            since: BootNs(0),
            first: None,
            course: None,
            gauge: None,
            is_touched: false,
        }
    }

    /// The highest of every kind, and how each went until an instant.
    pub(crate) fn of_kinds(until: Option<BootNs>) -> Self {
        let course = Course {
            until,
            there_until: BootNs(0),
            change_count: 0,
            kinds: PerKind::default(),
        };
        Self {
            kinds: Kind::ALL,
            course: Some(Box::new(course)),
            ..Self::of_rss()
        }
    }

    /// The same, with what is held at these instants.
    pub(crate) fn noted_at(self, instants: &Arc<[BootNs]>) -> Self {
        let gauge = Gauge::new(Arc::clone(instants));
        Self {
            gauge: Some(gauge).filter(|gauge| !gauge.is_empty()),
            ..self
        }
    }

    /// The highest simultaneous sum of a kind; `None` where nothing was ever held.
    pub(crate) fn highest(&self, kind: Kind) -> Option<High> {
        self.highest[kind]
    }

    /// When the first process came; `None` when none ever did.
    pub(crate) fn first(&self) -> Option<BootNs> {
        self.first
    }

    /// How it went, where that was asked for.
    pub(crate) fn course(&self) -> Option<&Course> {
        self.course.as_deref()
    }

    /// A process held `before` and holds `after` from `time` on; `None` when it is not there.
    fn change(&mut self, before: Option<&Amounts>, after: Option<&Amounts>, time: BootNs) {
        self.first.get_or_insert(time);
        self.now.replace(before, after);
        self.member_count += usize::from(after.is_some());
        self.member_count -= usize::from(before.is_some());
        if let Some(course) = &mut self.course {
            course.change_count = course.change_count.saturating_add(1);
            for &kind in Kind::ALL {
                course.kinds[kind].is_known |= after.is_some_and(|after| after.get(kind).is_some());
            }
        }
    }

    /// Takes in what was held until `time`.
    fn hold_until(&mut self, time: BootNs) {
        let from = std::mem::replace(&mut self.since, time);
        let Some(first) = self.first else { return };
        if let Some(gauge) = &mut self.gauge {
            gauge.hold(from, time, self.settled);
        }
        if let Some(course) = &mut self.course {
            let is_there = self.member_count > 0;
            course.hold(first, (from, time), &self.settled, is_there);
        }
    }

    /// All rows of one time are in.
    fn settle(&mut self, now: BootNs) {
        self.is_touched = false;
        self.settled = self.now.amounts();
        for &kind in self.kinds {
            if let Some(bytes) = self.settled.get(kind) {
                High::raise(&mut self.highest[kind], bytes, now);
            }
        }
    }
}

impl Course {
    /// How many rows it is of.
    pub(crate) fn change_count(&self) -> u32 {
        self.change_count
    }

    /// Until when there was a process.
    pub(crate) fn there_until(&self) -> BootNs {
        self.there_until
    }

    /// How one kind went.
    pub(crate) fn kind(&self, kind: Kind) -> &KindCourse {
        &self.kinds[kind]
    }

    fn hold(
        &mut self,
        first: BootNs,
        (from, time): (BootNs, BootNs),
        held: &Amounts,
        is_there: bool,
    ) {
        let to = self.until.map_or(time, |until| until.min(time));
        let seconds = (to - from).as_secs_f64().max(0.0);
        for &kind in Kind::ALL {
            let course = &mut self.kinds[kind];
            // Most sums never have a page of swap or of shared memory, and no curve of it.
            let Some(bytes) = held
                .get(kind)
                .filter(|bytes| bytes.0 > 0 || course.curve.is_some())
            else {
                continue;
            };
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

impl KindCourse {
    /// What it comes to over so many seconds; `None` when it was never known.
    pub(crate) fn mean(&self, seconds: f64) -> Option<Bytes> {
        let mean = Bytes((self.byte_seconds / seconds) as i64);
        (self.is_known && seconds > 0.0).then_some(mean)
    }

    /// Whether it was ever known of a process.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known
    }

    /// Since the first process came; `None` for what was never more than nothing.
    pub(crate) fn curve(&self) -> Option<&Series> {
        self.curve.as_deref()
    }
}

/// A place among the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneId(u32);

/// Many sums, of which few change at a time.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    list: Vec<Lane>,
    touched: Vec<LaneId>,
    gauge_steps: usize,
    has_too_many_steps: bool,
}

impl Lanes {
    /// Adds a sum.
    pub(crate) fn add(&mut self, lane: Lane) -> LaneId {
        self.list.push(lane);
        LaneId(self.list.len() as u32 - 1)
    }

    /// One of them.
    pub(crate) fn get(&self, lane: LaneId) -> &Lane {
        &self.list[lane.0 as usize]
    }

    /// What was noted at its instants; `None` where there was nothing to note.
    pub(crate) fn take_gauge(&mut self, lane: LaneId) -> Option<Gauge<Amounts>> {
        let lane = &mut self.list[lane.0 as usize];
        lane.gauge.take().filter(|_| lane.first.is_some())
    }

    /// Whether there was so much to note at instants that nothing was kept of it.
    pub(crate) fn has_too_many_steps(&self) -> bool {
        self.has_too_many_steps
    }

    /// A process of a sum held `before` and holds `after` from `time` on; `None` when it is not
    /// there.
    pub(crate) fn change(
        &mut self,
        place: LaneId,
        before: Option<&Amounts>,
        after: Option<&Amounts>,
        time: BootNs,
    ) {
        let lane = &mut self.list[place.0 as usize];
        if !lane.is_touched {
            lane.is_touched = true;
            self.touched.push(place);
            self.hold_until(place, time);
        }
        self.list[place.0 as usize].change(before, after, time);
    }

    fn hold_until(&mut self, place: LaneId, time: BootNs) {
        let lane = &mut self.list[place.0 as usize];
        let steps = |lane: &Lane| lane.gauge.as_ref().map_or(0, Gauge::step_count);
        let before = steps(lane);
        lane.hold_until(time);
        self.gauge_steps += steps(lane) - before;
        if self.gauge_steps > GAUGE_STEPS_MAX {
            self.has_too_many_steps = true;
            self.gauge_steps = 0;
            for lane in &mut self.list {
                lane.gauge = None;
            }
        }
    }

    /// All rows of one time are in.
    pub(crate) fn settle(&mut self, now: BootNs) {
        for lane in self.touched.drain(..) {
            self.list[lane.0 as usize].settle(now);
        }
    }

    /// The recording is over.
    pub(crate) fn finish(&mut self, end: BootNs) {
        for place in 0..self.list.len() {
            self.hold_until(LaneId(place as u32), end);
            let lane = &mut self.list[place];
            if let Some(gauge) = &mut lane.gauge {
                gauge.hold_to_the_end(end, lane.settled);
            }
        }
    }
}
