//! `rss_stat`: resident pages of members, on drift, with the local maxima in between.
//!
//! As tp_btf and never as the classic tracepoint, whose glue sums the per-CPU counters for
//! every event since 6.2. Attribution is by address space: reclaim, khugepaged and
//! process_madvise fire it for others.

use crate::kernel::{Mm, now};
use crate::maps::{SPACES, layout};
use crate::ring::send_sample;
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use memtrace_abi::event::SampleCause;

/// trace_rss_stat(struct mm_struct *mm, int member); before 6.2 with `long count`.
#[btf_tracepoint(function = "rss_stat")]
pub fn rss_stat(ctx: BtfTracePointContext) -> i32 {
    let mm: *const u8 = ctx.arg(0);
    let Some(space) = SPACES.get_ptr_mut(mm as u64) else {
        return 0;
    };
    // SAFETY: a map value; see `Space` about concurrent writes.
    let space = unsafe { &mut *space };
    let anon = counter(mm, layout!(mm_rss_anon));
    let file = counter(mm, layout!(mm_rss_file));
    let shmem = counter(mm, layout!(mm_rss_shmem));
    let total = anon + file + shmem;
    if total > space.high_pages {
        space.raise_high(total, [anon, file, shmem]);
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
    let boot_ns = now();
    if !space.may_send(boot_ns) {
        return 0;
    }
    let mut counts = mm.counts();
    mm.settle(&mut counts);
    send_sample(mm, space, &counts, boot_ns, SampleCause::Drift);
    0
}

/// One counter, read through the trusted pointer: no helper call on the hot path.
#[inline(always)]
fn counter(mm: *const u8, offset: u32) -> i64 {
    // SAFETY: the verifier knows `mm` as an mm_struct and `offset` as a constant inside it.
    unsafe { core::ptr::read_volatile(mm.add(offset as usize).cast::<i64>()) }
}
