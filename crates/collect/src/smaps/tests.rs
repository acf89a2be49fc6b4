//! The worker on small fake trees, and on this process.

use super::budget::Meter;
use super::pagemap::{Counters, Look};
use super::rows::Reading;
use super::subject::Subject;
use super::text::ReadError;
use super::totals::{Class, class};
use super::worker::{Delivery, Found, Sender, Worker, WorkerOrders};
use memtrace_model::{Bytes, MappingKind, MappingRow, PssRow, PssSource, Record, Tgid, Upid};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

const MIB: usize = 1 << 20;

struct Bench {
    orders: Arc<WorkerOrders>,
    worker: Worker,
    found: Receiver<Delivery>,
}

impl Bench {
    fn at(root: &Path) -> Self {
        let orders = Arc::new(WorkerOrders::default());
        let (tell, found) = sync_channel(8);
        let page_size = rustix::param::page_size() as u64;
        let sender = Sender {
            orders: Arc::clone(&orders),
            tell,
            ceiling: Arc::default(),
        };
        let worker = Worker::new(Arc::clone(&orders), sender, root.to_owned(), page_size);
        Self {
            orders,
            worker,
            found,
        }
    }

    fn read(&mut self, tgid: u32) -> Result<(PssRow, Vec<MappingRow>), ReadError> {
        self.read_one(subject(tgid))
    }

    fn read_one(&mut self, subject: Subject) -> Result<(PssRow, Vec<MappingRow>), ReadError> {
        let orders = Arc::clone(&self.orders);
        let mut meter = Meter::new(1.0, &orders.stop);
        self.worker.read(&subject, &mut meter)?;
        let Ok((Found::Reading(reading), _)) = self.found.try_recv() else {
            panic!("no reading");
        };
        let mut rows = reading.into_records(false);
        let Some(Record::Pss(pss)) = rows.next() else {
            panic!("no row of pss");
        };
        let mappings = rows.map(|row| match row {
            Record::Mapping(row) => *row,
            other => panic!("{other:?}"),
        });
        Ok((*pss, mappings.collect()))
    }
}

/// A reading of a heap of two pages that another process shares.
pub(super) fn reading(subject: Subject) -> Reading {
    let heap = mapping(4096, "[heap]", 8)
        .replace("fd:01 1", "00:00 0")
        .replace("Pss: 8", "Pss: 4")
        .replace("Private_Dirty: 8", "Private_Dirty: 0")
        .replace("Anonymous: 0", "Anonymous: 8");
    let status = STATUS.replace("RssFile:\t 4", "RssFile:\t 0");
    let root = fake(&[("smaps", &heap), ("status", &status)]);
    let mut bench = Bench::at(root.path());
    let orders = Arc::clone(&bench.orders);
    let mut meter = Meter::new(1.0, &orders.stop);
    bench.worker.read(&subject, &mut meter).unwrap();
    match bench.found.try_recv() {
        Ok((Found::Reading(reading), _)) => *reading,
        other => panic!("{other:?}"),
    }
}

/// A procfs in which a process has a file of a tmpfs open, beside other things; and that file.
pub(super) fn opener(tgid: u32) -> (tempfile::TempDir, fs::File) {
    let proc = tempfile::tempdir().unwrap();
    let dir = proc.path().join(format!("{tgid}/fd"));
    fs::create_dir_all(&dir).unwrap();
    let memfd = rustix::fs::memfd_create("grows", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let mut file = fs::File::from(memfd);
    std::io::Write::write_all(&mut file, &vec![1; 2 * MIB]).unwrap();
    let own = std::os::fd::AsRawFd::as_raw_fd(&file);
    let opened = [
        ("3", format!("/proc/self/fd/{own}")),
        ("4", "/etc/passwd".to_owned()),
        ("5", "pipe:[17]".to_owned()),
    ];
    for (number, target) in opened {
        std::os::unix::fs::symlink(target, dir.join(number)).unwrap();
    }
    (proc, file)
}

pub(super) fn subject(tgid: u32) -> Subject {
    Subject {
        upid: Upid(1),
        tgid: Tgid(tgid),
        image: 1,
        is_unshared: false,
    }
}

/// Nothing is taken to be unshared.
const CLOSE: Look = Look::Close {
    is_anon_unshared: false,
};

const STATUS: &str = "VmRSS:\t 12 kB\nRssAnon:\t 8 kB\nRssFile:\t 4 kB\nRssShmem:\t 0 kB\nVmSwap:\t 0 kB\nHugetlbPages:\t 0 kB\n";

/// A /proc with one process of the given files.
fn fake(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("7")).unwrap();
    for (name, text) in files {
        fs::write(root.path().join("7").join(name), text).unwrap();
    }
    root
}

fn mapping(start: u64, name: &str, rss_kib: u64) -> String {
    let end = start + 0x1000;
    let inode = u64::from(!name.is_empty());
    format!(
        "{start:x}-{end:x} rw-p 00000000 fd:01 {inode} {name}\nRss: {rss_kib} kB\nPss: {rss_kib} kB\n\
         Private_Dirty: {rss_kib} kB\nAnonymous: 0 kB\n"
    )
}

#[test]
fn names_that_a_program_can_choose_are_read_as_any_other() {
    let names = [
        "/SYSV1",
        "/tmp/a\\012b",
        "/tmp/x (deleted)",
        "/SYSV00000001 (deleted)",
        "",
    ];
    let text: String = names
        .iter()
        .zip(1u64..)
        .map(|(name, place)| mapping(place << 12, name, 2048))
        .collect();
    let root = fake(&[("smaps", &text), ("status", STATUS)]);
    let (pss, mappings) = Bench::at(root.path()).read(7).unwrap();
    assert_eq!(pss.pss_bytes, Some(Bytes(5 * 2048 * 1024)));
    let file = mappings.iter().find(|row| row.path.is_some()).unwrap();
    assert_eq!(file.kind, Some(MappingKind::File));
    assert_eq!(pss.source, Some(PssSource::Smaps));
}

#[test]
fn a_pss_stands_beside_the_rss_of_its_own_walk() {
    let heap = mapping(4096, "[heap]", 7 << 10)
        .replace("fd:01 1", "00:00 0")
        .replace("Anonymous: 0", "Anonymous: 7168");
    // By its end the process had grown.
    let status = STATUS.replace("RssAnon:\t 8 kB", "RssAnon:\t 13312 kB");
    let root = fake(&[("smaps", &heap), ("status", &status)]);
    let (row, _) = Bench::at(root.path()).read(7).unwrap();
    let seen = Some(Bytes(7 << 20));
    assert_eq!((row.pss_anon_bytes, row.rss_anon_bytes), (seen, seen));
}

#[test]
fn a_process_that_ends_in_the_middle_leaves_no_row() {
    let text = mapping(4096, "/lib/x", 8);
    let gone = "Name:\tx\nState:\tZ (zombie)\n";
    for files in [
        vec![("smaps", text.as_str()), ("status", gone)],
        vec![("smaps", ""), ("status", STATUS)],
        vec![("status", STATUS)],
    ] {
        let root = fake(&files);
        let error = Bench::at(root.path()).read(7).unwrap_err();
        assert!(matches!(error, ReadError::Gone), "{error}");
    }
}

#[test]
fn what_cannot_be_read_is_reported_with_the_name_of_the_file() {
    let root = fake(&[("status", STATUS)]);
    fs::create_dir(root.path().join("7/smaps")).unwrap();
    let error = Bench::at(root.path()).read(7).unwrap_err();
    assert!(error.to_string().starts_with("smaps: "), "{error}");
}

#[test]
fn a_refusal_half_way_is_reported_and_leaves_no_row() {
    // Too large for a walk in one go, so that maps and pagemap are read.
    let status = STATUS.replace("RssAnon:\t 8 kB", "RssAnon:\t 8388608 kB");
    let maps = "100000000-300000000 rw-p 00000000 00:00 0 \n";
    let root = fake(&[("maps", maps), ("status", &status)]);
    // It can be opened, and its first read fails.
    fs::create_dir(root.path().join("7/pagemap")).unwrap();
    let mut bench = Bench::at(root.path());
    let error = bench.read(7).unwrap_err();
    assert!(error.to_string().starts_with("pagemap: "), "{error}");
    assert!(bench.found.try_recv().is_err(), "nothing is reported");
}

#[test]
fn a_hundred_thousand_mappings_are_read_into_few_rows() {
    let mut text = String::new();
    for place in 1..=100_000u64 {
        let _ = write!(text, "{}", mapping(place << 13, "", 4));
    }
    let root = fake(&[("smaps", &text), ("status", STATUS)]);
    let (pss, mappings) = Bench::at(root.path()).read(7).unwrap();
    assert_eq!(pss.uss_bytes, Some(Bytes(100_000 * 4096)));
    let [row] = mappings.as_slice() else {
        panic!("{} rows", mappings.len());
    };
    assert_eq!(row.mapping_count, 100_000);
}

#[test]
fn small_files_share_a_row_that_adds_up() {
    let text = [
        mapping(1 << 12, "/lib/a", 4),
        mapping(2 << 12, "[heap]", 12),
    ]
    .concat()
        // Another file than the first.
        + &mapping(3 << 12, "/lib/b", 8).replace("fd:01 1 ", "fd:01 2 ");
    let text = text.replace("fd:01 1 [heap]", "00:00 0 [heap]");
    let root = fake(&[("smaps", &text), ("status", STATUS)]);
    let (_, mappings) = Bench::at(root.path()).read(7).unwrap();
    let rows: Vec<_> = mappings
        .iter()
        .map(|row| {
            (
                row.kind,
                row.path.as_deref(),
                row.rss_bytes,
                row.mapping_count,
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            (Some(MappingKind::Heap), None, Some(Bytes(12 << 10)), 1),
            (Some(MappingKind::File), None, Some(Bytes(12 << 10)), 2),
        ]
    );
}

#[test]
fn both_ways_find_the_same_in_this_process() {
    let mut memory = vec![0u8; 96 * MIB];
    for page in memory.iter_mut().step_by(4096) {
        *page = 1;
    }
    let mut bench = Bench::at(Path::new("/proc"));
    let orders = Arc::clone(&bench.orders);
    let mut meter = Meter::new(1.0, &orders.stop);
    let own = subject(std::process::id());
    let text = bench.worker.by_smaps(&own, &mut meter).unwrap();
    let (_, counters) = bench.worker.counters(&own).unwrap();
    let (pages, share) = bench
        .worker
        .by_pages(&own, counters, CLOSE, &mut meter)
        .unwrap();
    assert!(
        share > 0.9,
        "{share}: fewer pieces than are read of each class"
    );
    let anon = |totals: &super::totals::MappingTotals| -> f64 {
        let objects = totals.objects().into_iter();
        let anon = objects.filter(|(key, _)| class(key.kind) == Class::Anon);
        anon.map(|(_, object)| object.amounts.private).sum()
    };
    let (by_text, by_pages) = (anon(&text), anon(&pages));
    assert!(by_text > (96 * MIB) as f64, "{by_text}");
    assert!(
        (by_text - by_pages).abs() < by_text * 0.02,
        "{by_text} {by_pages}"
    );
    drop(memory);
}

#[test]
fn a_sample_gives_no_file_more_than_it_has_and_the_others_the_rest() {
    const PAGE: u64 = 4096;
    let (large, small) = (200 * MIB as u64, 2 * MIB as u64);
    let lines = format!(
        "0-{large:x} r--s 00000000 fd:01 1 /models/weights\n\
         {large:x}-{end:x} r--p 00000000 fd:01 2 /lib/libc.so.6\n",
        end = large + small
    );
    let root = fake(&[("maps", &lines), ("status", STATUS)]);
    // Present, of a file, and nobody else's.
    let entry: u64 = 1 << 63 | 1 << 61 | 1 << 56;
    let pages = (large + small) / PAGE;
    let entries: Vec<u8> = (0..pages).flat_map(|_| entry.to_ne_bytes()).collect();
    fs::write(root.path().join("7/pagemap"), entries).unwrap();
    let mut bench = Bench::at(root.path());
    let orders = Arc::clone(&bench.orders);
    let mut meter = Meter::new(1.0, &orders.stop);
    let counters = Counters {
        file: (large + small) as f64,
        ..Counters::default()
    };
    let own = subject(7);
    let read = bench
        .worker
        .by_pages(&own, counters, Look::Coarse, &mut meter);
    let (totals, _) = read.unwrap();
    let objects = totals.objects();
    assert_eq!(objects.len(), 2);
    for (_, object) in &objects {
        assert!(object.amounts.rss <= object.size as f64, "{object:?}");
    }
    let all = totals.total();
    assert!((all.rss - counters.file).abs() < 1.0, "{all:?}");
    assert!((all.private - all.rss).abs() < 1.0, "{all:?}");
}

#[test]
fn a_process_that_has_grown_to_many_times_its_size_is_looked_at_coarsely_first() {
    const PAGE: u64 = 4096;
    let size = 256 * MIB as u64;
    let maps = format!("0-{size:x} rw-s 00000000 00:01 5 /dev/shm/x\n");
    let present_elsewhere_too: u64 = 1 << 63 | 1 << 61;
    let entries: Vec<u8> = (0..size / PAGE)
        .flat_map(|_| present_elsewhere_too.to_ne_bytes())
        .collect();
    let smaps = mapping(4096, "/dev/shm/x", 8);
    let root = fake(&[("smaps", &smaps), ("maps", &maps), ("status", STATUS)]);
    fs::write(root.path().join("7/pagemap"), entries).unwrap();
    let mut bench = Bench::at(root.path());
    let mut shares = Vec::new();
    let alone = Subject {
        is_unshared: true,
        ..subject(7)
    };
    // It is small when it is read first, then has grown, then stays.
    for (kib, pages) in [(8, 2), (256 << 10, 65_536), (256 << 10, 65_536)] {
        let status = STATUS
            .replace("RssAnon:\t 8 kB", "RssAnon:\t 0 kB")
            .replace("RssFile:\t 4 kB", "RssFile:\t 0 kB")
            .replace("RssShmem:\t 0 kB", &format!("RssShmem:\t {kib} kB"));
        fs::write(root.path().join("7/status"), status).unwrap();
        let statm = format!("{pages} {pages} {pages} 0 0 0 0\n");
        fs::write(root.path().join("7/statm"), statm).unwrap();
        bench.worker.scan(&[alone]);
        let (row, _) = bench.read_one(alone).unwrap();
        shares.push(row.sampled_share.unwrap());
    }
    assert!((shares[0] - 1.0).abs() < 0.01, "{shares:?}");
    assert!(shares[1] < 0.1, "{shares:?}");
    assert!(shares[2] > 0.9, "{shares:?}");
}

#[test]
fn a_sample_of_a_large_heap_is_scaled_to_what_the_kernel_counts() {
    // More pieces than are read.
    let length = 3 << 30;
    // SAFETY: a new private mapping, which nothing else uses and which is unmapped below.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    assert_ne!(start, libc::MAP_FAILED);
    // Every eighth page: resident memory lies thinly over the whole.
    for offset in (0..length).step_by(8 * 4096) {
        // SAFETY: inside of the mapping above.
        unsafe { start.cast::<u8>().add(offset).write_volatile(1) };
    }
    let mut bench = Bench::at(Path::new("/proc"));
    let orders = Arc::clone(&bench.orders);
    let mut meter = Meter::new(1.0, &orders.stop);
    let own = subject(std::process::id());
    let (_, counters) = bench.worker.counters(&own).unwrap();
    let (pages, share) = bench
        .worker
        .by_pages(&own, counters, CLOSE, &mut meter)
        .unwrap();
    // SAFETY: the mapping from above, not used after this.
    unsafe { libc::munmap(start, length) };
    assert!(share < 0.9, "{share}");
    let Counters { anon, .. } = counters;
    let found = pages.total().anon;
    assert!((found - anon).abs() < anon * 0.02, "{found} of {anon}");
}
