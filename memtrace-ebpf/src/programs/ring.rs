//! How events leave: reserved in the ring, or counted as lost.

use crate::kernel::{Mm, now};
use crate::maps::{EVENTS, SCRATCH, SCRATCH_LEN, config, count_loss};
use crate::space::Space;
use aya_ebpf::helpers::generated::bpf_ringbuf_query;
use memtrace_abi::LossClass;
use memtrace_abi::event::{Counts, EventHeader, EventKind, Sample, SampleCause};

pub const BPF_RB_AVAIL_DATA: u64 = 0;
pub const BPF_RB_NO_WAKEUP: u64 = 1;
pub const BPF_RB_FORCE_WAKEUP: u64 = 2;

/// The reader comes by on its own at every tick; it is woken only when the ring fills, or for
/// [`send_at_once`], so that a burst of events does not cost a switch to it for each.
#[inline(always)]
pub fn wake_flag(fill: u64) -> u64 {
    if fill >= config!(wake_bytes) {
        BPF_RB_FORCE_WAKEUP
    } else {
        BPF_RB_NO_WAKEUP
    }
}

/// Bytes in the ring that the reader has not taken.
#[inline(always)]
pub fn fill() -> u64 {
    // SAFETY: the map is a ring buffer.
    unsafe { bpf_ringbuf_query((&raw const EVENTS).cast_mut().cast(), BPF_RB_AVAIL_DATA) }
}

/// Whether only the last quarter of the ring is left, which is for starts and ends.
#[inline(always)]
pub fn is_nearly_full() -> bool {
    fill() > config!(ring_bytes) / 4 * 3
}

/// Sends a fixed-size event. False where the ring is full.
#[inline(always)]
pub fn try_send<T: 'static>(event: T) -> bool {
    let flag = wake_flag(fill());
    try_send_with(event, flag)
}

#[inline(always)]
fn try_send_with<T: 'static>(event: T, flag: u64) -> bool {
    match EVENTS.reserve::<T>(0) {
        Some(mut entry) => {
            entry.write(event);
            entry.submit(flag);
            true
        }
        None => false,
    }
}

/// Sends a rare event for which the reader is woken at once, or counts it as lost.
#[inline(always)]
pub fn send_at_once<T: 'static>(event: T, class: LossClass) {
    if !try_send_with(event, BPF_RB_FORCE_WAKEUP) {
        count_loss(class);
    }
}

/// Sends a fixed-size event, or counts it as lost.
#[inline(always)]
pub fn send<T: 'static>(event: T, class: LossClass) -> bool {
    send_with(event, wake_flag(fill()), class)
}

#[inline(always)]
fn send_with<T: 'static>(event: T, flag: u64, class: LossClass) -> bool {
    let is_sent = try_send_with(event, flag);
    if !is_sent {
        count_loss(class);
    }
    is_sent
}

/// Sends a sample of an address space, whose local maximum stood at `high_pages` before it
/// was read, and takes it as the new base; a local maximum that is owed goes first. The
/// last quarter of the ring is left to lifecycle events: a sample that finds it reached is
/// counted, and its state is sent by a later sweep.
#[inline(always)]
pub fn send_sample(
    mm: Mm,
    space: &mut Space,
    counts: &Counts,
    high_pages: i64,
    boot_ns: u64,
    cause: SampleCause,
) -> bool {
    if is_nearly_full() {
        count_loss(LossClass::Sample);
        return false;
    }
    let flag = match cause {
        // The reader runs the sweep, and reads what it sent when it returns.
        SampleCause::Sweep | SampleCause::Keyframe => BPF_RB_NO_WAKEUP,
        SampleCause::Drift | SampleCause::Peak => wake_flag(fill()),
    };
    let total = counts.rss_pages();
    space.fold_high();
    let mut sample = Sample {
        header: EventHeader {
            kind: EventKind::Sample as u32,
            tgid: space.tgid,
            boot_ns,
            start_boot_ns: space.start_boot_ns,
        },
        counts: *counts,
        hiwater_pages: mm.hiwater_pages().max(total),
        seen_peak_pages: space.peak_pages,
        seen_peak_boot_ns: space.peak_boot_ns,
        cause: cause as u32,
        reserved: 0,
    };
    if space.owes_peak(total, boot_ns) {
        let mut peak = sample;
        peak.header.boot_ns = space.high_boot_ns;
        peak.counts.anon_pages = space.high[0].max(0);
        peak.counts.file_pages = space.high[1].max(0);
        peak.counts.shmem_pages = space.high[2].max(0);
        peak.cause = SampleCause::Peak as u32;
        if !send_with(peak, flag, LossClass::Sample) {
            return false;
        }
    }
    if total > space.peak_pages {
        sample.seen_peak_pages = total;
        sample.seen_peak_boot_ns = boot_ns;
    }
    if !send_with(sample, flag, LossClass::Sample)
        || !space.is_of(sample.header.tgid, sample.header.start_boot_ns)
    {
        return false;
    }
    space.note_sample(counts, boot_ns, high_pages);
    true
}

/// Sends the first `len` bytes of the scratch room. False where the ring is full.
#[inline(always)]
pub fn send_scratch(len: usize) -> bool {
    let Some(scratch) = SCRATCH.get_ptr_mut(0) else {
        return false;
    };
    // Through memory, or the compiler, which knows the bound, leaves the check out, and the
    // verifier, which before 6.18 does not, refuses the length.
    // SAFETY: a local value.
    let len = unsafe { core::ptr::read_volatile(&raw const len) };
    if len > SCRATCH_LEN {
        return false;
    }
    // SAFETY: the scratch room is this CPU's own while the program runs, and `len` is
    // within it.
    try_send_bytes(unsafe { core::slice::from_raw_parts(scratch.cast::<u8>(), len) })
}

/// Sends an event that is laid out already. False where the ring is full.
#[inline(always)]
pub fn try_send_bytes(bytes: &[u8]) -> bool {
    let flag = wake_flag(fill());
    EVENTS.output::<[u8]>(bytes, flag).is_ok()
}

/// The header of an event that happens now.
#[inline(always)]
pub fn header(kind: EventKind, tgid: u32, start_boot_ns: u64) -> EventHeader {
    EventHeader {
        kind: kind as u32,
        tgid,
        boot_ns: now(),
        start_boot_ns,
    }
}
