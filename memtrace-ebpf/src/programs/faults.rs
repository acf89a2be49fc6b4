//! Page faults, with `--stacks`: which address growth comes from, which sampled page was given back
//! meanwhile, and which page is copied.

use crate::copies::{note_copy, note_own};
use crate::stacks::owner_of;
use crate::touched::{note_again, note_last};
use aya_ebpf::helpers::generated::bpf_get_current_pid_tgid;
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;

/// In the error code of a page fault: the page was there, and may not be accessed so
/// (X86_PF_PROT); what is written to after a fork is such a page.
const PF_PROT: u64 = 1;
/// It was a write (X86_PF_WRITE).
const PF_WRITE: u64 = 2;

/// trace_page_fault_user(unsigned long address, struct pt_regs *regs, unsigned long error_code)
#[raw_tracepoint(tracepoint = "page_fault_user")]
pub fn page_fault_user(ctx: RawTracePointContext) -> i32 {
    note_fault(&ctx, false)
}

/// The same of a system call that touches the caller's memory.
#[raw_tracepoint(tracepoint = "page_fault_kernel")]
pub fn page_fault_kernel(ctx: RawTracePointContext) -> i32 {
    note_fault(&ctx, true)
}

#[inline(always)]
fn note_fault(ctx: &RawTracePointContext, is_of_kernel: bool) -> i32 {
    let address: u64 = ctx.arg(0);
    // SAFETY: the helper takes no arguments and cannot fail.
    let pid_tgid = unsafe { bpf_get_current_pid_tgid() };
    let pages = note_last(pid_tgid, address, is_of_kernel, owner_of);
    let tgid = (pid_tgid >> 32) as u32;
    let error: u64 = ctx.arg(2);
    if error & PF_PROT == 0 {
        note_again(tgid, address);
        if pages != 0 {
            note_own(pages, address);
        }
    } else if error & PF_WRITE != 0 && pages != 0 {
        note_copy(tgid, pages, address);
    }
    0
}
