//! How much those that share memory since a fork can have copied: page faults that added no
//! memory. `cow`.

use super::subject::Subject;
use crate::collect::kept::TextBuffer;
use crate::collect::procfs::Stat;
use crate::host::clock;
use crate::model::{BootNs, Bytes, ClockOffset, CowRow, DurationNs, Record, Upid};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Time between two looks, at least.
const LOOK_NS: i64 = 500_000_000;
/// Faults are counted of those who hold this much: it takes a look of its own.
const MIN_BYTES: i64 = 16 << 20;
/// A growth of this much has a row.
const STEP_BYTES: i64 = 1 << 20;

/// As many pages as a process had minor faults, and those that it has.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    faulted: Bytes,
    rss: Bytes,
}

/// A process by the last look.
#[derive(Debug, Default)]
struct Counted {
    image: u64,
    /// `None` while nobody shares with it: what it faults then is no copy.
    seen: Option<Seen>,
    /// What it can have copied.
    copied: Bytes,
    /// What of that was written.
    written: Bytes,
    looked_at: BootNs,
}

/// Counts them.
#[derive(Debug)]
pub(super) struct Cow {
    /// Who is to be looked at from now on, beside those that were before.
    watched: HashSet<Upid>,
    root: PathBuf,
    page_size: i64,
    buffer: TextBuffer,
    processes: HashMap<Upid, Counted>,
    /// What all that run a program image can have copied, also those that have ended.
    images: HashMap<u64, Bytes>,
    /// `None` before the first look.
    begun: Option<BootNs>,
    next_look: BootNs,
}

impl Cow {
    /// `root` is where procfs is.
    pub(super) fn new(root: &Path, page_size: u64) -> Self {
        Self {
            watched: HashSet::new(),
            root: root.to_owned(),
            page_size: page_size.cast_signed(),
            buffer: TextBuffer::default(),
            processes: HashMap::new(),
            images: HashMap::new(),
            begun: None,
            next_look: BootNs(0),
        }
    }

    /// What all that run a program image can have copied so far.
    pub(super) fn copied(&self, image: u64) -> Bytes {
        self.images.get(&image).copied().unwrap_or_default()
    }

    /// A process holds so much: where others can share that, it is looked at. For a new one that
    /// is done at once: what it copied until then is no copy since its first reading.
    pub(super) fn note(&mut self, subject: &Subject, held: Bytes) {
        let is_new = !self.processes.contains_key(&subject.upid);
        if is_new && subject.sharers() > 1 && held.0 >= MIN_BYTES {
            self.watched.insert(subject.upid);
            self.hurry();
        }
    }

    /// The next look is due.
    pub(super) fn hurry(&mut self) {
        self.next_look = BootNs(0);
    }

    /// Looks at them where that is due, and writes what was copied. `share` of one core is what
    /// looks may take.
    pub(super) fn look(
        &mut self,
        subjects: &[Subject],
        share: f64,
        now: BootNs,
        clock: ClockOffset,
        out: &mut Vec<Record>,
    ) {
        if now < self.next_look {
            return;
        }
        let before = clock::thread_cpu();
        self.begun.get_or_insert(now);
        let mut counted = HashMap::with_capacity(self.processes.len());
        for subject in subjects {
            let process = self.processes.remove(&subject.upid);
            let process = process.filter(|process| process.image == subject.image);
            if subject.sharers() <= 1 {
                let mut process = process.unwrap_or_default();
                (process.image, process.seen) = (subject.image, None);
                counted.insert(subject.upid, process);
                continue;
            }
            let is_small = process.is_none() && !self.watched.contains(&subject.upid);
            let process = (!is_small).then(|| self.count(subject, process)).flatten();
            let Some(mut process) = process else {
                continue;
            };
            if (process.copied - process.written).0 >= STEP_BYTES {
                process.written = process.copied;
                let row = CowRow {
                    ts: clock.to_wall(now),
                    boot_ns: now,
                    upid: subject.upid,
                    copied_bytes: process.copied,
                    unchanged_until_boot_ns: process.looked_at,
                };
                out.push(row.into());
            }
            process.looked_at = now;
            counted.insert(subject.upid, process);
        }
        self.processes = counted;
        self.watched.clear();
        let images: HashSet<u64> = subjects.iter().map(|subject| subject.image).collect();
        self.images.retain(|image, _| images.contains(image));
        let cost = clock::thread_cpu().0 - before.0;
        let rest = LOOK_NS.max((cost as f64 / share) as i64);
        self.next_look = now + DurationNs(rest);
    }

    /// Adds what a process can have copied since the last look. `None` where it has ended.
    fn count(&mut self, subject: &Subject, process: Option<Counted>) -> Option<Counted> {
        let path = self.root.join(format!("{}/stat", subject.tgid));
        let stat = self.buffer.read_once(&path).ok().and_then(Stat::parse)?;
        let bytes = |pages: i64| Bytes(pages.saturating_mul(self.page_size));
        let now = Seen {
            faulted: bytes(i64::try_from(stat.minor_faults).ok()?),
            rss: bytes(stat.size.1),
        };
        let mut process = process.unwrap_or_else(|| {
            // Of a copy that came after the first look all faults count.
            let is_new = self.begun.is_some_and(|begun| stat.start() >= begun);
            Counted {
                image: subject.image,
                seen: is_new.then_some(Seen {
                    faulted: Bytes(0),
                    ..now
                }),
                looked_at: stat.start(),
                ..Counted::default()
            }
        });
        if let Some(before) = process.seen.replace(now) {
            let grown = (now.rss - before.rss).max(Bytes(0));
            let more = (now.faulted - before.faulted - grown).max(Bytes(0));
            process.copied = process.copied + more;
            let of_all = self.images.entry(subject.image).or_default();
            *of_all = *of_all + more;
        }
        Some(process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ClockReading, Tgid, WallNs};
    use std::fs;

    const PAGE: i64 = 4096;

    /// What a look says, after each process was given faults and resident pages: who, how many
    /// pages, and since when.
    fn looked(cow: &mut Cow, at_ms: i64, processes: &[(u32, i64, i64)]) -> Vec<(i64, i64, i64)> {
        looked_among(cow, at_ms, processes, 2)
    }

    /// The same where so many can share their pages.
    fn looked_among(
        cow: &mut Cow,
        at_ms: i64,
        processes: &[(u32, i64, i64)],
        image_count: usize,
    ) -> Vec<(i64, i64, i64)> {
        let mut subjects = Vec::new();
        for (tgid, faults, rss) in processes {
            let dir = cow.root.join(tgid.to_string());
            fs::create_dir_all(&dir).unwrap();
            // Everybody began 1 s after the machine.
            let stat = format!(
                "{tgid} (x) S 1 1 1 0 -1 0 {faults} 0 0 0 0 0 0 0 20 0 1 0 100 4096 {rss} 0"
            );
            fs::write(dir.join("stat"), stat).unwrap();
            subjects.push(Subject {
                upid: Upid(i64::from(*tgid)),
                tgid: Tgid(*tgid),
                image: 1,
                is_unshared: false,
                image_count,
            });
        }
        for (subject, (.., rss)) in subjects.iter().zip(processes) {
            cow.note(subject, Bytes(rss * PAGE));
        }
        let clock = ClockOffset::at(ClockReading {
            boot_ns: BootNs(0),
            monotonic_ns: 0,
            wall_ns: WallNs(0),
        });
        let mut out = Vec::new();
        cow.hurry();
        cow.look(&subjects, 1.0, BootNs(at_ms * 1_000_000), clock, &mut out);
        let row = |record| match record {
            Record::Cow(row) => {
                let since = row.unchanged_until_boot_ns.0 / 1_000_000;
                (row.upid.0, row.copied_bytes.0 / PAGE, since)
            }
            other => panic!("{other:?}"),
        };
        out.into_iter().map(row).collect()
    }

    fn cow() -> (tempfile::TempDir, Cow) {
        let root = tempfile::tempdir().unwrap();
        let cow = Cow::new(root.path(), PAGE.cast_unsigned());
        (root, cow)
    }

    #[test]
    fn faults_that_add_no_memory_are_told_in_steps() {
        let (_root, mut cow) = cow();
        let mut look = |at_ms, seven, eight| looked(&mut cow, at_ms, &[seven, eight]);
        assert_eq!(look(2_000, (7, 9_000, 5_000), (8, 10, 5_000)), []);
        let told = look(2_500, (7, 9_000, 5_000), (8, 1_010, 5_000));
        assert_eq!(told, [(8, 1_000, 2_000)]);
        let told = look(3_000, (7, 9_100, 5_000), (8, 1_110, 5_000));
        assert_eq!(told, [], "less than a step");
        // Of 1,300 faults 900 brought new pages.
        let told = look(3_500, (7, 10_400, 5_900), (8, 1_110, 5_000));
        assert_eq!(told, [(7, 500, 3_000)]);
        assert_eq!(cow.copied(1), Bytes(1_600 * PAGE));
    }

    #[test]
    fn of_a_copy_that_came_later_all_faults_count() {
        let (_root, mut cow) = cow();
        assert_eq!(looked(&mut cow, 900, &[]), []);
        let told = looked(&mut cow, 1_400, &[(8, 700, 5_000)]);
        assert_eq!(told, [(8, 700, 1_000)]);
    }

    #[test]
    fn what_a_process_faults_alone_is_no_copy() {
        let (_root, mut cow) = cow();
        let mut look = |at_ms, faults, sharers| {
            let process = [(7, faults, 5_000)];
            looked_among(&mut cow, at_ms, &process, sharers)
        };
        assert_eq!(look(900, 0, 1), []);
        assert_eq!(look(1_400, 5_000, 1), []);
        assert_eq!(look(1_900, 9_000, 2), []);
        assert_eq!(look(2_400, 9_700, 2), [(7, 700, 1_900)]);
        assert_eq!(look(2_900, 20_000, 1), []);
        assert_eq!(look(3_400, 20_500, 2), []);
        assert_eq!(look(3_900, 21_000, 2), [(7, 1_200, 3_400)]);
    }

    #[test]
    fn who_holds_little_is_not_counted() {
        let (_root, mut cow) = cow();
        assert_eq!(looked(&mut cow, 2_000, &[(7, 9_000, 100)]), []);
        assert_eq!(looked(&mut cow, 2_500, &[(7, 9_900, 100)]), []);
        // Whoever was counted once goes on to be.
        assert_eq!(looked(&mut cow, 3_000, &[(7, 9_900, 5_000)]), []);
        let told = looked(&mut cow, 3_500, &[(7, 10_900, 100)]);
        assert_eq!(told, [(7, 1_000, 3_000)]);
    }
}
