//! Chooses the instants of a stretch that are kept: its first and its last, those at which a
//! function was lowest or highest, where that can be seen, and those at which it first became
//! unknown and known.

use super::UNKNOWN;
use super::stretch::{Kept, Stretch};
use memtrace_model::BootNs;

/// An extreme that differs by less than this part of the highest ever is not seen.
const VISIBLE_PART: i64 = 256;

/// Chooses the instants of a stretch.
#[derive(Debug)]
pub(super) struct Picker {
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
    pub(super) fn new(count: usize, before_all: i64) -> Self {
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
    pub(super) fn pick(
        &mut self,
        stretch: &Stretch,
        highest: &mut [(i64, BootNs)],
        kept: &mut Kept,
    ) {
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
            // The highest of all is reported to the byte, and when it was.
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
