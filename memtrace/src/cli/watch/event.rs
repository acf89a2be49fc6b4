//! What happens in a recording that is made: kills, crashes, limits that are near, growth, a recorder that
//! is gone.

use crate::cli::follower::Kept;
use crate::cli::newest::Newest;
use crate::cli::once::Once;
use clap::ValueEnum;
use memtrace_analyze::{Growth, Limit, Live, Verdict, growth_in_words, oom_cause};
use memtrace_host::clock;
use memtrace_model::tables::OomRow;
use memtrace_model::{BootNs, DurationNs, Tgid, WallNs};
use memtrace_report::{visible, words};
use memtrace_top::Recorder;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub(super) enum EventKind {
    /// The kernel's OOM killer killed a process
    OomKill,
    /// A process crashed, or was killed by another than an ancestor
    Crash,
    /// A cgroup's working set, or the machine, is near its limit (--limit); again once it was 10 points
    /// below
    Limit,
    /// A process has grown steadily for ten minutes, without the first quarter of the time that the
    /// recording has seen it, and its first minute; once
    Growth,
    /// Nobody records any more
    RecorderGone,
}

impl EventKind {
    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or(String::new(), |value| value.get_name().to_owned())
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) kind: EventKind,
    pub(super) at: WallNs,
    /// The recording that has it.
    pub(super) recording: PathBuf,
    host: String,
    pub(super) pid: Option<Tgid>,
    /// Whether that is a process of the recording.
    pub(super) is_recorded: bool,
    /// The process by its name in a report, or the cgroup.
    subject: Option<String>,
    /// What happened to it.
    text: String,
}

impl Event {
    /// Its own members of the JSON that a program gets.
    pub(super) fn as_json(&self) -> Value {
        json!({
            "format": "memtrace-event",
            "version": 1,
            "event": self.kind.name(),
            "ts": self.at.rfc3339(),
            "host": self.host,
            "recording": self.recording.to_string_lossy(),
            "pid": self.pid.map(|pid| pid.0),
            "subject": self.subject,
            "text": self.text,
        })
    }
}

/// For a person.
impl fmt::Display for Event {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at.rfc3339().unwrap_or_default();
        write!(out, "{at}  {}  ", self.kind.name())?;
        if let Some(pid) = self.pid {
            write!(out, "{} ", pid.0)?;
        }
        if let Some(subject) = &self.subject {
            write!(out, "{}: ", visible(subject))?;
        }
        write!(out, "{}", visible(&self.text))
    }
}

/// An event is known no longer than this after it: rows come late, and recorders follow each other.
const LATE_NS: i64 = 600_000_000_000;
/// A victim of the OOM killer has ended no later than this after the kill.
const VICTIM_NS: i64 = 60_000_000_000;
/// So far below `--limit` a share has to fall, or by half, before it is reported again.
const BELOW: f64 = 0.1;

/// Growth is judged so often,
const JUDGED_EVERY: DurationNs = DurationNs(60_000_000_000);
/// and reported once it has gone on for so long: a start-up is over by then.
const GROWN_FOR: DurationNs = DurationNs(600_000_000_000);

/// Which events were reported.
pub(super) struct Events {
    kinds: Vec<EventKind>,
    /// A share of the whole.
    limit: f64,
    /// What is older is not reported.
    begin: BootNs,
    /// The last ones.
    reported: Once<(EventKind, Tgid)>,
    /// Whom the OOM killer killed last, and when.
    victims: HashMap<Tgid, BootNs>,
    /// Cgroups that are near their limits; `None` for the machine.
    near: HashSet<Option<String>>,
    /// Processes that grow, by when they started. Few ever do.
    growing: Once<Tgid>,
    judged: BootNs,
    was_recording: bool,
}

impl Events {
    /// Those after a time, of some kinds, of all where none are given, and limits from a share on.
    pub(super) fn after(begin: BootNs, kinds: &[EventKind], limit: f64) -> Self {
        let kinds = match kinds.is_empty() {
            true => EventKind::value_variants(),
            false => kinds,
        };
        Self {
            kinds: kinds.to_vec(),
            limit,
            begin,
            reported: Once::default(),
            victims: HashMap::new(),
            near: HashSet::new(),
            growing: Once::default(),
            judged: begin,
            was_recording: false,
        }
    }

    /// What has to be kept of a recording for them.
    pub(super) fn kept(&self) -> Kept {
        match self.kinds.contains(&EventKind::Growth) {
            true => Kept::PresentWithGrowth,
            false => Kept::Present,
        }
    }

    /// What has happened since the last look, in the order of time.
    pub(super) fn look(&mut self, newest: &Newest<'_>) -> Vec<Event> {
        let mut found = Vec::new();
        // Also the last rows of the one before: its recorder has them when the next one observes.
        for (recording, live) in newest.all() {
            found.extend(self.since(recording, live));
        }
        if let Some((recording, live)) = newest.followed() {
            found.extend(self.present(newest, recording, live));
        }
        found.sort_by_key(|event| event.at.0);
        found
    }

    /// What is so now, by the newest recording.
    fn present(&mut self, newest: &Newest<'_>, recording: &Path, live: &Live) -> Vec<Event> {
        let recorder = newest.recorder();
        let is_recording = recorder == Some(Recorder::Recording);
        let was_recording = std::mem::replace(&mut self.was_recording, is_recording);
        let mut found = Vec::new();
        if is_recording {
            found.extend(self.limits(recording, live));
            found.extend(self.growth(recording, live));
        }
        let gone = match recorder {
            Some(Recorder::Gone) => Some("the recorder was ended before it closed the recording"),
            // That the one recording ends is what it was to do.
            Some(Recorder::Closed) if !newest.is_over() => {
                Some("the recording was closed, and there is no newer one")
            }
            _ => None,
        };
        if let Some(text) = gone.filter(|_| was_recording)
            && self.kinds.contains(&EventKind::RecorderGone)
        {
            let now = clock::read().wall_ns;
            let kind = EventKind::RecorderGone;
            found.push(event(kind, now, recording, live, text.to_owned()));
        }
        found
    }

    /// Kills and crashes that were not reported.
    fn since(&mut self, recording: &Path, live: &Live) -> Vec<Event> {
        let from = BootNs(self.begin.0.max(live.now().at.0 - LATE_NS));
        let mut found = Vec::new();
        let kills = live.kills().iter();
        self.victims
            .extend(kills.map(|kill| (kill.victim_tgid, kill.boot_ns)));
        self.victims.retain(|_, killed| *killed > from);
        if self.kinds.contains(&EventKind::OomKill) {
            for kill in live.kills() {
                if kill.boot_ns <= from
                    || !self
                        .reported
                        .note((EventKind::OomKill, kill.victim_tgid), kill.boot_ns)
                {
                    continue;
                }
                let upid = kill.victim_upid;
                let mut processes = live.processes().iter();
                let process = processes.find(|process| Some(process.upid) == upid);
                let name = process.map(|process| process.name.to_string());
                found.push(Event {
                    pid: Some(kill.victim_tgid),
                    is_recorded: name.is_some(),
                    subject: name.or_else(|| kill.victim_comm.clone()),
                    ..event(EventKind::OomKill, kill.ts, recording, live, killed(kill))
                });
            }
        }
        if self.kinds.contains(&EventKind::Crash) {
            for process in live.processes() {
                let ended = process.exit_boot_ns().filter(|&ended| ended > from);
                let (Some(ended), Some(tgid)) = (ended, process.tgid) else {
                    continue;
                };
                // The kill can be in one recording, and the end in the next.
                let killed = self.victims.get(&tgid);
                let is_oom_kill = process.is_oom_killed()
                    || killed.is_some_and(|&killed| (0..VICTIM_NS).contains(&(ended - killed).0));
                let is_crash =
                    process.is_violent_end() && !process.is_stopped_end() && !is_oom_kill;
                let at = live.clock().to_wall(ended);
                let Some(at) =
                    at.filter(|_| is_crash && self.reported.note((EventKind::Crash, tgid), ended))
                else {
                    continue;
                };
                let text = process.ended_in_words();
                found.push(Event {
                    pid: Some(tgid),
                    is_recorded: true,
                    subject: Some(process.name.to_string()),
                    ..event(EventKind::Crash, at, recording, live, text)
                });
            }
        }
        self.reported.forget_before(BootNs(from.0 - LATE_NS));
        found
    }

    fn limits(&mut self, recording: &Path, live: &Live) -> Vec<Event> {
        if !self.kinds.contains(&EventKind::Limit) {
            return Vec::new();
        }
        let Some(now) = live.clock().to_wall(live.now().at) else {
            return Vec::new();
        };
        let near = self.newly_near(live.limits()).into_iter();
        near.map(|limit| {
            let text = near_in_words(&limit);
            Event {
                subject: limit.cgroup.map(|path| format!("cgroup {path}")),
                ..event(EventKind::Limit, now, recording, live, text)
            }
        })
        .collect()
    }

    /// Processes that turned out to grow.
    fn growth(&mut self, recording: &Path, live: &Live) -> Vec<Event> {
        let now = live.now().at;
        let is_due = now - self.judged >= JUDGED_EVERY;
        // What is contradicted can be of another process.
        let is_known = !live.is_contradicted();
        if !is_due || !is_known || !self.kinds.contains(&EventKind::Growth) {
            return Vec::new();
        }
        self.judged = now;
        let Some(at) = live.clock().to_wall(now) else {
            return Vec::new();
        };
        let processes = live.processes().iter().enumerate();
        let alive = processes.filter(|(_, process)| process.exit_boot_ns().is_none());
        let found = alive.filter_map(|(place, process)| {
            let tgid = process.tgid?;
            let growth = live.growth(place).filter(is_lasting)?;
            let is_new = self.growing.note(tgid, process.start.boot_ns);
            is_new.then(|| Event {
                pid: Some(tgid),
                is_recorded: true,
                subject: Some(process.name.to_string()),
                ..event(
                    EventKind::Growth,
                    at,
                    recording,
                    live,
                    growth_in_words(&growth),
                )
            })
        });
        found.collect()
    }

    /// Those that have come near since the last look.
    fn newly_near(&mut self, limits: impl Iterator<Item = Limit>) -> Vec<Limit> {
        let mut found = Vec::new();
        for limit in limits {
            let Some(share) = limit.working_set_share() else {
                continue;
            };
            if share < (self.limit - BELOW).max(self.limit / 2.0) {
                self.near.remove(&limit.cgroup);
            }
            if share >= self.limit && self.near.insert(limit.cgroup.clone()) {
                found.push(limit);
            }
        }
        found
    }
}

fn event(kind: EventKind, at: WallNs, recording: &Path, live: &Live, text: String) -> Event {
    Event {
        kind,
        at,
        recording: recording.to_owned(),
        host: live.info().hostname.clone(),
        pid: None,
        is_recorded: false,
        subject: None,
        text,
    }
}

fn killed(kill: &OomRow) -> String {
    let anon = kill.victim_rss_anon_bytes;
    let held = anon.map_or(String::new(), |anon| {
        format!("; it held {} anonymous", words::bytes(anon))
    });
    let why = oom_cause(kill, |path| format!("cgroup {path}"));
    format!("killed by the OOM killer because {why}{held}")
}

fn is_lasting(growth: &Growth) -> bool {
    let length = growth.to.boot_ns - growth.from.boot_ns;
    growth.verdict == Verdict::Growing && length >= GROWN_FOR
}

fn near_in_words(limit: &Limit) -> String {
    format!(
        "a working set of {} of {}, {}",
        words::bytes_or_unknown(limit.working_set),
        words::bytes(limit.limit),
        words::share(limit.working_set, Some(limit.limit)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::analyzed::tests::store;
    use memtrace_golden::{RUNS, Script};
    use memtrace_model::{Bytes, Record};
    use memtrace_store::{Recordings, Writer};

    fn run(name: &str) -> fn() -> Script {
        let script = RUNS.iter().find(|(run, ..)| *run == name);
        script.expect("a run").1
    }

    fn reported(events: &mut Events, newest: &mut Newest<'_>) -> Vec<String> {
        newest.follow().expect("recordings");
        let found = events.look(newest);
        found.iter().map(Event::to_string).collect()
    }

    #[test]
    fn an_event_is_reported_once_also_where_two_recorders_have_it() {
        let root = tempfile::tempdir().expect("a directory");
        let recordings = Recordings::default();
        let mut newest = Newest::open(&recordings, root.path()).expect("an empty directory");
        let mut events = Events::after(BootNs(0), &[], 0.9);
        assert_eq!(reported(&mut events, &mut newest), [""; 0]);
        store(&root.path().join("memtrace-a"), run("oom_kill"));
        let kills = reported(&mut events, &mut newest);
        assert_eq!(kills.len(), 1, "{kills:?}");
        assert!(kills[0].contains("  oom-kill  510 python3 -u train.py: killed by the OOM killer"));
        assert!(kills[0].ends_with("(limit 64.0 GiB) was full; it held 9.1 GiB anonymous"));
        assert_eq!(reported(&mut events, &mut newest), [""; 0]);
        store(&root.path().join("memtrace-b"), run("oom_kill"));
        assert_eq!(reported(&mut events, &mut newest), [""; 0]);
        // Of a later time they are others.
        let mut later = Events::after(BootNs(i64::MAX), &[], 0.9);
        assert_eq!(reported(&mut later, &mut newest), [""; 0]);
        let mut others = Events::after(BootNs(0), &[EventKind::Crash], 0.9);
        assert_eq!(reported(&mut others, &mut newest), [""; 0]);
    }

    #[test]
    fn events_at_the_border_of_two_recordings_are_reported_once() {
        let root = tempfile::tempdir().expect("a directory");
        let recordings = Recordings::default();
        let mut newest = Newest::open(&recordings, root.path()).expect("an empty directory");
        let mut events = Events::after(BootNs(0), &[], 0.9);
        let began = |name: &str| {
            let (info, rows, _) = run("oom_kill")().recorded();
            let writer = Writer::create(&root.path().join(name), &info).expect("a recording");
            (writer, info, rows.0)
        };
        let (mut first, info, rows) = began("memtrace-a");
        let is_kill = |row: &&Record| matches!(row, Record::Oom(_));
        for row in rows.iter().filter(|row| !is_kill(row)) {
            first.append(row).expect("a row");
        }
        first.flush().expect("a spool");
        let before = reported(&mut events, &mut newest);
        // The next one observes, and has no row of it yet.
        let (mut second, _, rows_of_second) = began("memtrace-b");
        newest.look_soon();
        let at_border = reported(&mut events, &mut newest);
        for row in rows.iter().filter(is_kill) {
            first.append(row).expect("a row");
        }
        first.finish(info).expect("a closed recording");
        let kills = reported(&mut events, &mut newest);
        assert_eq!(kills.len(), 1, "{before:?} {at_border:?} {kills:?}");
        assert!(kills[0].contains("  oom-kill  510 "), "{kills:?}");
        assert_eq!(newest.all().count(), 2);
        for row in &rows_of_second {
            second.append(row).expect("a row");
        }
        second.flush().expect("a spool");
        assert_eq!(reported(&mut events, &mut newest), [""; 0]);
        assert_eq!(newest.all().count(), 1, "the first one is over");
        // One that ends before the next look is given to its end too.
        let mut later = Events::after(BootNs(0), &[EventKind::OomKill], 0.9);
        let (third, ..) = began("memtrace-c");
        second
            .finish(run("oom_kill")().recorded().0)
            .expect("a closed recording");
        assert_eq!(reported(&mut later, &mut newest).len(), 1);
        assert_eq!(newest.all().count(), 2);
        drop(third);
    }

    /// One process that grows by a MiB every two seconds, and one that does not.
    fn growing_for(minutes: u32) -> Script {
        let mut run = Script::command(&["python3", "serve.py"], 60.0 * f64::from(minutes));
        run.process(700, None, 0.0, "/usr/bin/python3 serve.py");
        run.process(701, Some(700), 1.0, "/opt/bin/store");
        for at in (5..minutes * 60).step_by(5).map(f64::from) {
            run.mem(700, at, [200.0 + at / 2.0, 60.0, 0.0]);
            run.mem(701, at, [900.0 + at % 7.0, 20.0, 0.0]);
        }
        run
    }

    #[test]
    fn growth_is_reported_once_it_has_lasted_and_once_of_each_process() {
        let root = tempfile::tempdir().expect("a directory");
        let recordings = Recordings::default();
        let mut events = Events::after(BootNs(0), &[], 0.9);
        let mut newest =
            Newest::open_with(&recordings, root.path(), events.kept()).expect("an empty directory");
        let mut grown = |name: &str, minutes: fn() -> Script| {
            store(&root.path().join(name), minutes);
            newest.follow().expect("recordings");
            let (path, live) = newest.followed().expect("a recording");
            events.judged = BootNs(0);
            let found = events.growth(path, live).into_iter();
            let found = found.map(|event| format!("{} {}", event.kind.name(), event.text));
            found.collect::<Vec<String>>()
        };
        assert_eq!(
            grown("memtrace-a", || growing_for(12)),
            [""; 0],
            "too early"
        );
        let found = grown("memtrace-b", || growing_for(40));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("growth grows by 1.8 GiB"), "{found:?}");
        assert_eq!(grown("memtrace-c", || growing_for(41)), [""; 0], "once");
    }

    #[test]
    fn a_limit_is_reported_when_it_comes_near_and_again_after_it_was_far() {
        let mut events = Events::after(BootNs(0), &[], 0.9);
        let mut is_reported = |percent: Option<i64>| {
            let limit = Limit {
                cgroup: Some("/a".to_owned()),
                used: Bytes(100),
                working_set: percent.map(Bytes),
                limit: Bytes(100),
            };
            !events.newly_near([limit].into_iter()).is_empty()
        };
        // What is not known is not near.
        assert!(!is_reported(None));
        assert!(!is_reported(Some(89)));
        assert!(is_reported(Some(90)));
        for percent in [95, 85, 91] {
            assert!(!is_reported(Some(percent)), "{percent}");
        }
        assert!(!is_reported(Some(79)));
        assert!(is_reported(Some(90)));
    }
}
