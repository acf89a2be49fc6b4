//! Whose the output of a wrapper is: a shell that runs a program writes nothing itself that a rule for
//! log lines looks for.

use super::ProcessTable;
use memtrace_model::{BootNs, DurationNs, ProcessRow, Tgid, Upid};

/// Programs that run others and wait for them, by the kernel's names.
const WRAPPERS: [&str; 13] = [
    "bash",
    "sh",
    "dash",
    "zsh",
    "ksh",
    "fish",
    "sudo",
    "timeout",
    "time",
    "uv",
    "tini",
    "dumb-init",
    "catatonit",
];
/// A program that was started later is no server yet that reports something; `sleep` between two lines
/// of the shell itself is.
const SETTLED: DurationNs = DurationNs(1_000_000_000);
/// Wrappers nest a few levels deep.
const MAX_LEVELS: usize = 8;

impl ProcessTable {
    /// The program that a wrapper ran at an instant, below however many other wrappers: the process
    /// itself where it is none, or ran several or nothing. The news that a process has ended can be on
    /// its way: whether one runs says `is_running`.
    pub fn wrapped(
        &self,
        upid: Upid,
        at: BootNs,
        is_running: impl Fn(Tgid) -> bool,
    ) -> Option<&ProcessRow> {
        let mut program = self.row(upid)?;
        for _ in 0..MAX_LEVELS {
            if !WRAPPERS.contains(&program.comm.as_str()) {
                break;
            }
            match self.only_child(program.upid, at) {
                Some(child) if child.exit_boot_ns.is_some() || is_running(child.tgid) => {
                    program = child;
                }
                _ => break,
            }
        }
        Some(program)
    }

    fn only_child(&self, parent: Upid, at: BootNs) -> Option<&ProcessRow> {
        let living = self.processes().map(super::Process::row);
        let ended = self.ended.iter().chain(&self.recently_ended);
        let mut children = living.chain(ended).filter(|row| {
            row.parent_upid == Some(parent)
                && row.start_boot_ns + SETTLED <= at
                && row.exit_boot_ns.is_none_or(|exit| at <= exit)
        });
        let first = children.next()?;
        children.all(|row| row.upid == first.upid).then_some(first)
    }
}
