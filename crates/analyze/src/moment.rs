//! An instant as a person names it, and where it lies in a recording.

use super::clock::RunClock;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use memtrace_model::{BootNs, DurationNs, Instant, RunInfo, RunState, WallNs};
use std::str::FromStr;

pub(super) const SECOND_NS: i64 = 1_000_000_000;

/// How a time can be written, but for `peak` and `oom-kill`.
const FORMS: &str = "an offset from the start such as `+83.2s` or `+1h02m`, a time of day (UTC; \
    with --local-time: yours) such as `12:03:07`, or RFC 3339 such as `2026-03-01T12:03:07Z`";

/// An instant of a recording: `peak`, `oom-kill`, `+83.2s`, `+1h02m`, `12:03:07`, or RFC 3339. What names no
/// time zone is in the reader's: [`Options::zone`](super::Options::zone).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The simultaneous peak.
    Peak,
    /// The last OOM kill.
    OomKill,
    /// Time since the start of the recording.
    Offset(DurationNs),
    /// Time before the end of the recording, or of the command that it ended with; its start where it is
    /// not so long.
    BeforeEnd(DurationNs),
    /// A time of day: its first occurrence in the recording.
    TimeOfDay {
        /// The time of day.
        time: Time,
        /// Whether it is in UTC whatever the reader's time zone is.
        is_utc: bool,
    },
    /// A date and time without a time zone.
    Civil(DateTime),
    /// A date and time.
    Wall(WallNs),
}

/// What was given is not a moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a time: use `peak`, `oom-kill`, {forms}", forms = FORMS)]
pub struct ParseMomentError(String);

impl ParseMomentError {
    /// The same of the start or end of a window, which `peak` and `oom-kill` can't be.
    pub fn of_window(&self) -> String {
        format!("`{}` is not a time: use {FORMS}", self.0)
    }
}

/// A moment that the recording does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MomentError {
    /// Outside of what was recorded.
    #[error(
        "that time is {} the recording, which is {:.1} s long; offsets count from its start, \
         times of day are UTC without --local-time",
        if *is_before { "before" } else { "after" },
        length_ns.as_secs_f64()
    )]
    Outside {
        /// Whether it is before the start, or else after the end.
        is_before: bool,
        /// The length of the recording.
        length_ns: DurationNs,
    },
    /// A window that begins or ends at what is known only when more has been read.
    #[error(
        "`peak` and `oom-kill` are neither its start nor its end; `--at peak` shows when that was"
    )]
    NoEdge,
    /// A recording without OOM kills.
    #[error("no OOM kill was recorded")]
    NoKill,
    /// A window that ends before it begins.
    #[error("its start must be before its end")]
    EmptyWindow,
    /// A wall time, in a recording that holds no clock reading.
    #[error("the recording has no wall-clock time; use an offset such as `+83.2s`")]
    NoWallClock,
}

impl Moment {
    /// Whether it is a time of a clock on the wall, which one recording has and another has not.
    pub fn is_wall(self) -> bool {
        matches!(
            self,
            Self::TimeOfDay { .. } | Self::Civil(_) | Self::Wall(_)
        )
    }

    /// Whether it is the start of the last part of a recording.
    pub fn is_of_last(self) -> bool {
        matches!(self, Self::BeforeEnd(_))
    }

    /// What was asked for with it where a recording is shorter, by more than rounding.
    pub(super) fn beyond(self, clock: &RunClock) -> Option<DurationNs> {
        match self {
            Self::BeforeEnd(length) => {
                Some(length).filter(|length| length.0 > clock.duration().0 + SECOND_NS)
            }
            _ => None,
        }
    }

    /// Whether a recording has it. `last` is the time of its last row where it was not closed; `zone`
    /// is the reader's time zone, UTC without.
    pub fn is_in(self, info: &RunInfo, last: Option<BootNs>, zone: Option<TimeZone>) -> bool {
        let first = info.clocks.first().map(|reading| reading.boot_ns);
        let is_closed = info.state != RunState::Recording;
        let clock = RunClock::new(info.clocks.clone(), first.zip(last), is_closed);
        self.resolve(&clock.in_zone(zone)).is_ok()
    }

    /// Where it lies; `None` for the peak, which is known only after the pass over the rows, and for
    /// an OOM kill, which the clock does not know.
    pub(super) fn resolve(self, clock: &RunClock) -> Result<Option<BootNs>, MomentError> {
        let boot = match self {
            Self::Peak | Self::OomKill => return Ok(None),
            Self::BeforeEnd(length) => clock.start().max(clock.end() + DurationNs(-length.0)),
            Self::Offset(offset) => clock.start() + offset,
            Self::Wall(wall) => clock.to_boot(wall).ok_or(MomentError::NoWallClock)?,
            Self::TimeOfDay { time, is_utc } => {
                let zone = if is_utc { TimeZone::UTC } else { clock.zone() };
                time_of_day(time, &zone, clock).ok_or(MomentError::NoWallClock)?
            }
            Self::Civil(time) => {
                let wall = wall(time.to_zoned(clock.zone()).ok());
                let boot = wall.and_then(|wall| clock.to_boot(wall));
                boot.ok_or(MomentError::NoWallClock)?
            }
        };
        // A second of grace on both sides: people read times that were rounded.
        let is_before = boot.0 < clock.start().0 - SECOND_NS;
        if is_before || boot.0 > clock.end().0 + SECOND_NS {
            return Err(MomentError::Outside {
                is_before,
                length_ns: clock.duration(),
            });
        }
        Ok(Some(boot.clamp(clock.start(), clock.end())))
    }
}

/// An instant as a command takes it, `+92.461s`: to the millisecond, and not later.
pub(super) fn offset(at: Instant) -> String {
    let millis = at.offset_ns.0.max(0) / 1_000_000;
    format!("+{}.{:03}s", millis / 1_000, millis % 1_000)
}

/// Where a window begins and ends: not before memory is first known, and where that is not said with the
/// recording.
pub(super) fn window(
    from: Option<Moment>,
    to: Option<Moment>,
    first_known: Option<BootNs>,
    clock: &RunClock,
) -> Result<[BootNs; 2], MomentError> {
    let resolve = |moment: Option<Moment>, default| match moment {
        Some(moment) => moment.resolve(clock)?.ok_or(MomentError::NoEdge),
        None => Ok(default),
    };
    let end = resolve(to, clock.end())?;
    let begin = resolve(from, clock.start())?;
    let known = first_known.filter(|first| (begin..end).contains(first));
    let begin = known.unwrap_or(begin);
    match begin < end {
        true => Ok([begin, end]),
        false => Err(MomentError::EmptyWindow),
    }
}

fn time_of_day(time: Time, zone: &TimeZone, clock: &RunClock) -> Option<BootNs> {
    let start = clock.to_wall(clock.start())?.0 - SECOND_NS;
    let start = Timestamp::from_nanosecond(i128::from(start)).ok()?;
    let start = start.to_zoned(zone.clone());
    let on = |date: Date| date.to_datetime(time).to_zoned(zone.clone()).ok();
    let today = on(start.date()).filter(|today| *today >= start);
    let at = today.or_else(|| on(start.date().tomorrow().ok()?));
    clock.to_boot(wall(at)?)
}

fn wall(time: Option<Zoned>) -> Option<WallNs> {
    let nanoseconds = time?.timestamp().as_nanosecond();
    i64::try_from(nanoseconds).ok().map(WallNs)
}

impl Moment {
    /// The start of the last part of a recording, of a length such as `1h` or `90s`.
    ///
    /// # Errors
    /// When it is no length.
    pub fn of_last(length: &str) -> Result<Self, String> {
        let length = length.trim();
        parse_offset(length).map(Self::BeforeEnd).ok_or_else(|| {
            format!("`{length}` is not a length of time: write it like 30s, 5m, 1h30m or 1d")
        })
    }
}

impl FromStr for Moment {
    type Err = ParseMomentError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let trimmed = text.trim();
        let moment = match trimmed.strip_prefix('+') {
            Some(offset) => parse_offset(offset).map(Self::Offset),
            None if trimmed == "peak" => Some(Self::Peak),
            None if trimmed == "oom-kill" => Some(Self::OomKill),
            None => parse_time_of_day(trimmed).or_else(|| parse_date_and_time(trimmed)),
        };
        moment.ok_or_else(|| ParseMomentError(text.to_owned()))
    }
}

/// `83.2s`, `500ms`, `14m23s`, `1h02m`; a bare number counts as seconds.
fn parse_offset(text: &str) -> Option<DurationNs> {
    let mut rest = text;
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (number, tail) = rest.split_at(digits.unwrap_or(rest.len()));
        let unit_end = tail
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let unit_seconds = match unit.trim() {
            "ms" => 1e-3,
            "s" => 1.0,
            "" if rest == text => 1.0,
            "m" | "min" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * unit_seconds;
        rest = tail.trim_start();
    }
    let is_given = !text.is_empty() && total < i64::MAX as f64 / 1e9;
    is_given.then_some(DurationNs((total * 1e9).round() as i64))
}

fn parse_time_of_day(text: &str) -> Option<Moment> {
    let is_utc = text.ends_with('Z');
    let time: Time = text.strip_suffix('Z').unwrap_or(text).parse().ok()?;
    let is_only_a_time = text.contains(':') && !text.contains(['-', 'T', ' ']);
    is_only_a_time.then_some(Moment::TimeOfDay { time, is_utc })
}

fn parse_date_and_time(text: &str) -> Option<Moment> {
    if let Ok(time) = text.parse::<Timestamp>() {
        let nanoseconds = i64::try_from(time.as_nanosecond()).ok()?;
        return Some(Moment::Wall(WallNs(nanoseconds)));
    }
    let civil: DateTime = text.parse().ok()?;
    text.contains(':').then_some(Moment::Civil(civil))
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrace_model::ClockReading;

    // 2026-03-01T23:59:00Z, for two minutes.
    const START: i64 = 1_772_409_540 * SECOND_NS;

    fn clock() -> RunClock {
        let reading = |boot: i64| ClockReading {
            boot_ns: BootNs(boot),
            monotonic_ns: boot,
            wall_ns: WallNs(START - 1_000 + boot),
        };
        let readings = vec![reading(1_000), reading(1_000 + 120 * SECOND_NS)];
        RunClock::new(readings, None, true)
    }

    fn offset_of(text: &str) -> Result<f64, MomentError> {
        offset_in(None, text)
    }

    fn offset_in(zone: Option<TimeZone>, text: &str) -> Result<f64, MomentError> {
        let moment: Moment = text.parse().unwrap();
        let clock = clock().in_zone(zone);
        let boot = moment.resolve(&clock)?.unwrap();
        Ok(clock.offset(boot).as_secs_f64())
    }

    #[test]
    fn a_moment_is_an_offset_a_time_of_day_or_a_date_and_time() {
        let cases = [
            ("+83.2s", 83.2),
            ("+83.2", 83.2),
            ("+1m3.5s", 63.5),
            ("+1m 3s", 63.0),
            ("+500ms", 0.5),
            ("23:59:30", 30.0),
            ("23:59:30.250", 30.25),
            ("00:00:10", 70.0),
            ("23:59:30Z", 30.0),
            ("2026-03-01T23:59:07Z", 7.0),
            ("2026-03-02T00:59:07+01:00", 7.0),
            ("2026-03-01 23:59:07", 7.0),
        ];
        for (text, seconds) in cases {
            let offset = offset_of(text).unwrap();
            assert!((offset - seconds).abs() < 1e-6, "{text}: {offset}");
        }
        assert_eq!("peak".parse(), Ok(Moment::Peak));
    }

    #[test]
    fn what_names_no_time_zone_is_in_the_readers() {
        let zone = Some(TimeZone::fixed(jiff::tz::offset(2)));
        let cases = [
            ("01:59:30", 30.0),
            ("02:00:10", 70.0),
            ("23:59:30Z", 30.0),
            ("2026-03-02 01:59:07", 7.0),
            ("2026-03-01T23:59:07Z", 7.0),
        ];
        for (text, seconds) in cases {
            let offset = offset_in(zone.clone(), text).unwrap();
            assert!((offset - seconds).abs() < 1e-6, "{text}: {offset}");
        }
        assert!(offset_in(zone, "23:59:30").is_err());
    }

    #[test]
    fn a_window_begins_when_memory_is_known_and_ends_with_the_recording_if_nothing_else_is_said() {
        let clock = clock();
        let moment = |text: &str| (!text.is_empty()).then(|| text.parse().unwrap());
        let of = |from, to| {
            let first_known = clock.start() + DurationNs(SECOND_NS);
            let window = window(moment(from), moment(to), Some(first_known), &clock)?;
            Ok(window.map(|at| clock.offset(at).as_secs_f64()))
        };
        assert_eq!(of("+10s", "23:59:30"), Ok([10.0, 30.0]));
        assert_eq!(of("", "+30s"), Ok([1.0, 30.0]));
        assert_eq!(of("", "+1s"), Ok([0.0, 1.0]), "nothing is known of it");
        assert_eq!(of("+0s", "+30s"), Ok([1.0, 30.0]));
        assert_eq!(of("+0s", "+1s"), Ok([0.0, 1.0]), "nothing is known of it");
        assert_eq!(of("+10s", ""), Ok([10.0, 120.0]));
        for (length, start) in [("30s", 90.0), ("2", 118.0), ("1d", 0.0)] {
            let last = Moment::of_last(length).unwrap();
            let window = super::window(Some(last), None, None, &clock).unwrap();
            let start_at = clock.offset(window[0]).as_secs_f64();
            assert!((start_at - start).abs() < 1e-6, "{length}: {start_at}");
        }
        assert!(Moment::of_last("soon").is_err());
        assert_eq!(of("oom-kill", ""), Err(MomentError::NoEdge));
        assert_eq!(of("+30s", "+10s"), Err(MomentError::EmptyWindow));
        assert_eq!(of("peak", ""), Err(MomentError::NoEdge));
        assert!(of("", "+200s").is_err());
    }

    #[test]
    fn a_rounded_time_at_the_edge_still_counts() {
        assert!(offset_of("+120.4s").is_ok());
        assert!(offset_of("23:58:59.5").is_ok());
    }

    #[test]
    fn a_time_outside_of_the_recording_says_where_it_lies() {
        for (text, is_before) in [("+200s", false), ("2026-02-01T00:00:00Z", true)] {
            let length_ns = DurationNs(120 * SECOND_NS);
            let error = MomentError::Outside {
                is_before,
                length_ns,
            };
            assert_eq!(offset_of(text), Err(error));
        }
    }

    #[test]
    fn anything_else_is_refused_with_what_would_do() {
        for text in [
            "",
            "+",
            "+s",
            "+5x",
            "noon",
            "2026-03-01",
            "83s",
            "+1e5s",
            "+5s5",
        ] {
            assert!(text.parse::<Moment>().is_err(), "{text}");
        }
    }
}
