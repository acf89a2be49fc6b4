//! An order that does not jump: lines change places only where one is clearly above the other.

use std::cmp::Ordering;
use std::collections::HashMap;

/// What lines are ordered by, the highest first.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Key {
    /// Memory, which moves all the time.
    Bytes(i64),
    /// Something that moves seldom.
    Number(i64),
    /// A name, in the order of the alphabet.
    Text(String),
}

/// Memory has to be so much more, and one part in so many, for a line to pass another.
const CLEAR_BYTES: i64 = 1 << 20;
const CLEAR_PART: i64 = 10;

/// Lines move up by so many places on average, before all of them are put in order anew.
const MOVES_EACH: usize = 64;

impl Key {
    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bytes(a), Self::Bytes(b)) | (Self::Number(a), Self::Number(b)) => b.cmp(a),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            _ => Ordering::Equal,
        }
    }

    /// Whether it belongs before another that stands before it.
    fn is_clearly_before(&self, other: &Self, is_reversed: bool) -> bool {
        let order = match is_reversed {
            true => self.compare(other).reverse(),
            false => self.compare(other),
        };
        let is_clear = match (self, other) {
            (Self::Bytes(a), Self::Bytes(b)) => {
                let least = (*a.max(b) / CLEAR_PART).max(CLEAR_BYTES);
                a.abs_diff(*b) > least.unsigned_abs()
            }
            _ => true,
        };
        order == Ordering::Less && is_clear
    }
}

/// The order of the last look.
#[derive(Debug, Default)]
pub(super) struct Order {
    ids: Vec<u64>,
    /// What it is by: a column, and whether the lowest come first.
    by: (usize, bool),
}

impl Order {
    /// The places of items in their order. Each has an id, which stays, and a key.
    pub(super) fn arrange(&mut self, items: &[(u64, Key)], by: (usize, bool)) -> Vec<usize> {
        let is_new = self.by != by || self.ids.is_empty();
        self.by = by;
        let (_, is_reversed) = by;
        let compare = |a: &usize, b: &usize| {
            let order = items[*a].1.compare(&items[*b].1);
            if is_reversed { order.reverse() } else { order }
        };
        let mut order: Vec<usize>;
        if is_new {
            order = (0..items.len()).collect();
            order.sort_by(compare);
        } else {
            let places = items.iter().enumerate();
            let mut places: HashMap<u64, usize> =
                places.map(|(place, (id, _))| (*id, place)).collect();
            order = self.ids.iter().filter_map(|id| places.remove(id)).collect();
            let mut fresh: Vec<usize> = places.into_values().collect();
            fresh.sort_unstable();
            fresh.sort_by(compare);
            order = merged(&order, &fresh, compare);
            let is_clearly_before = |a: usize, b: usize| {
                let [a, b] = [a, b].map(|place| &items[place].1);
                a.is_clearly_before(b, is_reversed)
            };
            if !settle(&mut order, is_clearly_before) {
                order.sort_by(compare);
            }
        }
        self.ids = order.iter().map(|place| items[*place].0).collect();
        order
    }
}

/// Puts new items, which are in order, before the first that each belongs before.
fn merged(
    order: &[usize],
    fresh: &[usize],
    compare: impl Fn(&usize, &usize) -> Ordering,
) -> Vec<usize> {
    let mut fresh = fresh.iter().peekable();
    let mut all = Vec::with_capacity(order.len() + fresh.len());
    for other in order {
        while let Some(place) = fresh.next_if(|place| compare(place, other).is_lt()) {
            all.push(*place);
        }
        all.push(*other);
    }
    all.extend(fresh);
    all
}

/// Moves those up that are clearly above others. False where so many would have to that the order
/// is another one anyway.
fn settle(order: &mut [usize], is_clearly_before: impl Fn(usize, usize) -> bool) -> bool {
    let mut moves_left = MOVES_EACH * order.len();
    for from in 1..order.len() {
        let mut at = from;
        while at > 0 && is_clearly_before(order[at], order[at - 1]) {
            if moves_left == 0 {
                return false;
            }
            moves_left -= 1;
            order.swap(at, at - 1);
            at -= 1;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: i64 = 1 << 20;

    fn order(order: &mut Order, bytes: &[i64]) -> Vec<usize> {
        let items = bytes.iter().enumerate();
        let items: Vec<(u64, Key)> = items
            .map(|(id, bytes)| (id as u64, Key::Bytes(bytes * MIB)))
            .collect();
        order.arrange(&items, (0, false))
    }

    #[test]
    fn lines_stay_where_they_are_until_one_is_clearly_above() {
        let mut kept = Order::default();
        assert_eq!(order(&mut kept, &[100, 300, 200]), [1, 2, 0]);
        assert_eq!(order(&mut kept, &[205, 300, 200]), [1, 2, 0], "2.5 % more");
        assert_eq!(order(&mut kept, &[250, 300, 200]), [1, 0, 2]);
        assert_eq!(order(&mut kept, &[900, 300, 200]), [0, 1, 2]);
    }

    #[test]
    fn a_new_line_comes_where_it_belongs_and_one_that_is_gone_leaves_no_hole() {
        let mut kept = Order::default();
        order(&mut kept, &[100, 300]);
        assert_eq!(order(&mut kept, &[100, 300, 200]), [1, 2, 0]);
        let left = [(2, Key::Bytes(200 * MIB)), (0, Key::Bytes(100 * MIB))];
        assert_eq!(kept.arrange(&left, (0, false)), [0, 1]);
    }

    #[test]
    fn many_lines_that_all_change_places_are_in_order() {
        const COUNT: i64 = 50_000;
        let mut kept = Order::default();
        let mut is_in_order = |numbers: &[i64]| {
            let items = numbers.iter().zip(0..);
            let items: Vec<(u64, Key)> = items.map(|(n, id)| (id, Key::Number(*n))).collect();
            let places = kept.arrange(&items, (1, false));
            assert_eq!(places.len(), numbers.len());
            places.is_sorted_by_key(|place| std::cmp::Reverse(numbers[*place]))
        };
        let rising: Vec<i64> = (0..COUNT).map(|place| 2 * place).collect();
        assert!(is_in_order(&rising));
        let mut falling = rising;
        falling.reverse();
        assert!(is_in_order(&falling));
        falling.extend((0..COUNT).map(|place| 2 * place + 1));
        assert!(is_in_order(&falling), "half of them new");
    }

    #[test]
    fn another_column_orders_all_anew_and_names_go_by_the_alphabet() {
        let mut kept = Order::default();
        let items = |text: [&str; 3]| -> Vec<(u64, Key)> {
            let items = text.iter().enumerate();
            items
                .map(|(id, text)| (id as u64, Key::Text((*text).to_owned())))
                .collect()
        };
        let names = items(["b", "c", "a"]);
        assert_eq!(kept.arrange(&names, (3, false)), [2, 0, 1]);
        assert_eq!(kept.arrange(&names, (3, true)), [1, 0, 2]);
    }
}
