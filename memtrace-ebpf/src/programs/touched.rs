//! Pages that were touched: by the last page fault on each CPU, and those that were sampled.

use crate::kernel::{Standing, Task, read};
use crate::maps::{FAULTS, TOUCHED, TOUCHED_TAGS, layout};
use crate::rss::LastSeen;
use aya_ebpf::helpers::generated::{
    bpf_get_current_pid_tgid, bpf_get_current_task, bpf_get_current_task_btf, bpf_get_prandom_u32,
    bpf_task_pt_regs,
};
use memtrace_abi::Touched;

/// What is kept of a thread while its page faults follow each other on a CPU.
#[derive(Clone, Copy)]
pub struct Owner {
    /// What names its pages that may be copies; 0 where none are.
    pub copies: u64,
    /// One page fault of so many, a power of two, is looked at; 0: none.
    pub look_interval: u32,
}

/// The last page fault on a CPU.
#[repr(C)]
pub struct Fault {
    pid_tgid: u64,
    address: u64,
    /// The number of the system call that touched the memory, or [`NO_CALL`].
    call: i32,
    /// The thread that `owner` is about.
    owner_pid_tgid: u64,
    owner: Owner,
    /// How many page faults this one stands for; 0 where it is not looked at, or was.
    looked_for: u32,
    /// State of a generator of random numbers.
    random: u64,
    /// The address space, and where its counter stood before.
    mm: u64,
    before: Standing,
}

/// Notes a page fault, of anybody: to look up whether it is a member costs more than to write this.
/// Answers what `owner` says of the thread's copies, which is asked once for many faults.
#[inline(always)]
pub fn note_last(
    pid_tgid: u64,
    address: u64,
    is_of_kernel: bool,
    owner: impl FnOnce(u32) -> Owner,
) -> u64 {
    let Some(fault) = FAULTS.get_ptr_mut(0) else {
        return 0;
    };
    // SAFETY: this CPU's value of a per-CPU array.
    let fault = unsafe { &mut *fault };
    fault.pid_tgid = pid_tgid;
    fault.address = address;
    fault.call = if is_of_kernel { call() } else { NO_CALL };
    fault.looked_for = 0;
    if fault.owner_pid_tgid != pid_tgid {
        fault.owner_pid_tgid = pid_tgid;
        fault.owner = owner((pid_tgid >> 32) as u32);
        if fault.owner.look_interval != 0 {
            // SAFETY: the helper takes no arguments and cannot fail.
            fault.random ^= u64::from(unsafe { bpf_get_prandom_u32() });
        }
    }
    if fault.owner.look_interval != 0 {
        // Knuth's generator for MMIX, whose upper bits are random: a call for each fault costs more.
        fault.random = fault
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        if (fault.random >> 32) as u32 & (fault.owner.look_interval - 1) == 0 {
            look(fault);
        }
    }
    fault.owner.copies
}

/// Notes where the counter of anonymous pages stands before a page fault. If another thread has one on this
/// CPU before it is over, or it ends on another CPU, it is not looked at after all.
#[inline(always)]
fn look(fault: &mut Fault) {
    // SAFETY: the helper takes no arguments and cannot fail.
    let mm = Task(unsafe { bpf_get_current_task() }).mm();
    fault.looked_for = fault.owner.look_interval;
    fault.mm = mm.0;
    fault.before = mm.anon_standing();
    LastSeen::await_anon();
}

/// Has one page fault of so many of the current thread looked at from here on.
#[inline(always)]
pub fn look_at_one_of(interval: u32) {
    let Some(fault) = FAULTS.get_ptr_mut(0) else {
        return;
    };
    // SAFETY: this CPU's value of a per-CPU array.
    let fault = unsafe { &mut *fault };
    // SAFETY: the helper takes no arguments and cannot fail.
    if fault.owner_pid_tgid == unsafe { bpf_get_current_pid_tgid() } {
        fault.owner.look_interval = interval;
    }
}

/// Memory that the current thread got.
pub struct Brought {
    pub pages: u64,
    /// How many times as much it stands for.
    pub interval: u64,
    /// Where it lies; 0 where that is not known.
    pub address: u64,
}

impl Brought {
    /// What a counter grew by: the page that was touched last stands for all of it.
    #[inline(always)]
    pub fn handed_in(grown: i64) -> Self {
        Self {
            pages: grown.max(0).cast_unsigned(),
            interval: 1,
            address: if grown > 0 { touched() } else { 0 },
        }
    }

    /// What came by the page fault that the current thread is in: nothing, unless it is looked at. If the
    /// thread is in none that is known, what the counter of anonymous pages grew by.
    #[inline(always)]
    pub fn by_fault(mm: u64, after: impl FnOnce() -> Standing, grown: i64) -> Self {
        let mut brought = Self {
            pages: grown.max(0).cast_unsigned(),
            interval: 1,
            address: 0,
        };
        let Some(fault) = current() else {
            return brought;
        };
        brought.pages = 0;
        if fault.looked_for == 0 || fault.mm != mm {
            return brought;
        }
        let after = after();
        let pages = fault.before.brought(&after);
        if pages > 0 {
            brought.pages = pages.cast_unsigned();
            brought.interval = u64::from(core::mem::take(&mut fault.looked_for));
            brought.address = fault.address;
        } else {
            // The thread itself took memory from the process to have some.
            fault.before = after;
            LastSeen::await_anon();
        }
        brought
    }
}

/// The last page fault on this CPU, if the current thread is in it.
#[inline(always)]
fn current() -> Option<&'static mut Fault> {
    let fault = FAULTS.get_ptr_mut(0)?;
    // SAFETY: this CPU's value of a per-CPU array.
    let fault = unsafe { &mut *fault };
    // SAFETY: the helper takes no arguments and cannot fail.
    let pid_tgid = unsafe { bpf_get_current_pid_tgid() };
    (fault.pid_tgid == pid_tgid && fault.call == call()).then_some(fault)
}

/// What stands for the number of a system call where an exception led into the kernel.
const NO_CALL: i32 = -1;

/// The number of the system call that the current thread is in.
#[inline(always)]
fn call() -> i32 {
    // SAFETY: the helpers take the current task, which has registers: it has an address space.
    let regs = unsafe { bpf_task_pt_regs(bpf_get_current_task_btf()) as u64 };
    read(regs, layout!(regs_call))
}

/// Forgets the last page fault on this CPU: reading the memory of the thread has had others.
#[inline(always)]
pub fn forget() {
    if let Some(fault) = FAULTS.get_ptr_mut(0) {
        // SAFETY: this CPU's value of a per-CPU array.
        unsafe { (*fault).pid_tgid = 0 };
    }
}

/// The address that a task's growth came from: its last page fault, where that was on this CPU
/// and from where the task still is. Growth inside a system call (MAP_POPULATE, mlock) that is
/// no fault of that call has no address.
#[inline(always)]
fn touched() -> u64 {
    let Some(fault) = current() else {
        return 0;
    };
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
