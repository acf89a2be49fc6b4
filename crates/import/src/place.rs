//! Where what a file tells stands in a recording: rows of `request`, and a phase for each condition.

use super::clocks::{Clock, Clocks, TIME_ERROR_MAX};
use super::file::{Asked, LoadFile, REQUESTS_MAX, Run, Sent};
use super::known::{Changed, Known};
use super::median::median;
use jiff::Timestamp;
use memtrace_model::{
    BootNs, DurationNs, LoadCondition, MarkKind, MarkRow, MarkSource, RequestOutcome, RequestRow,
    WallNs, cut_at,
};
use serde_json::{Map, Value};
use std::fmt;
use std::path::Path;

/// The longest name of a file and of a model.
const NAME_BYTES_MAX: usize = 256;

/// The longest part of a file's name in that of a run.
const RUN_BYTES_MAX: usize = 128;

/// Rows for a recording that it does not have yet.
#[derive(Clone, Debug, Default)]
pub struct Placed {
    /// The requests, by condition.
    pub runs: Vec<PlacedRun>,
    /// Begin and end of each condition.
    pub marks: Vec<MarkRow>,
    /// Requests of the file within the recording, with those that it has already.
    pub within_count: usize,
    /// Requests that were not, or not wholly, sent while it was recorded.
    pub outside_count: usize,
    /// By how much the times may be wrong, at most.
    pub error: DurationNs,
}

/// Requests of a condition.
#[derive(Clone, Debug)]
pub struct PlacedRun {
    load_run: String,
    condition: String,
    /// On the clock of the recording.
    requests: Vec<Sent>,
}

/// The requests of these in the order of their ends, each a row only when it is asked for: a row takes
/// six times as much.
///
/// # Errors
/// When the recording does not say how the clocks stood.
pub fn rows<'a>(
    placed: &'a [Placed],
    clocks: &'a Clocks,
) -> Result<impl Iterator<Item = RequestRow> + use<'a>, PlaceError> {
    let wall = clocks.walls().ok_or(PlaceError::NoClock)?;
    let runs: Vec<&PlacedRun> = placed.iter().flat_map(|placed| &placed.runs).collect();
    let mut order: Vec<(i64, u32, u32)> = Vec::new();
    for (run, of_run) in runs.iter().enumerate() {
        let ends = of_run.requests.iter().map(|sent| sent.end_ns);
        // There are at most a million.
        order.extend(
            ends.enumerate()
                .map(|(at, end)| (end, run as u32, at as u32)),
        );
    }
    order.sort_unstable();
    Ok(order.into_iter().map(move |(end, run, at)| {
        let run = runs[run as usize];
        row(run, &run.requests[at as usize], wall(BootNs(end)))
    }))
}

impl Placed {
    /// Has it known, for the files that follow.
    pub fn note(&self, known: &mut Known) {
        for run in &self.runs {
            known.sent(&run.load_run, &run.requests);
        }
        known.order();
        self.marks.iter().for_each(|row| known.mark(row));
    }

    /// Requests that it has.
    pub fn request_count(&self) -> usize {
        self.runs.iter().map(|run| run.requests.len()).sum()
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
        "place its requests: they were sent {requests} of {clock}, and the recording is \
         {recording}; it is from another time, another boot or another machine"
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
        "place its requests: {mover} while they were sent, and their times can be wrong by {} ms; \
         at most {} ms are accepted",
        error.0 / 1_000_000,
        TIME_ERROR_MAX.0 / 1_000_000
    )]
    Uncertain {
        /// What has moved it.
        mover: &'static str,
        /// By how much times may be wrong.
        error: DurationNs,
    },
    /// The recording has another state of it.
    #[error(transparent)]
    Changed(#[from] Changed),
    /// With those of other files there are too many.
    #[error(
        "import it: with it the recording would have more than {REQUESTS_MAX} imported requests, \
         which is more than a report reads"
    )]
    TooMany,
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
        let reported = |ns: i64| match self.clock {
            Clock::Monotonic => format!("{:.1} s", ns as f64 / 1e9),
            Clock::Wall => match Timestamp::from_nanosecond(ns.into()) {
                Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
                Err(_) => format!("{:.1} s", ns as f64 / 1e9),
            },
        };
        write!(
            f,
            "from {} to {}",
            reported(self.from_ns),
            reported(self.to_ns)
        )
    }
}

/// Puts what a file tells into a recording that went on from `span[0]` to `span[1]` and has what is
/// known. `generator` is the generator's name, `file` the file's.
///
/// # Errors
/// When nothing of it was sent within, when that is not certain, or when the recording has another
/// state of it.
pub fn place(
    (generator, file): (&str, &str),
    reported: LoadFile,
    clocks: &Clocks,
    span: [BootNs; 2],
    known: &Known,
) -> Result<Placed, PlaceError> {
    let mut placed = Placed::default();
    let mut names = Names::of(generator, file);
    let sent = stretch_of(&reported);
    for (number, run) in reported.runs.into_iter().enumerate() {
        let mut condition = condition(number, &run);
        condition.generator = Some(generator.to_owned());
        let shown = name_of(&condition).unwrap_or_else(|| generator.to_owned());
        let mut requests = run.requests;
        bring(&mut requests, reported.clock, clocks, span, &mut placed)?;
        let begin = requests.iter().map(|sent| BootNs(sent.start_ns)).min();
        let end = requests.iter().map(|sent| BootNs(sent.end_ns)).max();
        let (Some(begin), Some(end)) = (begin, end) else {
            continue;
        };
        placed.within_count += requests.len();
        condition.load_run = match known.name_of(&requests)? {
            Some(name) => name.to_owned(),
            None => names.next(known),
        };
        for (kind, at, attributes) in [
            (
                MarkKind::Begin,
                begin,
                of_begin(&condition, file, &run.asked),
            ),
            (MarkKind::End, end, of_end(&condition, &requests)),
        ] {
            if !known.is_new_mark(&condition.load_run, kind) {
                continue;
            }
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
        requests.retain(|sent| known.is_new_request(sent));
        placed.runs.push(PlacedRun {
            load_run: condition.load_run,
            condition: shown,
            requests,
        });
    }
    if placed.within_count == 0 {
        return Err(outside(sent, clocks, span));
    }
    match placed.request_count() + known.request_count() > REQUESTS_MAX {
        true => Err(PlaceError::TooMany),
        false => Ok(placed),
    }
}

/// Brings the requests of a run to the clock of the recording, and leaves those that lie within it.
fn bring(
    requests: &mut Vec<Sent>,
    clock: Clock,
    clocks: &Clocks,
    span: [BootNs; 2],
    placed: &mut Placed,
) -> Result<(), PlaceError> {
    let find = |time_ns| clocks.find(clock, time_ns).ok_or(PlaceError::NoClock);
    let mut within = 0;
    for request in 0..requests.len() {
        let sent = &mut requests[request];
        let [start, end] = [find(sent.start_ns)?, find(sent.end_ns)?];
        let first = sent.first_token_ns.map(find).transpose()?;
        if start.at < span[0] || span[1] < end.at {
            placed.outside_count += 1;
            continue;
        }
        let error = start.error.max(end.error);
        if error > TIME_ERROR_MAX {
            let mover = clock.mover();
            return Err(PlaceError::Uncertain { mover, error });
        }
        placed.error = placed.error.max(error);
        (sent.start_ns, sent.end_ns) = (start.at.0, end.at.0);
        sent.first_token_ns = first.map(|first| first.at.0);
        // Below 2^32: at most a million, and some ms.
        (sent.request, sent.error_ns) = (request as u32, error.0 as u32);
        requests.swap(within, request);
        within += 1;
    }
    requests.truncate(within);
    Ok(())
}

/// Names for the runs of a file: `guidellm/results`, `guidellm/results#2`. No two runs of a recording
/// have the same, also of two files that are called the same.
struct Names {
    stem: String,
    given_count: usize,
}

impl Names {
    fn of(generator: &str, file: &str) -> Self {
        let stem = Path::new(file).file_stem().unwrap_or_default();
        let mut stem = stem.to_string_lossy().into_owned();
        cut_at(&mut stem, RUN_BYTES_MAX);
        Self {
            stem: format!("{generator}/{stem}"),
            given_count: 0,
        }
    }

    fn next(&mut self, known: &Known) -> String {
        loop {
            self.given_count += 1;
            let name = match self.given_count {
                1 => self.stem.clone(),
                count => format!("{}#{count}", self.stem),
            };
            if !known.has_run(&name) {
                return name;
            }
        }
    }
}

/// The attributes of a phase, as they are known when it begins.
fn of_begin(condition: &LoadCondition, file: &str, asked: &Asked) -> Map<String, Value> {
    let mut attributes = match serde_json::to_value(condition) {
        Ok(Value::Object(attributes)) => attributes,
        _ => Map::new(),
    };
    for (what, text) in [("file", Some(file)), ("model", asked.model.as_deref())] {
        if let Some(text) = text {
            let mut text = text.to_owned();
            // Long attributes are not looked at.
            cut_at(&mut text, NAME_BYTES_MAX);
            attributes.insert(what.to_owned(), text.into());
        }
    }
    attributes
}

/// What came of it.
fn of_end(condition: &LoadCondition, requests: &[Sent]) -> Map<String, Value> {
    let answered = requests
        .iter()
        .filter(|sent| sent.failure.is_none())
        .count();
    let attributes = [
        ("load_run", Value::from(condition.load_run.as_str())),
        ("answered_requests", answered.into()),
        ("failed_requests", (requests.len() - answered).into()),
    ];
    let attributes = attributes.map(|(name, value)| (name.to_owned(), value));
    Map::from_iter(attributes)
}

/// From when to when the requests of a file were sent.
fn stretch_of(reported: &LoadFile) -> Stretch {
    let sent = || reported.runs.iter().flat_map(|run| &run.requests);
    Stretch {
        clock: reported.clock,
        from_ns: sent().map(|sent| sent.start_ns).min().unwrap_or(0),
        to_ns: sent().map(|sent| sent.end_ns).max().unwrap_or(0),
    }
}

fn outside(requests: Stretch, clocks: &Clocks, [from, to]: [BootNs; 2]) -> PlaceError {
    let clock = requests.clock;
    let shown = |at| clocks.shown(clock, at);
    let (Some(from_ns), Some(to_ns)) = (shown(from), shown(to)) else {
        return PlaceError::NoClock;
    };
    PlaceError::Outside {
        clock: match clock {
            Clock::Monotonic => "CLOCK_MONOTONIC",
            Clock::Wall => "the wall clock",
        },
        requests,
        recording: Stretch {
            clock,
            from_ns,
            to_ns,
        },
    }
}

/// What was asked for, and where the file does not say it what most requests were like.
fn condition(number: usize, run: &Run) -> LoadCondition {
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
        load_run: String::new(),
        generator: None,
        condition: number as i64,
        input_tokens: input_tokens
            .or_else(|| median(requests().filter_map(|one| one.prompt_tokens.map(i64::from)))),
        output_tokens: output_tokens
            .or_else(|| median(answered().filter_map(|one| one.output_tokens.map(i64::from)))),
        concurrency,
        request_rate,
        prefix_reuse: None,
        requests: None,
        seed: None,
    }
}

/// `in512-out64-c8`: what is known of it, as `memtrace load plan` names conditions.
fn name_of(condition: &LoadCondition) -> Option<String> {
    let count = |what: &str, count: Option<i64>| count.map(|count| format!("{what}{count}"));
    let parts = [
        count("in", condition.input_tokens),
        count("out", condition.output_tokens),
        count("c", condition.concurrency),
        condition.request_rate.map(|rate| format!("r{rate}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("-"))
}

fn row(run: &PlacedRun, sent: &Sent, ts: WallNs) -> RequestRow {
    let failure = sent.failure.as_deref();
    RequestRow {
        ts,
        boot_ns: BootNs(sent.end_ns),
        load_run: run.load_run.clone(),
        condition: run.condition.clone(),
        request: sent.request.into(),
        start_boot_ns: BootNs(sent.start_ns),
        first_token_boot_ns: sent.first_token_ns.map(BootNs),
        prompt_tokens: sent.prompt_tokens.map(i64::from),
        output_tokens: sent.output_tokens.map(i64::from),
        http_status: failure.and_then(|failure| failure.http_status),
        outcome: Some(failure.map_or(RequestOutcome::Ok, |failure| failure.outcome)),
        error: failure.map(|failure| failure.words.clone()),
        time_error_ns: Some(DurationNs(sent.error_ns.into())),
        ..RequestRow::default()
    }
}

#[cfg(test)]
mod tests;
