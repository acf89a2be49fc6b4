//! The shared object that filled a group: a file of a tmpfs, a memfd, a segment of System V. It
//! grows in nobody's RSS while nobody maps it.

use super::MAX_KILLS_EXAMINED;
use super::kinds::KindLine;
use super::windows::Windows;
use crate::leftovers::OrphanedShmObject;
use crate::process::Process;
use crate::process_table::ProcessTable;
use crate::surroundings::is_within;
use crate::who::{Bundle, Who};
use memtrace_model::tables::{OomRow, OrphanedShmRow, ShmObjectRow};
use memtrace_model::{BootNs, Bytes, DurationNs, RowSource, Upid};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;

/// An object outlives the process that was killed, so what is read within this after the kill is
/// what it was then, at most.
const SEEN_LATER_NS: i64 = 10_000_000_000;

/// An object with one part in so many of the growth explains a good part of it.
const GOOD_PART: i64 = 4;
/// What is read after a kill can be more than it was then, by one part in so many.
const SLACK_PART: i64 = 8;
/// Readings take turns: what is first seen later than this in a recording came to be in it.
const LAG_NS: i64 = 10_000_000_000;

/// Whether the group with the limit pays for an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Charged {
    Known(bool),
    /// Nobody recorded was seen to have it.
    Unknown,
}

/// A shared object at a kill, as it was read last before it or first after it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct GrownObject {
    /// Its name as the kernel tells it.
    pub name: Option<String>,
    /// Device of its file system.
    pub device: String,
    /// Inode; of a System V segment also its id.
    pub inode: i64,
    /// What it took of memory.
    pub bytes: Bytes,
    /// How much earlier than the kill that was read; zero when it was after it.
    pub age_ns: DurationNs,
    /// By how much it grew in the window that is reported.
    pub grown_bytes: Bytes,
    /// Who has it, where it is known: the processes that map it, else the one that was seen to
    /// have it open.
    pub held_by: Vec<Bundle>,
    /// Whether those map it; else they have it open.
    pub is_mapped: bool,
    /// Who was seen to have it open first, where it had ended by then.
    pub opened_by: Option<Who>,
    /// How many objects of the group grew in that window, this one among them.
    pub object_count: usize,
    /// By how much they grew together.
    pub objects_grown_bytes: Bytes,
}

/// The objects around one kill, by device and inode: at the kill, and at the starts of its
/// windows.
#[derive(Default)]
pub(super) struct Objects {
    at: HashMap<(String, i64), ObjectReadings>,
}

#[derive(Default)]
struct ObjectReadings {
    at_kill: Option<ShmObjectRow>,
    /// Who was seen to have it open only after the kill.
    later_opener: Option<Upid>,
    before: Vec<Option<Bytes>>,
    /// What it took when it was seen first: nothing before that of one that is new. `None` where no
    /// reading tells.
    first: Option<Bytes>,
    is_old: bool,
}

/// Reads the objects around every kill that is examined.
pub(super) fn read<S: RowSource>(
    source: &S,
    kills: &[OomRow],
    windows: &Windows,
    (start, left): (BootNs, &[OrphanedShmObject]),
) -> Result<Vec<Objects>, S::Error> {
    let examined = kills.iter().take(MAX_KILLS_EXAMINED);
    let mut all: Vec<(&OomRow, Objects)> =
        examined.map(|kill| (kill, Objects::default())).collect();
    if !all.is_empty() {
        source.scan(&[], |row: ShmObjectRow| {
            for (kill, objects) in &mut all {
                objects.take((start, kill.boot_ns), windows.before(kill.boot_ns), &row);
            }
        })?;
        // A recording that ends with the kill looks at them once more.
        for OrphanedShmObject { row, .. } in left {
            for (kill, objects) in &mut all {
                let later = row.boot_ns - kill.boot_ns;
                if (0..=SEEN_LATER_NS).contains(&later.0) {
                    objects.take_left(row);
                }
            }
        }
    }
    Ok(all.into_iter().map(|(_, objects)| objects).collect())
}

impl ObjectReadings {
    /// What it took before it was read.
    fn unread(&self) -> Bytes {
        let first = self.first.filter(|_| self.is_old);
        first.unwrap_or(Bytes(0))
    }
}

impl Objects {
    fn take(&mut self, (start, kill): (BootNs, BootNs), starts: &[BootNs], row: &ShmObjectRow) {
        let key = (row.device.clone(), row.inode);
        let is_new = row.unchanged_until_boot_ns.is_some() || (row.boot_ns - start).0 > LAG_NS;
        let around = self.at.entry(key).or_insert_with(|| ObjectReadings {
            is_old: !is_new,
            ..ObjectReadings::default()
        });
        around.before.resize(starts.len(), None);
        let later = (row.boot_ns - kill).0;
        let is_better = match &around.at_kill {
            _ if later > SEEN_LATER_NS => false,
            None => true,
            // One that is gone tells nothing of what it was.
            Some(kept) if kept.boot_ns <= kill => {
                later <= 0 || row.in_memory_bytes() > kept.in_memory_bytes()
            }
            Some(_) => false,
        };
        if is_better {
            around.at_kill = Some(row.clone());
        }
        if (0..=SEEN_LATER_NS).contains(&later) {
            around.later_opener = around.later_opener.or(row.first_opener_upid);
        }
        let Some(bytes) = row.in_memory_bytes() else {
            return;
        };
        around.first = around.first.or(Some(bytes));
        for (kept, start) in around.before.iter_mut().zip(starts) {
            if row.boot_ns <= *start {
                *kept = Some(bytes);
            }
        }
    }

    /// Takes an object that was found after the kill, at the end of the recording.
    fn take_left(&mut self, row: &OrphanedShmRow) {
        let Some(device) = row.device.clone() else {
            return;
        };
        let around = self.at.entry((device.clone(), row.inode)).or_default();
        let known = around.at_kill.take();
        if known
            .as_ref()
            .is_some_and(|known| known.in_memory_bytes() >= row.allocated_bytes)
        {
            around.at_kill = known;
            return;
        }
        around.at_kill = Some(ShmObjectRow {
            ts: row.ts,
            boot_ns: row.boot_ns,
            device,
            inode: row.inode,
            kind: row.kind,
            name: Some(row.name.clone()),
            is_deleted: false,
            family: row.family,
            creator_tgid: row.creator_tgid,
            size_bytes: row.size_bytes,
            allocated_bytes: row.allocated_bytes,
            mapper_count: 0,
            mappers: known
                .as_ref()
                .map_or_else(String::new, |known| known.mappers.clone()),
            first_mapper_upid: known.as_ref().and_then(|known| known.first_mapper_upid),
            first_opener_upid: known.as_ref().and_then(|known| known.first_opener_upid),
            ..ShmObjectRow::default()
        });
    }

    /// The object that grew most in a window in which shared memory grew as `line` says, and not by
    /// more than that. Whose object nobody knows can be of another group: it is reported only where none
    /// of a known process has a good part of the growth.
    pub(super) fn grown_most(
        &self,
        kill: &OomRow,
        (window, line): (usize, &KindLine),
        table: &ProcessTable,
    ) -> Option<GrownObject> {
        let grown = line.grown_bytes?;
        let slack = |most: Bytes| Bytes(most.0 + most.0 / SLACK_PART);
        // Where a part of the growth is missing, no object of the group is more than all it has.
        let most = slack(if line.is_growth_partial {
            line.bytes
        } else {
            grown
        });
        let charged = |row: &ShmObjectRow| charged(row, kill, table);
        // Who began later can have opened it since.
        let lived = |upid: &Upid| {
            let place = table.find(*upid);
            place.is_some_and(|place| table.processes[place].start.boot_ns <= kill.boot_ns)
        };
        let mut known = (0, Bytes(0));
        let all = self.at.values().filter_map(|around| {
            let mut row = around.at_kill.clone()?;
            let later = around.later_opener.filter(lived);
            row.first_opener_upid = row.first_opener_upid.or(later);
            let bytes = row.in_memory_bytes()?;
            let before = around.before.get(window).copied().flatten();
            let own = bytes - before.unwrap_or_else(|| around.unread());
            let (least, most) = match charged(&row) {
                Charged::Known(true) => (Bytes(1), most),
                Charged::Known(false) => return None,
                Charged::Unknown => (Bytes(grown.0 / GOOD_PART), slack(grown)),
            };
            if !(least..=most).contains(&own) {
                return None;
            }
            // Read after the kill it can have grown since: by then it had no more than its whole group.
            let since_kill = match row.boot_ns > kill.boot_ns {
                true => (own - line.bytes).max(Bytes(0)),
                false => Bytes(0),
            };
            let (own, bytes) = (own - since_kill, bytes - since_kill);
            let is_known = charged(&row) == Charged::Known(true);
            if is_known {
                known = (known.0 + 1, known.1 + own);
            }
            Some((is_known && own.0 >= grown.0 / GOOD_PART, own, bytes, row))
        });
        let (_, grown_bytes, bytes, row) =
            all.max_by_key(|(is_known, own, bytes, row)| (*is_known, *own, *bytes, row.inode))?;
        let mappers = row.mappers.split(' ').filter_map(|upid| upid.parse().ok());
        let mappers: Vec<usize> = mappers.filter_map(|upid| table.find(Upid(upid))).collect();
        let opener = row.first_opener_upid.and_then(|upid| table.find(upid));
        let is_mapped = !mappers.is_empty();
        let opener = opener.filter(|_| !is_mapped);
        let (opened_by, opener) = match opener {
            Some(place) if had_ended(&table.processes[place], kill) => {
                (Some(Who::from(&table.processes[place])), None)
            }
            opener => (None, opener),
        };
        let holders = match is_mapped {
            true => mappers,
            false => opener.into_iter().collect(),
        };
        let holders = holders.into_iter();
        Some(GrownObject {
            name: row.name.clone(),
            device: row.device.clone(),
            inode: row.inode,
            bytes,
            age_ns: DurationNs((kill.boot_ns - row.boot_ns).0.max(0)),
            grown_bytes,
            held_by: holders
                .map(|place| Bundle::of(&table.processes, vec![place]))
                .collect(),
            is_mapped,
            opened_by,
            object_count: known.0.max(1),
            objects_grown_bytes: known.1.max(grown_bytes),
        })
    }
}

/// Whether an object is charged to the group whose limit was met: to that of its first user.
fn charged(row: &ShmObjectRow, kill: &OomRow, table: &ProcessTable) -> Charged {
    let first = row.first_user().and_then(|upid| table.find(upid));
    let first = first.and_then(|place| table.processes.get(place));
    let cgroup = first.and_then(|process| process.cgroup.as_deref());
    match (&kill.memcg, cgroup) {
        (Some(memcg), Some(cgroup)) => Charged::Known(is_within(cgroup, memcg)),
        (None, _) => Charged::Known(true),
        (Some(_), None) => Charged::Unknown,
    }
}

/// Whether a process had ended when another was killed; the victim itself can be asked to end first.
fn had_ended(process: &Process, kill: &OomRow) -> bool {
    let end = process.exit_boot_ns();
    Some(process.upid) != kill.victim_upid && end.is_some_and(|end| end < kill.boot_ns)
}
