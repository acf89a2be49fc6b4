//! The clocks of a recording and how one is distinguished from the other.

use super::units::{BootNs, WallNs};
use serde::{Deserialize, Serialize};

/// The three clocks read together. Taken at start, once a minute and at stop, so that a
/// reader can see whether the wall clock was stepped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReading {
    /// Time on CLOCK_BOOTTIME.
    pub boot_ns: BootNs,
    /// CLOCK_MONOTONIC, in nanoseconds.
    pub monotonic_ns: i64,
    /// Time on CLOCK_REALTIME.
    pub wall_ns: WallNs,
}

/// The distance from the boot clock to the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset(i64);

impl ClockOffset {
    /// The offset at the moment of a reading.
    pub fn at(reading: ClockReading) -> Self {
        Self(reading.wall_ns.0.saturating_sub(reading.boot_ns.0))
    }

    /// The wall time of a boot time.
    pub fn to_wall(self, boot: BootNs) -> WallNs {
        WallNs(boot.0.saturating_add(self.0))
    }

    /// The boot time of a wall time.
    pub fn to_boot(self, wall: WallNs) -> BootNs {
        BootNs(wall.0.saturating_sub(self.0))
    }
}
