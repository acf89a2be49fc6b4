//! `rss_stat`: resident pages of members, on drift, with the local maxima in between.
//!
//! As tp_btf and never as the classic tracepoint, whose glue sums the per-CPU counters for
//! every event since 6.2. Attribution is by address space: reclaim, khugepaged and
//! process_madvise fire it for others.

use crate::kernel::{Mm, Parts, Standing, now, read};
use crate::maps::{LAST_SEEN, SPACES, config, layout};
use crate::ring::send_sample;
use crate::stacks;
use crate::sweep::{note_moved, sweeps};
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use memtrace_abi::event::{Counts, SampleCause};

// enum in include/linux/mm_types_task.h
const MM_FILEPAGES: u32 = 0;
const MM_ANONPAGES: u32 = 1;
const MM_SWAPENTS: u32 = 2;
const MM_SHMEMPAGES: u32 = 3;

/// What the last event on this CPU saw. Since 6.2 a counter moves only when a CPU hands in
/// its part, once in 32 page faults or more; an event that finds what the last one found
/// has nothing to add, and need not look its space up. True of strangers as of members.
#[repr(C)]
pub struct LastSeen {
    mm: u64,
    /// The sweep before it: the first event after a sweep marks its space as moved.
    sweep: u64,
    file: i64,
    anon: i64,
    swap: i64,
    shmem: i64,
}

impl LastSeen {
    /// Has the next event about anonymous pages on this CPU taken note of, whatever it finds.
    #[inline(always)]
    pub fn await_anon() {
        if let Some(last) = LAST_SEEN.get_ptr_mut(0) {
            // SAFETY: this CPU's value of a per-CPU array.
            unsafe { (*last).anon = i64::MIN };
        }
    }
}

/// trace_rss_stat(struct mm_struct *mm, int member); before 6.2 with `long count`.
#[btf_tracepoint(function = "rss_stat")]
pub fn rss_stat(ctx: BtfTracePointContext) -> i32 {
    let mm: *const u8 = ctx.arg(0);
    if is_seen(mm, ctx.arg(1)) {
        return 0;
    }
    let Some(space) = SPACES.get_ptr_mut(mm as u64) else {
        return 0;
    };
    // SAFETY: a map value; see `Space` about concurrent writes.
    let space = unsafe { &mut *space };
    note_moved(mm as u64, space);
    let resident = Counts {
        anon_pages: counter(mm, layout!(mm_rss_anon)),
        file_pages: counter(mm, layout!(mm_rss_file)),
        shmem_pages: counter(mm, layout!(mm_rss_shmem)),
        swap_pages: 0,
        vm_pages: 0,
        heap_bytes: 0,
    };
    if config!(has_stacks) != 0 {
        match ctx.arg(1) {
            MM_ANONPAGES => {
                let after = || Standing::new(resident.anon_pages, parts(mm).anon);
                stacks::note_growth(mm as u64, space, &resident, Some(after));
            }
            MM_SHMEMPAGES => {
                stacks::note_growth(mm as u64, space, &resident, None::<fn() -> Standing>);
            }
            _ => {}
        }
    }
    let total = resident.rss_pages();
    if total > space.high_seen_pages {
        space.raise_high(Mm(mm as u64), &parts(mm), resident);
    }
    let has_risen = total - space.sent_pages >= space.threshold_pages;
    let has_fallen = space.high_pages - total >= space.threshold_pages;
    if !has_risen && !has_fallen {
        return 0;
    }
    let mm = Mm(mm as u64);
    // Before 6.16 the teardown at exit runs while the process is still a member.
    if mm.users() == 0 {
        return 0;
    }
    let high_pages = space.high_pages;
    let boot_ns = now();
    if !space.may_send(boot_ns) {
        return 0;
    }
    let mut counts = mm.counts();
    mm.settle(&mut counts);
    send_sample(mm, space, &counts, high_pages, boot_ns, SampleCause::Drift);
    0
}

/// Whether the counter that the event is about stands where this CPU last saw it; notes it
/// where not. Preempted in between by another event of this CPU, it can note one space's
/// count as another's; then that one is looked up once more, or at its next move.
#[inline(always)]
fn is_seen(mm: *const u8, member: u32) -> bool {
    let Some(last) = LAST_SEEN.get_ptr_mut(0) else {
        return false;
    };
    // SAFETY: this CPU's value of a per-CPU array.
    let last = unsafe { &mut *last };
    let sweep = sweeps();
    let (count, seen) = match member {
        MM_FILEPAGES => (counter(mm, layout!(mm_rss_file)), &mut last.file),
        MM_ANONPAGES => (counter(mm, layout!(mm_rss_anon)), &mut last.anon),
        MM_SWAPENTS => (counter(mm, layout!(mm_rss_swap)), &mut last.swap),
        _ => (counter(mm, layout!(mm_rss_shmem)), &mut last.shmem),
    };
    if last.mm == mm as u64 && *seen == count && last.sweep == sweep {
        return true;
    }
    last.mm = mm as u64;
    last.sweep = sweep;
    *seen = count;
    false
}

/// One counter, read through the trusted pointer: no helper call on the hot path. Before
/// 6.2 the verifier does not find its way into an array of atomic_long_t; there the
/// tracepoint does not fire for every page fault either (check_sync_rss_stat()).
#[inline(always)]
fn counter(mm: *const u8, offset: u32) -> i64 {
    if layout!(counter_to_percpu) == 0 {
        return read(mm as u64, offset);
    }
    trusted(mm, offset)
}

/// Where the per-CPU parts of the counters are; nowhere before 6.2.
#[inline(always)]
fn parts(mm: *const u8) -> Parts {
    let pointer = |counter: u32| match layout!(counter_to_percpu) {
        0 => 0,
        to_percpu => trusted::<u64>(mm, counter + to_percpu),
    };
    Parts {
        file: pointer(layout!(mm_rss_file)),
        anon: pointer(layout!(mm_rss_anon)),
        swap: pointer(layout!(mm_rss_swap)),
        shmem: pointer(layout!(mm_rss_shmem)),
    }
}

/// A field of the tracepoint's address space.
#[inline(always)]
fn trusted<T>(mm: *const u8, offset: u32) -> T {
    // SAFETY: the verifier knows `mm` as an mm_struct and `offset` as a constant inside it.
    unsafe { core::ptr::read_volatile(mm.add(offset as usize).cast::<T>()) }
}
