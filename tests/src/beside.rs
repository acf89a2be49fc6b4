//! Runs that do not disturb each other, beside each other.

use anyhow::{Result, bail};
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{available_parallelism, scope};

/// Does something with each, as many at a time as there are CPUs; the answers are in the order of
/// what they are of.
///
/// # Errors
/// The first of those, in that order; the others are done all the same.
pub fn beside<T: Sync, R: Send>(
    all: &[T],
    each: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    at_once(available_parallelism().map_or(1, NonZero::get), all, each)
}

/// The same, so many at a time.
///
/// # Errors
/// The same.
pub fn at_once<T: Sync, R: Send>(
    count: usize,
    all: &[T],
    each: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(one) = all.get(place) else {
                return done;
            };
            done.push((place, each(one)));
        }
    };
    let ended: Vec<_> = scope(|scope| {
        let workers: Vec<_> = (0..count).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join()).collect()
    });
    let mut done = Vec::new();
    for of_worker in ended {
        match of_worker {
            Ok(of_worker) => done.extend(of_worker),
            Err(_) => bail!("one of what ran beside each other panicked"),
        }
    }
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, answer)| answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_in_the_order_of_what_they_are_of_and_an_error_is_reported() {
        let all: Vec<u64> = (0..20).collect();
        let slower_first = |number: &u64| {
            std::thread::sleep(std::time::Duration::from_millis(20 - number));
            anyhow::ensure!(*number != 20, "too many");
            Ok(number * 2)
        };
        let doubled: Vec<u64> = all.iter().map(|number| number * 2).collect();
        assert_eq!(at_once(4, &all, slower_first).ok(), Some(doubled));
        let text = at_once(4, &[1, 20, 2], slower_first).err();
        assert_eq!(
            text.map(|text| text.to_string()).as_deref(),
            Some("too many")
        );
    }
}
