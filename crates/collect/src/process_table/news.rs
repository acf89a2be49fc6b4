//! What one collector has for another: lists that grow until somebody takes them.

use crate::SectionNews;
use memtrace_model::{BootNs, CudaCallRow, Role, Tgid, TmpfsRow, Upid};
use std::os::fd::OwnedFd;

/// What a process is, reported by something other than its names.
#[derive(Clone, Debug)]
pub struct RoleDeclaration {
    /// The process id that it had then.
    pub tgid: Tgid,
    /// When that was so: the id can be another's later.
    pub at: BootNs,
    /// What it is.
    pub role: Role,
}

/// What came since it was last taken. A list for which nobody may be there, or that a program can
/// fill without end, has a function that bounds it.
#[derive(Debug, Default)]
pub struct News {
    /// What processes were said to be.
    pub roles: Vec<RoleDeclaration>,
    /// Running processes that the backend is to take into the recording, whatever their names.
    pub adoption_requests: Vec<Tgid>,
    /// Calls of the CUDA driver whose stack is still to be named; whoever names them writes them.
    pub cuda_calls: Vec<CudaCallRow>,
    /// Whom a driver lists as holding memory of a GPU.
    pub on_gpus: Vec<Upid>,
    /// What processes tell or ask of their sections.
    pub sections: Vec<SectionNews>,
    /// For whom the kernel killed somebody.
    pub killed_for: Vec<Upid>,
    /// How full a tmpfs was when a page of it could not be had.
    pub full_tmpfs: Vec<TmpfsRow>,
    /// Logs of recorded programs that say whom they kill.
    pub logs: Vec<(Upid, OwnedFd)>,
    /// Processes whose command line was cut, because those of all others took all the room that
    /// there is.
    pub cut_names_count: i64,
}

/// So many wait for whoever takes them, if anybody does.
const KILLED_FOR_MAX: usize = 64;
/// So many devices are noted: a program that handles SIGBUS can cause it without end.
const FULL_TMPFS_MAX: usize = 8;
const LOGS_MAX: usize = 16;

impl News {
    /// Notes that the kernel killed somebody since this process asked for memory.
    pub fn note_killed_for(&mut self, upid: Upid) {
        if self.killed_for.len() < KILLED_FOR_MAX {
            self.killed_for.push(upid);
        }
    }

    /// Notes how full a tmpfs was when a page of it could not be had; where it is mounted is left
    /// empty.
    pub fn note_full_tmpfs(&mut self, seen: TmpfsRow) {
        self.full_tmpfs.retain(|known| known.device != seen.device);
        if self.full_tmpfs.len() < FULL_TMPFS_MAX {
            self.full_tmpfs.push(seen);
        }
    }

    /// Notes the log of a recorded program that says whom it kills.
    pub fn note_log(&mut self, upid: Upid, log: OwnedFd) {
        if self.logs.len() < LOGS_MAX {
            self.logs.push((upid, log));
        }
    }
}
