//! Two recordings against each other, by role and kind, and from step to step.

mod chapters;
mod layouts;
mod report;
mod sites;
#[cfg(test)]
mod tests;

use super::analysis::Analysis;
use super::composition::Composition;
use super::growth::Verdict;
use super::held::{Held, HeldBasis};
use super::peak::Bound;
use super::phases::{PhaseLine, Repeated, Slope};
use super::process::Process;
use super::roles::{KindFigures, RoleFinding};
use super::sections::Report;
use crate::comparison::{
    Change, Changes, DiffReport, Difference, Excess, MIN_RISE_BYTES, MIN_SHARE, paired,
};
use memtrace_model::{Bytes, DurationNs, Kind, Order, PerKind};
use memtrace_report::{Chapter, Style, Table};
use report::ComparedRecording;
use schemars::JsonSchema;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::iter::once;
use std::sync::Arc;

pub use layouts::LayoutChange;
pub(super) use report::Object;
pub use sites::{SiteChange, UnreadPython};

/// What two recordings have in common, and what not.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Diff {
    /// The second failed and the first did not: a recorded process was killed by the OOM killer, the
    /// command did not end well, or a main process of another target crashed, was killed or exited
    /// with an error. Whatever it did not get to do costs no memory.
    pub is_newly_failed: bool,
    /// They were not observed in the same way: one saw every peak and the other only what it
    /// polled, or polled at another pace. Then no figure of RSS is in `excesses`.
    pub has_other_basis: bool,
    /// The most that all processes held together, every page once; the sum of RSS where kinds of
    /// memory are unknown.
    pub held_peak: Change,
    /// By how much that can be off, before and after.
    #[serde(skip)]
    pub held_error: (Bytes, Bytes),
    /// Whether both are known in the same way.
    #[serde(skip)]
    pub is_held_alike: bool,
    /// All processes together, the sums of what each held: shared pages count in each.
    pub whole: Comparison,
    /// Every role that is in either, the one whose peak changed most first.
    pub roles: Vec<Comparison>,
    /// Numbered phases that are in both, those that rise more than before first.
    pub stages: Vec<StageChange>,
    /// What changed inside of the processes of roles that are in both, the largest change first.
    pub layouts: Vec<LayoutChange>,
    /// Functions that surely hold more or less than before, the one that gained most first (`record --stacks`).
    pub sites: Vec<SiteChange>,
    /// Where much may be of any function of Python, so that `sites` can lack some.
    pub unread_python: Vec<UnreadPython>,
}

/// How the memory at the end of a numbered phase changes from step to step, before and after.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StageChange {
    /// Its name; `<N>` stands for the number.
    pub name: Arc<str>,
    /// The slope of what is held in the first recording; `None` with too few steps.
    pub before: Option<Slope>,
    /// In the second.
    pub after: Option<Slope>,
    /// Whether it surely grows by more than before.
    pub has_risen: bool,
    /// The role that surely grows most in the second.
    pub role: Option<Arc<str>>,
    /// By how much a step.
    pub role_after: Option<Slope>,
}

impl StageChange {
    /// Whether it surely grows by more than before, the two intervals being apart by a part of
    /// what it was, and by enough to matter over its steps.
    pub fn has_risen_by(&self, allowed: f64) -> bool {
        let (Some(before), Some(after)) = (&self.before, &self.after) else {
            return false;
        };
        let most = before.high_bytes_per_step.max(0.0) * (1.0 + allowed);
        after.is_growing()
            && after.rise_bytes() >= MIN_RISE_BYTES
            && after.low_bytes_per_step > most
    }

    /// By how much its slope rose; zero where one is not known.
    fn difference(&self) -> f64 {
        let slope = |slope: &Option<Slope>| slope.as_ref().map(|slope| slope.bytes_per_step);
        let both = slope(&self.before).zip(slope(&self.after));
        both.map_or(0.0, |(before, after)| after - before)
    }

    fn change(&self) -> Change {
        let bytes = |slope: &Slope| Bytes(slope.bytes_per_step.round() as i64);
        Change::of([&self.before, &self.after], |slope| {
            slope.as_ref().map(bytes)
        })
    }
}

/// One role, or all processes, before and after.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Comparison {
    /// The role's name; `all` for the whole.
    pub name: Arc<str>,
    /// How many processes it had in the whole first recording; `None` where the role is missing.
    pub process_count_before: Option<usize>,
    /// The same in the second.
    pub process_count_after: Option<usize>,
    /// The change of each kind.
    pub kinds: PerKind<KindChange>,
    /// The highest that was held on all GPUs together; unknown where a recording has no GPU,
    /// or the driver did not tell all of it.
    pub gpu_peak: Change,
    /// By how much the sums of RSS can be off, before and after: the errors of the kernel's
    /// counters that each recording states.
    #[serde(skip)]
    pub error: (Bytes, Bytes),
}

/// Figures of one kind before and after. Of a role that a recording does not have, peak and
/// mean are zero there; what was not known stays unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct KindChange {
    /// The highest simultaneous sum.
    pub peak: Change,
    /// The mean over the whole recording; of all processes unknown where that of a role is.
    pub mean: Change,
    /// The slope per hour where it is a steady one, zero where there is none, unknown where a
    /// recording is too short to tell.
    #[serde(rename = "bytes_per_hour")]
    pub slope: Change,
}

impl Comparison {
    /// The change of a kind.
    pub fn kind(&self, kind: Kind) -> &KindChange {
        &self.kinds[kind]
    }
}

impl Diff {
    /// Compares two recordings, role by role.
    pub fn of(before: &Analysis, after: &Analysis) -> Self {
        let names = paired([&before.roles, &after.roles], |role| &role.name);
        let roles = names.into_iter();
        let roles = roles.map(|(name, roles)| compared(name, roles, [before, after]));
        let mut roles: Vec<Comparison> = roles.collect();
        roles.order_by_key(|role| Reverse(role.kind(Kind::Rss).peak.moved()));
        Self {
            is_newly_failed: !before.has_failed() && after.has_failed(),
            has_other_basis: basis(before) != basis(after),
            held_peak: Change::of([before, after], |one| Some(most_held(one)?.bytes)),
            held_error: (held_error(before), held_error(after)),
            is_held_alike: held_basis(before) == held_basis(after),
            whole: whole(before, after),
            roles,
            stages: stages(before, after),
            layouts: layouts::changes(before, after),
            sites: sites::changes(before, after),
            unread_python: sites::unread(before, after),
        }
    }
}

impl Difference for Diff {
    const FORMAT: &'static str = "memtrace-diff";
    const VERSION: u32 = 1;
    const HEAD: fn(&DiffReport<Self>) -> Chapter = chapters::head;
    const TABLE: fn(&DiffReport<Self>, usize) -> Table = chapters::figures;
    const CHANGES: &'static [Changes<Self>] = chapters::CHANGES;
    type Of = Report;
    type Side<'a> = ComparedRecording<'a>;

    fn between(before: &Report, after: &Report) -> Self {
        Self::of(before, after)
    }

    /// What rose by more than `allowed`, a part of what it was, and by more than it can be off:
    /// the most that was held, the peaks and means of RSS and the peaks on GPUs, of all processes
    /// together and of every role that holds a twentieth of the whole; and memory from step to step.
    /// Where the recordings have no common basis, only what is on GPUs, which no backend observes.
    fn excesses(&self, allowed: f64) -> Vec<Excess> {
        let figures = |role: &Comparison| {
            let rss = role.kind(Kind::Rss);
            let none = (Bytes(0), Bytes(0));
            // Of two ways to know what is held, one can count what the other does not.
            let peak = match std::ptr::eq(role, &raw const self.whole) && self.is_held_alike {
                true => ("held_peak", "most held", self.held_peak, self.held_error),
                false => ("peak", "peak of RSS", rss.peak, role.error),
            };
            [
                (peak.2, peak),
                (rss.peak, ("mean", "mean of RSS", rss.mean, role.error)),
                (
                    role.gpu_peak,
                    ("gpu_peak", "peak on GPUs", role.gpu_peak, none),
                ),
            ]
        };
        let least = figures(&self.whole).map(|(size, _)| size.highest() / MIN_SHARE);
        let roles = once(&self.whole).chain(&self.roles);
        let of_roles = roles.flat_map(|role| {
            let reported = figures(role).into_iter().zip(least);
            let reported = reported.filter(|((size, _), least)| size.highest() >= *least);
            let risen =
                reported.filter(|((_, (.., change, error)), _)| change.exceeds(allowed, *error));
            risen.map(|((_, (figure, shown, change, _)), _)| {
                Excess::of(&role.name, figure, shown, change)
            })
        });
        let stages = self.stages.iter();
        let risen = stages.filter(|stage| stage.has_risen_by(allowed));
        let of_stages = risen.map(|stage| {
            let shown = "memory of the tree per step";
            Excess::of(&stage.name, "per_step", shown, stage.change())
        });
        let is_comparable = |excess: &Excess| !self.has_other_basis || excess.figure == "gpu_peak";
        of_roles.chain(of_stages).filter(is_comparable).collect()
    }

    fn is_newly_failed(&self) -> bool {
        self.is_newly_failed
    }

    fn cut(&mut self, top: usize) {
        self.roles.truncate(top);
    }

    fn side(of: &Report) -> ComparedRecording<'_> {
        ComparedRecording::of(of)
    }

    fn write_page(
        report: &mut DiffReport<Self>,
        style: &Style,
        reported: &[Chapter],
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        report::write_page(report, style, reported, out)
    }
}

/// How memory was observed: whether every peak was seen, and else how often it was polled.
fn basis(analysis: &Analysis) -> Option<DurationNs> {
    analysis
        .info
        .is_polled()
        .then_some(analysis.info.interval_ns)
}

/// By how much a sum over some processes can be off of which so many lived at once.
fn error<'a>(members: impl Iterator<Item = &'a Process>, at_once: usize) -> Bytes {
    let mut errors: Vec<Bytes> = members
        .filter_map(|process| match process.peak.bound {
            Bound::Within(error) => Some(error),
            _ => None,
        })
        .collect();
    errors.sort_unstable_by_key(|error| std::cmp::Reverse(*error));
    errors.into_iter().take(at_once).sum()
}

/// By how much the sum of a role can be off.
pub(super) fn error_of(role: &RoleFinding, recording: &Analysis) -> Bytes {
    let members = role
        .members
        .iter()
        .map(|&place| &recording.processes[place]);
    let at_peak = role.at_peak.map_or(0, |at_peak| at_peak.process_count);
    error(members, at_peak.max(1))
}

/// Numbered phases that both have.
fn stages(before: &Analysis, after: &Analysis) -> Vec<StageChange> {
    fn numbered(analysis: &Analysis) -> impl Iterator<Item = &Repeated> {
        let lines = analysis.phases.iter().flat_map(|phases| &phases.lines);
        lines.filter_map(|line| match line {
            PhaseLine::Many(many) => Some(many.as_ref()).filter(|many| many.steps.is_some()),
            PhaseLine::One(_) => None,
        })
    }
    let earlier: BTreeMap<&str, &Repeated> = numbered(before)
        .map(|stage| (&*stage.name, stage))
        .collect();
    let both = numbered(after).filter_map(|stage| Some((*earlier.get(&*stage.name)?, stage)));
    let mut stages: Vec<StageChange> = both
        .map(|(before, after)| {
            let sure = after.roles.iter().filter_map(|part| {
                let slope = part.slope.filter(Slope::is_growing)?;
                Some((Arc::clone(&part.name), slope))
            });
            let most = sure.max_by(|(_, a), (_, b)| a.bytes_per_step.total_cmp(&b.bytes_per_step));
            let (role, role_after) = most.unzip();
            let mut stage = StageChange {
                name: Arc::clone(&after.name),
                before: before.steps.as_ref().and_then(|steps| steps.tree),
                after: after.steps.as_ref().and_then(|steps| steps.tree),
                has_risen: false,
                role,
                role_after,
            };
            stage.has_risen = stage.has_risen_by(0.0);
            stage
        })
        .collect();
    stages.order_by(|a, b| {
        let by_rise = b.difference().total_cmp(&a.difference());
        b.has_risen.cmp(&a.has_risen).then(by_rise)
    });
    stages
}

fn compared(
    name: &str,
    roles: [Option<&RoleFinding>; 2],
    recordings: [&Analysis; 2],
) -> Comparison {
    let [before, after] = roles;
    let both = [(before, recordings[0]), (after, recordings[1])];
    // A role that was on no GPU held nothing there, where that was recorded.
    let on_gpus = |(role, recording): (Option<&RoleFinding>, &Analysis)| {
        recording.gpus.as_ref()?;
        match role.and_then(|role| role.gpu) {
            Some(gpu) => gpu.highest.certain_bytes(),
            None => Some(Bytes(0)),
        }
    };
    let [error_before, error_after] =
        both.map(|(role, recording)| role.map_or(Bytes(0), |role| error_of(role, recording)));
    Comparison {
        name: Arc::from(name),
        process_count_before: before.map(|role| role.process_count),
        process_count_after: after.map(|role| role.process_count),
        kinds: PerKind::of(|kind| kind_change(roles.map(|role| role.map(|role| *role.kind(kind))))),
        gpu_peak: Change::of(both, on_gpus),
        error: (error_before, error_after),
    }
}

fn kind_change(both: [Option<KindFigures>; 2]) -> KindChange {
    let change = |figure: fn(&KindFigures) -> Option<Bytes>| {
        Change::of(both, |role| match role {
            Some(figures) => figure(&figures),
            None => Some(Bytes(0)),
        })
    };
    KindChange {
        peak: change(|figures| figures.peak.map(|(bytes, _)| bytes)),
        mean: change(|figures| figures.mean_bytes),
        slope: change(slope),
    }
}

/// What is no trend is no slope: a fitted line through a step tells of the step's place.
fn slope(figures: &KindFigures) -> Option<Bytes> {
    let growth = figures.growth?;
    match growth.verdict {
        // A rise in a short run has no pace per hour.
        Verdict::Rising => None,
        Verdict::NoTrend => Some(Bytes(0)),
        Verdict::Growing | Verdict::Shrinking => Some(Bytes(growth.bytes_per_hour as i64)),
    }
}

/// The most that was held, and how well that is known.
fn most_held(analysis: &Analysis) -> Option<Held> {
    let rss = || analysis.rss_peak.map(|(bytes, _)| Held::exact(bytes.0));
    analysis.held_peak.or_else(rss)
}

fn held_basis(analysis: &Analysis) -> Option<HeldBasis> {
    Some(analysis.peak.as_ref()?.held?.basis)
}

fn held_error(analysis: &Analysis) -> Bytes {
    let held = most_held(analysis).unwrap_or_default();
    (held.at_most - held.bytes).max(held.bytes - held.at_least)
}

/// All processes together: the highest sum of RSS, and the kinds at the instant when they held
/// the most.
fn whole(before: &Analysis, after: &Analysis) -> Comparison {
    let figures = |analysis: &Analysis, kind: Kind| {
        let at_peak = |peak: &Composition| Some((peak.totals[kind].bytes()?, peak.at));
        let peak = match kind {
            Kind::Rss => analysis.rss_peak,
            _ => analysis.peak.as_ref().and_then(at_peak),
        };
        let means = analysis.roles.iter().map(|role| role.kind(kind).mean_bytes);
        let mean: Option<Bytes> = means.sum();
        KindFigures {
            peak,
            mean_bytes: mean.filter(|_| !analysis.roles.is_empty()),
            growth: analysis.growth.filter(|_| kind == Kind::Rss),
        }
    };
    let count = |analysis: &Analysis| Some(analysis.processes.len());
    let error_of = |analysis: &Analysis| {
        let at_peak = analysis.peak.as_ref().map_or(0, |peak| peak.holders.len());
        error(analysis.processes.iter(), at_peak)
    };
    let on_gpus = |analysis: &Analysis| analysis.gpus.as_ref()?.recorded.certain_bytes();
    Comparison {
        name: Arc::from("all"),
        process_count_before: count(before),
        process_count_after: count(after),
        kinds: PerKind::of(|kind| {
            kind_change([before, after].map(|analysis| Some(figures(analysis, kind))))
        }),
        gpu_peak: Change::of([before, after], on_gpus),
        error: (error_of(before), error_of(after)),
    }
}
