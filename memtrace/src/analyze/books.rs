//! Draws up a [`Balance`]: who held what at an instant, from the readings around it.

use super::balance::{AnonLine, Balance, Basis, KernelPart, Scope, in_memory};
use super::composition::Composition;
use super::process::Process;
use super::sharing::Forks;
use super::standing::Standing;
use super::surroundings::{CgroupUse, NodeUse, is_within};
use super::{Amounts, RowSource, standing};
use crate::model::tables::{CachedFileRow, PssRow, ShmObjectRow};
use crate::model::{BootNs, Bytes, DurationNs, MappingKind, Upid};
use std::collections::HashMap;

/// A measured value still counts as one while RSS has moved by less than one part in so many.
const MOVED_PART: i64 = 100;

/// Readings take turns: an object that was first seen no later than this after the instant
/// is taken to have been there, if the process that maps it held shared memory.
const LAG_NS: i64 = 10_000_000_000;

/// Reads what is known about sharing, and draws up the books of every composition.
pub(super) fn complete<S: RowSource>(
    source: &S,
    processes: &[Process],
    forks: &Forks,
    is_everyone_recorded: bool,
    compositions: &mut [&mut Composition],
) -> Result<(), S::Error> {
    let instants: Vec<BootNs> = compositions.iter().map(|c| c.boot_ns).collect();
    let Some(standings) = standing::read(source, &instants)? else {
        return Ok(());
    };
    let cgroup_of: HashMap<Upid, &str> = processes
        .iter()
        .filter_map(|process| Some((process.upid, process.cgroup.as_deref()?)))
        .collect();
    for (composition, standing) in compositions.iter_mut().zip(standings) {
        let books = Books {
            composition,
            processes,
            forks,
            cgroup_of: &cgroup_of,
            standing: &standing,
            ratios: ratios(processes, forks, &standing),
        };
        let cgroups = composition.cgroups.iter().map(|group| books.cgroup(group));
        let node = composition.node.as_ref();
        let node = node.map(|node| books.node(node, is_everyone_recorded));
        let balances = cgroups.chain(node).collect();
        let shares = books.shares();
        composition.balances = balances;
        composition.shares = Some(shares);
    }
    Ok(())
}

/// What the books of one instant are drawn up from.
pub(super) struct Books<'a> {
    composition: &'a Composition,
    processes: &'a [Process],
    forks: &'a Forks,
    cgroup_of: &'a HashMap<Upid, &'a str>,
    standing: &'a Standing,
    ratios: HashMap<Alike<'a>, (f64, f64)>,
}

impl Books<'_> {
    /// A process that was never measured shares as those do that were.
    fn ratio_of_alike(&self, process: usize) -> Option<f64> {
        let (pss, rss) = self.ratios.get(&alike(&self.processes[process]))?;
        (*rss > 0.0).then(|| (pss / rss).clamp(0.0, 1.0))
    }

    fn cgroup(&self, group: &CgroupUse) -> Balance {
        let row = &group.row;
        let path = row.cgroup.as_str();
        let is_inside = |upid: Option<Upid>| {
            let cgroup = upid.and_then(|upid| self.cgroup_of.get(&upid));
            cgroup.is_some_and(|cgroup| is_within(cgroup, path))
        };
        let mut balance = self.attributed(Scope::Cgroup(path.to_owned()), is_inside);
        balance.current_bytes = row.current_bytes;
        balance.age_ns = group.age_ns;
        balance.other_processes_bytes = row.other_anon_bytes;
        balance.other_process_count = row.other_process_count;
        let objects = balance.objects_bytes();
        balance.other_shared_bytes = row.shmem_bytes.map(|all| all - objects);
        let named = balance.files_bytes();
        let cache = row.file_bytes.zip(row.shmem_bytes);
        balance.other_files_bytes = cache.map(|(file, shmem)| file - shmem - named);
        balance.kernel = kernel_of_cgroup(group);
        balance.limit_bytes = group.effective_limit_bytes;
        let slab = row.slab_reclaimable_bytes.unwrap_or(Bytes(0));
        balance.reclaimable_bytes = cache.map(|(file, shmem)| file - shmem + slab);
        balance.close();
        balance
    }

    fn node(&self, node: &NodeUse, is_everyone_recorded: bool) -> Balance {
        let row = &node.row;
        let mut balance = self.attributed(Scope::Node, |_| true);
        let in_use = row.mem_total_bytes.zip(row.mem_free_bytes);
        balance.current_bytes = in_use.map(|(total, free)| total - free);
        balance.age_ns = node.age_ns;
        if !is_everyone_recorded {
            let anon = balance.anon_bytes() + balance.recorder_bytes.unwrap_or(Bytes(0));
            // Less than nothing shows that the two are not of the same instant.
            let others = row.anon_bytes.map(|all| all - anon);
            balance.other_processes_bytes = others.filter(|others| others.0 >= 0);
        }
        let objects = balance.objects_bytes();
        balance.other_shared_bytes = row.shmem_bytes.map(|all| all - objects);
        let named = balance.files_bytes();
        let buffers = row.buffers_bytes.unwrap_or(Bytes(0));
        let cache = row.cached_bytes.zip(row.shmem_bytes);
        let cache = cache.map(|(cached, shmem)| cached + buffers - shmem);
        balance.other_files_bytes = cache.map(|cache| cache - named);
        let slab = row.slab_reclaimable_bytes.zip(row.slab_unreclaimable_bytes);
        balance.kernel = known(&[
            (KernelPart::Slab, slab.map(|(a, b)| a + b)),
            (KernelPart::PageTables, row.page_tables_bytes),
            (KernelPart::Stacks, row.kernel_stack_bytes),
            (KernelPart::PerCpu, row.percpu_bytes),
            (KernelPart::Hugetlb, row.hugetlb_bytes),
        ]);
        balance.limit_bytes = row.mem_total_bytes;
        let slab = row.slab_reclaimable_bytes.unwrap_or(Bytes(0));
        balance.reclaimable_bytes = cache.map(|cache| cache + slab);
        balance.close();
        balance
    }

    /// What processes, objects and files of a scope hold.
    fn attributed(&self, scope: Scope, is_inside: impl Fn(Option<Upid>) -> bool) -> Balance {
        let mut anon = Vec::new();
        let mut unknown_process_count = 0;
        for holder in &self.composition.holders {
            let upid = self.processes[holder.process].upid;
            if !is_inside(Some(upid)) && scope != Scope::Node {
                continue;
            }
            match self.anon_line(holder.process, &holder.amounts) {
                Some(line) => anon.push(line),
                None => unknown_process_count += 1,
            }
        }
        anon.sort_by_key(|line| (std::cmp::Reverse(line.bytes), line.process));
        let recorder = self.composition.recorder.as_ref().filter(|recorder| {
            let cgroup = recorder.cgroup.as_deref();
            !recorder.is_recorded
                && match &scope {
                    Scope::Node => true,
                    Scope::Cgroup(path) => cgroup.is_some_and(|own| is_within(own, path)),
                }
        });
        let recorder_bytes = recorder.map(|recorder| recorder.anon_bytes);
        let is_of_scope = |row: &&ShmObjectRow| {
            is_inside(row.first_mapper_upid.or(row.first_opener_upid)) || scope == Scope::Node
        };
        let unknown_object_count = self.unknown_objects().filter(is_of_scope).count();
        let objects = self.all_there().filter(is_of_scope);
        let mut objects: Vec<ShmObjectRow> = objects.cloned().collect();
        let order = |row: &ShmObjectRow| (in_memory(row).map(std::cmp::Reverse), row.inode);
        objects.sort_by_key(order);
        let (huge_objects, objects) = objects.into_iter().partition(is_huge);
        let files = self.standing.files.iter().filter(|row| {
            let is_inside = is_inside(row.first_user_upid) || scope == Scope::Node;
            is_inside && is_some(row.cached_bytes)
        });
        let mut files: Vec<CachedFileRow> = files.cloned().collect();
        files.sort_by(|a, b| (b.cached_bytes, &a.path).cmp(&(a.cached_bytes, &b.path)));
        Balance {
            scope,
            current_bytes: None,
            age_ns: DurationNs(0),
            anon,
            unknown_process_count,
            unknown_object_count,
            other_processes_bytes: None,
            other_process_count: None,
            recorder_bytes,
            objects,
            huge_objects,
            other_shared_bytes: None,
            files,
            other_files_bytes: None,
            kernel: Vec::new(),
            residual_bytes: None,
            limit_bytes: None,
            reclaimable_bytes: None,
        }
    }

    pub(super) fn composition(&self) -> &Composition {
        self.composition
    }

    pub(super) fn upid(&self, process: usize) -> Upid {
        self.processes[process].upid
    }

    /// The objects that had memory at the instant, in pages that RSS counts.
    pub(super) fn objects_there(&self) -> impl Iterator<Item = &ShmObjectRow> {
        self.all_there().filter(|row| !is_huge(row))
    }

    /// Those of huge pages among them, too.
    fn all_there(&self) -> impl Iterator<Item = &ShmObjectRow> {
        let objects = self.standing.objects.iter();
        objects.filter(|row| is_some(in_memory(row)) && self.was_there(row))
    }

    /// Objects that are mapped and could not be asked for what they take.
    fn unknown_objects(&self) -> impl Iterator<Item = &ShmObjectRow> {
        let objects = self.standing.objects.iter();
        objects.filter(|row| {
            in_memory(row).is_none() && row.mapper_count > 0 && !is_huge(row) && self.was_there(row)
        })
    }

    fn was_there(&self, row: &ShmObjectRow) -> bool {
        let later = row.boot_ns - self.composition.boot_ns;
        let held_shared = |upid: Upid| {
            let mut holders = self.composition.holders.iter();
            holders.any(|holder| {
                let is_mapper = self.processes[holder.process].upid == upid;
                is_mapper && holder.amounts.shmem().is_some_and(|held| held.0 > 0)
            })
        };
        later.0 <= 0 || (later.0 <= LAG_NS && row.first_mapper_upid.is_some_and(held_shared))
    }

    pub(super) fn anon_line(&self, process: usize, amounts: &Amounts) -> Option<AnonLine> {
        let now = amounts.anon()?;
        let measured = self.standing.pss.get(&self.processes[process].upid);
        let at = self.composition.boot_ns;
        let (bytes, basis, boot_ns) = match measured {
            Some(row) => {
                let is_shared = match row.is_anon_unshared {
                    // A recorder that knew of a fork too late said so too.
                    true => self.forks.may_share_image(process, at),
                    false => self.forks.may_share(process, row.boot_ns, at),
                };
                anon_at(row, now, at, is_shared)
            }
            None => match self.ratio_of_alike(process) {
                Some(ratio) => (Bytes((now.0 as f64 * ratio) as i64), Basis::Estimated, None),
                None => (now, Basis::UpperBound, None),
            },
        };
        Some(AnonLine {
            process,
            bytes,
            basis,
            age_ns: boot_ns.map(|boot_ns| self.composition.boot_ns - boot_ns),
        })
    }
}

/// A cgroup is not charged for hugetlb pages among its memory, and on the node the whole pool
/// is the kernel's: such an object is in no sum of shared memory.
fn is_huge(row: &ShmObjectRow) -> bool {
    row.kind == Some(MappingKind::Hugetlb)
}

fn is_some(bytes: Option<Bytes>) -> bool {
    bytes.is_some_and(|bytes| bytes.0 > 0)
}

/// What those have in common that were forked for the same purpose.
type Alike<'a> = (Option<usize>, &'a str);

fn alike(process: &Process) -> Alike<'_> {
    (process.parent, &process.shape)
}

/// PSS to RSS of anonymous memory, by those that were forked for the same purpose.
fn ratios<'a>(
    processes: &'a [Process],
    forks: &Forks,
    standing: &Standing,
) -> HashMap<Alike<'a>, (f64, f64)> {
    let mut sums: HashMap<Alike<'a>, (f64, f64)> = HashMap::new();
    for (position, process) in processes.iter().enumerate() {
        let row = standing.pss.get(&process.upid);
        let Some(row) = row.filter(|_| process.parent.is_some()) else {
            continue;
        };
        if row.is_anon_unshared && forks.may_share_image(position, row.boot_ns) {
            continue;
        }
        if let (Some(pss), Some(rss)) = (row.pss_anon_bytes, row.rss_anon_bytes) {
            let (all_pss, all_rss) = sums.entry(alike(process)).or_default();
            *all_pss += pss.0 as f64;
            *all_rss += rss.0 as f64;
        }
    }
    sums
}

/// Anonymous memory at an instant, from a measurement at another one and the RSS now: what
/// came since then is taken to be the process's own, as pages are when they are first touched.
///
/// A fork since then makes every page of it shared, so that its own part can only be less, and
/// by how much is not known before the next reading. Where nobody was to share any page that
/// is all there is to say.
fn anon_at(
    row: &PssRow,
    now: Bytes,
    at: BootNs,
    has_forked: bool,
) -> (Bytes, Basis, Option<BootNs>) {
    if row.is_anon_unshared && has_forked {
        return (now, Basis::UpperBound, None);
    }
    // It says so until the next row, and nothing of the time before.
    if row.is_anon_unshared && row.boot_ns <= at {
        return (now, Basis::Exact, None);
    }
    let has_forked = has_forked && row.boot_ns <= at;
    let (Some(pss), Some(rss)) = (row.pss_anon_bytes, row.rss_anon_bytes) else {
        return (now, Basis::UpperBound, None);
    };
    let moved = now - rss;
    let bytes = (pss + moved).max(Bytes(0)).min(now);
    let is_near = moved.0.saturating_abs() <= rss.0 / MOVED_PART;
    let basis = match (has_forked, is_near) {
        (true, _) => Basis::UpperBound,
        (false, true) => Basis::Measured,
        (false, false) => Basis::Estimated,
    };
    (bytes, basis, Some(row.boot_ns))
}

/// v2 tells the parts, and since 5.18 the sum, in which sockets are not; v1 has one figure.
fn kernel_of_cgroup(group: &CgroupUse) -> Vec<(KernelPart, Bytes)> {
    let row = &group.row;
    if row.version == 1 {
        return known(&[(KernelPart::All, row.kernel_bytes)]);
    }
    let mut parts = known(&[
        (KernelPart::Slab, row.slab_bytes),
        (KernelPart::PageTables, row.pagetables_bytes),
        (KernelPart::Stacks, row.kernel_stack_bytes),
        (KernelPart::PerCpu, row.percpu_bytes),
    ]);
    let named: Bytes = parts.iter().map(|(_, bytes)| *bytes).sum();
    let other = row.kernel_bytes.map(|all| all - named);
    parts.extend(known(&[
        (KernelPart::Other, other.filter(|other| other.0 > 0)),
        (KernelPart::Sockets, row.sock_bytes),
    ]));
    parts
}

fn known(parts: &[(KernelPart, Option<Bytes>)]) -> Vec<(KernelPart, Bytes)> {
    parts
        .iter()
        .filter_map(|(part, bytes)| Some((*part, (*bytes)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::golden::{RUNS, Script};
    use crate::model::tables::PssSource;
    use crate::model::{Tgid, WallNs};

    fn row(pss: i64, rss: i64, is_anon_unshared: bool) -> PssRow {
        PssRow {
            ts: WallNs(0),
            boot_ns: BootNs(100),
            upid: Upid(1),
            pss_bytes: None,
            pss_anon_bytes: Some(Bytes(pss)),
            pss_file_bytes: None,
            pss_shmem_bytes: None,
            uss_bytes: None,
            rss_anon_bytes: Some(Bytes(rss)),
            rss_file_bytes: None,
            rss_shmem_bytes: None,
            swap_bytes: None,
            huge_bytes: None,
            hugetlb_bytes: None,
            is_anon_unshared,
            source: Some(PssSource::Smaps),
            sampled_share: None,
            cost_ns: DurationNs(0),
            span_ns: DurationNs(0),
        }
    }

    fn at(row: &PssRow, now: i64, at: i64) -> (i64, Basis) {
        let (bytes, basis, _) = anon_at(row, Bytes(now), BootNs(at), false);
        (bytes.0, basis)
    }

    #[test]
    fn memory_that_nobody_shares_is_exact_at_any_later_time() {
        assert_eq!(at(&row(10, 10, true), 5000, 200), (5000, Basis::Exact));
        let before = at(&row(10, 10, true), 5000, 50);
        assert_eq!(before.1, Basis::Estimated);
    }

    #[test]
    fn after_a_fork_what_was_its_own_is_an_upper_bound() {
        let after = |row: &PssRow| {
            let (bytes, basis, _) = anon_at(row, Bytes(50), BootNs(200), true);
            (bytes, basis)
        };
        assert_eq!(after(&row(10, 10, true)), (Bytes(50), Basis::UpperBound));
        assert_eq!(after(&row(4, 10, false)), (Bytes(44), Basis::UpperBound));
        let (bytes, basis, _) = anon_at(&row(10, 10, true), Bytes(50), BootNs(50), true);
        assert_eq!((bytes, basis), (Bytes(50), Basis::UpperBound), "and before");
    }

    #[test]
    fn what_came_after_the_measurement_is_the_processs_own() {
        let row = row(100, 1000, false);
        assert_eq!(at(&row, 1005, 200), (105, Basis::Measured));
        assert_eq!(at(&row, 1500, 200), (600, Basis::Estimated));
        assert_eq!(at(&row, 300, 200), (0, Basis::Estimated));
        assert_eq!(at(&row, 50, 200).0, 0);
    }

    #[test]
    fn a_claim_that_came_too_late_for_a_fork_is_an_upper_bound_while_the_child_lives() {
        let basis_at = |at: &str| {
            let mut run = Script::command(&["x"], 60.0);
            run.process(500, None, 0.0, "x");
            run.process(501, Some(500), 5.0, "x");
            for tgid in [500, 501] {
                run.edit(tgid, |row| row.cgroup = Some("/pod".to_owned()));
                run.mem(tgid, 6.0, [200.0, 0.0, 0.0]);
            }
            // The recorder had not heard of the fork.
            run.pss(500, 5.2, [200.0, 200.0], true);
            run.exit(501, 20.0, 0);
            run.cgroup(8.0, "/pod", [1.0, 0.25, 0.0], None);
            let analysis = run.analyzed(Some(at));
            let state = analysis.at.expect("a state");
            let mut lines = state.balances[0].anon.iter();
            let is_parent =
                |line: &&AnonLine| analysis.processes[line.process].tgid == Some(Tgid(500));
            lines.find(is_parent).expect("a line").basis
        };
        assert_eq!(basis_at("+8s"), Basis::UpperBound);
        assert_eq!(basis_at("+30s"), Basis::Exact);
    }

    #[test]
    fn objects_of_huge_pages_stand_beside_the_books() {
        let (_, run, at) = RUNS.iter().find(|(name, ..)| *name == "shared").unwrap();
        let state = run().analyzed(*at).at.expect("a state");
        for balance in &state.balances {
            let huge: Vec<_> = balance.huge_objects.iter().map(|row| &row.name).collect();
            assert_eq!(huge, [&Some("/memfd:kv".to_owned())]);
            assert!(balance.objects.iter().all(|row| !is_huge(row)));
            let in_use = balance.current_bytes.expect("what is in use");
            let lines = balance.anon_bytes()
                + balance.objects.iter().filter_map(in_memory).sum()
                + balance.other_shared_bytes.unwrap()
                + balance.files_bytes()
                + balance.other_files_bytes.unwrap()
                + balance.kernel_bytes()
                + balance.residual_bytes.unwrap();
            assert_eq!(lines, in_use);
        }
    }

    #[test]
    fn without_a_measurement_it_is_an_upper_bound() {
        let unknown = PssRow {
            pss_anon_bytes: None,
            ..row(0, 10, false)
        };
        assert_eq!(at(&unknown, 7, 200), (7, Basis::UpperBound));
    }
}
