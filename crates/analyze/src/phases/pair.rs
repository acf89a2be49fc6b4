//! Puts begins and ends together.
//!
//! Within one process an end closes the begin of its span; without a span it closes the newest
//! open begin of its name. Marks that belong to no recorded process are paired among themselves.

use super::{PhaseEnd, PhaseForm};
use crate::RunClock;
use crate::keys::PeakAt;
use memtrace_model::{BootNs, DurationNs, Order};
use memtrace_timeline::{Gauged, Readings};
use std::collections::HashMap;
use std::sync::Arc;

/// The end of what is still open at the end of the recording.
pub(super) const OPEN: BootNs = BootNs(i64::MAX - 1);

/// Something that begins, ends or is a phase.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) boot_ns: BootNs,
    /// `None` belongs to the whole recording.
    pub(super) process: Option<usize>,
    pub(super) what: What,
    pub(super) name: Arc<str>,
    pub(super) span: Option<i64>,
    pub(super) step: Option<i64>,
    pub(super) attributes: Option<Arc<str>>,
}

/// What an event does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Moment,
    Begin,
    End,
    /// What has its span is over, and it is not known since when.
    Over,
    /// A process has another title from here on.
    Title {
        is_call: bool,
    },
}

/// What a window is called.
pub(super) const WINDOW: &str = "window";

/// A phase without its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) name: Arc<str>,
    pub(super) process: Option<usize>,
    pub(super) form: PhaseForm,
    pub(super) depth: usize,
    pub(super) step: Option<i64>,
    pub(super) begin: Option<BootNs>,
    /// [`OPEN`] for the end of the recording.
    pub(super) end: BootNs,
    pub(super) ended_by: PhaseEnd,
    pub(super) is_after_exit: bool,
    /// Whether it was over before its end, and it is not known since when.
    pub(super) is_end_unknown: bool,
    /// JSON of the mark that began it, or of a moment's.
    pub(super) begin_attributes: Option<Arc<str>>,
    /// JSON of the mark that ended it.
    pub(super) end_attributes: Option<Arc<str>>,
}

impl Span {
    /// A stretch of the recording that nobody marked.
    pub(super) fn window([begin, end]: [BootNs; 2]) -> Self {
        Self {
            name: WINDOW.into(),
            process: None,
            form: PhaseForm::Marked,
            depth: 0,
            step: None,
            begin: Some(begin),
            end,
            ended_by: PhaseEnd::Marked,
            is_after_exit: false,
            is_end_unknown: false,
            begin_attributes: None,
            end_attributes: None,
        }
    }

    /// Several as one, from the first start to the last end; one stays what it is.
    pub(super) fn whole<'a>(mut members: impl Iterator<Item = &'a Self>) -> Option<Self> {
        let first = members.next()?;
        let begin_of = |span: &Self| span.begin.unwrap_or(span.end);
        let whole = members.fold(None, |whole: Option<Self>, span| {
            let whole = whole.unwrap_or_else(|| first.clone());
            Some(Self {
                process: None,
                begin: Some(begin_of(&whole).min(begin_of(span))),
                end: whole.end.max(span.end),
                is_end_unknown: whole.is_end_unknown || span.is_end_unknown,
                ..whole
            })
        });
        whole.or_else(|| Some(first.clone()))
    }

    /// Whether it has begun by an instant, goes on then, and nobody ever ended it.
    pub(super) fn is_open_at(&self, at: BootNs) -> bool {
        let has_begun = self.begin.is_some_and(|begin| begin < at);
        let is_ended = self.ended_by == PhaseEnd::Marked || self.is_end_unknown;
        has_begun && self.end >= at && !is_ended
    }

    /// When it ended or, where nobody ended it, what it goes on until; `None` where it was over
    /// before that.
    pub(super) fn known_end(&self) -> Option<BootNs> {
        Some(self.end).filter(|_| !self.is_end_unknown)
    }

    /// The highest within, and when.
    pub(super) fn peak<V: Gauged>(&self, of: &Readings<V>, clock: &RunClock) -> Option<PeakAt> {
        let (bytes, at) = of.peak(self.begin.unwrap_or(self.end), self.known_end()?)?;
        Some((bytes, clock.at(at)))
    }

    /// Where it begins and ends.
    pub(super) fn boundaries(&self) -> impl Iterator<Item = BootNs> + use<> {
        self.begin.into_iter().chain([self.end])
    }
}

/// The phases of events that come in the order of time, in the order of their begins.
/// `exit_of` tells when a process ended.
pub(super) fn pair(events: Vec<Event>, exit_of: impl Fn(usize) -> Option<BootNs>) -> Vec<Span> {
    let mut pairing = Pairing {
        exit_of,
        spans: Vec::new(),
        processes: HashMap::new(),
    };
    for event in events {
        pairing.take(event);
    }
    let mut spans = pairing.spans;
    spans.order_by_key(|span| span.begin.unwrap_or(span.end));
    spans
}

struct Pairing<E> {
    exit_of: E,
    spans: Vec<Span>,
    processes: HashMap<Option<usize>, Open>,
}

/// What is open in one process. Places are those of spans.
#[derive(Default)]
struct Open {
    by_span: HashMap<i64, usize>,
    /// What was closed by its span stays here until it is met.
    by_name: HashMap<Arc<str>, Vec<usize>>,
    title: Option<usize>,
    count: usize,
    last_mark: Option<BootNs>,
}

impl<E: Fn(usize) -> Option<BootNs>> Pairing<E> {
    fn take(&mut self, event: Event) {
        let at = event.boot_ns;
        let open = self.processes.entry(event.process).or_default();
        let previous = match event.what {
            What::Title { .. } | What::Over => None,
            What::Moment | What::Begin | What::End => open.last_mark.replace(at),
        };
        match event.what {
            What::Moment => self.add(event, PhaseForm::Moment, previous, Some(at)),
            What::Begin => self.begin(event, PhaseForm::Marked),
            What::End => match open.close(&event, &self.spans) {
                Some(place) => self.end(place, &event),
                // It began before the recording, or its begin was lost.
                None => self.add(event, PhaseForm::Marked, None, Some(at)),
            },
            What::Over => {
                let place = event.span.and_then(|span| open.by_span.get(&span));
                let is_open = |place: &&usize| self.spans[**place].ended_by != PhaseEnd::Marked;
                // One that an end closed by its name is over at a known time.
                if let Some(&place) = place.filter(is_open) {
                    let was_open = !std::mem::replace(&mut self.spans[place].is_end_unknown, true);
                    open.count = open.count.saturating_sub(usize::from(was_open));
                }
            }
            What::Title { is_call } => {
                if let Some(place) = open.title.take() {
                    open.count = open.count.saturating_sub(1);
                    self.end(place, &event);
                }
                if is_call {
                    self.begin(event, PhaseForm::Title);
                }
            }
        }
    }

    fn end(&mut self, place: usize, event: &Event) {
        let span = &mut self.spans[place];
        span.end = event.boot_ns;
        span.ended_by = PhaseEnd::Marked;
        span.is_end_unknown = false;
        span.step = span.step.or(event.step);
        span.end_attributes.clone_from(&event.attributes);
    }

    fn begin(&mut self, event: Event, form: PhaseForm) {
        let place = self.spans.len();
        let (process, name, span) = (event.process, Arc::clone(&event.name), event.span);
        let begin = Some(event.boot_ns);
        self.add(event, form, begin, None);
        let open = self.processes.entry(process).or_default();
        open.count += 1;
        if form == PhaseForm::Title {
            open.title = Some(place);
            return;
        }
        if let Some(span) = span {
            open.by_span.insert(span, place);
        }
        open.by_name.entry(name).or_default().push(place);
    }

    fn add(
        &mut self,
        event: Event,
        form: PhaseForm,
        begin: Option<BootNs>,
        marked_end: Option<BootNs>,
    ) {
        let exit = event.process.and_then(&self.exit_of);
        let (end, ended_by) = match (marked_end, exit) {
            (Some(end), _) => (end, PhaseEnd::Marked),
            // At the exit itself everything is gone already.
            (None, Some(exit)) => {
                let last = exit + DurationNs(-1);
                (last.max(event.boot_ns), PhaseEnd::Process)
            }
            (None, None) => (OPEN, PhaseEnd::Recording),
        };
        self.spans.push(Span {
            name: event.name,
            process: event.process,
            form,
            depth: self.processes.get(&event.process).map_or(0, |p| p.count),
            step: event.step,
            begin,
            end,
            ended_by,
            is_after_exit: exit.is_some_and(|exit| event.boot_ns > exit),
            is_end_unknown: false,
            begin_attributes: event.attributes,
            end_attributes: None,
        });
    }
}

impl Open {
    /// The place of what an end closes.
    fn close(&mut self, event: &Event, spans: &[Span]) -> Option<usize> {
        let is_open = |place: usize| spans[place].ended_by != PhaseEnd::Marked;
        let place = match event.span {
            Some(span) => self.by_span.remove(&span).filter(|&place| is_open(place)),
            None => {
                let newest = self.by_name.get_mut(&event.name)?;
                let is_open = |place: usize| is_open(place) && spans[place].known_end().is_some();
                std::iter::from_fn(|| newest.pop()).find(|&place| is_open(place))
            }
        };
        if place.is_some_and(|place| spans[place].known_end().is_some()) {
            self.count = self.count.saturating_sub(1);
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn event(at: i64, process: Option<usize>, what: What, name: &str, span: Option<i64>) -> Event {
        Event {
            boot_ns: BootNs(at),
            process,
            what,
            name: Arc::from(name),
            span,
            step: None,
            attributes: None,
        }
    }

    /// Name, begin, end, depth.
    type Chapter = (String, Option<i64>, i64, usize);

    fn reported(spans: &[Span]) -> Vec<Chapter> {
        let text = spans.iter().map(|span| {
            let begin = span.begin.map(|begin| begin.0);
            (span.name.to_string(), begin, span.end.0, span.depth)
        });
        text.collect()
    }

    fn paired(events: &[(i64, What, &str, Option<i64>)]) -> Vec<Span> {
        let events = events
            .iter()
            .map(|&(at, what, name, span)| event(at, Some(0), what, name, span));
        pair(events.collect(), |_| None)
    }

    use What::{Begin, End, Moment};

    #[test]
    fn an_end_closes_the_newest_open_begin_of_its_name() {
        let spans = paired(&[
            (1, Begin, "load", None),
            (2, Begin, "load", None),
            (3, Begin, "other", None),
            (4, End, "load", None),
            (5, End, "load", None),
            (6, End, "other", None),
        ]);
        let expected = [("load", 1, 5, 0), ("load", 2, 4, 1), ("other", 3, 6, 2)];
        let expected =
            expected.map(|(name, from, to, depth)| (name.to_owned(), Some(from), to, depth));
        assert_eq!(reported(&spans), expected);
    }

    #[test]
    fn a_span_pairs_what_overlaps_and_is_not_closed_by_the_end_of_another() {
        let spans = paired(&[
            (1, Begin, "call", Some(7)),
            (2, Begin, "call", Some(8)),
            (3, End, "call", Some(7)),
            (4, End, "call", Some(99)),
            (5, End, "call", None),
        ]);
        let expected = [
            ("call", Some(1), 3, 0),
            ("call", Some(2), 5, 1),
            ("call", None, 4, 1),
        ];
        let mut expected =
            expected.map(|(name, from, to, depth)| (name.to_owned(), from, to, depth));
        expected.sort_by_key(|text| text.1.unwrap_or(text.2));
        assert_eq!(reported(&spans), expected);
    }

    #[test]
    fn an_end_without_a_begin_is_a_phase_whose_begin_is_unknown() {
        let spans = paired(&[(4, End, "load", None)]);
        assert_eq!(reported(&spans), [("load".to_owned(), None, 4, 0)]);
        assert_eq!(spans[0].form, PhaseForm::Marked);
    }

    #[test]
    fn what_nobody_ends_is_open_until_its_process_or_the_recording_ends() {
        let begin = |process| event(5, process, Begin, "serve", None);
        let spans = pair(vec![begin(Some(0)), begin(Some(1)), begin(None)], |place| {
            (place == 0).then_some(BootNs(20))
        });
        let ends: Vec<_> = spans.iter().map(|span| (span.end, span.ended_by)).collect();
        let expected = [
            (BootNs(19), PhaseEnd::Process),
            (OPEN, PhaseEnd::Recording),
            (OPEN, PhaseEnd::Recording),
        ];
        assert_eq!(ends, expected);
    }

    #[test]
    fn a_mark_after_the_exit_is_reported_as_such_and_ends_no_earlier_than_it_begins() {
        let events = vec![
            event(30, Some(0), Begin, "late", None),
            event(31, Some(0), Moment, "later", None),
        ];
        let spans = pair(events, |_| Some(BootNs(20)));
        assert!(spans.iter().all(|span| span.is_after_exit));
        assert_eq!(
            (spans[0].end, spans[0].ended_by),
            (BootNs(30), PhaseEnd::Process)
        );
    }

    #[test]
    fn an_end_in_another_process_closes_nothing() {
        let events = vec![
            event(1, Some(0), Begin, "load", Some(1)),
            event(2, Some(1), End, "load", Some(1)),
            event(3, None, End, "load", None),
        ];
        let spans = pair(events, |_| None);
        let begins: Vec<_> = spans.iter().map(|span| span.begin).collect();
        assert_eq!(begins, [Some(BootNs(1)), None, None]);
    }

    #[test]
    fn a_moment_stands_for_what_led_up_to_it_since_the_mark_before() {
        let spans = paired(&[
            (1, Moment, "first", None),
            (5, Begin, "load", None),
            (9, Moment, "second", None),
        ]);
        let expected = [
            ("first", None, 1, 0),
            ("load", Some(5), OPEN.0, 0),
            ("second", Some(5), 9, 1),
        ];
        let expected = expected.map(|(name, from, to, depth)| (name.to_owned(), from, to, depth));
        assert_eq!(reported(&spans), expected);
    }

    #[test]
    fn a_title_is_a_phase_until_the_next_and_holds_those_inside_of_it() {
        let call = What::Title { is_call: true };
        let idle = What::Title { is_call: false };
        let spans = paired(&[
            (1, call, "ray::A.f", None),
            (2, Begin, "inner", None),
            (3, End, "inner", None),
            (4, call, "ray::A.g", None),
            (6, idle, "ray::IDLE", None),
            (8, Begin, "outside", None),
        ]);
        let expected = [
            ("ray::A.f", 1, 4, 0),
            ("inner", 2, 3, 1),
            ("ray::A.g", 4, 6, 0),
            ("outside", 8, OPEN.0, 0),
        ];
        let expected =
            expected.map(|(name, from, to, depth)| (name.to_owned(), Some(from), to, depth));
        assert_eq!(reported(&spans), expected);
    }

    #[test]
    fn what_is_over_since_nobody_knows_when_has_no_end_until_one_is_reported() {
        let over = |at, span| event(at, Some(0), What::Over, "load", Some(span));
        let spans = pair(
            vec![
                event(1, Some(0), Begin, "load", Some(1)),
                event(2, Some(0), Begin, "load", Some(2)),
                over(5, 1),
                over(5, 2),
                over(5, 3),
                event(9, Some(0), End, "load", Some(2)),
            ],
            |_| None,
        );
        let ends: Vec<_> = spans
            .iter()
            .map(|span| (span.known_end(), span.ended_by))
            .collect();
        let expected = [
            (None, PhaseEnd::Recording),
            (Some(BootNs(9)), PhaseEnd::Marked),
        ];
        assert_eq!(ends, expected);
    }

    fn whats() -> impl Strategy<Value = What> {
        prop_oneof![
            Just(Moment),
            Just(Begin),
            Just(End),
            Just(What::Over),
            any::<bool>().prop_map(|is_call| What::Title { is_call }),
        ]
    }

    proptest! {
        #[test]
        fn every_event_that_is_no_matching_end_becomes_one_phase(
            events in prop::collection::vec(
                (any::<i64>(), prop::option::of(0_usize..3), whats(), 0_usize..3,
                 prop::option::of(0_i64..3)),
                0..200,
            ),
            exits in prop::collection::vec(prop::option::of(any::<i64>()), 3),
        ) {
            let names = ["a", "b_1", ""];
            let mut events: Vec<Event> = events
                .into_iter()
                .map(|(at, process, what, name, span)| event(at, process, what, names[name], span))
                .collect();
            events.sort_by_key(|event| event.boot_ns);
            let count = |wanted: fn(&What) -> bool| {
                events.iter().filter(|event| wanted(&event.what)).count()
            };
            let least = count(|what| matches!(what, Moment | Begin | What::Title { is_call: true }));
            let most = least + count(|what| *what == End);
            let spans = pair(events, |place| exits[place].map(BootNs));
            prop_assert!((least..=most).contains(&spans.len()));
            for span in &spans {
                prop_assert!(span.begin.is_none_or(|begin| begin <= span.end || span.end == OPEN));
            }
        }
    }
}
