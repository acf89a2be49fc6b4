//! `record --every`: one recording after another, each by a recorder of its own, which ends once the
//! next one observes. So none has a gap behind it, and no recorder grows old.
//!
//! A recorder says in a line on its standard output where it records, once it does, and ends when its
//! standard input does: also when this process dies, and whatever signal reached it before.

use super::afterwards::prepare;
use crate::cli::output::say;
use crate::cli::own_program::own_program;
use crate::cli::values::parse_seconds;
use crate::session::{Request, Signals};
use anyhow::Context;
use memtrace_host::Person;
use memtrace_model::DurationNs;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinSet;

/// A recording that is shorter costs more than what it says.
const SHORTEST: DurationNs = DurationNs(5_000_000_000);
/// After how long it is tried again to begin a recording.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Between two looks for recordings that are old enough by now.
const LOOK_FOR_OLDER: Duration = Duration::from_secs(3600);
/// What that may take of a CPU, each hour.
const CPU_SECONDS: libc::rlim_t = 1_800;
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

/// Makes recordings until a signal ends it, or what is recorded ends; older ones are downsampled
/// meanwhile, if that is asked for.
///
/// # Errors
/// When the first recorder can't be started.
pub(super) fn run(every: DurationNs, older: Option<Older>) -> anyhow::Result<ExitCode> {
    let words = words_of_recorder(std::env::args_os().skip(1));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to wait for recorders")?;
    let every = Duration::from_nanos(every.0.cast_unsigned());
    let status = runtime.block_on(record_in_turn(every, older, &words));
    status.context("failed to start a recorder").map(exit_code)
}

async fn record_in_turn(
    every: Duration,
    older: Option<Older>,
    words: &[OsString],
) -> std::io::Result<ExitStatus> {
    let mut signals = Signals::listen(false, false)?;
    let mut current = match unless_stopped(&mut signals, Recorder::start(words)).await {
        Some(started) => match started? {
            Ok(recorder) => recorder,
            // It has said why.
            Err(status) => return Ok(status),
        },
        None => return Ok(ExitStatus::default()),
    };
    // Ends when it is dropped.
    let mut downsampling = JoinSet::new();
    if let Some(older) = older {
        downsampling.spawn(older.downsample());
    }
    let mut closing = JoinSet::new();
    let mut pause = every;
    loop {
        let turn = unless_stopped(&mut signals, async {
            tokio::select! {
                () = tokio::time::sleep(pause) => Some(Recorder::start_in_time(words).await),
                _ = current.child.wait() => None,
            }
        });
        let turn = turn.await;
        while closing.try_join_next().is_some() {}
        match turn {
            Some(Some(Ok(Ok(next)))) => {
                let last = std::mem::replace(&mut current, next);
                closing.spawn(last.end());
                pause = every;
            }
            // The last one has ended while the next one began.
            Some(Some(_)) if current.has_ended() => break,
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
            None => break,
        }
    }
    let status = current.end().await;
    closing.join_all().await;
    status
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
        let said = child.stdout.take();
        // Given up while it starts, it ends with its standard input.
        let mut recorder = Self { child, stdin };
        let mut said = said.ok_or(std::io::ErrorKind::BrokenPipe)?;
        let mut byte = [0];
        for _ in 0..MAX_LINE_BYTES {
            if said.read(&mut byte).await? == 0 {
                return recorder.child.wait().await.map(Err);
            }
            if byte == *b"\n" {
                break;
            }
        }
        Ok(Ok(recorder))
    }

    /// The same within a time: one that hangs must not keep all after it from beginning.
    async fn start_in_time(words: &[OsString]) -> std::io::Result<Result<Self, ExitStatus>> {
        let started = tokio::time::timeout(AGAIN_AFTER, Self::start(words));
        started
            .await
            .unwrap_or(Err(std::io::ErrorKind::TimedOut.into()))
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Ends it, and says how it ended.
    async fn end(mut self) -> std::io::Result<ExitStatus> {
        drop(self.stdin);
        self.child.wait().await
    }
}

/// The recordings from before.
pub(super) struct Older {
    /// As `memtrace downsample --tiers` takes them.
    pub(super) tiers: String,
    /// Who does it.
    pub(super) person: Option<Person>,
}

impl Older {
    /// Downsamples those that are old enough, each hour.
    async fn downsample(self) {
        loop {
            let ended = match self.downsampling().and_then(|mut command| command.spawn()) {
                Ok(mut child) => child.wait().await,
                Err(error) => Err(error),
            };
            // What went wrong it has said, but for that.
            let reason = match ended {
                Ok(status) => status
                    .signal()
                    .map(|signal| format!("signal {signal} ended it")),
                Err(error) => Some(error.to_string()),
            };
            if let Some(reason) = reason {
                say(&format!(
                    "older recordings are not downsampled: {reason}; it is tried again in an hour"
                ));
            }
            tokio::time::sleep(LOOK_FOR_OLDER).await;
        }
    }

    /// A process that does it, with no rights beyond the person's, and ends with this one: what is not
    /// done by then is done the next time.
    fn downsampling(&self) -> std::io::Result<Command> {
        let mut command = Command::new(own_program()?);
        command
            .args(["downsample", "--tiers", &self.tiers])
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true);
        let (person, recorder) = (self.person.clone(), std::process::id());
        // SAFETY: between fork and exec only system calls are made, and nothing is allocated.
        unsafe { command.pre_exec(move || prepare(person.as_ref(), recorder, CPU_SECONDS)) };
        Ok(command)
    }
}

/// What comes of some work; `None` where a signal asks for the end before.
async fn unless_stopped<T>(signals: &mut Signals, work: impl Future<Output = T>) -> Option<T> {
    let stopped = async { while signals.next().await != Request::Stop {} };
    tokio::select! {
        done = work => Some(done),
        () = stopped => None,
    }
}

/// The options that say how recordings follow each other, which no recorder gets.
const OWN_OPTIONS: [&str; 2] = ["--every", "--downsample"];

/// The command line of a recorder, by that of this process.
fn words_of_recorder(own: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words = Vec::new();
    let mut own = own;
    while let Some(word) = own.next() {
        if OWN_OPTIONS.iter().any(|option| word == *option) {
            own.next();
        } else if !OWN_OPTIONS.iter().any(|option| is_given_to(&word, option)) {
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
            "record -a --every 24h --downsample 1d:1s,7d:10s --keep 7d",
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
