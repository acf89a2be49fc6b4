//! From received marks to rows: whose they are, and when they were.

use super::inbox::{Inbox, Received};
use super::socket::{Listener, MarkSocket};
use crate::collect::{CollectError, Collector, Peak, Tick, World};
use crate::model::{
    BootNs, Bytes, DiagKind, DurationNs, MarkKind, MarkRow, MarkSource, PeakSource, Record,
    Severity, Upid,
};
use std::io;
use std::sync::Arc;

const PERIOD: DurationNs = DurationNs(100_000_000);

/// A sender that is not known yet may become so: a poll sees a process only at its next
/// turn. After this long the mark is a stranger's.
const KNOWN_WITHIN: DurationNs = DurationNs(1_000_000_000);

/// A sender's clock is believed this far before the arrival: it may have been stopped
/// between reading the clock and sending. What lies after the arrival is no reading.
const DELAY_MAX: DurationNs = DurationNs(60_000_000_000);

/// The attribute of a [`MarkKind::Peak`] that holds the high-water mark.
const HIWATER: &str = "hiwater_bytes";

/// Writes the marks that arrive on the recording's socket.
pub struct MarkCollector {
    listener: Listener,
    inbox: Arc<Inbox>,
    /// Marks whose sender is not known yet.
    unknown: Vec<Received>,
}

impl MarkCollector {
    /// Begins to listen.
    ///
    /// # Errors
    /// When the thread can't be started.
    pub fn start(socket: MarkSocket) -> io::Result<Self> {
        let inbox = Arc::new(Inbox::default());
        Ok(Self {
            listener: Listener::start(socket, Arc::clone(&inbox))?,
            inbox,
            unknown: Vec::new(),
        })
    }

    fn write(&mut self, is_last: bool, tick: &Tick, world: &mut World, out: &mut Vec<Record>) {
        let waiting = self.inbox.take();
        let marks = self.unknown.drain(..).chain(waiting.marks);
        let mut unknown = Vec::new();
        for mark in marks {
            let at = moment(&mark);
            let is_of_process = !mark.message.is_of_recording;
            let tgid = mark.tgid.filter(|_| is_of_process);
            let upid = tgid.and_then(|tgid| world.who_was(tgid, at));
            let may_become_known = is_of_process && upid.is_none() && !is_last;
            if may_become_known && (tick.boot - mark.arrival).0 < KNOWN_WITHIN.0 {
                unknown.push(mark);
                continue;
            }
            if let Some(peak) = told_peak(&mark)
                && let Some(upid) = upid
            {
                world.raise_peak(upid, peak);
            }
            out.push(row(&mark, at, upid, tick));
        }
        self.unknown = unknown;
        let lost = [
            (
                waiting.dropped_count,
                DiagKind::LostEvents,
                "marks that their senders could not deliver: the socket's queue was full"
                    .to_owned(),
            ),
            (
                waiting.overflow_count,
                DiagKind::LostEvents,
                "marks that arrived faster than they could be written".to_owned(),
            ),
            (
                waiting.refused_count,
                DiagKind::UndecodedEvents,
                format!(
                    "datagrams that are no marks; the first: {}",
                    waiting.first_refusal.as_deref().unwrap_or("unknown")
                ),
            ),
        ];
        for (count, kind, detail) in lost {
            if count > 0 {
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                world.add_lost_events(count);
                out.push(tick.diag(Severity::Loss, kind, "mark", Some(count), detail));
            }
        }
    }
}

/// When it was, by the sender's clock where that can be true.
fn moment(mark: &Received) -> BootNs {
    let told = BootNs(mark.message.boot_ns);
    let earliest = mark.arrival.0.saturating_sub(DELAY_MAX.0);
    if (earliest..=mark.arrival.0).contains(&told.0) {
        told
    } else {
        mark.arrival
    }
}

fn told_peak(mark: &Received) -> Option<Peak> {
    if mark.kind != MarkKind::Peak {
        return None;
    }
    let bytes = mark.message.attrs.get(HIWATER)?.as_i64()?;
    (bytes > 0).then_some(Peak {
        bytes: Bytes(bytes),
        source: PeakSource::Told,
        error: None,
        at: None,
    })
}

fn row(mark: &Received, at: BootNs, upid: Option<Upid>, tick: &Tick) -> Record {
    Record::Mark(MarkRow {
        ts: tick.clock.to_wall(at),
        boot_ns: at,
        upid,
        tgid: mark.tgid,
        name: mark.message.name.clone(),
        kind: Some(mark.kind),
        span: mark.message.span,
        source: Some(MarkSource::Socket),
        attributes: mark.message.attributes(),
    })
}

impl Collector for MarkCollector {
    fn name(&self) -> &'static str {
        "marks"
    }

    fn period(&self) -> DurationNs {
        PERIOD
    }

    fn is_urged(&self) -> bool {
        true
    }

    fn collect(
        &mut self,
        tick: &Tick,
        world: &mut World,
        out: &mut Vec<Record>,
    ) -> Result<(), CollectError> {
        self.write(false, tick, world, out);
        Ok(())
    }

    fn finish(
        &mut self,
        tick: &Tick,
        world: &mut World,
        out: &mut Vec<Record>,
    ) -> Result<(), CollectError> {
        self.listener.stop();
        self.write(true, tick, world, out);
        Ok(())
    }
}
