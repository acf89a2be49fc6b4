//! Phases that are conditions of a load experiment, with what was held in each.

use super::Phase;
use super::memory::Memory;
use super::pair::Span;
use memtrace_model::{BootNs, Bytes, LoadCondition};
use std::collections::HashMap;

/// A condition before its memory is known.
#[derive(Clone, Debug)]
pub(crate) struct ConditionSpan {
    pub(crate) condition: LoadCondition,
    pub(crate) name: String,
    pub(crate) begin: BootNs,
    pub(crate) end: BootNs,
}

/// What was held under load.
#[derive(Debug, Default)]
pub(crate) struct UnderLoad {
    /// The phase of each condition, by role too.
    pub(crate) phases: Vec<Phase>,
    /// The most that was in use on all GPUs within stretches that are watched.
    pub(crate) gpu_within: HashMap<[BootNs; 2], Bytes>,
}

/// So many conditions are reported, the first: a plan has some hundred.
const CONDITIONS_MAX: usize = 10_000;

/// Those that are reported.
pub(super) fn conditions<'a>(
    spans: impl Iterator<Item = &'a Span>,
) -> impl Iterator<Item = (&'a Span, LoadCondition)> {
    let conditions = spans.filter_map(|span| Some((span, condition_of(span)?)));
    conditions.take(CONDITIONS_MAX)
}

/// The condition that a span is; `None` where it is another phase. Those of a person belong to the
/// whole recording: what a recorded program says of itself is none.
pub(super) fn condition_of(span: &Span) -> Option<LoadCondition> {
    let attributes = span.begin_attributes.as_deref()?;
    let is_of_recording = span.process.is_none() && span.begin.is_some();
    is_of_recording.then(|| LoadCondition::of(attributes))?
}

impl UnderLoad {
    pub(super) fn of<'a>(
        spans: impl Iterator<Item = &'a Span>,
        watched: &[[BootNs; 2]],
        memory: &Memory<'_>,
    ) -> Self {
        let spans: Vec<&Span> = conditions(spans).map(|(span, _)| span).collect();
        let mut phases: Vec<Phase> = spans.iter().map(|span| memory.phase(span)).collect();
        memory.tell_roles(phases.iter_mut().zip(spans.iter().copied()));
        let gpu_within = watched.iter().filter_map(|&stretch| {
            let level = memory.device_history.gpu(&Span::window(stretch))?;
            let (most, _) = level.peak?;
            Some((stretch, most))
        });
        Self {
            phases,
            gpu_within: gpu_within.collect(),
        }
    }
}
