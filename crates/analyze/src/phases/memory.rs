//! What phases held, out of what the pass noted.

use super::attributes::{attributes, exact_peak};
use super::by_role::Roles;
use super::device_history::DeviceHistory;
use super::doubts::{Doubts, Uncertain};
use super::pair::{OPEN, Span};
use super::row;
use super::{Level, Phase, PhaseEnd, Stretch};
use crate::RunClock;
use crate::keys::PeakAt;
use crate::process::Process;
use crate::who::Who;
use memtrace_model::tables::PhaseRow;
use memtrace_model::{BootNs, Bytes, DurationNs, Order};
use memtrace_timeline::{Amounts, Gauged, Readings};
use std::collections::HashMap;
use std::sync::Arc;

/// So many phases are reported by role: those of which most is to tell.
const BY_ROLE_MAX: usize = 1_000;

/// What the pass noted, for the spans.
pub(super) struct Memory<'a> {
    pub(super) tree: Readings<Amounts>,
    /// What all held, every page once.
    pub(super) held: Arc<Readings<Option<Bytes>>>,
    pub(super) own: HashMap<usize, Readings<Amounts>>,
    pub(super) below: Option<HashMap<usize, Readings<Amounts>>>,
    pub(super) roles: Roles<'a>,
    pub(super) device_history: DeviceHistory<'a>,
    pub(super) baseline: Amounts,
    pub(super) baseline_held: Option<Bytes>,
    pub(super) processes: &'a [Process],
    pub(super) doubts: Doubts,
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

    /// How long it took; `None` where its begin or its end is not known.
    pub(super) fn duration(&self, span: &Span) -> Option<DurationNs> {
        span.known_end()?;
        Some(self.end_of(span) - span.begin?)
    }

    /// What all held, every page once.
    pub(super) fn held(&self, span: &Span) -> Level {
        let begin = span.begin.and_then(|at| self.held.at(at));
        let end = span.known_end().and_then(|at| self.held.at(at));
        Level::of([begin, end], self.peak(&self.held, span))
    }

    /// The sum of what each held.
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

    fn tree_uncertain(&self, span: &Span, change: Option<Bytes>) -> Uncertain {
        let is = |at: BootNs| self.doubts.is_tree(at, change);
        // No mark says when one ended that was open.
        let marked_end = span
            .known_end()
            .filter(|_| span.ended_by != PhaseEnd::Recording);
        Uncertain {
            begin: span.begin.is_some_and(is),
            end: marked_end.is_some_and(is),
        }
    }

    fn own_uncertain(&self, span: &Span, change: Option<Bytes>) -> Uncertain {
        let is = |at: BootNs| {
            let process = span.process;
            process.is_some_and(|process| self.doubts.is_own(process, at, change))
        };
        Uncertain {
            begin: span.begin.is_some_and(is),
            end: span.known_end().is_some_and(is),
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
        Some(self.held.at(span.known_end()?)? - self.baseline_held?)
    }

    fn stretch(&self, readings: &Readings<Amounts>, span: &Span) -> Stretch {
        let begin = span.begin.map_or(Amounts::UNKNOWN, |at| readings.at(at));
        let peak = self.peak(readings, span);
        let end = span.known_end();
        let end = end.map_or(Amounts::UNKNOWN, |at| readings.at(at));
        Stretch::of(begin, end, peak)
    }

    fn peak<V: Gauged>(&self, readings: &Readings<V>, span: &Span) -> Option<PeakAt> {
        let end = self.clock.at(self.end_of(span));
        let (bytes, at) = span.peak(readings, self.clock)?;
        Some((bytes, at.min(end)))
    }

    /// A span with its memory, but not by role.
    pub(super) fn phase(&self, span: &Span) -> Phase {
        let end = self.end_of(span);
        let (held, own) = (self.held(span), self.own(span));
        Phase {
            name: span.name.clone(),
            who: self.who(span.process),
            form: span.form,
            depth: span.depth,
            step: span.step,
            begin: span.begin.map(|begin| self.clock.at(begin)),
            end: self.clock.at(end),
            ended_by: match span.known_end() {
                Some(_) => span.ended_by,
                // It was over before its process ended, but nobody ended it.
                None => PhaseEnd::Recording,
            },
            is_after_exit: span.is_after_exit,
            duration_ns: self.duration(span),
            held,
            tree: self.tree(span),
            own,
            tree_uncertain: self.tree_uncertain(span, held.delta_bytes),
            own_uncertain: self.own_uncertain(span, own.and_then(|own| own.delta.rss())),
            since_baseline_bytes: self.since_baseline(span),
            roles: Vec::new(),
            gpu: self.device_history.gpu(span),
            devices: self.device_history.devices(span),
            page_cache: self.device_history.page_cache(span),
            exact_peak_bytes: self.exact_peak(span).map(|(peak, _)| peak),
            attributes: attributes(span),
        }
    }

    /// A span with its memory, as a row of a table.
    pub(super) fn row(&self, span: &Span) -> PhaseRow {
        let process = span.process.and_then(|place| self.processes.get(place));
        row::of(&self.phase(span), process, self.child_peak(span))
    }

    /// The highest of what descends from its process; `None` where that is not known.
    fn child_peak(&self, span: &Span) -> Option<Bytes> {
        let below = self.below.as_ref()?.get(&span.process?);
        span.known_end()?;
        let peak = below.and_then(|below| span.peak(below, self.clock));
        // Before the first of them nothing is known because nobody was there.
        Some(peak.map_or(Bytes(0), |(bytes, _)| bytes))
    }

    /// Tells phases by role: those that changed most, where there are many.
    pub(super) fn tell_roles<'p>(&self, phases: impl Iterator<Item = (&'p mut Phase, &'p Span)>) {
        let mut phases: Vec<_> = phases.collect();
        if phases.len() > BY_ROLE_MAX {
            phases.order_by_key(|(phase, _)| std::cmp::Reverse(phase.weight()));
        }
        for (phase, span) in phases.into_iter().take(BY_ROLE_MAX) {
            phase.roles = self.roles.stretches(span, &self.tree(span));
        }
    }
}
