//! Requests of a load experiment as slices, those that are under way at once side by side.
//!
//! They are read in the order of their ends. So a request can follow, on a track, whichever other
//! ended before it was sent; the one that ended last leaves the others room.

use memtrace_model::tables::{RequestOutcome, RequestRow};
use memtrace_model::{BootNs, Label, RowSource};
use memtrace_perfetto::{Note, Trace, Track};
use std::collections::BTreeSet;

/// Reads `request` and writes them.
pub(super) fn write<S: RowSource>(trace: &mut Trace<'_>, source: &S) -> Result<(), S::Error> {
    let mut slots = Slots::default();
    source.scan(&[], |row: RequestRow| slots.put(trace, &row))
}

/// A track for each request that is under way at once with others.
#[derive(Debug, Default)]
struct Slots {
    /// Under which they stand.
    all: Option<Track>,
    tracks: Vec<Track>,
    /// Until when each is taken.
    taken: BTreeSet<(BootNs, usize)>,
}

impl Slots {
    fn put(&mut self, trace: &mut Trace<'_>, row: &RequestRow) {
        // A recording that was made up can have an end before its begin.
        let end = row.boot_ns.max(row.start_boot_ns);
        let track = self.track(trace, row.start_boot_ns, end);
        let outcome = row.outcome.map(Label::as_str);
        let number = |key, number: Option<i64>| Some((key, Note::Integer(number?)));
        let notes = [
            Some(("load_run", Note::Text(&row.load_run))),
            number("request", Some(row.request)),
            number("attempt", Some(row.attempt)),
            number("prompt_tokens", row.prompt_tokens),
            number("output_tokens", row.output_tokens),
            number("http_status", row.http_status.map(i64::from)),
            outcome.map(|outcome| ("outcome", Note::Text(outcome))),
            row.error
                .as_deref()
                .map(|error| ("error", Note::Text(error))),
        ];
        let name = match row.outcome {
            Some(RequestOutcome::Ok) | None => row.condition.clone(),
            Some(failed) => format!("{}: {}", row.condition, failed.shown()),
        };
        let what = ("request", name.as_str());
        trace.begin(row.start_boot_ns, track, what, notes.into_iter().flatten());
        let first = row.first_token_boot_ns;
        if let Some(first) = first.filter(|first| (row.start_boot_ns..=end).contains(first)) {
            trace.begin(
                row.start_boot_ns,
                track,
                ("request", "to the first token"),
                [],
            );
            trace.end(first, track);
        }
        trace.end(end, track);
    }

    fn track(&mut self, trace: &mut Trace<'_>, begin: BootNs, end: BootNs) -> Track {
        let free = self
            .taken
            .range(..=(begin, usize::MAX))
            .next_back()
            .copied();
        let slot = match free {
            Some((until, slot)) => {
                self.taken.remove(&(until, slot));
                slot
            }
            None => {
                let all = *self
                    .all
                    .get_or_insert_with(|| trace.track(None, "requests"));
                let slot = self.tracks.len();
                self.tracks.push(trace.track(Some(all), "under way"));
                slot
            }
        };
        self.taken.insert((end, slot));
        self.tracks[slot]
    }
}
