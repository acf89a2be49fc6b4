//! What user space tells the programs: globals that are read-only once loaded, so that the
//! verifier knows every value and removes the branches that this kernel does not need.

use crate::event::{Origin, SentSignal};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most CPUs whose per-CPU counter parts are added up.
pub const CPUS_MAX: u32 = 1024;

/// Most address spaces that a sweep visits because they moved; when more did, it visits all.
pub const MOVED_MAX: u32 = 1024;

/// What to observe.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Config {
    /// 1: every process of the machine is a member.
    pub is_all: u32,
    /// 1: exec and name events of processes that are no members are sent too, for `--match`.
    pub offers_strangers: u32,
    /// 1: a process that calls exec inside a target cgroup becomes a member.
    pub has_target_cgroups: u32,
    /// The command that memtrace holds until the probes are attached; what it held before
    /// its exec is memtrace's own copy and is not charged to it. 0 for none.
    pub held_tgid: u32,
    /// A sample is sent when RSS moved by this many pages, or by 1/128 if that is more.
    /// Never below the drift bound of the kernel's own counters.
    pub drift_pages: i64,
    /// On more CPUs than these their parts of the counters, and the time of a local maximum, are
    /// taken at steps of what stands out instead of every few pages.
    pub few_cpus: u64,
    /// Least time between two drift samples of one process, sustained.
    pub drift_interval_ns: u64,
    /// How many drift samples may come at once before `drift_interval_ns` holds.
    pub drift_burst: u64,
    /// The ring's size in bytes.
    pub ring_bytes: u64,
    /// Fill of the ring at which the reader is woken.
    pub wake_bytes: u64,
    /// Size of a base page.
    pub page_bytes: u64,
    /// Time between two ticks of the kernel's coarse clock.
    pub tick_ns: u64,
    /// Calls on the address space of fewer bytes are summed and have no event.
    pub vm_min_bytes: u64,
    /// Least time between two such events of one process, sustained.
    pub vm_interval_ns: u64,
    /// How many of them may come at once before `vm_interval_ns` holds.
    pub vm_burst: u64,
    /// 1: calls on the address space are watched.
    pub has_vm: u32,
    /// System call numbers of this architecture, in the order of [`crate::VmOp::ALL`].
    pub vm_calls: [u32; crate::VmOp::COUNT],
    /// 1: growth of anonymous memory is sampled with stacks.
    pub has_stacks: u32,
    /// Samples with stacks begin at one in so many pages, and are never denser.
    pub stack_interval_pages: u32,
    /// 1: calls of the CUDA driver are followed.
    pub has_cuda: u32,
    /// Zero.
    pub reserved: u32,
}

/// Where the kernel keeps things: offsets in bytes, resolved from its BTF, since Rust's BPF
/// target has no relocatable field access (rust-lang/rust#158412).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Layout {
    /// task_struct.tgid
    pub task_tgid: u32,
    /// task_struct.pid
    pub task_pid: u32,
    /// task_struct.mm
    pub task_mm: u32,
    /// task_struct.group_leader
    pub task_group_leader: u32,
    /// task_struct.real_parent
    pub task_real_parent: u32,
    /// task_struct.start_boottime (before 5.5: real_start_time)
    pub task_start_boottime: u32,
    /// task_struct.signal
    pub task_signal: u32,
    /// task_struct.comm
    pub task_comm: u32,
    /// task_struct.exit_code
    pub task_exit_code: u32,
    /// task_struct.flags
    pub task_flags: u32,
    /// task_struct.real_cred
    pub task_real_cred: u32,
    /// task_struct.cgroups
    pub task_cgroups: u32,
    /// cred.uid
    pub cred_uid: u32,
    /// signal_struct.live
    pub signal_live: u32,
    /// signal_struct.maxrss
    pub signal_maxrss: u32,
    /// signal_struct.cmaxrss
    pub signal_cmaxrss: u32,
    /// signal_struct.flags
    pub signal_flags: u32,
    /// signal_struct.group_exit_code
    pub signal_group_exit_code: u32,
    /// signal_struct.pids[PIDTYPE_TGID]
    pub signal_tgid_pid: u32,
    /// signal_struct.oom_score_adj
    pub signal_oom_score_adj: u32,
    /// signal_struct.rlim
    pub signal_rlim: u32,
    /// pid.level
    pub pid_level: u32,
    /// pid.numbers
    pub pid_numbers: u32,
    /// sizeof(struct upid)
    pub upid_size: u32,
    /// upid.nr
    pub upid_nr: u32,
    /// mm_struct.hiwater_rss
    pub mm_hiwater_rss: u32,
    /// mm_struct.total_vm
    pub mm_total_vm: u32,
    /// mm_struct.brk
    pub mm_brk: u32,
    /// mm_struct.start_brk
    pub mm_start_brk: u32,
    /// mm_struct.arg_start
    pub mm_arg_start: u32,
    /// mm_struct.arg_end
    pub mm_arg_end: u32,
    /// mm_struct.mm_users
    pub mm_users: u32,
    /// The counter of MM_FILEPAGES in mm_struct
    pub mm_rss_file: u32,
    /// The counter of MM_ANONPAGES in mm_struct
    pub mm_rss_anon: u32,
    /// The counter of MM_SWAPENTS in mm_struct
    pub mm_rss_swap: u32,
    /// The counter of MM_SHMEMPAGES in mm_struct
    pub mm_rss_shmem: u32,
    /// From a counter to its pointer to per-CPU parts (6.2: percpu_counter.counters, less
    /// percpu_counter.count); 0 when counters have no such parts.
    pub counter_to_percpu: u32,
    /// css_set.subsys[memory_cgrp_id]; 0 when there is no memory controller
    pub css_set_memory: u32,
    /// cgroup_subsys_state.cgroup
    pub css_cgroup: u32,
    /// cgroup.kn
    pub cgroup_kn: u32,
    /// kernfs_node.id
    pub kn_id: u32,
    /// linux_binprm.interp
    pub binprm_interp: u32,
    /// 1 when the sched_process_exit tracepoint tells whether the group is dead (6.16)
    pub exit_has_group_dead: u32,
    /// 1 when the mark_victim tracepoint hands over the task (6.9)
    pub victim_is_task: u32,
    /// bpf_array.pptrs
    pub bpf_array_pptrs: u32,
    /// CPUs whose per-CPU parts are added up, at most [`CPUS_MAX`]; 0 turns that off
    pub cpu_count: u32,
    /// The number of the system call in pt_regs (x86: orig_ax, arm64: syscallno)
    pub regs_call: u32,
    /// The first five arguments of a system call in pt_regs, as they are when it returns
    pub regs_args: [u32; 5],
    /// The first five arguments of a function in pt_regs, as they are when it is entered
    pub regs_function_args: [u32; 5],
    /// The value that a function returns, in pt_regs (x86: ax, arm64: regs[0])
    pub regs_result: u32,
    /// What tells a 32-bit program in pt_regs (x86: cs, arm64: pstate)
    pub regs_mode: u32,
    /// The bits of that which count
    pub mode_mask: u32,
    /// Their value for a 32-bit program
    pub mode_compat: u32,
    /// task_struct.files
    pub task_files: u32,
    /// files_struct.fdt
    pub files_fdt: u32,
    /// fdtable.max_fds
    pub fdt_max: u32,
    /// The instruction pointer in pt_regs; with its neighbours 0 where stacks can't be had.
    pub regs_instruction: u32,
    /// The stack pointer in pt_regs
    pub regs_stack: u32,
    /// The frame pointer in pt_regs
    pub regs_frame: u32,
    /// task_struct.thread_pid
    pub task_thread_pid: u32,
    /// task_struct.thread.fsbase, which is the address of the thread's control block (x86-64); 0 where it
    /// is not known
    pub task_fsbase: u32,
    /// fdtable.fd
    pub fdt_fd: u32,
    /// file.f_path.dentry; 0 when names of mapped files can't be had
    pub file_dentry: u32,
    /// dentry.d_name.name
    pub dentry_name: u32,
    /// vm_area_struct.vm_file; with those that follow 0 where the tmpfs of a page can't be had
    pub vma_file: u32,
    /// file.f_inode
    pub file_inode: u32,
    /// inode.i_sb
    pub inode_sb: u32,
    /// super_block.s_magic
    pub sb_magic: u32,
    /// super_block.s_dev
    pub sb_dev: u32,
    /// super_block.s_fs_info
    pub sb_fs_info: u32,
    /// shmem_sb_info.max_blocks
    pub shmem_max: u32,
    /// shmem_sb_info.used_blocks.count
    pub shmem_used: u32,
    /// shmem_sb_info.used_blocks.counters; 0 where a counter has no per-CPU parts
    pub shmem_used_parts: u32,
    /// vm_area_struct.vm_flags
    pub vma_flags: u32,
    /// vm_area_struct.anon_vma; 0 where copies of what a fork shares can't be seen
    pub vma_anon: u32,
    /// anon_vma.root
    pub anon_root: u32,
    /// anon_vma.parent
    pub anon_parent: u32,
    /// anon_vma.num_children
    pub anon_children: u32,
    /// anon_vma.num_active_vmas
    pub anon_mappings: u32,
}

/// A process of the recording, in the map of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Member {
    /// Start of the process; 0 until the iterator has found it.
    pub start_boot_ns: u64,
    /// Address of its own mm_struct; 0 while it borrows another's.
    pub mm: u64,
    /// Highest RSS of its own address spaces that are gone; of a copy that fork made, only
    /// what it grew by since.
    pub earlier_peak_pages: i64,
    /// When that was.
    pub earlier_peak_boot_ns: u64,
    /// When the last of its execs that were seen was; 0 where none was.
    pub exec_boot_ns: u64,
    /// What its end tells with it.
    pub origin: Origin,
    /// The last signal that was sent to it and ends a process by default.
    pub sent_signal: SentSignal,
}

/// Where the interpreter of an address space keeps its frames, in the map by tgid: addresses in the
/// process and offsets in CPython's structures.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct PythonLayout {
    /// Address of the mm_struct that it holds for: exec makes another one.
    pub mm: u64,
    /// Address of the pointer to the first interpreter; 0 where there is none that is known.
    pub interpreters: u64,
    /// PyInterpreterState.next
    pub interpreter_next: u32,
    /// PyInterpreterState.threads.head
    pub interpreter_threads: u32,
    /// PyThreadState.next
    pub thread_next: u32,
    /// PyThreadState.native_thread_id; where `is_thread_by_address`, PyThreadState.thread_id
    pub thread_id: u32,
    /// PyThreadState.current_frame, before 3.11 PyThreadState.frame; where `cframe_frame` is used,
    /// PyThreadState.cframe
    pub thread_frame: u32,
    /// _PyCFrame.current_frame (3.11, 3.12), or [`PythonLayout::NO_CFRAME`]
    pub cframe_frame: u32,
    /// _PyInterpreterFrame.f_code or f_executable, PyFrameObject.f_code before 3.11
    pub frame_code: u32,
    /// _PyInterpreterFrame.previous, PyFrameObject.f_back before 3.11
    pub frame_previous: u32,
    /// _PyInterpreterFrame.prev_instr or instr_ptr; PyFrameObject.f_lasti before 3.11
    pub frame_instruction: u32,
    /// _PyInterpreterFrame.is_entry (3.11) or owner; before 3.11 nothing that is used
    pub frame_mark: u32,
    /// 1: user space looks again as soon as there is a sample.
    pub is_looked_for: u32,
    /// 1: threads are known by what pthread_self() gives (before 3.11), which in glibc and musl is the
    /// address of their control block.
    pub is_thread_by_address: u32,
}

impl PythonLayout {
    /// The thread state points to its frame itself.
    pub const NO_CFRAME: u32 = u32::MAX;
}

/// Slots for pages that were sampled.
pub const TOUCHED_SLOTS: u32 = 1 << 15;

/// Bits of the number of a page.
const PAGE_BITS: u32 = 42;

/// Tags of pages that processes have as their own: so many arrays ...
pub const OWN_ARRAYS: u32 = 256;
/// ... of so many.
pub const OWN_TAGS_LEN: u32 = 4096;

/// The last sample of a page, and whether a page fault found it absent since: then it was given back
/// meanwhile.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Touched {
    /// The page: see [`Touched::key`].
    pub key: u64,
    /// When it was sampled.
    pub boot_ns: u64,
    /// 1: touched again.
    pub is_again: u64,
}

impl Touched {
    /// A page of a process. Ids of processes have 22 bits, and addresses of pages of 4 KiB 42.
    #[inline(always)]
    pub const fn key(tgid: u32, address: u64) -> u64 {
        (tgid as u64) << PAGE_BITS ^ address >> 12
    }

    /// The slot of a page: neighbours have neighbouring ones, so that pages that are touched one
    /// after the other find their tags in one line of the cache; stretches of 2 MiB lie anywhere.
    #[inline(always)]
    pub const fn slot(key: u64) -> u32 {
        let stretch = (key >> 9).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        key.wrapping_add(stretch) as u32 & (TOUCHED_SLOTS - 1)
    }

    /// What names the pages of a process that started then; never 0. Its id can be another's soon.
    #[inline(always)]
    pub const fn own_pages(start_boot_ns: u64) -> u64 {
        start_boot_ns.wrapping_mul(0x9e37_79b9_7f4a_7c15) & !((1 << PAGE_BITS) - 1) | 1 << 63
    }

    /// One of them.
    #[inline(always)]
    pub const fn own_key(pages: u64, address: u64) -> u64 {
        pages ^ address >> 12
    }

    /// The slot of such a page: the array, and the place in it. Pages of one process that lie within 4 GiB
    /// never have the same; where they begin is anywhere.
    #[inline(always)]
    pub const fn own_slot(key: u64) -> (u32, u32) {
        let place = key.wrapping_add(key >> PAGE_BITS) as u32;
        (
            (place / OWN_TAGS_LEN) & (OWN_ARRAYS - 1),
            place & (OWN_TAGS_LEN - 1),
        )
    }

    /// What tells most other pages of a slot from it, in a byte; never 0.
    #[inline(always)]
    pub const fn tag(key: u64) -> u8 {
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 | 1
    }
}
