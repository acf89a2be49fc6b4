//! `survivor`: processes that were still alive when a recording ended.

use crate::labels;
use crate::table::table;
use crate::{BootNs, Bytes, Tgid, Upid, WallNs};

table! {
    /// A process of the recorded tree that was still alive at the end of the recording, with what it held then. One whose root had ended outlived what was recorded: nobody is waiting for it any more. Not written for a recording of the whole machine.
    pub struct SurvivorRow in "survivor" {
        /// Wall-clock time (UTC) when it was looked at.
        ts: WallNs,
        /// Time on CLOCK_BOOTTIME when it was looked at.
        boot_ns: BootNs,
        /// The process that was still alive.
        upid: Upid,
        /// Its process id.
        tgid: Tgid,
        /// Whether the root of its tree had ended: it outlived the command, or the process that was asked for.
        has_root_ended: bool,
        /// Process id of its parent by then; init, or a subreaper, where the one that forked it has ended. Null when unknown.
        parent_tgid: Option<Tgid>,
        /// Name of that parent.
        parent_comm: Option<String>,
        /// Resident anonymous memory.
        rss_anon_bytes: Option<Bytes>,
        /// Resident pages of mapped files.
        rss_file_bytes: Option<Bytes>,
        /// Resident shared memory.
        rss_shmem_bytes: Option<Bytes>,
        /// Pages swapped out.
        swap_bytes: Option<Bytes>,
        /// Memory that it was last seen to hold on all recorded GPUs, zero where it was on none; null without a GPU, and where the driver does not tell.
        gpu_bytes: Option<Bytes>,
        /// What became of it.
        fate: Option<Fate>,
    }
}

impl SurvivorRow {
    /// Resident memory, and what was swapped out; `None` when a kind is unknown.
    pub fn held_bytes(&self) -> Option<Bytes> {
        let rss = self.rss_anon_bytes? + self.rss_file_bytes? + self.rss_shmem_bytes?;
        Some(rss + self.swap_bytes.unwrap_or(Bytes(0)))
    }
}

labels! {
    /// What became of a process that was alive at the end of a recording.
    pub enum Fate {
        /// It was left alone.
        Left = "left" | "lives on",
        /// `--kill-survivors` sent SIGTERM, or others did, and it ended.
        Terminated = "terminated" | "ended (SIGTERM)",
        /// `--kill-survivors` had to send SIGKILL.
        Killed = "killed" | "ended (SIGKILL)",
        /// It was to be ended, and the kernel refused the signal.
        Refused = "refused" | "lives on, the kernel refused the signal",
        /// It was to be ended, and memtrace could not make sure that the process with this id is still the one that was recorded.
        Unsure = "unsure" | "not ended, its identity is uncertain",
        /// It was still there after SIGKILL: it waits in the kernel.
        Stuck = "stuck" | "still there after SIGKILL",
    }
}
