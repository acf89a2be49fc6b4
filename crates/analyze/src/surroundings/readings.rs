//! Reads what stood around the tree at chosen instants.

use super::{CgroupUse, NodeUse, RecorderUse, Uses, ancestry, is_within};
use crate::oom;
use crate::pass::Snapshot;
use crate::process::Process;
use memtrace_model::tables::{CgroupMemRow, HeldBasis, NodeMemRow, OomRow, SelfCostRow};
use memtrace_model::{BootNs, Bytes, DurationNs, Order, RowSource};
use std::collections::BTreeMap;

/// Whether a kill lies between, the distance, and when it was read: the least goes first.
type Rank = (bool, i64, BootNs);

/// Follows a table and keeps the row nearest to one instant, of those on the same side of every
/// kill where there are any, for a kill frees memory at once.
#[derive(Clone, Debug)]
struct Nearest<R> {
    to: BootNs,
    kept: Option<(Rank, R)>,
}

impl<R> Nearest<R> {
    fn new(to: BootNs) -> Self {
        Self { to, kept: None }
    }

    fn all(instants: &[BootNs]) -> Vec<Self> {
        instants.iter().copied().map(Self::new).collect()
    }

    fn take(&mut self, boot_ns: BootNs, kills: &[Freed], row: impl FnOnce() -> R) {
        let is_across = kills
            .iter()
            .any(|kill| (kill.killed < boot_ns) != (kill.freed <= self.to));
        let away = (boot_ns - self.to).0.saturating_abs();
        let distance = (is_across, away, boot_ns);
        if self.kept.as_ref().is_none_or(|(kept, _)| distance < *kept) {
            self.kept = Some((distance, row()));
        }
    }

    /// When it was read, and the row.
    fn kept(&self) -> Option<(BootNs, &R)> {
        let ((.., boot_ns), row) = self.kept.as_ref()?;
        Some((*boot_ns, row))
    }
}

/// A kill: a reading after `killed` can lack what the processes hold until `freed`.
#[derive(Clone, Copy, Debug)]
struct Freed {
    killed: BootNs,
    freed: BootNs,
}

impl Freed {
    fn by(kill: &OomRow, victim: Option<&Process>) -> Self {
        let killed = oom::examined_at(kill, victim);
        let end = victim.and_then(|victim| victim.exit_boot_ns());
        let end = end.filter(|end| (0..=DYING_NS).contains(&(*end - killed).0));
        Self {
            killed,
            freed: end.unwrap_or(killed),
        }
    }
}

fn victim<'a>(kill: &OomRow, processes: &'a [Process]) -> Option<&'a Process> {
    let upid = kill.victim_upid?;
    processes.iter().find(|process| process.upid == upid)
}

/// The kills under the limit of a group and the groups below it, and of their members.
fn kills_in(group: &str, kills: &[OomRow], processes: &[Process]) -> Vec<Freed> {
    let reported = kills.iter().filter_map(|kill| {
        let victim = victim(kill, processes);
        let own = victim.and_then(|victim| victim.cgroup.as_deref());
        let mut paths = own.into_iter().chain(kill.memcg.as_deref());
        let is_inside = paths.any(|path| is_within(path, group));
        is_inside.then(|| Freed::by(kill, victim))
    });
    reported.collect()
}

/// The group as the kernel's log tells it at a kill; what the log leaves out is of the reading
/// before. `None` where the log does not tell its kinds.
pub(crate) fn at_kill(kill: &OomRow, before: &CgroupMemRow) -> Option<CgroupMemRow> {
    kill.memcg_anon_bytes?;
    Some(CgroupMemRow {
        ts: kill.ts,
        boot_ns: kill.boot_ns,
        current_bytes: Some(kill.memcg_usage_bytes?),
        peak_bytes: before.peak_bytes.max(kill.memcg_usage_bytes),
        limit_bytes: kill.memcg_limit_bytes.or(before.limit_bytes),
        anon_bytes: kill.memcg_anon_bytes,
        file_bytes: kill.memcg_file_bytes.or(before.file_bytes),
        shmem_bytes: kill.memcg_shmem_bytes.or(before.shmem_bytes),
        kernel_bytes: kill.memcg_kernel_bytes.or(before.kernel_bytes),
        slab_bytes: kill.memcg_slab_bytes.or(before.slab_bytes),
        slab_reclaimable_bytes: kill
            .memcg_slab_reclaimable_bytes
            .or(before.slab_reclaimable_bytes),
        pagetables_bytes: kill.memcg_pagetables_bytes.or(before.pagetables_bytes),
        swap_bytes: kill.memcg_swap_bytes.or(before.swap_bytes),
        ..before.clone()
    })
}

/// A group while it is read.
struct GroupTrack {
    kills: Vec<Freed>,
    nearest: Vec<Nearest<CgroupMemRow>>,
    /// By kill: the last reading before it, where it was at the limit of this very group.
    before: Vec<Option<CgroupMemRow>>,
}

impl GroupTrack {
    fn take(&mut self, kills: &[OomRow], row: &CgroupMemRow) {
        for nearest in &mut self.nearest {
            nearest.take(row.boot_ns, &self.kills, || row.clone());
        }
        for (kept, kill) in self.before.iter_mut().zip(kills) {
            let is_own = kill.memcg.as_deref() == Some(&row.cgroup) && row.boot_ns <= kill.boot_ns;
            let is_later = kept.as_ref().is_none_or(|kept| kept.boot_ns <= row.boot_ns);
            if is_own && is_later {
                *kept = Some(row.clone());
            }
        }
    }

    /// The log of the kernel is one more reading.
    fn take_logged(&mut self, kills: &[OomRow], processes: &[Process]) {
        for (before, kill) in self.before.iter().zip(kills) {
            let Some(logged) = before.as_ref().and_then(|before| at_kill(kill, before)) else {
                continue;
            };
            // It tells what was in use when the limit was met, so of the victim's memory too.
            let met = oom::examined_at(kill, victim(kill, processes));
            for nearest in &mut self.nearest {
                nearest.take(met, &self.kills, || logged.clone());
            }
        }
    }
}

/// A victim that takes longer than this to end is not waited for.
const DYING_NS: i64 = 10_000_000_000;

/// So many kills are distinguished; a crash loop can have thousands.
const MAX_KILLS: usize = 64;

/// Reads of `cgroup_mem`, `node_mem` and `self_cost` what stood at each of some instants.
pub(crate) fn read<S: RowSource>(
    source: &S,
    processes: &[Process],
    kills: &[OomRow],
    states: &[&Snapshot],
    is_everyone: bool,
) -> Result<Vec<Uses>, S::Error> {
    let kills = kills.get(..MAX_KILLS).unwrap_or(kills);
    let instants: Vec<BootNs> = states.iter().map(|state| state.boot_ns).collect();
    let mut groups: BTreeMap<String, GroupTrack> = BTreeMap::new();
    source.scan(&[], |row: CgroupMemRow| {
        if !groups.contains_key(&row.cgroup) {
            let track = GroupTrack {
                kills: kills_in(&row.cgroup, kills, processes),
                nearest: Nearest::all(&instants),
                before: vec![None; kills.len()],
            };
            groups.insert(row.cgroup.clone(), track);
        }
        if let Some(track) = groups.get_mut(&row.cgroup) {
            track.take(kills, &row);
        }
    })?;
    for track in groups.values_mut() {
        track.take_logged(kills, processes);
    }
    let all_kills: Vec<Freed> = kills
        .iter()
        .map(|kill| Freed::by(kill, victim(kill, processes)))
        .collect();
    let mut nodes = Nearest::all(&instants);
    source.scan(&[], |row: NodeMemRow| {
        for nearest in &mut nodes {
            nearest.take(row.boot_ns, &all_kills, || row.clone());
        }
    })?;
    let mut recorders = Nearest::all(&instants);
    source.scan(&[], |row: SelfCostRow| {
        for nearest in &mut recorders {
            nearest.take(row.boot_ns, &[], || RecorderUse::of(&row));
        }
    })?;
    let all = states.iter().zip(nodes).zip(recorders).enumerate();
    let uses = all.map(|(place, ((state, node), recorder))| {
        let mut uses = Uses {
            cgroups: cgroups_of(state, processes, &groups, place),
            node: node.kept.map(|((.., boot_ns), row)| NodeUse {
                age_ns: state.boot_ns - boot_ns,
                row,
            }),
            recorder: recorder.kept.and_then(|(_, recorder)| recorder),
        };
        // Of everybody the machine's own sums are what is held.
        if !is_everyone {
            bring_to(state, &mut uses);
        }
        uses
    });
    Ok(uses.collect())
}

/// Where one group has it all, what the processes gained or gave back between its reading and the
/// instant is known: what is in use then is of the same instant as what is held.
fn bring_to(state: &Snapshot, uses: &mut Uses) {
    let ([group], HeldBasis::Cgroup) = (uses.cgroups.as_mut_slice(), state.once.basis) else {
        return;
    };
    let row = &mut group.row;
    let recorder = uses.recorder.as_ref();
    let own = recorder.and_then(|recorder| recorder.anon_in(&row.cgroup));
    let (Some(anon), Some(shared)) = (row.anon_bytes, row.shmem_bytes) else {
        return;
    };
    let held = &state.once;
    let anon_moved = held.anon.bytes + own.unwrap_or_default() - anon;
    let shared_moved = held.shared.bytes - shared;
    let moved = anon_moved + shared_moved;
    // Near its limit the kernel takes page cache back, of which nothing is known until the next reading.
    let current = row.current_bytes.map(|bytes| bytes + moved);
    if current > group.effective_limit_bytes.or(current) {
        return;
    }
    let add = |to: &mut Option<Bytes>, moved| *to = to.map(|bytes| bytes + moved);
    add(&mut row.anon_bytes, anon_moved);
    add(&mut row.shmem_bytes, shared_moved);
    add(&mut row.file_bytes, shared_moved);
    row.current_bytes = current;
    group.age_ns = DurationNs(0);
}

/// The recorded groups in which the holders live, the one that holds most of their memory first.
fn cgroups_of(
    state: &Snapshot,
    processes: &[Process],
    groups: &BTreeMap<String, GroupTrack>,
    place: usize,
) -> Vec<CgroupUse> {
    let at = |path: &str| groups.get(path)?.nearest.get(place)?.kept();
    let mut held: BTreeMap<&str, i64> = BTreeMap::new();
    for (process, amounts) in &state.held {
        let path = processes[*process].cgroup.as_deref();
        let recorded = path.and_then(|path| ancestry(path).find(|path| at(path).is_some()));
        if let Some(path) = recorded {
            *held.entry(path).or_default() += amounts.rss_or_zero();
        }
    }
    let mut paths: Vec<(&str, i64)> = held.into_iter().collect();
    paths.order_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
    paths
        .into_iter()
        .filter_map(|(path, _)| {
            let (boot_ns, row) = at(path)?;
            let limit = ancestry(path)
                .filter_map(|above| Some((at(above)?.1.limit_bytes?, above)))
                .min_by_key(|&(limit, _)| limit);
            Some(CgroupUse {
                row: row.clone(),
                age_ns: state.boot_ns - boot_ns,
                effective_limit_bytes: limit.map(|(limit, _)| limit),
                limited_by: limit.map(|(_, above)| above.to_owned()),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_row_kept_is_the_nearest_and_the_earlier_of_two_as_near() {
        let kept = |times: &[i64]| {
            let mut nearest = Nearest::new(BootNs(100));
            for &time in times {
                nearest.take(BootNs(time), &[], || time);
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
    fn a_reading_after_a_kill_tells_nothing_of_what_was_before() {
        let kill = Freed {
            killed: BootNs(104),
            freed: BootNs(106),
        };
        let kept = |at: i64, times: &[i64]| {
            let mut nearest = Nearest::new(BootNs(at));
            for &time in times {
                nearest.take(BootNs(time), &[kill], || time);
            }
            nearest.kept.map(|(_, row)| row)
        };
        assert_eq!(kept(100, &[80, 105]), Some(80));
        assert_eq!(kept(105, &[80, 105]), Some(80), "not freed yet");
        assert_eq!(kept(105, &[80, 104, 105]), Some(104), "the kill itself");
        assert_eq!(kept(106, &[105, 130]), Some(105));
        assert_eq!(kept(107, &[104, 130]), Some(130));
        assert_eq!(kept(100, &[105]), Some(105), "where there is no other");
    }
}
