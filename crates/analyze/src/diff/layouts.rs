//! Memory inside of the largest process of each role, by who laid it out, before and after.

use crate::comparison::Change;
use crate::{Analysis, Cause, Layout};
use memtrace_model::tables::LayoutPart;
use memtrace_model::{Bytes, Label, Order};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A change of less is none that is worth a line.
const MIN_CHANGE: i64 = 16 << 20;
/// Nor is one by less than this part of what was: two runs of the same differ by as much.
const MIN_PART: i64 = 10;

/// What changed inside of the largest process of a role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LayoutChange {
    /// The role of that process.
    pub role: Arc<str>,
    /// Who laid it out.
    pub part: LayoutPart,
    /// Resident memory of the process of the role that held most, as the report tells it.
    pub rss: Change,
    /// Free blocks in it, as far as they were looked for.
    pub free: Change,
    /// Why most of it came, in the first recording.
    pub cause_before: Cause,
    /// The same of the second.
    pub cause_after: Cause,
}

/// One role of one recording: resident bytes by part, and what of them is free.
struct Inside {
    parts: BTreeMap<LayoutPart, (i64, i64)>,
    cause: Cause,
}

/// What changed, by role and part, the largest change first. Roles that only one of the two has are
/// reported elsewhere.
pub(super) fn changes(before: &Analysis, after: &Analysis) -> Vec<LayoutChange> {
    let [before, after] = [before, after].map(insides);
    let both = before.iter().filter_map(|(role, old)| {
        let new = after.get(role)?;
        Some((role, old, new))
    });
    let changes = both.flat_map(|(role, old, new)| {
        let parts = LayoutPart::ALL.iter().copied();
        parts.filter_map(|part| change(role, part, old, new))
    });
    let mut changes: Vec<LayoutChange> = changes.collect();
    changes.order_by_key(|change| std::cmp::Reverse(change.rss.moved()));
    changes
}

fn change(role: &Arc<str>, part: LayoutPart, old: &Inside, new: &Inside) -> Option<LayoutChange> {
    let of = |inside: &Inside| inside.parts.get(&part).copied().unwrap_or_default();
    let ((rss_before, free_before), (rss_after, free_after)) = (of(old), of(new));
    let moved = |before: i64, after: i64| {
        let by = (after - before).abs();
        by >= MIN_CHANGE && by >= before / MIN_PART
    };
    let pair = |before: i64, after: i64| Change {
        before: Some(Bytes(before)),
        after: Some(Bytes(after)),
    };
    let is_reported = moved(rss_before, rss_after) || moved(free_before, free_after);
    is_reported.then(|| LayoutChange {
        role: Arc::clone(role),
        part,
        rss: pair(rss_before, rss_after),
        free: pair(free_before, free_after),
        cause_before: old.cause,
        cause_after: new.cause,
    })
}

/// What is inside of the process of each role that held most: those of a role need not have lived
/// together, so that their sum would be nothing that was ever held.
fn insides(analysis: &Analysis) -> BTreeMap<Arc<str>, Inside> {
    let by_process: BTreeMap<usize, &Layout> = analysis
        .layouts
        .iter()
        .map(|layout| (layout.process, layout))
        .collect();
    let roles = analysis.roles.iter().filter_map(|role| {
        let layouts = role
            .members
            .iter()
            .filter_map(|member| by_process.get(member));
        let layout = layouts.max_by_key(|layout| layout.sum())?;
        let mut parts: BTreeMap<LayoutPart, (i64, i64)> = BTreeMap::new();
        for line in &layout.parts {
            let (rss, free) = parts.entry(line.part).or_default();
            *rss += line.rss_bytes.0;
            let share = line.free_share().unwrap_or(0.0);
            *free += (share * line.rss_bytes.0 as f64) as i64;
        }
        let cause = layout.cause;
        Some((Arc::clone(&role.name), Inside { parts, cause }))
    });
    roles.collect()
}
