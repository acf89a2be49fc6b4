//! `signal_generate` again: how full a tmpfs was when a page of it could not be had.

use crate::kernel::{Task, TmpfsUse, read};
use crate::maps::MEMBERS;
use crate::ring::{header, send};
use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::generated::{bpf_find_vma, bpf_get_current_task_btf};
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use memtrace_abi::LossClass;
use memtrace_abi::event::{EventKind, FullTmpfs};

const SIGBUS: i32 = 7;
/// si_code: there is no page at this address.
const BUS_ADRERR: i32 = 2;
/// Where si_code and si_addr are in siginfo_t, on every 64-bit architecture but MIPS.
const SI_CODE: u32 = 8;
const SI_ADDR: u32 = 16;

/// trace_signal_generate(int sig, struct kernel_siginfo *info, struct task_struct *task, int
/// group, int result), in the thread that touched the page. It asks for the mapping there
/// (bpf_find_vma, 5.17). Once the process has ended, what it filled can be gone.
#[btf_tracepoint(function = "signal_generate")]
pub fn tmpfs_full(ctx: BtfTracePointContext) -> i32 {
    if ctx.arg::<i32>(0) != SIGBUS {
        return 0;
    }
    let info = ctx.arg::<*const u8>(1) as u64;
    if read::<i32>(info, SI_CODE) != BUS_ADRERR {
        return 0;
    }
    let task = Task(ctx.arg::<*const u8>(2) as u64);
    let tgid = task.tgid();
    if MEMBERS.get_ptr(tgid).is_none() {
        return 0;
    }
    let mut used = TmpfsUse::default();
    // SAFETY: the callback has the signature that the helper calls, and the context outlives the call.
    unsafe {
        bpf_find_vma(
            bpf_get_current_task_btf(),
            read(info, SI_ADDR),
            visit_mapping as *mut c_void,
            (&raw mut used).cast(),
            0,
        );
    }
    if used.size_pages != 0 {
        let event = FullTmpfs {
            header: header(EventKind::FullTmpfs, tgid, task.process_start()),
            device: used.device,
            reserved: 0,
            size_pages: used.size_pages,
            used_pages: used.used_pages,
        };
        send(event, LossClass::Sample);
    }
    0
}

/// Looks which tmpfs is mapped. Returns 0, as the helper wants it.
extern "C" fn visit_mapping(
    _task: *const c_void,
    mapping: *const c_void,
    used: *mut TmpfsUse,
) -> i64 {
    // SAFETY: the helper passes the context given to it.
    unsafe { *used = TmpfsUse::of_mapping(mapping as u64) };
    0
}
