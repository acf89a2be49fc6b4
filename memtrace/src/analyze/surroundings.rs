//! The cgroups, the node and the recorder around the tree at chosen instants.

use super::RowSource;
use super::composition::Composition;
use super::process::Process;
use crate::model::tables::{CgroupMemRow, NodeMemRow, SelfCostRow};
use crate::model::{BootNs, Bytes, DurationNs};
use std::collections::BTreeMap;

/// A cgroup at an instant.
#[derive(Clone, Debug)]
pub struct CgroupUse {
    /// The row nearest to the instant, the earlier of two that are as near.
    pub row: CgroupMemRow,
    /// How much earlier than the instant the row is; below zero when it is later.
    pub age_ns: DurationNs,
    /// The lowest limit of the group and the recorded groups above it.
    pub effective_limit_bytes: Option<Bytes>,
    /// The group that sets that limit.
    pub limited_by: Option<String>,
}

/// The node at an instant.
#[derive(Clone, Debug)]
pub struct NodeUse {
    /// The row nearest to the instant, the earlier of two that are as near.
    pub row: NodeMemRow,
    /// How much earlier than the instant the row is; below zero when it is later.
    pub age_ns: DurationNs,
}

/// The recorder at an instant.
#[derive(Clone, Debug)]
pub struct RecorderUse {
    /// Its anonymous memory.
    pub anon_bytes: Bytes,
    /// The memory cgroup it runs in.
    pub cgroup: Option<String>,
    /// Whether it is itself part of the recording.
    pub is_recorded: bool,
}

impl RecorderUse {
    fn of(row: &SelfCostRow) -> Option<Self> {
        Some(Self {
            anon_bytes: row.rss_anon_bytes?,
            cgroup: row.cgroup.clone(),
            is_recorded: row.upid.is_some(),
        })
    }
}

/// Follows a table and keeps the row nearest to one instant.
#[derive(Clone, Debug)]
struct Nearest<R> {
    at: BootNs,
    kept: Option<(BootNs, R)>,
}

impl<R> Nearest<R> {
    fn new(at: BootNs) -> Self {
        Self { at, kept: None }
    }

    fn take(&mut self, boot_ns: BootNs, row: impl FnOnce() -> R) {
        let distance = |boot_ns: BootNs| ((boot_ns - self.at).0.saturating_abs(), boot_ns);
        let is_nearer = match &self.kept {
            None => true,
            Some((kept, _)) => distance(boot_ns) < distance(*kept),
        };
        if is_nearer {
            self.kept = Some((boot_ns, row()));
        }
    }
}

/// Reads `cgroup_mem`, `node_mem` and `self_cost`, and completes the compositions with them.
pub(super) fn complete<S: RowSource>(
    source: &S,
    processes: &[Process],
    compositions: &mut [&mut Composition],
) -> Result<(), S::Error> {
    let instants: Vec<BootNs> = compositions.iter().map(|c| c.boot_ns).collect();
    let mut groups: BTreeMap<String, Vec<Nearest<CgroupMemRow>>> = BTreeMap::new();
    source.scan(&[], |row: CgroupMemRow| {
        if !groups.contains_key(&row.cgroup) {
            let nearest = instants.iter().map(|&at| Nearest::new(at)).collect();
            groups.insert(row.cgroup.clone(), nearest);
        }
        for nearest in groups.get_mut(&row.cgroup).into_iter().flatten() {
            nearest.take(row.boot_ns, || row.clone());
        }
    })?;
    let mut nodes: Vec<_> = instants.iter().map(|&at| Nearest::new(at)).collect();
    source.scan(&[], |row: NodeMemRow| {
        for nearest in &mut nodes {
            nearest.take(row.boot_ns, || row.clone());
        }
    })?;
    let mut recorders: Vec<_> = instants.iter().map(|&at| Nearest::new(at)).collect();
    source.scan(&[], |row: SelfCostRow| {
        for nearest in &mut recorders {
            nearest.take(row.boot_ns, || RecorderUse::of(&row));
        }
    })?;
    let all = compositions.iter_mut().zip(nodes).zip(recorders);
    for (place, ((composition, node), recorder)) in all.enumerate() {
        composition.recorder = recorder.kept.and_then(|(_, recorder)| recorder);
        composition.cgroups = cgroups_of(composition, processes, &groups, place);
        composition.node = node.kept.map(|(boot_ns, row)| NodeUse {
            age_ns: composition.boot_ns - boot_ns,
            row,
        });
    }
    Ok(())
}

/// The recorded groups in which the holders live, the one that holds most of their memory first.
fn cgroups_of(
    composition: &Composition,
    processes: &[Process],
    groups: &BTreeMap<String, Vec<Nearest<CgroupMemRow>>>,
    place: usize,
) -> Vec<CgroupUse> {
    let at = |path: &str| groups.get(path)?.get(place)?.kept.as_ref();
    let mut held: BTreeMap<&str, i64> = BTreeMap::new();
    for holder in &composition.holders {
        let path = processes[holder.process].cgroup.as_deref();
        let recorded = path.and_then(|path| ancestry(path).find(|path| at(path).is_some()));
        if let Some(path) = recorded {
            *held.entry(path).or_default() += holder.amounts.rss_or_zero();
        }
    }
    let mut paths: Vec<(&str, i64)> = held.into_iter().collect();
    paths.sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
    paths
        .into_iter()
        .filter_map(|(path, _)| {
            let (boot_ns, row) = at(path)?;
            let limit = ancestry(path)
                .filter_map(|above| Some((at(above)?.1.limit_bytes?, above)))
                .min_by_key(|&(limit, _)| limit);
            Some(CgroupUse {
                row: row.clone(),
                age_ns: composition.boot_ns - *boot_ns,
                effective_limit_bytes: limit.map(|(limit, _)| limit),
                limited_by: limit.map(|(_, above)| above.to_owned()),
            })
        })
        .collect()
}

/// Whether a group is another one or lies below it.
pub(super) fn is_within(path: &str, group: &str) -> bool {
    ancestry(path).any(|above| above == group)
}

/// A path and the paths above it, up to "/".
fn ancestry(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| {
        let parent = &path[..path.rfind('/')?];
        match parent {
            "" if *path == "/" => None,
            "" => Some("/"),
            parent => Some(parent),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_row_kept_is_the_nearest_and_the_earlier_of_two_as_near() {
        let kept = |times: &[i64]| {
            let mut nearest = Nearest::new(BootNs(100));
            for &time in times {
                nearest.take(BootNs(time), || time);
            }
            nearest.kept.map(|(_, row)| row)
        };
        assert_eq!(kept(&[10, 90, 110]), Some(90));
        assert_eq!(kept(&[110, 90, 10]), Some(90));
        assert_eq!(kept(&[150, 120]), Some(120));
        assert_eq!(kept(&[50, 101]), Some(101));
        assert_eq!(kept(&[]), None);
    }

    #[test]
    fn a_cgroup_has_its_path_and_all_above_it() {
        let paths: Vec<_> = ancestry("/a/b").collect();
        assert_eq!(paths, ["/a/b", "/a", "/"]);
        assert_eq!(ancestry("/").collect::<Vec<_>>(), ["/"]);
        assert_eq!(ancestry("odd").collect::<Vec<_>>(), ["odd"]);
    }
}
