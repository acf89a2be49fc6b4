//! Writes `cgroup_mem`: the groups of the recorded processes, and the groups above them
//! that have a limit.

use super::group::{Cgroup, Removed};
use super::moves::Moves;
use super::others::{self, Others};
use super::reading::emptied;
use crate::kept::TextBuffer;
use crate::on_change::OnChange;
use crate::{CollectError, Collector, Pass, ProcessTable, Tick};
use memtrace_host::{MemoryHierarchy, clock};
use memtrace_model::{BootNs, Bytes, CgroupMemRow, DiagKind, DurationNs, Record, Tgid, WallNs};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PERIOD: DurationNs = DurationNs(1_000_000_000);
/// How long a group is read after its last recorded process went: an OOM kill is counted
/// after its victim has gone.
const GRACE: DurationNs = DurationNs(10_000_000_000);

/// A reading that took longer was interrupted, and what it says is of several instants: it is
/// made again, so many times.
const INTERRUPTED: DurationNs = DurationNs(3_000_000);
const TRIES: usize = 3;

/// A reading is out of date where what is in use has moved by one part in so many since, and by this
/// at least. So many groups are asked at every tick: one file each.
const MOVED_PART: i64 = 64;
const MOVED_LEAST: Bytes = Bytes(4 << 20);
const MOVED_GROUPS_MAX: usize = 16;

/// Processes that are not recorded are counted so often.
const OTHERS_PERIOD: DurationNs = DurationNs(10_000_000_000);
const OTHERS_PERIOD_MAX: DurationNs = DurationNs(60_000_000_000);
/// The same where they are few: a little less than between two readings.
const FEW_OTHERS_PERIOD: DurationNs = DurationNs(900_000_000);
/// But so many times what a count took lies between two: the kernel lists all members of a group, too.
const OTHERS_REST: i64 = 3_000;

/// Observes memory cgroups.
#[derive(Debug)]
pub struct CgroupCollector {
    hierarchy: MemoryHierarchy,
    groups: BTreeMap<String, Watched>,
    moves: Moves,
    buffer: TextBuffer,
    /// The groups that hold a recorded process, and the revision of the table in which they were found.
    holders: Vec<Arc<str>>,
    holders_revision: Option<u64>,
    /// Where procfs is, if its process ids are those of the recording.
    proc: Option<PathBuf>,
    /// Whom the count of others leaves out, while one is due.
    recorded: HashSet<Tgid>,
    /// What a reading is stamped with.
    now: fn(&Tick) -> Instant,
}

#[derive(Debug)]
struct Watched {
    /// `None` for a group that the mounted hierarchy does not show.
    group: Option<Cgroup>,
    /// When it last held a recorded process itself.
    held_at: Option<BootNs>,
    /// When it last was above a group that did.
    needed_at: BootNs,
    /// What was read last, without its path and time.
    last: Option<CgroupMemRow>,
    rows: OnChange<CgroupMemRow>,
    others: Option<Others>,
    /// When they are counted again.
    others_due: Option<BootNs>,
}

/// When a group was read, on both clocks.
#[derive(Clone, Copy, Debug)]
struct Instant {
    boot: BootNs,
    wall: WallNs,
    span: DurationNs,
}

impl Instant {
    /// The tick began before others were asked: a process can grow by much until now.
    fn now(tick: &Tick) -> Self {
        Self::at(clock::boot(), tick)
    }

    fn at(boot: BootNs, tick: &Tick) -> Self {
        Self {
            boot,
            wall: tick.clock.to_wall(boot),
            span: DurationNs(0),
        }
    }

    /// The middle of the time between two.
    fn until(self, end: Self) -> Self {
        let span = end.boot - self.boot;
        Self {
            boot: self.boot + DurationNs(span.0 / 2),
            wall: WallNs(self.wall.0 + span.0 / 2),
            span,
        }
    }
}

impl Watched {
    fn is_count_due(&self, now: BootNs) -> bool {
        self.held_at == Some(now) && self.others_due.is_none_or(|due| now >= due)
    }

    /// They were counted, which took so long.
    fn counted(&mut self, others: Option<Others>, now: BootNs, took: DurationNs) {
        let are_few = others.is_some_and(|others| others.are_few);
        self.others = others;
        self.others_due = Some(now + others_period(are_few, took));
    }
}

/// After how long others are counted again.
fn others_period(are_few: bool, took: DurationNs) -> DurationNs {
    let (least, most) = match are_few {
        true => (FEW_OTHERS_PERIOD, OTHERS_PERIOD),
        false => (OTHERS_PERIOD, OTHERS_PERIOD_MAX),
    };
    DurationNs(took.0.saturating_mul(OTHERS_REST)).clamp(least, most)
}

impl CgroupCollector {
    /// A collector for the hierarchy that holds the memory controller. `proc` is where
    /// procfs is mounted, if the process ids in it are those of the recording.
    pub fn new(hierarchy: MemoryHierarchy, proc: Option<&Path>) -> Self {
        Self {
            hierarchy,
            groups: BTreeMap::new(),
            moves: Moves::default(),
            buffer: TextBuffer::default(),
            holders: Vec::new(),
            holders_revision: None,
            proc: proc.map(Path::to_owned),
            recorded: HashSet::new(),
            now: Instant::now,
        }
    }

    /// Counts those who live in the groups of the recording and are not of it.
    fn count_others(&mut self, now: BootNs, table: &ProcessTable) {
        let Some(proc) = &self.proc else {
            return;
        };
        if !self
            .groups
            .values()
            .any(|watched| watched.is_count_due(now))
        {
            return;
        }
        self.recorded.clear();
        self.recorded.insert(Tgid(std::process::id()));
        let tgids = table.processes().map(|process| process.row().tgid);
        self.recorded.extend(tgids);
        for (path, watched) in &mut self.groups {
            let directory = self.hierarchy.directory(path);
            if let Some(directory) = directory.filter(|_| watched.is_count_due(now)) {
                let before = clock::thread_cpu();
                let others = others::look(&directory, proc, &self.recorded, &mut self.buffer);
                watched.counted(others, now, DurationNs(clock::thread_cpu().0 - before.0));
            }
        }
    }

    /// Marks the groups that are needed now and opens those that are new.
    fn find_groups(&mut self, pass: &mut Pass<'_>) {
        let now = pass.tick.boot;
        if self.holders_revision.replace(pass.table.revision()) != Some(pass.table.revision()) {
            self.holders = holders(pass.table);
        }
        let holders = std::mem::take(&mut self.holders);
        for path in &holders {
            match self.groups.get_mut(&**path) {
                Some(watched) => watched.held_at = Some(now),
                None => self.watch(path, Some(now), pass),
            }
        }
        for holder in &holders {
            let mut path: &str = holder;
            while let Some(above) = parent(path) {
                path = above;
                match self.groups.get_mut(path) {
                    Some(watched) => watched.needed_at = now,
                    None => self.watch(path, None, pass),
                }
            }
        }
        self.holders = holders;
        self.groups.retain(|_, watched| {
            let last_use = watched.needed_at.max(watched.held_at.unwrap_or_default());
            now - last_use <= GRACE
        });
    }

    fn watch(&mut self, path: &str, held_at: Option<BootNs>, pass: &mut Pass<'_>) {
        let directory = self.hierarchy.directory(path);
        if directory.is_none() && held_at.is_some() {
            let detail = format!(
                "the group lies outside of what is mounted at {}; its memory is unknown",
                self.hierarchy.mount_point.display()
            );
            let subject = format!("cgroup {path}");
            pass.tell_degraded(DiagKind::Unavailable, &subject, None, detail);
        }
        let version = self.hierarchy.version;
        let watched = Watched {
            group: directory.map(|directory| Cgroup::new(directory, version)),
            held_at,
            needed_at: pass.tick.boot,
            last: None,
            rows: OnChange::default(),
            others: None,
            others_due: None,
        };
        self.groups.insert(path.to_owned(), watched);
    }
}

/// The groups of all processes, each once.
fn holders(table: &ProcessTable) -> Vec<Arc<str>> {
    let mut holders: Vec<Arc<str>> = Vec::new();
    let mut seen = HashSet::new();
    for process in table.processes() {
        let Some(path) = &process.row().cgroup else {
            continue;
        };
        // Most processes share a few groups, and the text of their path: this spares most of
        // them the look-up.
        let is_last = holders.last().is_some_and(|last| Arc::ptr_eq(last, path));
        if !is_last && seen.insert(Arc::clone(path)) {
            holders.push(Arc::clone(path));
        }
    }
    holders
}

/// The group above, down from which a limit works too.
fn parent(path: &str) -> Option<&str> {
    match path.rsplit_once('/')? {
        ("", "") => None,
        ("", _) => Some("/"),
        (above, _) => Some(above),
    }
}

impl Collector for CgroupCollector {
    fn name(&self) -> &'static str {
        "cgroup"
    }

    fn period(&self) -> DurationNs {
        PERIOD
    }

    fn follows_processes(&self) -> bool {
        true
    }

    /// No counter of a process tells of pages that a fork copies, or of files of a tmpfs; what the
    /// group has in use does.
    fn is_out_of_date(&mut self) -> bool {
        let buffer = &mut self.buffer;
        let mut holders = self
            .groups
            .values()
            .filter(|watched| watched.held_at.is_some());
        holders.by_ref().take(MOVED_GROUPS_MAX).any(|watched| {
            let now = watched
                .group
                .as_ref()
                .and_then(|group| group.current(buffer));
            let last = watched.last.as_ref().and_then(|last| last.current_bytes);
            now.zip(last).is_some_and(|(now, last)| {
                (now - last).0.abs() >= MOVED_LEAST.0.max(last.0 / MOVED_PART)
            })
        })
    }

    fn collect(&mut self, pass: &mut Pass<'_>) -> Result<(), CollectError> {
        if let Some(proc) = &self.proc {
            let buffer = &mut self.buffer;
            self.moves
                .follow(pass.tick.boot, pass.table, proc, &self.hierarchy, buffer);
        }
        self.find_groups(pass);
        self.count_others(pass.tick.boot, pass.table);
        let version = self.hierarchy.version.number();
        let (buffer, now) = (&mut self.buffer, self.now);
        self.groups.retain(|path, watched| {
            let Some(group) = &mut watched.group else {
                return true;
            };
            match read(group, watched.held_at.is_some(), buffer, || now(pass.tick)) {
                Ok(Some((reading, at))) => {
                    let row = row(path, version, reading.clone(), watched.others, at);
                    let rows = watched.rows.rows(row, pass.tick.is_keyframe);
                    pass.out.extend(rows.map(Record::from));
                    watched.last = Some(reading);
                    true
                }
                Ok(None) => true,
                // If a process is found in it again, it is another group of that name.
                Err(Removed) => {
                    let last = watched.last.take();
                    pass.out.extend(last.map(|last| {
                        let emptied = emptied(&last);
                        let row = row(path, version, emptied, Some(Others::NONE), now(pass.tick));
                        Record::from(row)
                    }));
                    false
                }
            }
        });
        Ok(())
    }
}

/// Reads a group, and tells when that was.
fn read(
    group: &mut Cgroup,
    is_holder: bool,
    buffer: &mut TextBuffer,
    now: impl Fn() -> Instant,
) -> Result<Option<(CgroupMemRow, Instant)>, Removed> {
    let mut begin = now();
    for tries in 1.. {
        let Some(reading) = group.read(is_holder, buffer)? else {
            break;
        };
        let end = now();
        let at = begin.until(end);
        if at.span <= INTERRUPTED || tries >= TRIES {
            return Ok(Some((reading, at)));
        }
        begin = end;
    }
    Ok(None)
}

fn row(
    path: &str,
    version: i32,
    reading: CgroupMemRow,
    others: Option<Others>,
    at: Instant,
) -> CgroupMemRow {
    CgroupMemRow {
        ts: at.wall,
        boot_ns: at.boot,
        cgroup: path.to_owned(),
        version,
        other_process_count: others.map(|others| others.count),
        other_anon_bytes: others.and_then(|others| others.anon),
        span_ns: Some(at.span),
        ..reading
    }
}

#[cfg(test)]
mod tests;
