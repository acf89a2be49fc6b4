//! Phases as slices, and marks of moments as instants: those of a process under its track, those of a
//! person on tracks of their own.

use super::annotations::Annotations;
use super::processes::ProcessTracks;
use crate::phases::{Slice, Timeline};
use memtrace_model::{BootNs, Order};
use memtrace_perfetto::{Nested, Trace, Track};
use std::cmp::Reverse;
use std::collections::BTreeMap;

pub(super) fn write(trace: &mut Trace<'_>, phases: &Timeline, tracks: &ProcessTracks, end: BootNs) {
    let mut owners: BTreeMap<Option<usize>, Owner> = BTreeMap::new();
    let mut slices: Vec<Slice<'_>> = phases.slices().collect();
    slices.order_by_key(|slice| {
        let begin = slice.begin.unwrap_or(slice.end.unwrap_or(end));
        (begin, Reverse(slice.end.unwrap_or(BootNs(i64::MAX))))
    });
    for slice in slices {
        let owner = owners.entry(slice.process);
        let owner = owner.or_insert_with(|| {
            let parent = slice.process.and_then(|process| tracks.get(process));
            Owner {
                parent,
                nested: Nested::new(parent, "phases"),
                marks: None,
            }
        });
        owner.put(trace, &slice);
    }
    for owner in owners.into_values() {
        owner.nested.finish(trace);
    }
}

/// Whose marks they are.
struct Owner {
    parent: Option<Track>,
    nested: Nested,
    marks: Option<Track>,
}

impl Owner {
    fn put(&mut self, trace: &mut Trace<'_>, slice: &Slice<'_>) {
        let annotations = Annotations::of(slice.attributes());
        match (slice.begin, slice.end) {
            (Some(begin), end) => {
                let drawn = memtrace_perfetto::Slice {
                    category: "phase",
                    name: slice.name,
                    begin,
                    end,
                };
                self.nested.put(trace, drawn, annotations.notes());
            }
            // A moment, or the end of something whose begin nobody marked.
            (None, Some(at)) => {
                let parent = self.parent;
                let track = *self
                    .marks
                    .get_or_insert_with(|| trace.track(parent, "marks"));
                let category = if slice.is_moment { "mark" } else { "end" };
                trace.instant(at, track, (category, slice.name), annotations.notes());
            }
            (None, None) => {}
        }
    }
}
