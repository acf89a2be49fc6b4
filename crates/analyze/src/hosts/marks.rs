//! The phases of a recording as they cross hosts: sums by process and name, growth by step, and when
//! steps began.

use super::coded::Coded;
use super::part::{PartMarks, PartPhase, StepBounds};
use crate::phases::{Slope, numbered, stage};
use memtrace_model::tables::{PhaseEnd, PhaseForm, PhaseRow};
use memtrace_model::{DurationNs, Order, Upid, WallNs};
use std::collections::{BTreeMap, HashMap};

/// So many phases of a host are reported, by process and name.
const PHASES_MAX: usize = 200;
/// So many pairs of process and name are distinguished.
const GROUPS_MAX: usize = 20_000;
/// Steps of so many names, and so many of each, are compared with those of other hosts.
const NAMES_MAX: usize = 8;
const BEGINS_MAX: usize = 128;
/// Of fewer steps nothing is learned.
const STEPS_MIN: usize = 3;
/// So many steps of a name are kept while they are read.
const STEPS_MAX: usize = 100_000;

/// The phases, while they are read.
#[derive(Debug, Default)]
pub(super) struct PhaseSums {
    groups: HashMap<(Option<Upid>, String), Group>,
    /// By name and number: the first start on the host.
    begins: BTreeMap<String, BTreeMap<i64, WallNs>>,
}

#[derive(Debug)]
struct Group {
    reported: PartPhase,
    /// What its process held at the end of each step, by number.
    ends: BTreeMap<i64, f64>,
}

/// How much a process grows from step to step.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StepGrowth {
    /// The name of the steps.
    pub(super) stage: String,
    /// Zero where it is not sure that it grows.
    pub(super) bytes_per_step: i64,
    pub(super) bounds: StepBounds,
}

impl PhaseSums {
    pub(super) fn take(&mut self, row: &PhaseRow) {
        if row.kind != Some(PhaseForm::Marked) {
            return;
        }
        let step = row.step.or_else(|| Some(numbered(&row.name)?.1));
        let name = stage(&row.name);
        if let (Some(step), Some(begin)) = (step, row.begin_ts) {
            let steps = self.begins.entry(name.to_string()).or_default();
            if steps.len() < STEPS_MAX || steps.contains_key(&step) {
                let first = steps.entry(step).or_insert(begin);
                *first = begin.min(*first);
            }
        }
        let key = (row.upid, name.into_owned());
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&key) {
            return;
        }
        let name = key.1.clone();
        let group = self.groups.entry(key).or_insert_with(|| Group {
            reported: PartPhase {
                name,
                process_name: row.process_name.clone(),
                pid: row.tgid,
                rank: row.rank.clone(),
                count: 0,
                open_count: 0,
                timed_count: Some(0),
                total_ns: DurationNs(0),
                longest_ns: DurationNs(0),
            },
            ends: BTreeMap::new(),
        });
        let reported = &mut group.reported;
        let took = row.duration_ns.unwrap_or_default();
        let timed = reported.timed_count.get_or_insert(0);
        *timed += usize::from(row.duration_ns.is_some());
        reported.count += 1;
        reported.open_count += usize::from(row.ended_by != Some(PhaseEnd::Marked));
        reported.total_ns = DurationNs(reported.total_ns.0.saturating_add(took.0));
        reported.longest_ns = reported.longest_ns.max(took);
        if let Some((step, held)) = step.zip(row.rss_end_bytes)
            && group.ends.len() < STEPS_MAX
        {
            group.ends.insert(step, held.0 as f64);
        }
    }

    /// How much a process grows in each of the steps that it has most of.
    pub(super) fn growth_of(&self, upid: Upid) -> Option<StepGrowth> {
        let own = self.groups.iter().filter(|((of, _), _)| *of == Some(upid));
        let slopes = own.filter_map(|((_, stage), group)| {
            let points: Vec<(i64, f64)> =
                group.ends.iter().map(|(&at, &held)| (at, held)).collect();
            Some((points.len(), stage, Slope::steady(&points)?))
        });
        let (_, stage, slope) = slopes.max_by_key(|(count, stage, _)| (*count, *stage))?;
        let is_growing = slope.is_growing();
        let bound = |bound: f64| bound.is_finite().then_some(bound as i64);
        Some(StepGrowth {
            stage: stage.clone(),
            bytes_per_step: if is_growing {
                slope.bytes_per_step as i64
            } else {
                0
            },
            bounds: StepBounds {
                low_bytes_per_step: bound(slope.low_bytes_per_step),
                high_bytes_per_step: bound(slope.high_bytes_per_step),
                step_count: i64::try_from(slope.step_count).ok(),
            },
        })
    }

    /// The phases that took longest, and how many there are.
    pub(super) fn phases(&self) -> (Vec<PartPhase>, usize) {
        let mut phases: Vec<&PartPhase> =
            self.groups.values().map(|group| &group.reported).collect();
        phases.order_by(|a, b| {
            let key = |one: &PartPhase| (std::cmp::Reverse(one.total_ns), one.pid);
            key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
        });
        let count = phases.len();
        (
            phases.into_iter().take(PHASES_MAX).cloned().collect(),
            count,
        )
    }

    /// When steps began.
    pub(super) fn marks(&self) -> Vec<PartMarks> {
        let mut names: Vec<(&String, &BTreeMap<i64, WallNs>)> = self.begins.iter().collect();
        names.retain(|(_, steps)| steps.len() >= STEPS_MIN);
        names.order_by_key(|(name, steps)| (std::cmp::Reverse(steps.len()), *name));
        names.truncate(NAMES_MAX);
        let marks = names.into_iter().map(|(name, steps)| {
            // Hosts with other numbers of steps have those in common that stay longest.
            let mut every = 1;
            while steps.keys().filter(|step| *step % every == 0).count() > BEGINS_MAX {
                every *= 2;
            }
            let mut begins = Coded::default();
            let (mut last_step, mut last_begin) = (0, 0);
            for (&step, &WallNs(begin)) in steps.iter().filter(|(step, _)| *step % every == 0) {
                begins.push(step.wrapping_sub(last_step));
                begins.push(begin.wrapping_sub(last_begin));
                (last_step, last_begin) = (step, begin);
            }
            PartMarks {
                name: name.clone(),
                begins,
            }
        });
        marks.collect()
    }
}

impl PartMarks {
    /// The steps and their begins.
    pub(super) fn steps(&self) -> impl Iterator<Item = (i64, i64)> {
        let mut numbers = self.begins.iter();
        let (mut step, mut begin) = (0_i64, 0_i64);
        std::iter::from_fn(move || {
            step = step.wrapping_add(numbers.next()?);
            begin = begin.wrapping_add(numbers.next()?);
            Some((step, begin))
        })
    }
}
