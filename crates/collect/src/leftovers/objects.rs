//! Shared memory that came into being during a recording and has no owner at its end.
//!
//! What was there before is listed at the start; what is there at the end and was not then
//! is held against what processes have mapped or open. That takes a look into every process
//! of the machine, but only where there is a candidate.

use crate::Tick;
use crate::smaps::{Device, Header, Key, key_of, processes, recognise, segments};
use memtrace_model::{Bytes, MappingKind, Order, OrphanedShmRow, Tgid};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// More files than this are not distinguished from those that were there before.
const FILES_MAX: usize = 65_536;
/// Looking into every process takes no longer than this; then the answer is uncertain.
const PATIENCE: Duration = Duration::from_secs(2);

/// The shared memory that was there when a recording started.
#[derive(Debug)]
pub struct SharedMemory {
    proc: PathBuf,
    shm_dir: PathBuf,
    /// `None` where it can't be listed, or holds too many.
    files: Option<HashSet<Key>>,
    segments: HashSet<u64>,
}

/// A file that was made during the recording.
struct Candidate {
    path: PathBuf,
    metadata: fs::Metadata,
}

impl SharedMemory {
    /// Lists what is there. `proc` is where procfs is, `shm_dir` where POSIX shared memory is.
    pub fn list(proc: &Path, shm_dir: &Path) -> Self {
        let files = files(shm_dir);
        Self {
            proc: proc.to_owned(),
            shm_dir: shm_dir.to_owned(),
            files: files.map(|files| files.into_keys().collect()),
            segments: segments(proc).into_keys().collect(),
        }
    }

    /// What has come into being since, and has no owner: the largest first.
    pub fn left(&self, tick: &Tick) -> Vec<OrphanedShmRow> {
        let mut left = self.left_segments(tick);
        left.extend(self.left_files(tick));
        left.order_by_key(|row| (std::cmp::Reverse(row.allocated_bytes), row.inode));
        left
    }

    fn left_files(&self, tick: &Tick) -> Vec<OrphanedShmRow> {
        let Some((before, mut now)) = self.files.as_ref().zip(files(&self.shm_dir)) else {
            return Vec::new();
        };
        now.retain(|key, _| !before.contains(key));
        let is_certain = now.is_empty() || self.drop_owned(&mut now);
        now.into_iter()
            .map(|(key, file)| file.row(key, is_certain, tick))
            .collect()
    }

    /// Takes away what some process has mapped or open. Answers whether every process could
    /// be asked.
    fn drop_owned(&self, files: &mut HashMap<Key, Candidate>) -> bool {
        let started = Instant::now();
        let devices: HashSet<Device> = files.keys().map(|(device, _)| *device).collect();
        let names: HashSet<OsString> = files
            .values()
            .filter_map(|file| Some(file.path.file_name()?.to_owned()))
            .collect();
        let mut is_certain = true;
        for tgid in processes(&self.proc) {
            if files.is_empty() {
                break;
            }
            if started.elapsed() > PATIENCE {
                return false;
            }
            let process = self.proc.join(tgid.to_string());
            match fs::read(process.join("maps")) {
                Ok(text) => text
                    .split(|byte| *byte == b'\n')
                    .filter_map(Header::parse)
                    .filter(|header| devices.contains(&header.device))
                    .for_each(|header| drop(files.remove(&(header.device, header.inode)))),
                Err(error) => is_certain &= is_gone(&error),
            }
            match fs::read_dir(process.join("fd")) {
                Ok(descriptors) => {
                    for descriptor in descriptors.flatten() {
                        // Following a link into a file system that hangs would hang us too.
                        let target = fs::read_link(descriptor.path());
                        let is_candidate = target.is_ok_and(|target| {
                            target.file_name().is_some_and(|name| names.contains(name))
                        });
                        if is_candidate && let Ok(metadata) = fs::metadata(descriptor.path()) {
                            files.remove(&key_of(&metadata));
                        }
                    }
                }
                Err(error) => is_certain &= is_gone(&error),
            }
        }
        is_certain
    }

    fn left_segments(&self, tick: &Tick) -> Vec<OrphanedShmRow> {
        let now = segments(&self.proc).into_iter();
        let left =
            now.filter(|(id, segment)| segment.attached == Some(0) && !self.segments.contains(id));
        left.map(|(id, segment)| OrphanedShmRow {
            ts: tick.wall(),
            boot_ns: tick.boot,
            inode: i64::try_from(id).unwrap_or(i64::MAX),
            kind: Some(MappingKind::Sysv),
            name: format!("0x{:08x}", segment.key),
            creator_tgid: segment.creator,
            uid: segment.uid,
            size_bytes: segment.size,
            allocated_bytes: Some(segment.resident + segment.swapped),
            is_certain: true,
            ..OrphanedShmRow::default()
        })
        .collect()
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// The files of a directory; `None` when it can't be listed, as where /dev/shm is not mounted,
/// or has too many.
fn files(directory: &Path) -> Option<HashMap<Key, Candidate>> {
    let mut found = HashMap::new();
    for entry in fs::read_dir(directory).ok()?.flatten() {
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        if metadata.is_file() {
            let path = entry.path();
            found.insert(key_of(&metadata), Candidate { path, metadata });
        }
        if found.len() > FILES_MAX {
            return None;
        }
    }
    Some(found)
}

impl Candidate {
    fn row(self, (device, inode): Key, is_certain: bool, tick: &Tick) -> OrphanedShmRow {
        let name = self.path.to_string_lossy().into_owned();
        let (family, creator): (_, Option<Tgid>) = recognise(&name);
        let amount = |bytes: u64| i64::try_from(bytes).ok().map(Bytes);
        OrphanedShmRow {
            ts: tick.wall(),
            boot_ns: tick.boot,
            device: Some(device.to_string()),
            inode: i64::try_from(inode).unwrap_or(i64::MAX),
            kind: Some(MappingKind::Tmpfs),
            name,
            family,
            creator_tgid: creator,
            uid: Some(self.metadata.uid().into()),
            size_bytes: amount(self.metadata.len()),
            allocated_bytes: amount(self.metadata.blocks() * 512),
            is_certain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrace_model::{BootNs, ShmFamily};
    use std::os::unix::fs::symlink;

    fn tick() -> Tick {
        Tick::at(BootNs(5))
    }

    struct Fake {
        proc: tempfile::TempDir,
        shm: tempfile::TempDir,
    }

    impl Fake {
        fn new() -> Self {
            Self {
                proc: tempfile::tempdir().unwrap(),
                shm: tempfile::tempdir().unwrap(),
            }
        }

        fn list(&self) -> SharedMemory {
            SharedMemory::list(self.proc.path(), self.shm.path())
        }

        fn file(&self, name: &str) -> PathBuf {
            let path = self.shm.path().join(name);
            fs::write(&path, vec![1; 8192]).unwrap();
            path
        }

        /// A process that maps one file and has another open.
        fn process(&self, tgid: u32, maps: &Path, opens: &Path) {
            let (device, inode) = key_of(&fs::metadata(maps).unwrap());
            let directory = self.proc.path().join(tgid.to_string());
            fs::create_dir_all(directory.join("fd")).unwrap();
            let line = format!(
                "1000-2000 rw-s 00000000 {:x}:{:x} {inode} /dev/shm/any\n",
                device.major, device.minor
            );
            fs::write(directory.join("maps"), line).unwrap();
            symlink(opens, directory.join("fd/3")).unwrap();
        }
    }

    #[test]
    fn what_came_since_and_nobody_maps_or_has_open_is_left() {
        let fake = Fake::new();
        fake.file("before");
        let at_start = fake.list();
        assert_eq!(at_start.left(&tick()), []);
        let (mapped, open) = (fake.file("mapped"), fake.file("open"));
        fake.file("torch_4711_8_0");
        fake.process(7, &mapped, &open);
        let left = at_start.left(&tick());
        let [row] = left.as_slice() else {
            panic!("{left:?}");
        };
        assert!(row.name.ends_with("torch_4711_8_0"), "{row:?}");
        assert_eq!(row.family, Some(ShmFamily::Torch));
        assert_eq!(row.creator_tgid, Some(Tgid(4711)));
        assert_eq!(row.size_bytes, Some(Bytes(8192)));
        assert!(row.is_certain);
    }

    #[test]
    fn a_process_that_cannot_be_asked_makes_the_answer_uncertain() {
        let fake = Fake::new();
        let at_start = fake.list();
        fake.file("psm_1");
        // Neither maps nor fd, and the process is there: not the error of one that ended.
        let process = fake.proc.path().join("9");
        fs::create_dir_all(process.join("maps")).unwrap();
        let left = at_start.left(&tick());
        assert_eq!(left.len(), 1);
        assert!(!left[0].is_certain);
    }

    #[test]
    fn a_segment_of_system_v_that_nobody_attaches_is_left() {
        let fake = Fake::new();
        fs::create_dir(fake.proc.path().join("sysvipc")).unwrap();
        let write = |lines: &str| {
            let text = format!("key shmid perms size cpid lpid nattch uid\n{lines}");
            fs::write(fake.proc.path().join("sysvipc/shm"), text).unwrap();
        };
        let line = |id: u32, attached: u32| {
            format!("17 {id} 600 65536 42 43 {attached} 1000 0 0 0 0 0 0 4096 0\n")
        };
        write(&line(1, 0));
        let at_start = fake.list();
        write(&[line(1, 0), line(2, 1), line(3, 0)].concat());
        let left = at_start.left(&tick());
        let [row] = left.as_slice() else {
            panic!("{left:?}");
        };
        assert_eq!((row.inode, row.name.as_str()), (3, "0x00000011"));
        assert_eq!(row.creator_tgid, Some(Tgid(42)));
        assert_eq!(row.allocated_bytes, Some(Bytes(4096)));
    }

    #[test]
    fn without_dev_shm_nothing_is_left() {
        let proc = tempfile::tempdir().unwrap();
        let at_start = SharedMemory::list(proc.path(), Path::new("/nowhere/at/all"));
        assert_eq!(at_start.left(&tick()), []);
    }
}
