//! Whose the output of a wrapper is: a shell that runs a program writes nothing itself that a rule for
//! log lines looks for.

use super::ProcessTable;
use memtrace_model::{BootNs, ProcessRow, Upid};

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
/// Wrappers nest a few levels deep.
const MAX_LEVELS: usize = 8;

impl ProcessTable {
    /// The program that a wrapper ran at an instant, below however many other wrappers: the process
    /// itself where it is none, or ran several or nothing.
    pub fn wrapped(&self, upid: Upid, at: BootNs) -> Option<&ProcessRow> {
        let mut program = self.row(upid)?;
        for _ in 0..MAX_LEVELS {
            let is_wrapper = WRAPPERS.contains(&program.comm.as_str());
            match self.only_child(program.upid, at).filter(|_| is_wrapper) {
                Some(child) => program = child,
                None => break,
            }
        }
        Some(program)
    }

    fn only_child(&self, parent: Upid, at: BootNs) -> Option<&ProcessRow> {
        let living = self.processes().map(super::Process::row);
        let ended = self.ended.iter().chain(&self.recently_ended);
        let mut children = living.chain(ended).filter(|row| {
            row.parent_upid == Some(parent)
                && row.start_boot_ns <= at
                && row.exit_boot_ns.is_none_or(|exit| at <= exit)
        });
        let first = children.next()?;
        children.all(|row| row.upid == first.upid).then_some(first)
    }
}
