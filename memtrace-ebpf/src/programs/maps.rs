//! State that outlives one event, and the globals that user space sets before loading.

use crate::cuda::Entered;
use crate::rss::LastSeen;
use crate::space::Space;
use crate::sweep::Sweeps;
use crate::touched::Fault;
use crate::vm::VmState;
use aya_ebpf::bindings::BPF_F_NO_PREALLOC;
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, PerCpuArray, Queue, RingBuf};
use memtrace_abi::config::{CPUS_MAX, Member, OWN_TAGS_LEN, TOUCHED_SLOTS};
use memtrace_abi::event::{ARGS_MAX, PATH_MAX, Termination};
use memtrace_abi::{Config, Ended, EndedKey, Exit, Layout, LossClass, PythonLayout, Touched, VmOp};

/// Sizes marked "resized" are set by the loader from the plan.
#[map]
pub static EVENTS: RingBuf = RingBuf::with_byte_size(4096, 0); // resized

/// Hashes are allocated as they fill. Before 6.1, where that is not safe in a program, the
/// loader takes the flag away.
#[map]
pub static MEMBERS: HashMap<u32, Member> = HashMap::with_max_entries(1024, BPF_F_NO_PREALLOC); // resized

/// The last termination signal that another sent to a member, by tgid: few have one, and a member is
/// copied on the stack of a program.
#[map]
pub static TERMINATIONS: HashMap<u32, Termination> =
    HashMap::with_max_entries(1024, BPF_F_NO_PREALLOC); // resized

#[map]
pub static SPACES: HashMap<u64, Space> = HashMap::with_max_entries(1024, BPF_F_NO_PREALLOC); // resized

/// Ends that found the ring full.
#[map]
pub static ENDED: HashMap<EndedKey, Ended> = HashMap::with_max_entries(1024, BPF_F_NO_PREALLOC); // resized

/// How many starts, execs and ends found the ring full and are kept.
#[map]
pub static KEPT: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// Room for the end of one process, for each of the two programs that see ends: too large for the
/// stack. Not the scratch room, because `taskstats_exit` can be preempted by programs that use it.
#[map]
pub static LEAVING: PerCpuArray<Exit> = PerCpuArray::with_max_entries(2, 0);

/// Spaces that saw a page come or go since the last sweep; at most MOVED_MAX.
#[map]
pub static MOVED: Queue<u64> = Queue::with_max_entries(1024, 0); // resized

#[map]
pub static SWEEPS: Array<Sweeps> = Array::with_max_entries(1, 0);

#[map]
pub static LAST_SEEN: PerCpuArray<LastSeen> = PerCpuArray::with_max_entries(1, 0);

#[map]
pub static VM_STATES: HashMap<u32, VmState> = HashMap::with_max_entries(1, BPF_F_NO_PREALLOC); // resized

/// What a process begins with: zeroes, too many for the stack.
#[map]
pub static VM_FRESH: Array<VmState> = Array::with_max_entries(1, 0);

#[map]
pub static TARGET_CGROUPS: HashMap<u64, u8> = HashMap::with_max_entries(1024, BPF_F_NO_PREALLOC); // resized

/// Samples of growth with stacks.
#[map]
pub static STACKS: RingBuf = RingBuf::with_byte_size(4096, 0); // resized

/// Calls of the CUDA driver that have not returned, by thread.
#[map]
pub static CUDA_ENTERED: HashMap<u32, Entered> = HashMap::with_max_entries(1, BPF_F_NO_PREALLOC); // resized

/// The interpreters of members, as user space finds them.
#[map]
pub static PYTHON: HashMap<u32, PythonLayout> = HashMap::with_max_entries(1, BPF_F_NO_PREALLOC); // resized

/// The last samples, by page.
#[map]
pub static TOUCHED: Array<Touched> = Array::with_max_entries(1, 0); // resized

/// Their tags by slot, close to each other: what each page fault looks at.
#[map]
pub static TOUCHED_TAGS: Array<[u8; TOUCHED_SLOTS as usize]> = Array::with_max_entries(1, 0);

/// Tags of pages that processes which came by fork have as their own, by slot.
#[map]
pub static OWN_TAGS: Array<[u8; OWN_TAGS_LEN as usize]> = Array::with_max_entries(1, 0); // resized

/// The last page fault on each CPU.
#[map]
pub static FAULTS: PerCpuArray<Fault> = PerCpuArray::with_max_entries(1, 0);

#[map]
pub static LOSSES: PerCpuArray<u64> = PerCpuArray::with_max_entries(LossClass::ALL.len() as u32, 0);

/// What to add to a per-CPU pointer to reach each CPU's part; see `snapshot::learn_cpu`.
#[map]
pub static CPU_OFFSETS: Array<u64> = Array::with_max_entries(CPUS_MAX, 0);

/// Room for one event with its strings: too large for the stack.
#[map]
pub static SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(1, 0);

/// Header, file name and arguments of one exec or name event. The strings may each be
/// written at any offset up to their bound, so the room is twice what is ever sent; the
/// sizes are powers of two, which lets a mask bound every offset.
#[repr(C)]
pub struct Scratch {
    pub bytes: [u8; SCRATCH_LEN],
}

/// Length of [`Scratch`].
pub const SCRATCH_LEN: usize = 512 + PATH_MAX + 2 * ARGS_MAX;

#[unsafe(no_mangle)]
static CONFIG: Config = Config {
    is_all: 0,
    offers_strangers: 0,
    has_target_cgroups: 0,
    held_tgid: 0,
    drift_pages: 0,
    few_cpus: 0,
    drift_interval_ns: 0,
    drift_burst: 0,
    ring_bytes: 0,
    wake_bytes: 0,
    page_bytes: 4096,
    tick_ns: 0,
    vm_min_bytes: 0,
    vm_interval_ns: 0,
    vm_burst: 0,
    has_vm: 0,
    vm_calls: [0; VmOp::COUNT],
    has_stacks: 0,
    stack_interval_pages: 0,
    has_cuda: 0,
    reserved: 0,
};

#[unsafe(no_mangle)]
static LAYOUT: Layout = zeroed_layout();

const fn zeroed_layout() -> Layout {
    // SAFETY: Layout is integers only (zerocopy's FromBytes is derived for it).
    unsafe { core::mem::zeroed() }
}

/// A field of [`Config`], read where it is used so that the verifier knows its value.
macro_rules! config {
    ($field:ident) => {
        // SAFETY: a static of plain integers that is read-only once loaded.
        unsafe { core::ptr::read_volatile(&raw const (*$crate::maps::config_ptr()).$field) }
    };
}
pub(crate) use config;

/// A field of [`Layout`], read where it is used so that the verifier knows its value.
macro_rules! layout {
    ($field:ident) => {
        // SAFETY: a static of plain integers that is read-only once loaded.
        unsafe { core::ptr::read_volatile(&raw const (*$crate::maps::layout_ptr()).$field) }
    };
}
pub(crate) use layout;

#[inline(always)]
pub fn config_ptr() -> *const Config {
    &raw const CONFIG
}

#[inline(always)]
pub fn layout_ptr() -> *const Layout {
    &raw const LAYOUT
}

/// Counts a start, exec or end that found the ring full and is kept.
#[inline(always)]
pub fn count_kept() {
    if let Some(counter) = KEPT.get_ptr_mut(0) {
        // SAFETY: as in `count_loss`.
        unsafe { *counter += 1 };
    }
}

/// Counts a loss.
#[inline(always)]
pub fn count_loss(class: LossClass) {
    if let Some(counter) = LOSSES.get_ptr_mut(class as u32) {
        // SAFETY: a value of a per-CPU array; nobody else writes this CPU's copy meanwhile.
        unsafe { *counter += 1 };
    }
}
