//! `memtrace engine sleep`, `wake`, `status` and `reset-prefix-cache`: where the memory of an engine
//! goes when it sleeps is seen in the recording, in which each is a phase.

use super::action::Action;
use super::engines::Engines;
use super::refusals;
use super::workers::{Servers, Worker, looked_at};
use crate::http::{Client, Failure};
use crate::limits::{LOOK_TIME, PATIENCE_SECONDS};
use crate::recordings::Reported;
use crate::seconds::parse_seconds;
use crate::stop::{INTERRUPTED, Stop};
use memtrace::cli::say;
use memtrace_model::MarkKind;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::process::ExitCode;
use std::time::Duration;

/// Put each server to sleep: its GPU memory is given back (vLLM's sleep mode)
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  memtrace engine sleep --router http://127.0.0.1:3521 --level 2
  memtrace engine wake --router http://127.0.0.1:3521

Exit status: 0; 1 when not all did it; 130 after Ctrl-C.")]
pub(super) struct Sleep {
    #[command(flatten)]
    asked: Asked,

    /// 1 keeps the weights in the host's memory; 2 keeps nothing
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    level: u8,
}

/// Wake each server up
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0; 1 when not all did it; 130 after Ctrl-C.")]
pub(super) struct Wake {
    #[command(flatten)]
    asked: Asked,
}

/// Drop the prefix cache of each server
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0; 1 when not all did it; 130 after Ctrl-C.")]
pub(super) struct Reset {
    #[command(flatten)]
    asked: Asked,
}

/// Say whether each server is up, and whether it sleeps
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0; 1 when one does not answer, or is unhealthy.")]
pub(super) struct Status {
    #[command(flatten)]
    servers: Servers,
}

/// Whom is asked, and who hears of it.
#[derive(Debug, clap::Args)]
struct Asked {
    #[command(flatten)]
    servers: Servers,

    /// How long a server may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value = PATIENCE_SECONDS, value_parser = parse_seconds)]
    timeout: Duration,

    #[command(flatten)]
    reported: Reported,
}

/// Puts them to sleep.
///
/// # Errors
/// When the servers can't be found.
pub(super) fn sleep(args: &Sleep) -> anyhow::Result<ExitCode> {
    let level = args.level;
    let attributes = Map::from_iter([("level".to_owned(), Value::from(level))]);
    args.asked
        .ask(Action::Sleep { level }, "engine.sleep", attributes)
}

/// Wakes them up.
///
/// # Errors
/// When the servers can't be found.
pub(super) fn wake(args: &Wake) -> anyhow::Result<ExitCode> {
    args.asked.ask(Action::Wake, "engine.wake_up", Map::new())
}

/// Drops their prefix caches.
///
/// # Errors
/// When the servers can't be found.
pub(super) fn reset(args: &Reset) -> anyhow::Result<ExitCode> {
    let phase = "engine.reset_prefix_cache";
    args.asked.ask(Action::ResetPrefixCache, phase, Map::new())
}

impl Asked {
    /// Asks all at once, within a phase.
    fn ask(
        &self,
        action: Action,
        phase: &str,
        attributes: Map<String, Value>,
    ) -> anyhow::Result<ExitCode> {
        crate::block_on(async {
            let mut stop = Stop::by_signals()?;
            let mut recordings = self.reported.if_clear();
            let mut engines = Engines::find(&self.servers, None).await?;
            engines.timeout = Some(self.timeout);
            for shown in recordings.names() {
                say(&format!("it is the phase {phase} of {shown}"));
            }
            recordings.mark(MarkKind::Begin, phase, attributes);
            let done = engines.ask(action, &mut stop).await;
            let counts = [("servers", done.len()), ("of", engines.all.len())];
            let counts = counts.map(|(name, count)| (name.to_owned(), Value::from(count)));
            recordings.mark(MarkKind::End, phase, Map::from_iter(counts));
            Ok(match (done.len() == engines.all.len(), stop.is_wished()) {
                (_, true) => ExitCode::from(INTERRUPTED),
                (true, false) => ExitCode::SUCCESS,
                (false, false) => ExitCode::FAILURE,
            })
        })
    }
}

/// Looks.
///
/// # Errors
/// When the servers can't be found.
pub(super) fn status(args: &Status) -> anyhow::Result<ExitCode> {
    crate::block_on(async {
        let mut is_well = true;
        let workers = args.servers.workers().await?;
        let look = async |worker: &Worker| of(&worker.client).await;
        looked_at(&workers, look, |worker, (words, is_up)| {
            let router = match worker.is_healthy {
                Some(false) => "; its router considers it unhealthy",
                _ => "",
            };
            say(&format!("{}: {words}{router}", worker.shown()));
            is_well &= is_up;
        })
        .await;
        Ok(if is_well {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    })
}

#[derive(Deserialize)]
struct State {
    is_sleeping: bool,
}

/// One of them, and whether it is well.
async fn of(client: &Client) -> (String, bool) {
    let health = match client.status("/health", LOOK_TIME).await {
        // Not every engine has that path.
        Ok(200 | 404) => "up",
        Ok(503) => {
            return (
                "its engine is not ready or has died (503)".to_owned(),
                false,
            );
        }
        Ok(status) => return (format!("unhealthy, with status {status}"), false),
        Err(failure) => return (failure.to_string(), false),
    };
    let state: Result<State, Failure> = client.json("/is_sleeping", LOOK_TIME).await;
    let state = match state {
        Ok(State { is_sleeping: true }) => "sleeps".to_owned(),
        Ok(State { is_sleeping: false }) => "is awake".to_owned(),
        Err(failure) => refusals::in_words(Action::Wake, client, &failure).await,
    };
    (format!("{health}; {state}"), true)
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, found, status, words};
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// One with sleep mode.
    fn sleeper() -> Fake {
        let is_sleeping = AtomicBool::new(false);
        Fake::start(move |path| {
            match path {
                "/sleep?level=2" => is_sleeping.store(true, Ordering::SeqCst),
                "/wake_up" => is_sleeping.store(false, Ordering::SeqCst),
                "/is_sleeping" => {
                    let state = is_sleeping.load(Ordering::SeqCst);
                    return status(200, &format!("{{\"is_sleeping\":{state}}}"));
                }
                "/health" => {}
                _ => return status(404, ""),
            }
            status(200, "")
        })
    }

    #[test]
    fn a_server_sleeps_after_it_was_asked_to_and_is_awake_after_that() {
        let server = sleeper();
        let engines = found(&["--url", &server.url]).unwrap();
        crate::runtime().unwrap().block_on(async {
            for (action, state) in [
                (Action::Sleep { level: 2 }, "up; sleeps"),
                (Action::Wake, "up; is awake"),
            ] {
                assert_eq!(engines.ask(action, &mut Stop::never()).await.len(), 1);
                assert_eq!(of(&server.client()).await, (state.to_owned(), true));
            }
        });
        let asked = server.asked();
        assert_eq!(
            (asked[0].as_str(), asked[3].as_str()),
            ("POST /sleep?level=2", "POST /wake_up")
        );
    }

    #[test]
    fn what_a_server_lacks_is_reported_with_what_gives_it() {
        let plain = Fake::start(|path| match path {
            "/health" => status(200, ""),
            _ => status(404, ""),
        });
        for action in [Action::Sleep { level: 1 }, Action::Wake] {
            let text = words(action, &plain);
            assert!(text.contains("--enable-sleep-mode"), "{text}");
        }
        let text = words(Action::ResetPrefixCache, &plain);
        assert!(text.contains("VLLM_SERVER_DEV_MODE=1"), "{text}");
        let (text, is_up) = crate::runtime().unwrap().block_on(of(&plain.client()));
        assert!(is_up && text.contains("has no sleep mode"), "{text}");
        let dead = Fake::start(|_| status(503, ""));
        let (text, is_up) = crate::runtime().unwrap().block_on(of(&dead.client()));
        assert!(!is_up && text.contains("has died"), "{text}");
    }
}
