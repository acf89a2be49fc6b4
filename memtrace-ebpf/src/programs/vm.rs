//! Calls on the address spaces of members: large ones leave as events, the rest as sums.
//!
//! An allocator's churn must cost a counter and not a row: below the threshold, beyond the
//! rate, and while the ring is more than half full a call is added to sums that user space
//! asks for once a second and that are sent once more at the end of the process.

use crate::kernel::{Mm, Task, now};
use crate::maps::{EVENTS, VM_FRESH, VM_STATES, config, count_loss, layout};
use crate::ring::{BPF_RB_FORCE_WAKEUP, fill, wake_flag};
use aya_ebpf::helpers::generated::{
    bpf_for_each_map_elem, bpf_get_current_pid_tgid, bpf_get_current_task, bpf_jiffies64,
    bpf_probe_read_kernel_str,
};
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use core::ffi::c_void;
use memtrace_abi::event::{CUDA_LIBRARY, FILE_NAME_LEN};
use memtrace_abi::{EventHeader, EventKind, LossClass, VmCall, VmOp, VmSum, VmTotals};

const MAP_ANONYMOUS: u32 = 0x20;

/// What is kept about a member between its calls.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct VmState {
    /// Start of the process.
    start_boot_ns: u64,
    /// The break as last known.
    brk: u64,
    /// When the next event would conform to the sustained rate (GCRA), in jiffies made
    /// nanoseconds.
    conforms_ns: u64,
    /// Calls in all that the sums held when they were last sent.
    reported_calls: u64,
    /// By [`VmOp`], over the life of the process.
    sums: [VmSum; VmOp::COUNT],
}

impl VmState {
    /// Starts to follow a process, or goes on with a new address space after exec.
    #[inline(never)]
    pub fn follow(tgid: u32, start_boot_ns: u64, mm: Mm) -> u32 {
        if config!(has_vm) == 0 {
            return 0;
        }
        let is_known = match VM_STATES.get_ptr(tgid) {
            // SAFETY: one field of a map value.
            Some(state) => unsafe { (*state).start_boot_ns == start_boot_ns },
            None => false,
        };
        if !is_known {
            let Some(fresh) = VM_FRESH.get(0) else {
                return 0;
            };
            let _ = VM_STATES.insert(tgid, fresh, 0);
        }
        match VM_STATES.get_ptr_mut(tgid) {
            // SAFETY: a map value; only the process's own calls write these fields too.
            Some(state) => unsafe {
                (*state).start_boot_ns = start_boot_ns;
                (*state).brk = mm.brk();
            },
            None => count_loss(LossClass::Vm),
        }
        0
    }

    /// Sends the sums of a process that ends, and forgets it.
    #[inline(never)]
    pub fn leave(tgid: u32) -> u32 {
        if config!(has_vm) == 0 {
            return 0;
        }
        if let Some(state) = VM_STATES.get_ptr_mut(tgid) {
            // SAFETY: a map value that stays in place until it is removed below.
            if !unsafe { tell(tgid, state) } {
                count_loss(LossClass::Vm);
            }
            let _ = VM_STATES.remove(tgid);
        }
        0
    }
}

/// Sends the sums of one process, if they have changed. False where the ring is full.
///
/// # Safety
/// `state` must point to a value of `VM_STATES`.
#[inline(always)]
unsafe fn tell(tgid: u32, state: *mut VmState) -> bool {
    // SAFETY: as the caller promises. The number of calls is taken first: what is added
    // meanwhile makes the sums be sent once more.
    let calls = unsafe {
        let sums = &(*state).sums;
        sums[0].calls + sums[1].calls + sums[2].calls + sums[3].calls + sums[4].calls
    };
    // SAFETY: as above.
    if calls == unsafe { (*state).reported_calls } {
        return true;
    }
    let flag = wake_flag(fill());
    let Some(mut entry) = EVENTS.reserve::<VmTotals>(0) else {
        return false;
    };
    let event = entry.as_mut_ptr();
    // SAFETY: the reserved room is that of a VmTotals, and every field of it is written.
    unsafe {
        (*event).header = EventHeader {
            kind: EventKind::VmTotals as u32,
            tgid,
            boot_ns: now(),
            start_boot_ns: (*state).start_boot_ns,
        };
        (*event).sums = (*state).sums;
        (*state).reported_calls = calls;
    }
    entry.submit(flag);
    true
}

/// Sends the sums of every member that called since the last time. Run by user space
/// through BPF_PROG_TEST_RUN, never attached.
#[raw_tracepoint(tracepoint = "memtrace_vm_totals")]
pub fn vm_totals(_ctx: RawTracePointContext) -> i32 {
    let mut nothing = 0_u64;
    // SAFETY: the callback has the signature that the helper calls for a hash map.
    unsafe {
        bpf_for_each_map_elem(
            (&raw const VM_STATES).cast_mut().cast(),
            visit as *mut c_void,
            (&raw mut nothing).cast(),
            0,
        );
    }
    0
}

/// Sends the sums of one process. Returns 0: go on. What finds the ring more than half full
/// is sent the next time.
extern "C" fn visit(
    _map: *mut c_void,
    tgid: *const u32,
    state: *mut VmState,
    _context: *const u64,
) -> i64 {
    if fill() <= config!(ring_bytes) / 2 {
        // SAFETY: the helper passes a key and its value.
        unsafe { tell(*tgid, state) };
    }
    0
}

/// What a call asked for and came to.
struct Call {
    addr: u64,
    length: u64,
    old_length: u64,
    growth: i64,
    prot: u32,
    flags: u32,
    /// The mapped file; `u32::MAX` for none.
    descriptor: u32,
    has_failed: bool,
    /// What is held against the threshold.
    size: u64,
    added_bytes: u64,
    removed_bytes: u64,
}

impl Call {
    /// Reads the arguments of a call that has returned.
    ///
    /// # Safety
    /// `regs` must be a pt_regs as the verifier knows it, `state` a value of `VM_STATES`.
    #[inline(always)]
    unsafe fn read(op: VmOp, regs: *const u8, result: i64, state: *mut VmState) -> Self {
        // SAFETY: as the caller promises.
        let argument = |index| unsafe { word(regs, argument_offset(index)) };
        let addr = argument(0);
        let has_failed = (-4095..0).contains(&result);
        let mut call = Self {
            addr,
            length: 0,
            old_length: 0,
            growth: 0,
            prot: 0,
            flags: 0,
            descriptor: u32::MAX,
            has_failed,
            size: 0,
            added_bytes: 0,
            removed_bytes: 0,
        };
        match op {
            VmOp::Mmap => {
                call.length = whole_pages(argument(1));
                call.prot = argument(2) as u32;
                call.flags = argument(3) as u32;
                if call.flags & MAP_ANONYMOUS == 0 {
                    call.descriptor = argument(4) as u32;
                }
                call.size = call.length;
                call.added_bytes = call.length;
            }
            VmOp::Munmap => {
                call.length = whole_pages(argument(1));
                // One that failed took nothing away and is of no interest by itself.
                call.size = if has_failed { 0 } else { call.length };
                call.removed_bytes = call.length;
            }
            VmOp::Mremap => {
                call.old_length = whole_pages(argument(1));
                call.length = whole_pages(argument(2));
                call.flags = argument(3) as u32;
                call.size = call.length.max(call.old_length);
                call.added_bytes = call.length.saturating_sub(call.old_length);
                call.removed_bytes = call.old_length.saturating_sub(call.length);
            }
            VmOp::Brk => {
                let reached = result as u64;
                // SAFETY: as the caller promises. Two threads that move the break at once
                // can each be charged the other's part; their sum is right.
                let before = unsafe { core::mem::replace(&mut (*state).brk, reached) };
                // It answers with the break as it is, moved or not.
                call.has_failed = addr != 0 && reached != addr;
                call.growth = if before == 0 {
                    0
                } else {
                    (reached - before) as i64
                };
                call.size = call.growth.unsigned_abs();
                call.added_bytes = call.growth.max(0) as u64;
                call.removed_bytes = call.growth.min(0).unsigned_abs();
            }
            VmOp::Madvise => {
                call.length = whole_pages(argument(1));
                call.flags = argument(2) as u32;
                call.size = call.length;
                call.removed_bytes = if gives_back(call.flags) {
                    call.length
                } else {
                    0
                };
            }
        }
        call
    }
}

/// Accounts a call of the current task that has returned.
///
/// # Safety
/// `regs` must be a pt_regs as the verifier knows it.
#[inline(always)]
pub unsafe fn account(op: VmOp, regs: *const u8, result: i64) {
    // SAFETY: the helper takes no arguments and cannot fail.
    let ids = unsafe { bpf_get_current_pid_tgid() };
    let tgid = (ids >> 32) as u32;
    let Some(state) = VM_STATES.get_ptr_mut(tgid) else {
        return;
    };
    let least = config!(vm_min_bytes);
    // SAFETY: `state` was just looked up; `regs` as the caller promises.
    unsafe {
        let call = Call::read(op, regs, result, state);
        let is_large = call.size >= least;
        if is_large && may_send(state) && send(op, &call, ids, result, state) {
            return;
        }
        let sum = &raw mut (*state).sums[op as usize];
        add(&raw mut (*sum).calls, 1);
        if is_large {
            add(&raw mut (*sum).large, 1);
        }
        if call.has_failed {
            add(&raw mut (*sum).failed, 1);
            return;
        }
        if call.added_bytes != 0 {
            add(&raw mut (*sum).added_bytes, call.added_bytes);
        }
        if call.removed_bytes != 0 {
            add(&raw mut (*sum).removed_bytes, call.removed_bytes);
        }
    }
}

/// Adds to a sum that threads on other CPUs add to as well. In assembly, because Rust offers
/// no atomics for this target.
///
/// # Safety
/// `sum` must point into a map value.
#[inline(always)]
unsafe fn add(sum: *mut u64, amount: u64) {
    // SAFETY: as the caller promises; the value is aligned and only ever added to.
    unsafe {
        core::arch::asm!(
            "lock *(u64 *)({sum} + 0) += {amount}",
            sum = in(reg) sum,
            amount = in(reg) amount,
        );
    }
}

/// Whether an event may be sent now: a burst, then a sustained rate. Jiffies, which cost one
/// load, are fine enough for that.
///
/// # Safety
/// `state` must point to a value of `VM_STATES`.
#[inline(always)]
unsafe fn may_send(state: *mut VmState) -> bool {
    let interval = config!(vm_interval_ns);
    let tick = config!(tick_ns);
    let burst_ns = interval * config!(vm_burst);
    // SAFETY: the helper takes no arguments; the pointer as the caller promises.
    unsafe {
        let now = bpf_jiffies64() * tick;
        let conforms = (*state).conforms_ns.max(now);
        if conforms - now > burst_ns {
            return false;
        }
        (*state).conforms_ns = conforms + interval;
        true
    }
}

/// Sends one call. The upper half of the ring is left to the events that nothing replaces.
///
/// # Safety
/// `state` must point to a value of `VM_STATES`.
#[inline(always)]
unsafe fn send(op: VmOp, call: &Call, ids: u64, result: i64, state: *mut VmState) -> bool {
    let fill = fill();
    if fill > config!(ring_bytes) / 2 {
        return false;
    }
    let Some(mut entry) = EVENTS.reserve::<VmCall>(0) else {
        return false;
    };
    let event = entry.as_mut_ptr();
    let mut flag = wake_flag(fill);
    // SAFETY: the reserved room is that of a VmCall, and every field of it is written.
    unsafe {
        (*event).header = EventHeader {
            kind: EventKind::VmCall as u32,
            tgid: (ids >> 32) as u32,
            boot_ns: now(),
            start_boot_ns: (*state).start_boot_ns,
        };
        (*event).tid = ids as u32;
        (*event).op = op as u32;
        (*event).addr = call.addr;
        (*event).length = call.length;
        (*event).old_length = call.old_length;
        (*event).growth = call.growth;
        (*event).result = result;
        (*event).prot = call.prot;
        (*event).flags = call.flags;
        (*event).file_name = [0; FILE_NAME_LEN];
        if call.descriptor != u32::MAX {
            let name = Task(bpf_get_current_task()).file_name(call.descriptor);
            if name != 0 {
                bpf_probe_read_kernel_str(
                    (&raw mut (*event).file_name).cast(),
                    FILE_NAME_LEN as u32,
                    name as *const _,
                );
                // Its functions are probed before the program can call them.
                if (*event).file_name.starts_with(CUDA_LIBRARY.as_bytes()) {
                    flag = BPF_RB_FORCE_WAKEUP;
                }
            }
        }
    }
    entry.submit(flag);
    true
}

/// Advice by which memory goes back to the kernel: MADV_DONTNEED, MADV_FREE, MADV_REMOVE,
/// MADV_PAGEOUT, MADV_DONTNEED_LOCKED.
#[inline(always)]
fn gives_back(advice: u32) -> bool {
    matches!(advice, 4 | 8 | 9 | 21 | 24)
}

#[inline(always)]
fn whole_pages(bytes: u64) -> u64 {
    let mask = config!(page_bytes) - 1;
    bytes.wrapping_add(mask) & !mask
}

/// Where the argument of a system call stands in pt_regs.
#[inline(always)]
fn argument_offset(index: usize) -> u32 {
    // SAFETY: a static of plain integers; every caller's index is below 5.
    unsafe {
        let first = (&raw const (*crate::maps::layout_ptr()).regs_args).cast::<u32>();
        core::ptr::read_volatile(first.add(index))
    }
}

/// The number of the system call that a task is in.
///
/// # Safety
/// `regs` must be a pt_regs as the verifier knows it.
#[inline(always)]
pub unsafe fn call_number(regs: *const u8) -> u32 {
    let offset = layout!(regs_call) as usize;
    // SAFETY: as the caller promises. arm64 has a number of 32 bits there, and the verifier allows no
    // more to be read.
    unsafe { core::ptr::read_volatile(regs.add(offset).cast()) }
}

/// Whether the caller is a 32-bit program, whose calls have other numbers.
///
/// # Safety
/// `regs` must be a pt_regs as the verifier knows it.
#[inline(always)]
pub unsafe fn is_compat(regs: *const u8) -> bool {
    let offset = layout!(regs_mode);
    // SAFETY: as the caller promises.
    let mode = unsafe { word(regs, offset) as u32 };
    mode & layout!(mode_mask) == layout!(mode_compat)
}

/// The call for its number on this architecture.
#[inline(always)]
pub fn op_of(number: u32) -> Option<VmOp> {
    // SAFETY: a static of plain integers; the indices are below its length.
    let of = |op: VmOp| unsafe {
        let first = (&raw const (*crate::maps::config_ptr()).vm_calls).cast::<u32>();
        core::ptr::read_volatile(first.add(op as usize))
    };
    VmOp::ALL.into_iter().find(|op| of(*op) == number)
}

/// # Safety
/// `regs` must be a pt_regs as the verifier knows it, and the offset inside it.
#[inline(always)]
unsafe fn word(regs: *const u8, offset: u32) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { core::ptr::read_volatile(regs.add(offset as usize).cast()) }
}
