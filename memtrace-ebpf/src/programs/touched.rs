//! Pages that were touched: by the last page fault on each CPU, and those that were sampled.

use crate::kernel::read;
use crate::maps::{FAULTS, TOUCHED, TOUCHED_TAGS, layout};
use aya_ebpf::helpers::generated::{
    bpf_get_current_pid_tgid, bpf_get_current_task_btf, bpf_task_pt_regs,
};
use memtrace_abi::Touched;

/// The last page fault on a CPU.
#[repr(C)]
pub struct Fault {
    pid_tgid: u64,
    address: u64,
    is_of_kernel: u64,
    /// Whose pages it is known of whether they may be copies.
    owner: u64,
    /// What [`note_last`] answers of them.
    copies: u64,
}

/// Notes a page fault, of anybody: to look up whether it is a member costs more than to write this.
/// Answers what `copies` says of the thread's pages, which is asked once for many faults.
#[inline(always)]
pub fn note_last(
    pid_tgid: u64,
    address: u64,
    is_of_kernel: u64,
    copies: impl FnOnce(u32) -> u64,
) -> u64 {
    let Some(fault) = FAULTS.get_ptr_mut(0) else {
        return 0;
    };
    // SAFETY: this CPU's value of a per-CPU array.
    let fault = unsafe { &mut *fault };
    fault.pid_tgid = pid_tgid;
    fault.address = address;
    fault.is_of_kernel = is_of_kernel;
    if fault.owner != pid_tgid {
        fault.owner = pid_tgid;
        fault.copies = copies((pid_tgid >> 32) as u32);
    }
    fault.copies
}

/// The address that a task's growth came from: its last page fault, where that was on this CPU
/// and from where the task still is. Growth inside a system call (MAP_POPULATE, mlock) that is
/// no fault of that call has no address.
#[inline(always)]
pub fn touched() -> u64 {
    let Some(fault) = FAULTS.get_ptr_mut(0) else {
        return 0;
    };
    // SAFETY: the helpers take the current task, which has registers: it has an address space.
    let regs = unsafe { bpf_task_pt_regs(bpf_get_current_task_btf()) as u64 };
    // The number of a system call, or -1 where an exception led into the kernel.
    let is_call = read::<i32>(regs, layout!(regs_call)) >= 0;
    // SAFETY: this CPU's value of a per-CPU array.
    let fault = unsafe { &mut *fault };
    // SAFETY: the helper takes no arguments and cannot fail.
    let pid_tgid = unsafe { bpf_get_current_pid_tgid() };
    if fault.pid_tgid != pid_tgid || is_call != (fault.is_of_kernel != 0) {
        return 0;
    }
    // Reported once.
    fault.pid_tgid = 0;
    fault.address
}

/// Remembers a page that was sampled.
#[inline(always)]
pub fn note_sampled(tgid: u32, address: u64, boot_ns: u64) {
    let key = Touched::key(tgid, address);
    if let Some(tag) = tag(key) {
        *tag = Touched::tag(key);
    }
    if let Some(touched) = TOUCHED.get_ptr_mut(Touched::slot(key)) {
        // SAFETY: a map value; whoever reads it checks the page and the time.
        unsafe {
            *touched = Touched {
                key,
                boot_ns,
                is_again: 0,
            }
        };
    }
}

/// The tag of the page that was sampled last of those in a slot.
#[inline(always)]
fn tag(key: u64) -> Option<&'static mut u8> {
    let tags = TOUCHED_TAGS.get_ptr_mut(0)?;
    // SAFETY: a map value; the slot is within it. Bytes are written whole.
    unsafe { (*tags).get_mut(Touched::slot(key) as usize) }
}

/// Notes that a page is touched that was absent: if it was sampled, it was given back meanwhile.
#[inline(always)]
pub fn note_again(tgid: u32, address: u64) {
    let key = Touched::key(tgid, address);
    if tag(key).is_some_and(|tag| *tag == Touched::tag(key)) {
        mark_again(key);
    }
}

#[inline(always)]
fn mark_again(key: u64) {
    if let Some(touched) = TOUCHED.get_ptr_mut(Touched::slot(key)) {
        // SAFETY: a map value. A sample that takes the slot at this moment can lose its mark.
        let touched = unsafe { &mut *touched };
        if touched.key == key {
            touched.is_again = 1;
        }
    }
}
