//! Ranks side by side: how far apart the traces of one window begin and end, and the steps in them.
//!
//! Wall clocks of several machines are as far apart as they are: between hosts a skew is that of their
//! clocks too.

use super::summary::TraceSummary;
use super::times::is_tenth;
use memtrace_model::{DurationNs, Order, WallNs};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Traces that overlap in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Window {
    /// The first begin of any of them.
    pub begin_wall_ns: WallNs,
    /// The last end.
    pub end_wall_ns: WallNs,
    /// From the first begin to the last begin.
    pub begin_skew_ns: DurationNs,
    /// From the first end to the last end.
    pub end_skew_ns: Option<DurationNs>,
    /// Each of them, in the order of ranks.
    pub ranks: Vec<RankInWindow>,
    /// Each step that more than one of them has, in the order of numbers.
    pub steps: Vec<StepSkew>,
    /// The one that probably held the others up.
    pub late: Option<LateRank>,
}

/// The trace that held the others up, where it did by a tenth of all steps or more: its steps were the
/// longest, and ended after those of all others. Of traces that end a step together, in a collective, the
/// one with the longest step waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LateRank {
    /// Its place in the list of traces.
    pub trace: usize,
    /// In how many steps it was the longest, and the last to end.
    pub longest_count: usize,
    /// How much longer those took than in the trace where each was shortest, at most how much later they
    /// ended than in the next.
    pub longer_ns: DurationNs,
    /// What all steps took, each where it was shortest.
    pub shortest_total_ns: DurationNs,
}

impl LateRank {
    fn of(steps: &[StepSkew]) -> Option<Self> {
        let mut longest: BTreeMap<usize, (i64, usize)> = BTreeMap::new();
        for step in steps {
            let by = step.longest_ns.0.saturating_sub(step.shortest_ns.0);
            let by = by.min(step.longest_ends_after_ns.0);
            if by > 0 {
                let (longer, count) = longest.entry(step.longest_trace).or_default();
                *longer = longer.saturating_add(by);
                *count += 1;
            }
        }
        let shortest = steps.iter().map(|step| step.shortest_ns.0);
        let shortest = DurationNs(shortest.fold(0, i64::saturating_add));
        let (trace, (longer, longest_count)) =
            longest.into_iter().max_by_key(|(_, (longer, _))| *longer)?;
        let longer = DurationNs(longer);
        is_tenth(longer, shortest).then_some(Self {
            trace,
            longest_count,
            longer_ns: longer,
            shortest_total_ns: shortest,
        })
    }
}

/// A trace within a window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RankInWindow {
    /// Its place in the list of traces.
    pub trace: usize,
    pub rank: Option<u32>,
    /// How much later than the first it begins.
    pub begins_after_ns: DurationNs,
    /// How much earlier than the last it ends; `None` where it was cut off before its end.
    pub ends_before_ns: Option<DurationNs>,
    /// How many steps it has.
    pub step_count: usize,
    /// What its steps took in all.
    pub steps_total_ns: DurationNs,
}

/// A step as the ranks had it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepSkew {
    pub number: i64,
    /// How many of them have it.
    pub rank_count: usize,
    /// From the first begin to the last begin.
    pub begin_skew_ns: DurationNs,
    /// From the first end to the last end.
    pub end_skew_ns: DurationNs,
    /// What it took where it was shortest.
    pub shortest_ns: DurationNs,
    /// What it took where it was longest.
    pub longest_ns: DurationNs,
    /// The place in the list of traces of the one in which it was longest.
    pub longest_trace: usize,
    /// How much later it ended there than in the trace where it ended last of the others; negative where
    /// it ended earlier.
    #[serde(skip)]
    longest_ends_after_ns: DurationNs,
}

/// The windows of traces that tell wall time, each of more than one trace. Of copies of one trace the
/// longest is taken: the others were cut.
pub(super) fn windows(traces: &[TraceSummary]) -> Vec<Window> {
    let mut longest: BTreeMap<_, usize> = BTreeMap::new();
    for (place, trace) in traces.iter().enumerate() {
        let one = longest
            .entry((trace.begin_wall_ns, trace.rank))
            .or_insert(place);
        if trace.event_count > traces[*one].event_count {
            *one = place;
        }
    }
    let spans = longest.into_values().filter_map(|place| {
        let span = (traces[place].begin_wall_ns?, traces[place].end_wall_ns?);
        Some((span, place))
    });
    let mut spans: Vec<_> = spans.collect();
    spans.sort_unstable();
    let mut groups: Vec<(WallNs, Vec<usize>)> = Vec::new();
    for ((begin, end), place) in spans {
        match groups.last_mut() {
            Some((until, group)) if begin <= *until => {
                *until = end.max(*until);
                group.push(place);
            }
            _ => groups.push((end, vec![place])),
        }
    }
    let groups = groups.into_iter().filter(|(_, group)| group.len() > 1);
    groups
        .filter_map(|(_, group)| Window::of(traces, group))
        .collect()
}

impl Window {
    fn of(traces: &[TraceSummary], mut group: Vec<usize>) -> Option<Self> {
        group.order_by_key(|&place| (traces[place].rank.is_none(), traces[place].rank, place));
        let begins = group
            .iter()
            .filter_map(|&place| traces[place].begin_wall_ns);
        let (begin, last_begin) = (begins.clone().min()?, begins.max()?);
        let whole = group
            .iter()
            .filter(|&&place| traces[place].problem.is_none());
        let whole_ends = whole.filter_map(|&place| traces[place].end_wall_ns);
        let end = group
            .iter()
            .filter_map(|&place| traces[place].end_wall_ns)
            .max()?;
        let [first_end, last_end] = [whole_ends.clone().min(), whole_ends.max()];
        let ranks = group.iter().filter_map(|&place| {
            let trace = &traces[place];
            let steps = trace.steps.iter().map(|step| step.duration_ns.0);
            Some(RankInWindow {
                trace: place,
                rank: trace.rank,
                begins_after_ns: since(begin, trace.begin_wall_ns?),
                ends_before_ns: trace
                    .end_wall_ns
                    .filter(|_| trace.problem.is_none())
                    .map(|own| since(own, end)),
                step_count: trace.steps.len(),
                steps_total_ns: DurationNs(steps.fold(0, i64::saturating_add)),
            })
        });
        let steps = steps(traces, &group);
        Some(Self {
            begin_wall_ns: begin,
            end_wall_ns: end,
            begin_skew_ns: since(begin, last_begin),
            end_skew_ns: first_end
                .zip(last_end)
                .map(|(first, last)| since(first, last)),
            ranks: ranks.collect(),
            late: LateRank::of(&steps),
            steps,
        })
    }
}

/// A step in one trace.
struct Had {
    trace: usize,
    begin: WallNs,
    took: DurationNs,
}

fn steps(traces: &[TraceSummary], group: &[usize]) -> Vec<StepSkew> {
    let mut by_number: BTreeMap<i64, Vec<Had>> = BTreeMap::new();
    for &trace in group {
        let mut seen = BTreeSet::new();
        for step in &traces[trace].steps {
            // A trace that has a number twice has been merged from several.
            if let Some(begin) = step.begin_wall_ns.filter(|_| seen.insert(step.number)) {
                let took = step.duration_ns;
                let had = by_number.entry(step.number).or_default();
                had.push(Had { trace, begin, took });
            }
        }
    }
    let shared = by_number.into_iter().filter(|(_, had)| had.len() > 1);
    shared
        .filter_map(|(number, had)| StepSkew::of(number, &had))
        .collect()
}

impl StepSkew {
    fn of(number: i64, had: &[Had]) -> Option<Self> {
        let end = |had: &Had| WallNs(had.begin.0.saturating_add(had.took.0));
        let begins = had.iter().map(|had| had.begin);
        let ends = had.iter().map(end);
        let (place, longest) = had.iter().enumerate().max_by_key(|(_, had)| had.took)?;
        let others = had.iter().enumerate().filter(|(other, _)| *other != place);
        let next_end = others.map(|(_, had)| end(had)).max()?;
        Some(Self {
            number,
            rank_count: had.len(),
            begin_skew_ns: since(begins.clone().min()?, begins.max()?),
            end_skew_ns: since(ends.clone().min()?, ends.max()?),
            shortest_ns: had.iter().map(|had| had.took).min()?,
            longest_ns: longest.took,
            longest_trace: longest.trace,
            longest_ends_after_ns: since(next_end, end(longest)),
        })
    }
}

fn since(begin: WallNs, end: WallNs) -> DurationNs {
    DurationNs(end.0.saturating_sub(begin.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::TraceStep;

    /// A trace of ms, with steps of begin and length.
    fn trace(rank: Option<u32>, [begin, end]: [i64; 2], steps: &[(i64, i64, i64)]) -> TraceSummary {
        let wall = |ms: i64| Some(WallNs(ms * 1_000_000));
        let steps = steps.iter().map(|&(number, begin, ms)| TraceStep {
            number,
            begin_wall_ns: wall(begin),
            duration_ns: DurationNs(ms * 1_000_000),
        });
        TraceSummary {
            rank,
            begin_wall_ns: wall(begin),
            end_wall_ns: wall(end),
            steps: steps.collect(),
            ..TraceSummary::default()
        }
    }

    #[test]
    fn ranks_of_a_window_stand_side_by_side_and_a_later_window_apart() {
        let traces = [
            trace(Some(1), [103, 220], &[(7, 110, 40), (8, 150, 30)]),
            trace(Some(0), [100, 200], &[(7, 104, 30), (8, 140, 60)]),
            trace(Some(0), [500, 600], &[]),
            trace(None, [590, 700], &[]),
            trace(Some(2), [900, 950], &[]),
        ];
        let ms = |ms: i64| DurationNs(ms * 1_000_000);
        let found = windows(&traces);
        let [first, second] = &found[..] else {
            panic!("{found:?}");
        };
        let ranks: Vec<_> = first.ranks.iter().map(|rank| rank.rank).collect();
        assert_eq!(ranks, [Some(0), Some(1)]);
        assert_eq!(
            (first.begin_skew_ns, first.end_skew_ns),
            (ms(3), Some(ms(20)))
        );
        assert_eq!(first.ranks[1].begins_after_ns, ms(3));
        assert_eq!(first.ranks[0].ends_before_ns, Some(ms(20)));
        assert_eq!(first.ranks[0].steps_total_ns, ms(90));
        let steps: Vec<_> = first
            .steps
            .iter()
            .map(|step| (step.number, step.begin_skew_ns, step.end_skew_ns))
            .collect();
        assert_eq!(steps, [(7, ms(6), ms(16)), (8, ms(10), ms(20))]);
        // Rank 1 was longer by 10 ms in step 7; rank 0 by 30 ms in step 8, which it ended 20 ms later.
        let late = LateRank {
            trace: 1,
            longest_count: 1,
            longer_ns: ms(20),
            shortest_total_ns: ms(60),
        };
        assert_eq!((first.late, second.late), (Some(late), None));
        assert_eq!(
            (first.steps[1].longest_ns, first.steps[1].longest_trace),
            (ms(60), 1)
        );
        let traces: Vec<_> = second.ranks.iter().map(|rank| rank.trace).collect();
        assert_eq!(traces, [2, 3]);
    }

    #[test]
    fn ranks_whose_steps_take_about_the_same_hold_nobody_up() {
        let steps = |longer: i64| [(1, 100, 50), (2, 150, 50 + longer)];
        let late = |longer| {
            let traces = [
                trace(Some(0), [100, 300], &steps(0)),
                trace(Some(1), [100, 300], &steps(longer)),
            ];
            windows(&traces).remove(0).late
        };
        assert_eq!(late(9), None);
        assert_eq!(late(10).map(|late| late.trace), Some(1));
    }

    #[test]
    fn a_rank_that_waits_for_the_others_at_the_end_of_a_step_is_not_late() {
        let late = |of_rank_0, of_rank_1| {
            let traces = [
                trace(Some(0), [0, 3_000], &[(1, 500, of_rank_0)]),
                trace(Some(1), [0, 3_000], &[(1, 0, of_rank_1)]),
            ];
            let late = windows(&traces).remove(0).late;
            late.map(|late| (late.trace, late.longer_ns.0 / 1_000_000))
        };
        // Both leave the collective at 1,500 ms, which rank 1 came to before.
        assert_eq!(late(1_000, 1_500), None);
        assert_eq!(late(900, 1_600), Some((1, 200)));
        assert_eq!(late(1_000, 1_400), None);
    }

    #[test]
    fn a_trace_that_was_cut_off_has_no_end_and_a_cut_copy_is_no_rank() {
        let ms = |ms: i64| DurationNs(ms * 1_000_000);
        let cut = |rank, span, event_count| TraceSummary {
            problem: Some("it is cut off".to_owned()),
            event_count,
            ..trace(rank, span, &[])
        };
        let whole = |rank, span| TraceSummary {
            event_count: 9,
            ..trace(rank, span, &[])
        };
        let copies = [cut(Some(0), [100, 105], 3), whole(Some(0), [100, 200])];
        assert_eq!(windows(&copies), []);
        let ranks = [
            whole(Some(0), [100, 200]),
            whole(Some(1), [101, 202]),
            cut(Some(2), [102, 107], 3),
        ];
        let found = windows(&ranks);
        let ends: Vec<_> = found[0]
            .ranks
            .iter()
            .map(|rank| rank.ends_before_ns)
            .collect();
        assert_eq!(ends, [Some(ms(2)), Some(ms(0)), None]);
        assert_eq!(
            (found[0].begin_skew_ns, found[0].end_skew_ns),
            (ms(2), Some(ms(2)))
        );
    }
}
