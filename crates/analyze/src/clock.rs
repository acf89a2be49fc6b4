//! The span of a recording and its two clocks: offsets since the start, and wall time.

use jiff::tz::TimeZone;
use memtrace_model::{BootNs, Clock, ClockReading, Clocks, DurationNs, Instant, Order, WallNs};
use memtrace_report::words;

/// When a recording began and ended, and what the wall clock showed meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunClock {
    clocks: Clocks,
    start: BootNs,
    end: BootNs,
    /// That of the reader; UTC where it is none.
    zone: Option<TimeZone>,
}

impl RunClock {
    /// The clock of a recording whose first and last observations are known. Where the
    /// recorder noted its own start and stop, those count; a recording that was cut off ends
    /// with its last row.
    pub(super) fn new(
        mut readings: Vec<ClockReading>,
        observed: Option<(BootNs, BootNs)>,
        is_closed: bool,
    ) -> Self {
        readings.order_by_key(|reading| reading.boot_ns);
        let noted = readings
            .first()
            .zip(readings.last())
            .map(|(first, last)| (first.boot_ns, last.boot_ns));
        let (start, end) = match (noted, observed) {
            (Some((start, end)), _) if is_closed && end > start => (start, end),
            (Some((start, end)), Some((_, last))) => (start, end.max(last)),
            (Some(span), None) | (None, Some(span)) => span,
            (None, None) => (BootNs(0), BootNs(0)),
        };
        Self {
            clocks: Clocks::of(readings),
            start,
            end,
            zone: None,
        }
    }

    /// The same, for a reader in that time zone.
    pub(super) fn in_zone(self, zone: Option<TimeZone>) -> Self {
        Self { zone, ..self }
    }

    /// The same, of what is looked at until an instant.
    pub(super) fn until(&self, end: BootNs) -> Self {
        Self {
            end,
            ..self.clone()
        }
    }

    /// The reader's time zone.
    pub(super) fn zone(&self) -> TimeZone {
        self.zone.clone().unwrap_or(TimeZone::UTC)
    }

    /// The start of the recording.
    pub fn start(&self) -> BootNs {
        self.start
    }

    /// The end of the recording.
    pub fn end(&self) -> BootNs {
        self.end
    }

    /// How long the recording is.
    pub fn duration(&self) -> DurationNs {
        self.end - self.start
    }

    /// The time since the start of the recording.
    pub fn offset(&self, boot: BootNs) -> DurationNs {
        boot - self.start
    }

    /// An instant on every clock.
    pub fn at(&self, boot_ns: BootNs) -> Instant {
        Instant {
            boot_ns,
            offset_ns: self.offset(boot_ns),
            wall_ns: self.to_wall(boot_ns),
        }
    }

    /// `12:03:07 UTC (+83.2s)`, or with the offset of the reader's time zone; with the date where
    /// the recording is longer than a day.
    pub fn when(&self, at: Instant) -> String {
        words::when(at, self.duration(), self.zone.as_ref())
    }

    /// `2026-03-01 12:01:44 UTC`, or with the offset of the reader's time zone.
    pub fn date_and_time(&self, boot: BootNs) -> Option<String> {
        words::date_and_time(self.to_wall(boot)?, self.zone.as_ref())
    }

    /// The wall time (UTC) of an instant, by the last clock reading before it; `None` when the
    /// recording holds no clock reading.
    pub fn to_wall(&self, boot: BootNs) -> Option<WallNs> {
        self.clocks.to_wall(boot)
    }

    /// The instant of a wall time; `None` when the recording holds no clock reading.
    pub fn to_boot(&self, wall: WallNs) -> Option<BootNs> {
        self.clocks.find(Clock::Wall, wall.0).map(|found| found.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(boot: i64, wall: i64) -> ClockReading {
        ClockReading {
            boot_ns: BootNs(boot),
            monotonic_ns: boot,
            wall_ns: WallNs(wall),
        }
    }

    #[test]
    fn a_closed_recording_spans_its_own_clock_readings() {
        let clock = RunClock::new(
            vec![reading(100, 1_100), reading(200, 1_200)],
            Some((BootNs(90), BootNs(190))),
            true,
        );
        assert_eq!((clock.start(), clock.end()), (BootNs(100), BootNs(200)));
    }

    #[test]
    fn a_recording_that_was_cut_off_ends_with_its_last_row() {
        let observed = Some((BootNs(110), BootNs(500)));
        let clock = RunClock::new(vec![reading(100, 1_100)], observed, false);
        assert_eq!(clock.duration(), DurationNs(400));
    }

    #[test]
    fn wall_time_follows_a_step_of_the_clock() {
        let clock = RunClock::new(vec![reading(0, 1_000), reading(50, 5_050)], None, true);
        assert_eq!(clock.to_wall(BootNs(10)), Some(WallNs(1_010)));
        assert_eq!(clock.to_wall(BootNs(60)), Some(WallNs(5_060)));
        assert_eq!(clock.to_wall(BootNs(-5)), Some(WallNs(995)));
        assert_eq!(clock.to_boot(WallNs(5_060)), Some(BootNs(60)));
    }

    #[test]
    fn without_a_clock_reading_wall_time_is_unknown() {
        let clock = RunClock::new(Vec::new(), Some((BootNs(1), BootNs(9))), true);
        assert_eq!(clock.to_wall(BootNs(5)), None);
        assert_eq!(clock.duration(), DurationNs(8));
    }
}
