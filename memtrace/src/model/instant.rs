//! An instant of a recording, on every clock by which a reader may look for it.

use super::{BootNs, DurationNs, WallNs};
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

/// An instant of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant {
    /// On CLOCK_BOOTTIME.
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
    /// RFC 3339, in UTC; `None` beyond the year 9999.
    pub fn rfc3339(self) -> Option<String> {
        let time = jiff::Timestamp::from_nanosecond(i128::from(self.0)).ok()?;
        Some(time.to_string())
    }
}

impl Serialize for Instant {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut clocks = to.serialize_struct("Instant", 4)?;
        clocks.serialize_field("time", &self.wall_ns.and_then(WallNs::rfc3339))?;
        clocks.serialize_field("boot_ns", &self.boot_ns)?;
        clocks.serialize_field("offset_ns", &self.offset_ns)?;
        clocks.serialize_field("offset_s", &self.offset_ns.as_secs_f64())?;
        clocks.end()
    }
}
