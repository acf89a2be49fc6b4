//! The cgroups, the node and the recorder around the tree at chosen instants.

mod readings;

pub(super) use readings::{at_kill, read};

use memtrace_model::keys;
use memtrace_model::tables::{CgroupMemRow, NodeMemRow, SelfCostRow};
use memtrace_model::{Bytes, DurationNs};
use schemars::JsonSchema;
use serde::Serialize;

/// What stood around the tree at an instant.
#[derive(Clone, Debug, Default)]
pub(super) struct Uses {
    /// The cgroups in which those live who held memory, the one that holds most of it first.
    pub(super) cgroups: Vec<CgroupUse>,
    pub(super) node: Option<NodeUse>,
    pub(super) recorder: Option<RecorderUse>,
}

/// A cgroup at an instant.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CgroupUse {
    /// The row nearest to the instant, the earlier of two that are as near.
    #[serde(flatten, with = "CgroupKeys")]
    pub row: CgroupMemRow,
    /// How much earlier than the instant the row is; below zero when it is later; zero where what the
    /// processes gained or gave back in between is in it.
    pub age_ns: DurationNs,
    /// The lowest limit of the group and the recorded groups above it.
    #[serde(rename = "limit_bytes")]
    pub effective_limit_bytes: Option<Bytes>,
    /// The group that sets that limit.
    pub limited_by: Option<String>,
}

/// The node at an instant.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NodeUse {
    /// The row nearest to the instant, the earlier of two that are as near.
    #[serde(flatten, with = "NodeKeys")]
    pub row: NodeMemRow,
    /// How much earlier than the instant the row is; below zero when it is later.
    pub age_ns: DurationNs,
}

keys! {
    CgroupKeys of row: CgroupMemRow {
        /// Its path below the mount of its hierarchy.
        path: String = row.cgroup.clone(),
        /// What is in use.
        current_bytes: Option<Bytes> = row.current_bytes,
        /// Anonymous memory that is mapped; null when unknown.
        anon_bytes: Option<Bytes> = row.anon_bytes,
        /// Page cache, tmpfs and shared memory.
        file_bytes: Option<Bytes> = row.file_bytes,
        /// Of that tmpfs and shared memory.
        shmem_bytes: Option<Bytes> = row.shmem_bytes,
        /// The kernel's own memory.
        kernel_bytes: Option<Bytes> = row.kernel_bytes,
        /// Memory swapped out.
        swap_bytes: Option<Bytes> = row.swap_bytes,
        /// OOM kills so far.
        oom_kill_count: Option<i64> = row.oom_kill_count,
    }
}

keys! {
    NodeKeys of row: NodeMemRow {
        /// All memory of the machine.
        mem_total_bytes: Option<Bytes> = row.mem_total_bytes,
        /// What is available without swapping.
        mem_available_bytes: Option<Bytes> = row.mem_available_bytes,
    }
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

    /// Its anonymous memory in a group of which it is no recorded member.
    pub(super) fn anon_in(&self, group: &str) -> Option<Bytes> {
        let cgroup = self.cgroup.as_deref().filter(|_| !self.is_recorded);
        cgroup
            .is_some_and(|own| is_within(own, group))
            .then_some(self.anon_bytes)
    }
}

/// Whether a group is another one or lies below it.
pub(super) fn is_within(path: &str, group: &str) -> bool {
    ancestry(path).any(|above| above == group)
}

/// A path and the paths above it, up to "/".
pub(super) fn ancestry(path: &str) -> impl Iterator<Item = &str> {
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
    fn a_cgroup_has_its_path_and_all_above_it() {
        let paths: Vec<_> = ancestry("/a/b").collect();
        assert_eq!(paths, ["/a/b", "/a", "/"]);
        assert_eq!(ancestry("/").collect::<Vec<_>>(), ["/"]);
        assert_eq!(ancestry("odd").collect::<Vec<_>>(), ["odd"]);
    }
}
