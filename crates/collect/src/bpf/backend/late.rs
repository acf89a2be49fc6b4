//! Starts, execs and ends that found the ring full: the kernel kept them with the members and in a
//! table, and here they are put between the events of the ring in the order in which they
//! happened.

use super::BpfBackend;
use crate::bpf::apply::Apply;
use crate::bpf::error::LoadError;
use crate::bpf::known::current;
use crate::{Pass, ProcessTable};
use memtrace_abi::{Ended, EndedKey, TaskSeen};
use memtrace_model::DiagKind;
use std::cmp::Reverse;

/// So many starts and ends are applied at a time: their rows go to the store before the next.
const STEPS_MAX: usize = 8 * 1024;

/// What is known and not yet applied.
#[derive(Default)]
pub(super) struct Late {
    /// How many the kernel had kept when it was last asked.
    kept: u64,
    /// The latest last.
    steps: Vec<Step>,
    ended: Vec<(EndedKey, Ended)>,
    running: Vec<TaskSeen>,
    /// Steps that may still be applied in this turn.
    left: usize,
}

/// One start or end. What it is about stands in the lists of [`Late`].
#[derive(Clone, Copy)]
struct Step {
    boot_ns: u64,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    /// The start of a process that has ended since.
    Start(usize),
    End(usize),
    /// The start of one that runs.
    Running(usize),
    /// The last exec of one that runs.
    RunningExec(usize),
}

impl Late {
    /// Whether all was applied.
    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Applies what happened until `boot_ns`. False where more did than one turn may take.
    pub(super) fn apply_until(
        &mut self,
        boot_ns: u64,
        apply: &mut Apply,
        pass: &mut Pass<'_>,
    ) -> bool {
        while let Some(step) = self.steps.last().copied() {
            if step.boot_ns > boot_ns {
                return true;
            }
            if self.left == 0 {
                return false;
            }
            self.left -= 1;
            self.steps.pop();
            match step.what {
                What::Start(at) => {
                    if let Some((key, ended)) = self.ended.get(at) {
                        apply.late_start(key, &ended.origin, pass);
                    }
                }
                What::End(at) => {
                    if let Some((key, ended)) = self.ended.get(at) {
                        apply.end(key, ended, None, pass);
                    }
                }
                What::Running(at) => {
                    if let Some(task) = self.running.get(at)
                        && current(pass.table, task.tgid, task.start_boot_ns).is_none()
                    {
                        apply.seen(task, None, pass);
                    }
                }
                What::RunningExec(at) => {
                    if let Some(task) = self.running.get(at)
                        && let Some(upid) = current(pass.table, task.tgid, task.start_boot_ns)
                    {
                        apply.seen_again(upid, task, pass);
                    }
                }
            }
        }
        self.ended = Vec::new();
        self.running = Vec::new();
        true
    }
}

/// Behind the event of an exec, if there is one.
fn after_exec(boot_ns: u64) -> u64 {
    boot_ns + 1
}

impl BpfBackend {
    /// Finds out what found the ring full since the last call, and lets one more turn of it be
    /// applied. One system call where nothing did.
    pub(super) fn look_for_late(&mut self, table: &ProcessTable) -> Result<(), LoadError> {
        self.late.left = STEPS_MAX;
        let kept = self.programs.kept();
        if kept == self.late.kept {
            return Ok(());
        }
        // The living after the dead: who dies in between was kept, or is in the ring.
        let first = self.late.ended.len();
        let taken = self.programs.take_ended(&mut self.late.ended);
        let ended = self.late.ended.iter().enumerate().skip(first);
        for (at, (key, ended)) in ended {
            let steps = [
                (key.start_boot_ns, What::Start(at)),
                (ended.boot_ns, What::End(at)),
            ];
            let steps = steps.map(|(boot_ns, what)| Step { boot_ns, what });
            self.late.steps.extend(steps);
        }
        let late = &mut self.late;
        let visited = self.programs.visit_tasks(|task| {
            let known = current(table, task.tgid, task.start_boot_ns);
            let known = known.and_then(|upid| table.process(upid));
            // An exec that is missing may still be in the ring.
            let is_behind = known.is_none_or(|process| process.execs().unwrap_or(0) != task.execs);
            if task.is_member == 0 || !is_behind {
                return;
            }
            let at = late.running.len();
            let start = known
                .is_none()
                .then_some((task.start_boot_ns, What::Running(at)));
            let exec =
                (task.execs != 0).then(|| (after_exec(task.exec_boot_ns), What::RunningExec(at)));
            let steps = start.into_iter().chain(exec);
            late.steps
                .extend(steps.map(|(boot_ns, what)| Step { boot_ns, what }));
            late.running.push(*task);
        });
        // They are taken from the end of the list.
        let is_end = |step: &Step| matches!(step.what, What::End(_));
        late.steps
            .sort_unstable_by_key(|step| Reverse((step.boot_ns, is_end(step))));
        self.wants_keyframe = true;
        taken?;
        visited?;
        // Else the next call tries again.
        self.late.kept = kept;
        Ok(())
    }

    /// Tells of how many processes something is missing.
    pub(super) fn report_unnamed(&mut self, pass: &mut Pass<'_>) {
        let count = self.apply.take_unnamed();
        if count > 0 {
            pass.tell_degraded(
                DiagKind::LostEvents,
                "exec",
                Some(count),
                "the file that processes ran, and their command line where it is longer than 64 \
                 bytes, are unknown: they ended while the event ring was full; their starts, ends \
                 and peaks are known",
            );
        }
    }
}
