//! The phases of one name: each of them, and who held what before the first and after the last.

use super::lines::{self, SamePhases};
use super::memory::Memory;
use super::pair::{OPEN, Span, WINDOW};
use super::{DeviceLevel, Level, Phase, Repeated, Stretch};
use crate::allocations::AllocationGain;
use crate::composition::Composition;
use crate::who::Who;
use memtrace_model::keys;
use memtrace_model::{BootNs, Bytes, DurationNs, Instant, Order};
use memtrace_timeline::Amounts;
use regex::Regex;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::cmp::Reverse;
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
        [] => "it has no marks at all: --from TIME --to TIME shows a window without any".to_owned(),
        known => {
            let names: Vec<String> = known.iter().map(|name| format!("{name:?}")).collect();
            let more = match count - known.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("it has {}{more}: --phase NAME shows one", names.join(", "))
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
    is_window: bool,
    beyond: Option<DurationNs>,
}

/// The phases of one name.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PhaseFocus {
    /// Whether it is a window of the recording that was asked for by its start and end, reported as
    /// one phase.
    pub is_window: bool,
    /// How long the window was to be, where the recording is shorter.
    #[serde(skip)]
    pub beyond: Option<DurationNs>,
    /// The name of the phases.
    pub name: Arc<str>,
    /// The line that they share, where they do.
    pub line: Option<Repeated>,
    /// How many there are; `phases` may hold fewer.
    pub count: usize,
    /// Each of them, in the order of time; in JSON, of more than 10,000 the first and the last 5,000.
    #[serde(serialize_with = "both_ends")]
    pub phases: Vec<Phase>,
    /// The start of the first.
    pub begin: Instant,
    /// The end of the last.
    pub end: Instant,
    /// All recorded processes from the start of the first to the end of the last, every page once.
    pub held: Level,
    /// The sum of what each of them held: shared pages count in each.
    pub tree: Stretch,
    /// The same by role, what changed most first.
    pub roles: Vec<RoleChange>,
    /// All GPUs together from the start of the first to the end of the last; `None` where none
    /// reported what is in use.
    pub gpu: Option<Level>,
    /// Each GPU by itself.
    pub devices: Vec<DeviceLevel>,
    /// The machine's page cache.
    pub page_cache: Option<Level>,
    /// How many processes held something before or after; `holders` may list fewer.
    pub holder_count: usize,
    /// Those processes, what changed most first.
    pub holders: Vec<HolderChange>,
    /// Which lines of code came to hold most, from the start of the first to the end of the last; empty
    /// without `record --stacks`.
    pub allocated: Vec<AllocationGain>,
}

/// As many phases are reported in JSON, of each some KiB: half of them from the start, half from the end.
const LIMITS_MAX: usize = 10_000;

fn both_ends<S: Serializer>(phases: &[Phase], serializer: S) -> Result<S::Ok, S::Error> {
    let left_out = match phases.len() > LIMITS_MAX {
        true => LIMITS_MAX / 2..phases.len() - LIMITS_MAX / 2,
        false => 0..0,
    };
    let (first, rest) = phases.split_at(left_out.start);
    serializer.collect_seq(first.iter().chain(&rest[left_out.len()..]))
}

/// What the processes of a role held, on the host and on GPUs.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RoleChange {
    /// What they are called.
    pub name: Arc<str>,
    /// On the host: those that had the role at the start, and those that had it at the end.
    #[serde(flatten)]
    pub stretch: Stretch,
    /// On GPUs; `None` where none was recorded.
    #[serde(flatten, with = "OnGpusKeys")]
    pub gpu: Option<GpuChange>,
}

/// What was held on GPUs at the start and at the end, by the driver's last lists before; `None`
/// where it did not tell.
pub type GpuChange = [Option<Bytes>; 2];

keys! {
    OnGpusKeys of change: Option<GpuChange> {
        /// On GPUs at the start, by the driver's last list of processes; null when unknown.
        gpu_begin_bytes: Option<Bytes> = change.and_then(|[begin, _]| begin),
        /// The same at the end.
        gpu_end_bytes: Option<Bytes> = change.and_then(|[_, end]| end),
    }
}

/// What a process held at the start of the first phase and at the end of the last.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct HolderChange {
    /// The process that held it.
    #[serde(flatten)]
    pub who: Who,
    /// At the start.
    pub begin: Amounts,
    /// At the end.
    pub end: Amounts,
    /// What its RSS grew by.
    pub rss_delta_bytes: Option<Bytes>,
    /// On GPUs; `None` where none was recorded.
    #[serde(flatten, with = "OnGpusKeys")]
    pub gpu: Option<GpuChange>,
}

impl RoleChange {
    fn is_something(&self) -> bool {
        let is_held = |held: Option<Bytes>| held.is_some_and(|held| held.0 > 0);
        self.stretch.is_something() || self.gpu.into_iter().flatten().any(is_held)
    }
}

/// The pattern that a name is: `*` stands for any text, `?` for one character.
fn pattern(name: &str) -> Option<Regex> {
    let escaped = regex::escape(name);
    let text = escaped.replace(r"\*", ".*").replace(r"\?", ".");
    let is_pattern = name.contains(['*', '?']);
    is_pattern.then(|| Regex::new(&format!("(?s)^{text}$")).ok())?
}

impl Focus {
    /// A name as it was marked, or as a report tells it, with `*` for the number if need be; or a
    /// pattern of names.
    pub(super) fn on(
        name: &str,
        spans: &[Span],
        groups: &[SamePhases],
    ) -> Result<Self, PhaseError> {
        let is_stage = |group: &SamePhases| {
            let reported = group.name.as_ref();
            reported == name || reported.replace("<N>", "*") == name
        };
        let mut stages = groups.iter().enumerate();
        let stage = stages.find(|(_, group)| group.is_numbered() && is_stage(group));
        if let Some((place, group)) = stage {
            return Ok(Self {
                name: Arc::clone(&group.name),
                members: group.members.clone(),
                group: Some(place),
                is_window: false,
                beyond: None,
            });
        }
        let of = |is_meant: &dyn Fn(&str) -> bool| {
            let named = spans.iter().enumerate();
            let named = named.filter(|(_, span)| is_meant(&span.name));
            named.map(|(place, _)| place).collect::<Vec<usize>>()
        };
        // A name may have a star in it.
        let mut members = of(&|other| other == name);
        if members.is_empty()
            && let Some(pattern) = pattern(name)
        {
            members = of(&|other| pattern.is_match(other));
        }
        if members.is_empty() {
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
        }
        Ok(Self {
            name: name.into(),
            group: groups
                .iter()
                .position(|group| members.len() > 1 && group.members == members),
            members,
            is_window: false,
            beyond: None,
        })
    }

    /// A window, by the place of its span, and how long it was to be where the recording is shorter.
    pub(super) fn on_window(place: usize, beyond: Option<DurationNs>) -> Self {
        Self {
            name: WINDOW.into(),
            members: vec![place],
            group: None,
            is_window: true,
            beyond,
        }
    }

    /// Where they start and end.
    pub(super) fn boundaries(&self, spans: &[Span]) -> impl Iterator<Item = BootNs> {
        let members = self.members.iter().map(|&place| &spans[place]);
        members.flat_map(Span::boundaries)
    }

    /// From the start of the first to the end of the last.
    pub(super) fn span(&self, spans: &[Span], end: BootNs) -> [BootNs; 2] {
        let members = || self.members.iter().map(|&place| &spans[place]);
        let begin = members().map(|span| span.begin.unwrap_or(span.end)).min();
        let last = members().map(|span| span.end).max();
        [begin, last].map(|at| match at {
            None | Some(OPEN) => end,
            Some(at) => at,
        })
    }

    /// All of them as one.
    fn whole(&self, spans: &[Span]) -> Option<Span> {
        Span::whole(self.members.iter().map(|&place| &spans[place]))
    }

    pub(super) fn reported(
        &self,
        spans: &[Span],
        groups: &[SamePhases],
        memory: &Memory,
        states: &[Composition],
        end: BootNs,
    ) -> Option<PhaseFocus> {
        let whole = self.whole(spans)?;
        let [begin_boot_ns, end_boot_ns] = self.span(spans, end);
        let state = |at: BootNs| states.iter().find(|state| state.at.boot_ns == at);
        let states = [state(begin_boot_ns), state(end_boot_ns)];
        let group = self.group.and_then(|place| groups.get(place));
        let members = || self.members.iter().map(|&place| &spans[place]);
        let mut phases: Vec<Phase> = members().map(|span| memory.phase(span)).collect();
        memory.tell_roles(phases.iter_mut().zip(members()));
        let holders = changes(states, memory);
        Some(PhaseFocus {
            is_window: self.is_window,
            beyond: self.beyond,
            name: Arc::clone(&self.name),
            line: group.map(|group| lines::repeated(spans, group, memory)),
            count: phases.len(),
            phases,
            begin: memory.clock.at(begin_boot_ns),
            end: memory.clock.at(end_boot_ns),
            held: memory.held(&whole),
            tree: memory.tree(&whole),
            roles: roles(&whole, memory, states),
            gpu: memory.device_history.gpu(&whole),
            devices: memory.device_history.devices(&whole),
            page_cache: memory.device_history.page_cache(&whole),
            holder_count: holders.len(),
            holders,
            allocated: Vec::new(),
        })
    }
}

/// What each role held at both ends, what changed most first.
fn roles(whole: &Span, memory: &Memory, states: [Option<&Composition>; 2]) -> Vec<RoleChange> {
    let tree = memory.tree(whole);
    let has_gpus = memory.device_history.device_count() > 0;
    let roles = (0..memory.roles.count()).map(|role| RoleChange {
        name: memory.roles.name(role),
        stretch: memory.roles.stretch(role, whole, || tree),
        gpu: has_gpus.then(|| {
            states.map(|state| {
                let state = state?;
                let is_of = |process| memory.roles.role_of(process, state.at.boot_ns) == role;
                state.gpu_held_by_those(is_of)
            })
        }),
    });
    let mut roles: Vec<RoleChange> = roles.filter(RoleChange::is_something).collect();
    roles.order_by_key(|role| {
        let deltas = [role.stretch.delta.rss(), gpu_delta(role.gpu)];
        let end = role.stretch.end.rss();
        Reverse((deltas.map(size).into_iter().max(), end))
    });
    roles
}

fn gpu_delta(change: Option<GpuChange>) -> Option<Bytes> {
    let [before, after] = change?;
    Some(after? - before?)
}

fn size(delta: Option<Bytes>) -> Option<i64> {
    delta.map(|delta| delta.0.saturating_abs())
}

fn changes(states: [Option<&Composition>; 2], memory: &Memory) -> Vec<HolderChange> {
    let mut held: BTreeMap<usize, [Amounts; 2]> = BTreeMap::new();
    // Who was there and has no row yet holds something that nobody knows.
    let absent = |process: usize| {
        states.map(|state| match state {
            Some(state) if memory.was_there(process, state.at.boot_ns) => Amounts::UNKNOWN,
            _ => Amounts::NONE,
        })
    };
    for (place, state) in states.iter().enumerate() {
        for holder in state.iter().flat_map(|state| &state.holders) {
            let amounts = held
                .entry(holder.process)
                .or_insert_with(|| absent(holder.process));
            amounts[place] = holder.amounts;
        }
    }
    let has_gpus = states.iter().flatten().any(|state| !state.gpus.is_empty());
    let held = held.into_iter();
    let mut changes: Vec<HolderChange> = held
        .map(|(process, [begin, end])| HolderChange {
            who: memory.who(Some(process)),
            begin,
            end,
            rss_delta_bytes: end.since(&begin).rss(),
            gpu: has_gpus
                .then(|| states.map(|state| state?.gpu_held_by_those(|holder| holder == process))),
        })
        .collect();
    // Stable: of as much, in the order in which they started.
    changes.order_by_key(|change| {
        let deltas = [change.rss_delta_bytes, gpu_delta(change.gpu)];
        Reverse(deltas.map(size).into_iter().max())
    });
    changes
}
