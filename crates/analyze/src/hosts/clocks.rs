//! How the clocks of hosts stand to each other: by NTP's bound, and where there is none, by steps that
//! every host begins at one time, as those behind a barrier are.

use super::part::HostPart;
use super::run::HostClockLine;
use super::sum::Standing;
use memtrace_model::{DurationNs, WallNs};
use std::collections::BTreeMap;

/// What waits at a barrier goes on within this: a message takes so long, and a process until it runs.
const BARRIER_NS: i64 = 1_000_000;
/// Fewer steps in common say nothing.
const STEPS_MIN: usize = 3;

/// What is known of the clock of one host.
#[derive(Default)]
pub(super) struct KnownClock {
    pub(super) line: HostClockLine,
    /// By how much it is off at most, by its kernel's account.
    bound_ns: Option<i64>,
    /// By how much it is ahead of the reference, and how far that can be off.
    by_steps: Option<(i64, i64)>,
    /// By how much the reference is off from the clocks that steps say nothing of.
    reference_ns: Option<i64>,
}

/// How much later something was on one host than something else on another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Later {
    pub(super) ns: i64,
    /// By how much that can be off; `None` where it can be anything.
    pub(super) error_ns: Option<i64>,
}

impl KnownClock {
    /// A time of the host, as well as it is known.
    pub(super) fn reported(&self, wall: WallNs) -> WallNs {
        match self.by_steps.filter(|_| self.line.is_corrected) {
            Some((ahead, _)) => WallNs(wall.0.saturating_sub(ahead)),
            None => wall,
        }
    }

    /// Whether its kernel bounds its error, or steps correct it.
    pub(super) fn is_known(&self) -> bool {
        self.bound_ns.is_some() || self.line.is_corrected
    }

    /// How it stands to those of all hosts.
    pub(super) fn standing(&self) -> Standing {
        let by_steps = self.by_steps.filter(|_| self.bound_ns.is_none());
        let by_steps = by_steps.map(|(ahead_ns, error)| Standing {
            ahead_ns,
            error_ns: self
                .reference_ns
                .map(|reference| reference.saturating_add(error)),
        });
        by_steps.unwrap_or(Standing {
            ahead_ns: 0,
            error_ns: self.bound_ns,
        })
    }

    /// How much later a time of this host is than one of another.
    pub(super) fn later(&self, own: WallNs, other: &Self, others: WallNs) -> Later {
        let apart = own.0.saturating_sub(others.0);
        if self.line.host == other.line.host {
            return Later {
                ns: apart,
                error_ns: Some(0),
            };
        }
        let both = |a: Option<i64>, b: Option<i64>| Some(a?.saturating_add(b?));
        let by_steps = self.by_steps.zip(other.by_steps).map(|(a, b)| Later {
            ns: apart.saturating_sub(a.0).saturating_add(b.0),
            error_ns: Some(a.1.saturating_add(b.1)),
        });
        let by_bounds = both(self.bound_ns, other.bound_ns).map(|error_ns| Later {
            ns: apart,
            error_ns: Some(error_ns),
        });
        let known = by_steps.into_iter().chain(by_bounds);
        known.min_by_key(|later| later.error_ns).unwrap_or(Later {
            ns: self
                .reported(own)
                .0
                .saturating_sub(other.reported(others).0),
            error_ns: None,
        })
    }
}

/// The begins of steps on a host: by name and number.
type Begins<'a> = BTreeMap<&'a str, BTreeMap<i64, i64>>;

/// How two clocks differ by the steps of one name.
struct Skew<'a> {
    stage: &'a str,
    step_count: usize,
    ahead_ns: i64,
    error_ns: i64,
}

fn begins<'a>(parts: &[&'a HostPart]) -> Begins<'a> {
    let mut begins = Begins::new();
    for marks in parts.iter().flat_map(|part| &part.marks) {
        begins.entry(&marks.name).or_default().extend(marks.steps());
    }
    begins
}

/// By the steps in common whose begins differ most alike.
fn skew<'a>(own: &Begins<'a>, reference: &Begins<'_>) -> Option<Skew<'a>> {
    let skews = own.iter().filter_map(|(&stage, steps)| {
        let others = reference.get(stage)?;
        let both = steps
            .iter()
            .filter_map(|(step, at)| Some(at.saturating_sub(*others.get(step)?)));
        let mut apart: Vec<i64> = both.collect();
        apart.sort_unstable();
        let ahead_ns = *apart.get(apart.len() / 2)?;
        let far =
            |one: Option<&i64>| one.map_or(0, |one| one.saturating_sub(ahead_ns).saturating_abs());
        let error_ns = far(apart.first()).max(far(apart.last())).max(BARRIER_NS);
        (apart.len() >= STEPS_MIN).then_some(Skew {
            stage,
            step_count: apart.len(),
            ahead_ns,
            error_ns,
        })
    });
    skews.min_by_key(|skew| skew.error_ns)
}

/// Of hosts, each with its recordings.
pub(super) fn known(hosts: &[(&str, Vec<&HostPart>)]) -> Vec<KnownClock> {
    let all: Vec<Begins<'_>> = hosts.iter().map(|(_, parts)| begins(parts)).collect();
    let bound = |parts: &[&HostPart]| {
        let errors = parts.iter().map(|part| part.clock.error_ns);
        let error: Option<Vec<DurationNs>> = errors.collect();
        Some(error?.into_iter().max()?.0)
    };
    // The clock that is known best among those of hosts with steps.
    let with_steps = hosts
        .iter()
        .zip(&all)
        .filter(|(_, begins)| !begins.is_empty());
    let reference = with_steps.min_by_key(|((host, parts), _)| {
        let bound = bound(parts);
        (bound.is_none(), bound, *host)
    });
    let reference_ns = reference.and_then(|((_, parts), _)| bound(parts));
    let is_bounded = |(_, parts): &(&str, Vec<&HostPart>)| bound(parts).is_some();
    // Where no clock has a bound, those that steps tell of stand to each other alone.
    let apart_ns = reference_ns.or((!hosts.iter().any(is_bounded)).then_some(0));
    let lines = hosts.iter().zip(&all).map(|((host, parts), own)| {
        let synchronized = parts.iter().map(|part| part.clock.is_synchronized);
        let synchronized: Option<Vec<bool>> = synchronized.collect();
        let bound_ns = bound(parts);
        let is_reference = reference.is_some_and(|((other, _), _)| other == host);
        let other = reference.filter(|_| !is_reference);
        // Against the reference, NTP's bounds of both count.
        let by_ntp = bound_ns
            .zip(reference_ns)
            .map(|(own, other)| own.saturating_add(other));
        let is_possible = |skew: &Skew<'_>| {
            let most = by_ntp.map(|by_ntp| by_ntp.saturating_add(skew.error_ns));
            most.is_none_or(|most| skew.ahead_ns.saturating_abs() <= most)
        };
        let found = other.and_then(|((other, _), begins)| {
            Some((*other, skew(own, begins).filter(is_possible)?))
        });
        // Steps that one host begins later each time look like a clock that is ahead: what NTP
        // leaves open they don't settle.
        let better = found.as_ref().filter(|_| by_ntp.is_none());
        let by_steps = better.map(|(_, skew)| (skew.ahead_ns, skew.error_ns));
        KnownClock {
            bound_ns,
            reference_ns: apart_ns,
            by_steps: by_steps.or(is_reference.then_some((0, 0))),
            line: HostClockLine {
                host: (*host).to_owned(),
                is_synchronized: synchronized.map(|all| all.into_iter().all(|one| one)),
                error_ns: bound_ns.map(DurationNs),
                skew_ns: found.as_ref().map(|(_, skew)| DurationNs(skew.ahead_ns)),
                skew_error_ns: found.as_ref().map(|(_, skew)| DurationNs(skew.error_ns)),
                reference: found.as_ref().map(|(other, _)| (*other).to_owned()),
                stage: found.as_ref().map(|(_, skew)| skew.stage.to_owned()),
                step_count: found.as_ref().map_or(0, |(_, skew)| skew.step_count),
                is_corrected: better.is_some(),
            },
        }
    });
    lines.collect()
}
