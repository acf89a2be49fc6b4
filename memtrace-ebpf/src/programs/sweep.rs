//! Sampling at every tick: the members whose memory moved since the last one, now and then
//! all of them.
//!
//! Every change of a resident page fires `rss_stat`, so a space that saw none since the
//! last sweep need not be looked at: hundreds of idle processes cost nothing. Address space
//! that is mapped and not touched changes without it, and is found by the next full sweep.

use crate::kernel::{Mm, now};
use crate::maps::{MOVED, SPACES, SWEEPS, count_loss};
use crate::ring::{is_nearly_full, send_sample};
use crate::space::Space;
use aya_ebpf::helpers::generated::{bpf_for_each_map_elem, bpf_loop};
use aya_ebpf::programs::RawTracePointContext;
use core::ffi::c_void;
use memtrace_abi::LossClass;
use memtrace_abi::config::MOVED_MAX;
use memtrace_abi::event::{Counts, SampleCause};

/// How many sweeps there were.
#[repr(C)]
pub struct Sweeps {
    count: u64,
    /// 1: more spaces moved than could be remembered.
    is_overfull: u64,
}

/// How many sweeps there were, which names the time since the last one.
#[inline(always)]
pub fn sweeps() -> u64 {
    // SAFETY: an element of an array map; a word is read whole.
    SWEEPS
        .get_ptr(0)
        .map_or(0, |sweeps| unsafe { (*sweeps).count })
}

/// Remembers that a space moved since the last sweep.
#[inline(always)]
pub fn note_moved(mm: u64, space: &mut Space) {
    let Some(sweeps) = SWEEPS.get_ptr_mut(0) else {
        return;
    };
    // SAFETY: an element of an array map; words are read and written whole.
    let count = unsafe { (*sweeps).count };
    if space.moved_after == count {
        return;
    }
    space.moved_after = count;
    if MOVED.push(mm, 0).is_err() {
        // SAFETY: as above.
        unsafe { (*sweeps).is_overfull = 1 };
    }
}

/// Begins a sweep; tells whether spaces that moved before it had to be forgotten.
#[inline(always)]
fn begin() -> bool {
    let Some(sweeps) = SWEEPS.get_ptr_mut(0) else {
        return true;
    };
    // SAFETY: an element of an array map; nobody else runs sweeps.
    unsafe {
        (*sweeps).count += 1;
        core::mem::take(&mut (*sweeps).is_overfull) != 0
    }
}

/// What a sweep hands to its visits.
#[repr(C)]
struct Sweep {
    boot_ns: u64,
    /// The number of the keyframe; 0 where only what moved is sampled.
    keyframe: u32,
    /// 1: the ring filled up on the way.
    is_cut_short: u32,
}

/// Samples every member whose counters moved since they were last looked at; where the first
/// argument is not 0 it is the number of a keyframe, and all of them are sampled. Returns 1
/// where the ring filled up on the way: run again once it was read, it goes on with the rest.
/// Run by user space through BPF_PROG_TEST_RUN (5.10), never attached. It walks the members'
/// address spaces (bpf_for_each_map_elem, 5.13), so its cost does not grow with threads or
/// with processes outside the recording. Samples of a sweep carry its start as their time,
/// but for those of spaces that moved since. (aya's macro would return 0 whatever this
/// returns.)
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/memtrace_sweep")]
pub extern "C" fn sweep(ctx: *mut c_void) -> i32 {
    begin();
    let mut sweep = Sweep {
        boot_ns: now(),
        keyframe: RawTracePointContext::new(ctx).arg::<u64>(0) as u32,
        is_cut_short: 0,
    };
    // SAFETY: the callback has the signature that the helper calls for a hash map, and the
    // context outlives the call.
    unsafe {
        bpf_for_each_map_elem(
            (&raw const SPACES).cast_mut().cast(),
            visit_element as *mut c_void,
            (&raw mut sweep).cast(),
            0,
        );
    }
    sweep.is_cut_short as i32
}

/// As `sweep`, but visits only the spaces that are remembered as moved (bpf_loop, 5.17).
/// Returns 1 where there were more than could be remembered: then a full sweep is due.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/memtrace_sweep_moved")]
pub extern "C" fn sweep_moved(_ctx: *const c_void) -> i32 {
    let is_overfull = begin();
    let mut sweep = Sweep {
        boot_ns: now(),
        keyframe: 0,
        is_cut_short: 0,
    };
    // SAFETY: the callback has the signature that the helper calls, and the context
    // outlives the call.
    unsafe {
        bpf_loop(
            MOVED_MAX,
            visit_moved as *mut c_void,
            (&raw mut sweep).cast(),
            0,
        );
    }
    i32::from(is_overfull)
}

/// Visits one element of the map. Returns 0 to go on, 1 when the ring has no more room.
extern "C" fn visit_element(
    _map: *mut c_void,
    mm: *const u64,
    space: *mut Space,
    sweep: *mut Sweep,
) -> i64 {
    // SAFETY: the helper passes a key, its value and the context given to it.
    let (mm, space, sweep) = unsafe { (Mm(*mm), &mut *space, &mut *sweep) };
    if sample_if_moved(mm, space, sweep) {
        return 0;
    }
    sweep.is_cut_short = 1;
    1
}

/// Visits the next address space that moved. Returns 0 to go on, 1 when it was the last.
extern "C" fn visit_moved(_index: u32, sweep: *const Sweep) -> i64 {
    let Ok(Some(mm)) = MOVED.pop() else {
        return 1;
    };
    if let Some(space) = SPACES.get_ptr_mut(mm) {
        // SAFETY: a map value, see `Space` about concurrent writes; the helper passes the
        // context given to it.
        let (space, sweep) = unsafe { (&mut *space, &*sweep) };
        // Whatever moves from here on is for the next sweep, also where it was noted after
        // this one had begun. No sweep has the number 0.
        space.moved_after = 0;
        if !sample_if_moved(Mm(mm), space, sweep) {
            // A full sweep finds it.
            count_loss(LossClass::Sample);
        }
    }
    0
}

/// Samples one address space if it moved, or if all are asked for. False where the ring has no
/// room for samples.
#[inline(always)]
fn sample_if_moved(mm: Mm, space: &mut Space, sweep: &Sweep) -> bool {
    let is_keyframe = sweep.keyframe != 0 && sweep.keyframe != u32::from(space.keyframe);
    let high_pages = space.high_pages;
    // What is read now is newer than a maximum or a sample since the sweep began, and must
    // not stand before it: a row holds until the next one.
    let boot_ns = if space.high_boot_ns < sweep.boot_ns {
        sweep.boot_ns
    } else {
        now()
    };
    let mut counts = mm.counts();
    let has_moved = has_moved(&counts, &space.swept);
    let owes_peak = space.owes_peak(counts.rss_pages(), boot_ns);
    if !has_moved && !owes_peak && !is_keyframe {
        return true;
    }
    if mm.users() <= 0 {
        return true;
    }
    if is_nearly_full() {
        return false;
    }
    let swept = counts;
    mm.settle(&mut counts);
    let cause = if is_keyframe {
        SampleCause::Keyframe
    } else {
        SampleCause::Sweep
    };
    if send_sample(mm, space, &counts, high_pages, boot_ns, cause) {
        space.swept = swept;
        if is_keyframe {
            space.keyframe = sweep.keyframe as u16;
        }
    }
    true
}

#[inline(always)]
fn has_moved(now: &Counts, then: &Counts) -> bool {
    now.anon_pages != then.anon_pages
        || now.file_pages != then.file_pages
        || now.shmem_pages != then.shmem_pages
        || now.swap_pages != then.swap_pages
        || now.vm_pages != then.vm_pages
        || now.heap_bytes != then.heap_bytes
}
