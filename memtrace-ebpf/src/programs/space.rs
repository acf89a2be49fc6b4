//! What is kept about the address space of a member between samples.

use crate::kernel::{Mm, Parts, now};
use crate::maps::{SPACES, config, layout};
use crate::stacks::Growing;
use memtrace_abi::event::Counts;

/// State of one address space, keyed by the address of its mm_struct. Written without
/// locks: two CPUs that fault at once can each miss the other's update of a maximum by the
/// pages of one fault, which is below the kernel's own error for these counters. An element
/// that is removed can be given to another space while a program still holds it; whoever
/// writes after a pause checks the owner first ([`Space::is_of`]).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Space {
    // What the sweep looks at comes first: it finds every space cold in the cache.
    /// The counters as last read by the sweep, before per-CPU parts were added.
    pub swept: Counts,
    /// RSS at the last sample, in pages.
    pub sent_pages: i64,
    /// Highest RSS since the last sample, and its kinds: anonymous, file, shared.
    pub high_pages: i64,
    pub high: [i64; 3],
    /// The same by the counters alone, without the per-CPU parts: what the next event is
    /// compared with.
    pub high_seen_pages: i64,
    /// Drift from there at which the next sample is asked for; see [`Space::may_send`].
    pub threshold_pages: i64,
    /// RSS when the time of the maximum was last taken, and that time.
    pub high_stamp_pages: i64,
    pub high_boot_ns: u64,
    /// RSS that fork gave it: pages it shares copy-on-write with its parent. 0 after exec.
    pub inherited_pages: i64,
    /// Highest RSS of this address space so far, at the last sample, and its time.
    pub peak_pages: i64,
    pub peak_boot_ns: u64,
    /// When the next drift sample would conform to the sustained rate (GCRA).
    pub conforms_boot_ns: u64,
    /// Which sweep came last when it was noted as moved.
    pub moved_after: u64,
    /// Start of the process that owns it.
    pub start_boot_ns: u64,
    /// That process.
    pub tgid: u32,
    /// 1: memtrace's own copy, which the held command runs in until its exec.
    pub is_recorders_copy: u16,
    /// The keyframe that it was last sampled for.
    pub keyframe: u16,
    /// What samples of growth need.
    pub growing: Growing,
    /// 1: pages of it may have come with a fork, and be shared since. Not after exec.
    pub may_share: u64,
}

/// See [`Space::stamp_pages`], on a machine of few CPUs.
const STAMP_PAGES: i64 = 16;

/// Drift from a sample of so many pages at which the next one is due.
#[inline(always)]
fn drift(sent_pages: i64) -> i64 {
    config!(drift_pages).max(sent_pages >> 7)
}

impl Space {
    /// Starts to follow an address space whose memory was just sampled as `counts`; of that,
    /// `inherited_pages` came with a fork; `may_share` is false after exec.
    #[inline(always)]
    pub fn follow(
        mm: Mm,
        tgid: u32,
        start_boot_ns: u64,
        counts: &Counts,
        inherited_pages: i64,
        boot_ns: u64,
        may_share: bool,
    ) -> bool {
        let mut space = Self {
            swept: *counts,
            sent_pages: 0,
            high_pages: 0,
            high: [0; 3],
            high_seen_pages: 0,
            threshold_pages: 0,
            high_stamp_pages: 0,
            high_boot_ns: 0,
            inherited_pages,
            peak_pages: 0,
            peak_boot_ns: 0,
            conforms_boot_ns: 0,
            moved_after: 0,
            start_boot_ns,
            tgid,
            is_recorders_copy: 0,
            keyframe: 0,
            growing: Growing::from(counts),
            may_share: u64::from(may_share),
        };
        space.note_sample(counts, boot_ns, 0);
        SPACES.insert(mm.0, space, 0).is_ok()
    }

    /// The highest RSS of a space that exec leaves: of a copy that fork made, only what it grew
    /// by since, for the rest are its parent's pages.
    #[inline(always)]
    pub fn left_peak_pages(&self) -> i64 {
        self.peak_pages - self.inherited_pages
    }

    /// Whether this is still the state of that process's space.
    #[inline(always)]
    pub fn is_of(&self, tgid: u32, start_boot_ns: u64) -> bool {
        self.tgid == tgid && self.start_boot_ns == start_boot_ns
    }

    /// Takes a sample as the new base for drift and for the local maximum, which stood at
    /// `high_pages` when the sample was read: one that another CPU reached since is newer.
    #[inline(always)]
    pub fn note_sample(&mut self, counts: &Counts, boot_ns: u64, high_pages: i64) {
        self.fold_high();
        let total = counts.rss_pages();
        self.sent_pages = total;
        self.threshold_pages = drift(total);
        if self.high_pages > high_pages.max(total) {
            return;
        }
        self.high_pages = total;
        self.high = [counts.anon_pages, counts.file_pages, counts.shmem_pages];
        // The next event says where the counters alone stand.
        self.high_seen_pages = 0;
        self.high_stamp_pages = total;
        self.high_boot_ns = boot_ns;
        self.fold_high();
    }

    /// Raises the peak to the local maximum.
    #[inline(always)]
    pub fn fold_high(&mut self) {
        if self.high_pages > self.peak_pages {
            self.peak_pages = self.high_pages;
            self.peak_boot_ns = self.high_boot_ns;
        }
    }

    /// Raises the local maximum to counters that stand higher than it was seen. Their
    /// per-CPU parts are added where that is due: they can be a percent of a small spike.
    #[inline(always)]
    pub fn raise_high(&mut self, mm: Mm, parts: &Parts, mut counts: Counts) {
        let total = counts.rss_pages();
        self.high_seen_pages = total;
        if total - self.high_stamp_pages >= self.stamp_pages() {
            self.high_stamp_pages = total;
            self.high_boot_ns = now();
            mm.settle_by(parts, &mut counts);
        }
        let settled = counts.rss_pages();
        if settled > self.high_pages {
            self.high_pages = settled;
            self.high = [counts.anon_pages, counts.file_pages, counts.shmem_pages];
        }
    }

    /// RSS must grow by this much before the time of a maximum is taken again, and its
    /// per-CPU parts are added: a clock reading on every page fault would double the cost of
    /// the program, and the parts of many CPUs are as many lines of other CPUs' caches.
    #[inline(always)]
    fn stamp_pages(&self) -> i64 {
        if u64::from(layout!(cpu_count)) > config!(few_cpus) {
            self.margin_pages()
        } else {
            STAMP_PAGES
        }
    }

    /// Whether the local maximum stands out from the last sample, and from the one of
    /// `total` that is due at `boot_ns`: by its height, or because RSS stood there for a
    /// while and has only begun to fall. Then it is owed a sample of its own before that
    /// one. What stands out does not depend on how often the rate was exceeded.
    #[inline(always)]
    pub fn owes_peak(&self, total: i64, boot_ns: u64) -> bool {
        let fall = self.high_pages - total;
        let margin = self.margin_pages();
        let has_stood = || boot_ns > self.high_boot_ns + config!(drift_interval_ns);
        self.rises_above_sent() && (fall > margin || fall > 0 && has_stood())
    }

    /// Whether the local maximum stands out from the last sample.
    #[inline(always)]
    pub fn rises_above_sent(&self) -> bool {
        self.high_pages - self.sent_pages > self.margin_pages()
    }

    /// What stands out: a quarter of the drift at which a sample of the maximum is due.
    #[inline(always)]
    fn margin_pages(&self) -> i64 {
        drift(self.high_pages) >> 2
    }

    /// Whether a drift sample may be sent now: a burst, then a sustained rate. A refusal
    /// moves the threshold out, so that not every page fault asks again.
    #[inline(always)]
    pub fn may_send(&mut self, boot_ns: u64) -> bool {
        let interval = config!(drift_interval_ns);
        let conforms = self.conforms_boot_ns.max(boot_ns);
        if conforms - boot_ns > interval * config!(drift_burst) {
            self.threshold_pages += config!(drift_pages) >> 2;
            return false;
        }
        self.conforms_boot_ns = conforms + interval;
        true
    }
}
