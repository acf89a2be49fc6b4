//! `memtrace load smoke`: a small plan against the built-in server, and whether everything came out
//! as it must.

use super::plan::Grid;
use super::run::{Ended, Experiment, Results, run_id};
use super::server::{MODEL, Server};
use crate::block_on;
use crate::http::{Client, parse_url};
use crate::recordings::Recordings;
use crate::stop::Stop;
use anyhow::{Context, bail};
use jiff::Timestamp;
use memtrace::cli::say;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Tokens a second of each answer.
const RATE: f64 = 200.0;

/// Try the whole procedure in seconds, without an engine or a GPU
///
/// Sends a plan of eight conditions to a small server of its own, and fails unless every request was
/// answered with as many tokens as planned.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the folder of the run is made [default: a temporary folder, which is removed]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// A recording to write it into; may be repeated [default: none]
    #[arg(short, long = "recording", value_name = "DIR")]
    recordings: Vec<PathBuf>,
}

/// Tries it.
///
/// # Errors
/// When anything does not come out as it must.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let grid = Grid {
        input_tokens: vec![32, 128],
        output_tokens: vec![16],
        concurrencies: vec![2, 4],
        prefix_reuse: vec![0.0, 0.8],
        requests_per_condition: None,
        seed: 0,
    };
    let conditions = grid.conditions();
    let requests: usize = conditions.iter().map(|one| one.requests).sum();
    let recordings = Recordings::named(&args.recordings)?;
    let temporary = tempfile::tempdir().context("failed to make a temporary folder")?;
    let above = args.output.as_deref().unwrap_or(temporary.path());
    block_on(async {
        let server = Server::bind(0, RATE)
            .await
            .context("failed to start the server")?;
        let url = format!("http://{}", server.address()?);
        let target = parse_url(&url).map_err(anyhow::Error::msg)?;
        let client = Client::new(target, None)?;
        let serving = tokio::spawn(server.run());
        let run_id = run_id("smoke", Timestamp::now())?;
        let dir = above.join(&run_id);
        let results = Results::create(dir.clone())
            .with_context(|| format!("failed to make {}", dir.display()))?;
        let experiment = Experiment {
            run_id,
            conditions,
            model: MODEL.to_owned(),
            is_chat: false,
            is_stream: true,
            ignores_eos: true,
            timeout: Duration::from_secs(30),
            retries: 0,
            cool_down: Duration::from_millis(100),
            has_bar: true,
        };
        let ended = experiment
            .run(&client, results, recordings, Stop::by_signals()?)
            .await?;
        serving.abort();
        let trace = std::fs::read_to_string(dir.join("request_trace.csv"));
        let trace = trace.context("failed to read the results")?;
        check(&trace, requests)?;
        let expected = Ended::Done {
            answered: requests,
            failed: 0,
        };
        if ended != expected {
            bail!(
                "{}, but all {requests} requests should have been",
                ended.in_words()
            );
        }
        say(&format!("all is well: {}", ended.in_words()));
        Ok(ExitCode::SUCCESS)
    })
}

/// Whether each request had and got as many tokens as planned, and its times are in order.
fn check(trace: &str, requests: usize) -> anyhow::Result<()> {
    let mut lines = trace.lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let mut seen = 0;
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        let field = |name: &str| {
            let place = header.iter().position(|column| *column == name);
            place.and_then(|place| fields.get(place)).copied()
        };
        let number = |name: &str| field(name).and_then(|text| text.parse::<i64>().ok());
        let is_as_planned = number("prompt_tokens") == number("planned_prompt_tokens")
            && number("output_tokens") == number("planned_output_tokens")
            && number("start_boot_ns") < number("first_token_boot_ns")
            && number("first_token_boot_ns") < number("boot_ns")
            && field("outcome") == Some("ok");
        if !is_as_planned {
            bail!("a request did not come out as planned: {line}");
        }
        seen += 1;
    }
    match seen == requests {
        true => Ok(()),
        false => bail!("{seen} requests are in the trace, and {requests} were planned"),
    }
}
