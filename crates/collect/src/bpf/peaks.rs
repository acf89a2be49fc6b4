//! The peak of a process: out of what the kernel accounts and what the rss_stat program saw.

use super::decode::boot;
use super::layout::Counting;
use crate::Peak;
use memtrace_abi::{Counts, Ended};
use memtrace_model::{Bytes, PageSize, Pages, PeakSource};

/// What this host's counters mean.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peaks {
    pub(super) page_size: PageSize,
    /// How far two readings of the same RSS can be apart: the kernel marks it, and the
    /// rss_stat program sees it, by counters without their per-CPU parts. Zero where there
    /// are no such parts: then all read the same number.
    pub(super) noise: Bytes,
    pub(super) counting: Counting,
}

/// When counters were read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadAt {
    Running,
    Ended,
}

impl Peaks {
    /// The peak of a process that has ended: the highest over its own address spaces.
    pub(super) fn at_end(&self, ended: &Ended) -> Option<Peak> {
        let seen = Seen {
            pages: ended.seen_peak_pages,
            boot_ns: ended.seen_peak_boot_ns,
        };
        let last = if ended.has_own_mm != 0 {
            Some(self.of_mark(ended.hiwater_pages, ended.rss_pages, seen, ReadAt::Ended))
        } else {
            self.of_probe(seen)
        };
        let earlier = self.of_probe(Seen {
            pages: ended.earlier_peak_pages,
            boot_ns: ended.earlier_peak_boot_ns,
        });
        match (last, earlier) {
            (Some(last), Some(earlier)) if earlier.bytes > last.bytes => Some(earlier),
            (Some(last), _) => Some(last),
            (None, earlier) => earlier,
        }
    }

    /// The peak so far of a process that runs.
    pub(super) fn of_kernel(&self, hiwater_pages: i64, counts: &Counts, seen: Seen) -> Peak {
        self.of_mark(hiwater_pages, counts.rss_pages(), seen, ReadAt::Running)
    }

    /// The kernel's own figure, as VmHWM shows it: the larger of the mark and the counters.
    /// Exact where the counters are the larger and are exact themselves; the mark was taken
    /// from counters as they stood (update_hiwater_rss). And it is not taken at all where
    /// RSS falls without an unmapping (reclaim, truncation): where the probe saw more than
    /// noise explains, the probe is right.
    fn of_mark(&self, hiwater_pages: i64, now: i64, seen: Seen, moment: ReadAt) -> Peak {
        let pages = hiwater_pages.max(now);
        let bytes = Pages(pages).to_bytes(self.page_size);
        let excess = Pages(seen.pages - pages).to_bytes(self.page_size);
        if let Some(peak) = self.of_probe(seen)
            && excess > self.noise
        {
            return peak;
        }
        let are_counts_exact = match self.counting {
            Counting::Exact => true,
            Counting::WithoutCpus => false,
            Counting::WithoutThreads => moment == ReadAt::Ended,
        };
        let is_exact = are_counts_exact && now >= hiwater_pages && now >= seen.pages;
        // The time is that of the maximum the probe saw, where both speak of the same one.
        let is_same = seen.boot_ns != 0 && Bytes(-excess.0) <= self.noise;
        Peak {
            bytes,
            source: PeakSource::KernelHiwater,
            error: if is_exact {
                Some(Bytes(0))
            } else {
                self.error()
            },
            at: is_same.then(|| boot(seen.boot_ns)),
        }
    }

    /// What the rss_stat program saw, where it saw anything.
    fn of_probe(&self, seen: Seen) -> Option<Peak> {
        (seen.boot_ns != 0).then(|| Peak {
            bytes: Pages(seen.pages).to_bytes(self.page_size),
            source: PeakSource::RssStat,
            error: self.error(),
            at: Some(boot(seen.boot_ns)),
        })
    }

    /// The bound on a figure that was taken from counters as they stood. What threads hold
    /// back has none that holds for a process whose number of threads then is not known.
    fn error(&self) -> Option<Bytes> {
        (self.counting != Counting::WithoutThreads).then_some(self.noise)
    }
}

/// A maximum that the rss_stat program kept.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    pub(super) pages: i64,
    /// 0: the program never ran for this address space.
    pub(super) boot_ns: u64,
}

impl Seen {
    pub(super) const NEVER: Self = Self {
        pages: 0,
        boot_ns: 0,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEAKS: Peaks = Peaks {
        page_size: PageSize(4096),
        noise: Bytes(10 * 4096),
        counting: Counting::Exact,
    };

    fn counts(pages: i64) -> Counts {
        Counts {
            anon_pages: pages,
            ..Counts::default()
        }
    }

    #[test]
    fn counters_at_their_highest_are_exact() {
        let peak = PEAKS.of_kernel(
            90,
            &counts(100),
            Seen {
                pages: 99,
                boot_ns: 7,
            },
        );
        assert_eq!(peak.bytes, Bytes(100 * 4096));
        assert_eq!(peak.error, Some(Bytes(0)));
        assert_eq!(peak.at.map(|at| at.0), Some(7));
    }

    #[test]
    fn a_mark_above_the_counters_carries_their_error() {
        let peak = PEAKS.of_kernel(200, &counts(100), Seen::NEVER);
        assert_eq!(peak.bytes, Bytes(200 * 4096));
        assert_eq!(peak.error, Some(PEAKS.noise));
        assert_eq!(peak.at, None);
    }

    #[test]
    fn a_maximum_that_the_kernel_did_not_mark_is_the_probes() {
        let peak = PEAKS.of_kernel(
            100,
            &counts(50),
            Seen {
                pages: 300,
                boot_ns: 7,
            },
        );
        assert_eq!(peak.bytes, Bytes(300 * 4096));
        assert_eq!(peak.source, PeakSource::RssStat);
    }

    #[test]
    fn counters_that_were_not_added_up_are_never_called_exact() {
        let peaks = Peaks {
            counting: Counting::WithoutCpus,
            ..PEAKS
        };
        let peak = peaks.of_kernel(90, &counts(100), Seen::NEVER);
        assert_eq!(peak.error, Some(PEAKS.noise));
    }
    #[test]
    fn what_threads_hold_back_is_handed_in_when_they_end_and_has_no_bound_before() {
        let peaks = Peaks {
            noise: Bytes(0),
            counting: Counting::WithoutThreads,
            ..PEAKS
        };
        assert_eq!(
            peaks.of_kernel(90, &counts(100), Seen::NEVER).error,
            None,
            "it runs"
        );
        let mut process = <Ended as zerocopy::FromZeros>::new_zeroed();
        process.has_own_mm = 1;
        process.hiwater_pages = 90;
        process.rss_pages = 100;
        let ended = peaks.at_end(&process).unwrap();
        assert_eq!(ended.bytes, Bytes(100 * 4096));
        assert_eq!(ended.error, Some(Bytes(0)));
        process.hiwater_pages = 200;
        let marked_earlier = peaks.at_end(&process).unwrap();
        assert_eq!(marked_earlier.bytes, Bytes(200 * 4096));
        assert_eq!(marked_earlier.error, None);
    }
}
