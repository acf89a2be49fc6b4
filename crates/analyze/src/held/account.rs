//! What the processes hold between two readings of what their groups are charged.
//!
//! A reading holds for its instant. Until the next one what is held is what it was then and what the
//! processes gained or gave back since. Where others live in the groups too, what is charged is a cap on
//! what can be held, and what few of them leave of it is certain. The figure is that, or what the processes
//! are known to hold; copies that ran before the recording and were never read can have what many leave.

use super::charges::{Charged, EARLY, Reading, Sockets, Whole, read};
use super::{Held, HeldBasis, HeldKinds};
use crate::process_table::ProcessTable;
use memtrace_model::{BootNs, Bytes, RowSource};

/// The counters of processes and of groups are each off by a little: more than this, and one part in
/// so many, is no error of theirs.
const SLACK: i64 = 4 << 20;
const SLACK_PART: i64 = 50;

/// What moves as the counters of processes do: anonymous memory that each gained since the fork or exec
/// that made it, and the largest part of shared memory in any one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) anon: i64,
    pub(super) shared: i64,
    /// All anonymous memory in RSS.
    pub(super) in_rss: i64,
    /// Of that, what copies that were never read may have alone.
    pub(super) unread: i64,
}

/// The readings of a recording, as they stand at an instant.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    /// What is to come, the latest first.
    coming: Vec<Reading>,
    /// The last that has passed, and what the counters of processes were then.
    last: Option<(Reading, Counted)>,
    /// Whether the first reading came right after the start: what was there before it is what it found,
    /// as far as the processes can have held that.
    is_early: bool,
}

impl Account {
    /// Reads what the groups are charged. What is later than `since` replaces what was known of that
    /// time; what is earlier has passed.
    pub(super) fn prepare<S: RowSource>(
        &mut self,
        source: &S,
        table: &ProcessTable,
        whole: Whole,
        sockets: &Sockets,
        since: Option<BootNs>,
    ) -> Result<(), S::Error> {
        let mut coming = read(source, table, whole, sockets)?;
        if self.last.is_none() {
            let first = coming.first();
            self.is_early = first.is_some_and(|first| first.at - whole.start <= EARLY);
        }
        coming.retain(|reading| since.is_none_or(|since| reading.at > since));
        coming.reverse();
        self.coming = coming;
        Ok(())
    }

    /// When the next reading is.
    pub(super) fn next_change(&self) -> Option<BootNs> {
        self.coming.last().map(|reading| reading.at)
    }

    /// Takes the readings until and with an instant.
    pub(super) fn pass(&mut self, until: BootNs, counted: Counted) {
        while let Some(reading) = self.coming.pop_if(|reading| reading.at <= until) {
            self.last = Some((reading, counted));
        }
    }

    /// What was held at the last reading for certain: nothing where others live there, who can have
    /// grown since they were counted.
    pub(super) fn least_then(&self) -> Bytes {
        let last = self.last.as_ref().filter(|(last, _)| last.is_alone);
        let least = |(last, _): &(Reading, _)| last.anon.least.saturating_add(last.shared.least);
        Bytes(last.map_or(0, least))
    }

    /// What can have been held for a moment before the last reading, by the kernel's marks: no row tells
    /// of what came and went meanwhile. `None` where no mark rose.
    pub(super) fn reached_before(&self) -> Option<Bytes> {
        let (last, _) = self.last.as_ref()?;
        last.reached.map(Bytes)
    }

    /// What is held until something changes, where this is what the processes are thought to hold by
    /// themselves.
    pub(super) fn settle(&self, thought: HeldKinds, counted: Counted) -> HeldKinds {
        self.settled(thought, counted, None)
    }

    /// The same of an instant: at that of a reading it is what was read.
    pub(super) fn settle_at(&self, at: BootNs, thought: HeldKinds, counted: Counted) -> HeldKinds {
        self.settled(thought, counted, Some(at))
    }

    fn settled(&self, thought: HeldKinds, counted: Counted, at: Option<BootNs>) -> HeldKinds {
        let Some((last, then)) = &self.last else {
            let first = self.coming.last().filter(|_| self.is_early);
            return first.map_or(thought, |first| before(thought, first, counted.unread));
        };
        let coming = self.coming.last();
        let is_alone = last.is_alone && coming.is_none_or(|next| next.is_alone);
        let next = match at == Some(last.at) && is_alone {
            true => Some(last),
            false => coming,
        };
        // What no RSS counts stays.
        let beyond = last.anon.most.saturating_sub(then.in_rss).max(0);
        let moved = counted.anon.saturating_sub(then.anon);
        let anon = Between {
            last: last.anon,
            next: next.map(|next| next.anon),
            moved,
            is_counted_once: true,
            in_rss: counted.in_rss.saturating_add(beyond),
            unread: unread(
                last.anon_left().saturating_add(moved),
                thought.anon,
                counted.unread,
            ),
        };
        let shared = Between {
            last: last.shared,
            next: next.map(|next| next.shared),
            moved: counted.shared.saturating_sub(then.shared),
            is_counted_once: false,
            in_rss: i64::MAX,
            unread: 0,
        };
        let anon = anon.held(thought.anon, is_alone);
        let shared = shared.held(thought.shared, is_alone);
        match (anon, shared) {
            (Some(anon), Some(shared)) => {
                let kernel = kernel(thought.kernel, last, next);
                // What counts lag by, and pages on their way to be freed, are gone at the next reading: of no kind
                // is what both tell.
                let unnamed = coming.map_or(last.unnamed, |next| last.unnamed.hull(next.unnamed));
                let unnamed = held(unnamed.least, unnamed);
                // While one kind is given back another can come: no more than was ever in use.
                let beside = shared.plus(kernel).plus(unnamed);
                let anon = match next.and_then(|next| next.mark).filter(|_| is_alone) {
                    Some(mark) => no_more_than(mark, anon, beside),
                    None => anon,
                };
                let uncharged = next.map_or(0, |next| next.uncharged).max(last.uncharged);
                HeldKinds {
                    anon,
                    shared,
                    kernel: Held {
                        at_most: kernel.at_most + Bytes(uncharged),
                        ..kernel
                    },
                    unnamed,
                    basis: match is_alone {
                        true => HeldBasis::Cgroup,
                        false => HeldBasis::Bounds,
                    },
                    ..thought
                }
            }
            // More is held for certain than was charged: the charge is elsewhere.
            _ => thought,
        }
    }
}

/// What others leave and nothing explains, as far as copies that were never read can have it.
fn unread(left: i64, thought: Held, most: i64) -> i64 {
    left.saturating_sub(thought.bytes.0).clamp(0, most.max(0))
}

/// What is held before the first reading.
fn before(thought: HeldKinds, first: &Reading, unread_at_most: i64) -> HeldKinds {
    let kind = |thought: Held, first: Charged, unread: i64| {
        let at_most = thought.at_most.0.min(first.most.max(thought.bytes.0));
        let figure = thought.bytes.0.saturating_add(unread);
        Held {
            at_least: thought.at_least,
            bytes: Bytes(first.least.max(figure).min(at_most).max(thought.bytes.0)),
            at_most: Bytes(at_most),
        }
    };
    let unread = unread(first.anon_left(), thought.anon, unread_at_most);
    HeldKinds {
        anon: kind(thought.anon, first.anon, unread),
        shared: kind(thought.shared, first.shared, 0),
        basis: HeldBasis::Bounds,
        ..thought
    }
}

fn held(bytes: i64, within: Charged) -> Held {
    Held {
        at_least: Bytes(within.least),
        bytes: Bytes(bytes),
        at_most: Bytes(within.most),
    }
}

/// Kernel memory between two readings, where this is the part of it that is known of processes.
fn kernel(thought: Held, last: &Reading, next: Option<&Reading>) -> Held {
    let both = next.map_or(last.kernel, |next| last.kernel.hull(next.kernel));
    let is_apart = last.is_apart && next.is_none_or(|next| next.is_apart);
    let within = match is_apart {
        // It moves a little all the time.
        true if both.most.saturating_sub(both.least) <= SLACK => last.kernel,
        true => both,
        false => Charged {
            least: thought.at_least.0,
            most: both.most.max(thought.at_least.0),
        },
    };
    held(last.kernel.least.clamp(within.least, within.most), within)
}

/// Anonymous memory of which there is no more than a mark leaves beside other kinds.
fn no_more_than(mark: i64, anon: Held, beside: Held) -> Held {
    let less = |bytes: Bytes, beside: Bytes| {
        Bytes(
            bytes
                .0
                .min(mark.saturating_sub(beside.0))
                .max(anon.at_least.0),
        )
    };
    Held {
        at_least: anon.at_least,
        bytes: less(anon.bytes, beside.bytes),
        at_most: less(anon.at_most, beside.at_most).max(less(anon.bytes, beside.bytes)),
    }
}

/// What was charged of a kind before and after an instant, and what moved since.
struct Between {
    last: Charged,
    /// `None` after the last reading.
    next: Option<Charged>,
    moved: i64,
    /// Whether what moved is memory that came or went, and not what was mapped once more.
    is_counted_once: bool,
    /// The sum of RSS, and what the last reading had beyond that.
    in_rss: i64,
    /// Beside others, what nothing else explains.
    unread: i64,
}

impl Between {
    /// What is held then. `None` where the processes hold more for certain than their groups can have
    /// been charged.
    fn held(&self, thought: Held, is_alone: bool) -> Option<Held> {
        let moved = Charged {
            least: self.last.least.saturating_add(self.moved),
            most: self.last.most.saturating_add(self.moved),
        };
        let next = self.next.unwrap_or(moved);
        let most = moved.most.max(next.most);
        let slack = (most / SLACK_PART).saturating_add(SLACK);
        if thought.at_least.0 > most.saturating_add(slack) {
            return None;
        }
        let least = moved.least.min(next.least);
        let (at_least, at_most) = match is_alone {
            true => (least.max(thought.at_least.0), most),
            // What is left of groups with few others in them, or none, is certain.
            false => (
                least.min(thought.at_most.0).max(thought.at_least.0),
                most.min(thought.at_most.0),
            ),
        };
        let at_most = at_most.max(at_least);
        // A fall that the next reading knows nothing of was none: what one gave back another held, if
        // it has that in its RSS.
        let lowest = self.last.most.min(next.most);
        let highest = self.last.most.max(next.most);
        let figure = match (is_alone, self.is_counted_once) {
            (true, true) => moved.most.max(lowest.min(self.in_rss)),
            (true, false) => moved.most.clamp(lowest, highest),
            (false, _) => thought.bytes.0.saturating_add(self.unread),
        };
        Some(Held {
            at_least: Bytes(at_least),
            bytes: Bytes(figure.clamp(at_least, at_most)),
            at_most: Bytes(at_most),
        })
    }
}
