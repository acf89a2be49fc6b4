//! An instant of a recording, on every clock by which a reader may look for it.

use super::{BootNs, DurationNs, WallNs};
use crate::keys;

/// An instant of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant {
    /// Time on CLOCK_BOOTTIME.
    pub boot_ns: BootNs,
    /// Since the start of the recording; below zero before it.
    pub offset_ns: DurationNs,
    /// On the wall clock; `None` when the recording holds no reading of it.
    pub wall_ns: Option<WallNs>,
}

impl Instant {
    /// One of which offset and wall time are not known yet.
    pub fn unsettled(boot_ns: BootNs) -> Self {
        Self {
            boot_ns,
            ..Self::default()
        }
    }
}

impl WallNs {
    /// Without what is less than a millisecond.
    pub fn whole_ms(self) -> Self {
        Self(self.0.saturating_sub(self.0.rem_euclid(1_000_000)))
    }

    /// RFC 3339, in UTC; `None` beyond the year 9999.
    pub fn rfc3339(self) -> Option<String> {
        let time = jiff::Timestamp::from_nanosecond(i128::from(self.0)).ok()?;
        Some(time.to_string())
    }
}

keys! {
    as
    /// An instant, on every clock by which a reader may look for it.
    InstantKeys of at: Instant {
        /// RFC 3339 in UTC; null when the recording holds no clock reading.
        time: Option<String> = at.wall_ns.and_then(WallNs::rfc3339),
        /// CLOCK_BOOTTIME of the recorded host, as in every table.
        boot_ns: BootNs = at.boot_ns,
        /// Since the start of the recording; below zero before it.
        offset_ns: DurationNs = at.offset_ns,
        /// The same in seconds.
        offset_s: f64 = at.offset_ns.as_secs_f64(),
    }
}
