//! Copies after a fork: with `--stacks`, who writes to pages that the process still shares with its
//! parent. The counters do not move with them, for both pages are anonymous, and yet the process
//! then holds one of its own. Reference counts of Python objects do that to data that workers inherit.

use crate::kernel::{Task, now, read};
use crate::maps::{OWN_TAGS, SPACES, count_loss, layout};
use crate::space::Space;
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

/// What names the pages of the process that owns a space, among those that are its own; 0 where none came
/// with a fork.
#[inline(always)]
pub fn pages_of(space: &Space) -> u64 {
    if layout!(vma_anon) == 0 || space.may_share == 0 {
        return 0;
    }
    Touched::own_pages(space.start_boot_ns)
}

/// Notes a page that was absent: whatever is there now is the process's own.
#[inline(always)]
pub fn note_own(pages: u64, address: u64) {
    let key = Touched::own_key(pages, address);
    if let Some(tag) = tag(key) {
        *tag = Touched::tag(key);
    }
}

/// Samples a page that the current thread is about to write to, though it may only be read as yet,
/// unless it is the process's own: after another fork, a child that is gone by then leaves such pages,
/// too, and they are not copied again.
#[inline(never)]
pub fn note_copy(tgid: u32, pages: u64, address: u64) -> u32 {
    let key = Touched::own_key(pages, address);
    let Some(tag) = tag(key) else {
        return 0;
    };
    if core::mem::replace(tag, Touched::tag(key)) == Touched::tag(key) {
        return 0;
    }
    // SAFETY: the helper takes no arguments and cannot fail.
    let mm = Task(unsafe { bpf_get_current_task() }).mm().0;
    let Some(space) = SPACES.get_ptr_mut(mm) else {
        return 0;
    };
    // SAFETY: a map value; see `Space` about concurrent writes.
    let space = unsafe { &mut *space };
    if space.tgid != tgid || space.may_share == 0 {
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
        kind: EventKind::StackCopy as u32,
        tgid,
        boot_ns,
        start_boot_ns: space.start_boot_ns,
    };
    sample(mm, &header, 1, weight_pages, address)
}

/// The tag of the page that was noted last of those in a slot.
#[inline(always)]
fn tag(key: u64) -> Option<&'static mut u8> {
    let (array, place) = Touched::own_slot(key);
    let tags = OWN_TAGS.get_ptr_mut(array)?;
    // SAFETY: a map value. Bytes are written whole.
    unsafe { (*tags).get_mut(place as usize) }
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

/// A mapping that came with a fork has an anon_vma below that of its parent. Nobody shares it where the
/// parent has unmapped it, has no other child, and the root of all has unmapped it, too.
#[inline(always)]
fn is_inherited(mapping: u64) -> bool {
    // Of a private mapping of a file the counters move with a copy.
    if read::<u64>(mapping, layout!(vma_flags)) & (VM_WRITE | VM_SHARED) != VM_WRITE
        || read::<u64>(mapping, layout!(vma_file)) != 0
    {
        return false;
    }
    let own: u64 = read(mapping, layout!(vma_anon));
    let root: u64 = read(own, layout!(anon_root));
    if own == 0 || root == own {
        return false;
    }
    let parent: u64 = read(own, layout!(anon_parent));
    let is_mapped = |anon: u64| read::<u64>(anon, layout!(anon_mappings)) != 0;
    // The root counts itself as a child.
    let itself = u64::from(parent == root);
    let children: u64 = read(parent, layout!(anon_children));
    is_mapped(parent) || is_mapped(root) || children > 1 + itself
}
