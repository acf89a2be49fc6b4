//! The thread that reads who laid out memory.

use super::super::budget::{Meter, Stopped};
use super::super::subject::Subject;
use super::super::text::ReadError;
use super::super::worker::{Found, LeftOut, Sender, WorkerOrders};
use super::heaps::Heaps;
use super::reading::{self, Files};
use super::turns::{self, Last};
use crate::stop::lock;
use memtrace_host::clock;
use memtrace_model::{Bytes, DurationNs, Upid};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

/// Between two looks at who has moved.
const LOOK_NS: DurationNs = DurationNs(500_000_000);

/// What is not spent is kept for so long: a program that lives for seconds is read a few times too.
const SAVED_NS: DurationNs = DurationNs(60_000_000_000);

/// What is known of a process.
#[derive(Debug, Default)]
struct Known {
    image: u64,
    last: Option<Last>,
    heaps: Heaps,
    /// Whether the kernel refused: it will again.
    is_refused: bool,
}

/// The thread's own state.
pub(in crate::smaps) struct LayoutWorker {
    orders: Arc<WorkerOrders>,
    sender: Sender,
    root: PathBuf,
    page_size: u64,
    flags: Option<File>,
    known: HashMap<Upid, Known>,
}

impl LayoutWorker {
    pub(in crate::smaps) fn new(
        orders: Arc<WorkerOrders>,
        sender: Sender,
        root: PathBuf,
        page_size: u64,
    ) -> Self {
        Self {
            orders,
            sender,
            flags: File::open(root.join("kpageflags")).ok(),
            root,
            page_size,
            known: HashMap::new(),
        }
    }

    /// Reads until the order to stop comes. `share` is the share of one core that it may take.
    pub(in crate::smaps) fn run(mut self, share: f64) {
        let orders = Arc::clone(&self.orders);
        let mut meter = Meter::new(share, &orders.stop).saving(SAVED_NS);
        while self.round(&mut meter).is_ok() {}
    }

    /// Reads the most urgent, if there is one.
    fn round(&mut self, meter: &mut Meter<'_>) -> Result<(), Stopped> {
        let large = Arc::clone(&lock(&self.orders.large));
        let Some((subject, held)) = self.most_urgent(&large) else {
            meter.pause()?;
            return meter.rest(LOOK_NS);
        };
        let files = Files {
            root: &self.root,
            flags: self.flags.as_ref(),
            page_size: self.page_size,
        };
        let known = self.known.entry(subject.upid).or_default();
        // Also of one that can't be read: its turn is over.
        let at = clock::boot();
        let since = known.last.map_or(at, |last| last.since);
        let is_quiet = known.last.is_some_and(|last| turns::is_alike(held, last));
        known.last = Some(Last { held, at, since });
        // Without a rest in between: a reading is of one instant, as nearly as that can be.
        match reading::read(
            subject,
            &files,
            (&mut known.heaps, is_quiet),
            &self.orders.stop,
        ) {
            Ok(reading) => {
                self.sender.tell(Found::Layout(Box::new(reading)))?;
            }
            Err(ReadError::Stopped(stopped)) => return Err(stopped),
            Err(ReadError::Gone) => {}
            Err(ReadError::Refused { .. }) => {
                known.is_refused = true;
                self.sender.tell(Found::LeftOut(LeftOut::Layouts, 1))?;
            }
        }
        meter.pause()
    }

    fn most_urgent(&mut self, large: &[(Subject, Bytes)]) -> Option<(Subject, Bytes)> {
        let now = clock::boot();
        for (subject, _) in large {
            let known = self.known.entry(subject.upid).or_default();
            if known.image != subject.image {
                *known = Known {
                    image: subject.image,
                    ..Known::default()
                };
            }
        }
        let there = large.iter().map(|(subject, _)| subject.upid);
        let there: HashSet<Upid> = there.collect();
        self.known.retain(|upid, _| there.contains(upid));
        let urgent = large.iter().filter_map(|(subject, held)| {
            let known = self.known.get(&subject.upid)?;
            let urgency = turns::urgency(*held, known.last, now)?;
            (!known.is_refused).then_some((urgency, subject.upid, (*subject, *held)))
        });
        let most = urgent.max_by_key(|(urgency, upid, _)| (*urgency, std::cmp::Reverse(*upid)));
        most.map(|(_, _, wanted)| wanted)
    }
}
