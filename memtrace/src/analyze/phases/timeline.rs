//! The phases of a recording before their memory is known: read, paired, and laid out for the
//! one pass over `mem`.

use super::around::Around;
use super::attributes::{attributes, exact_peak};
use super::by_role::Roles;
use super::doubts::{Doubts, Uncertain};
use super::events::{Calls, Marks};
use super::focus::{Focus, PhaseError};
use super::lines::{self, Group};
use super::pair::{OPEN, Span, pair};
use super::row;
use super::{Phase, PhaseFocus, PhaseForm, Phases, Stretch};
use crate::analyze::composition::Composition;
use crate::analyze::gpu::Named;
use crate::analyze::groups::Groups;
use crate::analyze::keys::PeakAt;
use crate::analyze::process::Process;
use crate::analyze::who::Who;
use crate::analyze::{RowSource, RunClock};
use crate::model::tables::{Finding, PhaseRow};
use crate::model::{BootNs, Bytes, DurationNs};
use crate::sweep::{Amounts, Gauge, Readings, in_order};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// So many phases are told by role: those of which most is to tell.
const BY_ROLE_MAX: usize = 1_000;

/// Beyond so many begins and ends, who asks for the phases of one name gets only those by role.
const BOUNDARIES_MAX: usize = 20_000;

/// What the pass over memory is to note for phases: who is looked at when.
#[derive(Debug)]
pub(in crate::analyze) struct Boundaries {
    /// All processes together.
    pub(in crate::analyze) all: Arc<[BootNs]>,
    /// By position in the roster: the processes that have phases.
    pub(in crate::analyze) own: HashMap<usize, Arc<[BootNs]>>,
    /// Each role.
    pub(in crate::analyze) roles: Arc<[BootNs]>,
    /// Where any of these is not to be relied on.
    pub(in crate::analyze) doubts: Doubts,
}

/// What the pass noted.
#[derive(Debug)]
pub(in crate::analyze) struct Gauges {
    /// All processes together; `None` where nothing was ever held.
    pub(in crate::analyze) tree: Option<Gauge<Amounts>>,
    /// By position in the roster.
    pub(in crate::analyze) own: HashMap<usize, Gauge<Amounts>>,
    /// Of what descends from each of these; `None` where that is not wanted, or was too much.
    pub(in crate::analyze) below: Option<HashMap<usize, Gauge<Amounts>>>,
    /// By group; `None` where there was too much to note.
    pub(in crate::analyze) roles: Option<Vec<Option<Gauge<Amounts>>>>,
    pub(in crate::analyze) doubts: Doubts,
}

/// What was noted for the phases, and who there is.
pub(in crate::analyze) struct Noted<'a> {
    /// Memory of processes.
    pub(in crate::analyze) gauges: Gauges,
    /// What else there was.
    pub(in crate::analyze) around: Around<'a>,
    /// By position in the roster.
    pub(in crate::analyze) processes: &'a [Process],
    /// Their roles.
    pub(in crate::analyze) groups: &'a Groups,
    /// Whether peaks between two observations can be missing.
    pub(in crate::analyze) is_polled: bool,
    /// What everybody held at [`Timeline::instants`].
    pub(in crate::analyze) states: &'a [Composition],
    /// Where each phase goes as a row.
    pub(in crate::analyze) save: Option<&'a mut dyn FnMut(Finding)>,
}

/// The phases, and those that were asked for by name.
#[derive(Debug)]
pub(in crate::analyze) struct Timeline {
    spans: Vec<Span>,
    groups: Vec<Group>,
    /// Where phases begin and end.
    boundaries: Arc<[BootNs]>,
    missing: Vec<Arc<str>>,
    marks: Vec<(BootNs, Arc<str>)>,
    focus: Option<Focus>,
}

impl Timeline {
    /// Pairs what marks and titles say.
    pub(in crate::analyze) fn of(marks: Marks, calls: Calls, processes: &[Process]) -> Self {
        let mut events = marks.events;
        events.extend(calls.events);
        // Stable: marks of one time stay in the order of arrival.
        events.sort_by_key(|event| event.boot_ns);
        let spans = pair(events, |place| processes[place].exit_boot_ns());
        let groups = lines::group(&spans);
        let boundaries = spans.iter().flat_map(Span::boundaries).collect();
        Self {
            spans,
            groups,
            boundaries: in_order(boundaries),
            missing: marks.missing.into_iter().collect(),
            marks: marks.names,
            focus: None,
        }
    }

    /// Every mark with its name, in the order of time.
    pub(in crate::analyze) fn marks(&self) -> &[(BootNs, Arc<str>)] {
        &self.marks
    }

    /// Keeps an eye on the phases of a name.
    ///
    /// # Errors
    /// When there are none.
    pub(in crate::analyze) fn focus_on(&mut self, name: &str) -> Result<(), PhaseError> {
        self.focus = Some(Focus::on(name, &self.spans, &self.groups)?);
        Ok(())
    }

    /// Instants at which everybody's memory is wanted: two at most.
    pub(in crate::analyze) fn instants(&self, end: BootNs) -> impl Iterator<Item = BootNs> {
        let span = self
            .focus
            .as_ref()
            .map(|focus| focus.span(&self.spans, end));
        span.into_iter().flatten()
    }

    /// What was named, for whoever wants to know what it did.
    pub(in crate::analyze) fn named(&self) -> impl Iterator<Item = Named> {
        self.spans.iter().map(|span| Named {
            name: Arc::clone(&span.name),
            process: span.process,
            begin: span.begin.filter(|_| span.form != PhaseForm::Moment),
            end: span.end,
        })
    }

    /// What the pass is to note, of rows that come at least once in an interval.
    pub(in crate::analyze) fn to_note(&self, interval: DurationNs) -> Boundaries {
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

    /// Reads what is to be told beside processes; nothing where there are no phases.
    pub(in crate::analyze) fn around<'a, S: RowSource>(
        &self,
        source: &S,
        clock: &'a RunClock,
    ) -> Result<Around<'a>, S::Error> {
        Around::read(source, &self.boundaries, clock)
    }

    /// The phases with their memory; `None` when there are none.
    pub(in crate::analyze) fn told(
        &self,
        noted: Noted<'_>,
        clock: &RunClock,
        noted_end: BootNs,
    ) -> (Option<Phases>, Option<PhaseFocus>) {
        let Some(first) = self.spans.first() else {
            return (None, None);
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
            tree,
            own: own.map(read).collect(),
            roles: Roles::of(gauges.roles, noted.groups, noted.processes, clock),
            around: noted.around,
            processes: noted.processes,
            doubts: gauges.doubts,
            clock,
        };
        if let Some(save) = noted.save {
            let rows = self.spans.iter().map(|span| memory.row(span));
            rows.for_each(|row| save(row.into()));
        }
        let count_of = |spans: &[Span]| {
            let processes: HashSet<usize> = spans.iter().filter_map(|span| span.process).collect();
            processes.len()
        };
        let focus = self.focus.as_ref();
        let focus = focus
            .and_then(|focus| focus.told(&self.spans, &self.groups, &memory, states, noted_end));
        if self.has_only_focus_by_role() {
            memory.roles.give_up();
        }
        let lines = lines::lines(&self.spans, &self.groups, &memory);
        let phases = Phases {
            baseline_at: clock.at(baseline_boot_ns),
            baseline: memory.baseline,
            is_lower_bound,
            peak_is_lower_bound: noted.is_polled,
            has_too_many_for_roles: memory.roles.is_given_up(),
            count: self.spans.len(),
            process_count: count_of(&self.spans),
            line_count: lines.len(),
            lines,
            missing: self.missing.clone(),
        };
        (Some(phases), focus)
    }
}

/// What the pass noted, for the spans.
pub(super) struct Memory<'a> {
    tree: Readings<Amounts>,
    own: HashMap<usize, Readings<Amounts>>,
    below: Option<HashMap<usize, Readings<Amounts>>>,
    pub(super) roles: Roles<'a>,
    pub(super) around: Around<'a>,
    baseline: Amounts,
    processes: &'a [Process],
    doubts: Doubts,
    pub(super) clock: &'a RunClock,
}

impl Memory<'_> {
    /// Whether a process lived at an instant.
    pub(super) fn was_there(&self, process: usize, at: BootNs) -> bool {
        self.processes.get(process).is_some_and(|process| {
            process.start.boot_ns <= at && process.exit_boot_ns().is_none_or(|exit| at < exit)
        })
    }

    /// Who that is; nobody where it is no process.
    pub(super) fn who(&self, process: Option<usize>) -> Who {
        process.map_or_else(Who::default, |place| Who::from(&self.processes[place]))
    }

    /// When a span ended.
    pub(super) fn end_of(&self, span: &Span) -> BootNs {
        match span.end {
            OPEN => span
                .begin
                .map_or(self.clock.end(), |begin| begin.max(self.clock.end())),
            end => end,
        }
    }

    /// What all held.
    pub(super) fn tree(&self, span: &Span) -> Stretch {
        let tree = self.stretch(&self.tree, span);
        // The kernel's own mark knows what no row does, and the process is part of the tree.
        Stretch {
            peak: tree.peak.max(self.exact_peak(span)),
            ..tree
        }
    }

    /// What its process held.
    pub(super) fn own(&self, span: &Span) -> Option<Stretch> {
        let own = self.stretch(self.own.get(&span.process?)?, span);
        Some(Stretch {
            peak: own.peak.max(self.exact_peak(span)),
            ..own
        })
    }

    fn tree_uncertain(&self, span: &Span) -> Uncertain {
        let is = |at: BootNs| self.doubts.is_tree(at, &self.tree.at(at));
        Uncertain {
            begin: span.begin.is_some_and(is),
            end: is(span.end),
        }
    }

    fn own_uncertain(&self, span: &Span) -> Uncertain {
        let is = |at: BootNs| {
            let process = span.process;
            process.is_some_and(|process| self.doubts.is_own(process, at))
        };
        Uncertain {
            begin: span.begin.is_some_and(is),
            end: is(span.end),
        }
    }

    /// What its process said was its peak, as far as the process can have held that.
    fn exact_peak(&self, span: &Span) -> Option<PeakAt> {
        let process = self.processes.get(span.process?)?;
        let peak = exact_peak(span).and_then(|peak| process.can_have_held(peak))?;
        Some((peak, self.clock.at(self.end_of(span))))
    }

    /// What the tree held at an instant above the baseline.
    pub(super) fn since_baseline(&self, span: &Span) -> Option<Bytes> {
        Some(self.tree(span).end.rss()? - self.baseline.rss()?)
    }

    fn stretch(&self, readings: &Readings<Amounts>, span: &Span) -> Stretch {
        let begin = span.begin.map_or(Amounts::UNKNOWN, |at| readings.at(at));
        let end = self.clock.at(self.end_of(span));
        let peak = span.peak(readings, self.clock);
        let peak = peak.map(|(bytes, at)| (bytes, at.min(end)));
        Stretch::of(begin, readings.at(span.end), peak)
    }

    /// A span with its memory, but not by role.
    pub(super) fn phase(&self, span: &Span) -> Phase {
        let end = self.end_of(span);
        Phase {
            name: span.name.clone(),
            who: self.who(span.process),
            form: span.form,
            depth: span.depth,
            step: span.step,
            begin: span.begin.map(|begin| self.clock.at(begin)),
            end: self.clock.at(end),
            ended_by: span.ended_by,
            is_after_exit: span.is_after_exit,
            duration_ns: span.begin.map(|begin| end - begin),
            tree: self.tree(span),
            own: self.own(span),
            tree_uncertain: self.tree_uncertain(span),
            own_uncertain: self.own_uncertain(span),
            since_baseline_bytes: self.since_baseline(span),
            roles: Vec::new(),
            gpu: self.around.gpu(span),
            devices: self.around.devices(span),
            page_cache: self.around.page_cache(span),
            exact_peak_bytes: self.exact_peak(span).map(|(peak, _)| peak),
            attributes: attributes(span),
        }
    }

    /// A span with its memory, as a row of a table.
    fn row(&self, span: &Span) -> PhaseRow {
        let process = span.process.and_then(|place| self.processes.get(place));
        row::of(&self.phase(span), process, self.child_peak(span))
    }

    /// The highest of what descends from its process; `None` where that is not known.
    fn child_peak(&self, span: &Span) -> Option<Bytes> {
        let below = self.below.as_ref()?.get(&span.process?);
        let peak = below.and_then(|below| span.peak(below, self.clock));
        // Before the first of them nothing is known because nobody was there.
        Some(peak.map_or(Bytes(0), |(bytes, _)| bytes))
    }

    /// Tells phases by role: those that changed most, where there are many.
    pub(super) fn tell_roles<'p>(&self, phases: impl Iterator<Item = (&'p mut Phase, &'p Span)>) {
        let mut phases: Vec<_> = phases.collect();
        if phases.len() > BY_ROLE_MAX {
            phases.sort_by_key(|(phase, _)| std::cmp::Reverse(phase.weight()));
        }
        for (phase, span) in phases.into_iter().take(BY_ROLE_MAX) {
            phase.roles = self.roles.stretches(span, &self.tree(span));
        }
    }
}
