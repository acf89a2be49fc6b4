//! Many step functions, thinned to few instants that are common to all, so that they add up at
//! each, and so that no extreme of any of them is lost.
//!
//! Time is cut into stretches. Of each the first and the last instant are kept, those at which a
//! function was lowest or highest, where that can be seen, and those at which it first became unknown
//! and known. Where more is kept than may be, neighbouring stretches become one: long ones far from what people look at (given instants, and
//! the highest of the first function), and short ones near it.

use crate::model::{BootNs, Bytes, DurationNs};

/// So many values are kept at most, but for the newest stretch.
const VALUES_MAX: usize = 200_000;
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
/// An extreme that differs by less than this part of the highest ever is not seen.
const VISIBLE_PART: i64 = 256;

/// Stands for "unknown" among values.
const UNKNOWN: i64 = i64::MIN;

/// Functions at instants that are common to all.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Thin {
    /// In order.
    pub(crate) instants: Vec<BootNs>,
    /// By function: from which instant on (its place) it is what; `None` for unknown. Before the
    /// first it is 0, or unknown, as it was made.
    pub(crate) steps: Vec<Vec<(u32, Option<Bytes>)>>,
}

/// Takes functions forward in time.
#[derive(Debug)]
pub(crate) struct Thinned {
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
}

/// The changes of a stretch.
#[derive(Debug, Default)]
struct Stretch {
    instants: Vec<BootNs>,
    changes: Vec<Change>,
}

/// A function is another from an instant of its stretch on.
#[derive(Clone, Copy, Debug)]
struct Change {
    instant: u32,
    function: u32,
    value: i64,
}

/// What is kept of finished stretches, one after the other.
#[derive(Debug, Default)]
struct Kept {
    /// Where the instants of each stretch end.
    stretches: Vec<usize>,
    /// An instant, and where its values end.
    instants: Vec<(BootNs, usize)>,
    values: Vec<(u32, i64)>,
}

impl Thinned {
    /// So many functions over a recording that is about so long. Near `foci` more is kept; the
    /// first function's highest is one more of them.
    pub(crate) fn new(count: usize, span: DurationNs, mut foci: Vec<BootNs>) -> Self {
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
        }
    }

    /// The same of functions of which nothing is known before they are first set.
    pub(crate) fn of_unknown(count: usize, span: DurationNs, foci: Vec<BootNs>) -> Self {
        Self {
            now: vec![UNKNOWN; count],
            before_all: UNKNOWN,
            picker: Picker::new(count, UNKNOWN),
            ..Self::new(count, span, foci)
        }
    }

    /// A function has another value from an instant on: once for each instant, and forward in
    /// time.
    #[inline]
    pub(crate) fn set(&mut self, at: BootNs, function: usize, value: Option<Bytes>) {
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
    pub(crate) fn finish(mut self) -> Thin {
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
        if self.kept.values.len() <= VALUES_MAX {
            return;
        }
        while self.kept.values.len() > VALUES_MAX / 4 * 3 && self.kept.stretches.len() > 1 {
            self.join();
            if self.kept.values.len() <= VALUES_MAX / 4 * 3 {
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

/// Chooses the instants of a stretch.
#[derive(Debug)]
struct Picker {
    functions: Vec<Function>,
    /// Those that change in the stretch.
    touched: Vec<u32>,
    /// By place among the instants.
    picks: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
struct Function {
    now: i64,
    /// At the end of the stretch before.
    before: i64,
    /// At the last instant that was kept.
    kept: i64,
    /// At the first instant of the stretch.
    first: i64,
    lowest: Extreme,
    highest: Extreme,
    /// The first change from known to unknown; [`NONE`] where there is none.
    lost: u32,
    /// The first from unknown to known.
    found: u32,
    is_touched: bool,
}

/// The lowest or the highest of a stretch.
#[derive(Clone, Copy, Debug)]
struct Extreme {
    value: i64,
    /// By which change it came to be; [`NONE`] where it was so before.
    change: u32,
    /// The next change of its function; [`NONE`] where there is none.
    end: u32,
}

const NONE: u32 = u32::MAX;

impl Default for Extreme {
    fn default() -> Self {
        Self::by(0, NONE)
    }
}

impl Extreme {
    fn by(value: i64, change: u32) -> Self {
        Self {
            value,
            change,
            end: NONE,
        }
    }
}

impl Picker {
    fn new(count: usize, before_all: i64) -> Self {
        let function = Function {
            now: before_all,
            kept: before_all,
            ..Function::default()
        };
        Self {
            functions: vec![function; count],
            touched: Vec::new(),
            picks: Vec::new(),
        }
    }

    /// Keeps what is to be kept of a stretch. `highest` is the highest of each function so far.
    fn pick(&mut self, stretch: &Stretch, highest: &mut [(i64, BootNs)], kept: &mut Kept) {
        let Some(last) = stretch.instants.len().checked_sub(1) else {
            return;
        };
        self.follow(stretch);
        self.picks.extend([0, last as u32]);
        for &place in &self.touched {
            let function = &self.functions[place as usize];
            let own = function.highest;
            let at = stretch.instant_of(own.change);
            let (ever, ever_at) = &mut highest[place as usize];
            if own.value > *ever {
                (*ever, *ever_at) = (own.value, stretch.instants[at as usize]);
            }
            // The highest of all is told to the byte, and when it was.
            if own.value == *ever && stretch.instants[at as usize] == *ever_at {
                self.picks.push(at);
            }
            function.choose(stretch, *ever / VISIBLE_PART, &mut self.picks);
        }
        for &place in &self.touched {
            let function = &mut self.functions[place as usize];
            function.now = function.before;
        }
        self.picks.sort_unstable();
        self.picks.dedup();
        self.keep(stretch, kept);
        self.picks.clear();
        for place in self.touched.drain(..) {
            self.functions[place as usize].is_touched = false;
        }
    }

    /// Follows each function through a stretch.
    fn follow(&mut self, stretch: &Stretch) {
        for (change, place) in stretch.changes.iter().zip(0_u32..) {
            let function = &mut self.functions[change.function as usize];
            let value = change.value;
            if !function.is_touched {
                function.is_touched = true;
                self.touched.push(change.function);
                function.before = function.now;
                let first = match change.instant {
                    0 => Extreme::by(value, place),
                    _ => Extreme {
                        end: place,
                        ..Extreme::by(function.now, NONE)
                    },
                };
                function.first = first.value;
                (function.lowest, function.highest) = (first, first);
                (function.lost, function.found) = (NONE, NONE);
            } else {
                for extreme in [&mut function.lowest, &mut function.highest] {
                    if extreme.end == NONE {
                        extreme.end = place;
                    }
                }
            }
            let turn = match (function.now, value) {
                (UNKNOWN, UNKNOWN) => None,
                (_, UNKNOWN) => Some(&mut function.lost),
                (UNKNOWN, _) => Some(&mut function.found),
                _ => None,
            };
            if let Some(turn) = turn.filter(|turn| **turn == NONE) {
                *turn = place;
            }
            function.now = value;
            if value > function.highest.value {
                function.highest = Extreme::by(value, place);
            }
            let lowest = function.lowest.value;
            if value != UNKNOWN && (value < lowest || lowest == UNKNOWN) {
                function.lowest = Extreme::by(value, place);
            }
        }
    }

    /// What every function is at the instants that were chosen.
    fn keep(&mut self, stretch: &Stretch, kept: &mut Kept) {
        let mut changes = stretch.changes.iter().peekable();
        for &pick in &self.picks {
            while let Some(change) = changes.next_if(|change| change.instant <= pick) {
                self.functions[change.function as usize].now = change.value;
            }
            let before = kept.values.len();
            for &place in &self.touched {
                let function = &mut self.functions[place as usize];
                if function.kept != function.now {
                    function.kept = function.now;
                    kept.values.push((place, function.now));
                }
            }
            if kept.values.len() > before {
                let at = stretch.instants[pick as usize];
                kept.instants.push((at, kept.values.len()));
            }
        }
        if kept.stretches.last() != Some(&kept.instants.len()) {
            kept.stretches.push(kept.instants.len());
        }
    }
}

impl Function {
    /// Picks its lowest and its highest where first and last do not show them, and where they end:
    /// a spike is not to look like a step. Where it becomes unknown, and known again, is picked too.
    fn choose(&self, stretch: &Stretch, visible: i64, picks: &mut Vec<u32>) {
        let differs = |a: i64, b: i64| a.saturating_sub(b).saturating_abs() > visible;
        let turns = [self.lost, self.found].into_iter();
        let turns = turns.filter_map(|turn| stretch.changes.get(turn as usize));
        picks.extend(turns.map(|change| change.instant));
        for extreme in [self.lowest, self.highest] {
            let mut shown = [self.first, self.now].into_iter();
            if shown.all(|shown| differs(shown, extreme.value)) {
                picks.push(stretch.instant_of(extreme.change));
            }
            let end = stretch.changes.get(extreme.end as usize);
            let end = end.filter(|end| differs(end.value, extreme.value));
            picks.extend(end.map(|end| end.instant));
        }
    }
}

impl Stretch {
    /// The place of the instant of a change, or of the first.
    fn instant_of(&self, change: u32) -> u32 {
        let change = self.changes.get(change as usize);
        change.map_or(0, |change| change.instant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: i64 = 1_000_000_000;

    /// What a function is at an instant, by what is kept.
    fn at(thin: &Thin, function: usize, instant: i64) -> Option<i64> {
        let until = thin.instants.partition_point(|at| at.0 <= instant) as u32;
        let steps = &thin.steps[function];
        let past = steps.partition_point(|(place, _)| *place < until);
        let last = past.checked_sub(1).map(|last| steps[last].1);
        last.map_or(Some(0), |value| value.map(|bytes| bytes.0))
    }

    fn highest(thin: &Thin, function: usize) -> Option<i64> {
        let values = thin.steps[function].iter();
        values.filter_map(|(_, value)| Some((*value)?.0)).max()
    }

    fn value_count(thin: &Thin) -> usize {
        thin.steps.iter().map(Vec::len).sum()
    }

    #[test]
    fn a_spike_of_five_milliseconds_in_ten_hours_is_there_whoever_s_it_is() {
        const FUNCTIONS: usize = 40;
        let mut thinned = Thinned::new(FUNCTIONS, DurationNs(36_000 * S), Vec::new());
        // All move all the time, each has its own spike, and one is larger than all of them.
        for second in 0..36_000 {
            for function in 0..FUNCTIONS as i64 {
                let value = match function {
                    0 => 1 << 40,
                    _ => (function << 20) + (second * 31 + function * 17) % 4_096,
                };
                let at = BootNs(second * S + function * 1_000);
                thinned.set(at, function as usize, Some(Bytes(value)));
            }
            let spiked = (second % 900 == 450).then_some((second / 900) as usize);
            if let Some(function) = spiked.filter(|function| *function > 0) {
                let at = second * S + 500_000_000;
                let before = (function as i64) << 20;
                thinned.set(BootNs(at), function, Some(Bytes(before * 3 + 7)));
                thinned.set(BootNs(at + 5_000_000), function, Some(Bytes(before)));
            }
        }
        let thin = thinned.finish();
        assert!(
            value_count(&thin) <= 2 * VALUES_MAX,
            "{}",
            value_count(&thin)
        );
        for function in 1..FUNCTIONS {
            let spike = (function as i64 * 900 + 450) * S + 500_000_000;
            let height = (3 * function as i64) << 20 | 7;
            assert_eq!(highest(&thin, function), Some(height), "{function}");
            assert_eq!(at(&thin, function, spike), Some(height), "{function}");
            assert!(at(&thin, function, spike + 5_000_000) < Some(height / 2));
        }
    }

    #[test]
    fn near_what_people_look_at_more_is_kept() {
        let focus = 30_000 * S;
        let mut thinned = Thinned::new(20, DurationNs(36_000 * S), vec![BootNs(focus)]);
        for tick in 0..72_000 {
            for function in 0..20 {
                let value = (tick * 7_919 + function * 104_729) % 1_000_000;
                let at = BootNs(tick * S / 2);
                thinned.set(at, function as usize, Some(Bytes(value)));
            }
        }
        let thin = thinned.finish();
        let around = |at: i64| {
            let instants = thin.instants.iter();
            instants.filter(|one| (one.0 - at).abs() < 5 * S).count()
        };
        assert!(around(focus) > 12, "{} of 19", around(focus));
        assert!(around(focus / 2) < 9, "{}", around(focus / 2));
    }

    #[test]
    fn what_is_unknown_is_told_where_it_begins_and_ends() {
        let mut thinned = Thinned::new(1, DurationNs(10), Vec::new());
        for (at, value) in [(1, Some(5)), (2, None), (3, Some(6))] {
            thinned.set(BootNs(at), 0, value.map(Bytes));
        }
        let thin = thinned.finish();
        assert_eq!(at(&thin, 0, 0), Some(0));
        assert_eq!(at(&thin, 0, 1), Some(5));
        assert_eq!(at(&thin, 0, 2), None);
        assert_eq!(at(&thin, 0, 3), Some(6));
    }

    #[test]
    fn near_the_peak_detail_stays_when_many_functions_jitter_for_hours() {
        const FUNCTIONS: i64 = 80;
        let peak = 18_000;
        let mut thinned = Thinned::new(FUNCTIONS as usize, DurationNs(36_000 * S), Vec::new());
        for second in 0..36_000 {
            for function in 0..FUNCTIONS {
                let value = (second * 7_919 + function * 104_729) % 1_000_000;
                let is_peak = function == 0 && second == peak;
                let value = value + i64::from(is_peak) * 10_000_000;
                thinned.set(BootNs(second * S), function as usize, Some(Bytes(value)));
            }
        }
        let thin = thinned.finish();
        let around = |at: i64| {
            let instants = thin.instants.iter();
            instants
                .filter(|one| (one.0 - at * S).abs() <= 300 * S)
                .count()
        };
        let (near, far) = (around(peak), around(peak / 2));
        assert!(near > 4 * far && near > 40, "{near} near, {far} far");
    }

    #[test]
    fn what_is_not_known_at_first_begins_with_what_is_first_known_of_it() {
        let mut thinned = Thinned::of_unknown(3, DurationNs(10), Vec::new());
        thinned.set(BootNs(5), 0, Some(Bytes(0)));
        thinned.set(BootNs(5), 1, None);
        thinned.set(BootNs(6), 0, Some(Bytes(7)));
        thinned.join();
        let thin = thinned.finish();
        assert_eq!(thin.instants, [BootNs(5), BootNs(6)]);
        assert_eq!(thin.steps[0], [(0, Some(Bytes(0))), (1, Some(Bytes(7)))]);
        assert_eq!(thin.steps[1..], [vec![], vec![]]);
    }

    #[test]
    fn absurd_times_and_amounts_cost_no_more_than_others() {
        let mut thinned = Thinned::new(2, DurationNs(i64::MAX), vec![BootNs(i64::MIN)]);
        for (place, at) in [i64::MIN, -1, 0, i64::MAX - 1, i64::MAX]
            .into_iter()
            .enumerate()
        {
            let value = if place % 2 == 0 { i64::MAX } else { -i64::MAX };
            thinned.set(BootNs(at), 0, Some(Bytes(value)));
            thinned.set(BootNs(at), 1, Some(Bytes(place as i64)));
        }
        let thin = thinned.finish();
        assert_eq!(highest(&thin, 0), Some(i64::MAX));
        assert_eq!(at(&thin, 1, i64::MAX), Some(4));
    }

    proptest! {
        #[test]
        fn at_every_instant_that_is_kept_all_are_what_they_were(
            steps in prop::collection::vec(
                (0_i64..400_000_000, 0_usize..3, prop::option::weighted(0.8, 0_i64..50)),
                1..120,
            ),
            focus in 0_i64..10_000_000_000,
        ) {
            let span = DurationNs(3 * S);
            let mut thinned = Thinned::new(3, span, vec![BootNs(focus)]);
            let mut at_ns = 0;
            let mut changes = Vec::new();
            for (after, function, value) in steps {
                at_ns += after + 1;
                changes.push((at_ns, function, value));
                thinned.set(BootNs(at_ns), function, value.map(Bytes));
                if value.is_some_and(|value| value % 8 == 0) {
                    // As when there is no more room.
                    thinned.join();
                }
            }
            let thin = thinned.finish();
            let was = |function: usize, instant: i64| {
                let mut until = changes.iter().rev();
                until
                    .find(|change| change.1 == function && change.0 <= instant)
                    .map_or(Some(0), |change| change.2)
            };
            for instant in &thin.instants {
                for function in 0..3 {
                    prop_assert_eq!(at(&thin, function, instant.0), was(function, instant.0));
                }
            }
            for function in 0..3 {
                let own = changes.iter().filter(|change| change.1 == function);
                let highest_ever = own.clone().filter_map(|change| change.2).max().unwrap_or(0);
                let is_lost = own.clone().any(|change| change.2.is_none());
                let is_told = thin.steps[function].iter().any(|(_, value)| value.is_none());
                prop_assert_eq!(is_told, is_lost);
                prop_assert_eq!(highest(&thin, function).unwrap_or(0), highest_ever);
                prop_assert_eq!(at(&thin, function, at_ns), was(function, at_ns));
            }
        }
    }
}
