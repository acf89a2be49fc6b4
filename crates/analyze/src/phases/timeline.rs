//! The phases of a recording before their memory is known: read, paired, and laid out for the
//! one pass over `mem`.

use super::by_role::Roles;
use super::conditions::{ConditionSpan, UnderLoad, conditions};
use super::device_history::DeviceHistory;
use super::doubts::Doubts;
use super::events::{Calls, Marks};
use super::focus::{Focus, PhaseError};
use super::lines::{self, SamePhases};
use super::memory::Memory;
use super::noted::{Boundaries, Gauges};
use super::pair::{OPEN, Span, pair};
use super::slice::Slice;
use super::{PhaseEnd, PhaseFocus, PhaseForm, Phases};
use crate::RunClock;
use crate::composition::Composition;
use crate::curves::Band;
use crate::groups::Groups;
use crate::process::Process;
use memtrace_model::tables::Finding;
use memtrace_model::{BootNs, DurationNs, Order, RowSource};
use memtrace_timeline::{Amounts, Gauge, in_order};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Beyond so many begins and ends, who asks for the phases of one name gets only those by role.
const BOUNDARIES_MAX: usize = 20_000;

/// So many of the longest phases are looked at closely.
const LONGEST: usize = 12;
/// So many phases are drawn.
const BANDS_MAX: usize = 4_000;

/// What was noted for the phases, and who there is.
pub(crate) struct Noted<'a> {
    /// Memory of processes.
    pub(crate) gauges: Gauges,
    /// What else there was.
    pub(crate) device_history: DeviceHistory<'a>,
    /// By position in the process table.
    pub(crate) processes: &'a [Process],
    /// The roles of these processes.
    pub(crate) groups: &'a Groups,
    /// Whether peaks between two observations can be missing.
    pub(crate) is_polled: bool,
    /// What everybody held at [`Timeline::instants`].
    pub(crate) states: &'a [Composition],
    /// Where each phase goes as a row.
    pub(crate) save: Option<&'a mut dyn FnMut(Finding)>,
}

/// Something that was named, and when. A moment has no begin.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) name: Arc<str>,
    /// Whose mark it is, by position.
    pub(crate) process: Option<usize>,
    pub(crate) begin: Option<BootNs>,
    pub(crate) end: BootNs,
}

/// When a span began that is no moment, and of which it is known when it ended.
fn stretch(span: &Span) -> Option<BootNs> {
    span.known_end()?;
    span.begin.filter(|_| span.form != PhaseForm::Moment)
}

/// The phases, and those that were asked for by name.
#[derive(Debug)]
pub(crate) struct Timeline {
    spans: Vec<Span>,
    /// How many of them were marked or titled: all but a window.
    named_count: usize,
    groups: Vec<SamePhases>,
    /// Where phases start and end.
    boundaries: Arc<[BootNs]>,
    /// Other stretches of which it is asked what was held.
    watched: Vec<[BootNs; 2]>,
    missing: Vec<Arc<str>>,
    marks: Vec<(BootNs, Arc<str>)>,
    focus: Option<Focus>,
}

impl Timeline {
    /// Pairs what marks and titles say.
    pub(crate) fn of(marks: Marks, calls: Calls, processes: &[Process]) -> Self {
        let mut events = marks.events;
        events.extend(calls.events);
        // Stable: marks of one time stay in the order of arrival.
        events.order_by_key(|event| event.boot_ns);
        let spans = pair(events, |place| processes[place].exit_boot_ns());
        let groups = lines::group(&spans);
        let boundaries = spans.iter().flat_map(Span::boundaries).collect();
        Self {
            named_count: spans.len(),
            spans,
            groups,
            boundaries: in_order(boundaries),
            watched: Vec::new(),
            missing: marks.missing.into_iter().collect(),
            marks: marks.names,
            focus: None,
        }
    }

    /// Every mark with its name, in the order of time.
    pub(crate) fn marks(&self) -> &[(BootNs, Arc<str>)] {
        &self.marks
    }

    /// When phases began, and moments.
    pub(crate) fn begins(&self) -> impl Iterator<Item = BootNs> {
        self.named_spans().filter_map(|span| match span.form {
            PhaseForm::Moment => Some(span.end),
            _ => span.begin,
        })
    }

    /// Whether a phase that nobody ended is open at an instant.
    pub(crate) fn has_open_at(&self, at: BootNs) -> bool {
        self.named_spans().any(|span| span.is_open_at(at))
    }

    /// Ends those that are open when the tree begins to end, at an instant that is found for the start of
    /// each.
    pub(crate) fn end_open(
        &mut self,
        begin_of_end: BootNs,
        end_of: impl Fn(BootNs) -> Option<BootNs>,
    ) {
        for span in &mut self.spans {
            if span.is_open_at(begin_of_end)
                && let Some(end) = span.begin.and_then(&end_of)
            {
                span.end = end;
                span.ended_by = PhaseEnd::Recording;
            }
        }
        self.lay_out();
    }

    /// Tells each marked phase by itself. Titles stay together: a worker can run millions.
    pub(crate) fn unfold(&mut self) {
        self.groups = lines::unfolded(std::mem::take(&mut self.groups), &self.spans);
    }

    /// Keeps an eye on the phases of a name.
    ///
    /// # Errors
    /// When there are none.
    pub(crate) fn focus_on(&mut self, name: &str) -> Result<(), PhaseError> {
        self.focus = Some(Focus::on(name, &self.spans, &self.groups)?);
        Ok(())
    }

    /// Keeps an eye on a window, as on a phase of nobody. `beyond` is how long it was to be where the
    /// recording is shorter.
    pub(crate) fn focus_on_window(&mut self, window: [BootNs; 2], beyond: Option<DurationNs>) {
        self.focus = Some(Focus::on_window(self.spans.len(), beyond));
        self.spans.push(Span::window(window));
        self.lay_out();
    }

    /// Keeps an eye on stretches that are no phase.
    pub(crate) fn watch(&mut self, stretches: Vec<[BootNs; 2]>) {
        if !stretches.is_empty() {
            self.watched = stretches;
            self.lay_out();
        }
    }

    fn lay_out(&mut self) {
        let boundaries = self.spans.iter().flat_map(Span::boundaries);
        let watched = self.watched.iter().flatten().copied();
        self.boundaries = in_order(boundaries.chain(watched).collect());
    }

    /// The conditions of load experiments, in the order of their starts.
    pub(crate) fn conditions(&self) -> Vec<ConditionSpan> {
        let conditions = conditions(self.named_spans());
        let conditions = conditions.filter_map(|(span, condition)| {
            Some(ConditionSpan {
                condition,
                name: span.name.to_string(),
                begin: span.begin?,
                end: span.end,
            })
        });
        conditions.collect()
    }

    /// What was marked or titled.
    fn named_spans(&self) -> impl Iterator<Item = &Span> {
        self.spans.iter().take(self.named_count)
    }

    /// Instants at which everybody's memory is wanted: two at most.
    pub(crate) fn instants(&self, end: BootNs) -> impl Iterator<Item = BootNs> {
        let span = self
            .focus
            .as_ref()
            .map(|focus| focus.span(&self.spans, end));
        span.into_iter().flatten()
    }

    /// What was named, for whoever wants to know what it did.
    pub(crate) fn named(&self) -> impl Iterator<Item = Named> {
        self.named_spans().map(|span| Named {
            name: Arc::clone(&span.name),
            process: span.process,
            begin: stretch(span),
            end: span.known_end().or(span.begin).unwrap_or(span.end),
        })
    }

    /// Everything that was named, each by itself.
    pub(crate) fn slices(&self) -> impl Iterator<Item = Slice<'_>> {
        self.named_spans().map(Slice::of)
    }

    /// Where the longest phases start and end: that is where people look closely.
    pub(crate) fn longest(&self, end: BootNs) -> impl Iterator<Item = BootNs> {
        let spans = self.named_spans();
        let mut spans: Vec<(Reverse<DurationNs>, [BootNs; 2])> = spans
            .filter_map(|span| {
                let (begin, end) = (stretch(span)?, span.end.min(end));
                Some((Reverse(end - begin), [begin, end]))
            })
            .collect();
        spans.sort_unstable();
        spans.truncate(LONGEST);
        spans.into_iter().flat_map(|(_, span)| span)
    }

    /// Every phase by itself, in the order of their starts; of very many the longest.
    pub(crate) fn bands(&self, processes: &[Process], clock: &RunClock) -> Vec<Band> {
        let steps = self.groups.iter().flat_map(|group| {
            let steps = group.steps();
            steps.map(|(place, step)| (place, (&group.name, step)))
        });
        let steps: HashMap<usize, (&Arc<str>, i64)> = steps.collect();
        let bands = self.named_spans().enumerate().filter_map(|(place, span)| {
            let process = span.process.and_then(|place| processes.get(place));
            let step = steps.get(&place);
            Some(Band {
                name: Arc::clone(&span.name),
                role: process.map(|process| Arc::clone(&process.group)),
                pid: process.and_then(|process| process.tgid),
                stage: step.map(|(stage, _)| Arc::clone(stage)),
                step: step.map(|(_, step)| *step),
                begin_ns: clock.offset(stretch(span)?),
                end_ns: clock.offset(span.end.min(clock.end())),
                depth: span.depth,
            })
        });
        let mut bands: Vec<Band> = bands.collect();
        if bands.len() > BANDS_MAX {
            bands.order_by_key(|band| Reverse(band.end_ns.0.saturating_sub(band.begin_ns.0)));
            bands.truncate(BANDS_MAX);
        }
        bands.order_by_key(|band| (band.begin_ns, Reverse(band.end_ns)));
        bands
    }

    /// What was marked as happening at an instant; of very many the first.
    pub(crate) fn moments(&self, clock: &RunClock) -> Vec<(DurationNs, Arc<str>)> {
        let moments = self.named_spans();
        let moments = moments.filter(|span| span.form == PhaseForm::Moment);
        let moments = moments.map(|span| (clock.offset(span.end), Arc::clone(&span.name)));
        moments.take(BANDS_MAX).collect()
    }

    /// What the pass is to note, of rows that come at least once in an interval.
    pub(crate) fn to_note(&self, interval: DurationNs) -> Boundaries {
        let mut own: HashMap<usize, Vec<BootNs>> = HashMap::new();
        for span in &self.spans {
            if let Some(process) = span.process {
                own.entry(process).or_default().extend(span.boundaries());
            }
        }
        let own = own.into_iter();
        Boundaries {
            all: Arc::clone(&self.boundaries),
            own: own
                .map(|(process, instants)| (process, in_order(instants)))
                .collect(),
            doubts: Doubts::new(Arc::clone(&self.boundaries), interval),
            roles: match &self.focus {
                Some(focus) if self.has_only_focus_by_role() => {
                    in_order(focus.boundaries(&self.spans).collect())
                }
                _ => Arc::clone(&self.boundaries),
            },
        }
    }

    fn has_only_focus_by_role(&self) -> bool {
        self.focus.is_some() && self.boundaries.len() > BOUNDARIES_MAX
    }

    /// Reads what is to be reported beside processes; nothing where there are no phases.
    pub(crate) fn device_history<'a, S: RowSource>(
        &self,
        source: &S,
        clock: &'a RunClock,
    ) -> Result<DeviceHistory<'a>, S::Error> {
        DeviceHistory::read(source, &self.boundaries, clock)
    }

    /// The phases with their memory, `None` when there are none; those that were asked for by name;
    /// and those that are conditions of a load experiment.
    pub(crate) fn reported(
        &self,
        noted: Noted<'_>,
        clock: &RunClock,
        noted_end: BootNs,
    ) -> (Option<Phases>, Option<PhaseFocus>, UnderLoad) {
        let Some(first) = self.spans.first() else {
            return (None, None, UnderLoad::default());
        };
        let Noted { gauges, states, .. } = noted;
        let tree = gauges.tree;
        let tree = tree.unwrap_or_else(|| Gauge::new(Arc::default()));
        let is_lower_bound = tree.is_partly_unknown();
        let own = gauges.own.into_iter();
        let tree = tree.read();
        let instants = self.spans.iter().flat_map(|span| {
            let end = Some(span.end).filter(|end| *end != OPEN);
            span.begin.into_iter().chain(end)
        });
        // A phase can begin before anything is known of memory.
        let known = instants.filter(|instant| tree.at(*instant).rss().is_some());
        let baseline_boot_ns = known.min().or(first.begin).unwrap_or(first.end);
        let read = |(place, gauge): (usize, Gauge<Amounts>)| (place, gauge.read());
        let below = gauges.below.map(|below| below.into_iter().map(read));
        let mut memory = Memory {
            below: below.map(Iterator::collect),
            baseline: tree.at(baseline_boot_ns),
            baseline_held: gauges.held.at(baseline_boot_ns),
            tree,
            held: gauges.held,
            own: own.map(read).collect(),
            roles: Roles::of(gauges.roles, noted.groups, noted.processes, clock),
            device_history: noted.device_history,
            processes: noted.processes,
            doubts: gauges.doubts,
            clock,
        };
        if let Some(save) = noted.save {
            let rows = self.named_spans().map(|span| memory.row(span));
            rows.for_each(|row| save(row.into()));
        }
        let count_of = |spans: &[Span]| {
            let processes: HashSet<usize> = spans.iter().filter_map(|span| span.process).collect();
            processes.len()
        };
        let focus = self.focus.as_ref();
        let focus = focus.and_then(|focus| {
            focus.reported(&self.spans, &self.groups, &memory, states, noted_end)
        });
        let under_load = UnderLoad::of(self.named_spans(), &self.watched, &memory);
        if self.has_only_focus_by_role() {
            memory.roles.give_up();
        }
        let lines = lines::lines(&self.spans, &self.groups, &memory);
        let phases = Phases {
            baseline_at: clock.at(baseline_boot_ns),
            baseline: memory.baseline,
            baseline_held_bytes: memory.baseline_held,
            is_lower_bound,
            peak_is_lower_bound: noted.is_polled,
            has_too_many_for_roles: memory.roles.is_given_up(),
            count: self.named_count,
            process_count: count_of(&self.spans),
            line_count: lines.len(),
            lines,
            missing: self.missing.clone(),
        };
        (Some(phases), focus, under_load)
    }
}
