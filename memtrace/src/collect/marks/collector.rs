//! From received marks to rows: whose they are, and when they were.

use super::inbox::{ASKED_MAX, Inbox, Received, WAITING_MAX};
use super::lines::{Followed, Follower, Lines, OutputReader, Passed, Rules};
use super::questions::{Asked, Questions};
use super::socket::{Listener, MarkSocket};
use crate::collect::{CollectError, Collector, Peak, SectionNews, Tick, World};
use crate::model::{
    BootNs, Bytes, DiagKind, DurationNs, MarkKind, MarkRow, MarkRule, MarkSource, PeakSource,
    Record, Severity, Tgid, Upid,
};
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
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

/// Where marks come from.
#[derive(Debug, Default)]
pub struct MarkSources {
    /// The socket for programs.
    pub socket: Option<MarkSocket>,
    /// The rules for lines.
    pub rules: Vec<MarkRule>,
    /// What the command writes.
    pub output: Vec<Passed>,
    /// The command, whose mark a line of its output is unless it names another process.
    pub command: Option<Tgid>,
    /// Log files.
    pub files: Vec<PathBuf>,
    /// Which of them were there.
    pub followed: Followed,
}

/// Marks can't be taken from there.
#[derive(Debug, thiserror::Error)]
pub enum MarkSourceError {
    /// A thread was refused.
    #[error("start a thread: {0}")]
    Thread(#[from] io::Error),
    /// The rules can't be used.
    #[error(transparent)]
    Rules(#[from] super::RulesError),
}

/// Writes the marks that arrive.
pub struct MarkCollector {
    listener: Option<Listener>,
    questions: Option<Questions>,
    output: Vec<OutputReader>,
    follower: Option<Follower>,
    followed: Followed,
    inbox: Arc<Inbox>,
    /// Who writes the output, and who that is.
    command: Option<(Tgid, Option<Upid>)>,
    /// Marks whose sender is not known yet.
    unknown: Vec<Received>,
    /// Questions of such.
    unknown_asked: Vec<Asked>,
}

impl MarkCollector {
    /// Begins to listen. A log file that is there is followed from its end as of now.
    ///
    /// # Errors
    /// When a thread can't be started, or the rules can't be used together.
    pub fn start(mut sources: MarkSources) -> Result<Self, MarkSourceError> {
        let inbox = Arc::new(Inbox::default());
        let rules = Arc::new(Rules::new(sources.rules)?);
        let lines =
            |source, writer| Lines::new(Arc::clone(&rules), source, writer, Arc::clone(&inbox));
        let questions = sources.socket.as_mut().and_then(MarkSocket::take_questions);
        let questions = questions.map(|socket| Questions::start(socket, Arc::clone(&inbox)));
        let listener = sources
            .socket
            .map(|socket| Listener::start(socket, Arc::clone(&inbox)));
        let output = sources
            .output
            .into_iter()
            .map(|passed| OutputReader::start(passed, lines(MarkSource::Output, sources.command)));
        let output = output.collect::<io::Result<_>>()?;
        let files = sources.files.into_iter();
        let files: Vec<_> = files
            .map(|path| (path, lines(MarkSource::File, None)))
            .collect();
        let follower = match files.is_empty() {
            true => None,
            false => Some(Follower::start(files, sources.followed.clone())?),
        };
        Ok(Self {
            listener: listener.transpose()?,
            questions: questions.transpose()?,
            output,
            follower,
            followed: sources.followed,
            inbox,
            command: sources.command.map(|command| (command, None)),
            unknown: Vec::new(),
            unknown_asked: Vec::new(),
        })
    }

    fn write(&mut self, is_last: bool, tick: &Tick, world: &mut World, out: &mut Vec<Record>) {
        // What it wrote last is read after its end.
        if let Some((command, upid @ None)) = &mut self.command {
            *upid = world.upid(*command);
        }
        let writer = self.command.and_then(|(_, upid)| upid);
        let waiting = self.inbox.take();
        let marks = self.unknown.drain(..).chain(waiting.marks);
        let mut unknown = Vec::new();
        let mut known: HashMap<Tgid, bool> = HashMap::new();
        for mark in marks {
            let at = moment(&mark);
            let is_of_process = !mark.message.is_of_recording;
            let tgid = mark.tgid.filter(|_| is_of_process);
            let has_had = |tgid: &Tgid| *known.entry(*tgid).or_insert_with(|| world.has_had(*tgid));
            let upid = tgid
                .filter(has_had)
                .and_then(|tgid| world.who_was(tgid, at));
            let is_named = is_of_process && tgid.is_some();
            let may_become_known = is_named && upid.is_none() && !is_last;
            if may_become_known && (tick.boot - mark.arrival).0 < KNOWN_WITHIN.0 {
                unknown.push(mark);
                continue;
            }
            put(&mark, at, upid, writer, tick, world, out);
        }
        // Those that have waited longest are strangers' most likely.
        let over = unknown.len().saturating_sub(WAITING_MAX);
        for mark in unknown.drain(..over) {
            put(&mark, moment(&mark), None, writer, tick, world, out);
        }
        self.unknown = unknown;
        let asked = self.unknown_asked.drain(..).chain(waiting.asked);
        let mut asked: Vec<Asked> = asked
            .filter_map(|asked| ask(asked, tick, world))
            .filter(|_| !is_last)
            .collect();
        let kept = asked.len().min(ASKED_MAX);
        for asked in asked.drain(kept..) {
            asked.refuse();
        }
        self.unknown_asked = asked;
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
            (
                waiting.unread_bytes,
                DiagKind::LostEvents,
                "bytes of the command's output, or of log files, that came faster than they \
                 could be searched for marks"
                    .to_owned(),
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

/// Writes a mark. `upid` is who it names, `writer` the command, whose output it may be.
fn put(
    mark: &Received,
    at: BootNs,
    upid: Option<Upid>,
    writer: Option<Upid>,
    tick: &Tick,
    world: &mut World,
    out: &mut Vec<Record>,
) {
    let (tgid, upid) = match (upid, mark.writer) {
        (None, Some(command)) => (Some(command), writer),
        (upid, _) => (mark.tgid, upid),
    };
    if let Some(peak) = told_peak(mark)
        && let Some(upid) = upid
    {
        world.raise_peak(upid, peak);
    }
    if let Some(owner) = upid
        && let Some(news) = section_news(mark, owner, at)
    {
        world.note_section(news);
    }
    out.push(row(mark, at, tgid, upid, tick));
}

/// What a mark says of a section whose descendants its process may ask about. Any end may be
/// that of one: which those are, is known where their begins are.
fn section_news(mark: &Received, owner: Upid, at: BootNs) -> Option<SectionNews> {
    let span = mark.message.span?;
    match mark.kind {
        MarkKind::Begin if mark.message.descendants => Some(SectionNews::Begin { owner, span, at }),
        MarkKind::End => Some(SectionNews::End { owner, span, at }),
        _ => None,
    }
}

/// Hands a question on; gives it back where its process is not known yet.
fn ask(asked: Asked, tick: &Tick, world: &mut World) -> Option<Asked> {
    match world.who_was(asked.tgid, asked.at) {
        Some(owner) => {
            let stream = asked.stream;
            world.note_section(SectionNews::Question {
                owner,
                span: asked.question.span,
                at: asked.at,
                reply: Box::new(move |answer| Asked::reply(&stream, answer)),
            });
            None
        }
        None => ((tick.boot - asked.at).0 < KNOWN_WITHIN.0).then_some(asked),
    }
}

/// When it was, by the sender's clock where that can be true. Lines are on our clock.
fn moment(mark: &Received) -> BootNs {
    if mark.source != MarkSource::Socket {
        return BootNs(mark.message.boot_ns);
    }
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

fn row(mark: &Received, at: BootNs, tgid: Option<Tgid>, upid: Option<Upid>, tick: &Tick) -> Record {
    Record::Mark(MarkRow {
        ts: tick.clock.to_wall(at),
        boot_ns: at,
        upid,
        tgid,
        name: mark.message.name.clone(),
        kind: Some(mark.kind),
        span: mark.message.span,
        source: Some(mark.source),
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
        if let Some(listener) = &mut self.listener {
            listener.stop();
        }
        if let Some(questions) = &mut self.questions {
            questions.stop();
        }
        self.output.iter_mut().for_each(OutputReader::stop);
        if let Some(follower) = &mut self.follower {
            follower.stop();
        }
        self.write(true, tick, world, out);
        for path in self.followed.absent() {
            let detail = format!("{} never appeared: no marks are from it", path.display());
            out.push(tick.diag(
                Severity::Degraded,
                DiagKind::Unavailable,
                "mark",
                None,
                detail,
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::{Birth, End};
    use crate::model::{ClockOffset, ClockReading, FirstSeenBy, MarkMessage, WallNs};

    fn tick(boot: i64) -> Tick {
        let clock = ClockOffset::at(ClockReading {
            boot_ns: BootNs(0),
            monotonic_ns: 0,
            wall_ns: WallNs(0),
        });
        Tick {
            boot: BootNs(boot),
            clock,
            is_keyframe: false,
        }
    }

    #[test]
    fn a_mark_is_written_after_its_process_ended_and_is_not_that_of_the_next_with_its_id() {
        let mut collector = MarkCollector::start(MarkSources::default()).unwrap();
        let (mut world, mut out) = (World::default(), Vec::new());
        let mut enter = |start| {
            let birth = Birth {
                tgid: Tgid(9),
                start: BootNs(start),
                seen_by: FirstSeenBy::Snapshot,
                parent: None,
                comm: String::new(),
            };
            let upid = world.enter(birth, BootNs(start));
            if start < 20 {
                let at = BootNs(10);
                world.end(
                    upid,
                    End {
                        at,
                        wait_status: Some(0),
                    },
                );
            }
            upid
        };
        let (first, second) = (enter(1), enter(20));
        // Sent in the life of the one, in that of the other, and when there was neither.
        for boot in [5, 25, 15] {
            let message = MarkMessage::new(MarkKind::Instant, "a", BootNs(boot));
            let parsed = Ok((message, MarkKind::Instant));
            collector.inbox.receive(Some(Tgid(9)), BootNs(30), parsed);
        }
        let later = tick(30 + KNOWN_WITHIN.0);
        collector.write(false, &later, &mut world, &mut out);
        let upids: Vec<Option<Upid>> = out
            .iter()
            .filter_map(|record| match record {
                Record::Mark(row) => Some(row.upid),
                _ => None,
            })
            .collect();
        assert_eq!(upids, [Some(first), Some(second), None]);
    }

    #[test]
    fn marks_of_strangers_wait_in_a_bounded_room_and_go_out_with_nobodys_identity() {
        let mut collector = MarkCollector::start(MarkSources::default()).unwrap();
        let tick = tick(2);
        let (mut world, mut out) = (World::default(), Vec::new());
        for count in [WAITING_MAX, 7] {
            for _ in 0..count {
                let kind = MarkKind::Instant;
                let message = MarkMessage::new(kind, "a", BootNs(1));
                let parsed = Ok((message, kind));
                collector.inbox.receive(Some(Tgid(9)), BootNs(1), parsed);
            }
            collector.write(false, &tick, &mut world, &mut out);
            assert_eq!(collector.unknown.len(), WAITING_MAX);
        }
        assert_eq!(out.len(), 7);
        let is_nobodys =
            |record: &Record| matches!(record, Record::Mark(row) if row.upid.is_none());
        assert!(out.iter().all(is_nobodys));
    }
}
