//! The processes of the recording as far as they are known: one registry that the
//! collectors share, from which the rows of `process` are written.

mod images;
mod news;
mod polled;
mod process;
mod wrapped;

pub use news::{News, RoleDeclaration};
pub use process::{NAME_BYTES_KEPT, Peak, Process};

use super::{Ceiling, Part, Tick};
use images::Images;
use memtrace_model::{
    BootNs, Bytes, DurationNs, FirstSeenBy, MemRow, MemSource, ProcessRow, Record, Tgid, Upid,
};
use process::{may_be_oom_killed, note_status};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// How a process came to be known.
#[derive(Clone, Debug)]
pub struct Birth {
    /// Its process id.
    pub tgid: Tgid,
    /// When it started.
    pub start: BootNs,
    /// Which observation saw it.
    pub seen_by: FirstSeenBy,
    /// The process that forked it, where known.
    pub parent: Option<Upid>,
    /// Its name as the kernel keeps it.
    pub comm: String,
}

/// Every process of the recording that is alive, by identity and by process id.
#[derive(Debug, Default)]
pub struct ProcessTable {
    by_tgid: HashMap<Tgid, Upid>,
    revision: u64,
    /// Boxed: a map has room for up to twice as many as it holds.
    live: HashMap<Upid, Box<Process>>,
    ended: Vec<ProcessRow>,
    listed: Vec<Upid>,
    last_upid: i64,
    images: Images,
    snapshot_cost: Option<DurationNs>,
    snapshot_at: Option<BootNs>,
    bpf_run_time: Option<(DurationNs, i64)>,
    lost_event_count: i64,
    has_lost_lifecycle: bool,
    lifecycle_known_until: BootNs,
    are_oom_kills_observed: bool,
    /// What one collector has for another.
    pub news: News,
    ceiling: Arc<Ceiling>,
    memory: Option<Bytes>,
    peak_noise: Option<Bytes>,
    /// The latest of those whose last row was written, because news can come after a
    /// process's end: that it was killed, what waiting for it reported.
    recently_ended: VecDeque<ProcessRow>,
    /// Those that were killed or crashed while a process lived that they had forked: how many of
    /// those live.
    crashed: HashMap<Upid, usize>,
}

/// Signals by which processes are asked to end: SIGHUP, SIGINT, SIGPIPE, SIGTERM.
const ASKING: [i32; 4] = [1, 2, 13, 15];

/// How many ended processes are kept for late news. More end in one tick only in a fork
/// storm, whose processes are no OOM killer's choice.
const RECENTLY_ENDED_MAX: usize = 512;

impl ProcessTable {
    /// The process that has this process id now.
    pub fn upid(&self, tgid: Tgid) -> Option<Upid> {
        self.by_tgid.get(&tgid).copied()
    }

    /// The process that had this process id at that time: one that is alive, or that ended
    /// lately.
    pub fn who_was(&self, tgid: Tgid, at: BootNs) -> Option<Upid> {
        let living = self.upid(tgid).and_then(|upid| self.process(upid));
        let living = living.map(Process::row).into_iter();
        let ended = self.ended.iter().chain(&self.recently_ended).rev();
        living
            .chain(ended)
            .find(|row| {
                row.tgid == tgid
                    && row.start_boot_ns <= at
                    && row.exit_boot_ns.is_none_or(|exit| at <= exit)
            })
            .map(|row| row.upid)
    }

    /// The ids that processes have in pid namespaces of their own.
    pub fn ids_inside(&self) -> HashSet<Tgid> {
        let living = self.processes().map(Process::row);
        let all = living.chain(self.ended.iter().chain(&self.recently_ended));
        let inside = all.filter(|row| row.ns_tgid != Some(row.tgid));
        inside.filter_map(|row| row.ns_tgid).collect()
    }

    /// The process that had this process id in its own pid namespace at that time, where it was
    /// one only: as [`Self::who_was`] for an id that counts inside of a container.
    pub fn who_was_inside(&self, ns_tgid: Tgid, at: BootNs) -> Option<Upid> {
        let living = self.processes().map(Process::row);
        let ended = self.ended.iter().chain(&self.recently_ended);
        let mut fitting = living.chain(ended).filter(|row| {
            // Of a process of this namespace it is the same id.
            row.ns_tgid == Some(ns_tgid)
                && row.tgid != ns_tgid
                && row.start_boot_ns <= at
                && row.exit_boot_ns.is_none_or(|exit| at <= exit)
        });
        let first = fitting.next()?.upid;
        fitting.all(|row| row.upid == first).then_some(first)
    }

    /// A living process.
    pub fn process(&self, upid: Upid) -> Option<&Process> {
        self.live.get(&upid).map(Box::as_ref)
    }

    /// A living process, to be changed.
    pub fn process_mut(&mut self, upid: Upid) -> Option<&mut Process> {
        let process = self.live.get_mut(&upid)?;
        self.revision += 1;
        if !process.is_listed {
            process.is_listed = true;
            self.listed.push(upid);
        }
        Some(process.as_mut())
    }

    /// As long as this stays the same nobody came, ended or was touched: who looks at all of them
    /// need not look again.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// What is known of a process that is alive, or that ended lately.
    pub fn row(&self, upid: Upid) -> Option<&ProcessRow> {
        let living = self.process(upid).map(Process::row);
        let mut ended = self.ended.iter().chain(&self.recently_ended);
        living.or_else(|| ended.find(|row| row.upid == upid))
    }

    /// The process with this id that started then: one that is alive, or that ended lately.
    pub fn identity(&self, tgid: Tgid, start: BootNs) -> Option<Upid> {
        let living = self.upid(tgid).and_then(|upid| self.process(upid));
        let living = living.map(Process::row).into_iter();
        let mut all = living.chain(self.ended.iter().chain(&self.recently_ended).rev());
        all.find(|row| row.tgid == tgid && row.start_boot_ns == start)
            .map(|row| row.upid)
    }

    /// Whether a process with this id is alive, or ended lately.
    pub fn has_had(&self, tgid: Tgid) -> bool {
        let mut ended = self.ended.iter().chain(&self.recently_ended);
        self.upid(tgid).is_some() || ended.any(|row| row.tgid == tgid)
    }

    /// Every living process.
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        self.live.values().map(Box::as_ref)
    }

    /// How many processes are alive.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Whether no process is alive.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Enters a process and gives it its identity. A process that held the same process id
    /// before is taken to have ended unnoticed.
    pub fn enter(&mut self, birth: Birth, now: BootNs) -> Upid {
        if let Some(previous) = self.upid(birth.tgid) {
            self.end(previous, birth.start, None);
        }
        self.last_upid += 1;
        let upid = Upid(self.last_upid);
        self.note_child(birth.parent);
        let parent = birth.parent.and_then(|parent| self.live.get(&parent));
        let was_fork_seen = birth.seen_by == FirstSeenBy::Fork;
        let image = self
            .images
            .at_birth(parent.map(|parent| parent.image), was_fork_seen);
        let parent = birth.parent.and_then(|parent| self.live.get(&parent));
        let mut row = ProcessRow {
            upid,
            tgid: birth.tgid,
            parent_upid: birth.parent,
            root_upid: Some(upid),
            comm: birth.comm,
            start_boot_ns: birth.start,
            first_seen_boot_ns: now,
            first_seen_by: Some(birth.seen_by),
            oom_killed: self.are_oom_kills_observed.then_some(false),
            ..ProcessRow::default()
        };
        if let Some(parent) = parent {
            // What fork copies: the child runs its parent's program until it calls exec.
            row.root_upid = parent.row.root_upid;
            row.exe.clone_from(&parent.row.exe);
            row.cmdline.clone_from(&parent.row.cmdline);
            row.uid = parent.row.uid;
            row.cgroup.clone_from(&parent.row.cgroup);
            row.container_id.clone_from(&parent.row.container_id);
            row.pod.clone_from(&parent.row.pod);
            row.container.clone_from(&parent.row.container);
        }
        self.by_tgid.insert(birth.tgid, upid);
        let process = Process {
            row,
            is_dirty: true,
            has_new_peak: false,
            is_listed: true,
            image,
            child_count: 0,
            execs: None,
            names: self.ceiling.charge(Part::Names, 0),
            were_names_cut: false,
        };
        self.live.insert(upid, Box::new(process));
        self.listed.push(upid);
        self.revision += 1;
        upid
    }

    /// Notes who forked a process that was entered without knowing: it, and whoever descends
    /// from it, is of that one's tree.
    pub fn note_parent(&mut self, upid: Upid, parent: Upid) {
        let root = self.live.get(&parent).and_then(|row| row.row.root_upid);
        let Some(process) = self.process_mut(upid) else {
            return;
        };
        let previous = process.row_mut().parent_upid.replace(parent);
        self.note_child_ended(previous);
        self.note_child(Some(parent));
        let of_its_tree: Vec<Upid> = self
            .processes()
            .filter(|process| process.row.root_upid == Some(upid))
            .map(|process| process.row.upid)
            .collect();
        for descendant in of_its_tree {
            if let Some(process) = self.process_mut(descendant) {
                process.row_mut().root_upid = root;
            }
        }
    }

    /// Notes that a process was seen executing a program, its `execs`-th.
    pub fn note_exec(&mut self, upid: Upid, execs: u32) {
        if let Some(process) = self.live.get_mut(&upid) {
            process.leave_copy();
            process.execs = Some(execs);
            process.image = self.images.at_exec(process.image);
            self.revision += 1;
        }
    }

    /// Whether no other process can share its anonymous pages through fork.
    pub fn is_only_one_of_its_image(&self, process: &Process) -> bool {
        self.images.has_only_one(process.image)
    }

    /// Whether the root of its tree has ended: nobody waits for it any more.
    pub fn has_root_ended(&self, process: &Process) -> bool {
        let root = process.row.root_upid;
        root.is_some_and(|root| !self.live.contains_key(&root))
    }

    /// Whether a process, or a living one from which it descends, was forked by one that was
    /// killed or crashed. A launcher that exits with an error, or was asked to end, can leave a
    /// healthy server.
    pub fn is_left_by_crash(&self, process: &ProcessRow) -> bool {
        let mut at = process;
        while let Some(parent) = at.parent_upid {
            if self.crashed.contains_key(&parent) {
                return true;
            }
            match self.process(parent) {
                Some(living) => at = living.row(),
                None => return false,
            }
        }
        false
    }

    /// Whether some process has outlived the root of its tree.
    pub fn has_outlived(&self) -> bool {
        self.processes().any(|process| self.has_root_ended(process))
    }

    /// Counts a living child of a living process.
    fn note_child(&mut self, parent: Option<Upid>) {
        if let Some(parent) = parent.and_then(|parent| self.live.get_mut(&parent)) {
            parent.child_count += 1;
        }
    }

    /// Takes a child from the count of its parent. One that crashed is kept as long as it has any.
    fn note_child_ended(&mut self, parent: Option<Upid>) {
        let Some(parent) = parent else {
            return;
        };
        if let Some(process) = self.live.get_mut(&parent) {
            process.child_count = process.child_count.saturating_sub(1);
        } else if let Some(count) = self.crashed.get_mut(&parent) {
            *count -= 1;
            if *count == 0 {
                self.crashed.remove(&parent);
            }
        }
    }

    /// Ends a process: it leaves the living, and its last row is written. The wait status is as
    /// wait(2) encodes it; `None` when the end was noticed but not seen.
    pub fn end(&mut self, upid: Upid, at: BootNs, wait_status: Option<i32>) {
        let Some(mut process) = self.live.remove(&upid).map(|process| *process) else {
            return;
        };
        self.revision += 1;
        if self.by_tgid.get(&process.row.tgid) == Some(&upid) {
            self.by_tgid.remove(&process.row.tgid);
        }
        self.images.leave(process.image);
        process.row.exit_boot_ns = Some(at);
        if let Some(status) = wait_status {
            note_status(&mut process.row, status);
        }
        self.note_child_ended(process.row.parent_upid);
        let signal = process.row.exit_signal;
        if process.child_count > 0 && signal.is_some_and(|signal| !ASKING.contains(&signal)) {
            self.crashed.insert(upid, process.child_count);
        }
        self.ended.push(process.row);
    }

    /// Whether this signal ended a process since rows were last written.
    pub fn has_just_ended_by(&self, signal: i32) -> bool {
        self.ended.iter().any(|row| row.exit_signal == Some(signal))
    }

    /// Raises a process's peak; see [`Process::raise_peak`].
    pub fn raise_peak(&mut self, upid: Upid, peak: Peak) {
        if let Some(process) = self.live.get_mut(&upid) {
            process.raise_peak(peak);
        }
    }

    /// Notes how much memory the machine has.
    pub fn set_memory(&mut self, memory: Option<Bytes>) {
        self.memory = memory;
    }

    /// How much memory the machine has; `None` when unknown.
    pub fn memory(&self) -> Option<Bytes> {
        self.memory
    }

    /// Notes that every peak is seen, between two looks too, and how far two readings of the
    /// same one can be apart.
    pub fn note_peaks_are_seen(&mut self, noise: Bytes) {
        self.peak_noise = Some(noise);
    }

    /// Whether every peak is seen.
    pub fn are_peaks_seen(&self) -> bool {
        self.peak_noise.is_some()
    }

    /// Whether a process can have held so much until `at`: it is no more than was seen of it,
    /// where every peak is seen, and than the machine has. `None` while that is not known yet.
    pub fn can_have_held(&self, upid: Upid, bytes: Bytes, at: BootNs) -> Option<bool> {
        if self.memory.is_some_and(|memory| bytes > memory) {
            return Some(false);
        }
        let (Some(noise), Some(row)) = (self.peak_noise, self.row(upid)) else {
            return Some(true);
        };
        let peak = row.peak_rss_bytes.unwrap_or_default();
        let error = row.peak_error_bytes.unwrap_or_default().max(noise);
        if bytes <= peak + error {
            return Some(true);
        }
        // What it held last is seen at the next look, or at its end.
        let is_all_seen =
            row.exit_boot_ns.is_some() || self.snapshot_at.is_some_and(|seen| seen > at);
        is_all_seen.then_some(false)
    }

    /// Sets a process's peak to what a better authority says at its end, also where that is
    /// lower by no more than `tolerance`. What is higher by more was another maximum, which
    /// the authority did not see or has forgotten, and stays.
    pub fn settle_peak(&mut self, upid: Upid, mut peak: Peak, tolerance: Bytes) {
        let Some(process) = self.live.get_mut(&upid) else {
            return;
        };
        let known = process.row.peak_rss_bytes.unwrap_or(Bytes(0));
        if known > peak.bytes + tolerance {
            return;
        }
        if known > peak.bytes {
            peak.error = peak.error.map(|error| error.max(tolerance));
        }
        process.set_peak(peak);
    }

    /// Notes that every OOM kill will be distinguished from now on: a process that is not reported
    /// was not killed so.
    pub fn observe_oom_kills(&mut self) {
        if self.are_oom_kills_observed {
            return;
        }
        self.are_oom_kills_observed = true;
        let living: Vec<Upid> = self.live.keys().copied().collect();
        for upid in living {
            if let Some(process) = self.process_mut(upid) {
                process.row_mut().oom_killed.get_or_insert(false);
            }
        }
    }

    /// Notes that the OOM killer chose a process, also where its end was noticed first.
    /// `start` tells it from an earlier or later one of the same id, where it is known.
    /// Gives its identity when it is of this recording.
    pub fn note_oom_kill(&mut self, tgid: Tgid, start: Option<BootNs>) -> Option<Upid> {
        let is_victim = |row: &ProcessRow| {
            row.tgid == tgid
                && start.is_none_or(|start| start == row.start_boot_ns)
                && may_be_oom_killed(row)
        };
        if let Some(upid) = self.upid(tgid)
            && let Some(process) = self.process_mut(upid)
            && is_victim(&process.row)
        {
            process.row_mut().oom_killed = Some(true);
            return Some(upid);
        }
        let row = self.ended_row(is_victim)?;
        row.oom_killed = Some(true);
        Some(row.upid)
    }

    /// The last row of the latest such process that ended a short while ago, to be written
    /// again.
    fn ended_row(&mut self, is_meant: impl Fn(&ProcessRow) -> bool) -> Option<&mut ProcessRow> {
        if let Some(at) = self.ended.iter().rposition(&is_meant) {
            return self.ended.get_mut(at);
        }
        let at = self.recently_ended.iter().rposition(is_meant)?;
        let row = self.recently_ended.remove(at)?;
        self.ended.push(row);
        self.ended.last_mut()
    }

    /// Notes the run time of BPF programs so far, and their runs.
    pub fn set_bpf_run_time(&mut self, time: DurationNs, count: i64) {
        self.bpf_run_time = Some((time, count));
    }

    /// Run time of BPF programs so far, and their runs; `None` when unknown.
    pub fn bpf_run_time(&self) -> Option<(DurationNs, i64)> {
        self.bpf_run_time
    }

    /// Appends a row of `process` for everything that is new, changed or ended since the
    /// last call; where peaks are due also for every peak that rose.
    pub fn write_changes(&mut self, are_peaks_due: bool, out: &mut Vec<Record>) {
        // A batch lives for a moment: room for as much again would be the larger part of it.
        out.reserve_exact(self.ended.len() + self.listed.len());
        self.recently_ended.extend(self.ended.iter().cloned());
        let too_many = self.recently_ended.len().saturating_sub(RECENTLY_ENDED_MAX);
        self.recently_ended.drain(..too_many);
        out.extend(self.ended.drain(..).map(Record::from));
        for upid in self.listed.drain(..) {
            let Some(process) = self.live.get_mut(&upid) else {
                continue;
            };
            process.is_listed = false;
            if process.is_dirty {
                process.keep_names();
                let were_cut = std::mem::take(&mut process.were_names_cut);
                self.news.cut_names_count += i64::from(were_cut);
                process.write(out);
            }
        }
        if are_peaks_due {
            for process in self
                .live
                .values_mut()
                .filter(|process| process.has_new_peak)
            {
                process.write(out);
            }
        }
    }

    /// Notes what waiting for the command reported: how it ended, and its ru_maxrss. Where its
    /// end was not observed otherwise, this ends it; where it was, this fills in what the
    /// observer did not know: a poll can see a zombie before we have waited for it.
    /// Gives its identity if it was still taken to be alive.
    pub fn note_wait(
        &mut self,
        tgid: Tgid,
        at: BootNs,
        wait_status: i32,
        max_rss: Bytes,
    ) -> Option<Upid> {
        let Some(upid) = self.upid(tgid) else {
            let row = self.ended_row(|row| row.tgid == tgid)?;
            row.kernel_maxrss_bytes.get_or_insert(max_rss);
            if row.exit_code.is_none() && row.exit_signal.is_none() {
                note_status(row, wait_status);
            }
            return None;
        };
        if let Some(process) = self.process_mut(upid) {
            process.row_mut().kernel_maxrss_bytes = Some(max_rss);
        }
        self.end(upid, at, Some(wait_status));
        Some(upid)
    }

    /// The memory that is shared out to whatever others decide the size of.
    pub fn ceiling(&self) -> &Arc<Ceiling> {
        &self.ceiling
    }

    /// Processes that were ever entered.
    pub fn entered_count(&self) -> i64 {
        self.last_upid
    }

    /// Notes the last snapshot of all processes: when it began, and what it cost in CPU time.
    pub fn note_snapshot(&mut self, at: BootNs, cost: DurationNs) {
        self.snapshot_at = Some(at);
        self.snapshot_cost = Some(cost);
    }

    /// When the last snapshot of all processes began: what was until then is seen.
    pub fn snapshot_at(&self) -> Option<BootNs> {
        self.snapshot_at
    }

    /// What the last snapshot of all processes cost in CPU time.
    pub fn snapshot_cost(&self) -> Option<DurationNs> {
        self.snapshot_cost
    }

    /// Adds to the count of events that were lost.
    pub fn add_lost_events(&mut self, count: i64) {
        self.lost_event_count = self.lost_event_count.saturating_add(count);
    }

    /// Notes that an event about the life of a process was lost.
    pub fn note_lost_lifecycle(&mut self) {
        self.has_lost_lifecycle = true;
        self.revision += 1;
    }

    /// Whether an event about the life of a process was ever lost: then who descends from
    /// whom is not sure.
    pub fn has_lost_lifecycle(&self) -> bool {
        self.has_lost_lifecycle
    }

    /// Notes that every fork, exec and exit up to this time was entered, but for lost ones.
    pub fn note_lifecycle_until(&mut self, at: BootNs) {
        self.lifecycle_known_until = at;
    }

    /// Up to when every fork, exec and exit that was seen is entered; the beginning of time
    /// where they are not observed.
    pub fn lifecycle_known_until(&self) -> BootNs {
        self.lifecycle_known_until
    }

    /// Events lost so far, all classes.
    pub fn lost_event_count(&self) -> i64 {
        self.lost_event_count
    }
}

/// The row that closes a process's step function: nothing is held from here on.
pub fn exit_row(upid: Upid, at: BootNs, tick: &Tick) -> MemRow {
    let none = Some(Bytes(0));
    MemRow {
        ts: tick.clock.to_wall(at).whole_ms(),
        boot_ns: at,
        upid,
        rss_bytes: none,
        rss_anon_bytes: none,
        rss_file_bytes: none,
        rss_shmem_bytes: none,
        swap_bytes: none,
        vm_size_bytes: none,
        heap_bytes: none,
        footprint_bytes: None,
        source: Some(MemSource::Exit),
    }
}

#[cfg(test)]
mod tests;
