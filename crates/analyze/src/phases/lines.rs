//! From phases to lines: what repeats is summed, what is numbered is folded.

use super::conditions::condition_of;
use super::memory::Memory;
use super::pair::Span;
use super::slope::Slope;
use super::{
    Level, Measures, PhaseEnd, PhaseForm, PhaseLine, PhasePart, Repeated, Spread, StepGrower,
    Steps, Stretch, number,
};
use memtrace_model::{BootNs, Bytes, DurationNs, Order};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Names that differ by this many numbers are one stage: through fewer points goes no line.
const MIN_STEPS: usize = 3;

/// This many phases of one name share a line.
const MIN_REPEATS: usize = 5;

/// Spans that share a line, in the order of time.
#[derive(Debug)]
pub(super) struct SamePhases {
    pub(super) name: Arc<str>,
    pub(super) members: Vec<usize>,
    /// The number of each member; empty where they are not numbered.
    numbers: Vec<i64>,
}

impl SamePhases {
    pub(super) fn is_numbered(&self) -> bool {
        !self.numbers.is_empty()
    }
}

/// The lines as places of spans: one place each, or several of one name.
pub(super) fn group(spans: &[Span]) -> Vec<SamePhases> {
    let mut stages: HashMap<(Arc<str>, PhaseForm), SamePhases> = HashMap::new();
    for (place, span) in spans.iter().enumerate() {
        let Some((name, number)) = stage_of(span) else {
            continue;
        };
        let stage = stages.entry((Arc::clone(&name), span.form));
        let stage = stage.or_insert_with(|| SamePhases {
            name,
            members: Vec::new(),
            numbers: Vec::new(),
        });
        stage.members.push(place);
        stage.numbers.push(number);
    }
    let mut groups: Vec<SamePhases> = stages.into_values().filter(SamePhases::has_steps).collect();
    let folded = groups.iter().flat_map(|stage| &stage.members);
    let folded: HashSet<usize> = folded.copied().collect();
    let mut names: HashMap<(&Arc<str>, PhaseForm), Vec<usize>> = HashMap::new();
    for (place, span) in spans.iter().enumerate() {
        if !folded.contains(&place) {
            names
                .entry((&span.name, span.form))
                .or_default()
                .push(place);
        }
    }
    for ((name, _), members) in names {
        let parts: Vec<Vec<usize>> = match members.len() >= MIN_REPEATS {
            true => vec![members],
            false => members.into_iter().map(|member| vec![member]).collect(),
        };
        groups.extend(parts.into_iter().map(|members| SamePhases {
            name: Arc::clone(name),
            members,
            numbers: Vec::new(),
        }));
    }
    // Spans stand in the order of their begins, so the first member tells.
    groups.order_by_key(|group| group.members.first().copied());
    groups
}

/// The same, each marked phase by itself.
pub(super) fn unfolded(groups: Vec<SamePhases>, spans: &[Span]) -> Vec<SamePhases> {
    let mut unfolded: Vec<SamePhases> = Vec::new();
    for group in groups {
        let is_title = |place: &usize| spans[*place].form == PhaseForm::Title;
        if group.members.iter().any(is_title) {
            unfolded.push(group);
            continue;
        }
        unfolded.extend(group.members.into_iter().map(|place| SamePhases {
            name: Arc::clone(&spans[place].name),
            members: vec![place],
            numbers: Vec::new(),
        }));
    }
    unfolded.order_by_key(|group| group.members.first().copied());
    unfolded
}

impl SamePhases {
    /// Its members with their numbers; none where they are not numbered.
    pub(super) fn steps(&self) -> impl Iterator<Item = (usize, i64)> {
        let members = self.members.iter().copied();
        members.zip(self.numbers.iter().copied())
    }

    fn has_steps(&self) -> bool {
        let numbers: HashSet<i64> = self.numbers.iter().copied().collect();
        numbers.len() >= MIN_STEPS
    }
}

/// The stage and the number of a span. Titles are names of code.
fn stage_of(span: &Span) -> Option<(Arc<str>, i64)> {
    // The numbers of a condition are what is asked of a server, and no steps.
    if span.form == PhaseForm::Title || condition_of(span).is_some() {
        return None;
    }
    if let Some(step) = span.step {
        return Some((Arc::clone(&span.name), step));
    }
    let (stage, number) = number::numbered(&span.name)?;
    Some((Arc::from(stage), number))
}

/// The lines with their memory.
pub(super) fn lines(spans: &[Span], groups: &[SamePhases], memory: &Memory) -> Vec<PhaseLine> {
    let lines = groups.iter().map(|group| match group.members.as_slice() {
        [only] => PhaseLine::One(Box::new(memory.phase(&spans[*only]))),
        _ => PhaseLine::Many(Box::new(repeated(spans, group, memory))),
    });
    let mut lines: Vec<PhaseLine> = lines.collect();
    let single = lines.iter_mut().zip(groups);
    memory.tell_roles(single.filter_map(|(line, group)| match line {
        PhaseLine::One(phase) => Some((phase.as_mut(), &spans[*group.members.first()?])),
        PhaseLine::Many(_) => None,
    }));
    lines
}

pub(super) fn repeated(spans: &[Span], group: &SamePhases, memory: &Memory) -> Repeated {
    let members = || group.members.iter().map(|&place| &spans[place]);
    let processes: HashSet<Option<usize>> = members().map(|span| span.process).collect();
    let only = match processes.len() {
        1 => processes.iter().next().copied().flatten(),
        _ => None,
    };
    let begins = members().map(|span| span.begin.unwrap_or(span.end));
    let last = members().max_by_key(|span| span.end);
    let open = merged(members().filter(|span| span.known_end().is_some()));
    let durations = members().filter_map(|span| Some(memory.duration(span)?.0));
    let durations: Vec<i64> = durations.collect();
    let level = |stretch: Stretch| stretch.level();
    let tree: Vec<_> = members()
        .map(|span| Some(memory.tree(span).level()))
        .collect();
    let held: Vec<_> = members().map(|span| Some(memory.held(span))).collect();
    let own: Vec<_> = members().map(|span| memory.own(span).map(level)).collect();
    let gpu: Vec<_> = members()
        .map(|span| memory.device_history.gpu(span))
        .collect();
    let is_any = |levels: &[Option<Level>]| levels.iter().any(Option::is_some);
    Repeated {
        name: Arc::clone(&group.name),
        form: members().next().map_or(PhaseForm::Marked, |span| span.form),
        who: memory.who(only),
        process_count: processes.iter().flatten().count(),
        count: group.members.len(),
        open_count: members()
            .filter(|span| span.ended_by != PhaseEnd::Marked)
            .count(),
        begin: memory.clock.at(begins.min().unwrap_or_default()),
        end: memory
            .clock
            .at(last.map_or(BootNs(0), |span| memory.end_of(span))),
        timed_count: durations.len(),
        total_ns: DurationNs(durations.into_iter().fold(0, i64::saturating_add)),
        held: Measures::of(&held),
        tree: Measures::of(&tree),
        own: is_any(&own).then(|| Measures::of(&own)),
        tree_delta_bytes: sum(open.iter().map(|span| memory.held(span).delta_bytes)),
        gpu_delta_bytes: sum(open
            .iter()
            .map(|span| memory.device_history.gpu(span)?.delta_bytes)),
        since_baseline_bytes: last.and_then(|span| memory.since_baseline(span)),
        roles: roles(spans, group, memory),
        gpu: is_any(&gpu).then(|| Measures::of(&gpu)),
        devices: devices(spans, group, memory),
        steps: group
            .is_numbered()
            .then(|| steps(spans, group, memory, [&held, &own, &gpu])),
    }
}

/// The stretches in which any of them was open; spans come in the order of their begins.
fn merged<'a>(spans: impl Iterator<Item = &'a Span>) -> Vec<Span> {
    let mut merged: Vec<Span> = Vec::new();
    for span in spans {
        match merged.last_mut() {
            Some(last) if span.begin.is_some_and(|begin| begin < last.end) => {
                last.end = last.end.max(span.end);
            }
            _ => merged.push(span.clone()),
        }
    }
    merged
}

/// The sum of what is known; `None` when nothing is.
fn sum(deltas: impl Iterator<Item = Option<Bytes>>) -> Option<Bytes> {
    deltas.flatten().reduce(|sum, delta| sum + delta)
}

/// The roles that held anything, what changed most first.
fn roles(spans: &[Span], group: &SamePhases, memory: &Memory) -> Vec<PhasePart> {
    let parts = (0..memory.roles.count()).map(|role| {
        let members = group.members.iter().map(|&place| &spans[place]);
        let levels = members.map(|span| {
            let stretch = memory.roles.stretch(role, span, || memory.tree(span));
            Some(stretch.level())
        });
        let levels: Vec<_> = levels.collect();
        PhasePart::of(memory.roles.name(role), None, group, &levels)
    });
    let mut parts: Vec<PhasePart> = parts.filter(PhasePart::is_something).collect();
    parts.order_by_key(|part| {
        let size = |spread: Spread| spread.sum.0.saturating_abs();
        let [delta, end] = [part.measures.delta, part.measures.end].map(|spread| spread.map(size));
        std::cmp::Reverse((part.rise(), delta, end))
    });
    parts
}

fn devices(spans: &[Span], group: &SamePhases, memory: &Memory) -> Vec<PhasePart> {
    let parts = (0..memory.device_history.device_count()).filter_map(|device| {
        let members = group.members.iter().map(|&place| &spans[place]);
        let levels: Vec<_> = members
            .map(|span| memory.device_history.device(device, span))
            .collect();
        let first = levels.first()?.as_ref()?;
        let (name, index) = (Arc::clone(&first.device), first.device_index);
        let levels: Vec<_> = levels
            .iter()
            .map(|reported| Some(reported.as_ref()?.level))
            .collect();
        Some(PhasePart::of(name, index, group, &levels))
    });
    parts.collect()
}

impl PhasePart {
    fn of(
        name: Arc<str>,
        device_index: Option<i32>,
        group: &SamePhases,
        levels: &[Option<Level>],
    ) -> Self {
        let is_numbered = group.is_numbered();
        Self {
            name,
            device_index,
            measures: Measures::of(levels),
            slope: is_numbered.then(|| slope(&group.numbers, levels)).flatten(),
        }
    }

    /// By how much it rises or falls from step to step, to the byte.
    fn rise(&self) -> Option<i64> {
        Some(self.slope?.bytes_per_step.abs() as i64)
    }

    fn is_something(&self) -> bool {
        let Measures { delta, end, peak } = self.measures;
        let is_held = |spread: Option<Spread>| spread.is_some_and(|spread| spread.sum.0 != 0);
        peak.is_some_and(|(bytes, _)| bytes.0 > 0) || is_held(delta) || is_held(end)
    }
}

fn steps(
    spans: &[Span],
    group: &SamePhases,
    memory: &Memory,
    [held, own, gpu]: [&[Option<Level>]; 3],
) -> Steps {
    let numbers: HashSet<i64> = group.numbers.iter().copied().collect();
    Steps {
        first: numbers.iter().min().copied().unwrap_or(0),
        last: numbers.iter().max().copied().unwrap_or(0),
        count: numbers.len(),
        tree: slope(&group.numbers, held),
        own: slope(&group.numbers, own),
        grower: grower(spans, group, memory, own),
        gpu: slope(&group.numbers, gpu),
    }
}

/// Of several processes that pass the steps, the one that surely grows most.
fn grower(
    spans: &[Span],
    group: &SamePhases,
    memory: &Memory,
    own: &[Option<Level>],
) -> Option<StepGrower> {
    type Series = (Vec<i64>, Vec<Option<Level>>);
    let mut processes: BTreeMap<usize, Series> = BTreeMap::new();
    let numbered = group.members.iter().zip(&group.numbers).zip(own);
    for ((&place, &number), &level) in numbered {
        if let Some(process) = spans[place].process {
            let (numbers, levels) = processes.entry(process).or_default();
            numbers.push(number);
            levels.push(level);
        }
    }
    if processes.len() < 2 {
        return None;
    }
    let slopes = processes.iter().filter_map(|(process, (numbers, levels))| {
        let slope = slope(numbers, levels).filter(Slope::is_growing)?;
        Some((*process, slope))
    });
    let most = slopes.max_by(|(_, a), (_, b)| a.bytes_per_step.total_cmp(&b.bytes_per_step));
    most.map(|(process, slope)| StepGrower {
        who: memory.who(Some(process)),
        slope,
    })
}

/// One point for each number, the mean of its phases: ranks that pass a step together are no
/// independent observations of it.
fn slope(numbers: &[i64], levels: &[Option<Level>]) -> Option<Slope> {
    let mut points: BTreeMap<i64, (f64, f64)> = BTreeMap::new();
    for (&number, level) in numbers.iter().zip(levels) {
        if let Some(bytes) = level.and_then(|level| level.end_bytes) {
            let (sum, count) = points.entry(number).or_default();
            *sum += bytes.0 as f64;
            *count += 1.0;
        }
    }
    let points = points.into_iter();
    let points: Vec<(i64, f64)> = points
        .map(|(number, (sum, count))| (number, sum / count))
        .collect();
    Slope::steady(&points)
}

impl Measures {
    fn of(levels: &[Option<Level>]) -> Self {
        let known = || levels.iter().flatten();
        let highest = known().filter_map(|level| level.peak);
        Self {
            delta: Spread::of(known().filter_map(|level| level.delta_bytes)),
            end: Spread::of(known().filter_map(|level| level.end_bytes)),
            peak: highest.max_by_key(|&(bytes, at)| (bytes, std::cmp::Reverse(at))),
        }
    }
}

impl Spread {
    fn of(amounts: impl Iterator<Item = Bytes>) -> Option<Self> {
        let mut amounts: Vec<Bytes> = amounts.collect();
        amounts.sort_unstable();
        let count = amounts.len();
        let rank = (count * 95).div_ceil(100);
        let p95 = *amounts.get(rank.checked_sub(1)?)?;
        Some(Self {
            known_count: count,
            sum: amounts.iter().copied().sum(),
            mean_bytes: amounts.iter().map(|bytes| bytes.0 as f64).sum::<f64>() / count as f64,
            p95,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(amounts: impl Iterator<Item = i64>) -> Spread {
        Spread::of(amounts.map(Bytes)).unwrap()
    }

    #[test]
    fn the_p95_is_the_nearest_rank() {
        assert_eq!(spread(1..=100).p95, Bytes(95));
        assert_eq!(spread(1..=20).p95, Bytes(19));
        assert_eq!(spread(std::iter::once(7)).p95, Bytes(7));
        assert_eq!(spread([3, 1, 2].into_iter()).p95, Bytes(3));
        assert_eq!(spread(1..=4).sum, Bytes(10));
        assert_eq!(Spread::of(std::iter::empty()), None);
    }
}
