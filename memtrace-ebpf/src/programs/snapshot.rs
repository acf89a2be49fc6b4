//! Who is running when recording starts: the task iterator; and what it takes to read their
//! per-CPU counters.

use crate::kernel::{Mm, Task, now, read};
use crate::lifecycle::adopt;
use crate::maps::{CPU_OFFSETS, LOSSES, MEMBERS, SCRATCH, config, layout};
use aya_ebpf::helpers::generated::{bpf_map_lookup_percpu_elem, bpf_seq_write};
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use core::ffi::c_void;
use memtrace_abi::event::{COMM_LEN, Counts, TaskSeen};

/// struct bpf_iter__task { struct bpf_iter_meta *meta; struct task_struct *task; }
#[repr(C)]
pub struct IterTask {
    meta: *const IterMeta,
    task: *const u8,
}

/// struct bpf_iter_meta { struct seq_file *seq; u64 session_id; u64 seq_num; }
#[repr(C)]
struct IterMeta {
    seq: *mut c_void,
}

/// Whether a process is a member. A function of its own, so that the compiler can't merge
/// the map's answer with another pointer, which the verifier forbids.
#[inline(never)]
fn is_member_tgid(tgid: u32) -> bool {
    // SAFETY: presence only.
    unsafe { MEMBERS.get(tgid) }.is_some()
}

/// Fills in memory and name. A function with a stack of its own, because the state of a new
/// member must fit beside that of the iterator (512 bytes in all before 6.12).
#[inline(never)]
fn read_memory(seen: &mut TaskSeen, task: Task, mm: Mm) -> u32 {
    let mut counts = mm.counts();
    mm.settle(&mut counts);
    seen.counts = counts;
    seen.hiwater_pages = mm.hiwater_pages().max(counts.rss_pages());
    task.leader().comm(&mut seen.comm);
    0
}

/// Adds what is kept with a member: its execs, and the process that forked it in place of its
/// present parent, where that was seen.
#[inline(never)]
fn tell_origin(seen: &mut TaskSeen) -> u32 {
    if let Some(member) = MEMBERS.get_ptr(seen.tgid) {
        // SAFETY: a map value; a stale element is another process's, which its start tells.
        let member = unsafe { &*member };
        if member.start_boot_ns != seen.start_boot_ns {
            return 0;
        }
        seen.execs = u32::from(member.origin.execs);
        seen.exec_boot_ns = member.exec_boot_ns;
        if member.origin.was_fork_seen != 0 {
            seen.parent_tgid = member.origin.parent_tgid;
            seen.parent_start_boot_ns = member.origin.parent_start_boot_ns;
            seen.was_fork_seen = 1;
        }
    }
    0
}

/// Visits every task. A process whose parent is a member becomes one itself; a member that
/// was entered by user space, known only by its id until now, is completed. Every process
/// with an address space is written to the iterator's descriptor: all of them where
/// strangers are offered, else members only.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
pub extern "C" fn task_iter(ctx: *const IterTask) -> i32 {
    // SAFETY: the kernel passes a bpf_iter__task.
    let (meta, task) = unsafe { ((*ctx).meta, (*ctx).task) };
    if task.is_null() {
        return 0;
    }
    let task = Task(task as u64);
    let tgid = task.tgid();
    let mm = task.mm();
    if mm.is_null() || task.is_kernel_thread() {
        return 0;
    }
    // A leader that has ended has no address space any more; its threads speak for it.
    let is_leader = task.pid() == tgid;
    if !is_leader && !task.leader().mm().is_null() {
        return 0;
    }
    let parent = task.real_parent();
    let parent_tgid = parent.tgid();
    // SAFETY: a copy of one field; a stale element reads as another member's.
    let known_start = unsafe { MEMBERS.get(tgid) }.map(|member| member.start_boot_ns);
    let has_member_parent = is_member_tgid(parent_tgid);
    if !is_leader && known_start.unwrap_or(0) != 0 {
        return 0;
    }
    let is_member = known_start.is_some() || has_member_parent || config!(is_all) != 0;
    if !is_member && config!(offers_strangers) == 0 {
        return 0;
    }
    let mut seen = TaskSeen {
        tgid,
        parent_tgid,
        start_boot_ns: task.process_start(),
        parent_start_boot_ns: parent.process_start(),
        boot_ns: now(),
        exec_boot_ns: 0,
        counts: Counts::default(),
        hiwater_pages: 0,
        cgroup_id: task.memory_cgroup(),
        uid: task.uid(),
        ns_tgid: task.ns_tgid(),
        comm: [0; COMM_LEN],
        is_member: u32::from(is_member),
        is_adopted: 0,
        was_fork_seen: 0,
        execs: 0,
    };
    read_memory(&mut seen, task, mm);
    if is_member && known_start.unwrap_or(0) == 0 {
        let is_followed = adopt(&seen, mm);
        seen.is_member = u32::from(is_followed);
        seen.is_adopted = seen.is_member;
    } else {
        tell_origin(&mut seen);
    }
    // SAFETY: `seq` is the iterator's seq_file; `seen` is initialised and of that size.
    unsafe {
        bpf_seq_write(
            (*meta).seq.cast(),
            (&raw mut seen).cast(),
            size_of::<TaskSeen>() as u32,
        )
    };
    0
}

/// Finds out how to reach one CPU's part of a per-CPU pointer: the CPU is the first
/// argument. The kernel's table of offsets is not to be had: its symbol is hidden without
/// CONFIG_KALLSYMS_ALL. But a per-CPU array of our own shows both ends:
/// bpf_map_lookup_percpu_elem (5.19, before counters had per-CPU parts) gives the address
/// of one CPU's value, and struct bpf_array holds the per-CPU pointer it came from. Run by
/// user space for every CPU in turn, through BPF_PROG_TEST_RUN: a loop here would have the
/// verifier walk it for a thousand CPUs.
#[raw_tracepoint(tracepoint = "memtrace_learn_cpu")]
pub fn learn_cpu(ctx: RawTracePointContext) -> i32 {
    let cpu = ctx.arg::<u64>(0) as u32;
    let map = (&raw const LOSSES).cast_mut().cast::<c_void>();
    let Some(map_address) = as_number(map) else {
        return 0;
    };
    // pptrs[0]: the elements of the array lie behind one pointer each.
    let pointer: u64 = read(map_address, layout!(bpf_array_pptrs));
    let key = 0_u32;
    // SAFETY: the map is a per-CPU array and the key within it; a CPU that does not exist
    // is answered with null.
    let value = unsafe { bpf_map_lookup_percpu_elem(map, (&raw const key).cast(), cpu) };
    if !value.is_null()
        && let Some(address) = as_number(value)
        && let Some(offset) = CPU_OFFSETS.get_ptr_mut(cpu)
    {
        // SAFETY: an element of an array map.
        unsafe { *offset = address - pointer };
    }
    0
}

/// A pointer as a number to calculate with, which the verifier allows no pointer to be: it
/// forgets what it was on the way through a map.
#[inline(always)]
fn as_number(pointer: *mut c_void) -> Option<u64> {
    let slot = SCRATCH.get_ptr_mut(0)?.cast::<u64>();
    // SAFETY: the scratch room is this CPU's own; volatile, so that the value does go
    // through it.
    unsafe {
        core::ptr::write_volatile(slot, pointer as u64);
        Some(core::ptr::read_volatile(slot))
    }
}
