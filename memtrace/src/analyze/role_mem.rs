//! The memory of each role over time, as rows of a table.

use super::RunClock;
use super::groups::Groups;
use crate::model::tables::RoleMemRow;
use crate::model::{BootNs, Bytes, Kind, PerKind};
use crate::sweep::{Kept, Lane};
use std::collections::BTreeSet;

/// What the processes of a role hold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct RoleHeld {
    process_count: usize,
    kinds: PerKind<Option<Bytes>>,
}

impl RoleHeld {
    /// What they hold now.
    pub(super) fn of(lane: &Lane) -> Self {
        Self {
            process_count: lane.member_count,
            kinds: PerKind::of(|kind| lane.now[kind].bytes()),
        }
    }
}

/// What the processes of a role hold on all GPUs together from an instant on.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoleOnGpusStep {
    pub(super) boot_ns: BootNs,
    /// The place of the role among the groups.
    pub(super) role: usize,
    /// `None` when a part is unknown.
    pub(super) bytes: Option<Bytes>,
}

/// What each role held at instants that are common to all. `gpus_from` is since when what is held
/// on GPUs is known.
pub(super) fn rows(
    kept: Vec<Kept<RoleHeld>>,
    on_gpus: Vec<RoleOnGpusStep>,
    gpus_from: Option<BootNs>,
    groups: &Groups,
    clock: &RunClock,
) -> impl Iterator<Item = RoleMemRow> {
    let nothing = (RoleHeld::default(), Some(Bytes(0)));
    let mut now = vec![nothing; groups.list.len()];
    let mut on_gpus = on_gpus.into_iter().peekable();
    kept.into_iter().flat_map(move |(boot_ns, changed)| {
        let mut roles = BTreeSet::new();
        while let Some(step) = on_gpus.next_if(|step| step.boot_ns <= boot_ns) {
            now[step.role].1 = step.bytes;
            roles.insert(step.role);
        }
        for (role, held) in changed {
            now[role].0 = held;
            roles.insert(role);
        }
        let is_known = gpus_from.is_some_and(|from| from <= boot_ns);
        let row = |place: usize| {
            let (held, on_gpus) = &now[place];
            let group = &groups.list[place];
            let role = group.role.as_ref();
            RoleMemRow {
                ts: clock.to_wall(boot_ns),
                boot_ns,
                name: group.name.to_string(),
                role: role.map(|role| role.role.clone()),
                framework: role.and_then(|role| role.framework.clone()),
                process_count: held.process_count as i64,
                rss_bytes: held.kinds[Kind::Rss],
                rss_anon_bytes: held.kinds[Kind::Anon],
                rss_file_bytes: held.kinds[Kind::File],
                rss_shmem_bytes: held.kinds[Kind::Shmem],
                swap_bytes: held.kinds[Kind::Swap],
                gpu_bytes: on_gpus.filter(|_| is_known),
            }
        };
        roles.into_iter().map(row).collect::<Vec<_>>()
    })
}
