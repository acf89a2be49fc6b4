//! The phases of one name: each of them, and who held what before the first and after the last.

use super::gauge::OPEN;
use super::lines::{self, Group};
use super::pair::Span;
use super::timeline::Memory;
use super::{Phase, Repeated};
use crate::analyze::amounts::Amounts;
use crate::analyze::composition::Composition;
use crate::model::{BootNs, Bytes};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many names an error lists.
const MAX_NAMES: usize = 8;

/// There is no such phase.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the recording has no phase {name:?}; {}", suggestion(.known, *.known_count))]
pub struct PhaseError {
    /// What was asked for.
    pub name: String,
    /// Some of the phases that there are.
    pub known: Vec<Arc<str>>,
    /// How many names of phases there are.
    pub known_count: usize,
}

fn suggestion(known: &[Arc<str>], count: usize) -> String {
    match known {
        [] => "it has no marks at all".to_owned(),
        known => {
            let names: Vec<String> = known.iter().map(|name| format!("{name:?}")).collect();
            let more = match count - known.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("it has {}{more}", names.join(", "))
        }
    }
}

/// What was asked for.
#[derive(Debug)]
pub(super) struct Focus {
    name: Arc<str>,
    /// Places of spans, in the order of time.
    members: Vec<usize>,
    /// The place of the group that they all belong to, where it is one of many.
    group: Option<usize>,
}

/// The phases of one name.
#[derive(Clone, Debug)]
pub struct PhaseFocus {
    /// The name.
    pub name: Arc<str>,
    /// The line that they share, where they do.
    pub line: Option<Repeated>,
    /// Each of them, in the order of time.
    pub phases: Vec<Phase>,
    /// The begin of the first.
    pub begin_boot_ns: BootNs,
    /// The end of the last.
    pub end_boot_ns: BootNs,
    /// Who held something before or after, what changed most first.
    pub holders: Vec<HolderChange>,
}

/// What a process held at the begin of the first phase and at the end of the last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HolderChange {
    /// Which process.
    pub process: usize,
    /// At the begin.
    pub before: Amounts,
    /// At the end.
    pub after: Amounts,
}

impl HolderChange {
    /// What it grew by.
    pub fn rss_delta(&self) -> Option<Bytes> {
        Some(self.after.rss()? - self.before.rss()?)
    }
}

impl Focus {
    /// A name as it was marked, or as a report tells it, with `*` for the number if need be.
    pub(super) fn on(name: &str, spans: &[Span], groups: &[Group]) -> Result<Self, PhaseError> {
        let is_stage = |group: &Group| {
            let told = group.name.as_ref();
            told == name || told.replace("<N>", "*") == name
        };
        let mut stages = groups.iter().enumerate();
        let stage = stages.find(|(_, group)| group.is_numbered() && is_stage(group));
        if let Some((place, group)) = stage {
            return Ok(Self {
                name: Arc::clone(&group.name),
                members: group.members.clone(),
                group: Some(place),
            });
        }
        let named = spans.iter().enumerate();
        let named = named.filter(|(_, span)| span.name.as_ref() == name);
        let members: Vec<usize> = named.map(|(place, _)| place).collect();
        let Some(&first) = members.first() else {
            let known: BTreeSet<&Arc<str>> = groups.iter().map(|group| &group.name).collect();
            return Err(PhaseError {
                name: name.to_owned(),
                known: known
                    .iter()
                    .take(MAX_NAMES)
                    .map(|&n| Arc::clone(n))
                    .collect(),
                known_count: known.len(),
            });
        };
        Ok(Self {
            name: Arc::clone(&spans[first].name),
            group: groups.iter().position(|group| {
                !group.is_numbered() && members.len() > 1 && group.members == members
            }),
            members,
        })
    }

    /// From the begin of the first to the end of the last.
    pub(super) fn span(&self, spans: &[Span], end: BootNs) -> [BootNs; 2] {
        let members = || self.members.iter().map(|&place| &spans[place]);
        let begin = members().map(|span| span.begin.unwrap_or(span.end)).min();
        let last = members().map(|span| span.end).max();
        [begin, last].map(|at| match at {
            None | Some(OPEN) => end,
            Some(at) => at,
        })
    }

    pub(super) fn told(
        &self,
        spans: &[Span],
        groups: &[Group],
        memory: &Memory,
        states: &[Composition],
        end: BootNs,
    ) -> PhaseFocus {
        let [begin_boot_ns, end_boot_ns] = self.span(spans, end);
        let group = self.group.and_then(|place| groups.get(place));
        let phases = self
            .members
            .iter()
            .map(|&place| memory.phase(&spans[place]));
        PhaseFocus {
            name: Arc::clone(&self.name),
            line: group.map(|group| lines::repeated(spans, group, memory)),
            phases: phases.collect(),
            begin_boot_ns,
            end_boot_ns,
            holders: changes(states, begin_boot_ns, end_boot_ns),
        }
    }
}

fn changes(states: &[Composition], begin: BootNs, end: BootNs) -> Vec<HolderChange> {
    let mut held: BTreeMap<usize, [Amounts; 2]> = BTreeMap::new();
    for (place, at) in [begin, end].into_iter().enumerate() {
        let state = states.iter().find(|state| state.boot_ns == at);
        for holder in state.iter().flat_map(|state| &state.holders) {
            let amounts = held.entry(holder.process).or_insert([Amounts::NONE; 2]);
            amounts[place] = holder.amounts;
        }
    }
    let held = held.into_iter();
    let mut changes: Vec<HolderChange> = held
        .map(|(process, [before, after])| HolderChange {
            process,
            before,
            after,
        })
        .collect();
    changes.sort_by_key(|change| {
        let delta = change.rss_delta().map(|delta| delta.0.saturating_abs());
        (std::cmp::Reverse(delta), change.process)
    });
    changes
}
