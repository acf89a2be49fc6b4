//! `process`: one row per process that ever belonged to the recording.

use crate::labels;
use crate::table::table;
use crate::{BootNs, Bytes, Tgid, Upid};
use std::sync::Arc;

table! {
    /// One row per process that ever belonged to the recording, also one that lived for a millisecond.
    pub struct ProcessRow in "process" keyed by "upid" {
        /// Identity of the process within this recording; joins with every other table. Never reused.
        upid: Upid,
        /// Process id in the initial pid namespace, or in memtrace's own where it runs inside one. Reused by the kernel.
        tgid: Tgid,
        /// Process id in the process's own (innermost) pid namespace; null when unknown.
        ns_tgid: Option<Tgid>,
        /// The process that forked it, also after reparenting; null for a root of the recording, or when the parent was never seen.
        parent_upid: Option<Upid>,
        /// The root of the tree it belongs to: the command, the pid that was asked for, or the process that matched.
        root_upid: Option<Upid>,
        /// Name as the kernel keeps it, cut at 15 bytes; the last one seen.
        comm: String,
        /// File that was executed last; null when unknown.
        exe: Option<Arc<str>>,
        /// Command line of the last exec, arguments joined by spaces, cut at 4,096 bytes; null when unknown. Titles set later are in `title`.
        cmdline: Option<Arc<str>>,
        /// Real user id at the last exec or when first seen; null when unknown.
        uid: Option<i64>,
        /// Memory cgroup, as a path below its hierarchy's mount point; null when unknown.
        cgroup: Option<Arc<str>>,
        /// Container id found in the cgroup path; null when there is none.
        container_id: Option<Arc<str>>,
        /// Pod of Kubernetes, "namespace/name"; null outside of one, and where the node keeps no logs of it.
        pod: Option<Arc<str>>,
        /// Name of its container in that pod; null where the node keeps no logs of it.
        container: Option<Arc<str>>,
        /// What it is to its framework: "worker", "actor Trainer"; the last role of the most weight that its names reported since its last exec. Null when no rule knows it (docs/roles.md).
        role: Option<String>,
        /// The framework it belongs to, "vLLM" or "Ray" for example; a helper belongs to the one that started it. Null when none is known.
        framework: Option<String>,
        /// Which of several it is, as its title or its environment tells: "TP0", "DP1_TP0", "3". Null when there is only one, or nothing tells.
        rank: Option<String>,
        /// Start of the process. Exact with `bpf`; in steps of 10 ms where it comes from /proc.
        start_boot_ns: BootNs,
        /// When the recording first saw it; later than the start for a process that was already running.
        first_seen_boot_ns: BootNs,
        /// Which observation saw it first.
        first_seen_by: Option<FirstSeenBy>,
        /// End of the process; null while it runs, and when the end was not observed.
        exit_boot_ns: Option<BootNs>,
        /// Exit code; null while it runs, when a signal ended it, and when unknown.
        exit_code: Option<i32>,
        /// Number of the signal that ended it; null otherwise.
        exit_signal: Option<i32>,
        /// Why that signal was sent: si_code of sigaction(2). 0 and below: a process sent it (0 by kill, -6 by tgkill or raise), or a timer (-2); above 0: the kernel did, for a fault (SEGV_MAPERR is 1) or else with 128. Null when unknown: no signal, no `bpf` backend, or a loss.
        exit_signal_code: Option<i32>,
        /// The process that sent that signal, itself where it did; where `exit_signal_code` is 128, the one whose end made the kernel send it. Null where the kernel sent it, where that process is not recorded, and when unknown.
        exit_signal_sender_upid: Option<Upid>,
        /// Process id of that sender, recorded or not, in the initial pid namespace, or in memtrace's own where it runs inside one. Null where the kernel sent the signal, and when unknown.
        exit_signal_sender_tgid: Option<Tgid>,
        /// Name of that sender as the kernel keeps it, when it sent the signal. Null as `exit_signal_sender_tgid`.
        exit_signal_sender_comm: Option<String>,
        /// Number of the last termination signal that another process or the kernel sent it and it did not ignore: SIGHUP, SIGINT, SIGQUIT or SIGTERM. It can have handled it and ended in another way. Written with its end; null where none was sent, and without `bpf`.
        termination_signal: Option<i32>,
        /// When that was sent.
        termination_signal_boot_ns: Option<BootNs>,
        /// The process that sent it, as `exit_signal_sender_upid`.
        termination_signal_sender_upid: Option<Upid>,
        /// Process id of that sender, as `exit_signal_sender_tgid`: null where the kernel sent it, for Ctrl-C for example.
        termination_signal_sender_tgid: Option<Tgid>,
        /// Name of that sender as the kernel keeps it, when it sent the signal.
        termination_signal_sender_comm: Option<String>,
        /// Its soft limit of address space (RLIMIT_AS), which an allocation beyond it meets as ENOMEM: MemoryError in Python. Read within a second of when the process is first seen or executes another program, then after 2 seconds and ever more rarely, up to every 64 seconds, and with BPF at its end; null without a limit, and when unknown.
        rlimit_as_bytes: Option<Bytes>,
        /// Its soft limit of private writable memory (RLIMIT_DATA), in the same way.
        rlimit_data_bytes: Option<Bytes>,
        /// True when the kernel's OOM killer chose it; null when OOM events could not be observed.
        oom_killed: Option<bool>,
        /// Highest RSS (anonymous + file + shared memory) of the process's own address spaces. An address space borrowed through vfork never counts. Of a copy that fork made and exec replaced only what it grew by since the fork counts; one that never called exec counts whole, see `inherited_rss_bytes`.
        peak_rss_bytes: Option<Bytes>,
        /// Where `peak_rss_bytes` comes from.
        peak_rss_source: Option<PeakSource>,
        /// Bound on how far `peak_rss_bytes` can be from the truth because the kernel's own per-CPU counters are approximate; null when no bound is known (a poll can miss any peak).
        peak_error_bytes: Option<Bytes>,
        /// When the peak was reached; null when only the kernel's high-water mark knows it, which carries no time.
        peak_rss_boot_ns: Option<BootNs>,
        /// RSS that fork gave the address space it runs in: pages it shared copy-on-write with its parent then. What it held for itself at its peak is between `peak_rss_bytes` less this and `peak_rss_bytes`. Zero after exec; null when unknown: it was already running, or a poll saw it.
        inherited_rss_bytes: Option<Bytes>,
        /// Anonymous part of `inherited_rss_bytes`.
        inherited_anon_bytes: Option<Bytes>,
        /// What wait4(2) reports as ru_maxrss, to the page: the highest RSS of the process or of any child it waited for, in every address space it used, borrowed ones (vfork) included. Null while it runs, and when unknown.
        kernel_maxrss_bytes: Option<Bytes>,
    }
}

labels! {
    /// Which observation saw a process first.
    pub enum FirstSeenBy {
        /// It is the command that memtrace started, held until the probes were attached.
        Command = "command",
        /// The kernel's fork event.
        Fork = "fork",
        /// The kernel's exec event (a process that came in by cgroup or by match).
        Exec = "exec",
        /// The snapshot of running processes when recording started, or when a target was added.
        Snapshot = "snapshot",
        /// A later event or sample; its fork was not seen.
        Sample = "sample",
        /// A poll of /proc or of the platform's process list.
        Poll = "poll",
    }
}

labels! {
    /// Where a peak comes from.
    pub enum PeakSource {
        /// The kernel's high-water mark of the process's address space (mm->hiwater_rss and its counters, read at exit or in a snapshot).
        KernelHiwater = "kernel_hiwater" | "the kernel's high-water mark",
        /// The highest value that the rss_stat probe saw.
        RssStat = "rss_stat" | "the kernel's rss_stat events",
        /// VmHWM in /proc/PID/status, as last read; growth after that is not in it.
        VmHwm = "vm_hwm" | "VmHWM as last read",
        /// VmHWM as the process itself read it, right before it had the kernel reset it (a `peak` mark).
        SelfReported = "self" | "VmHWM as the process reported it",
        /// ru_maxrss from wait4(2); only for the command that memtrace started.
        Wait4 = "wait4" | "wait4's ru_maxrss",
        /// The highest value that a poll happened to see.
        Poll = "poll" | "polling",
        /// The platform's lifetime maximum of the physical footprint (macOS).
        Footprint = "footprint" | "the platform's footprint",
    }
}
