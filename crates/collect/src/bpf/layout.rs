//! Where this kernel keeps what the programs read: the offsets of the ABI's `Layout`, from
//! BTF. A field that is absent turns one feature off, or, where nothing works without it,
//! is named in the error.

use super::calls;
use super::error::LayoutError;
use super::probes::{BEFORE_EXIT, PROBES, Probe, TMPFS_FULL};
use memtrace_abi::Layout;
use memtrace_abi::config::CPUS_MAX;
use memtrace_host::btf::{Btf, BtfError, Field};
use zerocopy::FromZeros;

/// The types that are looked up.
const WANTED: &[&str] = &[
    "task_struct",
    "thread_struct",
    "mm_struct",
    "mm_rss_stat",
    "signal_struct",
    "percpu_counter",
    "bpf_array",
    "bpf_mem_alloc",
    "cred",
    "pid",
    "upid",
    "css_set",
    "cgroup_subsys_state",
    "cgroup",
    "kernfs_node",
    "linux_binprm",
    "pid_type",
    "cgroup_subsys_id",
    "vm_area_struct",
    "inode",
    "super_block",
    "shmem_sb_info",
    "anon_vma",
    FIND_VMA,
];

/// What tells a program the mapping at an address (5.17).
const FIND_VMA: &str = "bpf_find_vma";

/// The kernel's places of MM_FILEPAGES and so on in its counters; not an enum with a name,
/// so BTF can't be asked for it by name. Unchanged since 4.5 (include/linux/mm_types_task.h).
const MM_FILEPAGES: u32 = 0;
const MM_ANONPAGES: u32 = 1;
const MM_SWAPENTS: u32 = 2;
const MM_SHMEMPAGES: u32 = 3;

/// What stands between a counter of an address space as it is read and the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// Nothing: per-CPU parts are added up, or the kernel is one for a single CPU.
    Exact,
    /// The parts that CPUs hold back, which are out of reach.
    WithoutCpus,
    /// Before 6.2 (SPLIT_RSS_COUNTING): what the last 64 page faults of each thread
    /// brought, each up to 16 pages where it maps a file. A thread hands it in when it
    /// ends, so at the end of a process nothing is missing.
    WithoutThreads,
}

/// A layout and what this kernel lacks.
#[derive(Debug)]
pub struct Resolved {
    pub layout: Layout,
    /// What the counters at these offsets are worth.
    pub counting: Counting,
    /// A small BTF with the ids of what programs are attached to; see
    /// [`Btf::with_ids_only`].
    pub attach_btf: Vec<u8>,
    /// Whether a program may allocate an element of a hash (6.1): before, the kernel warned of
    /// it, and it was not safe in every context.
    pub allocates_elements: bool,
    /// Whether the registers of a system call were found.
    pub has_calls: bool,
    /// The programs that this kernel has a place for and a use.
    pub(super) offered: Vec<&'static Probe>,
    /// Features that are off, each as a sentence fragment: "memory cgroups: ...".
    pub missing: Vec<String>,
}

/// Resolves the layout from the bytes of /sys/kernel/btf/vmlinux. `possible_cpus` counts
/// the CPUs that exist or may appear.
///
/// # Errors
/// When the bytes are no BTF, or a field that every feature needs is missing.
pub fn resolve(bytes: &[u8], possible_cpus: u32) -> Result<Resolved, LayoutError> {
    let attached_to = attached_to();
    let attached_to: Vec<&str> = attached_to.iter().map(String::as_str).collect();
    let btf = Btf::parse(bytes, &[WANTED, calls::WANTED, &attached_to].concat())?;
    let mut missing = Vec::new();
    let exit_has_group_dead = exit_has_group_dead(&btf)?;
    let mut offered = offered(&btf, exit_has_group_dead, &mut missing)?;
    let counters = Counters::find(&btf).ok_or(LayoutError::missing("mm_struct.rss_stat"))?;
    let cgroup = CgroupPath::find(&btf).unwrap_or_else(|| {
        missing.push(
            "memory cgroups of processes: no memory controller in this kernel's BTF".to_owned(),
        );
        CgroupPath::default()
    });
    let pptrs = btf.field("bpf_array", "pptrs").map(|field| field.offset);
    let has_parts = counters.to_percpu != 0;
    let counting = counting(&counters, pptrs, possible_cpus, &mut missing);
    let mut layout = Layout {
        exit_has_group_dead: u32::from(exit_has_group_dead),
        bpf_array_pptrs: pptrs.unwrap_or(0),
        cpu_count: match counting == Counting::Exact && has_parts {
            true => possible_cpus,
            false => 0,
        },
        ..places(&btf, &counters, &cgroup)?
    };
    let has_calls = calls::place(&btf, &mut layout);
    // Where it is missing, whoever samples growth says so.
    let _ = place_anon(&btf, &mut layout);
    if place_tmpfs(&btf, &mut layout).is_none()
        && let Some(place) = offered.iter().position(|probe| probe.program == TMPFS_FULL)
    {
        let lost = offered.remove(place).without.unwrap_or_default();
        missing.push(format!("{lost}: a step to it is not in this kernel's BTF"));
    }
    Ok(Resolved {
        layout,
        counting,
        attach_btf: btf.with_ids_only(&attached_to),
        allocates_elements: btf.struct_size("bpf_mem_alloc").is_some(),
        has_calls,
        offered,
        missing,
    })
}

/// Whether the tracepoint at an exit says that it is of the last thread: since 6.16.
fn exit_has_group_dead(btf: &Btf<'_>) -> Result<bool, LayoutError> {
    let arguments = btf
        .tracepoint_arguments("btf_trace_sched_process_exit")
        .ok_or(LayoutError::missing("tracepoint sched_process_exit"))?;
    Ok(arguments.len() >= 2)
}

/// The probes that this kernel offers. What is missing without the others is added in words.
fn offered(
    btf: &Btf<'_>,
    exit_has_group_dead: bool,
    missing: &mut Vec<String>,
) -> Result<Vec<&'static Probe>, LayoutError> {
    let mut offered = Vec::new();
    for probe in PROBES {
        match probe.without {
            // The tracepoint comes before the address space is dropped.
            _ if exit_has_group_dead && probe.program == BEFORE_EXIT => {}
            _ if probe.is_offered(btf) => offered.push(probe),
            None => return Err(LayoutError::missing(probe.place())),
            Some(consequence) => {
                missing.push(format!(
                    "{consequence}: this kernel has no {}",
                    probe.place()
                ));
            }
        }
    }
    Ok(offered)
}

/// How exact the counters of this kernel are for a program.
fn counting(
    counters: &Counters,
    pptrs: Option<u32>,
    possible_cpus: u32,
    missing: &mut Vec<String>,
) -> Counting {
    let has_parts = counters.to_percpu != 0;
    let counting = match counters.kind {
        CounterKind::Atomic => Counting::WithoutThreads,
        CounterKind::PerCpu if has_parts && (pptrs.is_none() || possible_cpus > CPUS_MAX) => {
            Counting::WithoutCpus
        }
        CounterKind::PerCpu => Counting::Exact,
    };
    match counting {
        Counting::Exact => {}
        Counting::WithoutCpus => missing.push(
            "exact counters: their per-CPU parts are out of reach, amounts are approximate"
                .to_owned(),
        ),
        Counting::WithoutThreads => missing.push(
            "exact counters while a process runs: in this kernel each thread holds back what its \
             last 64 page faults brought; at the end of a process nothing is missing"
                .to_owned(),
        ),
    }
    counting
}

/// Where the fields are that every program reads.
fn places(btf: &Btf<'_>, counters: &Counters, cgroup: &CgroupPath) -> Result<Layout, LayoutError> {
    let task = |name, what| offset(btf.field("task_struct", name), what);
    let signal = |name, what| offset(btf.field("signal_struct", name), what);
    let mm = |name, what| offset(btf.field("mm_struct", name), what);
    let start = btf
        .field("task_struct", "start_boottime")
        .or_else(|| btf.field("task_struct", "real_start_time"));
    let victim_is_task = btf
        .tracepoint_arguments("btf_trace_mark_victim")
        .and_then(|arguments| arguments.first().copied())
        .is_some_and(|argument| btf.is_pointer(argument));
    Ok(Layout {
        task_tgid: task("tgid", "task_struct.tgid")?,
        task_pid: task("pid", "task_struct.pid")?,
        task_mm: task("mm", "task_struct.mm")?,
        task_group_leader: task("group_leader", "task_struct.group_leader")?,
        task_real_parent: task("real_parent", "task_struct.real_parent")?,
        task_start_boottime: offset(start, "task_struct.start_boottime")?,
        task_signal: task("signal", "task_struct.signal")?,
        task_comm: task("comm", "task_struct.comm")?,
        task_exit_code: task("exit_code", "task_struct.exit_code")?,
        task_flags: task("flags", "task_struct.flags")?,
        task_thread_pid: btf
            .field("task_struct", "thread_pid")
            .map_or(0, |field| field.offset),
        task_fsbase: btf
            .field("task_struct", "thread")
            .and_then(|thread| btf.field_of(thread, "fsbase"))
            .map_or(0, |field| field.offset),
        task_real_cred: task("real_cred", "task_struct.real_cred")?,
        task_cgroups: cgroup.task,
        cred_uid: offset(btf.field("cred", "uid"), "cred.uid")?,
        signal_live: signal("live", "signal_struct.live")?,
        signal_maxrss: signal("maxrss", "signal_struct.maxrss")?,
        signal_cmaxrss: signal("cmaxrss", "signal_struct.cmaxrss")?,
        signal_flags: signal("flags", "signal_struct.flags")?,
        signal_group_exit_code: signal("group_exit_code", "signal_struct.group_exit_code")?,
        signal_tgid_pid: signal("pids", "signal_struct.pids")?
            + 8 * btf
                .enumerator("pid_type", "PIDTYPE_TGID")
                .ok_or(LayoutError::missing("PIDTYPE_TGID"))?,
        signal_oom_score_adj: signal("oom_score_adj", "signal_struct.oom_score_adj")?,
        signal_rlim: signal("rlim", "signal_struct.rlim")?,
        pid_level: offset(btf.field("pid", "level"), "pid.level")?,
        pid_numbers: offset(btf.field("pid", "numbers"), "pid.numbers")?,
        upid_size: btf
            .struct_size("upid")
            .ok_or(LayoutError::missing("struct upid"))?,
        upid_nr: offset(btf.field("upid", "nr"), "upid.nr")?,
        mm_hiwater_rss: mm("hiwater_rss", "mm_struct.hiwater_rss")?,
        mm_total_vm: mm("total_vm", "mm_struct.total_vm")?,
        mm_brk: mm("brk", "mm_struct.brk")?,
        mm_start_brk: mm("start_brk", "mm_struct.start_brk")?,
        mm_arg_start: mm("arg_start", "mm_struct.arg_start")?,
        mm_arg_end: mm("arg_end", "mm_struct.arg_end")?,
        mm_users: mm("mm_users", "mm_struct.mm_users")?,
        mm_rss_file: counters.place(MM_FILEPAGES),
        mm_rss_anon: counters.place(MM_ANONPAGES),
        mm_rss_swap: counters.place(MM_SWAPENTS),
        mm_rss_shmem: counters.place(MM_SHMEMPAGES),
        counter_to_percpu: counters.to_percpu,
        css_set_memory: cgroup.css_set_memory,
        css_cgroup: cgroup.css_cgroup,
        cgroup_kn: cgroup.cgroup_kn,
        kn_id: cgroup.kn_id,
        binprm_interp: offset(btf.field("linux_binprm", "interp"), "linux_binprm.interp")?,
        victim_is_task: u32::from(victim_is_task),
        ..Layout::new_zeroed()
    })
}

/// Fills in the way from a mapping to how full its tmpfs is. `None` where a step is not found.
fn place_tmpfs(btf: &Btf<'_>, layout: &mut Layout) -> Option<()> {
    let place = |structure, name| Some(btf.field(structure, name)?.offset);
    let used = btf.field("shmem_sb_info", "used_blocks")?;
    let parts = btf.field_of(used, "counters");
    let found = Layout {
        vma_file: place("vm_area_struct", "vm_file")?,
        file_inode: place("file", "f_inode")?,
        inode_sb: place("inode", "i_sb")?,
        sb_magic: place("super_block", "s_magic")?,
        sb_dev: place("super_block", "s_dev")?,
        sb_fs_info: place("super_block", "s_fs_info")?,
        shmem_max: place("shmem_sb_info", "max_blocks")?,
        shmem_used: btf.field_of(used, "count")?.offset,
        shmem_used_parts: parts.map_or(0, |parts| parts.offset),
        ..*layout
    };
    *layout = found;
    Some(())
}

/// Fills in the way from a mapping to who shares it since a fork. `None` where a step is not found.
fn place_anon(btf: &Btf<'_>, layout: &mut Layout) -> Option<()> {
    let place = |structure, name| Some(btf.field(structure, name)?.offset);
    btf.function_id(FIND_VMA)?;
    let found = Layout {
        vma_file: place("vm_area_struct", "vm_file")?,
        vma_flags: place("vm_area_struct", "vm_flags")?,
        vma_anon: place("vm_area_struct", "anon_vma")?,
        anon_root: place("anon_vma", "root")?,
        anon_parent: place("anon_vma", "parent")?,
        anon_children: place("anon_vma", "num_children")?,
        anon_mappings: place("anon_vma", "num_active_vmas")?,
        ..*layout
    };
    *layout = found;
    Some(())
}

/// The part of a kernel's BTF that [`resolve`] looks at, in a few kilobytes: what tests
/// keep of a kernel. `None` when the data refers to what is not in it.
///
/// # Errors
/// When the bytes are no BTF.
pub fn reduced_btf(bytes: &[u8]) -> Result<Option<Vec<u8>>, BtfError> {
    let attached_to = attached_to();
    let attached_to: Vec<&str> = attached_to.iter().map(String::as_str).collect();
    let wanted = [WANTED, calls::WANTED, &attached_to].concat();
    Ok(Btf::parse(bytes, &wanted)?.reduced())
}

/// What programs are attached to, as BTF names it.
fn attached_to() -> Vec<String> {
    let of_calls = calls::ATTACHED_TO.iter().map(|name| (*name).to_owned());
    PROBES.iter().map(Probe::btf_name).chain(of_calls).collect()
}

fn offset(field: Option<Field>, what: &'static str) -> Result<u32, LayoutError> {
    field
        .map(|field| field.offset)
        .ok_or(LayoutError::missing(what))
}

/// What a counter in mm_struct is.
enum CounterKind {
    /// A percpu_counter, since 6.2.
    PerCpu,
    /// An atomic number.
    Atomic,
}

/// Where mm_struct keeps its counters.
struct Counters {
    kind: CounterKind,
    first: u32,
    stride: u32,
    /// From a counter's value to its pointer to per-CPU parts; 0 before 6.2.
    to_percpu: u32,
}

impl Counters {
    /// Since 6.2 (f1a7941243c1) an array of percpu_counter; before, a struct with an array
    /// of atomics. Reading one with the layout of the other gives plausible garbage.
    fn find(btf: &Btf<'_>) -> Option<Self> {
        let rss_stat = btf.field("mm_struct", "rss_stat")?;
        if let Some(element) = btf.element(rss_stat.type_id) {
            let count = btf.field("percpu_counter", "count")?.offset;
            // Without SMP a percpu_counter is its count alone.
            let parts = btf
                .field("percpu_counter", "counters")
                .map(|field| field.offset);
            return Some(Self {
                kind: CounterKind::PerCpu,
                first: rss_stat.offset + count,
                stride: btf.size(element)?,
                to_percpu: parts.map_or(0, |parts| parts - count),
            });
        }
        let counts = btf.field_of(rss_stat, "count")?;
        let stride = btf.size(btf.element(counts.type_id)?)?;
        Some(Self {
            kind: CounterKind::Atomic,
            first: counts.offset,
            stride,
            to_percpu: 0,
        })
    }

    fn place(&self, kind: u32) -> u32 {
        self.first + kind * self.stride
    }
}

/// The way from a task to the id of its memory cgroup.
#[derive(Default)]
struct CgroupPath {
    task: u32,
    css_set_memory: u32,
    css_cgroup: u32,
    cgroup_kn: u32,
    kn_id: u32,
}

impl CgroupPath {
    fn find(btf: &Btf<'_>) -> Option<Self> {
        let memory = btf.enumerator("cgroup_subsys_id", "memory_cgrp_id")?;
        Some(Self {
            task: btf.field("task_struct", "cgroups")?.offset,
            css_set_memory: btf.field("css_set", "subsys")?.offset + 8 * memory,
            css_cgroup: btf.field("cgroup_subsys_state", "cgroup")?.offset,
            cgroup_kn: btf.field("cgroup", "kn")?.offset,
            kn_id: btf.field("kernfs_node", "id")?.offset,
        })
    }
}

#[cfg(test)]
mod tests;
