//! Functions that hold more than before, or less: in the process of each role of which most is
//! resident by its samples.

use super::Diff;
use crate::comparison::{Change, DiffReport};
use crate::{Analysis, Sampled};
use memtrace_model::{Bytes, Order};
use memtrace_report::{Chapter, TableOf, words};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// So many standard errors hold a change in 999 of 1,000 cases: there are many functions.
const ERRORS: f64 = 3.3;

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
    /// The change can be more or less by this (99.9 %): both come from samples, and of some memory it
    /// is not known whether it was still resident.
    pub margin_bytes: Bytes,
}

/// What changed, the largest change first. Roles that only one of the two has are reported elsewhere.
pub(super) fn changes(before: &Analysis, after: &Analysis) -> Vec<SiteChange> {
    let [before, after] = [before, after].map(by_role);
    let both = before.iter().filter_map(|(role, old)| {
        let new = after.get(role)?;
        Some((role, old, new))
    });
    let changes = both.flat_map(|(role, old, new)| {
        let mut places: Vec<&String> = old.keys().chain(new.keys()).collect();
        places.sort_unstable();
        places.dedup();
        let places = places.into_iter();
        places.filter_map(|place| change(role, place, old.get(place), new.get(place)))
    });
    let mut changes: Vec<SiteChange> = changes.collect();
    changes.order_by_key(|change| std::cmp::Reverse(change.resident.moved()));
    changes
}

fn change(
    role: &Arc<str>,
    place: &str,
    before: Option<&Sampled>,
    after: Option<&Sampled>,
) -> Option<SiteChange> {
    let sampled = [before, after].map(|one| one.copied().unwrap_or_default());
    // Of a function that is in one alone the other had nothing.
    let resident = |one: &Sampled| match one.grown_bytes {
        Bytes(0) => Some(Bytes(0)),
        _ => one.resident(),
    };
    let [before, after] = [resident(&sampled[0])?, resident(&sampled[1])?];
    let [old, new] = sampled.map(|one| one.resident_error());
    let unknown: Bytes = sampled.iter().map(|one| one.unknown_bytes).sum();
    let margin = ((ERRORS * old.hypot(new)) as i64).saturating_add(unknown.0);
    let resident = Change {
        before: Some(before),
        after: Some(after),
    };
    (resident.is_notable() && resident.moved() > margin).then(|| SiteChange {
        role: Arc::clone(role),
        place: place.to_owned(),
        resident,
        margin_bytes: Bytes(margin),
    })
}

/// The functions of the process of each role of which most is resident: those of a role need not
/// have lived together.
fn by_role(analysis: &Analysis) -> BTreeMap<Arc<str>, &BTreeMap<String, Sampled>> {
    let roles = analysis.roles.iter().filter_map(|role| {
        let all = analysis.allocations.iter();
        let members = all.filter(|one| one.who.upid.is_some_and(|upid| role.upids.contains(&upid)));
        let largest = members.max_by_key(|one| one.sum.resident_bytes)?;
        Some((Arc::clone(&role.name), &largest.functions))
    });
    roles.collect()
}

/// The functions that changed; `None` where none did.
pub(super) fn chapter(report: &DiffReport<Diff>, top: usize) -> Option<Chapter> {
    let changes = &report.diff.sites;
    if changes.is_empty() {
        return None;
    }
    let mut section = Chapter::new("Who allocated more or less");
    TableOf::of(changes.iter().take(top))
        .flexible("role", |change| change.role.to_string())
        .flexible("place", |change| change.place.clone())
        .held("a_bytes", 0, |change| change.resident.before)
        .held("b_bytes", 0, |change| change.resident.after)
        .change("change_bytes", 0, |change| change.resident.difference())
        .figures(("margin_bytes", "±"), 1, |change| change.margin_bytes)
        .add_to(&mut section);
    section.rest(changes.len(), top, words::count, " more changes.");
    section.explain(
        "Who allocated more or less: resident memory by the function that touched it first, in the \
         process of each role that held most. From samples: ± is the 99.9 % interval of the change, \
         and functions that may not have changed are left out.",
    );
    Some(section)
}
