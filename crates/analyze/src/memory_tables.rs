//! What is held over time, in all and by role, as rows of tables.

use super::RunClock;
use super::groups::Groups;
use super::held::{HeldKinds, Once, Part, Parts};
use memtrace_model::tables::{HeldRow, RoleMemRow};
use memtrace_model::{BootNs, Bytes, Kind, PerKind};
use memtrace_timeline::{Kept, Lane, Stack, State};
use std::collections::BTreeSet;

/// What the processes of a role hold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct RoleHeld {
    process_count: usize,
    kinds: PerKind<Option<Bytes>>,
    part: Part,
}

impl RoleHeld {
    fn set(&mut self, lane: &Lane) {
        self.process_count = lane.member_count;
        self.kinds = PerKind::of(|kind| lane.now[kind].bytes());
    }
}

/// What all hold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct HeldNow {
    kinds: HeldKinds,
    rss: Option<Bytes>,
    once: Once,
}

/// Follows both, at the same instants.
#[derive(Debug)]
pub(super) struct Tables {
    held: Stack<HeldNow>,
    by_role: Stack<RoleHeld>,
    roles: Vec<RoleHeld>,
    /// Roles that changed at this instant.
    changed: BTreeSet<usize>,
}

impl Tables {
    /// Roles have the first places among the sums of the sweep.
    pub(super) fn new(role_count: usize) -> Self {
        Self {
            held: Stack::new(1),
            by_role: Stack::new(role_count),
            roles: vec![RoleHeld::default(); role_count],
            changed: BTreeSet::new(),
        }
    }

    /// All that changes at an instant is in.
    pub(super) fn note(&mut self, at: BootNs, state: &State, held: &HeldKinds, parts: &Parts) {
        for &lane in state.lanes.changed() {
            if let Some(role) = self.roles.get_mut(lane.place()) {
                role.set(&state.lanes[lane]);
                self.changed.insert(lane.place());
            }
        }
        for (place, part) in parts.roles_moved() {
            self.roles[place].part = part;
            self.changed.insert(place);
        }
        while let Some(place) = self.changed.pop_first() {
            self.by_role.set(at, place, self.roles[place]);
        }
        let totals = state.totals();
        let now = HeldNow {
            kinds: *held,
            rss: totals[Kind::Rss].bytes(),
            once: parts.once(),
        };
        self.held.set(at, 0, now);
        let heights = [held.all().bytes.0, totals.rss_or_zero()];
        self.held.note(at, heights);
        self.by_role.note(at, heights);
    }

    pub(super) fn finish(self) -> (Vec<Kept<RoleHeld>>, Vec<Kept<HeldNow>>) {
        (self.by_role.finish(), self.held.finish())
    }
}

/// Which part of what processes count there is when every page counts once, over time.
pub(super) fn once_over_time(kept: &[Kept<HeldNow>]) -> Vec<(BootNs, Once)> {
    let now = kept.iter().flat_map(|(boot_ns, values)| {
        let now = values.values();
        now.map(move |now| (*boot_ns, now.once))
    });
    now.collect()
}

/// A role has a row where it holds something else by so much, and by one part in so many, although it
/// did not change: others did.
const MOVED: i64 = 1 << 20;
const MOVED_PART: i64 = 100;

/// What all held, at instants that are those of the roles.
pub(super) fn held_rows(
    kept: Vec<Kept<HeldNow>>,
    clock: &RunClock,
) -> impl Iterator<Item = HeldRow> {
    let now = kept.into_iter().flat_map(|(boot_ns, values)| {
        let now = values.into_values();
        now.map(move |now| (boot_ns, now))
    });
    now.map(|(boot_ns, HeldNow { kinds, rss, .. })| {
        let all = kinds.all();
        HeldRow {
            ts: clock.to_wall(boot_ns),
            boot_ns,
            held_bytes: all.bytes,
            held_at_least_bytes: all.at_least,
            held_at_most_bytes: all.at_most,
            anon_bytes: kinds.anon.bytes,
            shared_bytes: kinds.shared.bytes,
            huge_bytes: kinds.huge.bytes,
            kernel_bytes: kinds.kernel.bytes,
            unnamed_bytes: kinds.unnamed.bytes,
            basis: Some(kinds.basis),
            sum_of_rss_bytes: rss,
        }
    })
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
pub(super) fn role_rows(
    kept: Vec<Kept<RoleHeld>>,
    once: Vec<(BootNs, Once)>,
    on_gpus: Vec<RoleOnGpusStep>,
    gpus_from: Option<BootNs>,
    groups: &Groups,
    clock: &RunClock,
) -> impl Iterator<Item = RoleMemRow> {
    let nothing = (RoleHeld::default(), Bytes(0), Some(Bytes(0)));
    let mut now = vec![nothing; groups.list.len()];
    let mut on_gpus = on_gpus.into_iter().peekable();
    let mut once = once.into_iter().peekable();
    let mut once_now = Once::default();
    kept.into_iter().flat_map(move |(boot_ns, changed)| {
        let mut roles = BTreeSet::new();
        while let Some(step) = on_gpus.next_if(|step| step.boot_ns <= boot_ns) {
            now[step.role].2 = step.bytes;
            roles.insert(step.role);
        }
        for (role, held) in changed {
            now[role].0 = held;
            roles.insert(role);
        }
        while let Some((_, once)) = once.next_if(|(at, _)| *at <= boot_ns) {
            once_now = once;
        }
        for (place, (role, held, _)) in now.iter_mut().enumerate() {
            let is = once_now.of(role.part);
            let moved = (is - *held).0.saturating_abs();
            if roles.contains(&place) || moved >= MOVED.max(held.0 / MOVED_PART) {
                *held = is;
                roles.insert(place);
            }
        }
        let is_known = gpus_from.is_some_and(|from| from <= boot_ns);
        let row = |place: usize| {
            let (role_held, held, on_gpus) = &now[place];
            let group = &groups.list[place];
            let role = group.role.as_ref();
            RoleMemRow {
                ts: clock.to_wall(boot_ns),
                boot_ns,
                name: group.name.to_string(),
                role: role.map(|role| role.role.clone()),
                framework: role.and_then(|role| role.framework.clone()),
                process_count: role_held.process_count as i64,
                held_bytes: Some(*held),
                rss_bytes: role_held.kinds[Kind::Rss],
                rss_anon_bytes: role_held.kinds[Kind::Anon],
                rss_file_bytes: role_held.kinds[Kind::File],
                rss_shmem_bytes: role_held.kinds[Kind::Shmem],
                swap_bytes: role_held.kinds[Kind::Swap],
                gpu_bytes: on_gpus.filter(|_| is_known),
            }
        };
        roles.into_iter().map(row).collect::<Vec<_>>()
    })
}
