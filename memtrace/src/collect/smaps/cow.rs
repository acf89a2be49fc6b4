//! How much those that share memory since a fork can have copied: page faults that added no
//! memory. `cow`.

use super::worker::Subject;
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

/// A process at the last look.
#[derive(Debug, Default)]
struct Counted {
    image: u64,
    /// As many pages as it had minor faults.
    faulted: Bytes,
    rss: Bytes,
    /// What it can have copied.
    copied: Bytes,
    /// What of that was written.
    written: Bytes,
    looked_at: BootNs,
}

/// Counts them.
#[derive(Debug)]
pub(super) struct Cow {
    root: PathBuf,
    page_size: i64,
    buffer: TextBuffer,
    processes: HashMap<Upid, Counted>,
    /// What all that run a program image can have copied, also those that have ended.
    images: HashMap<u64, Bytes>,
    last_look: BootNs,
    next_look: BootNs,
}

impl Cow {
    /// `root` is where procfs is.
    pub(super) fn new(root: &Path, page_size: u64) -> Self {
        Self {
            root: root.to_owned(),
            page_size: page_size.cast_signed(),
            buffer: TextBuffer::default(),
            processes: HashMap::new(),
            images: HashMap::new(),
            last_look: BootNs(0),
            next_look: BootNs(0),
        }
    }

    /// What all that run a program image can have copied so far.
    pub(super) fn copied(&self, image: u64) -> Bytes {
        self.images.get(&image).copied().unwrap_or_default()
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
        let mut counted = HashMap::with_capacity(self.processes.len());
        for subject in subjects.iter().filter(|subject| subject.sharers() > 1) {
            let Some(mut process) = self.count(subject) else {
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
        let images: HashSet<u64> = subjects.iter().map(|subject| subject.image).collect();
        self.images.retain(|image, _| images.contains(image));
        let cost = clock::thread_cpu().0 - before.0;
        let rest = LOOK_NS.max((cost as f64 / share) as i64);
        self.last_look = now;
        self.next_look = now + DurationNs(rest);
    }

    /// Adds what a process can have copied since the last look. `None` where it has ended, or
    /// holds too little.
    fn count(&mut self, subject: &Subject) -> Option<Counted> {
        let path = self.root.join(format!("{}/stat", subject.tgid));
        let stat = self.buffer.read_once(&path).ok().and_then(Stat::parse)?;
        let bytes = |pages: i64| Bytes(pages.saturating_mul(self.page_size));
        let faulted = bytes(i64::try_from(stat.minor_faults).ok()?);
        let rss = bytes(stat.size.1);
        let before = self.processes.remove(&subject.upid);
        let before = before.filter(|before| before.image == subject.image);
        let mut process = match before {
            Some(before) => before,
            None if rss.0 < MIN_BYTES => return None,
            None => {
                // Of a copy that came since the last look all faults are new.
                let is_new = self.last_look.0 > 0 && stat.start() >= self.last_look;
                Counted {
                    image: subject.image,
                    faulted: if is_new { Bytes(0) } else { faulted },
                    rss,
                    looked_at: self.last_look,
                    ..Counted::default()
                }
            }
        };
        let grown = (rss - process.rss).max(Bytes(0));
        let more = (faulted - process.faulted - grown).max(Bytes(0));
        (process.faulted, process.rss) = (faulted, rss);
        process.copied = process.copied + more;
        let of_all = self.images.entry(subject.image).or_default();
        *of_all = *of_all + more;
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
                image_count: 2,
            });
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
    fn of_a_copy_that_came_since_the_last_look_all_faults_count() {
        let (_root, mut cow) = cow();
        assert_eq!(looked(&mut cow, 900, &[(7, 9_000, 5_000)]), []);
        let both = [(7, 9_000, 5_000), (8, 700, 5_000)];
        assert_eq!(looked(&mut cow, 1_400, &both), [(8, 700, 900)]);
    }

    #[test]
    fn who_holds_little_is_not_counted() {
        let (_root, mut cow) = cow();
        assert_eq!(looked(&mut cow, 2_000, &[(7, 9_000, 100)]), []);
        assert_eq!(looked(&mut cow, 2_500, &[(7, 9_900, 100)]), []);
    }
}
