//! The clocks of a recorded machine: from the one that a program reported its times on to the one of the
//! recording.

use super::clock::{ClockOffset, ClockReading};
use super::units::{BootNs, DurationNs, WallNs};

/// The clock that the times of a file are reported on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// CLOCK_MONOTONIC: Python's time.perf_counter() and time.monotonic().
    Monotonic,
    /// The wall clock: Python's time.time().
    Wall,
}

impl Clock {
    /// What a reading of all clocks says of this one.
    fn of(self, reading: &ClockReading) -> i64 {
        match self {
            Self::Monotonic => reading.monotonic_ns,
            Self::Wall => reading.wall_ns.0,
        }
    }

    /// What has moved it against the clock of the recording, where something has.
    pub fn mover(self) -> &'static str {
        match self {
            Self::Monotonic => "the machine slept",
            Self::Wall => "the wall clock was set",
        }
    }
}

/// A time that is more uncertain than this is of no use beside memory that moves: phases and steps take
/// some ms.
pub const TIME_ERROR_MAX: DurationNs = DurationNs(5_000_000);

/// The clocks are read one after the other, again where that was interrupted.
const READING_NS: i64 = 100_000;

/// How the clocks of a machine stood to each other while it was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// In the order of time.
    readings: Vec<ClockReading>,
}

/// A time on the clock of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The time on that clock.
    pub at: BootNs,
    /// By how much it may be wrong.
    pub error: DurationNs,
}

impl Clocks {
    /// Of readings of them, of which there is at least one where a time is to be found.
    pub fn of(mut readings: Vec<ClockReading>) -> Self {
        readings.sort_by_key(|reading| reading.boot_ns);
        Self { readings }
    }

    /// The time of the recording at which a clock showed that. Between two readings that clock may
    /// have moved against it at any moment, so that the time is as uncertain as they differ.
    pub fn find(&self, clock: Clock, time_ns: i64) -> Option<Found> {
        let offset = |reading: &ClockReading| reading.boot_ns.0.saturating_sub(clock.of(reading));
        let (first, last) = (self.readings.first()?, self.readings.last()?);
        let mut offsets: Vec<i64> = Vec::new();
        for pair in self.readings.windows(2) {
            // A clock that was set back shows a time twice, and one that was set forward jumps over
            // it.
            let [a, b] = [clock.of(&pair[0]), clock.of(&pair[1])];
            if (a.min(b)..=a.max(b)).contains(&time_ns) {
                offsets.extend([offset(&pair[0]), offset(&pair[1])]);
            }
        }
        if offsets.is_empty() {
            offsets.push(offset(if time_ns < clock.of(first) {
                first
            } else {
                last
            }));
        }
        let (least, most) = (offsets.iter().min()?, offsets.iter().max()?);
        Some(Found {
            at: BootNs(time_ns.saturating_add(*offsets.first()?)),
            error: DurationNs(most.saturating_sub(*least).saturating_add(READING_NS)),
        })
    }

    /// The wall time of a time of the recording, by the last reading before it.
    pub fn to_wall(&self, at: BootNs) -> Option<WallNs> {
        Some(ClockOffset::at(*self.before(at)?).to_wall(at))
    }

    /// [`to_wall`](Self::to_wall) for many times; `None` without a reading.
    pub fn walls(&self) -> Option<impl Fn(BootNs) -> WallNs> {
        let first = self.readings.first()?;
        Some(move |at| ClockOffset::at(*self.before(at).unwrap_or(first)).to_wall(at))
    }

    /// What a clock showed at a time of the recording.
    pub fn shown(&self, clock: Clock, at: BootNs) -> Option<i64> {
        let reading = self.before(at)?;
        let offset = clock.of(reading).saturating_sub(reading.boot_ns.0);
        Some(at.0.saturating_add(offset))
    }

    /// The last reading before a time of the recording, else the first.
    fn before(&self, at: BootNs) -> Option<&ClockReading> {
        let is_before = |reading: &ClockReading| reading.boot_ns <= at;
        let after = self.readings.partition_point(is_before);
        self.readings.get(after.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;
    const EPOCH: i64 = 1_700_000_000 * SECOND;

    /// Seconds on all three clocks; the wall clock since an epoch.
    fn clocks(readings: &[[i64; 3]]) -> Clocks {
        let readings = readings
            .iter()
            .map(|&[boot, monotonic, wall]| ClockReading {
                boot_ns: BootNs(boot * SECOND),
                monotonic_ns: monotonic * SECOND,
                wall_ns: WallNs(EPOCH + wall * SECOND),
            });
        Clocks::of(readings.collect())
    }

    fn found(clocks: &Clocks, clock: Clock, time_ns: i64) -> (i64, i64) {
        let found = clocks.find(clock, time_ns).unwrap();
        (found.at.0 / SECOND, (found.error.0 - READING_NS) / SECOND)
    }

    #[test]
    fn a_time_is_found_by_the_readings_around_it() {
        let clocks = clocks(&[[100, 40, 0], [160, 100, 60], [220, 160, 120]]);
        assert_eq!(found(&clocks, Clock::Monotonic, 50 * SECOND), (110, 0));
        assert_eq!(found(&clocks, Clock::Wall, EPOCH + 70 * SECOND), (170, 0));
        // Before and after all of them.
        assert_eq!(found(&clocks, Clock::Monotonic, 10 * SECOND), (70, 0));
        assert_eq!(found(&clocks, Clock::Wall, EPOCH + 500 * SECOND), (600, 0));
    }

    #[test]
    fn a_sleep_and_a_set_clock_leave_times_uncertain_around_them_only() {
        // Asleep for 30 s, and the wall clock set back by 20.
        let clocks = clocks(&[
            [100, 40, 0],
            [160, 100, 60],
            [250, 160, 130],
            [310, 220, 190],
        ]);
        assert_eq!(found(&clocks, Clock::Monotonic, 50 * SECOND), (110, 0));
        assert_eq!(found(&clocks, Clock::Monotonic, 120 * SECOND).1, 30);
        assert_eq!(found(&clocks, Clock::Monotonic, 200 * SECOND), (290, 0));
        assert_eq!(found(&clocks, Clock::Wall, EPOCH + 100 * SECOND).1, 20);
        assert_eq!(found(&clocks, Clock::Wall, EPOCH + 150 * SECOND), (270, 0));
    }

    #[test]
    fn a_time_that_the_clock_showed_twice_is_uncertain_by_as_much() {
        let clocks = clocks(&[
            [100, 100, 0],
            [150, 150, 50],
            [151, 151, 21],
            [200, 200, 70],
        ]);
        assert_eq!(found(&clocks, Clock::Wall, EPOCH + 30 * SECOND).1, 30);
        assert_eq!(found(&clocks, Clock::Wall, EPOCH + 60 * SECOND), (190, 0));
    }

    #[test]
    fn without_a_reading_nothing_is_found() {
        assert_eq!(clocks(&[]).find(Clock::Wall, 1), None);
    }
}
