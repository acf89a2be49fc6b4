//! Many step functions at instants that are common to all, so that they add up at each.
//!
//! Time is cut into stretches of one length. Of each the first instant is kept, the last, and
//! those at which a height of all together was lowest and highest: what lies between is left out,
//! a peak is not. When time runs past the last stretch, or more is kept than may be, two stretches
//! become one.

use super::Latest;
use memtrace_model::BootNs;
use std::collections::BTreeMap;

/// So many stretches there are at most.
const STRETCHES: i64 = 512;

/// So many values are kept at most.
const VALUES_MAX: usize = 250_000;

/// The length of a stretch at the start.
const FIRST_LENGTH_NS: i64 = 1_000_000;

/// What all together are at an instant: what is compared for the lowest and the highest, and
/// another of which the highest is kept.
pub type Heights = [i64; 2];

/// An instant, and what changed since the one before it, by step function.
pub type Kept<V> = (BootNs, BTreeMap<usize, V>);

/// Many step functions; each is the default at first.
#[derive(Debug)]
pub struct Stack<V> {
    /// The first instant of all; `None` before it.
    start: Option<BootNs>,
    length_ns: i64,
    functions: Vec<Function<V>>,
    /// Those that changed in this stretch.
    changed: Vec<usize>,
    /// The instants of this stretch.
    picked: Picks,
    kept: Vec<(Heights, Kept<V>)>,
    value_count: usize,
}

#[derive(Debug, Default)]
struct Function<V> {
    /// What it was when each of [`Picks`] was picked.
    at: [Latest<V>; PICKS],
    is_changed: bool,
    /// What it was at the last instant that is kept.
    kept: V,
}

const PICKS: usize = 5;

/// The first instant of a stretch, the lowest, the highest, the highest by the other height, and
/// the last: when, how high, and the number of the mark in [`Latest`].
#[derive(Clone, Copy, Debug, Default)]
struct Picks([Option<(BootNs, Heights)>; PICKS], [u32; PICKS]);

impl Picks {
    /// Whether an instant takes the place of what was picked.
    fn is_better(place: usize, [height, other]: Heights, than: Heights) -> bool {
        match place {
            0 => false,
            1 => height < than[0],
            2 => height > than[0],
            3 => other > than[1],
            _ => true,
        }
    }

    fn take(&mut self, at: BootNs, heights: Heights) {
        for (place, (picked, mark)) in self.0.iter_mut().zip(&mut self.1).enumerate() {
            if picked.is_none_or(|(_, than)| Self::is_better(place, heights, than)) {
                *picked = Some((at, heights));
                *mark += 1;
            }
        }
    }
}

impl<V: Copy + Default + PartialEq> Stack<V> {
    /// So many functions.
    pub fn new(count: usize) -> Self {
        Self {
            start: None,
            length_ns: FIRST_LENGTH_NS,
            functions: (0..count).map(|_| Function::default()).collect(),
            changed: Vec::new(),
            picked: Picks::default(),
            kept: Vec::new(),
            value_count: 0,
        }
    }

    /// A function has another value from this instant on.
    pub fn set(&mut self, at: BootNs, function: usize, value: V) {
        self.move_to(at);
        let Some(function_at) = self.functions.get_mut(function) else {
            return;
        };
        if !std::mem::replace(&mut function_at.is_changed, true) {
            self.changed.push(function);
        }
        for (latest, mark) in function_at.at.iter_mut().zip(self.picked.1) {
            latest.set(value, mark);
        }
    }

    /// All that changes at an instant is in.
    pub fn note(&mut self, at: BootNs, heights: Heights) {
        self.move_to(at);
        self.picked.take(at, heights);
    }

    /// The instants that are kept, in order.
    pub fn finish(mut self) -> Vec<Kept<V>> {
        self.end_stretch();
        self.kept.into_iter().map(|(_, kept)| kept).collect()
    }

    fn stretch_of(&self, at: BootNs) -> i64 {
        (at - self.start.unwrap_or(at)).0 / self.length_ns
    }

    fn move_to(&mut self, at: BootNs) {
        self.start.get_or_insert(at);
        let Some((first, _)) = self.picked.0[0] else {
            return;
        };
        if self.stretch_of(at) == self.stretch_of(first) {
            return;
        }
        self.end_stretch();
        let has_too_many =
            |stack: &Self| stack.value_count > VALUES_MAX && stack.kept.len() > 2 * PICKS;
        while self.stretch_of(at) >= STRETCHES || has_too_many(self) {
            self.widen();
        }
    }

    /// Keeps what was picked of this stretch.
    fn end_stretch(&mut self) {
        let mut order: Vec<usize> = (0..PICKS).collect();
        order.sort_by_key(|&place| self.picked.0[place].map(|(at, _)| at));
        for place in order {
            let Some((at, heights)) = self.picked.0[place].take() else {
                continue;
            };
            if self.kept.last().is_some_and(|(_, (last, _))| *last == at) {
                continue;
            }
            let mark = self.picked.1[place];
            let mut values = BTreeMap::new();
            for &function in &self.changed {
                let value = *self.functions[function].at[place].at(mark);
                if std::mem::replace(&mut self.functions[function].kept, value) != value {
                    values.insert(function, value);
                }
            }
            self.value_count += values.len();
            self.kept.push((heights, (at, values)));
        }
        for function in self.changed.drain(..) {
            self.functions[function].is_changed = false;
        }
    }

    /// Two stretches become one.
    fn widen(&mut self) {
        self.length_ns *= 2;
        let mut kept = std::mem::take(&mut self.kept).into_iter().peekable();
        self.value_count = 0;
        while let Some((_, (first, _))) = kept.peek() {
            let stretch = self.stretch_of(*first);
            let mut members = Vec::new();
            while let Some(next) = kept.next_if(|(_, (at, _))| self.stretch_of(*at) == stretch) {
                members.push(next);
            }
            let mut picks = Picks::default();
            for (heights, (at, _)) in &members {
                picks.take(*at, *heights);
            }
            let is_picked = |at: BootNs| picks.0.iter().flatten().any(|picked| picked.0 == at);
            let mut values = BTreeMap::new();
            for (heights, (at, changed)) in members {
                values.extend(changed);
                if is_picked(at) {
                    let values = std::mem::take(&mut values);
                    self.value_count += values.len();
                    self.kept.push((heights, (at, values)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What each function is at an instant, by what is kept.
    fn at(kept: &[Kept<i64>], function: usize, instant: i64) -> i64 {
        let until = kept.iter().take_while(|(at, _)| at.0 <= instant);
        let values = until.filter_map(|(_, values)| values.get(&function));
        values.last().copied().unwrap_or_default()
    }

    fn stacked(changes: &[(i64, usize, i64)], count: usize) -> Vec<Kept<i64>> {
        let mut stack = Stack::new(count);
        let mut now = vec![0; count];
        for (place, &(at, function, value)) in changes.iter().enumerate() {
            stack.set(BootNs(at), function, value);
            now[function] = value;
            if changes.get(place + 1).is_none_or(|next| next.0 != at) {
                stack.note(BootNs(at), [now.iter().sum(), now[0]]);
            }
        }
        stack.finish()
    }

    #[test]
    fn a_day_fits_and_the_peak_keeps_its_height_its_time_and_its_parts() {
        const S: i64 = 1_000_000_000;
        let mut changes = Vec::new();
        for second in 0..86_400 {
            let value = if second == 40_000 { 999 } else { second % 10 };
            changes.push((second * S, (second % 2) as usize, value));
        }
        let kept = stacked(&changes, 2);
        assert!(kept.len() <= 5 * STRETCHES as usize, "{}", kept.len());
        let peak = 40_000 * S;
        assert!(kept.iter().any(|(at, _)| at.0 == peak));
        assert_eq!((at(&kept, 0, peak), at(&kept, 1, peak)), (999, 9));
    }

    #[test]
    fn of_more_functions_than_have_room_fewer_instants_are_kept() {
        let count = 2_000;
        let mut changes = Vec::new();
        for round in 0..400 {
            for function in 0..count {
                let at = round * 2_000_000;
                changes.push((at, function, round + function as i64));
            }
        }
        let kept = stacked(&changes, count);
        let values: usize = kept.iter().map(|(_, values)| values.len()).sum();
        assert!(values <= VALUES_MAX + 5 * count, "{values}");
        let last = 399 * 2_000_000;
        assert_eq!(at(&kept, 7, last), 399 + 7);
    }

    proptest! {
        #[test]
        fn at_every_instant_that_is_kept_all_are_what_they_were(
            steps in prop::collection::vec((0_i64..400_000_000, 0_usize..3, 0_i64..50), 1..200),
        ) {
            let mut at_ns = 0;
            let changes: Vec<(i64, usize, i64)> = steps
                .into_iter()
                .map(|(after, function, value)| {
                    at_ns += after;
                    (at_ns, function, value)
                })
                .collect();
            let kept = stacked(&changes, 3);
            let was = |function: usize, instant: i64| {
                let mut until = changes.iter().rev();
                until
                    .find(|change| change.1 == function && change.0 <= instant)
                    .map_or(0, |change| change.2)
            };
            for (instant, _) in &kept {
                for function in 0..3 {
                    prop_assert_eq!(at(&kept, function, instant.0), was(function, instant.0));
                }
            }
            let sum = |instant: i64| (0..3).map(|function| was(function, instant)).sum::<i64>();
            let highest = changes.iter().map(|change| sum(change.0)).max();
            let kept_highest = kept.iter().map(|(at, _)| sum(at.0)).max();
            prop_assert_eq!(kept_highest, highest);
            prop_assert_eq!(kept.last().map(|(at, _)| at.0), changes.last().map(|last| last.0));
        }
    }
}
