//! Runs that attached programs missed: the kernel leaves a program out where it runs on that
//! CPU already, and a kretprobe where more calls than it has room for are under way.
//!
//! Whoever looks is counted with the rest: the counts are of the whole machine, so they are
//! an upper bound of what a recording misses, and are said to be one.

use super::load::Programs;
use super::{calls, cuda};
use crate::Pass;
use memtrace_model::DiagKind;
use std::collections::HashMap;

/// What was reported so far, by program.
#[derive(Default)]
pub(super) struct Misses(HashMap<String, u64>);

impl Misses {
    /// Writes what came to it since the last call. True where a start or an end can be among
    /// what was missed.
    pub(super) fn write(&mut self, programs: &Programs, pass: &mut Pass<'_>) -> bool {
        let mut is_lifecycle = false;
        for (program, now) in programs.missed_runs() {
            let detail = detail(&program);
            let reported = self.0.entry(program.clone()).or_insert(0);
            let count = now.saturating_sub(*reported).cast_signed();
            *reported = now;
            if count == 0 {
                continue;
            }
            is_lifecycle |= program.starts_with("sched_process_");
            pass.table.add_lost_events(count);
            pass.tell_degraded(DiagKind::LostEvents, &program, Some(count), detail);
        }
        is_lifecycle
    }
}

fn detail(program: &str) -> String {
    let what = if calls::is_program(program) {
        "calls of mmap, munmap, mremap, brk or madvise that no probe had room for"
    } else if cuda::is_program(program) {
        "calls of the CUDA driver that the kernel left out"
    } else {
        "runs of a program that the kernel left out"
    };
    format!("{what}; of any process on the machine, so at most so many are missing here")
}
