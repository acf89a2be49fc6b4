//! Samples of growth: with `--stacks`, who touches new anonymous or shared memory.
//!
//! A counter of an address space moves when a CPU hands in its part. What it grew by then is
//! sampled with a chance in proportion to it, so that the weights add up to the growth without
//! bias: one in [`Growing::interval_pages`], which adapts to how fast the process grows. The
//! thread that tips a counter over is drawn in proportion to its faults. Only growth that a
//! thread of the address space itself brings is anybody's: reclaim and khugepaged have no stack
//! that would tell. Copies of pages that a fork shares move no counter: see [`crate::copies`].

use crate::kernel::{Task, now, read};
use crate::maps::{PYTHON, STACKS, config, count_loss, layout};
use crate::ring::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP};
use crate::space::Space;
use crate::touched::{note_sampled, touched};
use aya_ebpf::helpers::generated::{
    bpf_get_current_task, bpf_get_current_task_btf, bpf_get_prandom_u32, bpf_probe_read_user,
    bpf_task_pt_regs,
};
use memtrace_abi::event::{Counts, PYTHON_FRAMES_MAX, STACK_BYTES_MAX, STACK_PIECE};
use memtrace_abi::{EventHeader, EventKind, LossClass, PythonFrame, PythonLayout, StackSample};

/// A window for which samples are counted ...
const WINDOW_NS: u64 = 250_000_000;
/// ... at more than these the samples become half as dense: 48 a second ...
const SAMPLES_MAX: u32 = 12;
/// ... and at fewer than these twice as dense.
const SAMPLES_MIN: u32 = 5;
/// No sample stands for more than this, 64 GiB of 4 KiB pages.
const INTERVAL_PAGES_MAX: u32 = 1 << 24;

/// Thread states of one process that are looked at.
const THREADS_MAX: u32 = 512;

/// The reader is woken when this many samples wait.
const WAKE_SAMPLES: u64 = 16;

/// What samples of one address space need. Written without locks, as all of [`Space`]: two
/// CPUs that hand in at once can each charge the other's part.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Growing {
    /// Where the counters of anonymous and of shared pages together last stood.
    pages: i64,
    /// When the window began that `samples` counts.
    window_boot_ns: u64,
    /// One sample for so many pages; 0 before the first.
    interval_pages: u32,
    samples: u32,
}

impl Growing {
    /// Begins at memory that is there already, and nobody's growth.
    #[inline(always)]
    pub fn from(counts: &Counts) -> Self {
        Self {
            pages: counts.anon_pages + counts.shmem_pages,
            window_boot_ns: 0,
            interval_pages: 0,
            samples: 0,
        }
    }

    /// What a sample of so many pages stands for, if one is to be taken.
    #[inline(always)]
    pub fn draw(&mut self, grown_pages: u64) -> Option<u64> {
        if self.interval_pages == 0 {
            self.interval_pages = config!(stack_interval_pages);
        }
        let interval = u64::from(self.interval_pages);
        // SAFETY: the helper takes no arguments and cannot fail.
        let random = u64::from(unsafe { bpf_get_prandom_u32() });
        // Both factors are below 2^32.
        let is_sampled = grown_pages >= interval || random * interval < grown_pages << 32;
        is_sampled.then_some(grown_pages.max(interval))
    }

    /// Adapts how dense samples are.
    #[inline(always)]
    pub fn adapt(&mut self, is_sampled: bool, boot_ns: u64) {
        self.samples += u32::from(is_sampled);
        if boot_ns - self.window_boot_ns >= WINDOW_NS {
            if self.samples < SAMPLES_MIN {
                let halved = self.interval_pages >> 1;
                self.interval_pages = halved.max(config!(stack_interval_pages));
            }
        } else if self.samples > SAMPLES_MAX {
            self.interval_pages = (self.interval_pages << 1).min(INTERVAL_PAGES_MAX);
        } else {
            return;
        }
        self.window_boot_ns = boot_ns;
        self.samples = 0;
    }
}

/// Takes note of where the counters stand, and samples what those of anonymous and of shared pages
/// grew by.
#[inline(always)]
pub fn note_growth(mm: u64, space: &mut Space, counts: &Counts) {
    let growing = &mut space.growing;
    let pages = counts.anon_pages + counts.shmem_pages;
    let grown = pages - growing.pages;
    growing.pages = pages;
    if grown <= 0 {
        return;
    }
    // SAFETY: the helper takes no arguments and cannot fail.
    let task = Task(unsafe { bpf_get_current_task() });
    if task.mm().0 != mm || space.is_recorders_copy != 0 {
        return;
    }
    let grown = grown as u64;
    let weight = growing.draw(grown);
    let boot_ns = now();
    growing.adapt(weight.is_some(), boot_ns);
    if let Some(weight) = weight {
        let header = EventHeader {
            kind: EventKind::StackSample as u32,
            tgid: space.tgid,
            boot_ns,
            start_boot_ns: space.start_boot_ns,
        };
        sample(mm, &header, grown, weight, touched());
    }
}

/// Sends the stack of a call of the CUDA driver that returns: 1 where there was room for it.
#[inline(always)]
pub fn sample_call(header: &EventHeader) -> u32 {
    let header = EventHeader {
        kind: EventKind::CudaStack as u32,
        ..*header
    };
    // SAFETY: the helper takes no arguments and cannot fail.
    let task = Task(unsafe { bpf_get_current_task() });
    sample(task.mm().0, &header, 0, 0, 0)
}

/// Sends a sample, or counts it as lost: 0.
#[inline(never)]
pub fn sample(
    mm: u64,
    header: &EventHeader,
    grown_pages: u64,
    weight_pages: u64,
    address: u64,
) -> u32 {
    let Some(mut entry) = STACKS.reserve::<StackSample>(0) else {
        count_loss(LossClass::Stack);
        return 0;
    };
    // SAFETY: the helpers take the current task, which has registers: it has an address space.
    let (task, regs) = unsafe {
        let task = bpf_get_current_task_btf();
        (task as u64, bpf_task_pt_regs(task) as u64)
    };
    let sample = entry.as_mut_ptr();
    let tgid = header.tgid;
    let stack: u64 = read(regs, layout!(regs_stack));
    let instruction = read(regs, layout!(regs_instruction));
    let frame = read(regs, layout!(regs_frame));
    if address != 0 {
        note_sampled(tgid, address, header.boot_ns);
    }
    // SAFETY: memory of the ring, which is this program's until it is submitted.
    unsafe {
        (*sample).header = *header;
        (*sample).mm = mm;
        (*sample).grown_pages = grown_pages;
        (*sample).weight_pages = weight_pages;
        (*sample).address = address;
        (*sample).instruction = instruction;
        (*sample).stack = stack;
        (*sample).frame = frame;
        (*sample).tid = Task(task).pid();
        (*sample).reserved = 0;
        (*sample).python_count = 0;
        (*sample).stack_len = copy_stack(stack, &mut (*sample).stack_bytes);
    }
    let layout = python(tgid).filter(|layout| layout.mm == mm);
    if let Some(layout) = layout {
        walk_python(layout, tgid, task, sample);
    }
    let is_looked_for = layout.is_none_or(|layout| layout.is_looked_for != 0);
    let is_urgent = is_looked_for || waiting() > WAKE_SAMPLES;
    entry.submit(if is_urgent {
        BPF_RB_FORCE_WAKEUP
    } else {
        BPF_RB_NO_WAKEUP
    });
    1
}

/// Samples in the ring that the reader has not taken.
#[inline(always)]
fn waiting() -> u64 {
    STACKS.query(BPF_RB_AVAIL_DATA) / size_of::<StackSample>() as u64
}

/// Copies the stack from `from` upwards, as far as it can be read, and gives how much that was.
#[inline(always)]
fn copy_stack(from: u64, bytes: &mut [u8; STACK_BYTES_MAX]) -> u32 {
    let mut len = 0;
    while len < STACK_BYTES_MAX {
        // SAFETY: a piece that lies within `bytes`; the helper checks the source.
        let outcome = unsafe {
            bpf_probe_read_user(
                bytes.as_mut_ptr().add(len).cast(),
                STACK_PIECE as u32,
                (from + len as u64) as *const _,
            )
        };
        if outcome != 0 {
            break;
        }
        len += STACK_PIECE;
    }
    len as u32
}

/// A value in the process's memory; 0 where it can't be read.
#[inline(always)]
fn read_user<T: Copy + Default>(base: u64, offset: u32) -> T {
    let mut value = T::default();
    // SAFETY: the destination is `value`, which the helper clears when it fails.
    unsafe {
        bpf_probe_read_user(
            (&raw mut value).cast(),
            size_of::<T>() as u32,
            (base + u64::from(offset)) as *const _,
        )
    };
    value
}

/// The interpreter of a process, as user space has found it.
#[inline(always)]
fn python(tgid: u32) -> Option<&'static PythonLayout> {
    let layout = PYTHON.get_ptr(tgid)?;
    // SAFETY: a map value. Where user space replaces it meanwhile, addresses of two
    // interpreters of one process mix, and are checked when they are read.
    Some(unsafe { &*layout })
}

/// Writes the frames of Python of the current thread.
#[inline(always)]
fn walk_python(layout: &PythonLayout, tgid: u32, task: u64, sample: *mut StackSample) {
    if layout.interpreters == 0 {
        return;
    }
    let id = match layout.is_thread_by_address {
        0 => u64::from(Task(task).ns_tid()),
        _ => Task(task).control_block(),
    };
    let thread = memtrace_python_thread(tgid, id);
    if thread == 0 {
        return;
    }
    let mut frame: u64 = read_user(thread, layout.thread_frame);
    if layout.cframe_frame != PythonLayout::NO_CFRAME {
        frame = read_user(frame, layout.cframe_frame);
    }
    let mut count = 0;
    while count < PYTHON_FRAMES_MAX && frame != 0 {
        let at = PythonFrame {
            code: read_user(frame, layout.frame_code),
            instruction: read_user(frame, layout.frame_instruction),
        };
        // SAFETY: memory of the ring; `count` is within both arrays.
        unsafe {
            let frames = (&raw mut (*sample).python).cast::<PythonFrame>();
            frames.add(count).write(at);
            let marks = (&raw mut (*sample).python_marks).cast::<u8>();
            marks.add(count).write(read_user(frame, layout.frame_mark));
        }
        frame = read_user(frame, layout.frame_previous);
        count += 1;
    }
    // SAFETY: as above.
    unsafe { (*sample).python_count = count as u32 };
}

/// The state of the thread that has this id, among all of the process's interpreters; 0
/// where there is none. A global function of numbers alone, whose loop the verifier walks once.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn memtrace_python_thread(tgid: u32, id: u64) -> u64 {
    let Some(layout) = python(tgid) else {
        return 0;
    };
    let mut interpreter: u64 = read_user(layout.interpreters, 0);
    let mut thread: u64 = read_user(interpreter, layout.interpreter_threads);
    let mut step = 0;
    while step < THREADS_MAX {
        step += 1;
        if thread != 0 {
            if read_user::<u64>(thread, layout.thread_id) == id {
                return thread;
            }
            thread = read_user(thread, layout.thread_next);
        } else {
            interpreter = read_user(interpreter, layout.interpreter_next);
            if interpreter == 0 {
                return 0;
            }
            thread = read_user(interpreter, layout.interpreter_threads);
        }
    }
    0
}
