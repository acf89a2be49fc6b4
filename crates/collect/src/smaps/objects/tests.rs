//! Objects as they come, lose their names and go.

use super::super::budget::{Meter, Stop};
use super::super::mappings::{Backing, Header};
use super::*;
use memtrace_model::{ClockReading, WallNs};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;

fn written(objects: &mut Objects, seconds: i64) -> Vec<ShmObjectRow> {
    written_with(objects, seconds, &[])
}

fn written_with(objects: &mut Objects, seconds: i64, living: &[Upid]) -> Vec<ShmObjectRow> {
    let stop = Stop::default();
    let mut meter = Meter::new(1.0, &stop);
    let clock = ClockOffset::at(ClockReading {
        boot_ns: BootNs(0),
        monotonic_ns: 0,
        wall_ns: WallNs(0),
    });
    let mut out = Vec::new();
    let now = BootNs(seconds * 1_000_000_000);
    let living = living.iter().copied().collect();
    if let Some(wanted) = objects.list_if_due(&living, now) {
        let root = objects.root.clone();
        let others = OtherMappers::find(&root, wanted, &mut meter).unwrap();
        objects.note_other_mappers(&others);
    }
    objects.write(&living, now, clock, &mut out);
    let row = |record| match record {
        Record::ShmObject(row) => *row,
        other => panic!("{other:?}"),
    };
    out.into_iter().map(row).collect()
}

#[test]
fn a_file_that_nobody_maps_is_reported_until_it_is_removed() {
    let (proc, shm) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = shm.path().join("psm_left");
    fs::write(&path, vec![1; 8192]).unwrap();
    let mut objects = Objects::new(proc.path(), shm.path());
    assert_eq!(written(&mut objects, 0), [], "processes come first");
    let rows = written(&mut objects, 4);
    let [row] = rows.as_slice() else {
        panic!("{rows:?}");
    };
    assert_eq!(row.size_bytes, Some(Bytes(8192)));
    assert!(row.allocated_bytes >= Some(Bytes(8192)));
    assert_eq!((row.mapper_count, row.has_other_mapper), (0, Some(false)));
    assert_eq!(row.family, Some(memtrace_model::ShmFamily::Python));
    assert_eq!(written(&mut objects, 5), [], "nothing changed");
    fs::remove_file(&path).unwrap();
    let rows = written(&mut objects, 20);
    assert_eq!(rows[0].allocated_bytes, Some(Bytes(0)));
    assert_eq!(written(&mut objects, 100), []);
}

#[test]
fn a_row_says_until_when_it_was_otherwise() {
    let (proc, shm) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = shm.path().join("psm_new");
    let mut objects = Objects::new(proc.path(), shm.path());
    written(&mut objects, 0);
    written(&mut objects, 4);
    fs::write(&path, vec![1; 8192]).unwrap();
    let mut glanced = |seconds: i64| {
        let clock = ClockOffset::at(ClockReading {
            boot_ns: BootNs(0),
            monotonic_ns: 0,
            wall_ns: WallNs(0),
        });
        let mut out = Vec::new();
        objects.glance(BootNs(seconds * 1_000_000_000), clock, &mut out);
        let of = |record| match record {
            Record::ShmObject(row) => (row.allocated_bytes, row.unchanged_until_boot_ns),
            other => panic!("{other:?}"),
        };
        out.into_iter().map(of).collect::<Vec<_>>()
    };
    let until = |seconds: i64| Some(BootNs(seconds * 1_000_000_000));
    assert_eq!(glanced(5), [(Some(Bytes(8192)), until(4))]);
    assert_eq!(glanced(6), []);
    fs::remove_file(&path).unwrap();
    assert_eq!(glanced(7), [(Some(Bytes(0)), until(6))]);
    assert_eq!(glanced(8), []);
}

/// A process that maps and opens objects, with links as procfs has them: they lead to a
/// file also when it has no name any more.
struct Holder {
    proc: tempfile::TempDir,
    file: fs::File,
    objects: Objects,
}

const UPID: Upid = Upid(7);

impl Holder {
    fn of(path: &Path, shm_dir: &Path) -> Self {
        let proc = tempfile::tempdir().unwrap();
        fs::write(path, vec![1; 8192]).unwrap();
        let file = fs::File::open(path).unwrap();
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        fs::create_dir_all(proc.path().join("7/map_files")).unwrap();
        symlink(&own, proc.path().join("7/map_files/1000-3000")).unwrap();
        symlink(&own, proc.path().join("7/exe")).unwrap();
        symlink(&own, proc.path().join("3")).unwrap();
        Self {
            objects: Objects::new(proc.path(), shm_dir),
            file,
            proc,
        }
    }

    /// A reading that shows it mapped, or not.
    fn read(&mut self, line: Option<&str>, open: Option<&Open>) {
        let subject = Subject {
            upid: UPID,
            tgid: Tgid(7),
            image: 1,
            is_unshared: false,
        };
        let mut totals = MappingTotals::default();
        if let Some(line) = line {
            let (device, inode) = key_of(&self.file.metadata().unwrap());
            let line = line
                .replace("DEVICE", &format!("{:x}:{:x}", device.major, device.minor))
                .replace("INODE", &inode.to_string());
            let backing = match line.contains("hugepage") {
                true => Backing::Hugetlbfs,
                false => Backing::Tmpfs,
            };
            totals.enter(&Header::parse(line.as_bytes()).unwrap(), backing);
        }
        self.objects.enter(&subject, &totals, open);
    }

    fn open(&self) -> Open {
        let key = key_of(&self.file.metadata().unwrap());
        Open::from([(key, self.proc.path().join("3"))])
    }

    fn unmap(&self) {
        fs::remove_file(self.proc.path().join("7/map_files/1000-3000")).unwrap();
    }

    fn written(&mut self, seconds: i64) -> Option<ShmObjectRow> {
        written_with(&mut self.objects, seconds, &[UPID]).pop()
    }
}

const SHARED: &str = "1000-3000 rw-s 00000000 DEVICE INODE /dev/shm/a";

#[test]
fn a_name_that_is_removed_is_noticed_without_a_reading() {
    let shm = tempfile::tempdir().unwrap();
    let path = shm.path().join("a");
    let mut holder = Holder::of(&path, shm.path());
    holder.read(Some(SHARED), Some(&Open::new()));
    let row = holder.written(0).unwrap();
    assert!(!row.is_deleted && row.allocated_bytes >= Some(Bytes(8192)));
    fs::remove_file(&path).unwrap();
    let row = holder.written(1).unwrap();
    assert!(row.is_deleted && row.allocated_bytes >= Some(Bytes(8192)));
}

#[test]
fn a_removed_file_that_lives_on_as_a_descriptor_is_unknown_or_what_that_tells() {
    let shm = tempfile::tempdir().unwrap();
    let path = shm.path().join("a");
    let mut holder = Holder::of(&path, shm.path());
    holder.read(Some(SHARED), Some(&Open::new()));
    holder.written(0);
    // It is listed.
    holder.written(4);
    fs::remove_file(&path).unwrap();
    holder.unmap();
    let row = holder.written(5).unwrap();
    assert_eq!((row.allocated_bytes, row.is_deleted), (None, true));
    // Its descriptors may not be looked at.
    holder.read(None, None);
    let row = holder.written(6).unwrap();
    assert_eq!((row.allocated_bytes, row.mapper_count), (None, 0));
    let open = holder.open();
    holder.read(None, Some(&open));
    let row = holder.written(7).unwrap();
    assert_eq!(row.size_bytes, Some(Bytes(8192)));
    assert!(row.allocated_bytes >= Some(Bytes(8192)));
    holder.read(None, Some(&Open::new()));
    let row = holder.written(8).unwrap();
    assert_eq!(row.allocated_bytes, Some(Bytes(0)), "nobody has it");
    assert_eq!(holder.written(100), None);
}

#[test]
fn who_has_unmapped_an_object_is_to_be_read_again() {
    let shm = tempfile::tempdir().unwrap();
    let mut holder = Holder::of(&shm.path().join("a"), Path::new("/nowhere"));
    holder.read(Some(SHARED), None);
    let took = holder.written(0).and_then(|row| row.allocated_bytes);
    let took = took.unwrap();
    assert!(holder.objects.moved().is_empty());
    holder.unmap();
    holder.written(1);
    assert_eq!(holder.objects.moved(), HashMap::from([(UPID, took)]));
    holder.read(None, Some(&Open::new()));
    holder.written(2);
    assert!(holder.objects.moved().is_empty());
}

#[test]
fn a_file_that_a_process_shows_first_was_not_there_when_they_were_listed() {
    let (elsewhere, shm) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let there = SHARED.replace("/dev/shm", shm.path().to_str().unwrap());
    for (line, until) in [
        (format!("{there} (deleted)"), None),
        (there.replace("/a", "/below/a"), None),
        (there, Some(BootNs(4_000_000_000))),
    ] {
        let mut holder = Holder::of(&elsewhere.path().join("a"), shm.path());
        assert_eq!((holder.written(0), holder.written(4)), (None, None));
        holder.read(Some(&line), Some(&Open::new()));
        let row = holder.written(5).unwrap();
        assert_eq!(row.unchanged_until_boot_ns, until);
    }
}

#[test]
fn private_huge_pages_are_no_object_and_shared_ones_are() {
    let shm = tempfile::tempdir().unwrap();
    let mut holder = Holder::of(&shm.path().join("a"), Path::new("/nowhere"));
    let line = "1000-3000 rw-p 00000000 DEVICE INODE /anon_hugepage (deleted)";
    holder.read(Some(line), Some(&Open::new()));
    assert_eq!(holder.written(0), None);
    holder.read(Some(&line.replace("rw-p", "rw-s")), Some(&Open::new()));
    let row = holder.written(1).unwrap();
    assert_eq!(row.kind, Some(MappingKind::Hugetlb));
}

#[test]
fn without_dev_shm_there_is_nothing_to_tell() {
    let proc = tempfile::tempdir().unwrap();
    let mut objects = Objects::new(proc.path(), Path::new("/nowhere/at/all"));
    written(&mut objects, 0);
    assert_eq!(written(&mut objects, 4), []);
}

#[test]
fn a_stranger_that_maps_a_file_is_found() {
    let (proc, shm) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = shm.path().join("theirs");
    fs::write(&path, vec![1; 4096]).unwrap();
    let (device, inode) = key_of(&fs::metadata(&path).unwrap());
    fs::create_dir(proc.path().join("9")).unwrap();
    let line = format!(
        "1000-2000 rw-s 00000000 {:x}:{:x} {inode} /dev/shm/theirs\n",
        device.major, device.minor
    );
    fs::write(proc.path().join("9/maps"), line).unwrap();
    let mut objects = Objects::new(proc.path(), shm.path());
    written(&mut objects, 0);
    assert_eq!(written(&mut objects, 4)[0].has_other_mapper, Some(true));
}
