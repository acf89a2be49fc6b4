//! The thread that reads: whose turn it is, in which way, and what is told of it.

use super::budget::{Meter, Stop, Stopped};
use super::mappings::{Backing, Device, Header};
use super::pagemap::{self, Counters, PageFiles};
use super::queue::{self, Held, Last};
use super::tally::Tally;
use super::text::{self, ReadError};
use crate::collect::fields::{kib, number, pairs};
use crate::collect::kept::TextBuffer;
use crate::host::clock;
use crate::model::{
    BootNs, Bytes, ClockOffset, DurationNs, MappingKind, MappingRow, PssRow, PssSource, Record,
    Tgid, Upid, WallNs,
};
use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

/// Time between two looks at who has moved, at least.
const SCAN_NS: i64 = 1_000_000_000;
/// Looks take no more than this part of what may be spent.
const SCAN_PART: f64 = 0.2;
/// No read(2) of smaps may keep the process's lock for longer than this. It is not known
/// before how its memory is spread, so all of it is taken to lie in one mapping.
const CEILING_NS: f64 = 3e6;
/// What a walk of resident memory takes before it was measured here: 4 KiB pages, cold
/// caches.
const WALK_NS_PER_MIB: f64 = 18_000.0;
/// Objects of a disk that a process holds less of share one row.
const SMALL: f64 = (1 << 20) as f64;
/// After a refusal a process is left alone for so long.
const REFUSED_NS: i64 = 60_000_000_000;

/// A process to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject {
    pub(super) upid: Upid,
    pub(super) tgid: Tgid,
    /// Changes when it executes another program.
    pub(super) image: u64,
    /// Whether no other process can share its anonymous pages.
    pub(super) is_unshared: bool,
}

/// What the thread tells.
#[derive(Debug)]
pub(super) enum Found {
    /// A reading, to be dropped if the subject is another by now.
    Reading(Subject, Vec<Record>),
    /// The kernel refused.
    Refused(String),
}

/// What the thread and the session share.
#[derive(Debug, Default)]
pub(super) struct Desk {
    pub(super) subjects: Mutex<Arc<Vec<Subject>>>,
    pub(super) stop: Stop,
}

/// What is known of a process between two readings.
#[derive(Debug, Default)]
struct Known {
    last: Option<Last>,
    image: u64,
    held: Held,
    refused_at: Option<BootNs>,
    is_there: bool,
}

/// The thread's own state.
pub(super) struct Worker {
    desk: Arc<Desk>,
    tell: SyncSender<Found>,
    root: PathBuf,
    page_size: u64,
    known: HashMap<Upid, Known>,
    backings: HashMap<Device, Backing>,
    page_counts: Option<File>,
    walk_ns_per_mib: f64,
    buffer: TextBuffer,
}

impl Worker {
    pub(super) fn new(
        desk: Arc<Desk>,
        tell: SyncSender<Found>,
        root: PathBuf,
        page_size: u64,
    ) -> Self {
        let page_counts = File::open(root.join("kpagecount")).ok();
        Self {
            desk,
            tell,
            root,
            page_size,
            known: HashMap::new(),
            backings: kernel_tmpfs().into_iter().collect(),
            page_counts,
            walk_ns_per_mib: WALK_NS_PER_MIB,
            buffer: TextBuffer::default(),
        }
    }

    /// Reads until the order to stop comes.
    pub(super) fn run(mut self, share: f64) {
        let desk = Arc::clone(&self.desk);
        let mut meter = Meter::new(share, &desk.stop);
        let mut scan_ns = SCAN_NS;
        loop {
            let next_scan = clock::boot() + DurationNs(scan_ns);
            let Ok(scan_cost) = self.round(next_scan, &mut meter) else {
                return;
            };
            scan_ns = SCAN_NS.max((scan_cost.0 as f64 / (share * SCAN_PART)) as i64);
            let rest = next_scan - clock::boot();
            if meter.pause().is_err() || desk.stop.rest(rest).is_err() {
                return;
            }
        }
    }

    /// Looks who has moved, and reads the most urgent until the next look is due. Answers
    /// what looking cost.
    fn round(&mut self, next_scan: BootNs, meter: &mut Meter<'_>) -> Result<DurationNs, Stopped> {
        let subjects = self.subjects();
        let before = clock::thread_cpu();
        self.scan(&subjects);
        let scan_cost = DurationNs(clock::thread_cpu().0 - before.0);
        meter.pause()?;
        let now = clock::boot();
        let mut urgent: Vec<(i64, Subject)> = subjects
            .iter()
            .filter_map(|subject| Some((self.urgency(subject, now)?, *subject)))
            .collect();
        urgent.sort_by_key(|(bytes, subject)| (std::cmp::Reverse(*bytes), subject.upid));
        for (_, subject) in urgent {
            if clock::boot() >= next_scan {
                break;
            }
            match self.read(&subject, meter) {
                Ok(()) | Err(ReadError::Gone) => {}
                Err(ReadError::Stopped(stopped)) => return Err(stopped),
                Err(refused) => {
                    if let Some(known) = self.known.get_mut(&subject.upid) {
                        known.refused_at = Some(clock::boot());
                    }
                    self.tell(Found::Refused(refused.to_string()))?;
                }
            }
        }
        Ok(scan_cost)
    }

    fn subjects(&self) -> Arc<Vec<Subject>> {
        let shared = self.desk.subjects.lock();
        Arc::clone(&shared.unwrap_or_else(PoisonError::into_inner))
    }

    fn tell(&self, found: Found) -> Result<(), Stopped> {
        // The other end goes only when the recording ends.
        self.tell.send(found).map_err(|_| Stopped)
    }

    fn scan(&mut self, subjects: &[Subject]) {
        for known in self.known.values_mut() {
            known.is_there = false;
        }
        for subject in subjects {
            let path = self.root.join(format!("{}/statm", subject.tgid));
            let held = self.buffer.read_once(&path).ok();
            let held = held.and_then(|text| statm(text, self.page_size));
            let known = self.known.entry(subject.upid).or_default();
            known.is_there = true;
            known.held = held.unwrap_or_default();
            if known.image != subject.image {
                known.image = subject.image;
                known.last = None;
            }
        }
        self.known.retain(|_, known| known.is_there);
    }

    fn urgency(&self, subject: &Subject, now: BootNs) -> Option<i64> {
        let known = self.known.get(&subject.upid)?;
        let is_left_alone = known.refused_at.is_some_and(|at| (now - at).0 < REFUSED_NS);
        if is_left_alone || known.held == Held::default() {
            return None;
        }
        queue::urgency(known.held, subject.is_unshared, known.last.as_ref(), now)
    }

    pub(super) fn read(
        &mut self,
        subject: &Subject,
        meter: &mut Meter<'_>,
    ) -> Result<(), ReadError> {
        let (started, paid) = (clock::boot(), meter.total());
        let (_, counters) = self.counters(subject)?;
        let resident = counters.anon + counters.file + counters.shmem;
        let walk_ns = resident / SMALL * self.walk_ns_per_mib;
        let (tally, source, sampled_share) = if walk_ns <= CEILING_NS {
            (self.by_smaps(subject, meter)?, PssSource::Smaps, 1.0)
        } else {
            let (tally, share) = self.by_pages(subject, counters, meter)?;
            (tally, PssSource::Pagemap, share)
        };
        // A process that ends leaves a text that ends early.
        let (status, counters) = self.counters(subject)?;
        if tally.is_empty() {
            return Err(ReadError::Gone);
        }
        meter.pause()?;
        let reading = clock::read();
        let moment = Moment {
            ts: ClockOffset::at(reading).to_wall(reading.boot_ns),
            boot_ns: reading.boot_ns,
            upid: subject.upid,
        };
        let how = How {
            source,
            sampled_share,
            cost: DurationNs(meter.total().0 - paid.0),
            span: reading.boot_ns - started,
        };
        let pss = pss_row(moment, subject, &how, &tally, &status, counters);
        let mut rows = vec![Record::Pss(pss)];
        rows.extend(mapping_rows(moment, &how, &tally).map(Record::Mapping));
        if let Some(known) = self.known.get_mut(&subject.upid) {
            known.last = Some(Last {
                held: Held {
                    anon: bytes(counters.anon),
                    shared: bytes(counters.file + counters.shmem),
                },
                at: reading.boot_ns,
                was_unshared: subject.is_unshared,
            });
        }
        self.tell(Found::Reading(*subject, rows))?;
        Ok(())
    }

    pub(super) fn by_smaps(
        &mut self,
        subject: &Subject,
        meter: &mut Meter<'_>,
    ) -> Result<Tally, ReadError> {
        let mut text = self.open(subject, "smaps")?;
        let (backings, root) = (&mut self.backings, &self.root);
        let (tally, walk) = text::read(&mut text, meter, |header| {
            backing(backings, root, subject.tgid, header)
        })?;
        if let Some(ns_per_mib) = walk {
            // The slower of what was met counts: a ceiling is for the worst case.
            self.walk_ns_per_mib = ns_per_mib.max(self.walk_ns_per_mib * 0.9);
        }
        Ok(tally)
    }

    pub(super) fn by_pages(
        &mut self,
        subject: &Subject,
        counters: Counters,
        meter: &mut Meter<'_>,
    ) -> Result<(Tally, f64), ReadError> {
        let (maps, pagemap) = (self.open(subject, "maps")?, self.open(subject, "pagemap")?);
        let files = PageFiles {
            maps,
            pagemap,
            counts: self.page_counts.as_ref(),
            page_size: self.page_size,
        };
        let (backings, root) = (&mut self.backings, &self.root);
        pagemap::read(&files, counters, subject.is_unshared, meter, |header| {
            backing(backings, root, subject.tgid, header)
        })
    }

    fn open(&self, subject: &Subject, file: &'static str) -> Result<File, ReadError> {
        File::open(self.root.join(format!("{}/{file}", subject.tgid)))
            .map_err(|error| ReadError::of(file, error))
    }

    /// What the kernel counts of the process; it is gone when it has no memory any more.
    pub(super) fn counters(&mut self, subject: &Subject) -> Result<(Status, Counters), ReadError> {
        let path = self.root.join(format!("{}/status", subject.tgid));
        let text = self
            .buffer
            .read_once(&path)
            .map_err(|error| ReadError::of("status", error))?;
        let status = Status::parse(text);
        let amount = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0 as f64);
        match (
            amount(status.anon),
            amount(status.file),
            amount(status.shmem),
        ) {
            (Some(anon), Some(file), Some(shmem)) => Ok((status, Counters { anon, file, shmem })),
            _ => Err(ReadError::Gone),
        }
    }
}

/// What is used of /proc/PID/status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Status {
    anon: Option<Bytes>,
    file: Option<Bytes>,
    shmem: Option<Bytes>,
    swap: Option<Bytes>,
    hugetlb: Option<Bytes>,
}

impl Status {
    fn parse(text: &[u8]) -> Self {
        let mut status = Self::default();
        for (key, value) in pairs(text) {
            let cell = match key {
                b"RssAnon" => &mut status.anon,
                b"RssFile" => &mut status.file,
                b"RssShmem" => &mut status.shmem,
                b"VmSwap" => &mut status.swap,
                b"HugetlbPages" => &mut status.hugetlb,
                _ => continue,
            };
            *cell = kib(value);
        }
        status
    }
}

/// `size resident shared ...` in pages; shared counts files and shared memory.
fn statm(text: &[u8], page_size: u64) -> Option<Held> {
    let mut words = text.split(|byte| *byte == b' ').skip(1);
    let resident: i64 = number(words.next()?)?;
    let shared: i64 = number(words.next()?)?;
    let amount = |pages: i64| Bytes(pages.saturating_mul(page_size.cast_signed()));
    Some(Held {
        anon: amount(resident - shared),
        shared: amount(shared),
    })
}

/// The device of the tmpfs that the kernel mounts for itself, from a memfd of our own.
fn kernel_tmpfs() -> Option<(Device, Backing)> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let own = rustix::fs::memfd_create("memtrace", flags).ok()?;
    let device = rustix::fs::fstat(own).ok()?.st_dev;
    let device = Device {
        major: rustix::fs::major(device),
        minor: rustix::fs::minor(device),
    };
    Some((device, Backing::KernelTmpfs))
}

/// What lies on the device of a mapping. Asked once per device, through the mapping itself:
/// a container has mounts that no path of ours leads to.
fn backing(
    known: &mut HashMap<Device, Backing>,
    root: &std::path::Path,
    tgid: Tgid,
    header: &Header<'_>,
) -> Backing {
    // File systems without a block device have major 0.
    if header.inode == 0 || header.device.major != 0 {
        return Backing::Files;
    }
    if let Some(backing) = known.get(&header.device) {
        return *backing;
    }
    let link = root.join(format!(
        "{tgid}/map_files/{:x}-{:x}",
        header.start, header.end
    ));
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    let opened = rustix::fs::open(link, flags, rustix::fs::Mode::empty());
    let Ok(kind) = opened.and_then(rustix::fs::fstatfs).map(|fs| fs.f_type) else {
        // Without the right to follow the link. The name is a fair guess, and kept for
        // this mapping only.
        let is_shm = header.path.starts_with(b"/dev/shm/");
        return if is_shm {
            Backing::Tmpfs
        } else {
            Backing::Files
        };
    };
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    const HUGETLBFS: i64 = 0x9584_58f6;
    #[allow(clippy::unnecessary_cast)]
    let backing = match kind as i64 {
        // Device nodes lie on a tmpfs too.
        TMPFS if header.path.starts_with(b"/dev/") && !header.path.starts_with(b"/dev/shm/") => {
            Backing::Devtmpfs
        }
        TMPFS | RAMFS => Backing::Tmpfs,
        HUGETLBFS => Backing::Hugetlbfs,
        _ => Backing::Files,
    };
    known.insert(header.device, backing);
    backing
}

/// When and of whom.
#[derive(Clone, Copy)]
struct Moment {
    ts: WallNs,
    boot_ns: BootNs,
    upid: Upid,
}

/// In which way, and at what cost.
#[derive(Clone, Copy)]
struct How {
    source: PssSource,
    sampled_share: f64,
    cost: DurationNs,
    span: DurationNs,
}

impl How {
    /// An amount that only the text of smaps tells.
    fn told(&self, amount: f64) -> Option<Bytes> {
        (self.source == PssSource::Smaps).then(|| bytes(amount))
    }
}

fn bytes(amount: f64) -> Bytes {
    Bytes(amount.round() as i64)
}

fn pss_row(
    moment: Moment,
    subject: &Subject,
    how: &How,
    tally: &Tally,
    status: &Status,
    counters: Counters,
) -> PssRow {
    let [mut anon, file, shmem] = tally.pss_by_class();
    let total = tally.total();
    let mut private = Some(total.private);
    if subject.is_unshared {
        anon = Some(counters.anon);
        // What was seen of it may be a sample; the rest of what is private is not.
        private = Some(total.private - total.anon + counters.anon);
    }
    PssRow {
        ts: moment.ts,
        boot_ns: moment.boot_ns,
        upid: moment.upid,
        pss_bytes: anon
            .zip(file)
            .zip(shmem)
            .map(|((a, f), s)| bytes(a + f + s)),
        pss_anon_bytes: anon.map(bytes),
        pss_file_bytes: file.map(bytes),
        pss_shmem_bytes: shmem.map(bytes),
        uss_bytes: private.map(|private| bytes(private.max(0.0))),
        rss_anon_bytes: status.anon,
        rss_file_bytes: status.file,
        rss_shmem_bytes: status.shmem,
        swap_bytes: how.told(total.swap).or(status.swap),
        huge_bytes: how.told(total.huge),
        hugetlb_bytes: status.hugetlb,
        is_anon_unshared: subject.is_unshared,
        source: Some(how.source),
        sampled_share: Some(how.sampled_share),
        cost_ns: how.cost,
        span_ns: how.span,
    }
}

/// The rows of a reading: one per object, but one for all small files together.
fn mapping_rows(moment: Moment, how: &How, tally: &Tally) -> impl Iterator<Item = MappingRow> {
    let mut rows: Vec<MappingRow> = Vec::new();
    let mut small: Option<MappingRow> = None;
    for (key, object) in tally.objects() {
        let amounts = &object.amounts;
        let row = MappingRow {
            ts: moment.ts,
            boot_ns: moment.boot_ns,
            upid: moment.upid,
            kind: Some(key.kind),
            path: object.path.clone(),
            is_deleted: object.is_deleted,
            device: key.inode.map(|(device, _)| device.to_string()),
            inode: key.inode.and_then(|(_, inode)| i64::try_from(inode).ok()),
            mapping_count: object.mapping_count,
            size_bytes: Bytes(object.size),
            rss_bytes: Some(bytes(amounts.rss)),
            pss_bytes: amounts.pss.map(bytes),
            private_bytes: Some(bytes(amounts.private)),
            anon_bytes: Some(bytes(amounts.anon)),
            swap_bytes: Some(bytes(amounts.swap)),
            huge_bytes: how.told(amounts.huge),
        };
        if key.kind != MappingKind::File || amounts.rss >= SMALL {
            rows.push(row);
            continue;
        }
        match &mut small {
            None => {
                small = Some(MappingRow {
                    path: None,
                    is_deleted: false,
                    device: None,
                    inode: None,
                    ..row
                });
            }
            Some(all) => add(all, &row),
        }
    }
    rows.into_iter().chain(small)
}

fn add(all: &mut MappingRow, row: &MappingRow) {
    let sum = |a: Option<Bytes>, b: Option<Bytes>| Some(a? + b?);
    all.mapping_count += row.mapping_count;
    all.size_bytes = all.size_bytes + row.size_bytes;
    all.rss_bytes = sum(all.rss_bytes, row.rss_bytes);
    all.pss_bytes = sum(all.pss_bytes, row.pss_bytes);
    all.private_bytes = sum(all.private_bytes, row.private_bytes);
    all.anon_bytes = sum(all.anon_bytes, row.anon_bytes);
    all.swap_bytes = sum(all.swap_bytes, row.swap_bytes);
    all.huge_bytes = sum(all.huge_bytes, row.huge_bytes);
}
