//! Puts a nearly ordered stream of `mem` rows into order, within bounded memory.
//!
//! A recording is written in the order of arrival. The rss_stat probe reports a local maximum
//! when RSS has fallen from it, with the time at which it was reached, so such a row arrives
//! after later ones. A window of rows is enough to put it back.

use super::amounts::Amounts;
use crate::model::{BootNs, Bytes, Upid};

/// What the analysis keeps of a row of `mem`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) boot_ns: BootNs,
    pub(super) upid: Upid,
    pub(super) amounts: Amounts,
    pub(super) vm_size: Option<Bytes>,
}

/// Rows held back. 64 Ki of them are some 5 MiB, and seconds to minutes of a recording.
const WINDOW: usize = 1 << 16;

/// Holds rows back until later ones show that nothing earlier is likely to come.
#[derive(Debug)]
pub(super) struct Reorder {
    held: Vec<Sample>,
    window: usize,
    is_sorted: bool,
}

impl Reorder {
    pub(super) fn new() -> Self {
        Self::with_window(WINDOW)
    }

    fn with_window(window: usize) -> Self {
        Self {
            held: Vec::with_capacity(window),
            window,
            is_sorted: true,
        }
    }

    /// Takes a row, and gives rows that are due to `each`.
    pub(super) fn push(&mut self, sample: Sample, each: &mut impl FnMut(Sample)) {
        if let Some(last) = self.held.last()
            && last.boot_ns > sample.boot_ns
        {
            self.is_sorted = false;
        }
        self.held.push(sample);
        if self.held.len() >= self.window {
            let half = self.window / 2;
            self.release(half, each);
        }
    }

    /// Gives the rest.
    pub(super) fn finish(mut self, each: &mut impl FnMut(Sample)) {
        let rest = self.held.len();
        self.release(rest, each);
    }

    fn release(&mut self, count: usize, each: &mut impl FnMut(Sample)) {
        if !self.is_sorted {
            // Stable, so that rows of one time stay in the order of arrival; and close to
            // linear on runs that are sorted already.
            self.held.sort_by_key(|sample| sample.boot_ns);
            self.is_sorted = true;
        }
        self.held.drain(..count).for_each(each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(times: &[i64], window: usize) -> Vec<(i64, i64)> {
        let mut out = Vec::new();
        let mut reorder = Reorder::with_window(window);
        let mut each = |sample: Sample| out.push((sample.boot_ns.0, sample.upid.0));
        for (arrival, &time) in times.iter().enumerate() {
            let sample = Sample {
                boot_ns: BootNs(time),
                upid: Upid(arrival as i64),
                amounts: Amounts::NONE,
                vm_size: None,
            };
            reorder.push(sample, &mut each);
        }
        reorder.finish(&mut each);
        out
    }

    #[test]
    fn a_late_row_is_put_back_and_ties_keep_the_order_of_arrival() {
        let rows = ordered(&[1, 5, 3, 5, 9], 8);
        assert_eq!(rows, [(1, 0), (3, 2), (5, 1), (5, 3), (9, 4)]);
    }

    #[test]
    fn no_row_is_dropped_when_the_disorder_exceeds_the_window() {
        let rows = ordered(&[10, 20, 30, 40, 50, 1, 60], 4);
        assert_eq!(rows.len(), 7);
        assert!(rows.contains(&(1, 5)));
    }
}
