//! The servers with what is known of their processes, asked all at once.

use super::action::Action;
use super::local::LocalServer;
use super::profiler_config::ProfilerConfig;
use super::refusals;
use super::workers::{Servers, Worker};
use crate::http::Failure;
use crate::stop::Stop;
use indicatif::{ProgressBar, ProgressStyle};
use memtrace::cli::say;
use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// A stop that waits less may fail: traces of a hundred requests took ten minutes on an H100
/// (vLLM's documentation of its profiler).
const RPC_TIMEOUT_ENOUGH: Duration = Duration::from_secs(1_800);

/// Where there is no terminal, so often something is said of a wait.
const NEWS: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub(super) struct Engine {
    pub(super) worker: Worker,
    /// `None` where its process is not to be seen from here.
    pub(super) local: Option<LocalServer>,
}

/// All of them.
pub(super) struct Engines {
    pub(super) all: Vec<Engine>,
    /// Where traces are looked for.
    pub(super) dirs: Vec<PathBuf>,
    /// How long each may take to do something, where a person says so.
    pub(super) timeout: Option<Duration>,
}

impl Engine {
    /// What may go wrong with its profiler, as far as its process shows.
    pub(super) fn warnings(&self) -> Vec<String> {
        let shown = self.worker.shown();
        let mut warnings = Vec::new();
        if self.worker.is_healthy == Some(false) {
            warnings.push(format!("{shown}: its router considers it unhealthy"));
        }
        let Some(local) = &self.local else {
            return warnings;
        };
        if local.profiler().is_some_and(ProfilerConfig::is_cuda) {
            warnings.push(format!(
                "{shown}: the CUDA profiler writes no traces of its own; Nsight Systems does, where \
                 it started the server"
            ));
        }
        if let Some(timeout) = local.rpc_timeout.duration()
            && timeout < RPC_TIMEOUT_ENOUGH
            // Without the option it may be no vLLM.
            && local.profiler().is_some()
        {
            warnings.push(format!(
                "{shown}: a stop may fail, since it waits {} s for the traces of its workers: {}",
                timeout.as_secs_f64(),
                refusals::RPC_TIMEOUT
            ));
        }
        warnings
    }
}

impl Engines {
    /// Those that are meant. Traces are looked for in `dir`, else where the command lines of local
    /// servers say.
    ///
    /// # Errors
    /// When they can't be found.
    pub(super) async fn find(servers: &Servers, dir: Option<&Path>) -> anyhow::Result<Self> {
        let workers = servers.workers().await?;
        let engines = workers.into_iter().map(|worker| Engine {
            local: LocalServer::at(worker.client.target()),
            worker,
        });
        let all: Vec<Engine> = engines.collect();
        let reported = all.iter().filter_map(|engine| {
            let config = engine.local.as_ref()?.profiler()?;
            config.dir().map(Path::to_owned)
        });
        let dirs: BTreeSet<PathBuf> = match dir {
            Some(dir) => BTreeSet::from([dir.to_owned()]),
            None => reported.collect(),
        };
        Ok(Self {
            all,
            dirs: dirs.into_iter().collect(),
            timeout: None,
        })
    }

    /// How the profilers are set up, as far as is known.
    pub(super) fn configs(&self) -> Vec<ProfilerConfig> {
        let locals = self.all.iter().filter_map(|engine| engine.local.as_ref());
        locals.filter_map(LocalServer::profiler).cloned().collect()
    }

    /// Says what may go wrong.
    pub(super) fn warn(&self) {
        for warning in self.all.iter().flat_map(Engine::warnings) {
            say(&warning);
        }
    }

    /// Asks all of them at once and says what each answered, until all have or `stop` is wished.
    /// Answers with those that did it.
    pub(super) async fn ask(&self, action: Action, stop: &mut Stop) -> Vec<Engine> {
        let begin = Instant::now();
        let mut asked = JoinSet::new();
        for (at, engine) in self.all.iter().enumerate() {
            let client = engine.worker.client.clone();
            let patience = self.timeout.unwrap_or(action.patience());
            asked.spawn(async move {
                let answer = client.post(&action.path(), patience).await;
                let words = match &answer {
                    Ok(()) => action.done().to_owned(),
                    Err(failure) => refusals::in_words(action, &client, failure).await,
                };
                (at, answer, words)
            });
        }
        let wait = Wait::begun();
        let mut seconds = interval(Duration::from_secs(1));
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut done: Vec<usize> = Vec::new();
        while !asked.is_empty() {
            tokio::select! {
                answered = asked.join_next() => if let Some(Ok(answer)) = answered {
                    let (at, answer, words): (usize, Result<(), Failure>, String) = answer;
                    let shown = self.all[at].worker.shown();
                    let took = begin.elapsed().as_secs_f64();
                    done.extend(answer.is_ok().then_some(at));
                    wait.say(&format!("{shown}: {words} ({took:.1} s)"));
                },
                _ = seconds.tick() => wait.note(asked.len(), begin.elapsed()),
                () = stop.wished() => {
                    let left = asked.len();
                    wait.say(&format!("{left} servers have not answered, and are waited for no longer"));
                    break;
                }
            }
        }
        done.sort_unstable();
        done.into_iter().map(|at| self.all[at].clone()).collect()
    }
}

/// The line that shows a wait: on a terminal each second, else each minute.
struct Wait {
    bar: ProgressBar,
    is_terminal: bool,
}

impl Wait {
    fn begun() -> Self {
        let is_terminal = io::stderr().is_terminal();
        let bar = match is_terminal {
            true => ProgressBar::new_spinner(),
            false => ProgressBar::hidden(),
        };
        if let Ok(style) = ProgressStyle::with_template("memtrace: {msg}") {
            bar.set_style(style);
        }
        Self { bar, is_terminal }
    }

    fn note(&self, left: usize, elapsed: Duration) {
        let seconds = elapsed.as_secs();
        let text = format!("{left} servers have not answered after {seconds} s");
        if self.is_terminal {
            self.bar.set_message(text);
            self.bar.tick();
        } else if seconds > 0 && seconds.is_multiple_of(NEWS.as_secs()) {
            say(&text);
        }
    }

    fn say(&self, text: &str) {
        self.bar.suspend(|| say(text));
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
