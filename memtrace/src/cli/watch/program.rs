//! The program that is started for each event, and what it gets: the event, and what the report says of
//! its instant.

use super::event::{Event, EventKind};
use crate::cli::caller::as_caller;
use crate::cli::output::say;
use crate::cli::own_program::own_program;
use anyhow::{Context, bail};
use memtrace_top::{is_to_end, is_to_end_within};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use std::cell::Cell;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

/// So many events wait at most.
const WAITING_MAX: usize = 100;
/// The program, and the report before it, may take so long.
const TIME_MAX: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);
/// What is known of an instant is in the recording so long after it.
const KNOWN_AFTER: Duration = Duration::from_secs(3);
/// A report of a long recording takes seconds of a CPU: so many times as long there is no other.
const REST: u32 = 9;
/// A report as JSON is no longer; of one that is there is no answer.
const REPORT_BYTES: u64 = 64 << 20;
/// So many lines of each table are in the report.
const TOP: &str = "10";

/// Starts the program for one event after another.
pub(super) struct Program {
    events: SyncSender<Event>,
    left_out: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

impl Program {
    /// Makes it ready; `None` where there is none.
    ///
    /// # Errors
    /// When the system has no more threads.
    pub(super) fn start(words: Vec<OsString>) -> anyhow::Result<Option<Self>> {
        let Some((name, arguments)) = words.split_first() else {
            return Ok(None);
        };
        let (name, arguments) = (name.clone(), arguments.to_vec());
        let (events, waiting) = sync_channel(WAITING_MAX);
        let left_out = Arc::new(AtomicUsize::new(0));
        let runner = Runner {
            report_due: Cell::new(Instant::now()),
            name,
            arguments,
            waiting,
            left_out: Arc::clone(&left_out),
        };
        let thread = std::thread::Builder::new().name("events".to_owned());
        let thread = thread.spawn(move || runner.run());
        Ok(Some(Self {
            events,
            left_out,
            thread: thread.context("failed to start a thread")?,
        }))
    }

    /// Has the program started for an event, once it is its turn.
    ///
    /// # Errors
    /// When none can be started any more.
    pub(super) fn start_for(&self, event: Event) -> anyhow::Result<()> {
        match self.events.try_send(event) {
            Err(TrySendError::Full(_)) => {
                self.left_out.fetch_add(1, Ordering::Relaxed);
            }
            Err(TrySendError::Disconnected(_)) => {
                bail!("the thread that starts the program has ended")
            }
            Ok(()) => (),
        }
        Ok(())
    }

    /// Waits until it was started for all events, or a signal comes.
    pub(super) fn finish(self) {
        drop(self.events);
        if self.thread.join().is_err() {
            say("the thread that starts the program failed");
        }
    }
}

struct Runner {
    /// When there may be a report again.
    report_due: Cell<Instant>,
    name: OsString,
    arguments: Vec<OsString>,
    waiting: Receiver<Event>,
    left_out: Arc<AtomicUsize>,
}

impl Runner {
    fn run(&self) {
        while let Ok(event) = self.waiting.recv() {
            if is_to_end() {
                break;
            }
            let started = self.start(&event);
            if let Err(error) = started {
                let name = self.name.display();
                say(&format!("{name} could not handle \"{event}\": {error:#}"));
            }
        }
    }

    /// What the report says of an event; null where it says nothing.
    fn answer(&self, event: &Event) -> anyhow::Result<Value> {
        if event.kind == EventKind::RecorderGone {
            return Ok(Value::Null);
        }
        if Instant::now() < self.report_due.get() {
            bail!("the last report is not long enough ago for what it took");
        }
        if is_to_end_within(KNOWN_AFTER) {
            bail!("a signal came before it");
        }
        let begin = Instant::now();
        let answer = answer(event);
        self.report_due.set(Instant::now() + begin.elapsed() * REST);
        answer
    }

    fn start(&self, event: &Event) -> anyhow::Result<()> {
        let mut object = event.as_json();
        let (answer, why) = match self.answer(event) {
            Ok(answer) => (answer, None),
            Err(error) => (Value::Null, Some(format!("{error:#}"))),
        };
        let members = json!({
            "report": answer,
            "report_error": why,
            "left_out_count": self.left_out.swap(0, Ordering::Relaxed),
        });
        if let (Value::Object(object), Value::Object(members)) = (&mut object, members) {
            object.extend(members);
        }
        // A program that reads nothing keeps nobody waiting.
        let mut file = tempfile::tempfile().context("failed to make a file for it")?;
        writeln!(file, "{object}").context("failed to write a file for it")?;
        file.rewind().context("failed to write a file for it")?;
        let mut command = Command::new(&self.name);
        command.args(&self.arguments);
        as_caller(&mut command);
        let beside = io::stderr().as_fd().try_clone_to_owned();
        let beside = beside.context("failed to hand on standard error")?;
        let status = ended(command.stdin(file).stdout(beside))?;
        if !status.success() {
            bail!("it ended with {status}");
        }
        Ok(())
    }
}

/// What the report says of an event: its answer, who held the memory then, and the kill.
fn answer(event: &Event) -> anyhow::Result<Value> {
    let at = event.at.rfc3339().context("an instant before our time")?;
    let mut command = Command::new(own_program().context("failed to find this program")?);
    command.args(["report", "--at", &at, "--top", TOP, "-f", "json"]);
    if let Some(pid) = event.pid.filter(|_| event.is_recorded) {
        command.args(["--process", &pid.0.to_string()]);
    }
    command.arg("--").arg(&event.recording);
    let file = tempfile::tempfile().context("failed to make a file for the report")?;
    let out = file.try_clone().context("failed to make a file for it")?;
    let beside = tempfile::tempfile().context("failed to make a file for the report")?;
    let heard = beside.try_clone().context("failed to make a file for it")?;
    command.stdin(Stdio::null()).stdout(out).stderr(heard);
    if !ended(&mut command)?.success() {
        let said = read(beside).unwrap_or_default();
        let said = said.trim_end().lines().last().unwrap_or_default();
        bail!("{}", said.strip_prefix("memtrace: ").unwrap_or(said));
    }
    let report: Value = serde_json::from_str(&read(file)?).context("failed to read the report")?;
    let pid = event.pid.map(|pid| pid.0);
    let about_it = |kill: &&Value| kill["victim_pid"] == json!(pid);
    let kills = report["oom_kills"].as_array();
    Ok(json!({
        "answer": report["answer"],
        "at": report["at"],
        "process": report["process"],
        "oom_kill": kills.and_then(|kills| kills.iter().rev().find(about_it)),
    }))
}

/// A file from its beginning.
fn read(mut file: File) -> anyhow::Result<String> {
    let mut text = String::new();
    file.rewind().context("failed to read the report")?;
    let mut bounded = file.take(REPORT_BYTES + 1);
    bounded
        .read_to_string(&mut text)
        .context("failed to read the report")?;
    if text.len() as u64 > REPORT_BYTES {
        bail!("the report as JSON is longer than {REPORT_BYTES} bytes");
    }
    Ok(text)
}

/// How a program ended, within its time; else what is left of its group is ended with it.
fn ended(command: &mut Command) -> anyhow::Result<ExitStatus> {
    let child = command.process_group(0).spawn();
    let mut child = child.context("it can't be started")?;
    let group = Pid::from_child(&child);
    let since = Instant::now();
    loop {
        if let Some(status) = child.try_wait().context("failed to wait for it")? {
            return Ok(status);
        }
        let is_late = since.elapsed() > TIME_MAX;
        if is_late || is_to_end() {
            kill_process_group(group, Signal::KILL).context("failed to end it")?;
            child.wait().context("failed to wait for it")?;
            match is_late {
                true => bail!(
                    "it took longer than {} s, and was ended",
                    TIME_MAX.as_secs()
                ),
                false => bail!("a signal came, and it was ended"),
            }
        }
        sleep(PAUSE);
    }
}
