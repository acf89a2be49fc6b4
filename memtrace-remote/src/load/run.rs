//! `memtrace load run`: sends the conditions of a plan, and keeps what became of each request.

mod closed_loop;
mod condition_phases;
mod experiment;
mod gpu_trace;
mod health;
mod progress;
mod results;
mod server_process;
mod summary;

pub(crate) use experiment::{Ended, Experiment};
pub(crate) use results::{Results, run_id};

use super::check::fits;
use super::endpoint::Endpoint;
use super::plan::{self, Condition};
use crate::limits::hold_memory;
use crate::recordings::{Recordings, Reported};
use crate::seconds::{parse_pause, parse_seconds};
use crate::stop::{INTERRUPTED, Stop};
use crate::{block_on, call_words};
use anyhow::Context;
use jiff::Timestamp;
use memtrace::cli::say;
use rustix::process::{Resource, getrlimit, setrlimit};
use server_process::ServerProcess;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Send the conditions of a plan, one after the other, and write the outcome of each request
///
/// Each condition keeps exactly its number of requests in flight, from the first moment until none
/// is left to start. The results go to a new folder: workload.jsonl (the plan as it was sent),
/// request_trace.csv (a row for each request), summary.json (figures of each condition),
/// gpu_mem_trace.csv (GPU memory, if it is recorded) and manifest.json (how it was sent). If a recording
/// is running, each condition is a phase of it and each request a row of its table `request`, on the same
/// clock.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  memtrace record -- vllm serve Qwen/Qwen3-0.6B &
  memtrace load run plan.jsonl --model Qwen/Qwen3-0.6B
  memtrace report --section conditions

Exit status: 0; 1 when the plan or the server can't be used, or not one request was answered; 130
after Ctrl-C, which ends the run and keeps its results so far.")]
pub(crate) struct Args {
    /// The plan to run
    #[arg(value_name = "PLAN")]
    plan: PathBuf,

    #[command(flatten)]
    endpoint: Endpoint,

    /// Ask for answers in one piece; no time of the first token is known then
    #[arg(long)]
    no_stream: bool,

    /// Do not ask the server to go on after the end of an answer (ignore_eos), which only engines
    /// understand; outputs may be shorter than planned
    #[arg(long)]
    no_ignore_eos: bool,

    /// How long a whole request may take, in seconds; counting the tokens of a condition's prompts
    /// has the same limit
    #[arg(long, value_name = "SECONDS", env = "REQUEST_TIMEOUT", default_value = "600",
          value_parser = parse_seconds)]
    timeout: Duration,

    /// How often to retry a failed request
    #[arg(long, value_name = "N", default_value_t = 0)]
    retries: u32,

    /// Pause between two conditions, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = parse_pause)]
    cool_down: Duration,

    /// Prefix of the run's name
    #[arg(long, value_name = "NAME", env = "RUN_TAG", default_value = "load")]
    tag: String,

    /// Where the folder of the run is made; it is a new one each time
    #[arg(
        short,
        long,
        value_name = "DIR",
        env = "OUTPUT_DIR",
        default_value = "."
    )]
    output: PathBuf,

    #[command(flatten)]
    reported: Reported,

    /// After the plan, open a window of the engine's profiler for this many more requests, and list
    /// the traces, as `memtrace engine profile run` does
    #[arg(long, value_name = "REQUESTS")]
    profile: Option<usize>,

    /// How long to wait for a server that is starting, in seconds; prints what it waits for
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    wait: Option<Duration>,

    /// After the plan, or if nothing can be sent, end the server, whose process id this is:
    /// SIGINT, and SIGTERM after 30 s (Linux)
    #[arg(long, value_name = "PID")]
    then_stop: Option<i32>,

    /// Print a line for each condition instead of a progress bar
    #[arg(long)]
    no_bar: bool,
}

impl Args {
    /// The recordings that are reported; says which.
    fn recordings(&self) -> anyhow::Result<Recordings> {
        let recordings = self.reported.recordings()?;
        match recordings.names().as_slice() {
            [] => say("no recording is written to: only what the sender sees is kept"),
            names => say(&format!("the load is recorded in {}", names.join(", "))),
        }
        Ok(recordings)
    }
}

/// Sends it.
///
/// # Errors
/// When the plan or the server can't be used, or the results can't be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    raise_descriptors();
    let mut server = args.then_stop.map(ServerProcess::of).transpose()?;
    let conditions = plan::read(&args.plan)?;
    hold_memory(
        conditions
            .iter()
            .map(Condition::memory_bytes)
            .max()
            .unwrap_or(0),
    );
    let code = send(args, conditions, &mut server)?;
    match args.profile.filter(|_| code == ExitCode::SUCCESS) {
        Some(requests) => profile(args, requests),
        None => Ok(code),
    }
}

/// Sends the conditions, and says how that ended.
fn send(
    args: &Args,
    conditions: Vec<Condition>,
    server: &mut Option<ServerProcess>,
) -> anyhow::Result<ExitCode> {
    block_on(async {
        let client = args.endpoint.client()?;
        let mut stop = Stop::by_signals()?;
        if let Some(patience) = args.wait {
            health::awaited(&client, patience, server.as_ref(), &mut stop).await?;
        }
        let recordings = args.recordings()?;
        let model = tokio::select! {
            model = args.endpoint.meant_model(&client, args.timeout) => model?,
            () = stop.wished() => return Ok(ExitCode::from(INTERRUPTED)),
        };
        fits(&conditions, &model)?;
        let run_id = run_id(&args.tag, Timestamp::now())?;
        let dir = args.output.join(&run_id);
        let experiment = Experiment {
            run_id,
            conditions,
            model: model.id,
            is_chat: args.endpoint.chat,
            is_stream: !args.no_stream,
            ignores_eos: !args.no_ignore_eos,
            timeout: args.timeout,
            retries: args.retries,
            cool_down: args.cool_down,
            has_bar: !args.no_bar,
        };
        let results = Results::create(dir.clone())
            .with_context(|| format!("failed to make {}", dir.display()))?;
        let recorded_in = recordings.dirs();
        let ended = experiment.run(&client, results, recordings, stop).await?;
        gpu_trace::write(&dir, &recorded_in);
        say(&format!(
            "{}; the results are in {}",
            ended.in_words(),
            dir.display()
        ));
        if let Some(server) = server.as_mut().filter(|_| ended == Ended::Interrupted) {
            server.leave();
        }
        Ok(match ended {
            Ended::Interrupted => ExitCode::from(INTERRUPTED),
            Ended::Done { answered: 0, .. } | Ended::GivenUp { .. } => ExitCode::FAILURE,
            Ended::Done { .. } => ExitCode::SUCCESS,
        })
    })
}

/// A window of the profiler, by the words that a person would use.
fn profile(args: &Args, requests: usize) -> anyhow::Result<ExitCode> {
    let mut words = ["engine", "profile", "run"].map(OsString::from).to_vec();
    words.push(format!("--url={}", args.endpoint.url).into());
    words.push(format!("--requests={requests}").into());
    let model = args.endpoint.model.iter();
    words.extend(model.map(|model| format!("--model={model}").into()));
    let key = args.endpoint.api_key.iter();
    words.extend(key.map(|key| format!("--api-key={key}").into()));
    words.extend(args.reported.words());
    call_words(words)
}

/// Each request under way has a connection, and shells allow a thousand files by default.
fn raise_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Without it a request that finds no descriptor says so.
    let _ = setrlimit(Resource::Nofile, limit);
}
