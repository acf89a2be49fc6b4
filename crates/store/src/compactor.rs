//! The thread that turns closed segments into Parquet while the recording goes on.

use super::close::list_unlisted;
use super::compact::{Through, compact};
use super::disk::Disk;
use super::error::StoreError;
use super::reading::Reading;
use super::tiers::Tiers;
use memtrace_model::{BootNs, TABLES};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// A closed segment.
#[derive(Clone, Copy, Debug)]
struct Closed {
    table_index: usize,
    seq: u32,
    /// When, where that was because its time had come.
    closed_ns: Option<i64>,
}

/// Owns the thread; dropping it waits for the segment in hand, for a second or so.
#[derive(Debug)]
pub(super) struct Compactor {
    // Without bound: an item is a few bytes, and one comes per half a million rows, or per table
    // and some seconds.
    sender: Option<Sender<Closed>>,
    thread: Option<JoinHandle<()>>,
    failure: Arc<Mutex<Option<StoreError>>>,
}

impl Compactor {
    /// Starts the thread.
    pub(super) fn start(disk: Arc<Disk>) -> io::Result<Self> {
        let (sender, receiver) = channel();
        let failure = Arc::new(Mutex::new(None));
        let failed = Arc::clone(&failure);
        let thread = std::thread::Builder::new()
            .name("memtrace-store".to_owned())
            .spawn(move || {
                yield_to_others();
                convert_all(&disk, &receiver, &failed);
            })?;
        Ok(Self {
            sender: Some(sender),
            thread: Some(thread),
            failure,
        })
    }

    /// Hands over a segment that was closed because it was full, or because it was that time.
    pub(super) fn convert(&self, table_index: usize, seq: u32, closed: Option<BootNs>) {
        let closed_ns = closed.map(|closed| closed.0);
        if let Some(sender) = &self.sender {
            // It fails only when the thread has panicked. The segment then stays in the
            // spool, where finishing or reading the recording finds it.
            let _ = sender.send(Closed {
                table_index,
                seq,
                closed_ns,
            });
        }
    }

    /// A conversion that failed since the last call. Its segment is still in the spool.
    pub(super) fn take_failure(&self) -> Option<StoreError> {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.take()
    }

    /// Waits until every segment handed over is converted, and stops.
    pub(super) fn stop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // Its panic would have been reported by the hook; the segments are still there.
            let _ = thread.join();
        }
    }
}

impl Drop for Compactor {
    fn drop(&mut self) {
        self.stop();
    }
}

fn convert_all(disk: &Disk, closed: &Receiver<Closed>, failure: &Mutex<Option<StoreError>>) {
    let mut tiers = vec![Tiers::default(); TABLES.len()];
    let mut has_failed = false;
    for Closed {
        table_index,
        seq,
        closed_ns,
    } in closed
    {
        let Some((table, tiers)) = TABLES.get(table_index).zip(tiers.get_mut(table_index)) else {
            continue;
        };
        let joined = match closed_ns {
            Some(_) => tiers.next(),
            None => tiers.all(),
        };
        let through = Through::Segment {
            seq,
            closed_ns,
            joined: joined.count,
        };
        // Damage in a segment written by this process is reported when the recording is
        // read: the file is put aside.
        let reading = Reading::of_own(disk);
        // A part that could not be named then stands for others that are about to go.
        let named = match has_failed {
            true => list_unlisted(disk, &reading),
            false => Ok(()),
        };
        let outcome = named.and_then(|()| compact(disk, &reading, table, through));
        has_failed = outcome.is_err();
        match outcome {
            Ok(Some(bytes)) if closed_ns.is_some() => tiers.note(joined, bytes),
            // A segment that is full makes a part that stays.
            Ok(Some(_)) => tiers.clear(),
            Ok(None) => {}
            Err(error) => {
                // How far it came is not known: what there is stays.
                tiers.clear();
                *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        }
    }
}

/// Lets the recorded program have the CPU first.
#[cfg(target_os = "linux")]
fn yield_to_others() {
    const NICENESS: i32 = 19;
    // On Linux a thread has a niceness of its own, which goes by its id. Refused or not,
    // the work is the same.
    let thread = rustix::thread::gettid();
    let _ = rustix::process::setpriority_process(Some(thread), NICENESS);
}

/// Elsewhere only a whole process can be niced.
#[cfg(not(target_os = "linux"))]
fn yield_to_others() {}
