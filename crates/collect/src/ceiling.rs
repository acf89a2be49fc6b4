//! How much memory the recorder takes for what others decide the size of.
//!
//! Marks come as fast as programs send them, rows wait for as long as the disk does, a process
//! can have a command line of megabytes. The recorder must not grow with that: it is the last to
//! be killed for memory, and its pages are locked. So each kind has its part of one ceiling,
//! counted in bytes, and what does not fit is left out and counted. The rest of it is for the
//! recorder itself: the program, what it keeps of each process that lives (2 to 3 KiB), what it
//! reads and encodes at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

/// What takes a part of the ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Marks that have arrived and are not written yet.
    Marks,
    /// Rows that wait for the disk.
    Rows,
    /// Command lines and executables of the processes that live.
    Names,
    /// What was found out about the memory of processes and is not written yet.
    Findings,
}

impl Part {
    const COUNT: usize = 4;

    /// The most that it takes.
    pub const fn limit(self) -> usize {
        match self {
            Self::Marks => 16 << 20,
            Self::Rows => 64 << 20,
            Self::Names => 16 << 20,
            Self::Findings => 16 << 20,
        }
    }
}

/// What is taken of each part at present.
#[derive(Debug, Default)]
pub struct Ceiling {
    taken: [AtomicUsize; Part::COUNT],
    freed: Notify,
}

/// Bytes of a part, which are free again when this is dropped.
#[derive(Debug)]
pub struct Share {
    ceiling: Arc<Ceiling>,
    part: Part,
    bytes: usize,
}

impl Ceiling {
    /// Takes so much of a part; `None` where it is not free.
    pub fn take(self: &Arc<Self>, part: Part, bytes: usize) -> Option<Share> {
        let share = self.charge(part, bytes);
        (self.taken(part) <= part.limit()).then_some(share)
    }

    /// Takes so much, free or not: of what is there already and can't be left out. Whoever does
    /// that stops making more while the part is full: [`Ceiling::is_full`].
    pub fn charge(self: &Arc<Self>, part: Part, bytes: usize) -> Share {
        self.taken[part as usize].fetch_add(bytes, Ordering::AcqRel);
        Share {
            ceiling: Arc::clone(self),
            part,
            bytes,
        }
    }

    /// What is taken of a part.
    pub fn taken(&self, part: Part) -> usize {
        self.taken[part as usize].load(Ordering::Acquire)
    }

    /// Whether nothing is left of a part.
    pub fn is_full(&self, part: Part) -> bool {
        self.taken(part) >= part.limit()
    }

    /// Waits until something of a part is free. Cancel-safe.
    pub async fn room(&self, part: Part) {
        loop {
            let freed = self.freed.notified();
            if !self.is_full(part) {
                return;
            }
            freed.await;
        }
    }
}

impl Share {
    /// How much it is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes it as large as this; `false`, and it stays as it is, where so much is not free.
    pub fn resize(&mut self, bytes: usize) -> bool {
        let taken = &self.ceiling.taken[self.part as usize];
        if bytes > self.bytes {
            let more = bytes - self.bytes;
            if taken.fetch_add(more, Ordering::AcqRel) + more > self.part.limit() {
                taken.fetch_sub(more, Ordering::AcqRel);
                return false;
            }
        } else {
            taken.fetch_sub(self.bytes - bytes, Ordering::AcqRel);
        }
        self.bytes = bytes;
        true
    }
}

impl Share {
    /// Makes it as large as this, free or not.
    pub fn force(&mut self, bytes: usize) {
        let taken = &self.ceiling.taken[self.part as usize];
        taken.fetch_add(bytes, Ordering::AcqRel);
        taken.fetch_sub(self.bytes, Ordering::AcqRel);
        self.bytes = bytes;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let taken = &self.ceiling.taken[self.part as usize];
        taken.fetch_sub(self.bytes, Ordering::AcqRel);
        if self.part == Part::Rows {
            // One waits: the session. It may be about to.
            self.ceiling.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrace_model::RECORDER_BYTES_MAX;

    const ALL: [Part; Part::COUNT] = [Part::Marks, Part::Rows, Part::Names, Part::Findings];

    #[test]
    fn the_parts_leave_half_of_the_ceiling_to_the_recorder_itself() {
        let parts: usize = ALL.iter().map(|part| part.limit()).sum();
        assert!(parts as i64 <= RECORDER_BYTES_MAX.0 / 2, "{parts}");
    }

    #[test]
    fn what_is_taken_is_free_again_when_it_is_dropped_and_no_part_takes_anothers() {
        let ceiling = Arc::new(Ceiling::default());
        let limit = Part::Marks.limit();
        let all = ceiling.take(Part::Marks, limit).expect("all of it");
        assert!(ceiling.take(Part::Marks, 1).is_none());
        assert!(ceiling.take(Part::Rows, 1).is_some());
        assert_eq!(ceiling.taken(Part::Marks), limit, "a refusal takes nothing");
        drop(all);
        assert_eq!(ceiling.taken(Part::Marks), 0);
    }

    #[test]
    fn a_share_grows_as_far_as_there_is_room() {
        let ceiling = Arc::new(Ceiling::default());
        let limit = Part::Names.limit();
        let mut share = ceiling.take(Part::Names, 10).expect("little");
        assert!(!share.resize(limit + 1));
        assert_eq!(ceiling.taken(Part::Names), 10);
        assert!(share.resize(limit) && share.resize(5));
        assert_eq!(ceiling.taken(Part::Names), 5);
    }
}
