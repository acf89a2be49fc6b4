//! From received marks to rows: whose they are, and when they were.

use super::asked::Asked;
use super::found_log::FoundLog;
use super::inbox::{ASKED_MAX, Inbox, Received, UNCHECKED_MAX, Waiting, Waits};
use super::lines::{Followed, Follower, Lines, OutputReader, Passed, Rules, next_span};
use super::questions::Questions;
use super::socket::{Listener, MarkSocket};
use crate::{CollectError, Collector, Part, Pass, Peak, ProcessTable, SectionNews, Tick};
use memtrace_host::{Person, clock, is_running};
use memtrace_model::{
    BootNs, Bytes, DiagKind, DurationNs, MarkKind, MarkRow, MarkRule, MarkSource, PeakSource,
    Record, SelfReport, Severity, Tgid, Upid,
};
use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::mem::take;
use std::path::PathBuf;
use std::sync::Arc;

const PERIOD: DurationNs = DurationNs(100_000_000);

/// A sender that is not known yet may become so: a poll sees a process only at its next
/// turn. After this long the mark is of a process not recorded.
const KNOWN_WITHIN: DurationNs = DurationNs(1_000_000_000);

/// A sender's clock is believed this far before the arrival: it may have been stopped
/// between reading the clock and sending. What lies after the arrival is no reading.
const DELAY_MAX: DurationNs = DurationNs(60_000_000_000);

/// Later rows would not find their place among those that are written already.
const LATE_MAX: DurationNs = DurationNs(2_000_000_000);

/// Marks whose sender is not known yet take no more of the room than this part, or whoever is
/// recorded would find none beside a crowd of others.
const UNKNOWN_PART: usize = 2;

/// A thread follows each.
const FOUND_LOGS_MAX: usize = 4;

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
    /// Log files that are followed.
    pub files: Vec<PathBuf>,
    /// As whom they are opened, where that is not who this process is.
    pub person: Option<Person>,
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
    /// Logs of recorded programs, which nobody named: their lines about kills are taken.
    found_logs: Vec<FoundLog>,
    /// Log files that somebody named.
    named: Arc<[PathBuf]>,
    inbox: Arc<Inbox>,
    /// Who writes the output, and who that is.
    command: Option<(Tgid, Option<Upid>)>,
    /// Marks whose sender is not known yet.
    unknown: Vec<Waits>,
    /// What processes say was their high-water mark, until it is known whether it can have been.
    claims: HashMap<Upid, Claim>,
    /// Claims that the kernel contradicts, and one of them.
    refused: (u64, Option<String>),
    /// Versions that were reported as not checked.
    unchecked: BTreeSet<String>,
    /// Questions of such.
    unknown_asked: Vec<Asked>,
}

/// A high-water mark that a process tells.
#[derive(Clone, Copy, Debug)]
struct Claim {
    bytes: Bytes,
    /// When the message came: it had held that much by then.
    at: BootNs,
}

impl MarkCollector {
    /// Begins to listen. A log file that is there is followed from its end as of now.
    ///
    /// # Errors
    /// When a thread can't be started, or the rules can't be used together.
    pub fn start(mut sources: MarkSources, table: &ProcessTable) -> Result<Self, MarkSourceError> {
        let ceiling = Arc::clone(table.ceiling());
        let inbox = Arc::new(Inbox::new(ceiling, table.memory(), clock::boot()));
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
        let named = Arc::from(sources.files.as_slice());
        let files = sources.files.into_iter();
        let files: Vec<_> = files
            .map(|path| (path, lines(MarkSource::File, None)))
            .collect();
        let follower = match files.is_empty() {
            true => None,
            false => Some(Follower::start(
                files,
                sources.followed.clone(),
                sources.person,
            )?),
        };
        Ok(Self {
            listener: listener.transpose()?,
            questions: questions.transpose()?,
            output,
            follower,
            followed: sources.followed,
            found_logs: Vec::new(),
            named,
            inbox,
            command: sources.command.map(|command| (command, None)),
            unknown: Vec::new(),
            claims: HashMap::new(),
            refused: (0, None),
            unchecked: BTreeSet::new(),
            unknown_asked: Vec::new(),
        })
    }

    /// Follows logs that other collectors found, as long as their programs live.
    fn follow_found(&mut self, pass: &mut Pass<'_>) {
        for (upid, log) in take(&mut pass.table.news.logs) {
            let found = match self.found_logs.len() {
                FOUND_LOGS_MAX => Err("so many logs are followed already".to_owned()),
                _ => FoundLog::start(upid, log, &self.named, &self.inbox),
            };
            match found {
                Ok(found) => self.found_logs.push(found),
                Err(error) => {
                    let detail = format!("whom it kills is not read in its log: {error}");
                    pass.tell_degraded(DiagKind::Unavailable, "raylet", None, detail);
                }
            }
        }
        let ended = |found: &mut FoundLog| pass.table.process(found.upid).is_none();
        for mut found in self.found_logs.extract_if(.., ended) {
            // What it has by now is read first, in another thread where one can be had.
            let thread = std::thread::Builder::new().name("memtrace-found".to_owned());
            let _ = thread.stack_size(256 << 10).spawn(move || found.stop());
        }
    }

    fn write(&mut self, is_last: bool, pass: &mut Pass<'_>) {
        // What it wrote last is read after its end.
        if let Some((command, upid @ None)) = &mut self.command {
            *upid = pass.table.upid(*command);
        }
        let writer = self.command.and_then(|(_, upid)| upid);
        let mut waiting = self.inbox.take();
        waiting.requests.write(pass);
        let marks: Vec<Waits> = self
            .unknown
            .drain(..)
            .chain(take(&mut waiting.marks))
            .collect();
        let mut unknown = Vec::new();
        let mut known: HashMap<Tgid, bool> = HashMap::new();
        let inside = OnceCell::new();
        for waits in marks {
            let mark = &waits.mark;
            let at = moment(mark);
            let tgid = mark.tgid.filter(|_| !mark.is_of_recording);
            let mut has_had = |tgid: &Tgid| {
                *known
                    .entry(*tgid)
                    .or_insert_with(|| pass.table.has_had(*tgid))
            };
            let tgid = tgid.filter(|tgid| match mark.is_inside {
                true => inside
                    .get_or_init(|| pass.table.ids_inside())
                    .contains(tgid),
                false => has_had(tgid),
            });
            let who_was = |tgid: Tgid, at: BootNs| match mark.is_inside {
                true => pass.table.who_was_inside(tgid, at),
                false => pass.table.who_was(tgid, at),
            };
            let upid = tgid.and_then(|tgid| who_was(tgid, at));
            let is_named = !mark.is_of_recording && mark.tgid.is_some();
            let may_become_known = is_named && upid.is_none() && !is_last;
            if may_become_known && (pass.tick.boot - mark.arrival).0 < KNOWN_WITHIN.0 {
                unknown.push(waits);
                continue;
            }
            // Nobody had the id then: it is who had it when the message came.
            let later = || Some((who_was(tgid?, mark.arrival)?, mark.arrival));
            let (upid, at) = match upid {
                Some(upid) => (Some(upid), at),
                None => later().map_or((None, at), |(upid, at)| (Some(upid), at)),
            };
            self.put(waits.mark, at, upid, writer, pass);
        }
        let over = beyond_room(&unknown);
        for waits in unknown.drain(..over) {
            let at = moment(&waits.mark);
            self.put(waits.mark, at, None, writer, pass);
        }
        self.unknown = unknown;
        self.judge(pass.table);
        let asked = self.unknown_asked.drain(..).chain(take(&mut waiting.asked));
        let mut asked: Vec<Asked> = asked
            .filter_map(|asked| ask(asked, pass))
            .filter(|_| !is_last)
            .collect();
        let kept = asked.len().min(ASKED_MAX);
        for asked in asked.drain(kept..) {
            asked.refuse();
        }
        self.unknown_asked = asked;
        self.note_failures(waiting, pass);
    }

    /// Notes what came and is no row.
    fn note_failures(&mut self, waiting: Waiting, pass: &mut Pass<'_>) {
        for (count, kind, detail) in waiting.losses() {
            if count > 0 {
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                pass.table.add_lost_events(count);
                pass.tell(Severity::Loss, kind, "mark", Some(count), detail);
            }
        }
        for version in waiting.unchecked {
            if self.unchecked.len() < UNCHECKED_MAX && self.unchecked.insert(version.clone()) {
                let detail = format!(
                    "log lines are of {version}: phases can be missing, and those that have no \
                     end stay open"
                );
                pass.tell_degraded(DiagKind::Unavailable, "mark", None, detail);
            }
        }
        let (refused, first) = take(&mut self.refused);
        let refused = refused.saturating_add(waiting.impossible_count);
        if refused > 0 {
            let first = first.map_or(String::new(), |first| format!("; the first: {first}"));
            let detail = format!(
                "self-reported figures are more than the kernel saw, or more than is possible, \
                 and are left out{first}"
            );
            let count = i64::try_from(refused).unwrap_or(i64::MAX);
            pass.tell_degraded(DiagKind::RefusedClaims, "mark", Some(count), detail);
        }
    }

    /// Writes a mark. `upid` is who it names, `writer` the command, whose output it may be.
    fn put(
        &mut self,
        mut mark: Received,
        at: BootNs,
        upid: Option<Upid>,
        writer: Option<Upid>,
        pass: &mut Pass<'_>,
    ) {
        if mark.tgid.is_some() && upid.is_none() && mark.is_end_of_a_line() {
            // What goes by name closes what others began.
            mark.span = mark.span.or_else(|| Some(next_span()));
        }
        let (tgid, upid) = match (upid, mark.writer) {
            (None, Some(command)) => {
                let program = writer.and_then(|writer| pass.table.wrapped(writer, at, is_running));
                let program = program.map(|row| (Some(row.tgid), Some(row.upid)));
                program.unwrap_or((Some(command), writer))
            }
            // An id of a container says nothing here.
            (upid, _) if mark.is_inside => {
                let row = upid.and_then(|upid| pass.table.row(upid));
                (row.map(|row| row.tgid), upid)
            }
            (upid, _) => (mark.tgid, upid),
        };
        if let Some(upid) = upid {
            if let Some(bytes) = mark.hiwater.filter(|bytes| bytes.0 > 0) {
                let claim = self.claims.entry(upid).or_insert(Claim { bytes, at });
                claim.bytes = claim.bytes.max(bytes);
                claim.at = claim.at.max(mark.arrival);
            }
            if let Some(held) = mark.held {
                self.report(held, upid, at, pass);
            }
            if let Some(news) = section_news(&mark, upid, at) {
                pass.table.news.sections.push(news);
            }
        }
        pass.write(row(mark, at, tgid, upid, pass.tick));
    }

    /// Writes what a process says that it held, unless the kernel contradicts it, or it comes too
    /// late for its place among the rows of memory.
    fn report(&mut self, held: SelfReport, upid: Upid, at: BootNs, pass: &mut Pass<'_>) {
        if pass.table.can_have_held(upid, held.rss, at) == Some(false) {
            self.refuse(upid, held.rss, "RSS", pass.table);
        } else if (pass.tick.boot - at).0 <= LATE_MAX.0 {
            pass.write(held.row(upid, at, pass.tick.clock.to_wall(at)));
        }
    }

    fn refuse(&mut self, upid: Upid, bytes: Bytes, what: &str, table: &ProcessTable) {
        let (count, first) = &mut self.refused;
        *count += 1;
        first.get_or_insert_with(|| {
            let id = table.row(upid).map_or(0, |row| row.tgid.0);
            format!("process {id} reported {what} of {} bytes", bytes.0)
        });
    }

    /// Takes over the peaks that processes reported, as far as the kernel bears them out.
    fn judge(&mut self, table: &mut ProcessTable) {
        let mut refused = Vec::new();
        self.claims.retain(|upid, claim| {
            match table.can_have_held(*upid, claim.bytes, claim.at) {
                None => return true,
                // Where every peak is seen, what was seen is known better.
                Some(true) if table.are_peaks_seen() => {}
                Some(true) => table.raise_peak(
                    *upid,
                    Peak {
                        bytes: claim.bytes,
                        source: PeakSource::SelfReported,
                        error: None,
                        at: None,
                    },
                ),
                Some(false) => refused.push((*upid, claim.bytes)),
            }
            false
        });
        for (upid, bytes) in refused {
            self.refuse(upid, bytes, "a peak", table);
        }
    }
}

/// What a mark says of a section whose descendants its process may ask about. Any end may be
/// that of one: which those are, is known where their begins are.
fn section_news(mark: &Received, owner: Upid, at: BootNs) -> Option<SectionNews> {
    let span = mark.span?;
    match mark.kind {
        MarkKind::Begin if mark.has_descendants => Some(SectionNews::Begin { owner, span, at }),
        MarkKind::End => Some(SectionNews::End { owner, span, at }),
        _ => None,
    }
}

/// Hands a question on; gives it back where its process is not known yet.
fn ask(asked: Asked, pass: &mut Pass<'_>) -> Option<Asked> {
    match pass.table.who_was(asked.tgid, asked.at) {
        Some(owner) => {
            let stream = asked.stream;
            pass.table.news.sections.push(SectionNews::Question {
                owner,
                span: asked.question.span,
                at: asked.at,
                reply: Box::new(move |answer| Asked::reply(&stream, answer)),
            });
            None
        }
        None => ((pass.tick.boot - asked.at).0 < KNOWN_WITHIN.0).then_some(asked),
    }
}

/// How many marks from the first on are more than may wait. Those that have waited longest are of
/// processes not recorded, most likely.
fn beyond_room(unknown: &[Waits]) -> usize {
    let mut room = Part::Marks.limit() / UNKNOWN_PART;
    let fits = unknown.iter().rev().take_while(|waits| {
        let rest = room.checked_sub(waits.room.bytes());
        room = rest.unwrap_or(0);
        rest.is_some()
    });
    unknown.len() - fits.count()
}

/// When it was, by the sender's clock where that can be true. Lines are on our clock.
fn moment(mark: &Received) -> BootNs {
    let earliest = mark.arrival.0.saturating_sub(DELAY_MAX.0);
    let can_be = (earliest..=mark.arrival.0).contains(&mark.reported_at.0);
    match mark.source {
        MarkSource::Socket if !can_be => mark.arrival,
        _ => mark.reported_at,
    }
}

fn row(mark: Received, at: BootNs, tgid: Option<Tgid>, upid: Option<Upid>, tick: &Tick) -> Record {
    Record::Mark(MarkRow {
        ts: tick.clock.to_wall(at),
        boot_ns: at,
        upid,
        tgid,
        name: mark.name,
        kind: Some(mark.kind),
        span: mark.span,
        source: Some(mark.source),
        attributes: mark.attributes,
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

    fn collect(&mut self, pass: &mut Pass<'_>) -> Result<(), CollectError> {
        self.write(false, pass);
        self.follow_found(pass);
        Ok(())
    }

    fn finish(&mut self, pass: &mut Pass<'_>) -> Result<(), CollectError> {
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
        self.found_logs.iter_mut().for_each(FoundLog::stop);
        self.write(true, pass);
        for path in self.followed.absent() {
            let detail = format!("{} never appeared: it gave no marks", path.display());
            pass.tell_degraded(DiagKind::Unavailable, "mark", None, detail);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Birth;
    use memtrace_model::{FirstSeenBy, MarkMessage, MemRow};

    fn tick(boot: i64) -> Tick {
        Tick::at(BootNs(boot))
    }

    #[test]
    fn a_mark_is_written_after_its_process_ended_and_is_not_that_of_the_next_with_its_id() {
        let (mut table, mut out) = (ProcessTable::default(), Vec::new());
        let mut collector = MarkCollector::start(MarkSources::default(), &table).unwrap();
        let mut enter = |start| {
            let birth = Birth {
                tgid: Tgid(9),
                start: BootNs(start),
                seen_by: FirstSeenBy::Snapshot,
                parent: None,
                comm: String::new(),
            };
            let upid = table.enter(birth, BootNs(start));
            if start < 20 {
                let at = BootNs(10);
                table.end(upid, at, Some(0));
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
        collector.write(false, &mut Pass::new(&later, &mut table, &mut out));
        let upids: Vec<Option<Upid>> = out
            .iter()
            .filter_map(|record| match record {
                Record::Mark(row) => Some(row.upid),
                _ => None,
            })
            .collect();
        // The last has a time at which nobody had the id, so its time is that of its arrival.
        assert_eq!(upids, [Some(first), Some(second), Some(second)]);
    }

    #[test]
    fn a_line_of_a_wrappers_output_is_of_the_one_program_that_it_ran_then() {
        let seconds = |seconds: i64| BootNs(seconds * 1_000_000_000);
        // It has to be there.
        let own = std::process::id();
        let mut table = ProcessTable::default();
        let mut enter = |tgid: u32, parent: Option<Upid>, comm: &str, start: i64| {
            let birth = Birth {
                tgid: Tgid(tgid),
                start: seconds(start),
                seen_by: FirstSeenBy::Fork,
                parent,
                comm: comm.to_owned(),
            };
            table.enter(birth, seconds(start))
        };
        let bash = enter(9, None, "bash", 1);
        let uv = enter(own, Some(bash), "uv", 10);
        let server = enter(11, Some(uv), "python3", 20);
        let worker = enter(12, Some(server), "python3", 30);
        let other = enter(13, Some(bash), "tee", 60);
        table.end(other, seconds(70), Some(0));
        table.end(server, seconds(80), Some(0));
        let sources = MarkSources {
            command: Some(Tgid(9)),
            ..MarkSources::default()
        };
        let mut collector = MarkCollector::start(sources, &table).unwrap();
        // Of a line whose rule says nothing of its writer.
        let mut written_by = |at: i64| {
            let message = MarkMessage::new(MarkKind::Instant, "server_ready", seconds(at));
            let mut mark =
                Received::new(message, MarkKind::Instant, MarkSource::Output, seconds(at));
            mark.writer = Some(Tgid(9));
            let (mut out, tick) = (Vec::new(), tick(100));
            collector.put(
                mark,
                seconds(at),
                None,
                Some(bash),
                &mut Pass::new(&tick, &mut table, &mut out),
            );
            match out.pop() {
                Some(Record::Mark(row)) => (row.upid, row.tgid),
                other => panic!("no mark: {other:?}"),
            }
        };
        let of = |upid, tgid| (Some(upid), Some(Tgid(tgid)));
        assert_eq!(written_by(5), of(bash, 9), "it ran nothing yet");
        assert_eq!(written_by(15), of(uv, own));
        assert_eq!(written_by(40), of(server, 11), "not its worker {worker:?}");
        assert_eq!(written_by(65), of(bash, 9), "it ran two");
        assert_eq!(written_by(75), of(server, 11), "known also later");
    }

    #[test]
    fn marks_of_strangers_leave_room_for_those_of_the_recorded() {
        let tick = tick(2);
        let (mut table, mut out) = (ProcessTable::default(), Vec::new());
        let mut collector = MarkCollector::start(MarkSources::default(), &table).unwrap();
        let mut message = MarkMessage::new(MarkKind::Instant, "a", BootNs(1));
        message
            .attrs
            .insert("x".to_owned(), "y".repeat(30_000).into());
        let many = Part::Marks.limit() / 31_000;
        for _ in 0..many {
            let parsed = Ok((message.clone(), MarkKind::Instant));
            collector.inbox.receive(Some(Tgid(9)), BootNs(1), parsed);
        }
        collector.write(false, &mut Pass::new(&tick, &mut table, &mut out));
        let taken = table.ceiling().taken(Part::Marks);
        assert!(
            taken <= Part::Marks.limit() / UNKNOWN_PART && taken > 0,
            "{taken}"
        );
        assert_eq!(out.len() + collector.unknown.len(), many);
        let is_nobodys =
            |record: &Record| matches!(record, Record::Mark(row) if row.upid.is_none());
        assert!(!out.is_empty() && out.iter().all(is_nobodys));
    }

    fn enter_nine(table: &mut ProcessTable) -> Upid {
        let birth = Birth {
            tgid: Tgid(9),
            start: BootNs(1),
            seen_by: FirstSeenBy::Snapshot,
            parent: None,
            comm: String::new(),
        };
        table.enter(birth, BootNs(1))
    }

    #[test]
    fn what_a_process_measured_is_a_row_of_memory_unless_it_is_late_or_cannot_be() {
        let (mut table, mut out) = (ProcessTable::default(), Vec::new());
        let mut collector = MarkCollector::start(MarkSources::default(), &table).unwrap();
        table.set_memory(Some(Bytes(1 << 40)));
        let upid = enter_nine(&mut table);
        let late = LATE_MAX.0 + 100;
        for (boot, rss, kind) in [
            (late, 700, MarkKind::Begin),
            (late, 1_i64 << 50, MarkKind::End),
            (late, 600, MarkKind::Peak),
            (50, 500, MarkKind::End),
        ] {
            let mut message = MarkMessage::new(kind, "a", BootNs(boot));
            message.attrs.insert("rss_bytes".to_owned(), rss.into());
            message
                .attrs
                .insert("rss_anon_bytes".to_owned(), 300.into());
            message.attrs.insert("vm_size_bytes".to_owned(), 900.into());
            let parsed = Ok((message, kind));
            collector
                .inbox
                .receive(Some(Tgid(9)), BootNs(late + 1), parsed);
        }
        collector.write(false, &mut Pass::new(&tick(late + 2), &mut table, &mut out));
        let rows: Vec<&MemRow> = out
            .iter()
            .filter_map(|record| match record {
                Record::Mem(row) => Some(row),
                _ => None,
            })
            .collect();
        let expected = SelfReport {
            rss: Bytes(700),
            anon: Some(Bytes(300)),
            vm_size: Some(Bytes(900)),
        };
        let at = BootNs(late);
        assert_eq!(rows, [&expected.row(upid, at, tick(0).clock.to_wall(at))]);
        let is_refusal = |record: &Record| {
            matches!(record, Record::Diag(diag)
                if diag.kind == Some(DiagKind::RefusedClaims) && diag.count == Some(1))
        };
        assert!(out.iter().any(is_refusal), "{out:?}");
    }

    /// A process that was seen to hold 100 MiB, give or take one, and tells of a peak.
    fn claims(bytes: i64, is_seen: bool) -> (Option<Peak>, Vec<Record>, usize) {
        let (mut table, mut out) = (ProcessTable::default(), Vec::new());
        let mut collector = MarkCollector::start(MarkSources::default(), &table).unwrap();
        table.set_memory(Some(Bytes(1 << 40)));
        if is_seen {
            table.note_peaks_are_seen(Bytes(1 << 20));
        }
        let upid = enter_nine(&mut table);
        let seen = Peak {
            bytes: Bytes(100 << 20),
            source: PeakSource::KernelHiwater,
            error: Some(Bytes(0)),
            at: None,
        };
        table.raise_peak(upid, seen);
        let mut message = MarkMessage::new(MarkKind::Peak, "a", BootNs(5));
        message
            .attrs
            .insert("hiwater_bytes".to_owned(), bytes.into());
        let parsed = Ok((message, MarkKind::Peak));
        collector.inbox.receive(Some(Tgid(9)), BootNs(6), parsed);
        collector.write(false, &mut Pass::new(&tick(7), &mut table, &mut out));
        let waiting = collector.claims.len();
        table.note_snapshot(BootNs(8), DurationNs(0));
        collector.write(false, &mut Pass::new(&tick(9), &mut table, &mut out));
        assert_eq!(collector.claims.len(), 0);
        let row = table.process(upid).unwrap().row();
        let text = (row.peak_rss_source == Some(PeakSource::SelfReported)).then(|| Peak {
            bytes: row.peak_rss_bytes.unwrap(),
            ..seen
        });
        out.retain(|record| matches!(record, Record::Diag(_)));
        (text, out, waiting)
    }

    #[test]
    fn a_peak_that_a_process_tells_is_taken_as_far_as_the_kernel_saw_it() {
        let (text, diags, waiting) = claims((100 << 20) + 4096, true);
        assert_eq!((text, waiting), (None, 0), "the kernel's own is as high");
        assert_eq!(diags, []);

        // What it held last may show at the next look only.
        let (text, diags, waiting) = claims(1 << 30, true);
        assert_eq!((text, waiting), (None, 1));
        let [Record::Diag(diag)] = diags.as_slice() else {
            panic!("{diags:?}");
        };
        assert_eq!(
            (diag.kind, diag.count),
            (Some(DiagKind::RefusedClaims), Some(1))
        );
        assert!(diag.detail.contains("process 9"), "{}", diag.detail);

        // Who polls has seen no peak between two looks, but knows what the machine has.
        assert!(claims(1 << 30, false).0.is_some());
        let (text, diags, _) = claims(1 << 62, false);
        assert_eq!((text, diags.len()), (None, 1));
    }
}
