//! Objects of shared memory: who maps them, and what they take. `shm_object`.
//!
//! They are asked for their size through a mapping of a living process (map_files), never
//! through a descriptor of our own that is kept: that would keep a deleted one alive.

use super::families::recognise;
use super::key::{Key, Open, key_of};
use super::mappings::Device;
use super::other_mappers::{OtherMappers, Wanted};
use super::subject::Subject;
use super::sysv::{Segment, segments};
use super::totals::{Class, MappingTotals, class};
use memtrace_host::clock;
use memtrace_model::{
    BootNs, Bytes, ClockOffset, DurationNs, MappingKind, Record, ShmObjectRow, Tgid, Upid,
};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// An unchanged object is written again so often: a reader need not look further back.
const KEYFRAME_NS: i64 = 60_000_000_000;
/// Files in /dev/shm are listed, and untraced processes asked for them, so often.
const LIST_NS: i64 = 10_000_000_000;
/// So few of them are listed at every round: listing them costs little.
const FEW_FILES: usize = 256;
/// So few of them are looked at between the rounds, too.
const VERY_FEW_FILES: usize = 32;
/// The first list waits until processes were looked at: what they map is not nobody's.
const FIRST_LIST_NS: i64 = 3_000_000_000;
/// So many files of /dev/shm are looked at.
const LISTED_MAX: usize = 4096;
/// An object that is only open, and takes less than this, is left to the sums.
const OPEN_MIN_BYTES: u64 = 1 << 20;
/// So many upids stand in a row.
const MAPPERS_MAX: usize = 1000;

/// A process that maps an object, and where.
#[derive(Clone, Copy, Debug)]
struct Mapper {
    tgid: Tgid,
    range: (u64, u64),
}

impl Mapper {
    /// What leads to the object while it is mapped there.
    fn link(&self, root: &Path) -> PathBuf {
        let (start, end) = self.range;
        root.join(format!("{}/map_files/{start:x}-{end:x}", self.tgid))
    }
}

/// What an object takes, as far as it is known.
struct Taken {
    is_deleted: bool,
    size: Option<Bytes>,
    allocated: Option<Bytes>,
    resident: Option<Bytes>,
}

/// What a row says beside its time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    is_deleted: bool,
    size: Option<Bytes>,
    allocated: Option<Bytes>,
    /// Where it is known apart from what is swapped out.
    resident: Option<Bytes>,
    mappers: Vec<Upid>,
    opener: Option<Upid>,
    has_other_mapper: Option<bool>,
}

#[derive(Debug)]
struct Object {
    kind: MappingKind,
    name: Option<String>,
    is_deleted: bool,
    mappers: BTreeMap<Upid, Mapper>,
    /// Processes that have it open by a descriptor, and by which; by an unknown one are those
    /// that mapped it, and whose descriptors may not be looked at.
    openers: BTreeMap<Upid, Option<PathBuf>>,
    first_mapper: Option<Upid>,
    /// Who was first seen to have it open without mapping it.
    first_opener: Option<Upid>,
    /// Where it was last listed in /dev/shm.
    listed: Option<PathBuf>,
    has_other_mapper: Option<bool>,
    /// The last look at it, or at where it would have been seen.
    looked: Option<BootNs>,
    written: Option<(BootNs, State)>,
    /// What it took when it was last asked with success.
    took: Bytes,
}

/// All that are known.
#[derive(Debug)]
pub(super) struct Objects {
    root: PathBuf,
    shm_dir: PathBuf,
    objects: HashMap<Key, Object>,
    /// When the next list is due; `None` before the first call.
    next_list: Option<BootNs>,
    /// How many files the last list had; `None` before the first.
    listed_count: Option<usize>,
    /// What they lie on.
    listed_device: Option<Device>,
    /// When that was.
    listed_at: BootNs,
    /// When it was by the wall clock, and what the directory had as its last change.
    listed_change: Option<(i64, i64)>,
    /// Whether some file was empty: what is written to it changes nothing of the directory.
    has_empty: bool,
    /// Files of /dev/shm beyond [`LISTED_MAX`], at the last list.
    left_out: i64,
}

impl Objects {
    /// `root` is where procfs is, `shm_dir` where POSIX shared memory is.
    pub(super) fn new(root: &Path, shm_dir: &Path) -> Self {
        Self {
            root: root.to_owned(),
            shm_dir: shm_dir.to_owned(),
            objects: HashMap::new(),
            next_list: None,
            listed_count: None,
            listed_device: None,
            listed_at: BootNs(0),
            listed_change: None,
            has_empty: false,
            left_out: 0,
        }
    }

    /// Files of /dev/shm that there was no room for in the lists since this was last asked.
    pub(super) fn take_left_out(&mut self) -> i64 {
        std::mem::take(&mut self.left_out)
    }

    /// Takes what a reading of a process showed; `open` are its descriptors of shared memory,
    /// where they are known.
    pub(super) fn enter(&mut self, subject: &Subject, totals: &MappingTotals, open: Option<&Open>) {
        let mut held = Vec::new();
        for (key, object) in &mut self.objects {
            let was_mapped = object.mappers.remove(&subject.upid).is_some();
            let was_open = object.openers.remove(&subject.upid).is_some();
            if was_mapped || was_open {
                held.push(*key);
            }
        }
        for (key, mapped) in totals.objects() {
            // Private huge pages are the process's own, also where a file lends the name.
            let is_shared = class(key.kind) == Class::Shmem
                || (key.kind == MappingKind::Hugetlb && mapped.is_shared);
            let Some(inode) = key.inode.filter(|_| is_shared) else {
                continue;
            };
            let looked = self.missing_at(inode, mapped.path.as_deref());
            let looked = looked.filter(|_| !mapped.is_deleted);
            let object = self.objects.entry(inode).or_insert_with(|| Object {
                looked,
                ..Object::new(key.kind, mapped.path.clone())
            });
            object.is_deleted = mapped.is_deleted;
            object.first_mapper.get_or_insert(subject.upid);
            let mapper = Mapper {
                tgid: subject.tgid,
                range: mapped.range,
            };
            object.mappers.insert(subject.upid, mapper);
        }
        match open {
            Some(open) => self.note_open(subject, open),
            None => {
                for key in held {
                    if let Some(object) = self.objects.get_mut(&key) {
                        object.openers.insert(subject.upid, None);
                    }
                }
            }
        }
    }

    /// Takes the descriptors of shared memory that a process was found to have.
    pub(super) fn note_open(&mut self, subject: &Subject, open: &Open) {
        for (key, way) in open {
            if !self.objects.contains_key(key)
                && let Some(mut object) = Object::open(way)
            {
                let looked = self.missing_at(*key, object.name.as_deref());
                object.looked = looked.filter(|_| !object.is_deleted);
                self.objects.insert(*key, object);
            }
            let Some(object) = self.objects.get_mut(key) else {
                continue;
            };
            object.openers.insert(subject.upid, Some(way.clone()));
            if !object.mappers.contains_key(&subject.upid) {
                object.first_opener.get_or_insert(subject.upid);
            }
        }
    }

    /// When a new object took nothing yet: a file of /dev/shm that was not in the last list.
    fn missing_at(&self, key: Key, path: Option<&str>) -> Option<BootNs> {
        // A list that was cut says nothing of what it does not have.
        let is_whole = self.listed_count.is_some_and(|count| count < LISTED_MAX);
        let directory = path.and_then(|path| Path::new(path).parent());
        let is_there = directory == Some(&self.shm_dir) && self.listed_device == Some(key.0);
        (is_whole && is_there).then_some(self.listed_at)
    }

    /// Lists /dev/shm where that is due. Gives what is to be found out then: who else maps what
    /// no recorded process does.
    pub(super) fn list_if_due(&mut self, living: &HashSet<Upid>, now: BootNs) -> Option<Wanted> {
        let next_list = *self
            .next_list
            .get_or_insert(now + DurationNs(FIRST_LIST_NS));
        if now < next_list {
            if self.listed_count.is_some_and(|count| count < FEW_FILES) {
                self.list(now);
            }
            return None;
        }
        self.next_list = Some(now + DurationNs(LIST_NS));
        self.list(now);
        let mappers = self.objects.values().flat_map(|object| &object.mappers);
        let recorded = mappers
            .filter(|(upid, _)| living.contains(upid))
            .map(|(_, mapper)| mapper.tgid)
            .collect();
        let asked = self.objects.iter();
        let asked = asked.filter(|(_, object)| object.is_unmapped_file());
        let asked: HashSet<Key> = asked.map(|(key, _)| *key).collect();
        (!asked.is_empty()).then_some(Wanted { recorded, asked })
    }

    /// Takes who maps files of /dev/shm outside of the recording.
    pub(super) fn note_other_mappers(&mut self, others: &OtherMappers) {
        for (key, object) in &mut self.objects {
            let is_asked = others.asked.contains(key) && object.is_unmapped_file();
            object.has_other_mapper = match others.mapped.contains(key) {
                true => Some(true),
                false if others.has_refusal || !is_asked => None,
                false => Some(false),
            };
        }
    }

    /// Who is to be read again, since an object is not where it mapped it: it was unmapped, or lies
    /// elsewhere; and what that took. No counter of a process that only maps it tells.
    pub(super) fn moved(&self) -> HashMap<Upid, Bytes> {
        let mut moved: HashMap<Upid, Bytes> = HashMap::new();
        for object in self.objects.values() {
            for upid in object.moved(&self.root) {
                let bytes = moved.entry(upid).or_default();
                *bytes = *bytes + object.took;
            }
        }
        moved
    }

    /// Asks every object for its size, and writes those that changed.
    pub(super) fn write(
        &mut self,
        living: &HashSet<Upid>,
        now: BootNs,
        clock: ClockOffset,
        out: &mut Vec<Record>,
    ) {
        let segments = segments(&self.root);
        let mut gone = Vec::new();
        for (key, object) in &mut self.objects {
            object.mappers.retain(|upid, _| living.contains(upid));
            object.openers.retain(|upid, _| living.contains(upid));
            let segment = segments.get(&key.1).copied();
            let state = object.look(&self.root, *key, segment);
            if object.write(*key, state, now, clock, out) {
                gone.push(*key);
            }
        }
        for key in gone {
            self.objects.remove(&key);
        }
    }

    /// Looks at files of /dev/shm that nobody recorded maps, where there are few: of what they
    /// take no counter of a process tells. Writes those that changed.
    pub(super) fn glance(&mut self, now: BootNs, clock: ClockOffset, out: &mut Vec<Record>) {
        if self.listed_count.is_none_or(|count| count > VERY_FEW_FILES) {
            return;
        }
        if self.has_changed() {
            self.list(now);
        } else {
            self.listed_at = now;
        }
        let mut gone = Vec::new();
        for (key, object) in &mut self.objects {
            if !object.is_unmapped_file() {
                continue;
            }
            let state = object.look(&self.root, *key, None);
            if object.write(*key, state, now, clock, out) {
                gone.push(*key);
            }
        }
        for key in gone {
            self.objects.remove(&key);
        }
    }

    /// Whether files may have come to /dev/shm or gone since it was last listed. The kernel notes
    /// such times by its ticks, of 10 ms at the most.
    fn has_changed(&self) -> bool {
        const TICK_NS: i64 = 10_000_000;
        let Some((listed, changed)) = self.listed_change else {
            return true;
        };
        let now = fs::metadata(&self.shm_dir).map(|metadata| modified_ns(&metadata));
        self.has_empty || now.is_ok_and(|now| now != changed || now >= listed - TICK_NS)
    }

    /// The files in /dev/shm. One that is not mounted has none.
    pub(super) fn list(&mut self, now: BootNs) {
        let wall = clock::read().wall_ns.0;
        let dir = fs::metadata(&self.shm_dir).ok();
        let Ok(entries) = fs::read_dir(&self.shm_dir) else {
            return;
        };
        let changed = dir.as_ref().map(modified_ns);
        self.listed_change = changed.map(|changed| (wall, changed));
        self.listed_device = dir.map(|dir| Device::of(dir.dev()));
        self.has_empty = false;
        let mut entries = entries.flatten();
        let mut count = 0;
        for entry in entries.by_ref().take(LISTED_MAX) {
            count += 1;
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if !metadata.is_file() {
                continue;
            }
            if metadata.blocks() == 0 {
                self.has_empty = true;
                continue;
            }
            let path = entry.path();
            let name = path.to_string_lossy().into_owned();
            let key = key_of(&metadata);
            let looked = self.missing_at(key, Some(&name));
            let object = self.objects.entry(key).or_insert_with(|| Object {
                looked,
                ..Object::new(MappingKind::Tmpfs, Some(name))
            });
            object.listed = Some(path);
        }
        self.listed_count = Some(count);
        self.listed_at = now;
        self.left_out += i64::try_from(entries.count()).unwrap_or(i64::MAX);
    }

    /// Who was first seen to have each object open.
    #[cfg(test)]
    pub(super) fn first_openers(&self) -> Vec<Option<Upid>> {
        let objects = self.objects.values();
        objects.map(|object| object.first_opener).collect()
    }
}

impl Object {
    fn new(kind: MappingKind, name: Option<String>) -> Self {
        Self {
            kind,
            name,
            is_deleted: false,
            mappers: BTreeMap::new(),
            openers: BTreeMap::new(),
            first_mapper: None,
            first_opener: None,
            listed: None,
            has_other_mapper: None,
            looked: None,
            written: None,
            took: Bytes(0),
        }
    }

    /// Where nobody could be asked for it, since those that mapped it map it elsewhere by now, or
    /// no more: they.
    fn moved(&self, root: &Path) -> impl Iterator<Item = Upid> {
        let was_asked_in_vain =
            matches!(&self.written, Some((_, state)) if state.allocated.is_none());
        let mappers = self.mappers.iter().filter(move |_| was_asked_in_vain);
        let moved = mappers.filter(move |(_, mapper)| is_missing(&mapper.link(root)));
        moved.map(|(upid, _)| *upid)
    }

    /// Whether it is a file that nobody recorded maps.
    fn is_unmapped_file(&self) -> bool {
        self.listed.is_some() && self.mappers.is_empty()
    }

    /// What is to be said of it now.
    fn look(&mut self, root: &Path, key: Key, segment: Option<Segment>) -> State {
        let taken = self.taken(root, key, segment);
        self.is_deleted = taken.is_deleted;
        self.took = taken.allocated.unwrap_or(self.took);
        State {
            is_deleted: taken.is_deleted,
            size: taken.size,
            allocated: taken.allocated,
            resident: taken.resident,
            mappers: self.mappers.keys().copied().collect(),
            opener: self.first_opener,
            has_other_mapper: self.has_other_mapper,
        }
    }

    /// Writes it where that is due. Answers whether it is gone.
    fn write(
        &mut self,
        key: Key,
        state: State,
        now: BootNs,
        clock: ClockOffset,
        out: &mut Vec<Record>,
    ) -> bool {
        let looked = self.looked.replace(now);
        let is_due = self
            .written
            .as_ref()
            .is_none_or(|(at, written)| *written != state || (now - *at).0 >= KEYFRAME_NS);
        if !is_due {
            return false;
        }
        out.push(self.row(key, &state, looked, now, clock).into());
        let is_held = !self.mappers.is_empty() || !self.openers.is_empty();
        let takes_nothing = state
            .allocated
            .is_none_or(|allocated| allocated == Bytes(0));
        self.written = Some((now, state));
        !is_held && takes_nothing
    }

    /// One that a descriptor leads to; `None` where it takes too little to be followed.
    fn open(way: &Path) -> Option<Self> {
        const DELETED: &str = " (deleted)";
        let metadata = fs::metadata(way).ok()?;
        if metadata.blocks() * 512 < OPEN_MIN_BYTES {
            return None;
        }
        let name = fs::read_link(way).ok()?.to_string_lossy().into_owned();
        let kind = match name.starts_with("/memfd:") {
            true => MappingKind::Memfd,
            false => MappingKind::Tmpfs,
        };
        let named = name.strip_suffix(DELETED);
        Some(Self {
            is_deleted: named.is_some(),
            ..Self::new(kind, Some(named.unwrap_or(&name).to_owned()))
        })
    }

    /// What it takes.
    fn taken(&mut self, root: &Path, key: Key, segment: Option<Segment>) -> Taken {
        if let Some(taken) = self.asked(root, key, segment) {
            return taken;
        }
        // Whoever has ended is not waited for, also where that is not known yet.
        self.mappers
            .retain(|_, mapper| has_address_space(root, mapper.tgid));
        self.openers
            .retain(|_, way| way.as_deref().is_none_or(|way| !is_missing(way)));
        let is_name_gone = self
            .listed
            .as_deref()
            .is_some_and(|path| is_other(path, key));
        // A descriptor is enough to keep it. A memfd's can be anybody's; then nobody says.
        let is_gone = self.mappers.is_empty()
            && self.openers.is_empty()
            && match self.kind {
                MappingKind::Sysv | MappingKind::SharedAnonymous => true,
                _ => is_name_gone,
            };
        let amount = is_gone.then_some(Bytes(0));
        Taken {
            is_deleted: self.is_deleted || is_name_gone,
            size: amount,
            allocated: amount,
            resident: amount,
        }
    }

    /// What it takes, asked through a mapping, a descriptor, or its name; `None` where there is
    /// nobody to ask.
    fn asked(&self, root: &Path, key: Key, segment: Option<Segment>) -> Option<Taken> {
        let segment = segment
            .filter(|_| self.kind == MappingKind::Sysv)
            .map(|segment| Taken {
                is_deleted: self.is_deleted,
                size: segment.size,
                allocated: Some(segment.resident + segment.swapped),
                resident: Some(segment.resident),
            });
        let through_mappers = self.mappers.values().map(|mapper| mapper.link(root));
        let through_openers = self.openers.values().flatten().cloned();
        for path in through_mappers
            .chain(through_openers)
            .chain(self.listed.clone())
        {
            if let Ok(metadata) = fs::metadata(&path)
                && key_of(&metadata) == key
            {
                let found = Taken {
                    is_deleted: metadata.nlink() == 0,
                    size: amount(metadata.len()),
                    allocated: amount(metadata.blocks() * 512),
                    resident: None,
                };
                // Of another ipc namespace it can have the same id as one of ours.
                let is_same = |segment: &Taken| {
                    (segment.size, segment.allocated) == (found.size, found.allocated)
                };
                return Some(segment.filter(is_same).unwrap_or(found));
            }
        }
        segment
    }

    fn row(
        &self,
        key: Key,
        state: &State,
        looked: Option<BootNs>,
        now: BootNs,
        clock: ClockOffset,
    ) -> ShmObjectRow {
        let (family, creator) = self.name.as_deref().map(recognise).unwrap_or_default();
        let listed: Vec<String> = state
            .mappers
            .iter()
            .take(MAPPERS_MAX)
            .map(Upid::to_string)
            .collect();
        ShmObjectRow {
            ts: clock.to_wall(now),
            boot_ns: now,
            device: key.0.to_string(),
            inode: i64::try_from(key.1).unwrap_or(i64::MAX),
            kind: Some(self.kind),
            name: self.name.clone(),
            is_deleted: state.is_deleted,
            family,
            creator_tgid: creator,
            size_bytes: state.size,
            allocated_bytes: state.allocated,
            resident_bytes: state.resident,
            mapper_count: i64::try_from(state.mappers.len()).unwrap_or(i64::MAX),
            mappers: listed.join(" "),
            first_mapper_upid: self.first_mapper,
            first_opener_upid: state.opener,
            unchanged_until_boot_ns: looked,
            has_other_mapper: state.has_other_mapper,
        }
    }
}

/// Whether no file has this path any more, or another one.
fn is_other(path: &Path, key: Key) -> bool {
    match fs::metadata(path) {
        Ok(metadata) => key_of(&metadata) != key,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Whether a process has memory still: one that has ended has none, also before its parent has
/// waited for it. One whose first thread has ended has it by another.
fn has_address_space(root: &Path, tgid: Tgid) -> bool {
    if !is_missing(&root.join(format!("{tgid}/exe"))) {
        return true;
    }
    let threads = fs::read_dir(root.join(format!("{tgid}/task")));
    let mut threads = threads.into_iter().flatten().flatten();
    threads.any(|thread| !is_missing(&thread.path().join("exe")))
}

/// Whether a link leads nowhere because it is not there.
fn is_missing(link: &Path) -> bool {
    let target = fs::read_link(link);
    target.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn modified_ns(metadata: &fs::Metadata) -> i64 {
    metadata.mtime().saturating_mul(1_000_000_000) + metadata.mtime_nsec()
}

fn amount(bytes: u64) -> Option<Bytes> {
    i64::try_from(bytes).ok().map(Bytes)
}

#[cfg(test)]
mod tests;
