//! Copies after a fork: with `--stacks`, who writes to pages that the process still shares with its
//! parent. The counters do not move with them, for both pages are anonymous, and yet the process
//! then holds one of its own. Reference counts of Python objects do that to data that workers inherit.

use crate::kernel::{Task, now, read};
use crate::maps::{COPIED, SPACES, count_loss, layout};
use crate::stacks::sample;
use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::generated::{bpf_find_vma, bpf_get_current_task, bpf_get_current_task_btf};
use memtrace_abi::event::EventKind;
use memtrace_abi::{EventHeader, LossClass, Touched};

/// The mappings can't be looked at: another thread changes them.
const EBUSY: i64 = -16;
/// vm_flags: the mapping may be written to, and is shared (include/linux/mm.h).
const VM_WRITE: u64 = 2;
const VM_SHARED: u64 = 8;

/// Samples a page that the current thread is about to write to, though it may only be read as yet.
/// The first time only: after another fork, a child that is gone by then leaves such pages, too, and
/// they are not copied again.
#[inline(never)]
pub fn note_copy(tgid: u32, address: u64) -> u32 {
    // SAFETY: the helper takes no arguments and cannot fail.
    let mm = Task(unsafe { bpf_get_current_task() }).mm().0;
    let Some(space) = SPACES.get_ptr_mut(mm) else {
        return 0;
    };
    // SAFETY: a map value; see `Space` about concurrent writes.
    let space = unsafe { &mut *space };
    // After vfork it is the parent's.
    if space.tgid != tgid || space.is_recorders_copy != 0 || was_copied(tgid, address) {
        return 0;
    }
    let Some(weight_pages) = space.growing.draw(1) else {
        return 0;
    };
    if !is_shared_since_fork(address) {
        return 0;
    }
    let boot_ns = now();
    space.growing.adapt(true, boot_ns);
    let header = EventHeader {
        kind: EventKind::StackSample as u32,
        tgid,
        boot_ns,
        start_boot_ns: space.start_boot_ns,
    };
    sample(mm, &header, 1, weight_pages, address)
}

/// Whether the process has copied the page before; it has from now on.
#[inline(always)]
fn was_copied(tgid: u32, address: u64) -> bool {
    let key = Touched::key(tgid, address);
    let (array, place) = Touched::copied_slot(key);
    let Some(tags) = COPIED.get_ptr_mut(array) else {
        return false;
    };
    // SAFETY: a map value. Bytes are written whole.
    let tag = unsafe { (*tags).get_mut(place as usize) };
    tag.is_some_and(|tag| core::mem::replace(tag, Touched::tag(key)) == Touched::tag(key))
}

/// Whether the mapping at an address of the current process came with a fork, and somebody has it still.
#[inline(always)]
fn is_shared_since_fork(address: u64) -> bool {
    let mut is_shared = 0_u32;
    // SAFETY: the callback has the signature that the helper calls, and the context outlives the call.
    let outcome = unsafe {
        bpf_find_vma(
            bpf_get_current_task_btf(),
            address,
            visit_mapping as *mut c_void,
            (&raw mut is_shared).cast(),
            0,
        )
    };
    if outcome == EBUSY {
        count_loss(LossClass::Stack);
    }
    is_shared != 0
}

/// Asks the mapping. Returns 0, as the helper wants it.
extern "C" fn visit_mapping(
    _task: *const c_void,
    mapping: *const c_void,
    is_shared: *mut u32,
) -> i64 {
    // SAFETY: the helper passes the context given to it.
    unsafe { *is_shared = u32::from(is_inherited(mapping as u64)) };
    0
}

/// A mapping that came with a fork has an anon_vma below that of its parent. Where the parent has no
/// mapping of its own any more, nor another child, nor the first of them all, nobody shares it.
#[inline(always)]
fn is_inherited(mapping: u64) -> bool {
    if read::<u64>(mapping, layout!(vma_flags)) & (VM_WRITE | VM_SHARED) != VM_WRITE {
        return false;
    }
    let own: u64 = read(mapping, layout!(vma_anon));
    let root: u64 = read(own, layout!(anon_root));
    if own == 0 || root == own {
        return false;
    }
    let parent: u64 = read(own, layout!(anon_parent));
    let is_mapped = |anon: u64| read::<u64>(anon, layout!(anon_mappings)) != 0;
    // The first of them is a child of its own.
    let itself = u64::from(parent == root);
    let children: u64 = read(parent, layout!(anon_children));
    is_mapped(parent) || is_mapped(root) || children > 1 + itself
}
