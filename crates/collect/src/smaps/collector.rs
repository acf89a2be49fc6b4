//! The session's side: tells the thread who is there, and takes what it found.

use super::descriptors::{Descriptors, Whose};
use super::layout::LayoutWorker;
use super::rows::Reading;
use super::subject::Subject;
use super::worker::{Delivery, Found, LeftOut, SCAN_PART, Sender, Worker, WorkerOrders};
use crate::stop::lock;
use crate::{Ceiling, CollectError, Collector, Pass, Process, ProcessTable};
use memtrace_model::{BootNs, DiagKind, DurationNs, Record};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a recording that ends waits for a reading that is going on.
const PATIENCE: Duration = Duration::from_secs(2);
/// The same for looks at those for whom somebody was just killed.
const PATIENCE_AFTER_KILLS: Duration = Duration::from_millis(100);

/// Time between two looks at what was found.
const PERIOD: DurationNs = DurationNs(500_000_000);
/// A reading is some dozen rows, and they are taken twice a second.
const FOUND_MAX: usize = 64;
/// So many are waited for at once to be looked at after kills.
const WHOSE_MAX: usize = 16;
/// It parses lines of text.
const STACK_BYTES: usize = 256 << 10;

/// What the collector is started with.
#[derive(Clone, Debug)]
pub struct SmapsOptions {
    /// Where procfs is mounted.
    pub root: PathBuf,
    /// Share of one core that readings of PSS may take, above 0 and at most 1.
    pub share: f64,
    /// The same of readings of who laid out memory.
    pub layout_share: f64,
    /// The size of a base page in bytes.
    pub page_size: u64,
    /// Where there is room for what is found.
    pub ceiling: Arc<Ceiling>,
}

/// Observes what the memory of each process is.
#[derive(Debug)]
pub struct SmapsCollector {
    orders: Arc<WorkerOrders>,
    found: Receiver<Delivery>,
    /// Those that tell what they found.
    threads: Vec<JoinHandle<()>>,
    /// The one that looks at descriptors.
    looks: Option<JoinHandle<()>>,
    /// Readings of which it is not yet known whether a fork came before them.
    unjudged: Vec<Reading>,
    refused: Option<(i64, String)>,
    is_refusal_reported: bool,
    /// What was reported to have been left out, and what is to be reported.
    left_out: BTreeMap<LeftOut, Option<i64>>,
    /// Merging of equal pages shares what no fork did.
    has_ksm: bool,
    last_turn: BootNs,
    /// The revision of the table of which the thread has a list.
    listed_revision: Option<u64>,
    /// Whose descriptors are to be looked at. `None` once that is over.
    whose: Option<SyncSender<Whose>>,
}

impl SmapsCollector {
    /// Starts the threads.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub fn start(options: SmapsOptions) -> io::Result<Self> {
        let orders = Arc::new(WorkerOrders::default());
        let (tell, found) = sync_channel(FOUND_MAX);
        let SmapsOptions {
            root,
            page_size,
            share,
            layout_share,
            ceiling,
        } = options;
        let sender = Sender {
            orders: Arc::clone(&orders),
            tell,
            ceiling,
        };
        let (own, other) = (Arc::clone(&orders), Arc::clone(&orders));
        let layout = LayoutWorker::new(other, sender.clone(), root.clone(), page_size);
        let (whose, reported) = sync_channel(WHOSE_MAX);
        let worker = Worker::new(own, sender.clone(), root.clone(), page_size);
        let descriptors = Descriptors::new(sender, worker.objects(), &root, share * SCAN_PART);
        let mut collector = Self {
            orders,
            found,
            threads: Vec::new(),
            looks: None,
            unjudged: Vec::new(),
            refused: None,
            is_refusal_reported: false,
            left_out: BTreeMap::new(),
            has_ksm: has_ksm(),
            last_turn: BootNs(0),
            listed_revision: None,
            whose: Some(whose),
        };
        // Where one of them can't be started, those before it end with what is dropped.
        let first = start("memtrace-smaps", move || worker.run(share))?;
        collector.threads.push(first);
        let second = start("memtrace-layout", move || layout.run(layout_share))?;
        collector.threads.push(second);
        let third = start("memtrace-opened", move || descriptors.run(&reported))?;
        collector.looks = Some(third);
        Ok(collector)
    }

    fn take_found(&mut self, table: &ProcessTable, out: &mut Vec<Record>) {
        let unjudged = std::mem::take(&mut self.unjudged);
        for reading in unjudged {
            self.take_reading(reading, table, out);
        }
        while let Ok((found, _room)) = self.found.try_recv() {
            self.take(found, table, out);
        }
    }

    fn take(&mut self, found: Found, table: &ProcessTable, out: &mut Vec<Record>) {
        match found {
            Found::Reading(reading) => self.take_reading(*reading, table, out),
            Found::Layout(reading) => {
                let subject = reading.subject;
                if is_still(table, &subject) {
                    out.extend(reading.into_records());
                }
            }
            Found::Shared(rows) => out.extend(rows),
            Found::LeftOut(what, count) => {
                self.left_out.entry(what).or_insert(Some(count));
            }
            Found::Refused(message) => {
                self.refused.get_or_insert((0, message)).0 += 1;
            }
        }
    }

    /// Its subject was listed some time before it was read, and can have forked since. So
    /// that nobody shares its pages is said only when every fork up to the reading is known.
    fn take_reading(&mut self, reading: Reading, table: &ProcessTable, out: &mut Vec<Record>) {
        let subject = reading.subject;
        // The id can be another process's by now, or the process another program.
        let process = table.process(subject.upid);
        let Some(process) = process.filter(|process| process.image() == subject.image) else {
            return;
        };
        if subject.is_unshared && reading.at() > table.lifecycle_known_until() {
            self.unjudged.push(reading);
            return;
        }
        let is_unshared = subject.is_unshared && self.is_unshared(table, process);
        out.extend(reading.into_records(is_unshared));
    }

    fn is_unshared(&self, table: &ProcessTable, process: &Process) -> bool {
        // A child whose fork was lost could share what seems to be unshared.
        let is_known_well = !self.has_ksm && !table.has_lost_lifecycle();
        is_known_well && table.is_only_one_of_its_image(process)
    }

    fn tell_refusals(&mut self, pass: &mut Pass<'_>) {
        if self.is_refusal_reported && !pass.tick.is_keyframe {
            return;
        }
        if let Some((count, message)) = self.refused.take() {
            self.is_refusal_reported = true;
            let detail = format!(
                "kinds of memory and PSS of processes of other users are unknown \
                 ({message}); CAP_SYS_PTRACE and CAP_SYS_ADMIN show them"
            );
            pass.tell_degraded(DiagKind::Permission, "/proc/PID/smaps", Some(count), detail);
        }
    }

    /// Once of each.
    fn tell_left_out(&mut self, pass: &mut Pass<'_>) {
        for (what, count) in &mut self.left_out {
            let Some(count) = count.take() else {
                continue;
            };
            let (kind, subject, detail) = match what {
                LeftOut::Layouts => (
                    DiagKind::Permission,
                    "layout",
                    "what is inside of some processes is not known: their memory may not be read; \
                     CAP_SYS_PTRACE shows it",
                ),
                LeftOut::CachedFiles => (
                    DiagKind::Limit,
                    "cached_file",
                    "more files are in use than are followed; what the page cache holds of the \
                     others is in the sum of all other files",
                ),
                LeftOut::ShmFiles => (
                    DiagKind::Limit,
                    "shm_object",
                    "/dev/shm has more files than are listed; of the others only those are seen \
                     that a recorded process maps",
                ),
            };
            // The first of them are reported, and more can follow.
            let count = Some(count).filter(|_| *what != LeftOut::Layouts);
            pass.tell_degraded(kind, subject, count, detail);
        }
    }

    fn subject(&self, table: &ProcessTable, process: &Process) -> Subject {
        Subject {
            upid: process.row().upid,
            tgid: process.row().tgid,
            image: process.image(),
            is_unshared: self.is_unshared(table, process),
        }
    }

    fn tell_who_is_there(&mut self, table: &ProcessTable) {
        if self.listed_revision.replace(table.revision()) == Some(table.revision()) {
            return;
        }
        let processes = table.processes();
        let subjects = processes.map(|process| self.subject(table, process));
        let subjects = Arc::new(subjects.collect());
        *lock(&self.orders.subjects) = subjects;
    }

    /// Ends the threads. Gives what they reported meanwhile.
    fn stop(&mut self) -> Vec<Delivery> {
        let mut last = Vec::new();
        // The thread that looks at descriptors takes what waits for it and ends. The others, which
        // write at their end what it found, are stopped after that.
        self.whose = None;
        let looks = self.looks.take();
        let have_looked = || looks.as_ref().is_none_or(JoinHandle::is_finished);
        self.wait_until(have_looked, PATIENCE_AFTER_KILLS, &mut last);
        self.orders.stop.set();
        let mut threads = std::mem::take(&mut self.threads);
        threads.extend(looks);
        let are_over = || threads.iter().all(JoinHandle::is_finished);
        if !self.wait_until(are_over, PATIENCE, &mut last) {
            // In a read that does not come back, from a file system that hangs for one.
            // It owns nothing that the recording needs, and ends with this process.
            tracing::warn!("a reading of smaps or of a file does not come back");
            return last;
        }
        for thread in threads {
            let _ = thread.join();
        }
        last.extend(self.found.try_iter());
        last
    }

    /// Waits until something is so, and takes what the threads tell meanwhile. Answers whether it
    /// came to that within `patience`.
    fn wait_until(
        &self,
        is_so: impl Fn() -> bool,
        patience: Duration,
        reported: &mut Vec<Delivery>,
    ) -> bool {
        const PAUSE: Duration = Duration::from_millis(1);
        let asked = Instant::now();
        while !is_so() {
            if asked.elapsed() > patience {
                return false;
            }
            // They can be waiting for room to tell something.
            match self.found.recv_timeout(PAUSE) {
                Ok(delivery) => reported.push(delivery),
                Err(RecvTimeoutError::Timeout) => {}
                // Of those that are left nobody tells anything.
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(PAUSE),
            }
        }
        true
    }
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .stack_size(STACK_BYTES)
        .spawn(work)
}

/// Whether the process is still there, and the same program.
fn is_still(table: &ProcessTable, subject: &Subject) -> bool {
    let process = table.process(subject.upid);
    process.is_some_and(|process| process.image() == subject.image)
}

fn has_ksm() -> bool {
    let run = std::fs::read_to_string("/sys/kernel/mm/ksm/run");
    run.is_ok_and(|run| run.trim() != "0")
}

impl Collector for SmapsCollector {
    fn name(&self) -> &'static str {
        "smaps"
    }

    fn period(&self) -> DurationNs {
        PERIOD
    }

    fn collect(&mut self, pass: &mut Pass<'_>) -> Result<(), CollectError> {
        self.take_found(pass.table, pass.out);
        self.tell_refusals(pass);
        self.tell_left_out(pass);
        // Of many processes a list takes its time, and the thread looks at them rarely. The next
        // turn can come twice as late as this one did.
        let since = pass.tick.boot - std::mem::replace(&mut self.last_turn, pass.tick.boot);
        let until = pass.tick.boot + DurationNs(2 * since.0.max(PERIOD.0));
        let wants_all = self.orders.wants_all.swap(false, Ordering::Relaxed);
        if wants_all || until.0 >= self.orders.next_scan_ns.load(Ordering::Relaxed) {
            self.tell_who_is_there(pass.table);
        }
        if wants_all
            && let Some(whose) = &self.whose
            && whose.try_send(Whose::All).is_err()
        {
            // Those for whom somebody was killed come first.
            self.orders.wants_all.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn look_at_killed_for(&mut self, table: &mut ProcessTable) {
        for upid in std::mem::take(&mut table.news.killed_for) {
            if let Some(process) = table.process(upid)
                && let Some(whose) = &self.whose
            {
                // Where so many wait already, this is a loop of kills.
                let _ = whose.try_send(Whose::One(self.subject(table, process)));
            }
        }
    }

    fn finish(&mut self, pass: &mut Pass<'_>) -> Result<(), CollectError> {
        self.take_found(pass.table, pass.out);
        self.tell_who_is_there(pass.table);
        // Whoever came before in the last round can have seen a kill.
        self.look_at_killed_for(pass.table);
        for (found, _room) in self.stop() {
            self.take(found, pass.table, pass.out);
        }
        // Of these it is not going to be known: they stay as they were measured.
        for reading in self.unjudged.drain(..) {
            pass.out.extend(reading.into_records(false));
        }
        self.tell_refusals(pass);
        self.tell_left_out(pass);
        Ok(())
    }
}

impl Drop for SmapsCollector {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{opener, reading, subject};
    use super::*;
    use crate::{Birth, Tick};
    use memtrace_host::clock;
    use memtrace_model::{BootNs, Bytes, ClockOffset, FirstSeenBy, PssRow, Tgid, Upid};

    /// Knows of one process that nobody shares pages with, and of one reading of it.
    struct Watch {
        table: ProcessTable,
        parent: Upid,
        collector: SmapsCollector,
        reading: Option<Reading>,
        at: BootNs,
    }

    impl Watch {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let options = SmapsOptions {
                root: root.path().to_owned(),
                share: 0.01,
                layout_share: 0.01,
                page_size: 4096,
                ceiling: Arc::default(),
            };
            let mut collector = SmapsCollector::start(options).unwrap();
            collector.has_ksm = false;
            let mut table = ProcessTable::default();
            let parent = table.enter(birth(7, None), BootNs(0));
            table.note_exec(parent, 1);
            let reading = reading(Subject {
                upid: parent,
                image: table.process(parent).unwrap().image(),
                is_unshared: true,
                ..subject(7)
            });
            Self {
                table,
                parent,
                collector,
                at: reading.at(),
                reading: Some(reading),
            }
        }

        fn fork(&mut self) -> Upid {
            let child = birth(8, Some(self.parent));
            self.table.enter(child, BootNs(0))
        }

        /// What is reported when so much is known.
        fn reported(&mut self, known_until: i64) -> Option<PssRow> {
            self.table
                .note_lifecycle_until(BootNs(self.at.0 + known_until));
            let mut out = Vec::new();
            match self.reading.take() {
                Some(reading) => self.collector.take_reading(reading, &self.table, &mut out),
                None => self.collector.take_found(&self.table, &mut out),
            }
            match out.into_iter().next()? {
                Record::Pss(row) => Some(*row),
                other => panic!("{other:?}"),
            }
        }
    }

    /// A process has a file of shared memory open, and for it somebody is killed in the last round.
    #[test]
    fn whose_group_was_full_is_looked_at_also_at_the_end() {
        let (root, _file) = opener(7);
        let mut collector = SmapsCollector::start(SmapsOptions {
            root: root.path().to_owned(),
            share: 0.01,
            layout_share: 0.01,
            page_size: 4096,
            ceiling: Arc::default(),
        })
        .unwrap();
        let mut table = ProcessTable::default();
        let upid = table.enter(birth(7, None), BootNs(0));
        table.news.note_killed_for(upid);
        let reading = clock::read();
        let tick = Tick {
            boot: reading.boot_ns,
            clock: ClockOffset::at(reading),
            is_keyframe: true,
        };
        let mut out = Vec::new();
        collector
            .finish(&mut Pass::new(&tick, &mut table, &mut out))
            .unwrap();
        // /dev/shm has objects of others, which nobody here has open.
        let openers: Vec<_> = out
            .iter()
            .filter_map(|record| match record {
                Record::ShmObject(row) => row.first_opener_upid,
                _ => None,
            })
            .collect();
        assert_eq!(openers, [upid]);
    }

    fn birth(tgid: u32, parent: Option<Upid>) -> Birth {
        Birth {
            tgid: Tgid(tgid),
            start: BootNs(0),
            seen_by: FirstSeenBy::Fork,
            parent,
            comm: String::new(),
        }
    }

    #[test]
    fn of_pages_that_nobody_shares_the_counter_is_the_pss() {
        let row = Watch::new().reported(0).unwrap();
        assert!(row.is_anon_unshared);
        assert_eq!(row.pss_anon_bytes, Some(Bytes(8 << 10)));
        assert_eq!(row.pss_bytes, Some(Bytes(8 << 10)));
    }

    #[test]
    fn a_fork_after_the_listing_leaves_what_was_measured() {
        let mut watch = Watch::new();
        let child = watch.fork();
        let row = watch.reported(0).unwrap();
        assert!(!row.is_anon_unshared);
        assert_eq!(row.pss_anon_bytes, Some(Bytes(4 << 10)));
        assert_eq!(row.uss_bytes, Some(Bytes(0)));
        watch.table.end(child, BootNs(1), None);
        assert_eq!(watch.reported(1), None, "and is reported once");
    }

    #[test]
    fn a_reading_waits_until_all_forks_before_it_are_known() {
        let mut watch = Watch::new();
        assert_eq!(watch.reported(-1), None);
        watch.fork();
        let row = watch.reported(1).unwrap();
        assert!(!row.is_anon_unshared);
    }
}
