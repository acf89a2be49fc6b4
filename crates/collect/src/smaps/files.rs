//! Files that processes map or have open, and what the page cache holds of them.
//! `cached_file`.

use super::backings::Backings;
use super::budget::{Meter, Stopped};
use super::cache;
use super::key::{Key, Open, key_of};
use super::mappings::Backing;
use super::subject::Subject;
use super::totals::MappingTotals;
use memtrace_model::{
    BootNs, Bytes, CacheSource, CachedFileRow, ClockOffset, MappingKind, Record, Upid,
};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Smaller files are left to the sum of all others.
const SMALL: u64 = 1 << 20;
/// An unchanged file is written again so often.
const KEYFRAME_NS: i64 = 60_000_000_000;
/// A file is asked again so often, or less when the budget is used up.
const AGAIN_NS: i64 = 5_000_000_000;
/// So many files are followed. When there are more, those that nobody uses any more go first.
const FILES_MAX: usize = 4096;
/// What was too small to follow is asked again after this: files grow.
const SMALL_NS: i64 = 60_000_000_000;

/// The way to a file that is its path.
const PATH: usize = 0;

/// A file of a disk or of the network.
#[derive(Debug)]
struct Used {
    path: String,
    size: u64,
    users: HashSet<Upid>,
    first_user: Upid,
    /// Ways to it: its path, and behind that links of /proc to a mapping or a descriptor.
    ways: Vec<PathBuf>,
    asked_at: Option<BootNs>,
    written: Option<(BootNs, i64, usize)>,
}

/// All that are known.
#[derive(Debug)]
pub(super) struct Files {
    root: PathBuf,
    files: HashMap<Key, Used>,
    /// Mapped ones that were found too small to follow, so that they are not asked at every
    /// reading.
    small: HashSet<Key>,
    /// When `small` was last emptied.
    small_since: Option<BootNs>,
    /// Last rows of files that made room for others.
    ended: Vec<CachedFileRow>,
    /// Files in use that there was no room for.
    left_out: i64,
}

impl Files {
    /// `root` is where procfs is.
    pub(super) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            files: HashMap::new(),
            small: HashSet::new(),
            small_since: None,
            ended: Vec::new(),
            left_out: 0,
        }
    }

    /// Files in use that there was no room for since this was last asked.
    pub(super) fn take_left_out(&mut self) -> i64 {
        std::mem::take(&mut self.left_out)
    }

    /// Takes what a reading of a process showed, and looks at its descriptors. Answers those
    /// of files that are shared memory and no page cache; `None` when it may not look.
    pub(super) fn enter(
        &mut self,
        subject: &Subject,
        totals: &MappingTotals,
        backings: &mut Backings,
        meter: &mut Meter<'_>,
    ) -> Result<Option<Open>, Stopped> {
        for used in self.files.values_mut() {
            used.users.remove(&subject.upid);
        }
        let now = memtrace_host::clock::boot();
        let small_since = *self.small_since.get_or_insert(now);
        if (now - small_since).0 >= SMALL_NS {
            self.small.clear();
            self.small_since = Some(now);
        }
        let process = self.root.join(subject.tgid.to_string());
        for (key, mapped) in totals.objects() {
            let Some(inode) = key.inode.filter(|_| key.kind == MappingKind::File) else {
                continue;
            };
            if self.small.contains(&inode) {
                continue;
            }
            let (start, end) = mapped.range;
            let way = process.join(format!("map_files/{start:x}-{end:x}"));
            // Gone, or refused: perhaps another time.
            let Ok(metadata) = fs::metadata(&way) else {
                continue;
            };
            let path = mapped.path.clone().unwrap_or_default();
            if !self.meet(subject, &metadata, way, path) {
                self.small.insert(inode);
            }
        }
        meter.pause()?;
        let Ok(descriptors) = fs::read_dir(process.join("fd")) else {
            return Ok(None);
        };
        let mut shared = Open::new();
        for descriptor in descriptors.flatten() {
            let way = descriptor.path();
            // Pipes and sockets have no path; asking for more than the link would cost more.
            let Ok(target) = fs::read_link(&way) else {
                continue;
            };
            if target.is_absolute()
                && let Ok(metadata) = fs::metadata(&way)
                && metadata.is_file()
            {
                let path = target.to_string_lossy().into_owned();
                let key = key_of(&metadata);
                match backings.of_open_file(key.0, &way, &path) {
                    Some(Backing::Files) => {
                        self.meet(subject, &metadata, way, path);
                    }
                    Some(_) => {
                        shared.insert(key, way);
                    }
                    None => {}
                }
            }
            meter.pause()?;
        }
        Ok(Some(shared))
    }

    /// Enters a file that a process uses. Answers whether it is one to follow.
    fn meet(
        &mut self,
        subject: &Subject,
        metadata: &fs::Metadata,
        way: PathBuf,
        path: String,
    ) -> bool {
        if !metadata.is_file() || metadata.len() < SMALL {
            return false;
        }
        let key = key_of(metadata);
        if !self.files.contains_key(&key) && self.files.len() >= FILES_MAX && !self.make_room() {
            self.left_out += 1;
            return true;
        }
        let used = self.files.entry(key).or_insert_with(|| Used {
            ways: vec![PathBuf::from(&path)],
            path,
            size: 0,
            users: HashSet::new(),
            first_user: subject.upid,
            asked_at: None,
            written: None,
        });
        used.size = metadata.len();
        if used.users.insert(subject.upid) {
            // The path is what is left when all its users are gone.
            used.ways.truncate(1);
            used.ways.push(way);
        }
        true
    }

    /// Forgets the file of least cache that nobody uses any more, if there is one.
    fn make_room(&mut self) -> bool {
        let unused = self.files.iter().filter(|(_, used)| used.users.is_empty());
        let cached = |used: &Used| used.written.map_or(0, |(_, bytes, _)| bytes);
        let least = unused.min_by_key(|(key, used)| (cached(used), **key));
        let Some(key) = least.map(|(key, _)| *key) else {
            return false;
        };
        if let Some(used) = self.files.remove(&key) {
            let now = memtrace_host::clock::read();
            let clock = ClockOffset::at(now);
            self.ended
                .extend(used.last_row(key, None, now.boot_ns, clock));
        }
        true
    }

    /// Asks for what is cached of each file, and writes those that changed. One that is gone,
    /// and one that nobody uses and of which nothing is cached, has its last row.
    pub(super) fn write(
        &mut self,
        living: &HashSet<Upid>,
        clock: ClockOffset,
        meter: &mut Meter<'_>,
        out: &mut Vec<Record>,
    ) -> Result<(), Stopped> {
        out.extend(self.ended.drain(..).map(Record::CachedFile));
        let mut over = Vec::new();
        for (key, used) in &mut self.files {
            let now = memtrace_host::clock::boot();
            if used.asked_at.is_some_and(|at| (now - at).0 < AGAIN_NS) {
                continue;
            }
            used.asked_at = Some(now);
            used.users.retain(|upid| living.contains(upid));
            let Some(file) = used.open(*key) else {
                // Through whom else could it be asked? A process that has it open still is
                // met again at its next reading.
                over.push(*key);
                out.extend(
                    used.last_row(*key, None, now, clock)
                        .map(Record::CachedFile),
                );
                continue;
            };
            let Some(cached) = cache::cached(&file, used.size, meter)? else {
                continue;
            };
            if cached.bytes == 0 && used.users.is_empty() {
                over.push(*key);
                let last = used.last_row(*key, Some(&cached), now, clock);
                out.extend(last.map(Record::CachedFile));
                continue;
            }
            let state = (cached.bytes, used.users.len());
            let is_due = used.written.is_none_or(|(at, bytes, users)| {
                let moved = (bytes - state.0).saturating_abs();
                users != state.1 || moved > bytes / 100 || (now - at).0 >= KEYFRAME_NS
            });
            if is_due {
                used.written = Some((now, state.0, state.1));
                out.push(Record::CachedFile(used.row(
                    *key,
                    Some(&cached),
                    now,
                    clock,
                )));
            }
            meter.pause()?;
        }
        for key in over {
            self.files.remove(&key);
        }
        Ok(())
    }
}

impl Used {
    /// Opens the file for a moment. What another file's path leads to by now is not it.
    fn open(&mut self, key: Key) -> Option<File> {
        for (place, way) in self.ways.iter().enumerate().rev() {
            if let Some(file) = open_known(way, place == PATH, key) {
                self.size = file.metadata().ok()?.size();
                return Some(file);
            }
        }
        None
    }

    /// The row that ends a file's series; none for one that has none.
    fn last_row(
        &self,
        key: Key,
        cached: Option<&cache::Cached>,
        now: BootNs,
        clock: ClockOffset,
    ) -> Option<CachedFileRow> {
        self.written?;
        Some(self.row(key, cached, now, clock))
    }

    fn row(
        &self,
        key: Key,
        cached: Option<&cache::Cached>,
        now: BootNs,
        clock: ClockOffset,
    ) -> CachedFileRow {
        CachedFileRow {
            ts: clock.to_wall(now),
            boot_ns: now,
            device: key.0.to_string(),
            inode: i64::try_from(key.1).unwrap_or(i64::MAX),
            path: self.path.clone(),
            size_bytes: Bytes(i64::try_from(self.size).unwrap_or(i64::MAX)),
            cached_bytes: cached.map(|cached| Bytes(cached.bytes)),
            dirty_bytes: cached.and_then(|cached| cached.dirty).map(Bytes),
            user_count: i64::try_from(self.users.len()).unwrap_or(i64::MAX),
            first_user_upid: Some(self.first_user),
            source: cached.map(|cached| match cached.dirty {
                Some(_) => CacheSource::Cachestat,
                None => CacheSource::Mincore,
            }),
        }
    }
}

/// Opens a regular file that is known by device and inode, and nothing else. A path is what a
/// traced process made it: opening what it leads to by now can wait for a FIFO's writer, rewind
/// a tape or start a mount. So it is first only found (O_PATH), looked at, and then opened
/// through that descriptor, which can't lead elsewhere.
fn open_known(way: &Path, is_path: bool, key: Key) -> Option<File> {
    let found = File::from(find(way, is_path)?);
    let metadata = found.metadata().ok()?;
    if !metadata.is_file() || key_of(&metadata) != key {
        return None;
    }
    let itself = format!("/proc/self/fd/{}", found.as_raw_fd());
    let open = |flags| {
        let flags = flags | libc::O_NONBLOCK | libc::O_NOCTTY;
        let mut options = File::options();
        options.read(true).custom_flags(flags).open(&itself)
    };
    // O_NOATIME is for the owner and for CAP_FOWNER.
    open(libc::O_NOATIME).or_else(|_| open(0)).ok()
}

/// Finds what a path leads to, without opening it. Of /proc the links to mappings and
/// descriptors lead to the very files; a path that a process reported has none to follow.
fn find(way: &Path, is_path: bool) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    if !is_path {
        return rustix::fs::open(way, flags, Mode::empty()).ok();
    }
    let flags = flags | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(rustix::fs::CWD, way, flags, Mode::empty(), resolve) {
        // Before Linux 5.6.
        Err(Errno::NOSYS) => rustix::fs::open(way, flags, Mode::empty()).ok(),
        found => found.ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::budget::Stop;
    use super::*;
    use memtrace_model::{Tgid, WallNs};
    use std::os::unix::fs::symlink;

    struct Fake {
        proc: tempfile::TempDir,
        /// On a disk: of a tmpfs all is cached, and an overlay does not tell.
        disk: tempfile::TempDir,
        files: Files,
        living: HashSet<Upid>,
    }

    impl Fake {
        fn new() -> Self {
            let proc = tempfile::tempdir().unwrap();
            Self {
                files: Files::new(proc.path()),
                proc,
                disk: tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap(),
                living: HashSet::new(),
            }
        }

        fn file(&self, name: &str) -> PathBuf {
            let path = self.disk.path().join(name);
            fs::write(&path, vec![1; 2 << 20]).unwrap();
            path
        }

        /// A reading of a process that has one file open.
        fn opens(&mut self, id: u32, path: &Path) -> Option<Open> {
            let fd = self.proc.path().join(format!("{id}/fd"));
            fs::create_dir_all(&fd).unwrap();
            symlink(path, fd.join("3")).unwrap();
            let subject = Subject {
                upid: Upid(id.into()),
                tgid: Tgid(id),
                image: 1,
                is_unshared: false,
            };
            self.living.insert(subject.upid);
            let stop = Stop::default();
            let mut meter = Meter::new(1.0, &stop);
            let mut backings = Backings::new(self.proc.path());
            self.files
                .enter(
                    &subject,
                    &MappingTotals::default(),
                    &mut backings,
                    &mut meter,
                )
                .unwrap()
        }

        fn ends(&mut self, id: u32) {
            self.living.remove(&Upid(id.into()));
            fs::remove_dir_all(self.proc.path().join(id.to_string())).unwrap();
        }

        fn written(&mut self) -> Vec<CachedFileRow> {
            for used in self.files.files.values_mut() {
                used.asked_at = None;
            }
            let stop = Stop::default();
            let mut meter = Meter::new(1.0, &stop);
            let clock = ClockOffset::at(memtrace_model::ClockReading {
                boot_ns: BootNs(0),
                monotonic_ns: 0,
                wall_ns: WallNs(0),
            });
            let mut out = Vec::new();
            self.files
                .write(&self.living, clock, &mut meter, &mut out)
                .unwrap();
            let row = |record| match record {
                Record::CachedFile(row) => row,
                other => panic!("{other:?}"),
            };
            out.into_iter().map(row).collect()
        }
    }

    #[test]
    fn a_file_that_is_gone_with_its_last_user_has_a_last_row_and_is_forgotten() {
        let mut fake = Fake::new();
        let path = fake.file("weights");
        fake.opens(7, &path);
        let rows = fake.written();
        let [row] = rows.as_slice() else {
            println!("skipped: this file system does not tell what is cached");
            return;
        };
        assert_eq!(
            (row.cached_bytes, row.user_count),
            (Some(Bytes(2 << 20)), 1)
        );
        fake.ends(7);
        let rows = fake.written();
        assert_eq!(rows[0].user_count, 0, "the cache stays: {rows:?}");
        fs::remove_file(&path).unwrap();
        let rows = fake.written();
        assert_eq!((rows.len(), rows[0].cached_bytes), (1, None));
        assert!(fake.files.files.is_empty());
        assert_eq!(fake.written(), []);
    }

    #[test]
    fn a_path_that_leads_elsewhere_by_now_is_not_opened() {
        let fake = Fake::new();
        let path = fake.file("weights");
        let key = key_of(&fs::metadata(&path).unwrap());
        assert!(open_known(&path, true, key).is_some());
        // The very file, but by a link that somebody put there.
        let link = fake.disk.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(
            open_known(&link, true, key).is_none(),
            "a link is not followed"
        );
        let folder = fake.disk.path().join("folder");
        symlink(fake.disk.path(), &folder).unwrap();
        assert!(open_known(&folder.join("weights"), true, key).is_none());
        // A FIFO in its place: whoever waits for a reader would find one.
        fs::remove_file(&path).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        let key = key_of(&fs::metadata(&path).unwrap());
        assert!(open_known(&path, true, key).is_none(), "no regular file");
        let writer = File::options()
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(&path);
        assert_eq!(
            writer.err().and_then(|error| error.raw_os_error()),
            Some(libc::ENXIO),
            "nobody has opened it for reading"
        );
    }

    #[test]
    fn a_memfd_or_a_file_of_a_tmpfs_that_is_open_is_shared_memory_and_no_page_cache() {
        let mut fake = Fake::new();
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let memfd = File::from(rustix::fs::memfd_create("tensors", flags).unwrap());
        memfd.set_len(2 << 20).unwrap();
        let shm = tempfile::tempfile_in("/dev/shm").unwrap();
        shm.set_len(2 << 20).unwrap();
        for (id, file) in [(7, &memfd), (8, &shm)] {
            // By a name that says nothing: a tmpfs can be mounted anywhere.
            let name = fake.disk.path().join(id.to_string());
            let own = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
            symlink(own, &name).unwrap();
            let open = fake.opens(id, &name).unwrap();
            let key = key_of(&file.metadata().unwrap());
            assert_eq!(open.keys().collect::<Vec<_>>(), [&key]);
        }
        assert_eq!(fake.written(), []);
        assert!(fake.files.files.is_empty());
    }

    #[test]
    fn those_that_nobody_uses_make_room_and_the_others_stay() {
        let mut fake = Fake::new();
        let (old, new) = (fake.file("old"), fake.file("new"));
        fake.opens(7, &old);
        let has_rows = !fake.written().is_empty();
        assert!(!fake.files.make_room(), "it is in use");
        fake.ends(7);
        fake.written();
        assert!(fake.files.make_room());
        fake.opens(8, &new);
        let rows = fake.written();
        assert_eq!(fake.files.files.len(), 1);
        if has_rows {
            let last = rows.iter().find(|row| row.path.ends_with("old"));
            assert_eq!(last.map(|row| row.cached_bytes), Some(None));
        }
    }
}
