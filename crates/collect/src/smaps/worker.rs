//! The thread that reads: whose turn it is, in which way, and what is reported of it.

use super::backings::Backings;
use super::budget::{Meter, Stop, Stopped};
use super::facts::{Status, statm};
use super::files::Files;
use super::layout::{self, LayoutReading};
use super::objects::Objects;
use super::other_mappers::OtherMappers;
use super::pagemap::{self, Counters, Look, PageFiles};
use super::queue::{self, Held, Last};
use super::rows::{How, Reading, Stamp};
use super::subject::Subject;
use super::text::{self, ReadError};
use super::totals::MappingTotals;
use super::unseen::Unseen;
use crate::kept::TextBuffer;
use crate::stop::lock;
use crate::{Ceiling, Part, Share};
use memtrace_host::clock;
use memtrace_model::{BootNs, Bytes, ClockOffset, DurationNs, Order, PssSource, Record, Upid};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex};

/// Time between two looks at who has moved, at least.
const SCAN_NS: i64 = 500_000_000;
/// Each kind of look takes no more than this part of what may be spent.
pub(super) const SCAN_PART: f64 = 0.1;
/// To read again what is less than this part of all that is not known can wait: a crowd of small
/// processes is read at a fraction of the pace.
const SMALL_PART: i64 = 100;
/// The first time, too, where it is no more than a program and its libraries.
const TINY: i64 = 4 << 20;
const SMALL_PACE: f64 = 0.25;
/// No read(2) of smaps may keep the process's lock for longer than this. It is not known
/// before how its memory is spread, so all of it is taken to lie in one mapping.
const CEILING_NS: f64 = 3e6;
/// What a walk of resident memory takes before it was measured here: 4 KiB pages, cold
/// caches.
const WALK_NS_PER_MIB: f64 = 18_000.0;
const MIB: f64 = (1 << 20) as f64;
/// So long is rested where there is no room for what was found.
const NO_ROOM: DurationNs = DurationNs(20_000_000);
/// After a refusal a process is left alone for so long.
const REFUSED_NS: i64 = 60_000_000_000;

/// What the thread tells.
#[derive(Debug)]
pub(super) enum Found {
    /// A reading, to be dropped if the subject is another by now.
    Reading(Box<Reading>),
    /// The same of who laid out its memory.
    Layout(Box<LayoutReading>),
    /// Rows of objects and files, which are of no one process.
    Shared(Vec<Record>),
    /// So many of something there was no room for.
    LeftOut(LeftOut, i64),
    /// The kernel refused.
    Refused(String),
}

/// What can be more than is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum LeftOut {
    /// Files in use, for `cached_file`.
    CachedFiles,
    /// Files in /dev/shm, for `shm_object`.
    ShmFiles,
    /// Processes whose memory may not be read, for `layout`.
    Layouts,
}

impl Found {
    fn bytes(&self) -> usize {
        match self {
            Self::Reading(reading) => reading.bytes(),
            Self::Layout(reading) => reading.bytes(),
            Self::Shared(rows) => {
                let texts: usize = rows.iter().map(Record::heap_bytes).sum();
                rows.capacity() * size_of::<Record>() + texts
            }
            Self::LeftOut(..) | Self::Refused(_) => 0,
        }
    }
}

/// What was found, and the room that it takes until the session has it.
pub(super) type Delivery = (Found, Share);

fn living(subjects: &[Subject]) -> HashSet<Upid> {
    subjects.iter().map(|subject| subject.upid).collect()
}

/// Now, and how to tell wall time from it.
pub(super) fn moment() -> (BootNs, ClockOffset) {
    let reading = clock::read();
    (reading.boot_ns, ClockOffset::at(reading))
}

/// What the thread and the session share.
#[derive(Debug, Default)]
pub(super) struct WorkerOrders {
    pub(super) subjects: Mutex<Arc<Vec<Subject>>>,
    /// When the thread looks at them next, on the boot clock.
    pub(super) next_scan_ns: AtomicI64,
    /// Those that held much at the last look, and how much.
    pub(super) large: Mutex<Arc<Vec<(Subject, Bytes)>>>,
    /// Everybody is to be looked at for what they have open.
    pub(super) wants_all: AtomicBool,
    pub(super) stop: Stop,
}

impl WorkerOrders {
    pub(super) fn subjects(&self) -> Arc<Vec<Subject>> {
        Arc::clone(&lock(&self.subjects))
    }
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

/// The way to the session.
#[derive(Clone)]
pub(super) struct Sender {
    pub(super) orders: Arc<WorkerOrders>,
    pub(super) tell: SyncSender<Delivery>,
    pub(super) ceiling: Arc<Ceiling>,
}

impl Sender {
    /// Tells it when there is room: the session does not take it while the disk hangs.
    pub(super) fn tell(&self, found: Found) -> Result<(), Stopped> {
        // One that is larger than all that there is goes alone.
        let bytes = found.bytes().min(Part::Findings.limit());
        loop {
            if let Some(room) = self.ceiling.take(Part::Findings, bytes) {
                // The other end goes only when the recording ends.
                return self.tell.send((found, room)).map_err(|_| Stopped);
            }
            self.orders.stop.rest(NO_ROOM)?;
        }
    }

    /// Tells it where there is room, and gives it back where there is none.
    pub(super) fn offer(&self, found: Found) -> Result<(), Found> {
        let bytes = found.bytes().min(Part::Findings.limit());
        let Some(room) = self.ceiling.take(Part::Findings, bytes) else {
            return Err(found);
        };
        let refused = |error: TrySendError<Delivery>| match error {
            TrySendError::Full((found, _)) | TrySendError::Disconnected((found, _)) => found,
        };
        self.tell.try_send((found, room)).map_err(refused)
    }

    /// Rows of what is of no one process, if there are any.
    fn tell_shared(&self, rows: Vec<Record>) -> Result<(), Stopped> {
        match rows.is_empty() {
            true => Ok(()),
            false => self.tell(Found::Shared(rows)),
        }
    }
}

/// The thread's own state.
pub(super) struct Worker {
    orders: Arc<WorkerOrders>,
    teller: Sender,
    root: PathBuf,
    page_size: u64,
    /// Boxed: a map has room for up to twice as many as it holds.
    known: HashMap<Upid, Box<Known>>,
    backings: Backings,
    page_counts: Option<File>,
    objects: Arc<Mutex<Objects>>,
    files: Files,
    walk_ns_per_mib: f64,
    unseen: Unseen,
    buffer: TextBuffer,
}

impl Worker {
    pub(super) fn new(
        orders: Arc<WorkerOrders>,
        sender: Sender,
        root: PathBuf,
        page_size: u64,
    ) -> Self {
        let page_counts = File::open(root.join("kpagecount")).ok();
        let huge_pages = Path::new("/sys/kernel/mm/hugepages");
        Self {
            teller: sender,
            orders,
            objects: Arc::new(Mutex::new(Objects::new(&root, Path::new("/dev/shm")))),
            files: Files::new(&root),
            backings: Backings::new(&root),
            unseen: Unseen::open(huge_pages, &root.join("meminfo")),
            root,
            page_size,
            known: HashMap::new(),
            page_counts,
            walk_ns_per_mib: WALK_NS_PER_MIB,
            buffer: TextBuffer::default(),
        }
    }

    /// What it knows of shared objects.
    pub(super) fn objects(&self) -> Arc<Mutex<Objects>> {
        Arc::clone(&self.objects)
    }

    /// Reads until the order to stop comes.
    pub(super) fn run(mut self, share: f64) {
        let orders = Arc::clone(&self.orders);
        let mut meter = Meter::new(share, &orders.stop);
        let mut scan_ns = SCAN_NS;
        let mut turn = || -> Result<(), Stopped> {
            let next_scan = clock::boot() + DurationNs(scan_ns);
            orders.next_scan_ns.store(next_scan.0, Ordering::Relaxed);
            let cost = self.round(next_scan, &mut meter)?;
            scan_ns = SCAN_NS.max((cost.0 as f64 / (share * SCAN_PART)) as i64);
            meter.pause()?;
            meter.rest(next_scan - clock::boot())
        };
        while turn().is_ok() {}
        // What is left when all that used it has ended.
        let (now, clock) = moment();
        let living = living(&self.orders.subjects());
        let mut rows = Vec::new();
        lock(&self.objects).write(&living, now, clock, &mut rows);
        let _ = self.teller.tell_shared(rows);
    }

    /// Looks who has moved, and reads the most urgent until the next look is due. Answers
    /// what looking cost.
    fn round(&mut self, next_scan: BootNs, meter: &mut Meter<'_>) -> Result<DurationNs, Stopped> {
        let subjects = self.orders.subjects();
        let before = clock::thread_cpu();
        self.scan(&subjects);
        let scan_cost = DurationNs(clock::thread_cpu().0 - before.0);
        meter.pause()?;
        let now = clock::boot();
        let moved = lock(&self.objects).moved();
        let mut urgent: Vec<(bool, i64, Subject)> = subjects
            .iter()
            .filter_map(|subject| {
                let moved = moved.get(&subject.upid).copied();
                let urgency = self.urgency(subject, moved, now)?;
                Some((self.was_read(subject), urgency, *subject))
            })
            .collect();
        let all: i64 = urgent.iter().map(|(_, bytes, _)| *bytes).sum();
        let is_small = |bytes: i64| bytes < all / SMALL_PART;
        // Everybody once, who matters, comes before anybody twice.
        urgent.order_by_key(|(was_read, bytes, subject)| {
            let can_wait = *was_read || is_small(*bytes);
            (can_wait, std::cmp::Reverse(*bytes), subject.upid)
        });
        for (was_read, bytes, subject) in urgent {
            if clock::boot() >= next_scan {
                break;
            }
            let is_slow = is_small(bytes) && (was_read || bytes < TINY);
            meter.set_pace(if is_slow { SMALL_PACE } else { 1.0 });
            match self.read(&subject, meter) {
                Ok(()) | Err(ReadError::Gone) => {}
                Err(ReadError::Stopped(stopped)) => return Err(stopped),
                Err(refused) => {
                    if let Some(known) = self.known.get_mut(&subject.upid) {
                        known.refused_at = Some(clock::boot());
                    }
                    self.teller.tell(Found::Refused(refused.to_string()))?;
                }
            }
        }
        meter.set_pace(1.0);
        self.write_shared(&subjects, meter)?;
        Ok(scan_cost)
    }

    /// What objects and files take by now.
    fn write_shared(&mut self, subjects: &[Subject], meter: &mut Meter<'_>) -> Result<(), Stopped> {
        let living = living(subjects);
        let wanted = lock(&self.objects).list_if_due(&living, clock::boot());
        if let Some(wanted) = wanted {
            let others = OtherMappers::find(&self.root, wanted, meter)?;
            lock(&self.objects).note_other_mappers(&others);
        }
        let mut rows = Vec::new();
        let clock = {
            let mut objects = lock(&self.objects);
            let (now, clock) = moment();
            objects.write(&living, now, clock, &mut rows);
            clock
        };
        self.teller.tell_shared(std::mem::take(&mut rows))?;
        meter.pause()?;
        self.files.write(&living, clock, meter, &mut rows)?;
        let left_out = [
            (LeftOut::CachedFiles, self.files.take_left_out()),
            (LeftOut::ShmFiles, lock(&self.objects).take_left_out()),
        ];
        for (what, count) in left_out.into_iter().filter(|(_, count)| *count > 0) {
            self.teller.tell(Found::LeftOut(what, count))?;
        }
        self.teller.tell_shared(rows)
    }

    pub(super) fn scan(&mut self, subjects: &[Subject]) {
        let has_unseen_moved = self.unseen.has_moved(&mut self.buffer);
        for known in self.known.values_mut() {
            known.is_there = false;
        }
        let mut large = Vec::new();
        for subject in subjects {
            let path = self.root.join(format!("{}/statm", subject.tgid));
            let held = self.buffer.read_once(&path).ok();
            let held = held.and_then(|text| statm(text, self.page_size));
            let held = held.unwrap_or_default();
            // The text that tells of it is a long one.
            let status = has_unseen_moved.then(|| format!("{}/status", subject.tgid));
            let status = status.and_then(|path| self.buffer.read_once(&self.root.join(path)).ok());
            let unseen = status.map(|text| Status::parse(text).unseen());
            let all = held.anon + held.shared;
            if all >= layout::WORTH {
                large.push((*subject, all));
            }
            let known = self.known.entry(subject.upid).or_default();
            known.held = Held {
                unseen: unseen.unwrap_or(known.held.unseen),
                ..held
            };
            known.is_there = true;

            if known.image != subject.image {
                known.image = subject.image;
                known.last = None;
            }
        }
        self.known.retain(|_, known| known.is_there);
        *lock(&self.orders.large) = Arc::new(large);
    }

    fn was_read(&self, subject: &Subject) -> bool {
        let known = self.known.get(&subject.upid);
        known.is_some_and(|known| known.last.is_some())
    }

    /// `moved` is what an object takes that it maps elsewhere by now, or no more.
    fn urgency(&self, subject: &Subject, moved: Option<Bytes>, now: BootNs) -> Option<i64> {
        let known = self.known.get(&subject.upid)?;
        let is_left_alone = known.refused_at.is_some_and(|at| (now - at).0 < REFUSED_NS);
        let has_nothing = known.held.anon + known.held.shared == Bytes(0);
        if is_left_alone || has_nothing {
            return None;
        }
        let is_unshared = subject.is_unshared;
        let urgency = queue::urgency(known.held, is_unshared, known.last.as_ref(), now);
        urgency.max(moved.map(|bytes| bytes.0.max(1)))
    }

    pub(super) fn read(
        &mut self,
        subject: &Subject,
        meter: &mut Meter<'_>,
    ) -> Result<(), ReadError> {
        let (started, paid) = (clock::boot(), meter.total());
        let (status, before) = self.counters(subject)?;
        let resident = before.anon + before.file + before.shmem;
        let walk_ns = resident / MIB * self.walk_ns_per_mib;
        let known = self.known.get(&subject.upid);
        let now = Held {
            anon: amount(before.anon),
            shared: amount(before.file + before.shmem),
            unseen: status.unseen(),
        };
        let last = known.and_then(|known| known.last.as_ref());
        let look = match queue::begins_coarsely(now, subject.is_unshared, last) {
            true => Look::Coarse,
            false => Look::Close {
                is_anon_unshared: subject.is_unshared,
            },
        };
        // A sample of a smaller one costs no less than the whole text, and tells less.
        let (totals, source, sampled_share) = if walk_ns <= CEILING_NS {
            (self.by_smaps(subject, meter)?, PssSource::Smaps, 1.0)
        } else {
            let (totals, share) = self.by_pages(subject, before, look, meter)?;
            (totals, PssSource::Pagemap, share)
        };
        // A process that ends leaves a text that ends early.
        let (status, counters) = self.counters(subject)?;
        if totals.is_empty() {
            return Err(ReadError::Gone);
        }
        meter.pause()?;
        let open = self
            .files
            .enter(subject, &totals, &mut self.backings, meter)?;
        lock(&self.objects).enter(subject, &totals, open.as_ref());
        let ended = clock::read();
        let moment = Stamp {
            ts: ClockOffset::at(ended).to_wall(ended.boot_ns),
            boot_ns: ended.boot_ns,
            upid: subject.upid,
        };
        let how = How {
            source,
            sampled_share,
            cost: DurationNs(meter.total().0 - paid.0),
            span: ended.boot_ns - started,
            moved: amount(before.distance(&counters)),
        };
        let reading = Reading::new(moment, *subject, &how, &totals, &status);
        if let Some(known) = self.known.get_mut(&subject.upid) {
            known.held.unseen = now.unseen;
            known.last = Some(Last {
                // What came while it was read can lie where it had been.
                held: now,
                at: reading.at(),
                was_coarse: source == PssSource::Pagemap && look == Look::Coarse,
            });
        }
        self.teller.tell(Found::Reading(Box::new(reading)))?;
        Ok(())
    }

    pub(super) fn by_smaps(
        &mut self,
        subject: &Subject,
        meter: &mut Meter<'_>,
    ) -> Result<MappingTotals, ReadError> {
        let mut text = self.open(subject, "smaps")?;
        let backings = &mut self.backings;
        let (totals, walk) = text::read(&mut text, meter, |header| {
            backings.of_mapping(subject.tgid, header)
        })?;
        if let Some(ns_per_mib) = walk {
            // The slower of what was met counts: a ceiling is for the worst case.
            self.walk_ns_per_mib = ns_per_mib.max(self.walk_ns_per_mib * 0.9);
        }
        Ok(totals)
    }

    pub(super) fn by_pages(
        &mut self,
        subject: &Subject,
        counters: Counters,
        look: Look,
        meter: &mut Meter<'_>,
    ) -> Result<(MappingTotals, f64), ReadError> {
        let (maps, pagemap) = (self.open(subject, "maps")?, self.open(subject, "pagemap")?);
        let files = PageFiles {
            maps,
            pagemap,
            counts: self.page_counts.as_ref(),
            page_size: self.page_size,
        };
        let backings = &mut self.backings;
        pagemap::read(&files, counters, look, meter, |header| {
            backings.of_mapping(subject.tgid, header)
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

fn amount(bytes: f64) -> Bytes {
    Bytes(bytes.round() as i64)
}
