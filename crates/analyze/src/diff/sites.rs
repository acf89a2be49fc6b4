//! Functions that hold more than before, or less: in the process of each role of which most is
//! resident by its samples.

use super::Diff;
use crate::allocations::Moments;
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

/// A function that surely holds more, or less.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SiteChange {
    /// The role of the process.
    pub role: Arc<str>,
    /// The function of Python with its file, or the native one and those that called it. Without a
    /// line: lines move as a program is changed.
    pub place: String,
    /// Resident memory that was touched there first: the most at once in the last three seconds of the
    /// process or of the recording.
    pub resident: Change,
    /// The change is at least this (99.9 %): both come from samples, of some memory it is not known whether
    /// it was still resident, and of some not which function touched it. What can have been held between two
    /// looks, and in the three seconds before, is in it, too.
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
        let of = |one: &ProcessAllocations| one.functions.unread().fullest().resident_bytes;
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
                        .held
                        .add(&function.held);
                }
            }
            places
        });
        // What may be of a function beside what is known to be its own.
        let other = |is_python: bool| {
            self.both.map(|one| {
                let mut other = one.functions.unnamed.clone();
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
            let held = found.map(|one| one.map(|one| one.held.clone()).unwrap_or_default());
            let other = if is_python { &of_python } else { &of_any };
            self.change(place, &held, other)
        });
        changes.collect()
    }

    fn change(&self, place: &str, held: &[Moments; 2], other: &[Moments; 2]) -> Option<SiteChange> {
        let known = held.each_ref().map(Moments::fullest);
        // Of a function that is in one alone the other had nothing.
        let resident = |one: &Sampled| match one.grown_bytes {
            Bytes(0) => Some(Bytes(0)),
            _ => one.resident(),
        };
        let (before, after) = (resident(&known[0])?, resident(&known[1])?);
        let resident = Change {
            before: Some(before),
            after: Some(after),
        };
        // In each of them one sample more can have been missed by chance, or one less.
        let [old, new] = self.both.map(|one| one.sum.weight());
        let missed = old.hypot(new);
        // How much one of them can hold at most beyond what the other surely holds.
        let beyond = |one: usize, other_one: usize| {
            let ((most, error), (more, more_error)) = (held[one].most(), other[one].most());
            let error = error.hypot(more_error).hypot(missed);
            let error = ERRORS * error.hypot(known[other_one].resident_error());
            most + more - known[other_one].resident_bytes + Bytes(error as i64)
        };
        let (at_least, at_most) = (Bytes(0) - beyond(0, 1), beyond(1, 0));
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
             process of each role that held most: the most at once in its last three seconds. From \
             samples: the change is at least and at most so much (99.9 %), and functions that may not have \
             changed are left out.",
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
