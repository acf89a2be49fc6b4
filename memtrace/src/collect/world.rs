//! The processes of the recording as far as they are known: one registry that the
//! collectors share, from which the rows of `process` are written.

use super::Tick;
use crate::model::{
    BootNs, Bytes, DurationNs, FirstSeenBy, MemRow, MemSource, PeakSource, ProcessRow, Record,
    Role, Tgid, Upid,
};
use std::collections::{HashMap, VecDeque};

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

/// A peak of RSS and how well it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    /// The amount.
    pub bytes: Bytes,
    /// Where it comes from.
    pub source: PeakSource,
    /// Bound on its error; `None` when there is no bound.
    pub error: Option<Bytes>,
    /// When it was reached; `None` when only a high-water mark knows.
    pub at: Option<BootNs>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// When.
    pub at: BootNs,
    /// Wait status as wait(2) encodes it; `None` when the end was noticed but not seen.
    pub wait_status: Option<i32>,
}

/// A process that is alive, or whose end has not been written yet.
#[derive(Debug)]
pub struct Process {
    row: ProcessRow,
    /// Changed since it was written.
    is_dirty: bool,
    /// The peak rose since it was written; alone it waits until peaks are due.
    has_new_peak: bool,
    /// On the list of processes to look at when changes are written.
    is_listed: bool,
    image: Image,
}

/// What a process got by exec, and its children by fork: processes of one image can share
/// anonymous pages, those of different ones cannot.
#[derive(Clone, Copy, Debug)]
struct Image {
    /// Never reused.
    id: u64,
    /// Whether its exec was observed, so that every process of it is known.
    is_whole: bool,
}

impl Process {
    /// The row as it stands.
    pub fn row(&self) -> &ProcessRow {
        &self.row
    }

    /// The row, to be changed; it will be written again.
    pub fn row_mut(&mut self) -> &mut ProcessRow {
        self.is_dirty = true;
        &mut self.row
    }

    /// The program image it runs: another one after exec, the parent's after fork.
    pub fn image(&self) -> u64 {
        self.image.id
    }

    fn write(&mut self, out: &mut Vec<Record>) {
        self.is_dirty = false;
        self.has_new_peak = false;
        out.push(Record::Process(self.row.clone()));
    }

    /// Raises the peak to `peak` where that is higher, or equally high and better known.
    /// Written when peaks are due, or with the process's end: peaks rise often.
    pub fn raise_peak(&mut self, peak: Peak) {
        let known = self.row.peak_rss_bytes;
        let is_better = match known {
            None => true,
            Some(bytes) if peak.bytes != bytes => peak.bytes > bytes,
            Some(_) => {
                (self.row.peak_rss_boot_ns.is_none() && peak.at.is_some())
                    || (self.row.peak_error_bytes.is_none() && peak.error.is_some())
            }
        };
        if is_better {
            self.set_peak(peak);
        }
    }

    fn set_peak(&mut self, peak: Peak) {
        self.has_new_peak = true;
        self.row.peak_rss_bytes = Some(peak.bytes);
        self.row.peak_rss_source = Some(peak.source);
        self.row.peak_error_bytes = peak.error;
        self.row.peak_rss_boot_ns = peak.at;
    }
}

/// Every process of the recording that is alive, by identity and by process id.
#[derive(Debug, Default)]
pub struct World {
    by_tgid: HashMap<Tgid, Upid>,
    live: HashMap<Upid, Process>,
    ended: Vec<ProcessRow>,
    listed: Vec<Upid>,
    last_upid: i64,
    last_image: u64,
    /// Living processes of each image.
    image_members: HashMap<u64, usize>,
    snapshot_cost: Option<DurationNs>,
    bpf_run_time: Option<(DurationNs, i64)>,
    lost_event_count: i64,
    has_lost_lifecycle: bool,
    are_oom_kills_observed: bool,
    introduced: Vec<(Tgid, Role)>,
    invited: Vec<Tgid>,
    /// The latest of those whose last row was written, because news can come after a
    /// process's end: that it was killed, what waiting for it told.
    recently_ended: VecDeque<ProcessRow>,
}

/// How many ended processes are kept for late news. More end in one tick only in a fork
/// storm, whose processes are no OOM killer's choice.
const RECENTLY_ENDED_MAX: usize = 512;

impl World {
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

    /// A living process.
    pub fn process(&self, upid: Upid) -> Option<&Process> {
        self.live.get(&upid)
    }

    /// A living process, to be changed.
    pub fn process_mut(&mut self, upid: Upid) -> Option<&mut Process> {
        let process = self.live.get_mut(&upid)?;
        if !process.is_listed {
            process.is_listed = true;
            self.listed.push(upid);
        }
        Some(process)
    }

    /// Every living process.
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        self.live.values()
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
            self.end(
                previous,
                End {
                    at: birth.start,
                    wait_status: None,
                },
            );
        }
        self.last_upid += 1;
        let upid = Upid(self.last_upid);
        let image = self.image_at_birth(&birth);
        let parent = birth.parent.and_then(|parent| self.live.get(&parent));
        let mut row = ProcessRow {
            upid,
            tgid: birth.tgid,
            ns_tgid: None,
            parent_upid: birth.parent,
            root_upid: Some(upid),
            comm: birth.comm,
            exe: None,
            cmdline: None,
            uid: None,
            cgroup: None,
            container_id: None,
            role: None,
            framework: None,
            rank: None,
            start_boot_ns: birth.start,
            first_seen_boot_ns: now,
            first_seen_by: Some(birth.seen_by),
            exit_boot_ns: None,
            exit_code: None,
            exit_signal: None,
            oom_killed: self.are_oom_kills_observed.then_some(false),
            peak_rss_bytes: None,
            peak_rss_source: None,
            peak_error_bytes: None,
            peak_rss_boot_ns: None,
            kernel_maxrss_bytes: None,
        };
        if let Some(parent) = parent {
            // What fork copies: the child runs its parent's program until it calls exec.
            row.root_upid = parent.row.root_upid;
            row.exe.clone_from(&parent.row.exe);
            row.cmdline.clone_from(&parent.row.cmdline);
            row.uid = parent.row.uid;
            row.cgroup.clone_from(&parent.row.cgroup);
            row.container_id.clone_from(&parent.row.container_id);
        }
        self.by_tgid.insert(birth.tgid, upid);
        let process = Process {
            row,
            is_dirty: true,
            has_new_peak: false,
            is_listed: true,
            image,
        };
        self.live.insert(upid, process);
        self.listed.push(upid);
        *self.image_members.entry(image.id).or_default() += 1;
        upid
    }

    /// The image of the parent; of a process whose fork was not seen it is taken to be, for
    /// want of knowing better, and then no exec makes up for what else can be of it.
    fn image_at_birth(&mut self, birth: &Birth) -> Image {
        let parent = birth.parent.and_then(|parent| self.live.get(&parent));
        match parent {
            Some(parent) => Image {
                id: parent.image.id,
                is_whole: parent.image.is_whole && birth.seen_by == FirstSeenBy::Fork,
            },
            None => self.new_image(false),
        }
    }

    fn new_image(&mut self, is_whole: bool) -> Image {
        self.last_image += 1;
        Image {
            id: self.last_image,
            is_whole,
        }
    }

    fn leave_image(&mut self, image: Image) {
        if let Some(count) = self.image_members.get_mut(&image.id) {
            *count -= 1;
            if *count == 0 {
                self.image_members.remove(&image.id);
            }
        }
    }

    /// Notes that a process was seen executing a program.
    pub fn note_exec(&mut self, upid: Upid) {
        let image = self.new_image(true);
        let Some(process) = self.live.get_mut(&upid) else {
            return;
        };
        let left = std::mem::replace(&mut process.image, image);
        self.image_members.insert(image.id, 1);
        self.leave_image(left);
    }

    /// Whether no other process can share its anonymous pages through fork.
    pub fn is_only_one_of_its_image(&self, process: &Process) -> bool {
        process.image.is_whole && self.image_members.get(&process.image.id) == Some(&1)
    }

    /// Ends a process: it leaves the living, and its last row is written.
    pub fn end(&mut self, upid: Upid, end: End) {
        let Some(mut process) = self.live.remove(&upid) else {
            return;
        };
        if self.by_tgid.get(&process.row.tgid) == Some(&upid) {
            self.by_tgid.remove(&process.row.tgid);
        }
        self.leave_image(process.image);
        process.row.exit_boot_ns = Some(end.at);
        if let Some(status) = end.wait_status {
            note_status(&mut process.row, status);
        }
        self.ended.push(process.row);
    }

    /// Raises a process's peak; see [`Process::raise_peak`].
    pub fn raise_peak(&mut self, upid: Upid, peak: Peak) {
        if let Some(process) = self.live.get_mut(&upid) {
            process.raise_peak(peak);
        }
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

    /// Notes that every OOM kill will be told from now on: a process that is not told of
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
        self.recently_ended.extend(self.ended.iter().cloned());
        let too_many = self.recently_ended.len().saturating_sub(RECENTLY_ENDED_MAX);
        self.recently_ended.drain(..too_many);
        out.extend(self.ended.drain(..).map(Record::Process));
        for upid in self.listed.drain(..) {
            let Some(process) = self.live.get_mut(&upid) else {
                continue;
            };
            process.is_listed = false;
            if process.is_dirty {
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

    /// Notes what waiting for the command told: how it ended, and its ru_maxrss. Where its
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
        self.end(
            upid,
            End {
                at,
                wait_status: Some(wait_status),
            },
        );
        Some(upid)
    }

    /// Processes that were ever entered.
    pub fn entered_count(&self) -> i64 {
        self.last_upid
    }

    /// Notes what the last snapshot of all processes cost in CPU time.
    pub fn set_snapshot_cost(&mut self, cost: DurationNs) {
        self.snapshot_cost = Some(cost);
    }

    /// What the last snapshot of all processes cost in CPU time.
    pub fn snapshot_cost(&self) -> Option<DurationNs> {
        self.snapshot_cost
    }

    /// Adds to the count of events that were lost.
    pub fn add_lost_events(&mut self, count: i64) {
        self.lost_event_count = self.lost_event_count.saturating_add(count);
    }

    /// Notes what a process is, told by something other than its names.
    pub fn introduce(&mut self, tgid: Tgid, role: Role) {
        self.introduced.push((tgid, role));
    }

    /// What processes were said to be since the last call.
    pub fn take_introduced(&mut self) -> Vec<(Tgid, Role)> {
        std::mem::take(&mut self.introduced)
    }

    /// Asks the backend to take a running process into the recording, whatever its name.
    pub fn invite(&mut self, tgid: Tgid) {
        self.invited.push(tgid);
    }

    /// The processes to be taken in since the last call.
    pub fn take_invited(&mut self) -> Vec<Tgid> {
        std::mem::take(&mut self.invited)
    }

    /// Notes that an event about the life of a process was lost.
    pub fn note_lost_lifecycle(&mut self) {
        self.has_lost_lifecycle = true;
    }

    /// Whether an event about the life of a process was ever lost: then who descends from
    /// whom is not sure.
    pub fn has_lost_lifecycle(&self) -> bool {
        self.has_lost_lifecycle
    }

    /// Events lost so far, all classes.
    pub fn lost_event_count(&self) -> i64 {
        self.lost_event_count
    }
}

/// SIGKILL, on every system that memtrace runs on.
const SIGKILL: i32 = 9;

/// Whether the OOM killer may have ended it: its means is SIGKILL. One that it chose while
/// it was ending by itself did not end by it.
fn may_be_oom_killed(row: &ProcessRow) -> bool {
    row.exit_code.is_none() && row.exit_signal.is_none_or(|signal| signal == SIGKILL)
}

/// The row that closes a process's step function: nothing is held from here on.
pub fn exit_row(upid: Upid, at: BootNs, tick: &Tick) -> MemRow {
    let none = Some(Bytes(0));
    MemRow {
        ts: tick.clock.to_wall(at),
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

/// Takes a wait status apart.
fn note_status(row: &mut ProcessRow, status: i32) {
    let signal = status & 0x7f;
    if signal == 0 {
        row.exit_code = Some((status >> 8) & 0xff);
    } else {
        row.exit_signal = Some(signal);
    }
    if !may_be_oom_killed(row) {
        row.oom_killed = row.oom_killed.map(|_| false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(world: &mut World, tgid: u32) -> Upid {
        let birth = Birth {
            tgid: Tgid(tgid),
            start: BootNs(0),
            seen_by: FirstSeenBy::Poll,
            parent: None,
            comm: String::new(),
        };
        world.enter(birth, BootNs(0))
    }

    fn end(world: &mut World, upid: Upid) {
        let end = End {
            at: BootNs(1),
            wait_status: Some(9),
        };
        world.end(upid, end);
    }

    fn written(world: &mut World) -> Vec<(Upid, Option<bool>)> {
        let mut out = Vec::new();
        world.write_changes(false, &mut out);
        let oom_killed = |record| match record {
            Record::Process(row) => Some((row.upid, row.oom_killed)),
            _ => None,
        };
        out.into_iter().filter_map(oom_killed).collect()
    }

    #[test]
    fn pages_are_unshared_from_exec_to_fork_and_again_when_the_child_is_gone() {
        let mut world = World::default();
        let parent = enter(&mut world, 1);
        let is_alone = |world: &World, upid| {
            let process = world.process(upid).unwrap();
            world.is_only_one_of_its_image(process)
        };
        assert!(!is_alone(&world, parent), "its own parent is unknown");
        world.note_exec(parent);
        assert!(is_alone(&world, parent));
        let fork = |tgid, seen_by| Birth {
            tgid: Tgid(tgid),
            start: BootNs(0),
            seen_by,
            parent: Some(parent),
            comm: String::new(),
        };
        let child = world.enter(fork(2, FirstSeenBy::Fork), BootNs(0));
        assert!(!is_alone(&world, parent) && !is_alone(&world, child));
        world.note_exec(child);
        assert!(is_alone(&world, parent) && is_alone(&world, child));
        let worker = world.enter(fork(3, FirstSeenBy::Fork), BootNs(0));
        end(&mut world, parent);
        assert!(is_alone(&world, worker), "what it inherited is its own now");
    }

    #[test]
    fn a_child_whose_fork_was_not_seen_is_never_taken_to_be_alone() {
        let mut world = World::default();
        let parent = enter(&mut world, 1);
        world.note_exec(parent);
        let birth = Birth {
            tgid: Tgid(2),
            start: BootNs(0),
            seen_by: FirstSeenBy::Snapshot,
            parent: Some(parent),
            comm: String::new(),
        };
        let child = world.enter(birth, BootNs(0));
        end(&mut world, parent);
        assert!(!world.is_only_one_of_its_image(world.process(child).unwrap()));
    }

    #[test]
    fn not_killed_is_said_only_while_kills_are_observed() {
        let mut world = World::default();
        let before = enter(&mut world, 1);
        assert_eq!(written(&mut world), [(before, None)]);
        world.observe_oom_kills();
        let after = enter(&mut world, 2);
        assert_eq!(
            written(&mut world),
            [(before, Some(false)), (after, Some(false))]
        );
    }

    #[test]
    fn whose_a_process_id_was_depends_on_the_time() {
        let mut world = World::default();
        world.observe_oom_kills();
        let at = |world: &World, ns| world.who_was(Tgid(1), BootNs(ns));
        let first = enter(&mut world, 1);
        assert_eq!(at(&world, 5), Some(first));
        end(&mut world, first);
        assert_eq!(at(&world, 1), Some(first));
        assert_eq!(at(&world, 5), None);
        written(&mut world);
        assert_eq!(at(&world, 1), Some(first));
        let birth = Birth {
            tgid: Tgid(1),
            start: BootNs(4),
            seen_by: FirstSeenBy::Poll,
            parent: None,
            comm: String::new(),
        };
        let second = world.enter(birth, BootNs(4));
        assert_eq!(at(&world, 1), Some(first));
        assert_eq!(at(&world, 5), Some(second));
        assert_eq!(world.who_was(Tgid(2), BootNs(5)), None);
    }

    #[test]
    fn a_victim_is_found_before_its_end_after_it_and_after_that_was_written() {
        let mut world = World::default();
        world.observe_oom_kills();
        let [living, ended, gone] = [1, 2, 3].map(|tgid| enter(&mut world, tgid));
        end(&mut world, gone);
        written(&mut world);
        end(&mut world, ended);
        for (tgid, upid) in [(1, living), (2, ended), (3, gone)] {
            assert_eq!(world.note_oom_kill(Tgid(tgid), None), Some(upid));
        }
        let mut rows = written(&mut world);
        rows.sort();
        assert_eq!(rows, [living, ended, gone].map(|upid| (upid, Some(true))));
        assert_eq!(world.note_oom_kill(Tgid(9), None), None);
    }

    #[test]
    fn a_victim_is_told_from_another_process_of_its_id() {
        let mut world = World::default();
        world.observe_oom_kills();
        let upid = enter(&mut world, 1);
        assert_eq!(world.note_oom_kill(Tgid(1), Some(BootNs(7))), None);
        end(&mut world, upid);
        assert_eq!(world.note_oom_kill(Tgid(1), Some(BootNs(7))), None);
        assert_eq!(world.note_oom_kill(Tgid(1), Some(BootNs(0))), Some(upid));
    }

    #[test]
    fn who_was_chosen_but_ended_otherwise_was_not_oom_killed() {
        let mut world = World::default();
        world.observe_oom_kills();
        for (tgid, wait_status) in [(1, 3 << 8), (2, 15)] {
            let upid = enter(&mut world, tgid);
            assert_eq!(world.note_oom_kill(Tgid(tgid), None), Some(upid));
            let end = End {
                at: BootNs(1),
                wait_status: Some(wait_status),
            };
            world.end(upid, end);
            assert_eq!(world.note_oom_kill(Tgid(tgid), None), None);
            assert_eq!(written(&mut world), [(upid, Some(false))]);
        }
    }

    #[test]
    fn a_peak_that_rose_is_written_when_peaks_are_due() {
        let mut world = World::default();
        let upid = enter(&mut world, 1);
        written(&mut world);
        let peak = Peak {
            bytes: Bytes(1),
            source: PeakSource::Poll,
            error: None,
            at: None,
        };
        world.raise_peak(upid, peak);
        assert_eq!(written(&mut world), []);
        for expected in [1, 0] {
            let mut out = Vec::new();
            world.write_changes(true, &mut out);
            assert_eq!(out.len(), expected);
        }
    }

    #[test]
    fn what_waiting_tells_is_kept_also_when_a_poll_saw_the_end_first() {
        let mut world = World::default();
        for is_written in [false, true] {
            let upid = enter(&mut world, 1);
            let unknown = End {
                at: BootNs(1),
                wait_status: None,
            };
            world.end(upid, unknown);
            let mut out = Vec::new();
            if is_written {
                world.write_changes(false, &mut out);
            }
            let was_alive = world.note_wait(Tgid(1), BootNs(2), 7 << 8, Bytes(4096));
            assert_eq!(was_alive, None);
            out.clear();
            world.write_changes(false, &mut out);
            let [Record::Process(row)] = &out[..] else {
                panic!("{out:?}");
            };
            assert_eq!(row.exit_code, Some(7));
            assert_eq!(row.kernel_maxrss_bytes, Some(Bytes(4096)));
            assert_eq!(row.exit_boot_ns, Some(BootNs(1)));
        }
    }
}
