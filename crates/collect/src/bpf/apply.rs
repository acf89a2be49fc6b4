//! What an event means: rows of `mem`, `title` and `oom`, and changes to the process table.

mod found;
mod names;

use super::decode::{Event, boot, comm_text};
use super::known::{current, identity};
use super::layout::Counting;
use super::peaks::{Peaks, Seen};
use super::sender::Senders;
use super::vm;
use crate::cgroup::CgroupPaths;
use crate::container_id;
use crate::cuda::Ledgers;
use crate::procfs::command_line;
use crate::{Birth, Pass, Process, ProcessTable, Targets, Tick, exit_row};
use memtrace_abi::event::CUDA_LIBRARY;
use memtrace_abi::{
    Comm, Counts, CudaCall, Ended, EndedKey, EventHeader, Exec, Exit, Fork, FullTmpfs, Oom, Origin,
    Sample, SampleCause, TaskSeen, VmCall, VmTotals,
};
use memtrace_model::{
    BootNs, Bytes, FirstSeenBy, MemRow, MemSource, OomRow, Pages, ProcessRow, Record, Tgid,
    TitleSource, TmpfsRow, Upid,
};
use names::{executed_file, title};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Ended processes are remembered for a while, so that a sample that was on its way when
/// the end was seen does not bring them back to life.
const ENDED_MAX: usize = 1024;

/// Turns events into rows.
pub(super) struct Apply {
    peaks: Peaks,
    cgroups: Option<CgroupPaths>,
    ended: VecDeque<(Tgid, BootNs)>,
    matches: Vec<Tgid>,
    /// The command, as long as it is memtrace's own copy: what that holds is not its own.
    held: Option<Tgid>,
    pub(super) sums: vm::Sums,
    /// What is held of the CUDA driver.
    pub(super) cuda: Ledgers,
    /// Who mapped libcuda since the last call.
    cuda_mapped: BTreeSet<Tgid>,
    /// Whose program is not yet looked up in /proc.
    unnamed: VecDeque<Unnamed>,
    /// Of so many that ended the last program is not known in full.
    unnamed_ended: i64,
}

/// Runs a program that no event reported.
struct Unnamed {
    upid: Upid,
    /// When it was first seen with it.
    at: BootNs,
    source: TitleSource,
}

/// What an event knows of a process besides its memory.
struct Particulars<'a> {
    uid: u32,
    ns_tgid: u32,
    cgroup_id: u64,
    comm: &'a [u8],
}

/// Every event, and what the kernel keeps, names them alike.
macro_rules! particulars_of {
    ($($event:ty),+) => {
        $(impl<'a> From<&'a $event> for Particulars<'a> {
            fn from(event: &'a $event) -> Self {
                Self {
                    uid: event.uid,
                    ns_tgid: event.ns_tgid,
                    cgroup_id: event.cgroup_id,
                    comm: &event.comm,
                }
            }
        })+
    };
}

particulars_of!(Fork, Exec, TaskSeen, Origin);

impl Apply {
    pub(super) fn new(peaks: Peaks, cgroups: Option<CgroupPaths>) -> Self {
        Self {
            peaks,
            cgroups,
            ended: VecDeque::with_capacity(ENDED_MAX),
            matches: Vec::new(),
            held: None,
            sums: vm::Sums::default(),
            cuda: Ledgers::default(),
            cuda_mapped: BTreeSet::new(),
            unnamed: VecDeque::new(),
            unnamed_ended: 0,
        }
    }

    /// Strangers whose name came to match since the last call.
    pub(super) fn take_matches(&mut self) -> Vec<Tgid> {
        std::mem::take(&mut self.matches)
    }

    /// Who mapped libcuda since the last call.
    pub(super) fn take_cuda_mapped(&mut self) -> BTreeSet<Tgid> {
        std::mem::take(&mut self.cuda_mapped)
    }

    /// Keeps events that are still on their way from bringing an ended process back.
    pub(super) fn remember_end(&mut self, tgid: Tgid, start: BootNs) {
        if self.ended.len() == ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back((tgid, start));
    }

    /// Takes an event. Gives an OOM kill back, which the kernel log has yet to complete.
    pub(super) fn event(
        &mut self,
        event: Event<'_>,
        targets: &Targets,
        pass: &mut Pass<'_>,
    ) -> Option<OomRow> {
        match event {
            Event::Fork(fork) => self.fork(&fork, pass),
            Event::Exec(exec, path, args) if exec.is_member != 0 => {
                self.exec(&exec, path, args, pass);
            }
            Event::Comm(comm, args) if comm.is_member != 0 => {
                self.comm(&comm, args, pass);
            }
            Event::Exec(exec, _, args) => {
                self.unrecorded(exec.header.tgid, &exec.comm, args, targets)
            }
            Event::Comm(comm, args) => self.unrecorded(comm.header.tgid, &comm.comm, args, targets),
            Event::Exit(exit) => self.exit(&exit, pass),
            Event::Sample(sample) => self.sample(&sample, pass),
            Event::VmCall(call) => self.vm_call(&call, pass),
            Event::VmTotals(totals) => self.vm_totals(&totals, pass),
            Event::CudaCall(call) => self.cuda_call(&call, pass),
            Event::FullTmpfs(full) => self.full_tmpfs(&full, pass),
            Event::Oom(oom) => return Some(self.oom(&oom, pass)),
        }
        None
    }

    /// Notes how full a tmpfs was. Where it is mounted is for who knows mounts.
    fn full_tmpfs(&self, full: &FullTmpfs, pass: &mut Pass<'_>) {
        // Its end can be handled first: that comes by another ring.
        let start = boot(full.header.start_boot_ns);
        let Some(upid) = pass.table.identity(Tgid(full.header.tgid), start) else {
            return;
        };
        // As large as an option of the mount makes it, which anybody may have chosen.
        let size = i64::try_from(full.size_pages).unwrap_or(i64::MAX);
        // What CPUs have not handed in yet can make it less, and more than all.
        let used = full.used_pages.clamp(0, size);
        if self.peaks.counting != Counting::Exact && used < size / 2 {
            // They hold back more than it has, or it is not full: a later look tells.
            return;
        }
        let bytes = |pages| Pages(pages).to_bytes(self.peaks.page_size);
        let at = boot(full.header.boot_ns);
        pass.table.news.note_full_tmpfs(TmpfsRow {
            ts: pass.tick.clock.to_wall(at),
            boot_ns: at,
            device: format!("{}:{}", full.device >> 20, full.device & 0xf_ffff),
            mount_point: String::new(),
            seen_by_upid: upid,
            size_bytes: bytes(size),
            used_bytes: bytes(used),
        });
    }

    fn unrecorded(&mut self, tgid: u32, comm: &[u8], args: &[u8], targets: &Targets) {
        if targets.matches_name(&comm_text(comm), command_line(args).as_deref()) {
            self.matches.push(Tgid(tgid));
        }
    }

    fn describe(&mut self, row: &mut ProcessRow, particulars: &Particulars<'_>, now: BootNs) {
        row.uid = Some(i64::from(particulars.uid));
        row.ns_tgid = (particulars.ns_tgid != 0).then_some(Tgid(particulars.ns_tgid));
        row.comm = comm_text(particulars.comm);
        let Some(paths) = self.cgroups.as_mut().filter(|_| particulars.cgroup_id != 0) else {
            return;
        };
        // A group that came and went between two walks has no name here; the parent's would
        // be wrong.
        let path = paths.resolve(particulars.cgroup_id, now);
        if row.cgroup != path {
            row.container_id = path.as_deref().and_then(container_id).map(Arc::from);
            row.cgroup = path;
            (row.pod, row.container) = (None, None);
        }
    }

    fn fork(&mut self, fork: &Fork, pass: &mut Pass<'_>) {
        let tgid = Tgid(fork.header.tgid);
        if current(pass.table, fork.header.tgid, fork.header.start_boot_ns).is_some() {
            // The snapshot that follows attaching can find a child before its fork event
            // is read.
            return;
        }
        let at = boot(fork.header.boot_ns);
        let parent = current(pass.table, fork.parent_tgid, fork.parent_start_boot_ns);
        let birth = Birth {
            tgid,
            start: boot(fork.header.start_boot_ns),
            seen_by: FirstSeenBy::Fork,
            parent,
            comm: comm_text(&fork.comm),
        };
        let upid = pass.table.enter(birth, at);
        if let Some(process) = pass.table.process_mut(upid) {
            self.describe(process.row_mut(), &fork.into(), at);
            // Nothing, where it borrows its parent's address space until it calls exec.
            let bytes = |pages| Some(Pages(pages).to_bytes(self.peaks.page_size));
            let row = process.row_mut();
            row.inherited_rss_bytes = bytes(fork.counts.rss_pages());
            row.inherited_anon_bytes = bytes(fork.counts.anon_pages);
            process.set_execs(0);
        }
        if fork.is_mm_shared == 0 {
            self.write_mem(upid, &fork.counts, at, MemSource::First, pass);
        }
    }

    fn exec(&mut self, exec: &Exec, path: &[u8], args: &[u8], pass: &mut Pass<'_>) {
        let tgid = Tgid(exec.header.tgid);
        let at = boot(exec.header.boot_ns);
        let Some(upid) = self.resolve(&exec.header, FirstSeenBy::Exec, pass.table) else {
            return;
        };
        if self.held == Some(tgid) {
            self.held = None;
        }
        self.cuda.end(upid, tgid, at, pass);
        self.cuda.note_beginning(tgid);
        // Where a later one found the ring full, or the kernel was asked between the exec and its
        // event, it is noted already.
        let noted = pass.table.process(upid).and_then(Process::execs);
        match noted.map(|noted| later_execs(noted, exec.execs)) {
            Some(0) => {}
            Some(later) if later > 0 => return,
            _ => pass.table.note_exec(upid, exec.execs),
        }
        if let Some(process) = pass.table.process_mut(upid) {
            self.describe(process.row_mut(), &exec.into(), at);
            let row = process.row_mut();
            row.exe = executed_file(tgid, path).map(Arc::from);
            // An argument area that was not resident reads as nothing; /proc faults it in.
            let cmdline =
                command_line(args).or_else(|| identity(tgid).and_then(|found| found.cmdline));
            row.cmdline = cmdline.map(Arc::from);
            process.keep_names();
            let shown = process.row().cmdline.clone();
            pass.out
                .push(title(process, shown, TitleSource::Exec, at, pass.tick));
        }
        self.write_mem(upid, &exec.counts, at, MemSource::Exec, pass);
    }

    fn comm(&mut self, comm: &Comm, args: &[u8], pass: &mut Pass<'_>) {
        let at = boot(comm.header.boot_ns);
        let Some(upid) = current(pass.table, comm.header.tgid, comm.header.start_boot_ns) else {
            return;
        };
        if let Some(process) = pass.table.process_mut(upid) {
            process.row_mut().comm = comm_text(&comm.comm);
            pass.out.push(title(
                process,
                command_line(args).map(Arc::from),
                TitleSource::Rename,
                at,
                pass.tick,
            ));
        }
    }

    fn sample(&mut self, sample: &Sample, pass: &mut Pass<'_>) {
        let header = &sample.header;
        let tgid = Tgid(header.tgid);
        if self.held == Some(tgid) {
            return;
        }
        let at = boot(header.boot_ns);
        let Some(upid) = self.resolve(header, FirstSeenBy::Sample, pass.table) else {
            return;
        };
        let source = match SampleCause::from_u32(sample.cause) {
            Some(SampleCause::Drift) => MemSource::RssStat,
            Some(SampleCause::Peak) => MemSource::Peak,
            Some(SampleCause::Keyframe) => MemSource::Keyframe,
            Some(SampleCause::Sweep) | None => MemSource::Snapshot,
        };
        let seen = Seen {
            pages: sample.seen_peak_pages,
            boot_ns: sample.seen_peak_boot_ns,
        };
        let peak = self
            .peaks
            .of_kernel(sample.hiwater_pages, &sample.counts, seen);
        pass.table.raise_peak(upid, peak);
        self.write_mem(upid, &sample.counts, at, source, pass);
    }

    fn exit(&mut self, exit: &Exit, pass: &mut Pass<'_>) {
        let header = &exit.header;
        let key = EndedKey {
            start_boot_ns: header.start_boot_ns,
            tgid: header.tgid,
            reserved: 0,
        };
        // Where its start was lost: that there was a process of the same id shows its end only.
        if !self.has_ended(Tgid(key.tgid), boot(key.start_boot_ns)) {
            self.late_start(&key, &exit.ended.origin, pass);
        }
        self.end(&key, &exit.ended, Some(exit), pass);
    }

    /// The end of a process that is known. The event has what was not kept where the ring had no
    /// room for it.
    pub(super) fn end(
        &mut self,
        key: &EndedKey,
        ended: &Ended,
        event: Option<&Exit>,
        pass: &mut Pass<'_>,
    ) {
        let tgid = Tgid(key.tgid);
        let at = boot(ended.boot_ns);
        let Some(upid) = current(pass.table, key.tgid, key.start_boot_ns) else {
            return;
        };
        if let Some(exit) = event.filter(|exit| exit.pending_peak_boot_ns != 0) {
            let [anon_pages, file_pages, shmem_pages] = exit.pending_peak;
            let counts = Counts {
                anon_pages,
                file_pages,
                shmem_pages,
                ..exit.counts
            };
            let peak_at = boot(exit.pending_peak_boot_ns);
            let mut row = self.mem_row(upid, &counts, peak_at, MemSource::Peak, pass.tick);
            if ended.has_own_mm == 0 {
                row.swap_bytes = None;
                row.vm_size_bytes = None;
                row.heap_bytes = None;
            }
            pass.write(row);
        }
        self.complete(upid, &ended.origin, at, pass);
        if let Some(peak) = self.peaks.at_end(ended) {
            pass.table.settle_peak(upid, peak, self.peaks.noise);
        }
        // Zero is no RSS that a process can have had: not set yet (before 6.16).
        let maxrss = Pages(ended.maxrss_pages);
        let maxrss = (maxrss.0 > 0).then(|| maxrss.to_bytes(self.peaks.page_size));
        let senders = event.map(|exit| Senders::of(exit, pass.table));
        if let Some(process) = pass.table.process_mut(upid) {
            let row = process.row_mut();
            row.kernel_maxrss_bytes = maxrss;
            if let Some(exit) = event {
                row.rlimit_as_bytes = limit(exit.rlimit_as_bytes);
                row.rlimit_data_bytes = limit(exit.rlimit_data_bytes);
            }
            if let Some(senders) = senders {
                senders.note(process.row_mut());
            }
        }
        pass.write(exit_row(upid, at, pass.tick));
        self.cuda.end(upid, tgid, at, pass);
        pass.table.end(upid, at, Some(ended.wait_status));
        self.remember_end(tgid, boot(key.start_boot_ns));
    }

    fn has_ended(&self, tgid: Tgid, start: BootNs) -> bool {
        self.ended.iter().rev().any(|ended| *ended == (tgid, start))
    }

    fn vm_call(&mut self, call: &VmCall, pass: &mut Pass<'_>) {
        if call.file_name.starts_with(CUDA_LIBRARY.as_bytes()) {
            self.cuda_mapped.insert(Tgid(call.header.tgid));
        }
        let upid = self.resolve(&call.header, FirstSeenBy::Sample, pass.table);
        let row = upid.and_then(|upid| vm::event_row(upid, call, pass.tick));
        pass.out.extend(row.map(Record::VmEvent));
    }

    fn vm_totals(&mut self, totals: &VmTotals, pass: &mut Pass<'_>) {
        if let Some(upid) = self.resolve(&totals.header, FirstSeenBy::Sample, pass.table)
            && let Some(process) = pass.table.process(upid)
        {
            let first_seen = process.row().first_seen_boot_ns;
            self.sums.write(upid, first_seen, totals, pass);
        }
    }

    fn cuda_call(&mut self, call: &CudaCall, pass: &mut Pass<'_>) {
        if let Some(upid) = self.resolve(&call.header, FirstSeenBy::Sample, pass.table)
            && let Some(process) = pass.table.process(upid)
        {
            let began = process.row().start_boot_ns;
            self.cuda.take(upid, began, call, pass);
        }
    }

    fn oom(&self, oom: &Oom, pass: &mut Pass<'_>) -> OomRow {
        let victim = Tgid(oom.header.tgid);
        // Before 6.9 the kernel tells the id alone.
        let start = (oom.header.start_boot_ns != 0).then(|| boot(oom.header.start_boot_ns));
        let victim_upid = pass.table.note_oom_kill(victim, start);
        let pages =
            |pages| (oom.has_victim != 0).then(|| Pages(pages).to_bytes(self.peaks.page_size));
        let at = boot(oom.header.boot_ns);
        let trigger_upid = pass.table.upid(Tgid(oom.trigger_tgid));
        if let Some(upid) = trigger_upid {
            pass.table.news.note_killed_for(upid);
        }
        OomRow {
            victim_upid,
            victim_comm: (oom.has_victim != 0).then(|| comm_text(&oom.victim_comm)),
            trigger_upid,
            trigger_tgid: Some(Tgid(oom.trigger_tgid)),
            trigger_comm: Some(comm_text(&oom.trigger_comm)),
            victim_rss_anon_bytes: pages(oom.counts.anon_pages),
            victim_rss_file_bytes: pages(oom.counts.file_pages),
            victim_rss_shmem_bytes: pages(oom.counts.shmem_pages),
            victim_oom_score_adj: (oom.has_victim != 0).then_some(oom.oom_score_adj),
            ..OomRow::of_victim(pass.tick.clock.to_wall(at), at, victim)
        }
    }

    /// The process an event is about. One that is not known was missed: its fork was lost,
    /// or it came in by cgroup. `None` when it has ended already.
    fn resolve(
        &mut self,
        header: &EventHeader,
        seen_by: FirstSeenBy,
        table: &mut ProcessTable,
    ) -> Option<Upid> {
        let (tgid, start) = (Tgid(header.tgid), boot(header.start_boot_ns));
        if let Some(upid) = table.upid(tgid)
            && let Some(process) = table.process(upid)
            && process.row().start_boot_ns >= start
        {
            return (process.row().start_boot_ns == start).then_some(upid);
        }
        if self.has_ended(tgid, start) {
            return None;
        }
        let identity = identity(tgid);
        let comm = identity
            .as_ref()
            .map(|found| found.comm.clone())
            .unwrap_or_default();
        let parent = identity.as_ref().and_then(|found| table.upid(found.ppid));
        let birth = Birth {
            tgid,
            start,
            seen_by,
            parent,
            comm,
        };
        let upid = table.enter(birth, boot(header.boot_ns));
        if let (Some(process), Some(identity)) = (table.process_mut(upid), identity) {
            let row = process.row_mut();
            row.exe = identity.exe.map(Arc::from);
            row.cmdline = identity.cmdline.map(Arc::from);
            row.uid = identity.uid;
        }
        Some(upid)
    }

    fn write_mem(
        &self,
        upid: Upid,
        counts: &Counts,
        at: BootNs,
        source: MemSource,
        pass: &mut Pass<'_>,
    ) {
        pass.write(self.mem_row(upid, counts, at, source, pass.tick));
    }

    fn mem_row(
        &self,
        upid: Upid,
        counts: &Counts,
        at: BootNs,
        source: MemSource,
        tick: &Tick,
    ) -> MemRow {
        let bytes = |pages: i64| Some(Pages(pages.max(0)).to_bytes(self.peaks.page_size));
        MemRow {
            ts: tick.clock.to_wall(at).whole_ms(),
            boot_ns: at,
            upid,
            rss_bytes: bytes(counts.rss_pages()),
            rss_anon_bytes: bytes(counts.anon_pages),
            rss_file_bytes: bytes(counts.file_pages),
            rss_shmem_bytes: bytes(counts.shmem_pages),
            swap_bytes: bytes(counts.swap_pages),
            vm_size_bytes: bytes(counts.vm_pages),
            heap_bytes: Some(Bytes(counts.heap_bytes)),
            footprint_bytes: None,
            source: Some(source),
        }
    }
}

/// A soft limit as the kernel keeps it; `None` without one.
fn limit(bytes: u64) -> Option<Bytes> {
    let is_limit = bytes != Exit::NO_LIMIT;
    is_limit.then(|| Bytes(i64::try_from(bytes).unwrap_or(i64::MAX)))
}

/// By how many execs the first number is later than the second; the kernel counts them in 16 bits.
fn later_execs(noted: u32, reported: u32) -> i16 {
    (noted.wrapping_sub(reported) as u16).cast_signed()
}

#[cfg(test)]
mod tests;
