//! Probes on functions of libcuda: what enters is kept until it returns, and sent then.

use crate::kernel::{now, read};
use crate::maps::{CUDA_ENTERED, EVENTS, MEMBERS, config, count_loss, layout};
use crate::ring::{BPF_RB_FORCE_WAKEUP, fill, wake_flag};
use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::generated::{
    bpf_get_attach_cookie, bpf_get_current_pid_tgid, bpf_probe_read_user,
};
use aya_ebpf::macros::{uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use memtrace_abi::event::{CUDA_ARGS, CUDA_STRUCTURE_BYTES};
use memtrace_abi::{CudaCall, CudaCookie, CudaPlace, EventHeader, EventKind, LossClass};

/// Calls that take as much have their stacks taken.
const STACK_BYTES_MIN: u64 = 16 << 20;

const FIRST_AT_RETURN: u8 = CudaPlace::FirstAtReturn as u8;
const SECOND: u8 = CudaPlace::Second as u8;
const THIRD: u8 = CudaPlace::Third as u8;
const STACK: u8 = CudaPlace::Stack as u8;

/// A call that has not returned yet.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Entered {
    cookie: u64,
    boot_ns: u64,
    args: [u64; CUDA_ARGS],
    structure: [u64; CUDA_STRUCTURE_BYTES / 8],
}

#[uprobe]
pub fn cuda_enter(ctx: ProbeContext) -> u32 {
    // SAFETY: the helper takes no arguments and cannot fail.
    let ids = unsafe { bpf_get_current_pid_tgid() };
    if MEMBERS.get_ptr((ids >> 32) as u32).is_none() {
        return 0;
    }
    let regs = ctx.as_ptr() as u64;
    let argument = |index: usize| read::<u64>(regs, function_argument(index));
    let mut entered = Entered {
        // SAFETY: the context is that of the program.
        cookie: unsafe { bpf_get_attach_cookie(ctx.as_ptr()) },
        boot_ns: now(),
        args: [
            argument(0),
            argument(1),
            argument(2),
            argument(3),
            argument(4),
        ],
        structure: [0; CUDA_STRUCTURE_BYTES / 8],
    };
    let cookie = CudaCookie::unpack(entered.cookie);
    let from = match cookie.place {
        SECOND => entered.args[1],
        THIRD => entered.args[2],
        // Above the return address.
        STACK => read::<u64>(regs, layout!(regs_stack)) + 8,
        _ => 0,
    };
    if from != 0 {
        read_structure(from, cookie.bytes, &mut entered.structure);
    }
    if CUDA_ENTERED.insert(ids as u32, &entered, 0).is_err() {
        count_loss(LossClass::Cuda);
    }
    0
}

#[uretprobe]
pub fn cuda_return(ctx: RetProbeContext) -> u32 {
    // SAFETY: the helper takes no arguments and cannot fail.
    let ids = unsafe { bpf_get_current_pid_tgid() };
    let tid = ids as u32;
    let tgid = (ids >> 32) as u32;
    let Some(entered) = CUDA_ENTERED.get_ptr(tid) else {
        return 0;
    };
    // SAFETY: a map value that only this thread writes.
    let entered = unsafe { *entered };
    // SAFETY: the context is that of the program.
    let cookie = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) };
    // One function of the driver called another: the inner one was seen.
    if entered.cookie != cookie {
        return 0;
    }
    let _ = CUDA_ENTERED.remove(tid);
    let Some(member) = MEMBERS.get_ptr(tgid) else {
        return 0;
    };
    // As calls on address spaces, they leave the upper half of the ring to what nothing replaces.
    let fill = fill();
    if fill > config!(ring_bytes) / 2 {
        count_loss(LossClass::Cuda);
        return 0;
    }
    let Some(mut entry) = EVENTS.reserve::<CudaCall>(0) else {
        count_loss(LossClass::Cuda);
        return 0;
    };
    let cookie = CudaCookie::unpack(cookie);
    let mut entered = entered;
    if cookie.place == FIRST_AT_RETURN {
        read_structure(entered.args[0], cookie.bytes, &mut entered.structure);
    }
    let mut out = [0; 2];
    if cookie.out_words != 0 {
        out[0] = read_word(entered.args[0]);
    }
    if cookie.reads_second {
        out[1] = read_word(entered.args[1]);
    } else if cookie.out_words == 2 {
        out[1] = read_word(entered.args[0] + 8);
    }
    let result = read::<u64>(ctx.as_ptr() as u64, layout!(regs_result)) as i32;
    // SAFETY: the member is a map value.
    let start_boot_ns = unsafe { (*member).start_boot_ns };
    let header = EventHeader {
        kind: EventKind::CudaCall as u32,
        tgid,
        boot_ns: now(),
        start_boot_ns,
    };
    let is_large = cookie.takes_second && entered.args[1] >= STACK_BYTES_MIN;
    let mut has_stack = 0;
    if config!(has_stacks) != 0 && is_large && result == 0 {
        has_stack = crate::stacks::sample_call(&header);
    }
    let event = entry.as_mut_ptr();
    // SAFETY: the reserved room is that of a CudaCall, and every field of it is written; the
    // member is a map value.
    unsafe {
        (*event).header = header;
        (*event).entered_boot_ns = entered.boot_ns;
        (*event).args = entered.args;
        (*event).out = out;
        (*event).structure = entered.structure;
        (*event).tid = tid;
        (*event).call = u32::from(cookie.call);
        (*event).result = result;
        (*event).has_stack = has_stack;
    }
    entry.submit(if cookie.wakes {
        BPF_RB_FORCE_WAKEUP
    } else {
        wake_flag(fill)
    });
    0
}

/// So much of a structure in the process's memory; zeroes where it can't be read.
#[inline(always)]
fn read_structure(from: u64, bytes: u8, structure: &mut [u64; CUDA_STRUCTURE_BYTES / 8]) {
    for (index, word) in structure.iter_mut().enumerate() {
        if index * 8 < usize::from(bytes) {
            *word = read_word(from + index as u64 * 8);
        }
    }
}

/// A word in the process's memory; 0 where it can't be read.
#[inline(always)]
fn read_word(address: u64) -> u64 {
    let mut value = 0_u64;
    // SAFETY: the destination is `value`, which the helper clears when it fails.
    unsafe { bpf_probe_read_user((&raw mut value).cast(), 8, address as *const _) };
    value
}

/// Where the argument of a function stands in pt_regs.
#[inline(always)]
fn function_argument(index: usize) -> u32 {
    // SAFETY: a static of plain integers; every caller's index is below 5.
    unsafe {
        let first = (&raw const (*crate::maps::layout_ptr()).regs_function_args).cast::<u32>();
        core::ptr::read_volatile(first.add(index))
    }
}
