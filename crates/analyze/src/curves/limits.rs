//! What is in use around the processes, and how much it may be: of the cgroups that matter, and of
//! the node.

use super::coded::{CurveSeries, Gaps};
use super::known::Known;
use super::{CurveLimit, LIMIT_VALUES};
use memtrace_model::tables::{CgroupMemRow, NodeMemRow};
use memtrace_model::{BootNs, Bytes, RowSource};
use memtrace_timeline::Thinned;

/// So many cgroups are reported.
const CGROUPS_MAX: usize = 6;
/// Of so many it is looked whether they were read.
const CANDIDATES_MAX: usize = 32;

const USED: usize = 0;
const LIMIT: usize = 1;

/// Reads `cgroup_mem` and `node_mem`: the groups that held most at the peak, those whose limit
/// bounds them, and those in which somebody was killed.
pub(super) fn read<S: RowSource>(
    source: &S,
    known: &Known<'_>,
) -> Result<Vec<CurveLimit>, S::Error> {
    let clock = known.clock;
    let at_peak = known.peak.into_iter().flat_map(|peak| &peak.cgroups);
    let at_peak = at_peak.flat_map(|group| {
        let own = Some(group.row.cgroup.clone());
        [own, group.limited_by.clone()].into_iter().flatten()
    });
    let mut paths: Vec<String> = Vec::new();
    for path in at_peak.chain(known.killed_in.iter().cloned()) {
        if paths.len() < CANDIDATES_MAX && !paths.contains(&path) {
            paths.push(path);
        }
    }
    // One more for the node.
    let room = LIMIT_VALUES / (paths.len().min(CGROUPS_MAX) + 1);
    let thinned = || Thinned::of_unknown(2, room, clock.duration(), known.foci.to_vec());
    let mut groups: Vec<Thinned> = paths.iter().map(|_| thinned()).collect();
    let columns = ["boot_ns", "cgroup", "current_bytes", "limit_bytes"];
    source.scan(&columns, |row: CgroupMemRow| {
        if let Some(place) = paths.iter().position(|path| *path == row.cgroup) {
            groups[place].set(row.boot_ns, USED, row.current_bytes);
            groups[place].set(row.boot_ns, LIMIT, row.limit_bytes);
        }
    })?;
    let mut node = thinned();
    let columns = ["boot_ns", "mem_total_bytes", "mem_available_bytes"];
    source.scan(&columns, |row: NodeMemRow| {
        let total = row.mem_total_bytes;
        let used = total.zip(row.mem_available_bytes);
        node.set(row.boot_ns, USED, used.map(|(total, left)| total - left));
        node.set(row.boot_ns, LIMIT, total);
    })?;
    let groups = paths.into_iter().zip(groups).map(|(path, thinned)| {
        let label = format!("cgroup {path}");
        limit("cgroup", path, label, thinned, clock.start())
    });
    let node = limit(
        "node",
        known.host.to_owned(),
        "node".to_owned(),
        node,
        clock.start(),
    );
    let is_known = |limit: &CurveLimit| limit.used.highest() > Bytes(0);
    let groups = groups.filter(is_known).take(CGROUPS_MAX);
    Ok(groups.chain(Some(node).filter(is_known)).collect())
}

fn limit(
    by: &'static str,
    name: String,
    label: String,
    thinned: Thinned,
    start: BootNs,
) -> CurveLimit {
    let thin = thinned.finish();
    let series = |function: usize, id: &str| {
        CurveSeries::new(id, format!("{id}, {label}")).with(&thin.steps[function])
    };
    CurveLimit {
        time_ns: Gaps::of_instants(&thin.instants, start),
        used: series(USED, "used"),
        limit: series(LIMIT, "limit"),
        by,
        name,
        label,
    }
}
