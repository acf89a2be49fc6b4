//! The middle one of some numbers.

/// The one that as many are below as above; of two such the lower. `None` of nothing.
pub(super) fn median(numbers: impl Iterator<Item = i64>) -> Option<i64> {
    let mut numbers: Vec<i64> = numbers.collect();
    let middle = numbers.len().checked_sub(1)? / 2;
    let (_, median, _) = numbers.select_nth_unstable(middle);
    Some(*median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_one_of_the_numbers() {
        assert_eq!(median([3, 1, 9, 7].into_iter()), Some(3));
        assert_eq!(median([5].into_iter()), Some(5));
        assert_eq!(median(std::iter::empty()), None);
    }
}
