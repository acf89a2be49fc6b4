//! Classes of loss, each with a per-CPU counter.

/// What could not be handed over, as the index of its counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum LossClass {
    /// An exit found the ring full, and the map that keeps ends meanwhile too; or an exec of a
    /// process that is only offered to `--match` found the ring full. Forks and execs of members
    /// are kept with the member and are not lost.
    Lifecycle = 0,
    /// A sample found the ring full, or nearly so: the last quarter is kept for lifecycle
    /// events. The next sweep sends the state that was missed.
    Sample = 1,
    /// An OOM event found the ring full.
    Oom = 2,
    /// The table of members was full: a process was not followed.
    Members = 3,
    /// The sums of a process's calls on its address space were lost with its end, or never
    /// taken. An event that finds the ring nearly full is summed and not lost.
    Vm = 4,
    /// A name event found the ring nearly full: the last quarter is kept for starts and ends.
    Title = 5,
    /// An end found the ring full, and what is kept of it does not say who sent the signal; or the
    /// kernel had no memory for the sender of one that asked a process to end.
    Sender = 6,
    /// A sample of growth found the ring of stacks full, or the mapping of a copied page being changed.
    Stack = 7,
    /// A call of the CUDA driver found the ring half full, or too many were under way.
    Cuda = 8,
}

impl LossClass {
    /// Every class.
    pub const ALL: [Self; 9] = [
        Self::Lifecycle,
        Self::Sample,
        Self::Oom,
        Self::Members,
        Self::Vm,
        Self::Title,
        Self::Sender,
        Self::Stack,
        Self::Cuda,
    ];

    /// Its name in a recording.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lifecycle => "lifecycle",
            Self::Sample => "sample",
            Self::Oom => "oom",
            Self::Members => "members",
            Self::Vm => "vm",
            Self::Title => "title",
            Self::Sender => "sender",
            Self::Stack => "stack",
            Self::Cuda => "cuda",
        }
    }

    /// What its loss means for the person who reads the recording.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Lifecycle => {
                "starts or ends of processes were lost: the event ring and the table that keeps \
                 ends meanwhile were full"
            }
            Self::Sample => {
                "samples came late: the event ring was nearly full; peaks are not affected"
            }
            Self::Oom => "OOM events were lost: the event ring was full",
            Self::Members => "processes were not followed: the table of members was full",
            Self::Vm => {
                "mmap, munmap, mremap, brk and madvise of some processes are missing from vm_summary: \
                 the event ring or the table of processes was full"
            }
            Self::Title => {
                "names that processes took were lost: the event ring was nearly full; what each is \
                 called since is known"
            }
            Self::Sender => {
                "who sent the signal that ended some processes is not known: the event ring was full, \
                 or the kernel had no memory"
            }
            Self::Stack => {
                "samples of growth were lost: the ring of stacks was full, or another thread held \
                 the lock of the mappings; what allocated it is shown too small"
            }
            Self::Cuda => {
                "calls of the CUDA driver were lost: the event ring was half full; what is held by \
                 kind of GPU memory is not whole from here on"
            }
        }
    }
}
