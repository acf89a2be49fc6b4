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

/// A warning names so many of the servers that it is about.
const NAMED: usize = 4;

/// So many servers, in words.
pub(super) fn servers(count: usize) -> String {
    match count {
        1 => "1 server".to_owned(),
        count => format!("{count} servers"),
    }
}

/// The names of servers; of many the first.
pub(super) fn named<'e>(engines: impl ExactSizeIterator<Item = &'e Engine>) -> String {
    let others = engines.len().saturating_sub(NAMED);
    let named: Vec<String> = engines
        .take(NAMED)
        .map(|engine| engine.worker.shown())
        .collect();
    let rest = if others > 0 {
        format!(" and {others} more")
    } else {
        String::new()
    };
    format!("{}{rest}", named.join(", "))
}

impl Engine {
    /// What may go wrong with its profiler, as far as its process shows.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.worker.is_healthy == Some(false) {
            warnings.push("its router considers it unhealthy".to_owned());
        }
        let Some(local) = &self.local else {
            return warnings;
        };
        if local.profiler().is_some_and(ProfilerConfig::is_cuda) {
            warnings.push(
                "the CUDA profiler writes no traces of its own; Nsight Systems does, where it \
                 started the server"
                    .to_owned(),
            );
        }
        if let Some(timeout) = local.rpc_timeout.duration()
            && timeout < RPC_TIMEOUT_ENOUGH
            // Without the option it may be no vLLM.
            && local.profiler().is_some()
        {
            warnings.push(format!(
                "a stop may fail, since it waits {} s for the traces of its workers: {}",
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
        for warning in self.warnings() {
            say(&warning);
        }
    }

    /// What may go wrong, each once, behind the servers that it is about.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut of_whom: Vec<(String, Vec<&Engine>)> = Vec::new();
        for engine in &self.all {
            for warning in engine.warnings() {
                match of_whom.iter_mut().find(|(known, _)| *known == warning) {
                    Some((_, engines)) => engines.push(engine),
                    None => of_whom.push((warning, vec![engine])),
                }
            }
        }
        let lines = of_whom.into_iter();
        let lines =
            lines.map(|(warning, engines)| format!("{}: {warning}", named(engines.into_iter())));
        lines.collect()
    }

    /// Those of them that are not among others.
    pub(super) fn without(&self, others: &[Engine]) -> Vec<&Engine> {
        let is_other = |engine: &Engine| {
            let mut others = others.iter();
            others.any(|other| other.worker.shown() == engine.worker.shown())
        };
        self.all.iter().filter(|engine| !is_other(engine)).collect()
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
                    wait.say(&format!(
                        "no answer of {}, and none is waited for any longer",
                        servers(left)
                    ));
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
        let text = format!("no answer of {} after {seconds} s", servers(left));
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
