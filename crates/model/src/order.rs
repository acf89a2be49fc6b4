//! Putting lists in order with one routine for all of them.
//!
//! The standard library's sort is compiled anew for each type of element and each way to compare: some
//! 7 KiB of program a call, of which a report has over a hundred, on lists of tens. Where lists are long
//! and orders matter to how fast rows pass, its own sort stays.

use std::cmp::Ordering;

/// Lists that can be put in order.
pub trait Order<T> {
    /// As `sort_by`: equals stay as they stood.
    fn order_by(&mut self, compare: impl FnMut(&T, &T) -> Ordering);

    /// As `sort_by_key`: equals stay as they stood.
    fn order_by_key<K: Ord>(&mut self, mut key: impl FnMut(&T) -> K) {
        self.order_by(|a, b| key(a).cmp(&key(b)));
    }
}

impl<T> Order<T> for [T] {
    fn order_by(&mut self, mut compare: impl FnMut(&T, &T) -> Ordering) {
        let mut from = in_order(self.len(), &mut |a, b| compare(&self[a], &self[b]));
        for place in 0..self.len() {
            let mut source = from[place];
            // What stood in an earlier place was swapped away from there.
            while source < place {
                source = from[source];
            }
            from[place] = source;
            self.swap(place, source);
        }
    }
}

/// Of each place, the place that its element comes from.
fn in_order(len: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut places: Vec<usize> = (0..len).collect();
    places.sort_by(|a, b| compare(*a, *b));
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_list_gets_the_order_of_the_standard_sort(
            list in proptest::collection::vec((0_u8..9, any::<u16>()), 0..200),
        ) {
            let (mut by, mut by_key, mut expected) = (list.clone(), list.clone(), list);
            by.order_by(|a, b| a.0.cmp(&b.0));
            by_key.order_by_key(|one| one.0);
            expected.sort_by_key(|one| one.0);
            prop_assert_eq!(&by, &expected);
            prop_assert_eq!(&by_key, &expected);
        }
    }
}
