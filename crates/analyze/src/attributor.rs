//! Draws up an [`Attribution`]: who held what at an instant, from the readings around it.

use super::attribution::{
    AnonLine, Attribution, CachedFile, Elsewhere, EndingLine, KernelLine, KernelPart, Scope,
    SharedObject,
};
use super::held::{Once, Part};
use super::pass::Snapshot;
use super::process::Process;
use super::readings_near;
use super::readings_near::ReadingsNear;
use super::shares::Share;
use super::surroundings::{CgroupUse, NodeUse, RecorderUse, Uses, is_within};
use super::who::Who;
use memtrace_model::tables::ShmObjectRow;
use memtrace_model::{BootNs, Bytes, DurationNs, MappingKind, Order, RowSource, Upid};
use std::collections::HashMap;

/// Readings take turns: an object that was first seen no later than this after the instant
/// is taken to have been there, if the process that maps it held shared memory.
const LAG_NS: i64 = 10_000_000_000;

/// A reading that took longer than this is not of one instant.
const INTERRUPTED: DurationNs = DurationNs(3_000_000);

/// A process that takes longer than this to give its memory back is not waited for.
const ENDING_NS: i64 = 20_000_000_000;

/// What the ledgers of every instant are drawn up from.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) processes: &'a [Process],
    /// By process: the anonymous memory it held when it ended.
    pub(super) at_end: &'a [Option<Bytes>],
    pub(super) is_everyone_recorded: bool,
}

/// The ledgers of one instant, of each cgroup and of the node, and the part of each process.
pub(super) type Attributed = (Vec<Attribution>, Vec<Share>);

/// Reads what is known about sharing, and draws up the ledgers of every instant. None where no
/// process tells what kind its memory is of.
pub(super) fn read<S: RowSource>(
    source: &S,
    known: Known<'_>,
    states: &[&Snapshot],
    uses: &[Uses],
) -> Result<Vec<Attributed>, S::Error> {
    let instants: Vec<BootNs> = states.iter().map(|state| state.boot_ns).collect();
    let readings = readings_near::read(source, &instants)?;
    let are_known = readings.iter().any(|readings| !readings.is_empty());
    let processes = known.processes.iter();
    let cgroup_of: HashMap<Upid, &str> = processes
        .filter_map(|process| Some((process.upid, process.cgroup.as_deref()?)))
        .collect();
    let all = states.iter().zip(uses).zip(&readings);
    let attributed = all.map(|((state, uses), readings)| {
        let attributor = Attributor {
            state,
            recorder: uses.recorder.as_ref(),
            known,
            cgroup_of: &cgroup_of,
            readings,
        };
        let shares = attributor.shares();
        let mut holders = state.held.iter();
        if !are_known && holders.all(|(_, amounts)| amounts.anon().is_none()) {
            return (Vec::new(), shares);
        }
        let cgroups = uses.cgroups.iter();
        let cgroups = cgroups.map(|group| attributor.cgroup(group, &shares));
        let node = uses.node.as_ref();
        let node = node.map(|node| attributor.node(node, &shares));
        // Where it is not known what is in use, there is nothing to draw up.
        let ledgers = cgroups
            .chain(node)
            .filter(|ledger| ledger.current_bytes.is_some());
        (ledgers.collect(), shares)
    });
    Ok(attributed.collect())
}

/// What the ledger of one instant is drawn up from.
struct Attributor<'a> {
    state: &'a Snapshot,
    recorder: Option<&'a RecorderUse>,
    known: Known<'a>,
    cgroup_of: &'a HashMap<Upid, &'a str>,
    readings: &'a ReadingsNear,
}

impl Attributor<'_> {
    /// What each has that held memory, as far as its kinds are known: together what all held, but for
    /// what is of nobody.
    fn shares(&self) -> Vec<Share> {
        let parts = &self.state.parts;
        let all = parts.iter().copied().fold(Part::default(), Part::plus);
        let once = Once::of_all(&self.state.once, all);
        let known = self.state.held.iter();
        let known = known.filter(|(_, amounts)| amounts.anon().is_some());
        let share = |&(process, _): &(usize, _)| {
            let part = parts.get(process).copied().unwrap_or_default();
            let read = self.readings.pss.get(&self.upid(process));
            let pinned = read.and_then(|row| row.pinned_bytes);
            Share {
                pinned_bytes: pinned.unwrap_or_default(),
                ..once.share(process, part)
            }
        };
        known.map(share).collect()
    }

    fn cgroup(&self, group: &CgroupUse, shares: &[Share]) -> Attribution {
        let row = &group.row;
        let path = row.cgroup.as_str();
        let is_inside = |upid: Option<Upid>| {
            let cgroup = upid.and_then(|upid| self.cgroup_of.get(&upid));
            cgroup.is_some_and(|cgroup| is_within(cgroup, path))
        };
        let mut attribution = self.attributed(Scope::Cgroup(path.to_owned()), shares, is_inside);
        attribution.current_bytes = row.current_bytes;
        self.date(&mut attribution, group.age_ns, is_inside);
        let span = row.span_ns.filter(|span| *span > INTERRUPTED);
        attribution.span_ns = span.unwrap_or(DurationNs(0));
        attribution.other_processes_bytes = row.other_anon_bytes;
        attribution.other_process_count = row.other_process_count;
        let objects = attribution.shared_bytes.unwrap_or_default();
        attribution.other_shared_bytes = row.shmem_bytes.map(|all| all - objects);
        let named = attribution.files_bytes.unwrap_or_default();
        let cache = row.file_bytes.zip(row.shmem_bytes);
        attribution.other_files_bytes = cache.map(|(file, shmem)| file - shmem - named);
        match row.counts_kernel() {
            true => attribution.kernel = kernel_of_cgroup(group),
            false => attribution.kernel_outside_bytes = row.kernel_bytes,
        }
        attribution.limit_bytes = group.effective_limit_bytes;
        // v1 tells no slab.
        let has_slab = row.slab_reclaimable_bytes.is_some();
        attribution.reclaimable_bytes = row.reclaimable_bytes().filter(|_| has_slab);
        attribution.close(row.anon_bytes);
        attribution
    }

    /// When what is in use was read, against the lines, and who ended shortly before that.
    fn date(
        &self,
        attribution: &mut Attribution,
        age: DurationNs,
        is_inside: impl Fn(Option<Upid>) -> bool,
    ) {
        let read = BootNs(self.state.boot_ns.0 - age.0);
        attribution.age_ns = age;
        let least = attribution
            .current_bytes
            .map_or(0, |current| current.0 / 100);
        let processes = self.known.processes.iter().zip(self.known.at_end);
        let ending = processes
            .enumerate()
            .filter_map(|(place, (process, held))| {
                let line = EndingLine {
                    who: Who::from(process),
                    process: place,
                    bytes: held.filter(|held| held.0 > least)?,
                    ago_ns: read - process.exit_boot_ns()?,
                };
                let is_recent = (0..=ENDING_NS).contains(&line.ago_ns.0);
                (is_recent && is_inside(Some(process.upid))).then_some(line)
            });
        attribution.ending = ending.collect();
        attribution
            .ending
            .order_by_key(|line| (std::cmp::Reverse(line.bytes), line.process));
    }

    fn node(&self, node: &NodeUse, shares: &[Share]) -> Attribution {
        let row = &node.row;
        let mut attribution = self.attributed(Scope::Node, shares, |_| true);
        let in_use = row.mem_total_bytes.zip(row.mem_free_bytes);
        attribution.current_bytes = in_use.map(|(total, free)| total - free);
        self.date(&mut attribution, node.age_ns, |_| true);
        if !self.known.is_everyone_recorded {
            let anon = attribution.anonymous_bytes.unwrap_or_default()
                + attribution.recorder_bytes.unwrap_or(Bytes(0));
            // Less than nothing shows that the two are not of the same instant.
            let others = row.anon_bytes.map(|all| all - anon);
            attribution.other_processes_bytes = others.filter(|others| others.0 >= 0);
        }
        let objects = attribution.shared_bytes.unwrap_or_default();
        attribution.other_shared_bytes = row.shmem_bytes.map(|all| all - objects);
        let named = attribution.files_bytes.unwrap_or_default();
        let cache = row.page_cache_bytes();
        attribution.other_files_bytes = cache.map(|cache| cache - named);
        let slab = row.slab_reclaimable_bytes.zip(row.slab_unreclaimable_bytes);
        attribution.kernel = known(&[
            (KernelPart::Slab, slab.map(|(a, b)| a + b)),
            (KernelPart::PageTables, row.page_tables_bytes),
            (KernelPart::Stacks, row.kernel_stack_bytes),
            (KernelPart::PerCpu, row.percpu_bytes),
            (KernelPart::Sockets, row.sockets_bytes),
            (KernelPart::Hugetlb, row.hugetlb_bytes),
        ]);
        attribution.limit_bytes = row.mem_total_bytes;
        let reclaimable = cache.zip(row.slab_reclaimable_bytes);
        attribution.reclaimable_bytes = reclaimable.map(|(cache, slab)| cache + slab);
        attribution.close(None);
        attribution
    }

    /// What processes, objects and files of a scope hold.
    fn attributed(
        &self,
        scope: Scope,
        shares: &[Share],
        is_inside: impl Fn(Option<Upid>) -> bool,
    ) -> Attribution {
        let is_of = |process: usize| is_inside(Some(self.upid(process))) || scope == Scope::Node;
        let holders = self.state.held.iter();
        let holders = holders.filter(|(process, _)| is_of(*process));
        let is_read = |process: usize| self.readings.pss.contains_key(&self.upid(process));
        let is_looked_at = holders.clone().any(|(process, _)| is_read(*process));
        let own = shares.iter().filter(|share| is_of(share.process));
        let mut anon: Vec<AnonLine> = own
            .map(|share| AnonLine {
                who: Who::from(&self.known.processes[share.process]),
                process: share.process,
                bytes: share.anon_bytes,
                is_estimate: share.is_estimate(),
            })
            .collect();
        let unknown_process_count = holders.count() - anon.len();
        anon.order_by_key(|line| (std::cmp::Reverse(line.bytes), line.process));
        let recorder_bytes = self.recorder.and_then(|recorder| match &scope {
            Scope::Node => (!recorder.is_recorded).then_some(recorder.anon_bytes),
            Scope::Cgroup(path) => recorder.anon_in(path),
        });
        let is_of_scope = |row: &&ShmObjectRow| is_inside(row.first_user()) || scope == Scope::Node;
        let unknown_object_count = self.unknown_objects().filter(is_of_scope).count();
        let objects = self.all_there().filter(is_of_scope);
        let mut objects: Vec<SharedObject> = objects.map(SharedObject::of).collect();
        let order =
            |object: &SharedObject| (object.in_memory().map(std::cmp::Reverse), object.inode);
        objects.order_by_key(order);
        let ages = objects.iter().filter_map(|object| {
            let key = (object.device.clone(), object.inode);
            Some(self.state.boot_ns - *self.readings.amounts_of.get(&key)?)
        });
        let objects_age_ns = ages.max_by_key(|age| age.0.saturating_abs());
        let (huge_objects, objects) = objects.into_iter().partition(|object| is_huge(object.kind));
        let files = self.readings.files.iter().filter(|row| {
            let is_inside = is_inside(row.first_user_upid) || scope == Scope::Node;
            is_inside && is_some(row.cached_bytes)
        });
        let mut files: Vec<CachedFile> = files.map(CachedFile::of).collect();
        files.order_by(|a, b| (b.cached_bytes, &a.path).cmp(&(a.cached_bytes, &b.path)));
        let mut attribution = Attribution {
            scope,
            current_bytes: None,
            age_ns: DurationNs(0),
            span_ns: DurationNs(0),
            anonymous_bytes: None,
            anon,
            unknown_process_count,
            unknown_object_count,
            objects_age_ns,
            other_processes_bytes: None,
            other_process_count: None,
            recorder_bytes,
            ending: Vec::new(),
            shared_bytes: None,
            objects,
            huge_objects,
            other_shared_bytes: None,
            files_bytes: None,
            files,
            other_files_bytes: None,
            elsewhere: Elsewhere::default(),
            kernel_bytes: None,
            kernel: Vec::new(),
            kernel_outside_bytes: None,
            residual_bytes: None,
            limit_bytes: None,
            reclaimable_bytes: None,
            is_looked_at,
        };
        attribution.add_up();
        attribution
    }

    fn upid(&self, process: usize) -> Upid {
        self.known.processes[process].upid
    }

    /// The objects that had memory at the instant.
    fn all_there(&self) -> impl Iterator<Item = &ShmObjectRow> {
        let objects = self.readings.objects.iter();
        objects.filter(|row| is_some(row.in_memory_bytes()) && self.was_there(row))
    }

    /// Objects that are mapped and could not be asked for what they take.
    fn unknown_objects(&self) -> impl Iterator<Item = &ShmObjectRow> {
        let objects = self.readings.objects.iter();
        objects.filter(|row| {
            row.in_memory_bytes().is_none()
                && row.mapper_count > 0
                && !is_huge(row.kind)
                && self.was_there(row)
        })
    }

    fn was_there(&self, row: &ShmObjectRow) -> bool {
        let later = row.boot_ns - self.state.boot_ns;
        if later.0 > 0
            && let Some(until) = row.unchanged_until_boot_ns
            && until >= self.state.boot_ns
        {
            return false;
        }
        let held_shared = |upid: Upid| {
            let mut holders = self.state.held.iter();
            holders.any(|(process, amounts)| {
                let is_mapper = self.known.processes[*process].upid == upid;
                is_mapper && amounts.shmem().is_some_and(|held| held.0 > 0)
            })
        };
        later.0 <= 0 || (later.0 <= LAG_NS && row.first_mapper_upid.is_some_and(held_shared))
    }
}

/// A cgroup is not charged for hugetlb pages among its memory, and on the node the whole pool
/// is the kernel's: such an object is in no sum of shared memory.
fn is_huge(kind: Option<MappingKind>) -> bool {
    kind == Some(MappingKind::Hugetlb)
}

fn is_some(bytes: Option<Bytes>) -> bool {
    bytes.is_some_and(|bytes| bytes.0 > 0)
}

/// v2 tells the parts, and since 5.18 the sum, in which sockets are not; v1 has one figure.
fn kernel_of_cgroup(group: &CgroupUse) -> Vec<KernelLine> {
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
    let named: Bytes = parts.iter().map(|line| line.bytes).sum();
    let other = row.kernel_bytes.map(|all| all - named);
    parts.extend(known(&[
        (KernelPart::Other, other.filter(|other| other.0 > 0)),
        (KernelPart::Sockets, row.sock_bytes),
    ]));
    parts
}

fn known(parts: &[(KernelPart, Option<Bytes>)]) -> Vec<KernelLine> {
    let lines = parts.iter().filter_map(|&(part, bytes)| {
        let bytes = bytes?;
        Some(KernelLine { part, bytes })
    });
    lines.collect()
}

#[cfg(test)]
mod tests;
