//! Time by name: how often each name was there, and for how long.

use memtrace_model::DurationNs;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::HashMap;

/// So many names are distinguished; what comes later is counted as others.
const NAMES_MAX: usize = 10_000;
/// What all of those are called.
const OTHER: &str = "(one of other names)";

/// What a name came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NameTotal {
    pub name: String,
    /// How often it was there.
    pub count: u64,
    /// Its time in all.
    pub total_ns: DurationNs,
    /// The same without what it called on its thread; `None` where that is not known.
    pub self_ns: Option<DurationNs>,
}

/// The names that took most time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NameTotals {
    /// Each of them, what took most first.
    pub list: Vec<NameTotal>,
    /// How many names are not in the list.
    pub other_name_count: usize,
    /// Whether there were more names than are distinguished.
    pub has_more_names: bool,
    /// How often those were there.
    pub other_count: u64,
    /// Their time in all.
    pub other_total_ns: DurationNs,
}

/// Adds up while events come.
#[derive(Debug, Default)]
pub(super) struct Names {
    places: HashMap<Box<str>, u32>,
    totals: Vec<Total>,
    beyond: Total,
}

#[derive(Clone, Copy, Debug, Default)]
struct Total {
    count: u64,
    ns: i64,
}

impl Total {
    fn add(&mut self, count: u64, ns: i64) {
        self.count += count;
        self.ns = self.ns.saturating_add(ns);
    }
}

impl Names {
    /// Takes an event. Answers the place of its name; those that are not distinguished share the last.
    pub(super) fn take(&mut self, name: &str, ns: i64) -> u32 {
        let place = match self.places.get(name) {
            Some(&place) => place,
            None if self.totals.len() == NAMES_MAX => {
                self.beyond.add(1, ns);
                return NAMES_MAX as u32;
            }
            None => {
                let place = self.totals.len() as u32;
                self.places.insert(name.into(), place);
                self.totals.push(Total::default());
                place
            }
        };
        self.totals[place as usize].add(1, ns);
        place
    }

    /// The name of each place.
    pub(super) fn by_place(&self) -> Vec<&str> {
        let mut names = vec![OTHER; self.totals.len() + 1];
        for (name, &place) in &self.places {
            names[place as usize] = name;
        }
        names
    }

    /// Those that took most. `own` is the time of each without what it called, by place.
    pub(super) fn reported(self, top: usize, own: Option<&[i64]>) -> NameTotals {
        let mut order: Vec<(Box<str>, u32)> = self.places.into_iter().collect();
        let total = |place: u32| self.totals[place as usize];
        order.sort_unstable_by(|(a, of_a), (b, of_b)| {
            let key = |place: u32| Reverse(total(place).ns);
            key(*of_a).cmp(&key(*of_b)).then(a.cmp(b))
        });
        let rest = order.split_off(top.min(order.len()));
        let mut other = self.beyond;
        for (_, place) in &rest {
            let Total { count, ns } = total(*place);
            other.add(count, ns);
        }
        let list = order.into_iter().map(|(name, place)| NameTotal {
            name: name.into(),
            count: total(place).count,
            total_ns: DurationNs(total(place).ns),
            self_ns: own.map(|own| DurationNs(own[place as usize])),
        });
        NameTotals {
            list: list.collect(),
            other_name_count: rest.len(),
            has_more_names: self.beyond.count > 0,
            other_count: other.count,
            other_total_ns: DurationNs(other.ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_a_bound_are_counted_together() {
        let mut names = Names::default();
        for place in 0..NAMES_MAX + 5 {
            names.take(&format!("op {place}"), 10);
        }
        names.take("op 7", 90);
        let place = names.take("op of which there is no room", 0);
        let by_place = names.by_place();
        assert_eq!((by_place[7], by_place[place as usize]), ("op 7", OTHER));
        let text = names.reported(2, None);
        assert_eq!((&*text.list[0].name, text.list[0].count), ("op 7", 2));
        assert_eq!(text.list[0].total_ns, DurationNs(100));
        assert_eq!(text.other_name_count, NAMES_MAX - 2);
        assert_eq!(text.other_count, NAMES_MAX as u64 - 2 + 6);
        assert!(text.has_more_names);
        let all = text.list.iter().map(|one| one.total_ns.0).sum::<i64>();
        assert_eq!(
            all + text.other_total_ns.0,
            (NAMES_MAX as i64 + 5) * 10 + 90
        );
    }
}
