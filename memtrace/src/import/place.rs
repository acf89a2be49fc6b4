//! Where what a file tells stands in a recording: rows of `request`, and a phase for each condition.

use super::clocks::{Clock, Clocks, Found};
use super::file::{Asked, LoadFile, Run, Sent};
use super::median::median;
use crate::model::{
    BootNs, DurationNs, LoadCondition, MarkKind, MarkRow, MarkSource, RequestOutcome, RequestRow,
    cut_at,
};
use jiff::Timestamp;
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::fmt;

/// A time that is more uncertain than this is of no use beside memory that moves.
const ERROR_MAX: DurationNs = DurationNs(5_000_000);

/// The longest name of a file and of a model.
const NAME_BYTES_MAX: usize = 256;

/// Rows for a recording.
#[derive(Clone, Debug, Default)]
pub struct Placed {
    /// The requests.
    pub requests: Vec<RequestRow>,
    /// Begin and end of each condition.
    pub marks: Vec<MarkRow>,
    /// Requests that were not, or not wholly, sent while it was recorded.
    pub outside_count: usize,
    /// By how much the times may be wrong, at most.
    pub error: DurationNs,
}

/// What of a recording is known when a file is imported.
#[derive(Debug, Default)]
pub struct Known {
    requests: HashSet<(String, String, i64, BootNs, BootNs)>,
    marks: HashSet<(String, BootNs, Option<MarkKind>, Option<i64>)>,
}

impl Known {
    /// Takes a row that is there.
    pub fn request(&mut self, row: &RequestRow) {
        self.requests.insert(request_key(row));
    }

    /// Takes a row that is there; those that no import made are of no interest.
    pub fn mark(&mut self, row: &MarkRow) {
        if row.source == Some(MarkSource::Import) {
            self.marks.insert(mark_key(row));
        }
    }
}

fn request_key(row: &RequestRow) -> (String, String, i64, BootNs, BootNs) {
    let (run, condition) = (row.load_run.clone(), row.condition.clone());
    (run, condition, row.request, row.start_boot_ns, row.boot_ns)
}

fn mark_key(row: &MarkRow) -> (String, BootNs, Option<MarkKind>, Option<i64>) {
    (row.name.clone(), row.boot_ns, row.kind, row.span)
}

impl Placed {
    /// Leaves out what is there already, and what a file before this one has brought.
    pub fn new_to(mut self, known: &mut Known) -> Self {
        self.requests
            .retain(|row| known.requests.insert(request_key(row)));
        self.marks.retain(|row| known.marks.insert(mark_key(row)));
        self
    }

    /// Conditions that it has.
    pub fn condition_count(&self) -> usize {
        self.marks.len() / 2
    }
}

/// Why a file has no place in a recording.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlaceError {
    /// The recording does not say how the clocks stood.
    #[error("place its requests: the recording has no reading of the clocks")]
    NoClock,
    /// None of it was sent while it was recorded.
    #[error(
        "place its requests: they were sent {requests} of {clock}, and the recording is {recording}; \
         it is of another time, another boot or another machine"
    )]
    Outside {
        /// The clock of the file.
        clock: &'static str,
        /// From when to when they were sent.
        requests: Stretch,
        /// From when to when was recorded, on the same clock.
        recording: Stretch,
    },
    /// The clock of the file was moved meanwhile.
    #[error(
        "place its requests: {mover} while they were sent, and their times can be wrong by {} ms, \
         of which 5 are the most",
        error.0 / 1_000_000
    )]
    Uncertain {
        /// What has moved it.
        mover: &'static str,
        /// By how much times may be wrong.
        error: DurationNs,
    },
}

/// A stretch of time on a clock that programs tell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    clock: Clock,
    from_ns: i64,
    to_ns: i64,
}

impl fmt::Display for Stretch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = |ns: i64| match self.clock {
            Clock::Monotonic => format!("{:.1} s", ns as f64 / 1e9),
            Clock::Wall => match Timestamp::from_nanosecond(ns.into()) {
                Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
                Err(_) => format!("{:.1} s", ns as f64 / 1e9),
            },
        };
        write!(f, "from {} to {}", told(self.from_ns), told(self.to_ns))
    }
}

/// Puts what a file tells into a recording that went on from `span[0]` to `span[1]`. `name` is the
/// generator's, `file` the file's.
///
/// # Errors
/// When nothing of it was sent within, or when that is not certain.
pub fn place(
    (name, file): (&str, &str),
    told: &LoadFile,
    clocks: &Clocks,
    span: [BootNs; 2],
) -> Result<Placed, PlaceError> {
    let mut placed = Placed::default();
    for (number, run) in told.runs.iter().enumerate() {
        let condition = condition(name, number, run);
        let shown = name_of(&condition);
        let mut bounds: Option<[BootNs; 2]> = None;
        let (mut answered, mut failed) = (0_usize, 0_usize);
        for (request, sent) in run.requests.iter().enumerate() {
            let find = |time_ns| clocks.find(told.clock, time_ns).ok_or(PlaceError::NoClock);
            let [start, end] = [find(sent.start_ns)?, find(sent.end_ns)?];
            let first = sent.first_token_ns.map(find).transpose()?;
            if start.at < span[0] || span[1] < end.at {
                placed.outside_count += 1;
                continue;
            }
            let error = start.error.max(end.error);
            if error > ERROR_MAX {
                let mover = told.clock.mover();
                return Err(PlaceError::Uncertain { mover, error });
            }
            placed.error = placed.error.max(error);
            let [begin, last] = bounds.unwrap_or([start.at, end.at]);
            bounds = Some([begin.min(start.at), last.max(end.at)]);
            match sent.failure {
                None => answered += 1,
                Some(_) => failed += 1,
            }
            let times = Times {
                start,
                first,
                end,
                error,
            };
            let row = row(&condition, &shown, request, sent, &times);
            placed.requests.push(RequestRow {
                ts: clocks.to_wall(end.at).ok_or(PlaceError::NoClock)?,
                ..row
            });
        }
        let Some([begin, end]) = bounds else {
            continue;
        };
        let mut of_begin = match serde_json::to_value(&condition) {
            Ok(Value::Object(attributes)) => attributes,
            _ => Map::new(),
        };
        for (what, text) in [("file", Some(file)), ("model", run.asked.model.as_deref())] {
            if let Some(text) = text {
                let mut text = text.to_owned();
                // Long attributes are not looked at.
                cut_at(&mut text, NAME_BYTES_MAX);
                of_begin.insert(what.to_owned(), text.into());
            }
        }
        let counts = [("answered_requests", answered), ("failed_requests", failed)];
        let of_end = counts.map(|(name, count)| (name.to_owned(), Value::from(count)));
        for (kind, at, attributes) in [
            (MarkKind::Begin, begin, of_begin),
            (MarkKind::End, end, Map::from_iter(of_end)),
        ] {
            placed.marks.push(MarkRow {
                ts: clocks.to_wall(at).ok_or(PlaceError::NoClock)?,
                boot_ns: at,
                name: shown.clone(),
                kind: Some(kind),
                // Conditions of one name can overlap.
                span: Some(begin.0),
                source: Some(MarkSource::Import),
                attributes: Some(Value::Object(attributes).to_string()),
                ..MarkRow::default()
            });
        }
    }
    match placed.requests.is_empty() {
        true => Err(outside(told, clocks, span)),
        false => Ok(placed),
    }
}

fn outside(told: &LoadFile, clocks: &Clocks, [from, to]: [BootNs; 2]) -> PlaceError {
    let sent = || told.runs.iter().flat_map(|run| &run.requests);
    let shown = |at| clocks.shown(told.clock, at);
    let (Some(from_ns), Some(to_ns)) = (shown(from), shown(to)) else {
        return PlaceError::NoClock;
    };
    let stretch = |from_ns, to_ns| Stretch {
        clock: told.clock,
        from_ns,
        to_ns,
    };
    PlaceError::Outside {
        clock: match told.clock {
            Clock::Monotonic => "CLOCK_MONOTONIC",
            Clock::Wall => "the wall clock",
        },
        requests: stretch(
            sent().map(|sent| sent.start_ns).min().unwrap_or(0),
            sent().map(|sent| sent.end_ns).max().unwrap_or(0),
        ),
        recording: stretch(from_ns, to_ns),
    }
}

/// What was asked for, and where the file does not say it what most requests were like.
fn condition(name: &str, number: usize, run: &Run) -> LoadCondition {
    let Asked {
        input_tokens,
        output_tokens,
        concurrency,
        request_rate,
        ..
    } = run.asked;
    let requests = || run.requests.iter();
    let answered = || requests().filter(|sent| sent.failure.is_none());
    LoadCondition {
        load_run: name.to_owned(),
        condition: number as i64,
        input_tokens: input_tokens
            .or_else(|| median(requests().filter_map(|one| one.prompt_tokens))),
        output_tokens: output_tokens
            .or_else(|| median(answered().filter_map(|one| one.output_tokens))),
        concurrency,
        request_rate,
        prefix_reuse: None,
        requests: None,
        seed: None,
    }
}

/// `in512-out64-c8`: what is known of it, as `memtrace load plan` names conditions.
fn name_of(condition: &LoadCondition) -> String {
    let count = |what: &str, count: Option<i64>| count.map(|count| format!("{what}{count}"));
    let parts = [
        count("in", condition.input_tokens),
        count("out", condition.output_tokens),
        count("c", condition.concurrency),
        condition.request_rate.map(|rate| format!("r{rate}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match parts.is_empty() {
        true => condition.load_run.clone(),
        false => parts.join("-"),
    }
}

/// When a request was under way.
struct Times {
    start: Found,
    first: Option<Found>,
    end: Found,
    error: DurationNs,
}

fn row(
    condition: &LoadCondition,
    name: &str,
    request: usize,
    sent: &Sent,
    times: &Times,
) -> RequestRow {
    let (outcome, error) = match &sent.failure {
        None => (RequestOutcome::Ok, None),
        Some((outcome, error)) => (*outcome, Some(error.clone())),
    };
    RequestRow {
        boot_ns: times.end.at,
        load_run: condition.load_run.clone(),
        condition: name.to_owned(),
        request: request as i64,
        start_boot_ns: times.start.at,
        first_token_boot_ns: times.first.map(|first| first.at),
        prompt_tokens: sent.prompt_tokens,
        output_tokens: sent.output_tokens,
        http_status: sent.http_status,
        outcome: Some(outcome),
        error,
        time_error_ns: Some(times.error),
        ..RequestRow::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ClockReading, WallNs};
    use std::collections::BTreeSet;

    const SECOND: i64 = 1_000_000_000;
    const WALL: i64 = 1_772_366_504 * SECOND;

    /// From 100 s to 160 s of a machine that has slept for 60.
    fn clocks() -> Clocks {
        let reading = |boot: i64| ClockReading {
            boot_ns: BootNs(boot * SECOND),
            monotonic_ns: (boot - 60) * SECOND,
            wall_ns: WallNs(WALL + boot * SECOND),
        };
        Clocks::of(vec![reading(100), reading(160)])
    }

    const SPAN: [BootNs; 2] = [BootNs(100 * SECOND), BootNs(160 * SECOND)];

    /// Two requests a run, from these seconds on.
    fn file(clock: Clock, begins: &[i64]) -> LoadFile {
        let sent = |begin: i64| Sent {
            start_ns: begin * SECOND,
            first_token_ns: Some((begin + 1) * SECOND),
            end_ns: (begin + 3) * SECOND,
            prompt_tokens: Some(512),
            output_tokens: Some(64),
            ..Sent::default()
        };
        let runs = begins.iter().enumerate().map(|(place, &begin)| Run {
            asked: Asked {
                concurrency: Some(2 << place),
                ..Asked::default()
            },
            requests: vec![sent(begin), sent(begin + 1)],
        });
        LoadFile {
            clock,
            runs: runs.collect(),
            unknown_fields: BTreeSet::new(),
        }
    }

    fn placed(file: &LoadFile) -> Result<Placed, PlaceError> {
        place(("tool", "a.json"), file, &clocks(), SPAN)
    }

    #[test]
    fn requests_stand_on_the_clock_of_the_recording_and_conditions_around_them() {
        let placed = placed(&file(Clock::Monotonic, &[50, 60])).unwrap();
        let first = &placed.requests[0];
        assert_eq!(first.start_boot_ns, BootNs(110 * SECOND));
        assert_eq!(first.ts, WallNs(WALL + 113 * SECOND));
        assert_eq!(first.condition, "in512-out64-c2");
        let marks: Vec<_> = placed
            .marks
            .iter()
            .map(|mark| mark.boot_ns.0 / SECOND)
            .collect();
        assert_eq!(marks, [110, 114, 120, 124]);
        let told = LoadCondition::of(placed.marks[2].attributes.as_deref().unwrap()).unwrap();
        assert_eq!((told.condition, told.concurrency), (1, Some(4)));
        assert_eq!((told.input_tokens, told.prefix_reuse), (Some(512), None));
        assert_eq!((placed.outside_count, placed.condition_count()), (0, 2));
        assert!(first.time_error_ns.unwrap() < ERROR_MAX);
    }

    #[test]
    fn what_was_sent_outside_is_left_out_and_a_file_of_it_alone_is_refused_with_both_spans() {
        let some = placed(&file(
            Clock::Wall,
            &[WALL / SECOND + 99, WALL / SECOND + 120],
        ))
        .unwrap();
        assert_eq!((some.outside_count, some.requests.len()), (1, 3));
        let none = placed(&file(Clock::Wall, &[WALL / SECOND + 1_000])).unwrap_err();
        assert_eq!(
            none.to_string(),
            "place its requests: they were sent from 2026-03-01 12:18:24 UTC to 2026-03-01 \
             12:18:28 UTC of the wall clock, and the recording is from 2026-03-01 12:03:24 UTC to \
             2026-03-01 12:04:24 UTC; it is of another time, another boot or another machine"
        );
        let none = placed(&file(Clock::Monotonic, &[5_000]))
            .unwrap_err()
            .to_string();
        assert!(
            none.contains("from 5000.0 s to 5004.0 s of CLOCK_MONOTONIC"),
            "{none}"
        );
        assert!(none.contains("from 40.0 s to 100.0 s"), "{none}");
    }

    #[test]
    fn a_clock_that_was_moved_meanwhile_is_no_clock_to_go_by() {
        let mut readings = vec![(100, 40), (130, 70), (160, 99)];
        let clocks = Clocks::of(
            readings
                .drain(..)
                .map(|(boot, monotonic)| ClockReading {
                    boot_ns: BootNs(boot * SECOND),
                    monotonic_ns: monotonic * SECOND,
                    wall_ns: WallNs(WALL + boot * SECOND),
                })
                .collect(),
        );
        let refused = place(("tool", "a"), &file(Clock::Monotonic, &[80]), &clocks, SPAN);
        let told = refused.unwrap_err().to_string();
        assert!(
            told.contains("the machine slept") && told.contains("by 1000 ms"),
            "{told}"
        );
        place(("tool", "a"), &file(Clock::Monotonic, &[50]), &clocks, SPAN).unwrap();
    }

    #[test]
    fn what_is_there_is_not_new() {
        let first = placed(&file(Clock::Monotonic, &[50])).unwrap();
        let mut known = Known::default();
        first.requests.iter().for_each(|row| known.request(row));
        first.marks.iter().for_each(|row| known.mark(row));
        let again = first.clone().new_to(&mut known);
        assert_eq!((again.requests.len(), again.marks.len()), (0, 0));
        // A file that has grown since.
        let grown = placed(&file(Clock::Monotonic, &[50, 60])).unwrap();
        let grown = grown.new_to(&mut known);
        assert_eq!((grown.requests.len(), grown.condition_count()), (2, 1));
    }
}
