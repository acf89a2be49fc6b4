//! Marks that are lines of a log: of what the command writes, or of a file. Bytes become
//! lines here, and lines become marks by the rules.

mod follow;
mod output;
#[cfg(test)]
mod releases;
mod rules;
mod who;

pub use follow::Followed;
pub(super) use follow::Follower;
pub(super) use output::OutputReader;
pub use output::{FrameHeader, Passed};
pub use rules::RulesError;
pub(super) use rules::{Rules, next_span};

use super::inbox::{Inbox, Received};
use memtrace_model::{BootNs, MarkSource, Tgid};
use rules::Matcher;
use std::sync::Arc;

/// Of a longer line only the beginning is looked at.
const LINE_BYTES_MAX: usize = 16 << 10;

/// One log: puts its lines together and sends their marks to the inbox.
pub(super) struct Lines {
    matcher: Matcher,
    source: MarkSource,
    /// Who writes it, where that is known.
    writer: Option<Tgid>,
    inbox: Arc<Inbox>,
    /// The line that is not complete yet.
    begun: Vec<u8>,
    /// What comes next is the rest of a line whose beginning is gone or was looked at.
    is_rest: bool,
}

impl Lines {
    pub(super) fn new(
        rules: Arc<Rules>,
        source: MarkSource,
        writer: Option<Tgid>,
        inbox: Arc<Inbox>,
    ) -> Self {
        Self {
            matcher: Matcher::new(rules, writer),
            source,
            writer,
            inbox,
            begun: Vec::new(),
            is_rest: false,
        }
    }

    /// Takes what was written next, at that time.
    pub(super) fn take(&mut self, mut bytes: &[u8], arrival: BootNs) {
        if self.is_rest {
            let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) else {
                return;
            };
            bytes = &bytes[end + 1..];
            self.is_rest = false;
        }
        let Some(last) = memchr::memrchr2(b'\n', b'\r', bytes) else {
            return self.keep(bytes, arrival);
        };
        let (mut whole, rest) = bytes.split_at(last + 1);
        if !self.begun.is_empty()
            && let Some(end) = memchr::memchr2(b'\n', b'\r', whole)
        {
            self.begun.extend_from_slice(&whole[..=end]);
            self.look_at_begun(arrival);
            whole = &whole[end + 1..];
        }
        self.look_at(whole, arrival);
        self.keep(rest, arrival);
    }

    /// Something is missing between what came and what comes.
    pub(super) fn skip(&mut self) {
        self.begun.clear();
        self.matcher.skip();
        self.is_rest = true;
    }

    /// What was begun is not continued; a new line comes.
    pub(super) fn begin_anew(&mut self) {
        self.begun.clear();
        self.matcher.begin_anew();
        self.is_rest = false;
    }

    /// Nothing more comes: what there is of a last line counts.
    pub(super) fn end(&mut self, arrival: BootNs) {
        self.look_at_begun(arrival);
        self.is_rest = false;
    }

    /// Bytes that were written and that nobody looks at.
    pub(super) fn note_unread(&self, bytes: u64) {
        self.inbox.note_unread(bytes);
    }

    fn keep(&mut self, rest: &[u8], arrival: BootNs) {
        self.begun.extend_from_slice(rest);
        if self.begun.len() > LINE_BYTES_MAX {
            self.begun.truncate(LINE_BYTES_MAX);
            self.look_at_begun(arrival);
            self.is_rest = true;
        }
    }

    fn look_at_begun(&mut self, arrival: BootNs) {
        let begun = std::mem::take(&mut self.begun);
        self.look_at(&begun, arrival);
        self.begun = begun;
        self.begun.clear();
    }

    fn look_at(&mut self, lines: &[u8], arrival: BootNs) {
        let (inbox, source, writer) = (&self.inbox, self.source, self.writer);
        self.matcher.look_at(lines, arrival, |mark| {
            inbox.add(Received {
                tgid: mark.tgid,
                is_inside: mark.is_inside,
                writer,
                ..Received::new(mark.message, mark.kind, source, arrival)
            });
        });
        if let Some(unchecked) = self.matcher.take_unchecked() {
            self.inbox.note_unchecked(unchecked);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrace_model::mark_rules;
    use proptest::prelude::*;

    const RULES: &str = r#"
        builtin = false
        [[rule]]
        name = "loaded"
        contains = "loaded in "
        match = 'loaded in (?<seconds>[\d.]+) s'
        [[rule]]
        name = "numbered"
        match = '^item (?<n>\d+)'
    "#;

    fn lines() -> (Lines, Arc<Inbox>) {
        let inbox = Arc::new(Inbox::default());
        let rules = Rules::new(mark_rules("test", RULES).unwrap()).unwrap();
        let lines = Lines::new(
            Arc::new(rules),
            MarkSource::Output,
            None,
            Arc::clone(&inbox),
        );
        (lines, inbox)
    }

    fn names(inbox: &Inbox) -> Vec<String> {
        let marks = inbox.take().marks.into_iter();
        marks.map(|waits| waits.mark.name).collect()
    }

    fn attributes(mark: &Received) -> serde_json::Value {
        serde_json::from_str(mark.attributes.as_deref().unwrap()).unwrap()
    }

    #[test]
    fn a_line_that_comes_in_pieces_is_one_and_its_time_that_of_its_end() {
        let (mut lines, inbox) = lines();
        for (at, piece) in [
            (1, "noise\nloa"),
            (2, "ded in"),
            (3, " 2.5 s"),
            (4, "\nmore"),
        ] {
            lines.take(piece.as_bytes(), BootNs(at));
        }
        let marks = inbox.take().marks;
        assert_eq!(marks.len(), 1);
        assert_eq!(marks[0].mark.reported_at, BootNs(4));
        assert_eq!(attributes(&marks[0].mark)["seconds"], 2.5);
    }

    #[test]
    fn the_last_line_counts_without_its_end_and_the_rest_of_a_lost_one_does_not() {
        let (mut lines, inbox) = lines();
        lines.take(b"loaded in 1 s", BootNs(1));
        lines.skip();
        lines.take(b"loaded in 2 s\nloaded in 3 s", BootNs(2));
        lines.end(BootNs(3));
        let marks = inbox.take().marks;
        assert_eq!(marks.len(), 1);
        assert_eq!(attributes(&marks[0].mark)["seconds"], 3);
    }

    #[test]
    fn of_a_very_long_line_the_beginning_is_looked_at_once() {
        let (mut lines, inbox) = lines();
        lines.take(b"item 1 ", BootNs(1));
        for _ in 0..100 {
            lines.take(&vec![b'x'; 4096], BootNs(2));
        }
        lines.take(
            b" loaded in 1 s\nitem 2\r\nitem 3\rloaded in 4 s\n",
            BootNs(3),
        );
        assert_eq!(
            names(&inbox),
            ["numbered", "numbered", "numbered", "loaded"]
        );
        assert!(lines.begun.capacity() < 64 << 10);
    }

    proptest! {
        #[test]
        fn how_bytes_are_cut_into_pieces_changes_no_mark(
            text in "(item [0-9]{1,3}|loaded in [0-9] s|\u{1b}\\[31mloaded in 1 s\u{1b}\\[0m|.{0,40}|\n){0,30}",
            cuts in prop::collection::vec(1_usize..40, 0..60),
        ) {
            let (mut whole, expected) = lines();
            whole.take(text.as_bytes(), BootNs(1));
            whole.end(BootNs(1));
            let (mut pieces, found) = lines();
            let mut rest = text.as_bytes();
            for cut in cuts {
                let (piece, left) = rest.split_at(cut.min(rest.len()));
                pieces.take(piece, BootNs(1));
                rest = left;
            }
            pieces.take(rest, BootNs(1));
            pieces.end(BootNs(1));
            prop_assert_eq!(names(&found), names(&expected));
        }

        #[test]
        fn arbitrary_bytes_never_panic(pieces: Vec<Vec<u8>>) {
            let (mut lines, _) = lines();
            for piece in pieces {
                lines.take(&piece, BootNs(1));
            }
            lines.end(BootNs(2));
        }
    }
}
