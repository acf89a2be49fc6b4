//! Processes that no event of their start reported: found running, or known by their end alone.

use super::names::title;
use super::{Apply, Unnamed};
use crate::bpf::decode::{boot, comm_text};
use crate::bpf::known::{current, identity};
use crate::bpf::peaks::Seen;
use crate::procfs::{command_line, set_text};
use crate::{Birth, Pass, Process};
use memtrace_abi::{EndedKey, Origin, TaskSeen};
use memtrace_host::clock;
use memtrace_model::{BootNs, DurationNs, FirstSeenBy, MemSource, Tgid, TitleSource, Upid};
use std::sync::Arc;

impl Apply {
    /// A process that the kernel found running: one that it did not follow before, or one whose
    /// start found the ring full. What only /proc knows of it is looked up later, but of the
    /// command that is held, whose command line is given.
    pub(in crate::bpf) fn seen(
        &mut self,
        task: &TaskSeen,
        held: Option<&str>,
        pass: &mut Pass<'_>,
    ) {
        // The ring may hold samples of one that was followed before, which are older than this.
        let is_first_seen = task.is_adopted != 0;
        let at = boot(if is_first_seen {
            task.boot_ns
        } else {
            task.start_boot_ns
        });
        let birth = Birth {
            tgid: Tgid(task.tgid),
            start: boot(task.start_boot_ns),
            seen_by: match held {
                Some(_) => FirstSeenBy::Command,
                None if task.was_fork_seen != 0 => FirstSeenBy::Fork,
                None => FirstSeenBy::Snapshot,
            },
            parent: current(pass.table, task.parent_tgid, task.parent_start_boot_ns),
            comm: comm_text(&task.comm),
        };
        if held.is_some() {
            self.held = Some(birth.tgid);
        }
        let upid = pass.table.enter(birth, at);
        let peak = self
            .peaks
            .of_kernel(task.hiwater_pages, &task.counts, Seen::NEVER);
        if let Some(process) = pass.table.process_mut(upid) {
            self.describe(process.row_mut(), &task.into(), at);
            // It may have called exec since it was forked.
            process.row_mut().exe = None;
            process.row_mut().cmdline = held.map(Arc::from);
            process.keep_names();
            // Where it was followed before, its execs are reported by themselves.
            process.set_execs(if is_first_seen { task.execs } else { 0 });
            if held.is_some() {
                let shown = process.row().cmdline.clone();
                pass.out
                    .push(title(process, shown, TitleSource::First, at, pass.tick));
            } else {
                process.raise_peak(peak);
            }
            if held.is_none() && process.execs() == Some(task.execs) {
                self.unnamed.push_back(Unnamed {
                    upid,
                    at,
                    source: TitleSource::First,
                });
            }
        }
        if held.is_none() && is_first_seen {
            self.write_mem(upid, &task.counts, at, MemSource::First, pass);
        }
    }

    /// Looks up in /proc who was found running, for so much CPU time: it takes tens of
    /// microseconds for each.
    pub(in crate::bpf) fn name_some(&mut self, most: DurationNs, pass: &mut Pass<'_>) {
        if self.unnamed.is_empty() {
            return;
        }
        let started = clock::thread_cpu();
        while clock::thread_cpu().0 - started.0 < most.0
            && let Some(Unnamed { upid, at, source }) = self.unnamed.pop_front()
        {
            let Some(row) = pass.table.process(upid).map(Process::row) else {
                continue;
            };
            if row.exe.is_some() || row.cmdline.is_some() {
                // It was seen calling exec meanwhile.
                continue;
            }
            let identity = identity(row.tgid);
            // Most run what their parent runs.
            let parent = row.parent_upid.and_then(|parent| pass.table.row(parent));
            let parent = parent.map(|parent| (parent.exe.clone(), parent.cmdline.clone()));
            let (mut exe, mut cmdline) = parent.unwrap_or_default();
            if let Some(process) = pass.table.process_mut(upid) {
                if let Some(identity) = identity {
                    set_text(&mut exe, identity.exe.as_deref());
                    set_text(&mut cmdline, identity.cmdline.as_deref());
                    let row = process.row_mut();
                    (row.exe, row.cmdline) = (exe, cmdline);
                    process.keep_names();
                }
                let shown = process.row().cmdline.clone();
                pass.out.push(title(process, shown, source, at, pass.tick));
            }
        }
    }

    /// What a process is called now, after names were lost.
    pub(in crate::bpf) fn renamed(&self, upid: Upid, task: &TaskSeen, pass: &mut Pass<'_>) {
        let comm = comm_text(&task.comm);
        if let Some(process) = pass.table.process_mut(upid)
            && process.row().comm != comm
        {
            process.row_mut().comm = comm;
            let shown = identity(Tgid(task.tgid)).and_then(|found| found.cmdline);
            let shown = shown.map(Arc::from);
            let at = boot(task.boot_ns);
            pass.out
                .push(title(process, shown, TitleSource::Rename, at, pass.tick));
        }
    }

    /// The start of a process that has ended meanwhile, as its end tells it.
    pub(in crate::bpf) fn late_start(
        &mut self,
        key: &EndedKey,
        origin: &Origin,
        pass: &mut Pass<'_>,
    ) {
        let tgid = Tgid(key.tgid);
        if current(pass.table, key.tgid, key.start_boot_ns).is_some() {
            return;
        }
        let at = boot(key.start_boot_ns);
        let seen_by = if origin.was_fork_seen != 0 {
            FirstSeenBy::Fork
        } else {
            FirstSeenBy::Sample
        };
        let birth = Birth {
            tgid,
            start: at,
            seen_by,
            parent: current(pass.table, origin.parent_tgid, origin.parent_start_boot_ns),
            comm: comm_text(&origin.comm),
        };
        let upid = pass.table.enter(birth, at);
        if let Some(process) = pass.table.process_mut(upid) {
            self.describe(process.row_mut(), &origin.into(), at);
            process.set_execs(0);
        }
        // Most call it right after their fork; when it was is not kept.
        self.late_exec(upid, origin, at, pass);
    }

    /// A program of a process that has ended meanwhile, as its end tells it; nothing where the
    /// event of its exec did.
    fn late_exec(&mut self, upid: Upid, origin: &Origin, at: BootNs, pass: &mut Pass<'_>) {
        let execs = u32::from(origin.execs);
        let noted = pass.table.process(upid).and_then(Process::execs);
        if noted.is_none_or(|noted| noted == execs) {
            return;
        }
        pass.table.note_exec(upid, execs);
        self.unnamed_ended += 1;
        if let Some(process) = pass.table.process_mut(upid) {
            let row = process.row_mut();
            row.comm = comm_text(&origin.comm);
            row.exe = None;
            row.cmdline = kept_command_line(origin).map(Arc::from);
            let shown = row.cmdline.clone();
            pass.out
                .push(title(process, shown, TitleSource::Exec, at, pass.tick));
        }
    }

    /// A known process that the kernel found running: where the event of its exec found the ring
    /// full, what it runs now is looked up later.
    pub(in crate::bpf) fn seen_again(&mut self, upid: Upid, task: &TaskSeen, pass: &mut Pass<'_>) {
        let Some(process) = pass.table.process_mut(upid) else {
            return;
        };
        match process.execs() {
            Some(execs) if execs == task.execs => return,
            Some(_) => {}
            // Its program was looked up when it was found.
            None => {
                process.set_execs(task.execs);
                return;
            }
        }
        if self.held == Some(Tgid(task.tgid)) {
            self.held = None;
        }
        let at = boot(task.exec_boot_ns);
        pass.table.note_exec(upid, task.execs);
        if let Some(process) = pass.table.process_mut(upid) {
            self.describe(process.row_mut(), &task.into(), at);
            let row = process.row_mut();
            row.exe = None;
            row.cmdline = None;
            self.unnamed.push_back(Unnamed {
                upid,
                at,
                source: TitleSource::Exec,
            });
        }
        let read = boot(task.boot_ns);
        self.write_mem(upid, &task.counts, read, MemSource::Snapshot, pass);
    }

    /// Of how many processes that ended the file they ran, and a long command line, were lost
    /// since the last call.
    pub(in crate::bpf) fn take_unnamed(&mut self) -> i64 {
        std::mem::take(&mut self.unnamed_ended)
    }

    /// Adds what an end tells of a process that was entered without knowing where it comes from.
    /// A name that it took and that was lost stands at the end.
    pub(super) fn complete(
        &mut self,
        upid: Upid,
        origin: &Origin,
        at: BootNs,
        pass: &mut Pass<'_>,
    ) {
        let parent = current(pass.table, origin.parent_tgid, origin.parent_start_boot_ns);
        let Some(row) = pass.table.row(upid) else {
            return;
        };
        if row.parent_upid.is_none()
            && origin.was_fork_seen != 0
            && let Some(parent) = parent
        {
            pass.table.note_parent(upid, parent);
        }
        self.late_exec(upid, origin, at, pass);
        if let Some(process) = pass.table.process_mut(upid) {
            let row = process.row_mut();
            row.uid.get_or_insert(i64::from(origin.uid));
            if row.cmdline.is_none() {
                row.cmdline = kept_command_line(origin).map(Arc::from);
            }
            let comm = comm_text(&origin.comm);
            if row.comm != comm && !comm.is_empty() {
                row.comm = comm;
                let shown = row.cmdline.clone();
                pass.out
                    .push(title(process, shown, TitleSource::Rename, at, pass.tick));
            }
        }
    }
}

/// The command line of a process whose end tells it: `None` where it is longer than what the
/// kernel kept.
fn kept_command_line(origin: &Origin) -> Option<String> {
    command_line(origin.args.get(..usize::from(origin.args_len))?)
}
