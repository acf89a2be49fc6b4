//! Many step functions, thinned to few instants that are common to all, so that they add up at
//! each, and so that no extreme of any of them is lost.
//!
//! Time is cut into stretches, of each of which the [`picker`] keeps some instants. Where more is
//! kept than there is room for, neighbouring stretches become one: long ones far from what people
//! look at (given instants, and the highest of the first function), and short ones near it.

mod picker;
mod stretch;
#[cfg(test)]
mod tests;

use memtrace_model::{BootNs, Bytes, DurationNs};
use picker::Picker;
use stretch::{Change, Kept, Stretch};

/// So many changes a stretch can have.
const CHANGES_MAX: usize = 1 << 17;
/// Into so many stretches the recording is cut at first.
const STRETCHES: i64 = 1_024;
/// No stretch has to be shorter.
const SHORTEST_NS: i64 = 1_000_000;
/// So many times as short as others a stretch is next to what people look at.
const FINEST: i64 = 1_024;
/// So many times as short a new stretch is: the highest is not known before it is there.
const NEW: i64 = 16;
/// A stretch is no longer than this part of its distance from what people look at.
const PART_OF_DISTANCE: i64 = 4;

/// Stands for "unknown" among values.
const UNKNOWN: i64 = i64::MIN;

/// Functions at instants that are common to all.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Thin {
    /// In the order of time.
    pub instants: Vec<BootNs>,
    /// By function: from which instant on (its place) it is what; `None` for unknown. Before the
    /// first it is 0, or unknown, as it was made.
    pub steps: Vec<Vec<(u32, Option<Bytes>)>>,
}

/// Takes functions forward in time.
#[derive(Debug)]
pub struct Thinned {
    now: Vec<i64>,
    /// What each is before it is first set.
    before_all: i64,
    /// The highest of each so far, and when it was first so high.
    highest: Vec<(i64, BootNs)>,
    picker: Picker,
    open: Stretch,
    /// Until when the open stretch goes on.
    open_until: BootNs,
    kept: Kept,
    /// What people look at, in order.
    foci: Vec<BootNs>,
    span_ns: i64,
    /// How long a stretch may be where nobody looks.
    length_ns: i64,
    /// So many times as long as at first it may be for its distance from what people look at.
    reach: i64,
    /// So many values are kept at most, but for the newest stretch.
    room: usize,
}

impl Thinned {
    /// So many functions over a recording that is about so long, of which about `room` values are
    /// kept. Near `foci` more is kept; the first function's highest is one more of them.
    pub fn new(count: usize, room: usize, span: DurationNs, mut foci: Vec<BootNs>) -> Self {
        foci.sort_unstable();
        Self {
            now: vec![0; count],
            before_all: 0,
            highest: vec![(0, BootNs(0)); count],
            picker: Picker::new(count, 0),
            open: Stretch::default(),
            open_until: BootNs(i64::MIN),
            kept: Kept::default(),
            foci,
            span_ns: span.0,
            length_ns: (span.0 / STRETCHES).max(SHORTEST_NS),
            reach: 1,
            room,
        }
    }

    /// The same of functions of which nothing is known before they are first set.
    pub fn of_unknown(count: usize, room: usize, span: DurationNs, foci: Vec<BootNs>) -> Self {
        Self {
            now: vec![UNKNOWN; count],
            before_all: UNKNOWN,
            picker: Picker::new(count, UNKNOWN),
            ..Self::new(count, room, span, foci)
        }
    }

    /// A function has another value from an instant on: once for each instant, and forward in
    /// time.
    #[inline]
    pub fn set(&mut self, at: BootNs, function: usize, value: Option<Bytes>) {
        let value = value.map_or(UNKNOWN, |value| value.0);
        if self.now[function] == value {
            return;
        }
        self.now[function] = value;
        if self.open.instants.last() != Some(&at) {
            self.begin_instant(at);
        }
        self.open.changes.push(Change {
            instant: (self.open.instants.len() - 1) as u32,
            function: function as u32,
            value,
        });
    }

    /// All there is.
    pub fn finish(mut self) -> Thin {
        self.end_stretch();
        let mut thin = Thin {
            instants: Vec::new(),
            steps: vec![Vec::new(); self.now.len()],
        };
        let mut values = self.kept.values.iter();
        let mut taken = 0;
        for &(at, end) in &self.kept.instants {
            let place = thin.instants.len() as u32;
            thin.instants.push(at);
            for &(function, value) in values.by_ref().take(end - taken) {
                let value = (value != UNKNOWN).then_some(Bytes(value));
                thin.steps[function as usize].push((place, value));
            }
            taken = end;
        }
        thin
    }

    fn begin_instant(&mut self, at: BootNs) {
        if at > self.open_until || self.open.changes.len() >= CHANGES_MAX {
            self.end_stretch();
            self.make_room();
            let longest = self.longest((at, at), NEW, None);
            self.open_until = at + DurationNs(longest);
        }
        self.open.instants.push(at);
    }

    fn end_stretch(&mut self) {
        self.picker
            .pick(&self.open, &mut self.highest, &mut self.kept);
        self.open.instants.clear();
        self.open.changes.clear();
    }

    /// Joins stretches until no more is kept than may be.
    fn make_room(&mut self) {
        if self.kept.values.len() <= self.room {
            return;
        }
        let enough = self.room / 4 * 3;
        while self.kept.values.len() > enough && self.kept.stretches.len() > 1 {
            self.join();
            if self.kept.values.len() <= enough {
                break;
            }
            // What is near what people look at is the last to become coarser.
            match self.length_ns < self.span_ns {
                true => self.length_ns = self.length_ns.saturating_mul(2),
                false => self.reach = self.reach.saturating_mul(2),
            }
        }
    }

    fn join(&mut self) {
        let before = std::mem::take(&mut self.kept);
        let mut picker = Picker::new(self.now.len(), self.before_all);
        let mut joined = Stretch::default();
        let (mut first_instant, mut first_value) = (0, 0);
        let peak = self.highest.first().map(|(_, at)| *at);
        for &end in &before.stretches {
            let instants = &before.instants[first_instant..end];
            first_instant = end;
            let Some((last, _)) = instants.last() else {
                continue;
            };
            if let Some(&first) = joined.instants.first()
                && (*last - first).0 > self.longest((first, *last), 1, peak)
            {
                picker.pick(&joined, &mut self.highest, &mut self.kept);
                joined.instants.clear();
                joined.changes.clear();
            }
            for &(at, end) in instants {
                let instant = joined.instants.len() as u32;
                joined.instants.push(at);
                let values = before.values[first_value..end].iter();
                joined
                    .changes
                    .extend(values.map(|&(function, value)| Change {
                        instant,
                        function,
                        value,
                    }));
                first_value = end;
            }
        }
        picker.pick(&joined, &mut self.highest, &mut self.kept);
        self.picker = picker;
    }

    /// How long a stretch from one instant to another may be: 1 / `part` of the full length where
    /// nobody looks at it.
    fn longest(&self, (first, last): (BootNs, BootNs), part: i64, peak: Option<BootNs>) -> i64 {
        let after = self.foci.partition_point(|focus| *focus < first);
        let foci = self.foci.iter().skip(after.saturating_sub(1)).take(2);
        let distance = |focus: BootNs| (first - focus).0.max((focus - last).0).max(0);
        let nearest = foci.copied().chain(peak).map(distance).min();
        let longest = (self.length_ns / part).max(1);
        let shortest = (self.length_ns / FINEST).clamp(1, longest);
        let length = nearest.map_or(longest, |nearest| {
            nearest.saturating_mul(self.reach) / PART_OF_DISTANCE
        });
        length.clamp(shortest, longest)
    }
}
