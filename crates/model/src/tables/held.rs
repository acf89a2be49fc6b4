//! `held`: what all processes held over time, every page once.

use crate::labels;
use crate::table::table;
use crate::{BootNs, Bytes, WallNs};

table! {
    /// What all recorded processes held together, every page once (docs/concepts.md says how it is known), at the instants of `role_mem`: a row holds from its time until the next one, and the highest is `held_peak` of the report; its bounds are those of that instant, and can have been wider at another.
    pub struct HeldRow in "held" {
        /// Wall-clock time (UTC).
        ts: Option<WallNs>,
        /// Time on CLOCK_BOOTTIME.
        boot_ns: BootNs,
        /// All of it: the sum of the five kinds below.
        held_bytes: Bytes,
        /// It is no less.
        held_at_least_bytes: Bytes,
        /// It is no more.
        held_at_most_bytes: Bytes,
        /// Anonymous memory; where kinds of memory are unknown, RSS.
        anon_bytes: Bytes,
        /// Shared memory and files of a tmpfs.
        shared_bytes: Bytes,
        /// Huge pages of hugetlbfs.
        huge_bytes: Bytes,
        /// Kernel memory: page tables, slab, stacks, socket buffers.
        kernel_bytes: Bytes,
        /// What their memory cgroups are charged for and no kind tells: pages that are pinned and mapped nowhere.
        unnamed_bytes: Bytes,
        /// Where it is known from.
        basis: Option<HeldBasis>,
        /// The sum of RSS, in which shared pages count in each process; null where that of some was unknown.
        sum_of_rss_bytes: Option<Bytes>,
    }
}

labels! {
    /// Where it is known from what is held.
    pub enum HeldBasis {
        /// The processes alone: their counters, and what was read of them.
        Processes = "processes",
        /// The processes, within what their memory cgroups, or the machine, are charged: others live there too.
        Bounds = "bounds",
        /// What their memory cgroups are charged, in which nobody else lives, or the machine where everybody is recorded.
        Cgroup = "cgroup",
    }
}

#[expect(clippy::derivable_impls, reason = "the macro takes no attributes")]
impl Default for HeldBasis {
    fn default() -> Self {
        Self::Processes
    }
}
