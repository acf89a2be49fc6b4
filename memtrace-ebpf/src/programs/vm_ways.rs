//! The three ways to see a call on an address space return, one body behind them
//! ([`crate::vm`]). Each program is loaded only where its way is taken.
//!
//! All three look at the functions that the system call table holds (`__x64_sys_mmap`,
//! `__arm64_sys_mmap`): their one argument, the caller's registers, is the same on every
//! kernel, they can't be inlined, and a mapping is seen exactly when a program asked for it.
//! At their return the registers still hold every argument, so no program is needed where
//! a call begins.

use crate::maps::layout;
use crate::vm::{account, call_number, is_compat, op_of};
use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::generated::{
    bpf_get_current_task_btf, bpf_probe_read_kernel, bpf_task_pt_regs,
};
use aya_ebpf::macros::{btf_tracepoint, fexit, kretprobe};
use aya_ebpf::programs::{BtfTracePointContext, FExitContext, RetProbeContext};
use memtrace_abi::VmOp;

/// A program for one function: fexit programs are bound to theirs when they are loaded.
macro_rules! fexit_program {
    ($name:ident, $op:ident) => {
        /// `long __<arch>_sys_<call>(const struct pt_regs *regs)`; behind the argument
        /// stands what the function returned.
        #[fexit]
        pub fn $name(ctx: FExitContext) -> i32 {
            // SAFETY: the verifier knows the first argument as a pt_regs.
            unsafe { account(VmOp::$op, ctx.arg(0), ctx.arg(1)) };
            0
        }
    };
}

fexit_program!(vm_fexit_mmap, Mmap);
fexit_program!(vm_fexit_munmap, Munmap);
fexit_program!(vm_fexit_mremap, Mremap);
fexit_program!(vm_fexit_brk, Brk);
fexit_program!(vm_fexit_madvise, Madvise);

/// Registers of the probed function up to and with the one that holds its result (x86: ax
/// at 80, arm64: regs[0]).
const RESULT_REGS: usize = 11;

/// At the return of any of the functions. Which one it was stands in the registers with
/// which the program entered the kernel (bpf_task_pt_regs, 5.15).
#[kretprobe]
pub fn vm_kretprobe(ctx: RetProbeContext) -> u32 {
    let mut own = [0_u64; RESULT_REGS];
    let index = (layout!(regs_result) / 8) as usize;
    if index >= RESULT_REGS {
        return 0;
    }
    // SAFETY: the context is a pt_regs, longer than what is copied; the index was checked;
    // the helpers give the registers of the task that is running.
    unsafe {
        bpf_probe_read_kernel(
            own.as_mut_ptr().cast(),
            size_of_val(&own) as u32,
            ctx.as_ptr().cast_const(),
        );
        let result = *own.get_unchecked(index) as i64;
        let regs = bpf_task_pt_regs(bpf_get_current_task_btf()) as *const u8;
        if let Some(op) = op_of(call_number(regs)) {
            account(op, regs, result);
        }
    }
    0
}

/// trace_sys_exit(struct pt_regs *regs, long ret), for every system call of the machine.
#[btf_tracepoint(function = "sys_exit")]
pub fn vm_sys_exit(ctx: BtfTracePointContext) -> i32 {
    let regs: *const u8 = ctx.arg(0);
    // SAFETY: the verifier knows the first argument as a pt_regs.
    unsafe {
        let Some(op) = op_of(call_number(regs)) else {
            return 0;
        };
        if !is_compat(regs) {
            account(op, regs, ctx.arg(1));
        }
    }
    0
}
