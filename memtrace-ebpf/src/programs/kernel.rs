//! Reading kernel structures at the offsets of [`Layout`](memtrace_abi::Layout).
//!
//! Pointers are plain addresses here and every read goes through bpf_probe_read_kernel,
//! which answers with an error instead of a fault: an address that went stale reads as
//! zero or as another object's bytes, never as a crash. The one hot path, in `rss`, reads
//! its trusted pointer directly.

use crate::maps::{CPU_OFFSETS, layout};
use aya_ebpf::helpers::generated::{
    bpf_get_smp_processor_id, bpf_ktime_get_boot_ns, bpf_probe_read_kernel,
};
use memtrace_abi::SentSignal;
use memtrace_abi::event::{COMM_LEN, Counts};

const PF_EXITING: u32 = 0x4;
const PF_KTHREAD: u32 = 0x0020_0000;
const SIGNAL_GROUP_EXIT: u32 = 4;
/// include/uapi/linux/magic.h
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Now, on CLOCK_BOOTTIME.
#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: the helper takes no arguments and cannot fail.
    unsafe { bpf_ktime_get_boot_ns() }
}

/// A field at an offset; zero where it can't be read: the helper clears the destination
/// when it fails. No branch on its answer, because the verifier would follow both ways of
/// each of the hundred reads.
#[inline(always)]
pub fn read<T: Copy + Default>(base: u64, offset: u32) -> T {
    let mut value = T::default();
    // SAFETY: the destination is `value`; the helper checks the source.
    unsafe {
        bpf_probe_read_kernel(
            (&raw mut value).cast(),
            size_of::<T>() as u32,
            (base + u64::from(offset)) as *const _,
        )
    };
    value
}

/// A task_struct.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Task(pub u64);

impl Task {
    #[inline(always)]
    pub fn tgid(self) -> u32 {
        read(self.0, layout!(task_tgid))
    }

    #[inline(always)]
    pub fn pid(self) -> u32 {
        read(self.0, layout!(task_pid))
    }

    /// The address space; null for kernel threads and once it was dropped at exit.
    #[inline(always)]
    pub fn mm(self) -> Mm {
        Mm(read(self.0, layout!(task_mm)))
    }

    #[inline(always)]
    pub fn leader(self) -> Self {
        Self(read(self.0, layout!(task_group_leader)))
    }

    #[inline(always)]
    pub fn real_parent(self) -> Self {
        Self(read(self.0, layout!(task_real_parent)))
    }

    /// Start of the process: of its leader, which exec from another thread hands on.
    #[inline(always)]
    pub fn process_start(self) -> u64 {
        read(self.leader().0, layout!(task_start_boottime))
    }

    #[inline(always)]
    pub fn is_kernel_thread(self) -> bool {
        self.what() & SentSignal::KERNEL_THREAD != 0
    }

    /// Whether it is a thread of the kernel's, and whether it is ending, as [`SentSignal`] has it.
    #[inline(always)]
    pub fn what(self) -> u8 {
        let flags: u32 = read(self.0, layout!(task_flags));
        let kernel_thread = if flags & PF_KTHREAD != 0 {
            SentSignal::KERNEL_THREAD
        } else {
            0
        };
        let exiting = if flags & PF_EXITING != 0 {
            SentSignal::EXITING
        } else {
            0
        };
        kernel_thread | exiting
    }

    #[inline(always)]
    pub fn comm(self, comm: &mut [u8; COMM_LEN]) {
        *comm = read(self.0, layout!(task_comm));
    }

    #[inline(always)]
    pub fn uid(self) -> u32 {
        let cred: u64 = read(self.0, layout!(task_real_cred));
        read(cred, layout!(cred_uid))
    }

    #[inline(always)]
    fn signal(self) -> u64 {
        read(self.0, layout!(task_signal))
    }

    /// Threads of the process that have not begun to exit.
    #[inline(always)]
    pub fn live_threads(self) -> u32 {
        read(self.signal(), layout!(signal_live))
    }

    /// signal->maxrss and signal->cmaxrss, in pages.
    #[inline(always)]
    pub fn maxrss_pages(self) -> (i64, i64) {
        let signal = self.signal();
        (
            read(signal, layout!(signal_maxrss)),
            read(signal, layout!(signal_cmaxrss)),
        )
    }

    #[inline(always)]
    pub fn oom_score_adj(self) -> i32 {
        i32::from(read::<i16>(self.signal(), layout!(signal_oom_score_adj)))
    }

    /// A soft limit of the process, by its number.
    #[inline(always)]
    pub fn rlimit(self, number: u32) -> u64 {
        // struct rlimit: the soft limit and the hard one, an unsigned long each.
        read(self.signal(), layout!(signal_rlim) + number * 16)
    }

    /// How the process ended: the group's code where the group ended together, which
    /// since 5.18 includes the end of the last thread (synchronize_group_exit).
    #[inline(always)]
    pub fn wait_status(self) -> i32 {
        let signal = self.signal();
        if read::<u32>(signal, layout!(signal_flags)) & SIGNAL_GROUP_EXIT != 0 {
            read(signal, layout!(signal_group_exit_code))
        } else {
            read(self.leader().0, layout!(task_exit_code))
        }
    }

    /// The process id in the process's own pid namespace; 0 when it can't be read.
    #[inline(always)]
    pub fn ns_tgid(self) -> u32 {
        let pid: u64 = read(self.signal(), layout!(signal_tgid_pid));
        if pid == 0 {
            return 0;
        }
        number_in_namespace(pid)
    }

    /// The thread's id in its own pid namespace; 0 when it can't be read.
    #[inline(always)]
    pub fn ns_tid(self) -> u32 {
        let pid: u64 = read(self.0, layout!(task_thread_pid));
        if pid == 0 {
            return 0;
        }
        number_in_namespace(pid)
    }

    /// Address of the thread's control block; 0 where that is not known.
    #[inline(always)]
    pub fn control_block(self) -> u64 {
        match layout!(task_fsbase) {
            0 => 0,
            offset => read(self.0, offset),
        }
    }

    /// Address of the name, without directories, of the file behind a descriptor; 0 when it
    /// can't be had.
    #[inline(always)]
    pub fn file_name(self, descriptor: u32) -> u64 {
        if layout!(file_dentry) == 0 {
            return 0;
        }
        let files: u64 = read(self.0, layout!(task_files));
        let table: u64 = read(files, layout!(files_fdt));
        let max: u32 = read(table, layout!(fdt_max));
        let descriptors: u64 = read(table, layout!(fdt_fd));
        if descriptor >= max {
            return 0;
        }
        let file: u64 = read(descriptors + u64::from(descriptor) * 8, 0);
        let dentry: u64 = read(file, layout!(file_dentry));
        read(dentry, layout!(dentry_name))
    }

    /// kernfs id of the memory cgroup; 0 without the memory controller.
    #[inline(always)]
    pub fn memory_cgroup(self) -> u64 {
        if layout!(css_set_memory) == 0 {
            return 0;
        }
        let css_set: u64 = read(self.0, layout!(task_cgroups));
        let css: u64 = read(css_set, layout!(css_set_memory));
        let cgroup: u64 = read(css, layout!(css_cgroup));
        let node: u64 = read(cgroup, layout!(cgroup_kn));
        if node == 0 {
            0
        } else {
            read(node, layout!(kn_id))
        }
    }
}

/// What a struct pid is called in its own pid namespace.
#[inline(always)]
fn number_in_namespace(pid: u64) -> u32 {
    let level: u32 = read(pid, layout!(pid_level));
    let number = layout!(pid_numbers) + layout!(upid_nr);
    read(
        pid + u64::from(level) * u64::from(layout!(upid_size)),
        number,
    )
}

/// An mm_struct.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mm(pub u64);

impl Mm {
    #[inline(always)]
    pub fn is_null(self) -> bool {
        self.0 == 0
    }

    /// Users of the address space; 0 while it is being torn down.
    #[inline(always)]
    pub fn users(self) -> i32 {
        read(self.0, layout!(mm_users))
    }

    /// The kernel's high-water mark as far as it was kept up, in pages.
    #[inline(always)]
    pub fn hiwater_pages(self) -> i64 {
        read(self.0, layout!(mm_hiwater_rss))
    }

    /// The end of the brk heap.
    #[inline(always)]
    pub fn brk(self) -> u64 {
        read(self.0, layout!(mm_brk))
    }

    /// Where the arguments stand, in the process's memory: begin and end.
    #[inline(always)]
    pub fn arguments(self) -> (u64, u64) {
        (
            read(self.0, layout!(mm_arg_start)),
            read(self.0, layout!(mm_arg_end)),
        )
    }

    /// The counters as they stand: off by what the CPUs have not handed in yet.
    #[inline(always)]
    pub fn counts(self) -> Counts {
        let mut counts = Counts {
            anon_pages: read(self.0, layout!(mm_rss_anon)),
            file_pages: read(self.0, layout!(mm_rss_file)),
            shmem_pages: read(self.0, layout!(mm_rss_shmem)),
            swap_pages: read(self.0, layout!(mm_rss_swap)),
            vm_pages: read(self.0, layout!(mm_total_vm)),
            heap_bytes: 0,
        };
        let brk: i64 = read(self.0, layout!(mm_brk));
        let start_brk: i64 = read(self.0, layout!(mm_start_brk));
        counts.heap_bytes = brk - start_brk;
        counts
    }

    /// Adds the parts that the CPUs have not handed in yet, as percpu_counter_sum() does.
    /// A kind that reads below zero is a race with an update and is zero.
    #[inline(always)]
    pub fn settle(self, counts: &mut Counts) {
        if layout!(cpu_count) != 0 {
            let [file, anon, swap, shmem] = [
                self.parts(layout!(mm_rss_file)),
                self.parts(layout!(mm_rss_anon)),
                self.parts(layout!(mm_rss_swap)),
                self.parts(layout!(mm_rss_shmem)),
            ];
            if anon == file + PART_LEN && shmem == swap + PART_LEN {
                let resident = memtrace_sum_two(file);
                let others = memtrace_sum_two(swap);
                counts.file_pages += i64::from(resident as i32);
                counts.anon_pages += resident >> 32;
                counts.swap_pages += i64::from(others as i32);
                counts.shmem_pages += others >> 32;
            } else {
                counts.file_pages += memtrace_sum_one(file);
                counts.anon_pages += memtrace_sum_one(anon);
                counts.swap_pages += memtrace_sum_one(swap);
                counts.shmem_pages += memtrace_sum_one(shmem);
            }
        }
        counts.anon_pages = counts.anon_pages.max(0);
        counts.file_pages = counts.file_pages.max(0);
        counts.shmem_pages = counts.shmem_pages.max(0);
        counts.swap_pages = counts.swap_pages.max(0);
    }

    /// The same with the pointers at hand, on the hot path: one read takes all of a CPU.
    #[inline(always)]
    pub fn settle_by(self, parts: &Parts, counts: &mut Counts) {
        let are_side_by_side = parts.anon == parts.file + PART_LEN
            && parts.swap == parts.file + 2 * PART_LEN
            && parts.shmem == parts.file + 3 * PART_LEN;
        if layout!(cpu_count) == 0 || !are_side_by_side {
            self.settle(counts);
            return;
        }
        let mut sums = [0; 4];
        sum_all(parts.file, &mut sums);
        counts.file_pages += sums[0];
        counts.anon_pages += sums[1];
        counts.swap_pages += sums[2];
        counts.shmem_pages += sums[3];
    }

    /// Where the counter of anonymous pages stands for this CPU (6.2).
    #[inline(always)]
    pub fn anon_standing(self) -> Standing {
        let counter = layout!(mm_rss_anon);
        Standing::new(read(self.0, counter), self.parts(counter))
    }

    /// Where the per-CPU parts of a counter are.
    #[inline(always)]
    fn parts(self, counter: u32) -> u64 {
        read(self.0, counter + layout!(counter_to_percpu))
    }
}

/// How full a tmpfs is.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct TmpfsUse {
    /// What it may hold at most; 0 where there is no limit, or no tmpfs.
    pub size_pages: u64,
    pub used_pages: i64,
    pub device: u32,
    reserved: u32,
}

impl TmpfsUse {
    /// Of the file that a vm_area_struct maps.
    #[inline(always)]
    pub fn of_mapping(mapping: u64) -> Self {
        let file: u64 = read(mapping, layout!(vma_file));
        let inode: u64 = read(file, layout!(file_inode));
        let sb: u64 = read(inode, layout!(inode_sb));
        if read::<u64>(sb, layout!(sb_magic)) != TMPFS_MAGIC {
            return Self::default();
        }
        let shmem: u64 = read(sb, layout!(sb_fs_info));
        let parts = match layout!(shmem_used_parts) {
            0 => 0,
            offset => memtrace_sum_one(read(shmem, offset)),
        };
        Self {
            size_pages: read(shmem, layout!(shmem_max)),
            used_pages: read::<i64>(shmem, layout!(shmem_used)) + parts,
            device: read(sb, layout!(sb_dev)),
            reserved: 0,
        }
    }
}

/// Per-CPU pointers to what the CPUs have not handed in yet, one for each counter of an
/// address space, in the order of the kernel's enum. Since 6.6 (percpu_counter_init_many)
/// the parts of a CPU lie side by side.
pub struct Parts {
    pub file: u64,
    pub anon: u64,
    pub swap: u64,
    pub shmem: u64,
}

/// Where a counter stands for one CPU, in pages.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Standing {
    /// What the CPUs have handed in.
    handed_in: i64,
    /// What this CPU has not: less than a batch, either way.
    part: i64,
}

impl Standing {
    #[inline(always)]
    pub fn new(handed_in: i64, parts: u64) -> Self {
        // SAFETY: the helper takes no arguments and cannot fail.
        let cpu = unsafe { bpf_get_smp_processor_id() };
        let offset = CPU_OFFSETS.get(cpu).copied().unwrap_or(0);
        Self {
            handed_in,
            part: i64::from(read::<i32>(parts + offset, 0)),
        }
    }

    /// What one page fault on this CPU brought, by where the counter stands after it. The part tells, unless
    /// it was handed in: other CPUs may hand in theirs meanwhile. A page fault brings a power of two of
    /// pages; where the sum is none, it nearly always brought one.
    #[inline(always)]
    pub fn brought(&self, after: &Self) -> i64 {
        if after.part != 0 {
            return after.part - self.part;
        }
        let pages = after.handed_in - self.handed_in - self.part;
        if pages <= 0 || pages & (pages - 1) == 0 {
            pages
        } else {
            1
        }
    }
}

/// Length of one part.
const PART_LEN: u64 = size_of::<i32>() as u64;

/// Calls `add` with every CPU's offset from a per-CPU pointer.
#[inline(always)]
fn for_each_cpu(mut add: impl FnMut(u64)) {
    let mut cpu = 0;
    while cpu < layout!(cpu_count) {
        if let Some(offset) = CPU_OFFSETS.get(cpu) {
            add(*offset);
        }
        cpu += 1;
    }
}

/// Sums the per-CPU parts of four counters. A function of its own for the verifier's sake:
/// the stack stays small.
#[inline(never)]
fn sum_all(parts: u64, sums: &mut [i64; 4]) {
    for_each_cpu(|offset| {
        let [file, anon, swap, shmem] = read::<[i32; 4]>(parts + offset, 0);
        sums[0] += i64::from(file);
        sums[1] += i64::from(anon);
        sums[2] += i64::from(swap);
        sums[3] += i64::from(shmem);
    });
}

/// Sums the per-CPU parts of two counters: the first in the lower half. A global function
/// of numbers alone, whose loop the verifier walks once, however often it is called (5.6).
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn memtrace_sum_two(parts: u64) -> i64 {
    let mut sums = [0_i32; 2];
    for_each_cpu(|offset| {
        let [first, second] = read::<[i32; 2]>(parts + offset, 0);
        sums[0] = sums[0].wrapping_add(first);
        sums[1] = sums[1].wrapping_add(second);
    });
    (i64::from(sums[1]) << 32) | i64::from(sums[0].cast_unsigned())
}

/// The same for one.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn memtrace_sum_one(parts: u64) -> i64 {
    let mut sum = 0;
    for_each_cpu(|offset| sum += i64::from(read::<i32>(parts + offset, 0)));
    sum
}
