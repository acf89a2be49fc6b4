//! Samples of growth: with `--stacks`, who touches new anonymous or shared memory.
//!
//! Growth is sampled with a chance in proportion to it, so that the weights add up to the growth without
//! bias: one page in so many ([`Growing::interval`]), which adapts to how fast the process grows.
//!
//! Of anonymous memory page faults are drawn (6.2). A counter tells less: it moves when a CPU hands in its
//! part, with a full batch or a buffer that is given back, and by the rhythm of the program that can be at
//! the same line each time. What a page fault brings shows in the part of its CPU ([`crate::touched`]).
//! What is handed in is drawn before 6.2, for shared memory, for huge pages, and where it is not known which
//! page fault brought it: the thread that tips a counter over is drawn in proportion to its faults. So it is
//! with MAP_POPULATE, and where a thread waits in its page fault: for memory, a lock or a CPU.
//!
//! Only growth that a thread of the address space itself brings is anybody's: reclaim and khugepaged have
//! no stack that would tell. Copies of pages that a fork shares move no counter: see [`crate::copies`].

use crate::copies::pages_of;
use crate::kernel::{Standing, Task, now, read};
use crate::maps::{PYTHON, SPACES, STACKS, config, count_loss, layout};
use crate::ring::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP};
use crate::space::Space;
use crate::touched::{Brought, Owner, forget, look_at_one_of, note_sampled};
use aya_ebpf::helpers::generated::{
    bpf_get_current_task, bpf_get_current_task_btf, bpf_get_prandom_u32, bpf_probe_read_user,
    bpf_task_pt_regs,
};
use memtrace_abi::event::{Counts, LOOKS, PYTHON_FRAMES_MAX, STACK_BYTES_MAX, STACK_PIECE};
use memtrace_abi::{EventHeader, EventKind, LossClass, PythonFrame, PythonLayout, StackSample};

/// A window for which samples are counted ...
const WINDOW: u32 = 250;
/// ... in milliseconds. They begin anew after seven weeks.
const WINDOW_UNIT: u64 = 1_000_000;
/// ... at more than these the samples become half as dense: 48 a second ...
const SAMPLES_MAX: u8 = 12;
/// ... and at fewer than these twice as dense.
const SAMPLES_MIN: u8 = 5;
/// No sample stands for more than two to this power of pages, 64 GiB of 4 KiB pages.
const INTERVAL_MAX: u8 = 24;

/// Thread states of one process that are looked at.
const THREADS_MAX: u32 = 512;

/// The reader is woken when this many samples wait.
const WAKE_SAMPLES: u64 = 16;

/// Pages of a huge page.
const HUGE_PAGES: i64 = 512;

/// What samples of one address space need. Written without locks, as all of [`Space`]: two
/// CPUs that hand in at once can each charge the other's part.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Growing {
    /// Where the counters of anonymous and of shared pages together last stood.
    pages: i64,
    /// When the window began that `samples` counts, in units of [`WINDOW_UNIT`].
    window: u32,
    /// Of the pages that one sample is drawn from, how many are still to come, and how many will be when it
    /// is taken: it is one of as many pages also where growth has a rhythm of its own.
    left_pages: u32,
    left_at_sample: u32,
    /// One sample for two to this power of pages; 0 before the first.
    interval: u8,
    /// The same of the pages that `left_pages` counts.
    stretch: u8,
    samples: u8,
}

impl Growing {
    /// Begins at memory that is there already, and nobody's growth.
    #[inline(always)]
    pub fn from(counts: &Counts) -> Self {
        Self {
            pages: counts.anon_pages + counts.shmem_pages,
            window: 0,
            left_pages: 0,
            left_at_sample: 0,
            interval: 0,
            stretch: 0,
            samples: 0,
        }
    }

    #[inline(always)]
    fn interval_pages(&mut self) -> u32 {
        if self.interval == 0 {
            self.interval = config!(stack_interval_pages).trailing_zeros() as u8;
        }
        1 << (self.interval & 31)
    }

    /// One page fault of so many is looked at, a power of two.
    #[inline(always)]
    fn look_interval(&mut self) -> u32 {
        (self.interval_pages() / LOOKS).max(1)
    }

    /// What a sample of so many pages stands for, if one is to be taken.
    #[inline(always)]
    pub fn draw(&mut self, pages: u64) -> Option<u64> {
        if pages == 0 {
            return None;
        }
        let interval = self.interval_pages();
        if pages >= u64::from(interval) {
            return Some(pages);
        }
        let pages = pages as u32;
        let (left, at) = (self.left_pages, self.left_at_sample);
        let is_sampled = left > at && left.saturating_sub(pages) <= at;
        let mut weight = if is_sampled {
            1 << (self.stretch & 31)
        } else {
            0
        };
        if left > pages {
            self.left_pages = left - pages;
        } else {
            self.stretch = self.interval;
            self.left_pages = interval - (pages - left);
            // SAFETY: the helper takes no arguments and cannot fail.
            self.left_at_sample = unsafe { bpf_get_prandom_u32() } & (interval - 1);
            if self.left_pages <= self.left_at_sample {
                weight += interval;
            }
        }
        (weight > 0).then_some(u64::from(weight))
    }

    /// Adapts how dense samples are.
    #[inline(always)]
    pub fn adapt(&mut self, is_sampled: bool, boot_ns: u64) {
        self.samples += u8::from(is_sampled);
        let now = (boot_ns / WINDOW_UNIT) as u32;
        if now.wrapping_sub(self.window) >= WINDOW {
            if self.samples < SAMPLES_MIN && self.interval_pages() > config!(stack_interval_pages) {
                self.interval -= 1;
                // The rest of a long stretch would take a slow process long: half of it, for half the weight.
                if self.stretch > self.interval {
                    self.stretch -= 1;
                    self.left_pages >>= 1;
                    self.left_at_sample >>= 1;
                }
            }
        } else if self.samples > SAMPLES_MAX {
            self.interval = (self.interval + 1).min(INTERVAL_MAX);
        } else {
            return;
        }
        self.window = now;
        self.samples = 0;
    }
}

/// What is kept of the current thread while its page faults follow each other on a CPU.
#[inline(never)]
pub fn owner_of(tgid: u32) -> Owner {
    let mut owner = Owner {
        copies: 0,
        look_interval: 0,
    };
    if layout!(cpu_count) == 0 && layout!(vma_anon) == 0 {
        return owner;
    }
    // SAFETY: the helper takes no arguments and cannot fail.
    let mm = Task(unsafe { bpf_get_current_task() }).mm().0;
    let Some(space) = SPACES.get_ptr_mut(mm) else {
        return owner;
    };
    // SAFETY: a map value; see `Space` about concurrent writes.
    let space = unsafe { &mut *space };
    if space.is_recorders_copy != 0 {
        return owner;
    }
    // After vfork it is the parent's.
    if space.tgid == tgid {
        owner.copies = pages_of(space);
    }
    if layout!(cpu_count) != 0 {
        owner.look_interval = space.growing.look_interval();
    }
    owner
}

/// Whether a counter of anonymous pages that grew by so many at once has a huge page in it (6.2). A CPU hands
/// in less than a batch besides, more or less; up to 64 CPUs nothing else is as much.
#[inline(always)]
fn is_huge_page(grown: i64) -> bool {
    let cpus = i64::from(layout!(cpu_count));
    let batch = (2 * cpus).max(32);
    cpus != 0 && cpus <= 64 && grown > HUGE_PAGES - batch
}

/// Takes note of where the counters stand, and samples what those of anonymous and of shared pages grew by.
/// `after` says where that of anonymous pages stands for this CPU, if that is the one that moved.
#[inline(always)]
pub fn note_growth(
    mm: u64,
    space: &mut Space,
    counts: &Counts,
    after: Option<impl FnOnce() -> Standing>,
) {
    let pages = counts.anon_pages + counts.shmem_pages;
    let grown = pages - space.growing.pages;
    space.growing.pages = pages;
    // SAFETY: the helper takes no arguments and cannot fail.
    let task = Task(unsafe { bpf_get_current_task() });
    if task.mm().0 != mm || space.is_recorders_copy != 0 {
        return;
    }
    let brought = match after {
        Some(after) if layout!(cpu_count) != 0 => {
            if is_huge_page(grown) {
                // Small pages are handed in with it.
                Brought::handed_in(HUGE_PAGES)
            } else {
                Brought::by_fault(mm, after, grown)
            }
        }
        _ => Brought::handed_in(grown),
    };
    if grown > 0 {
        look_at_one_of(space.growing.look_interval());
    } else if brought.pages == 0 {
        return;
    }
    let boot_ns = now();
    let weight = space.growing.draw(brought.pages * brought.interval);
    space.growing.adapt(weight.is_some(), boot_ns);
    if let Some(weight) = weight {
        let header = EventHeader {
            kind: EventKind::StackSample as u32,
            tgid: space.tgid,
            boot_ns,
            start_boot_ns: space.start_boot_ns,
        };
        sample(mm, &header, brought.pages, weight, brought.address);
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
    forget();
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
