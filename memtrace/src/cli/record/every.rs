//! `record --every`: one recording after another, each by a recorder of its own, which ends once the
//! next one observes. So none has a gap behind it, and no recorder grows old.
//!
//! A recorder says in a line on its standard output where it records, once it does, and ends when its
//! standard input does: also when this process dies, and whatever signal reached it before.

use crate::cli::output::say;
use crate::cli::own_program::own_program;
use crate::cli::values::parse_seconds;
use anyhow::Context;
use memtrace_model::DurationNs;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A recording that is shorter costs more than what it says.
const SHORTEST: DurationNs = DurationNs(5_000_000_000);
/// After how long it is tried again to begin a recording.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// So often is looked whether a recorder has ended.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A path is no longer.
const MAX_LINE_BYTES: usize = 1 << 16;

/// The option that makes a recorder one of these.
pub(super) const IN_TURN: &str = "--in-turn";

pub(super) fn parse_every(text: &str) -> Result<DurationNs, String> {
    let every = parse_seconds(text)?;
    match every < SHORTEST {
        true => Err("must be at least 5s".to_owned()),
        false => Ok(every),
    }
}

/// Makes recordings until a signal ends it, or what is recorded ends.
///
/// # Errors
/// When the first recorder can't be started.
pub(super) fn run(every: DurationNs) -> anyhow::Result<ExitCode> {
    let words = words_of_recorder(std::env::args_os().skip(1));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to wait for recorders")?;
    let every = Duration::from_nanos(every.0.cast_unsigned());
    let status = runtime.block_on(record_in_turn(every, &words));
    status.context("failed to start a recorder").map(exit_code)
}

async fn record_in_turn(every: Duration, words: &[OsString]) -> std::io::Result<ExitStatus> {
    let mut signals = Signals::listen()?;
    let mut current = match signals.unless_stopped(Recorder::start(words)).await {
        Some(started) => match started? {
            Ok(recorder) => recorder,
            // It has said why.
            Err(status) => return Ok(status),
        },
        None => return Ok(ExitStatus::default()),
    };
    let mut closing: Vec<Recorder> = Vec::new();
    let mut pause = every;
    loop {
        let turn = signals.unless_stopped(async {
            tokio::select! {
                () = tokio::time::sleep(pause) => Some(Recorder::start(words).await),
                () = end(&mut current, &mut closing) => None,
            }
        });
        match turn.await {
            Some(Some(Ok(Ok(next)))) => {
                let mut last = std::mem::replace(&mut current, next);
                last.ask_to_end();
                closing.push(last);
                pause = every;
            }
            Some(Some(failed)) => {
                let reason = match failed {
                    Err(error) => error.to_string(),
                    Ok(_) => "see above".to_owned(),
                };
                let seconds = AGAIN_AFTER.as_secs();
                say(&format!(
                    "the next recording can't begin ({reason}): this one goes on, and it is tried \
                     again in {seconds} s"
                ));
                pause = AGAIN_AFTER;
            }
            // What is recorded has ended, or its recorder was killed.
            Some(None) => {
                if let Ok(Some(signal)) = current.child.try_wait().map(|one| one?.signal()) {
                    say(&format!(
                        "the recorder was ended by signal {signal}: nothing is recorded now"
                    ));
                }
                break;
            }
            None => {
                current.ask_to_end();
                break;
            }
        }
    }
    closing
        .into_iter()
        .for_each(|mut last| drop(last.child.wait()));
    current.child.wait()
}

/// A recorder that observes.
struct Recorder {
    child: Child,
    /// It ends when this does.
    stdin: Option<ChildStdin>,
}

impl Recorder {
    /// Starts one, and waits until it observes; its status where it ended before.
    async fn start(words: &[OsString]) -> std::io::Result<Result<Self, ExitStatus>> {
        let mut child = Command::new(own_program()?)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().map(std::os::fd::OwnedFd::from);
        // Given up while it starts, it ends with its standard input.
        let mut recorder = Self { child, stdin };
        let mut said = match stdout {
            Some(stdout) => pipe::Receiver::from_owned_fd(stdout)?,
            None => return Err(std::io::ErrorKind::BrokenPipe.into()),
        };
        let mut byte = [0];
        for _ in 0..MAX_LINE_BYTES {
            if said.read(&mut byte).await? == 0 {
                return recorder.status().await.map(Err);
            }
            if byte == *b"\n" {
                break;
            }
        }
        Ok(Ok(recorder))
    }

    fn ask_to_end(&mut self) {
        drop(self.stdin.take());
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// How it ended, once it has. Cancel-safe.
    async fn status(&mut self) -> std::io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// Waits until a recorder has ended by itself, and takes leave of those before it. Cancel-safe.
async fn end(current: &mut Recorder, closing: &mut Vec<Recorder>) {
    while !current.has_ended() {
        closing.retain_mut(|recorder| !recorder.has_ended());
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The signals that end it.
struct Signals([Signal; 4]);

impl Signals {
    fn listen() -> std::io::Result<Self> {
        let [interrupt, terminate, hangup, quit] = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::quit(),
        ]
        .map(signal);
        Ok(Self([interrupt?, terminate?, hangup?, quit?]))
    }

    /// What comes of some work; `None` where one of them comes before.
    async fn unless_stopped<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let [interrupt, terminate, hangup, quit] = &mut self.0;
        tokio::select! {
            done = work => Some(done),
            _ = interrupt.recv() => None,
            _ = terminate.recv() => None,
            _ = hangup.recv() => None,
            _ = quit.recv() => None,
        }
    }
}

/// The command line of a recorder, by that of this process: without `--every`.
fn words_of_recorder(own: impl Iterator<Item = OsString>) -> Vec<OsString> {
    const EVERY: &str = "--every";
    let mut words = Vec::new();
    let mut own = own;
    while let Some(word) = own.next() {
        if word == EVERY {
            own.next();
        } else if !is_given_to(&word, EVERY) {
            words.push(word);
        }
    }
    // Before a `--`, behind which there is no option.
    let record = words.iter().position(|word| word == "record");
    words.insert(record.map_or(0, |at| at + 1), IN_TURN.into());
    words
}

/// Whether a word is an option with its value, `--option=value`.
fn is_given_to(word: &OsStr, option: &str) -> bool {
    let word = word.as_encoded_bytes();
    let value = word.strip_prefix(option.as_bytes());
    value.is_some_and(|value| value.starts_with(b"="))
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorder_is_started_with_the_same_words_but_for_the_time() {
        for given in [
            "record -a --every 24h --keep 7d",
            "record -a --every=24h --keep 7d",
        ] {
            let words = words_of_recorder(given.split(' ').map(OsString::from));
            assert_eq!(words, ["record", IN_TURN, "-a", "--keep", "7d"], "{given}");
        }
    }

    #[test]
    fn a_recording_that_is_too_short_is_refused() {
        assert!(parse_every("1s").is_err());
        assert_eq!(parse_every("24h"), Ok(DurationNs(86_400_000_000_000)));
    }
}
