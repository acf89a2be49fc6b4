//! The peak of one process, and what is known about its exactness.

use memtrace_model::keys;
use memtrace_model::tables::{PeakSource, ProcessRow};
use memtrace_model::{BootNs, Bytes, Instant, Label};
use memtrace_report::{Cell, words};
use memtrace_timeline::Amounts;

/// A mark that exceeds the series by less than one part in so many is that of its highest row.
const NEAR_PART: i64 = 100;

/// The highest RSS of one process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// The figure; `None` when nothing is known.
    pub rss_bytes: Option<Bytes>,
    /// How it relates to the truth.
    pub bound: Bound,
    /// Where it comes from; `None` when the recording does not say.
    pub origin: Option<PeakOrigin>,
    /// When it was reached, as far as the series tells.
    pub at: Option<Instant>,
    /// The kinds at the highest row of the series; their sum can lie below the peak.
    pub amounts: Amounts,
    /// Whether it was reached before the recording, as far as is known: the process ran
    /// already, and no row comes near. Time and kinds are unknown then.
    pub is_earlier: bool,
}

keys! {
    as
    /// The peak of a process.
    PeakKeys of peak: Peak {
        /// RSS; null when unknown.
        rss_bytes: Option<Bytes> = peak.rss_bytes,
        /// How it relates to the truth: `exact`, `within_error`, `at_least`, `at_most`, `about`.
        bound: Option<&'static str> = peak.rss_bytes.map(|_| peak.bound.as_str()),
        /// How far away the truth is at most, with `exact` and `within_error`.
        error_bytes: Option<Bytes> = peak.bound.error(),
        /// Where it comes from: `peak_rss_source` of the process table, or `series`.
        source: Option<&'static str> = peak.origin.map(PeakOrigin::as_str),
        /// When it was reached, as far as the series tells.
        at: Option<Instant> = peak.at,
        /// The kinds at the highest row of the series; their sum can lie below the peak.
        series: Amounts = peak.amounts,
    }
}

/// How a figure relates to the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The truth is at most this far away; zero is exact.
    Within(Bytes),
    /// The truth is this or more: polling can miss a peak.
    AtLeast,
    /// The truth is this or less: ru_maxrss counts waited-for children and borrowed memory too.
    AtMost,
    /// Close, without a stated bound.
    About,
}

/// Where a peak comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeakOrigin {
    /// The process table.
    Process(PeakSource),
    /// The highest row of the `mem` series, where the process table has nothing higher.
    Series,
}

impl Bound {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Within(Bytes(0)) => "exact",
            Self::Within(_) => "within_error",
            Self::AtLeast => "at_least",
            Self::AtMost => "at_most",
            Self::About => "about",
        }
    }

    /// How far away the truth is at most, where that is known.
    pub fn error(self) -> Option<Bytes> {
        match self {
            Self::Within(error) => Some(error),
            _ => None,
        }
    }
}

impl PeakOrigin {
    /// The word for it: that of the process table, or "series".
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Process(source) => source.as_str(),
            Self::Series => "series",
        }
    }

    /// The words for it that a person reads.
    pub fn shown(self) -> &'static str {
        match self {
            Self::Process(source) => source.shown(),
            Self::Series => "the recorded series",
        }
    }
}

impl Peak {
    /// What the process table says.
    pub(super) fn of(row: &ProcessRow) -> Self {
        Self {
            rss_bytes: row.peak_rss_bytes,
            bound: bound(row.peak_rss_source, row.peak_error_bytes),
            origin: row.peak_rss_source.map(PeakOrigin::Process),
            at: row.peak_rss_boot_ns.map(Instant::unsettled),
            amounts: Amounts::UNKNOWN,
            is_earlier: false,
        }
    }

    /// What it was, with what is known about its exactness: `≥ 1.2 GiB`.
    pub fn in_words(&self) -> String {
        let Some(rss) = self.rss_bytes else {
            return words::UNKNOWN.to_owned();
        };
        let figure = words::bytes(rss);
        match self.bound {
            // An error that the rounding of the figure hides is not worth a mark, nor is one on
            // the zero of a kernel thread.
            Bound::Within(error) if error.0 <= rss.0 / 100 || rss.0 == 0 => figure,
            Bound::Within(error) => format!("{figure} ±{}", words::bytes(error)),
            Bound::AtLeast => format!("≥ {figure}"),
            Bound::AtMost => format!("≤ {figure}"),
            Bound::About => format!("~ {figure}"),
        }
    }

    /// The same for a column.
    pub(super) fn cell(&self) -> Cell {
        Cell::Bytes(self.rss_bytes).shown_as(self.in_words())
    }

    /// When it was reached, for a column; `None` when unknown.
    pub(super) fn time_cell(&self) -> Option<Cell> {
        match self.at {
            Some(at) => Some(at.into()),
            None => self.is_earlier.then(|| Cell::shown_only("before")),
        }
    }

    /// Adds the highest row of the series. The kernel's own mark stands unless the series
    /// exceeds it by more than its error: then the mark is stale (the process ran on after it
    /// was read) and the series is a lower bound of the truth. Within the error the higher of
    /// the two is the figure, so that no process was ever seen above its own peak.
    ///
    /// `ran_before`: whether the process is older than the recording. A mark that has no time
    /// and lies above the series is taken to be older, too.
    pub(super) fn with_series(
        mut self,
        highest: Amounts,
        boot_ns: BootNs,
        ran_before: bool,
    ) -> Self {
        self.amounts = highest;
        let Some(seen) = highest.rss() else {
            return self;
        };
        let allowance = match self.bound {
            Bound::Within(error) => error,
            _ => Bytes(0),
        };
        match self.rss_bytes {
            Some(known) if seen <= known + allowance || self.bound == Bound::AtMost => {
                // No process was ever seen above its own peak.
                self.rss_bytes = Some(known.max(seen));
                let near = allowance.max(Bytes(known.0 / NEAR_PART));
                if ran_before && self.at.is_none() && known > seen + near {
                    self.is_earlier = true;
                    self.amounts = Amounts::UNKNOWN;
                } else {
                    self.at = self.at.or(Some(Instant::unsettled(boot_ns)));
                }
                self
            }
            _ => Self {
                rss_bytes: Some(seen),
                bound: Bound::AtLeast,
                origin: Some(PeakOrigin::Series),
                at: Some(Instant::unsettled(boot_ns)),
                amounts: highest,
                is_earlier: false,
            },
        }
    }
}

fn bound(source: Option<PeakSource>, error: Option<Bytes>) -> Bound {
    match (source, error) {
        (Some(PeakSource::KernelHiwater | PeakSource::RssStat), Some(error)) => {
            Bound::Within(error)
        }
        (
            Some(PeakSource::KernelHiwater | PeakSource::Footprint | PeakSource::SelfReported),
            None,
        ) => Bound::About,
        (Some(PeakSource::Footprint | PeakSource::SelfReported), Some(error)) => {
            Bound::Within(error)
        }
        (Some(PeakSource::Wait4), _) => Bound::AtMost,
        (Some(PeakSource::RssStat | PeakSource::VmHwm | PeakSource::Poll) | None, _) => {
            Bound::AtLeast
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::mem_row;

    fn known(bytes: i64, source: PeakSource, error: Option<i64>) -> Peak {
        Peak {
            rss_bytes: Some(Bytes(bytes)),
            bound: bound(Some(source), error.map(Bytes)),
            origin: Some(PeakOrigin::Process(source)),
            ..Peak::of(&ProcessRow::default())
        }
    }

    fn time(peak: &Peak) -> Option<BootNs> {
        peak.at.map(|at| at.boot_ns)
    }

    fn seen(bytes: i64) -> Amounts {
        Amounts::of(&mem_row(1, 0, Some(bytes)))
    }

    #[test]
    fn the_kernels_mark_stands_and_takes_its_time_from_the_series() {
        let peak =
            known(100, PeakSource::KernelHiwater, Some(8)).with_series(seen(95), BootNs(7), false);
        assert_eq!(peak.rss_bytes, Some(Bytes(100)));
        assert_eq!(peak.bound, Bound::Within(Bytes(8)));
        assert_eq!(time(&peak), Some(BootNs(7)));
    }

    #[test]
    fn a_mark_of_before_the_recording_takes_neither_time_nor_kinds_from_the_series() {
        let mark = known(313, PeakSource::KernelHiwater, Some(8));
        let peak = mark.with_series(seen(63), BootNs(7), true);
        assert_eq!(peak.rss_bytes, Some(Bytes(313)));
        assert!(peak.is_earlier);
        assert_eq!((time(&peak), peak.amounts), (None, Amounts::UNKNOWN));
        let near = mark.with_series(seen(306), BootNs(7), true);
        assert_eq!((time(&near), near.is_earlier), (Some(BootNs(7)), false));
        let dated = Peak {
            at: Some(Instant::unsettled(BootNs(3))),
            ..mark
        };
        let dated = dated.with_series(seen(63), BootNs(7), true);
        assert_eq!((time(&dated), dated.is_earlier), (Some(BootNs(3)), false));
    }

    #[test]
    fn within_the_error_the_higher_of_mark_and_series_is_the_peak() {
        let mark = known(100, PeakSource::KernelHiwater, Some(8));
        let peak = mark.with_series(seen(105), BootNs(7), false);
        assert_eq!(peak.rss_bytes, Some(Bytes(105)));
        assert_eq!(peak.bound, Bound::Within(Bytes(8)));
        assert_eq!(peak.origin, mark.origin);
    }

    #[test]
    fn what_waiting_reported_is_no_less_than_what_was_seen() {
        let peak = known(100, PeakSource::Wait4, None).with_series(seen(105), BootNs(7), false);
        assert_eq!(
            (peak.rss_bytes, peak.bound),
            (Some(Bytes(105)), Bound::AtMost)
        );
    }

    #[test]
    fn a_stale_mark_gives_way_to_the_series_as_a_lower_bound() {
        let peak = known(100, PeakSource::VmHwm, None).with_series(seen(300), BootNs(7), false);
        assert_eq!(peak.rss_bytes, Some(Bytes(300)));
        assert_eq!(peak.bound, Bound::AtLeast);
        assert_eq!(peak.origin, Some(PeakOrigin::Series));
    }

    #[test]
    fn a_polled_peak_is_a_lower_bound_and_maxrss_an_upper_one() {
        assert_eq!(known(1, PeakSource::Poll, None).bound, Bound::AtLeast);
        assert_eq!(known(1, PeakSource::Wait4, None).bound, Bound::AtMost);
    }

    #[test]
    fn without_any_figure_the_peak_stays_unknown() {
        let peak = Peak::of(&ProcessRow::default()).with_series(Amounts::UNKNOWN, BootNs(1), false);
        assert_eq!(peak.rss_bytes, None);
    }
}
