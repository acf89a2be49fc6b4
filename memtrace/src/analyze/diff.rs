//! Two recordings against each other, by role and kind.

use super::amounts::Sum;
use super::analysis::Analysis;
use super::growth::Verdict;
use super::roles::{Kind, KindFigures, RoleFinding};
use crate::model::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A role that never holds this part of the whole in either recording fails no comparison:
/// small ones come and go.
const MIN_SHARE: i64 = 20;

/// What two recordings have in common, and what not.
#[derive(Clone, Debug)]
pub struct Diff {
    /// The command of the second did not end well, and that of the first did: whatever it did
    /// not get to do costs no memory.
    pub is_newly_failed: bool,
    /// All processes together.
    pub whole: Comparison,
    /// Every role that is in either, the one whose peak changed most first.
    pub roles: Vec<Comparison>,
}

/// One role, or all processes, before and after.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The role's name; "all" for the whole.
    pub name: Arc<str>,
    /// How many processes it had in the whole recording; `None` where the role is missing.
    pub process_counts: (Option<usize>, Option<usize>),
    /// By [`Kind::ALL`].
    pub kinds: [KindChange; Kind::ALL.len()],
    /// The highest that was held on all GPUs together; unknown where a recording has no GPU,
    /// or the driver did not tell all of it.
    pub gpu_peak: Change,
}

/// Figures of one kind before and after. Of a role that a recording does not have, peak and
/// mean are zero there; what was not known stays unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KindChange {
    /// The highest simultaneous sum.
    pub peak: Change,
    /// The mean over the whole recording.
    pub mean: Change,
    /// The slope per hour where it is a steady one, zero where there is none, unknown where a
    /// recording is too short to tell.
    pub slope: Change,
}

/// A figure before and after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// In the first recording.
    pub before: Option<Bytes>,
    /// In the second.
    pub after: Option<Bytes>,
}

/// A figure that rose by more than was allowed.
#[derive(Clone, Debug, PartialEq)]
pub struct Excess {
    /// The role, or "all".
    pub name: Arc<str>,
    /// "peak" or "mean" of RSS, or "gpu_peak".
    pub figure: &'static str,
    /// Before and after.
    pub change: Change,
}

impl Change {
    /// By how much it rose; below zero where it fell.
    pub fn difference(&self) -> Option<Bytes> {
        Some(self.after? - self.before?)
    }

    /// The rise as a part of what was before; `None` where that was nothing.
    pub fn ratio(&self) -> Option<f64> {
        let before = self.before.filter(|before| before.0 > 0)?;
        Some(self.difference()?.0 as f64 / before.0 as f64)
    }

    fn highest(&self) -> i64 {
        let highest = self.before.max(self.after);
        highest.map_or(0, |bytes| bytes.0)
    }

    fn exceeds(&self, allowed: f64) -> bool {
        match (self.ratio(), self.difference()) {
            (Some(ratio), _) => ratio > allowed,
            // There was nothing before.
            (None, Some(difference)) => difference.0 > 0,
            (None, None) => false,
        }
    }
}

impl Comparison {
    /// The change of a kind.
    pub fn kind(&self, kind: Kind) -> &KindChange {
        &self.kinds[kind as usize]
    }
}

impl Diff {
    /// Compares two recordings, role by role.
    pub fn of(before: &Analysis, after: &Analysis) -> Self {
        let mut names: BTreeMap<&str, (Option<&RoleFinding>, Option<&RoleFinding>)> =
            BTreeMap::new();
        for role in &before.roles {
            names.entry(&role.name).or_default().0 = Some(role);
        }
        for role in &after.roles {
            names.entry(&role.name).or_default().1 = Some(role);
        }
        let mut roles: Vec<Comparison> = names
            .into_iter()
            .map(|(name, roles)| compared(name, roles, (before, after)))
            .collect();
        let moved = |role: &Comparison| {
            let difference = role.kind(Kind::Rss).peak.difference();
            difference.map_or(0, |bytes| bytes.0.saturating_abs())
        };
        roles.sort_by_key(|role| std::cmp::Reverse(moved(role)));
        Self {
            is_newly_failed: before.has_command_failed() != Some(true)
                && after.has_command_failed() == Some(true),
            whole: whole(before, after),
            roles,
        }
    }

    /// The peaks and means of RSS, and the peaks on GPUs, that rose by more than `allowed`, a
    /// part of what they were: of all processes together, and of every role that holds a
    /// twentieth of the whole.
    pub fn excesses(&self, allowed: f64) -> Vec<Excess> {
        let figures = |role: &Comparison| {
            let rss = role.kind(Kind::Rss);
            [
                (rss.peak, "peak", rss.peak),
                (rss.peak, "mean", rss.mean),
                (role.gpu_peak, "gpu_peak", role.gpu_peak),
            ]
        };
        let least = figures(&self.whole).map(|(size, ..)| size.highest() / MIN_SHARE);
        std::iter::once(&self.whole)
            .chain(&self.roles)
            .flat_map(|role| {
                let told = figures(role).into_iter().zip(least);
                let told = told.filter(|((size, ..), least)| size.highest() >= *least);
                told.map(|((_, figure, change), _)| Excess {
                    name: Arc::clone(&role.name),
                    figure,
                    change,
                })
            })
            .filter(|excess| excess.change.exceeds(allowed))
            .collect()
    }
}

fn compared(
    name: &str,
    (before, after): (Option<&RoleFinding>, Option<&RoleFinding>),
    recordings: (&Analysis, &Analysis),
) -> Comparison {
    // A role that was on no GPU held nothing there, where that was recorded.
    let on_gpus = |role: Option<&RoleFinding>, recording: &Analysis| {
        recording.gpus.as_ref()?;
        match role.and_then(|role| role.gpu) {
            Some(gpu) => gpu.highest.certain_bytes(),
            None => Some(Bytes(0)),
        }
    };
    let count = |role: &RoleFinding| role.members.len();
    let change = |kind: Kind| {
        let figures = |role: Option<&RoleFinding>| role.map(|role| *role.kind(kind));
        kind_change(figures(before), figures(after))
    };
    Comparison {
        name: Arc::from(name),
        process_counts: (before.map(count), after.map(count)),
        kinds: Kind::ALL.map(change),
        gpu_peak: Change {
            before: on_gpus(before, recordings.0),
            after: on_gpus(after, recordings.1),
        },
    }
}

fn kind_change(before: Option<KindFigures>, after: Option<KindFigures>) -> KindChange {
    let both = |figure: fn(&KindFigures) -> Option<Bytes>| {
        let of = |role: Option<KindFigures>| match role {
            Some(figures) => figure(&figures),
            None => Some(Bytes(0)),
        };
        Change {
            before: of(before),
            after: of(after),
        }
    };
    KindChange {
        peak: both(|figures| figures.peak.map(|(bytes, _)| bytes)),
        mean: both(|figures| figures.mean_bytes),
        slope: both(slope),
    }
}

/// What is no trend is no slope: a fitted line through a step tells of the step's place.
fn slope(figures: &KindFigures) -> Option<Bytes> {
    figures.growth.map(|growth| match growth.verdict {
        Verdict::NoTrend => Bytes(0),
        Verdict::Growing | Verdict::Shrinking => Bytes(growth.bytes_per_hour as i64),
    })
}

/// All processes together: of the whole tree the peaks by kind are those at its peak of RSS.
fn whole(before: &Analysis, after: &Analysis) -> Comparison {
    let figures = |analysis: &Analysis, kind: Kind| {
        let peak = analysis.peak.as_ref();
        let at_peak = peak.map(|peak| {
            let totals = &peak.totals;
            let sum: &Sum = match kind {
                Kind::Rss => &totals.rss,
                Kind::Anon => &totals.anon,
                Kind::File => &totals.file,
                Kind::Shmem => &totals.shmem,
                Kind::Swap => &totals.swap,
            };
            (sum.bytes(), peak.boot_ns)
        });
        let means = analysis.roles.iter().map(|role| role.kind(kind).mean_bytes);
        let known: Vec<Bytes> = means.flatten().collect();
        KindFigures {
            peak: at_peak.and_then(|(bytes, at)| Some((bytes?, at))),
            mean_bytes: (!known.is_empty()).then(|| known.into_iter().sum()),
            growth: analysis.growth.filter(|_| kind == Kind::Rss),
        }
    };
    let count = |analysis: &Analysis| Some(analysis.processes.len());
    let on_gpus = |analysis: &Analysis| analysis.gpus.as_ref()?.recorded.certain_bytes();
    Comparison {
        name: Arc::from("all"),
        process_counts: (count(before), count(after)),
        kinds: Kind::ALL
            .map(|kind| kind_change(Some(figures(before, kind)), Some(figures(after, kind)))),
        gpu_peak: Change {
            before: on_gpus(before),
            after: on_gpus(after),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::golden::{
        ray_with_vllm, ray_with_vllm_later, vllm_on_gpus, vllm_on_gpus_later,
    };

    fn diff() -> Diff {
        Diff::of(
            &ray_with_vllm().analyzed(None),
            &ray_with_vllm_later().analyzed(None),
        )
    }

    fn role<'a>(diff: &'a Diff, name: &str) -> &'a Comparison {
        let mut roles = diff.roles.iter();
        roles
            .find(|role| &*role.name == name)
            .expect("a role of either")
    }

    #[test]
    fn what_grew_is_told_by_role_and_kind() {
        let diff = diff();
        let workers = role(&diff, "vLLM worker");
        let anon = workers.kind(Kind::Anon);
        assert_eq!(anon.peak.difference(), Some(Bytes(1200 << 20)));
        assert_eq!(anon.slope.before, Some(Bytes(0)));
        let slope = anon.slope.after.expect("a slope").0 >> 20;
        assert!((6_800..7_600).contains(&slope), "{slope} MiB/h");
        assert_eq!(workers.kind(Kind::File).peak.difference(), Some(Bytes(0)));
        assert_eq!(&*diff.roles[0].name, "vLLM worker");
    }

    #[test]
    fn a_role_that_is_new_has_nothing_before() {
        let diff = diff();
        let loader = role(&diff, "PyTorch DataLoader worker");
        assert_eq!(loader.process_counts, (None, Some(1)));
        assert_eq!(loader.kind(Kind::Anon).peak.before, Some(Bytes(0)));
        assert_eq!(loader.kind(Kind::Rss).peak.ratio(), None);
    }

    #[test]
    fn what_grew_on_gpus_is_told_and_can_fail_a_comparison() {
        let (before, after) = (
            vllm_on_gpus().analyzed(None),
            vllm_on_gpus_later().analyzed(None),
        );
        let diff = Diff::of(&before, &after);
        let gib = |gib: f64| Some(Bytes((gib * f64::from(1 << 30)) as i64));
        let four = Change {
            before: gib(140.0),
            after: gib(154.0),
        };
        assert_eq!(diff.whole.gpu_peak, four);
        assert_eq!(role(&diff, "vLLM worker").gpu_peak, four);
        let nothing = Change {
            before: gib(0.0),
            after: gib(0.0),
        };
        assert_eq!(role(&diff, "vLLM API server").gpu_peak, nothing);
        let excesses = diff.excesses(0.05);
        let told: Vec<_> = excesses
            .iter()
            .map(|one| (&*one.name, one.figure))
            .collect();
        assert_eq!(told, [("all", "gpu_peak"), ("vLLM worker", "gpu_peak")]);
        // Without a GPU in one of them it is not known what it held there.
        let other = ray_with_vllm().analyzed(None);
        let diff = Diff::of(&other, &after);
        assert_eq!(diff.whole.gpu_peak.before, None);
        assert!(
            diff.excesses(0.0)
                .iter()
                .all(|one| one.figure != "gpu_peak")
        );
    }

    #[test]
    fn a_command_that_failed_only_now_is_told() {
        let fine = ray_with_vllm().analyzed(None);
        let mut failed = ray_with_vllm_later().analyzed(None);
        failed.info.command_exit_code = Some(1);
        assert!(Diff::of(&fine, &failed).is_newly_failed);
        assert!(!Diff::of(&failed, &failed).is_newly_failed);
        assert!(!Diff::of(&failed, &fine).is_newly_failed);
    }

    #[test]
    fn the_means_of_the_roles_add_up_to_the_whole() {
        let diff = diff();
        let sum: Bytes = diff
            .roles
            .iter()
            .filter_map(|role| role.kind(Kind::Rss).mean.after)
            .sum();
        assert_eq!(diff.whole.kind(Kind::Rss).mean.after, Some(sum));
    }

    #[test]
    fn a_rise_above_what_is_allowed_is_an_excess_and_a_fall_is_none() {
        let diff = diff();
        let names = |allowed| -> Vec<(String, &str)> {
            let excesses = diff.excesses(allowed).into_iter();
            excesses
                .map(|excess| (excess.name.to_string(), excess.figure))
                .collect()
        };
        let told = |name: &str, figure| (name.to_owned(), figure);
        let all = names(0.05);
        assert!(all.contains(&told("all", "peak")) && all.contains(&told("vLLM worker", "mean")));
        assert!(
            all.contains(&told("PyTorch DataLoader worker", "peak")),
            "new is grown"
        );
        assert!(!all.iter().any(|(name, _)| name == "Ray driver"));
        assert!(!names(0.6).contains(&told("all", "peak")));
        let same = ray_with_vllm().analyzed(None);
        assert_eq!(Diff::of(&same, &same).excesses(0.0), []);
    }
}
