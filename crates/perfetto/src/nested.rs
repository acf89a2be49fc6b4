//! Slices of one owner on as few tracks as they fit on. Slices of one track have to be inside of each
//! other or apart: what overlaps another in part goes to a track of its own.

use super::trace::{Note, Trace, Track};
use memtrace_model::BootNs;

/// So many tracks are looked at for a place, the ones that were opened last.
const TRIED: usize = 64;

/// A slice that comes to its place.
#[derive(Clone, Copy, Debug)]
pub struct Slice<'a> {
    /// The category of the slice.
    pub category: &'a str,
    /// The name of the slice.
    pub name: &'a str,
    /// When it begins.
    pub begin: BootNs,
    /// `None` for one that has no end in the recording.
    pub end: Option<BootNs>,
}

/// The tracks of an owner.
#[derive(Debug)]
pub struct Nested {
    parent: Option<Track>,
    name: String,
    tracks: Vec<Open>,
}

/// A track, and the ends of what is open on it, the outermost first.
#[derive(Debug)]
struct Open {
    track: Track,
    ends: Vec<Option<BootNs>>,
}

impl Nested {
    /// Tracks of that name, declared when they are needed.
    pub fn new(parent: Option<Track>, name: impl Into<String>) -> Self {
        Self {
            parent,
            name: name.into(),
            tracks: Vec::new(),
        }
    }

    /// The same, of which the first is there.
    pub fn on(first: Track, parent: Option<Track>, name: impl Into<String>) -> Self {
        let mut nested = Self::new(parent, name);
        nested.tracks.push(Open::new(first));
        nested
    }

    /// Begins a slice. They come in the order of their begins, of those that begin together the
    /// longest first.
    pub fn put<'n>(
        &mut self,
        trace: &mut Trace<'_>,
        slice: Slice<'_>,
        notes: impl IntoIterator<Item = (&'n str, Note<'n>)>,
    ) {
        let newest = self.tracks.iter_mut().rev().take(TRIED);
        let mut place = None;
        for open in newest {
            open.close(trace, slice.begin);
            if open.has_room(slice.end) {
                place = Some(open);
            }
        }
        let open = match place {
            Some(open) => open,
            None => {
                let track = trace.track(self.parent, &self.name);
                self.tracks.push(Open::new(track));
                let Some(open) = self.tracks.last_mut() else {
                    return;
                };
                open
            }
        };
        open.ends.push(slice.end);
        let what = (slice.category, slice.name);
        trace.begin(slice.begin, open.track, what, notes);
    }

    /// Ends what is still to end.
    pub fn finish(self, trace: &mut Trace<'_>) {
        for mut open in self.tracks {
            open.close(trace, BootNs(i64::MAX));
        }
    }
}

impl Open {
    fn new(track: Track) -> Self {
        let ends = Vec::new();
        Self { track, ends }
    }

    /// Ends what ends until a time, the innermost first.
    fn close(&mut self, trace: &mut Trace<'_>, until: BootNs) {
        while let Some(Some(end)) = self.ends.pop_if(|end| end.is_some_and(|end| end <= until)) {
            trace.end(end, self.track);
        }
    }

    /// Whether what ends then fits into what is open. Without an end is later than any.
    fn has_room(&self, end: Option<BootNs>) -> bool {
        match (self.ends.last(), end) {
            (None | Some(None), _) => true,
            (Some(Some(_)), None) => false,
            (Some(Some(outer)), Some(end)) => end <= *outer,
        }
    }
}
