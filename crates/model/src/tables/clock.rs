//! `clock`: how the clocks of the machine stand to each other.

use crate::table::table;
use crate::{BootNs, DurationNs, WallNs};

table! {
    /// The clocks of the machine, read together: at the start and the end, once a minute, and on both sides of a step of the wall clock. Times of other rows are reported by the clocks as they stood then, so that after a step only `boot_ns` is comparable.
    pub struct ClockRow in "clock" {
        /// Time on CLOCK_REALTIME (UTC).
        ts: WallNs,
        /// CLOCK_BOOTTIME, which nothing sets, and which goes on while the machine sleeps.
        boot_ns: BootNs,
        /// CLOCK_MONOTONIC, which stands while the machine sleeps: what `time.monotonic()` and the logs of most programs tell.
        monotonic_ns: DurationNs,
        /// By how much the wall clock was set since the row before; null where it was not.
        step_ns: Option<DurationNs>,
        /// Whether the kernel takes the wall clock to be synchronized, by NTP or PTP (adjtimex, STA_UNSYNC); null where there is no adjtimex.
        is_synchronized: Option<bool>,
        /// Upper bound that the kernel assumes for the error of the wall clock (adjtimex, maxerror): it grows by half a millisecond a second while nobody synchronizes.
        max_error_ns: Option<DurationNs>,
        /// Estimate of that error by whoever synchronizes (adjtimex, esterror).
        estimated_error_ns: Option<DurationNs>,
    }
}
