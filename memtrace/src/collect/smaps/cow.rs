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
#[derive(Debug)]
struct Counted {
    image: u64,
    /// As many pages as it had minor faults.
    faulted: Bytes,
    rss: Bytes,
}

/// All that run one program image, since one of them was first counted.
#[derive(Debug, Default)]
struct Copied {
    bytes: Bytes,
    /// What of it was written.
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
    images: HashMap<u64, Copied>,
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
            next_look: BootNs(0),
        }
    }

    /// What all that run a program image can have copied so far.
    pub(super) fn copied(&self, image: u64) -> Bytes {
        let copied = self.images.get(&image);
        copied.map_or(Bytes(0), |copied| copied.bytes)
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
            if let Some(process) = self.count(subject) {
                counted.insert(subject.upid, process);
            }
        }
        self.processes = counted;
        let images: HashSet<u64> = subjects.iter().map(|subject| subject.image).collect();
        self.images.retain(|image, _| images.contains(image));
        for subject in subjects {
            let Some(copied) = self.images.get_mut(&subject.image) else {
                continue;
            };
            if (copied.bytes - copied.written).0 >= STEP_BYTES {
                copied.written = copied.bytes;
                let row = CowRow {
                    ts: clock.to_wall(now),
                    boot_ns: now,
                    upid: subject.upid,
                    copied_bytes: copied.bytes,
                    unchanged_until_boot_ns: copied.looked_at,
                };
                out.push(row.into());
            }
            copied.looked_at = now;
        }
        let cost = clock::thread_cpu().0 - before.0;
        let rest = LOOK_NS.max((cost as f64 / share) as i64);
        self.next_look = now + DurationNs(rest);
    }

    /// Adds what a process can have copied since the last look. `None` where it has ended, or
    /// holds too little.
    fn count(&mut self, subject: &Subject) -> Option<Counted> {
        let path = self.root.join(format!("{}/stat", subject.tgid));
        let stat = self.buffer.read_once(&path).ok().and_then(Stat::parse)?;
        let bytes = |pages: i64| Bytes(pages.saturating_mul(self.page_size));
        let now = Counted {
            image: subject.image,
            faulted: bytes(i64::try_from(stat.minor_faults).ok()?),
            rss: bytes(stat.size.1),
        };
        let before = self.processes.get(&subject.upid);
        let before = before.filter(|before| before.image == subject.image);
        if before.is_none() && now.rss.0 < MIN_BYTES {
            return None;
        }
        let copied = self.images.entry(subject.image).or_default();
        if let Some(before) = before {
            let grown = (now.rss - before.rss).max(Bytes(0));
            let more = now.faulted - before.faulted - grown;
            copied.bytes = copied.bytes + more.max(Bytes(0));
        }
        Some(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ClockReading, Tgid, WallNs};
    use std::fs;

    const PAGE: i64 = 4096;

    /// What a look says, after each process was given faults and resident pages.
    fn looked(cow: &mut Cow, seconds: i64, processes: &[(u32, i64, i64)]) -> Vec<(i64, i64)> {
        let mut subjects = Vec::new();
        for (tgid, faults, rss) in processes {
            let dir = cow.root.join(tgid.to_string());
            fs::create_dir_all(&dir).unwrap();
            let stat = format!(
                "{tgid} (x) S 1 1 1 0 -1 0 {faults} 0 0 0 0 0 0 0 20 0 1 0 100 4096 {rss} 0"
            );
            fs::write(dir.join("stat"), stat).unwrap();
            subjects.push(Subject {
                upid: Upid(i64::from(*tgid)),
                tgid: Tgid(*tgid),
                image: 1,
                is_unshared: false,
                image_count: processes.len(),
            });
        }
        let clock = ClockOffset::at(ClockReading {
            boot_ns: BootNs(0),
            monotonic_ns: 0,
            wall_ns: WallNs(0),
        });
        let mut out = Vec::new();
        cow.next_look = BootNs(0);
        cow.look(&subjects, 1.0, BootNs(seconds), clock, &mut out);
        let row = |record| match record {
            Record::Cow(row) => (row.copied_bytes.0 / PAGE, row.unchanged_until_boot_ns.0),
            other => panic!("{other:?}"),
        };
        out.into_iter().map(row).collect()
    }

    #[test]
    fn faults_of_all_that_add_no_memory_are_told_in_steps() {
        let root = tempfile::tempdir().unwrap();
        let mut cow = Cow::new(root.path(), PAGE.cast_unsigned());
        assert_eq!(
            looked(&mut cow, 1, &[(7, 9_000, 5_000), (8, 10, 5_000)]),
            []
        );
        let both = [(7, 9_000, 5_000), (8, 1_010, 5_000)];
        assert_eq!(looked(&mut cow, 2, &both), [(1_000, 1)]);
        let both = [(7, 9_100, 5_000), (8, 1_110, 5_000)];
        assert_eq!(looked(&mut cow, 3, &both), [], "less than a step");
        // Of 1,000 faults 900 brought new pages.
        let both = [(7, 10_100, 5_900), (8, 1_110, 5_000)];
        assert_eq!(looked(&mut cow, 4, &both), [(1_300, 3)]);
        assert_eq!(cow.copied(1), Bytes(1_300 * PAGE));
    }

    #[test]
    fn who_is_alone_or_holds_little_is_not_counted() {
        let root = tempfile::tempdir().unwrap();
        let mut cow = Cow::new(root.path(), PAGE.cast_unsigned());
        assert_eq!(looked(&mut cow, 1, &[(7, 0, 9_000)]), []);
        assert_eq!(looked(&mut cow, 2, &[(7, 9_000, 9_000)]), []);
        assert_eq!(looked(&mut cow, 3, &[(7, 9_000, 100), (8, 0, 100)]), []);
        assert_eq!(looked(&mut cow, 4, &[(7, 9_900, 100), (8, 900, 100)]), []);
    }
}
