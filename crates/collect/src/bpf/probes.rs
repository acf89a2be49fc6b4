//! The programs that are attached, and what each hangs on.

use memtrace_host::btf::Btf;

/// What a program hangs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum On {
    /// A tracepoint of the program's own name, by tp_btf.
    Tracepoint,
    /// A tracepoint that another program hangs on already, by tp_btf.
    TracepointOf(&'static str),
    /// The entry of a kernel function of the program's own name, by fentry.
    FunctionEntry,
    /// The iterator over all tasks.
    TaskIterator,
}

/// A program that is attached.
#[derive(Debug)]
pub(super) struct Probe {
    /// Name of the program.
    pub(super) program: &'static str,
    /// What it hangs on.
    pub(super) on: On,
    /// What is lost without it; `None` where a recording would be missing processes or
    /// peaks.
    pub(super) without: Option<&'static str>,
}

/// The program of the task iterator.
pub(super) const TASK_ITERATOR: &str = "task_iter";
/// The program that sees OOM kills.
pub(super) const MARK_VICTIM: &str = "mark_victim";
/// The program that sees who sends a signal.
pub(super) const SIGNAL_GENERATE: &str = "signal_generate";
/// The program that sees how full a tmpfs is when a page of it can't be had.
pub(super) const TMPFS_FULL: &str = "tmpfs_full";
/// The program that sees a process end while its address space is still there: for kernels
/// whose exit tracepoint comes after that (before 6.16).
pub(super) const BEFORE_EXIT: &str = "taskstats_exit";

/// Every one, in the order in which they are attached: fork first, so that a snapshot taken
/// afterwards misses nobody.
pub(super) const PROBES: &[Probe] = &[
    Probe {
        program: "sched_process_fork",
        on: On::Tracepoint,
        without: None,
    },
    Probe {
        program: "sched_process_exit",
        on: On::Tracepoint,
        without: None,
    },
    Probe {
        program: "sched_process_exec",
        on: On::Tracepoint,
        without: None,
    },
    Probe {
        program: "rss_stat",
        on: On::Tracepoint,
        without: None,
    },
    Probe {
        program: TASK_ITERATOR,
        on: On::TaskIterator,
        without: None,
    },
    Probe {
        program: "task_rename",
        on: On::Tracepoint,
        without: Some("changes of names and titles are not seen as they happen"),
    },
    Probe {
        program: MARK_VICTIM,
        on: On::Tracepoint,
        without: Some("kills by the OOM killer are not seen as they happen"),
    },
    Probe {
        program: SIGNAL_GENERATE,
        on: On::Tracepoint,
        without: Some("who sent the signal that ended a process is not known"),
    },
    Probe {
        program: TMPFS_FULL,
        on: On::TracepointOf(SIGNAL_GENERATE),
        without: Some(
            "how full a tmpfs was is read only after a process has ended by SIGBUS, when its \
             files can be gone",
        ),
    },
    Probe {
        program: BEFORE_EXIT,
        on: On::FunctionEntry,
        without: Some(
            "the counters of a process are gone when its end is seen: its peak is what the \
             rss_stat program saw",
        ),
    },
];

impl Probe {
    /// The name of what it hangs on.
    pub(super) fn attached_to(&self) -> &'static str {
        match self.on {
            On::TracepointOf(tracepoint) => tracepoint,
            On::TaskIterator => "task",
            On::Tracepoint | On::FunctionEntry => self.program,
        }
    }

    /// What BTF calls it: the typedef of a tracepoint, or a function.
    pub(super) fn btf_name(&self) -> String {
        match self.on {
            On::Tracepoint | On::TracepointOf(_) => format!("btf_trace_{}", self.attached_to()),
            On::FunctionEntry => self.program.to_owned(),
            On::TaskIterator => "bpf_iter_task".to_owned(),
        }
    }

    /// What it is, for a person.
    pub(super) fn place(&self) -> String {
        match self.on {
            On::Tracepoint | On::TracepointOf(_) => format!("tracepoint {}", self.attached_to()),
            On::FunctionEntry => format!("function {}", self.program),
            On::TaskIterator => "task iterator (Linux 5.8)".to_owned(),
        }
    }

    /// Whether this kernel has what it hangs on.
    pub(super) fn is_offered(&self, btf: &Btf<'_>) -> bool {
        btf.has(&self.btf_name())
    }
}
