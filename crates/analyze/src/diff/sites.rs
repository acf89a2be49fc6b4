//! Functions that hold more than before, or less: in the process of each role of which most is
//! resident by its samples.

use super::Diff;
use crate::comparison::{Change, DiffReport, MIN_CHANGE};
use crate::{Analysis, ProcessAllocations, Sampled};
use memtrace_model::{Bytes, Order};
use memtrace_report::{Chapter, TableOf, words};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// So many standard errors hold a change in 999 of 1,000 cases: there are many functions.
const ERRORS: f64 = 3.3;

/// Less than this part of what samples say is resident needs no mention.
const MIN_UNREAD: i64 = 10;

/// A function that holds more, or less, by more than samples can be off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SiteChange {
    /// The role of the process.
    pub role: Arc<str>,
    /// The function of Python with its file, or the native one and those that called it. Without a
    /// line: lines move as a program is changed.
    pub place: String,
    /// Resident memory that was touched there first.
    pub resident: Change,
    /// The change is at least this (99.9 %): both come from samples, of some memory it is not known whether
    /// it was still resident, and of some not which function touched it.
    pub at_least_bytes: Bytes,
    /// It is at most this.
    pub at_most_bytes: Bytes,
}

/// Resident memory of a role's process that may be of any function of Python.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UnreadPython {
    /// The role of the process.
    pub role: Arc<str>,
    /// What was touched while Python ran and its frames were not read.
    pub resident: Change,
}

/// The process of a role that is compared, before and after.
struct Pair<'a> {
    role: Arc<str>,
    both: [&'a ProcessAllocations; 2],
}

/// Those of the roles that both have; others are reported elsewhere.
fn pairs<'a>(before: &'a Analysis, after: &'a Analysis) -> Vec<Pair<'a>> {
    let [before, after] = [before, after].map(by_role);
    let both = before.into_iter().filter_map(|(role, old)| {
        let both = [old, *after.get(&role)?];
        Some(Pair { role, both })
    });
    both.collect()
}

/// The process of each role of which most is resident: those of a role need not have lived together.
fn by_role(analysis: &Analysis) -> BTreeMap<Arc<str>, &ProcessAllocations> {
    let roles = analysis.roles.iter().filter_map(|role| {
        let all = analysis.allocations.iter();
        let members = all.filter(|one| one.who.upid.is_some_and(|upid| role.upids.contains(&upid)));
        let largest = members.max_by_key(|one| one.sum.resident_bytes)?;
        Some((Arc::clone(&role.name), largest))
    });
    roles.collect()
}

/// What changed, the largest change first.
pub(super) fn changes(before: &Analysis, after: &Analysis) -> Vec<SiteChange> {
    let pairs = pairs(before, after);
    let mut changes: Vec<SiteChange> = pairs.iter().flat_map(Pair::changes).collect();
    changes.order_by_key(|change| std::cmp::Reverse(change.resident.moved()));
    changes
}

/// What may be of any function of Python, where that is a tenth of what a process has.
pub(super) fn unread(before: &Analysis, after: &Analysis) -> Vec<UnreadPython> {
    let pairs = pairs(before, after).into_iter();
    let unread = pairs.filter(Pair::has_python).filter_map(|pair| {
        let of = |one: &ProcessAllocations| one.functions.unread().resident_bytes;
        let is_much = |one: &&ProcessAllocations| {
            let least = one.sum.resident_bytes.0 / MIN_UNREAD;
            of(one).0 >= least.max(MIN_CHANGE)
        };
        pair.both.iter().any(is_much).then(|| UnreadPython {
            role: pair.role,
            resident: Change::of(pair.both, |one| Some(of(one))),
        })
    });
    unread.collect()
}

impl Pair<'_> {
    /// Whether frames of Python were read in either: else functions are compared as machine code has them.
    fn has_python(&self) -> bool {
        self.both.iter().any(|one| one.functions.has_python())
    }

    fn changes(&self) -> Vec<SiteChange> {
        let has_python = self.has_python();
        let both = self.both.map(|one| {
            let functions = &one.functions;
            let mut places = functions.named.clone();
            if !has_python {
                for (place, function) in &functions.unread {
                    places
                        .entry(place.clone())
                        .or_default()
                        .sum
                        .add(&function.sum);
                }
            }
            places
        });
        // What may be of a function beside what is known to be its own.
        let other = |is_python: bool| {
            self.both.map(|one| {
                let mut other = one.functions.unnamed;
                if is_python {
                    other.add(&one.functions.unread());
                }
                other
            })
        };
        let (of_any, of_python) = (other(false), other(true));
        let places: BTreeSet<&String> = both.iter().flat_map(BTreeMap::keys).collect();
        let changes = places.into_iter().filter_map(|place| {
            let found = both.each_ref().map(|places| places.get(place));
            let is_python = found.iter().flatten().any(|function| function.is_python);
            let sampled = found.map(|one| one.map(|one| one.sum).unwrap_or_default());
            let other = if is_python { &of_python } else { &of_any };
            self.change(place, &sampled, other)
        });
        changes.collect()
    }

    fn change(
        &self,
        place: &str,
        sampled: &[Sampled; 2],
        other: &[Sampled; 2],
    ) -> Option<SiteChange> {
        // Of a function that is in one alone the other had nothing.
        let resident = |one: &Sampled| match one.grown_bytes {
            Bytes(0) => Some(Bytes(0)),
            _ => one.resident(),
        };
        let resident = Change {
            before: Some(resident(&sampled[0])?),
            after: Some(resident(&sampled[1])?),
        };
        let change = resident.difference()?;
        // A process that ended is compared at its fullest moment: which one that is differs from run to run,
        // and with it what of the memory was there.
        let [old, new] = sampled.each_ref().map(Sampled::independent_error);
        // By how much more it can be than is known in one of them.
        let more = |place: usize| {
            let (known, other) = (&sampled[place], &other[place]);
            let error = ERRORS * old.hypot(new).hypot(other.independent_error());
            let unsure = known.unknown_bytes + other.unknown_bytes + other.resident_bytes;
            Bytes(unsure.0.saturating_add(error as i64))
        };
        let (at_least, at_most) = (change - more(0), change + more(1));
        let is_sure = at_least > Bytes(0) || at_most < Bytes(0);
        (resident.is_notable() && is_sure).then(|| SiteChange {
            role: Arc::clone(&self.role),
            place: place.to_owned(),
            resident,
            at_least_bytes: at_least,
            at_most_bytes: at_most,
        })
    }
}

/// The functions that changed, and why others may be missing; `None` where there is neither.
pub(super) fn chapter(report: &DiffReport<Diff>, top: usize) -> Option<Chapter> {
    let (changes, unread) = (&report.diff.sites, &report.diff.unread_python);
    if changes.is_empty() && unread.is_empty() {
        return None;
    }
    let mut section = Chapter::new("Who allocated more or less");
    TableOf::of(changes.iter().take(top))
        .flexible("role", |change| change.role.to_string())
        .flexible("place", |change| change.place.clone())
        .held("a_bytes", 0, |change| change.resident.before)
        .held("b_bytes", 0, |change| change.resident.after)
        .change("change_bytes", 0, |change| change.resident.difference())
        .change("at_least_bytes", 1, |change| change.at_least_bytes)
        .change("at_most_bytes", 1, |change| change.at_most_bytes)
        .add_to(&mut section);
    section.rest(changes.len(), top, words::count, " more changes.");
    for one in unread.iter().take(top) {
        section.say(in_words(one));
    }
    if !changes.is_empty() {
        section.explain(
            "Who allocated more or less: resident memory by the function that touched it first, in the \
             process of each role that held most. From samples: the change is at least and at most so \
             much (99.9 %), and functions that may not have changed are left out.",
        );
    }
    Some(section)
}

/// Why a function of Python can be missing.
fn in_words(unread: &UnreadPython) -> String {
    let UnreadPython { role, resident } = unread;
    let [before, after] =
        [resident.before, resident.after].map(|one| words::bytes(one.unwrap_or_default()));
    format!(
        "{role}: the stacks of {before} in A and {after} in B have no Python frames. They can be of any of its \
         functions, so that a smaller change than that does not show."
    )
}
