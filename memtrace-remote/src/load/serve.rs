//! `memtrace load serve`: the small server of [`super::server`], for as long as it runs.

use super::server::{MODEL, Server};
use crate::block_on;
use crate::limits::hold_memory;
use anyhow::Context;
use memtrace::cli::say;
use serde::Deserialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// What thousands of long prompts take.
const PROMPTS_BYTES: u64 = 2 << 30;

/// Serve words instead of a model, on this machine only: for trying `memtrace load` without a GPU
///
/// It has the API of vLLM's server, counts each word as a token, and answers at a given rate.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The port; 0 is any free one
    #[arg(long, value_name = "N", default_value_t = 8000)]
    port: u16,

    /// Tokens a second of each answer
    #[arg(long, value_name = "N", default_value_t = 50.0, value_parser = parse_rate)]
    rate: f64,

    /// Have a profiler as vLLM does; of the JSON only torch_profiler_dir matters
    #[arg(long, value_name = "JSON", value_parser = parse_profiler)]
    profiler_config: Option<ProfilerDir>,
}

/// Where traces are written.
#[derive(Clone, Debug, Deserialize)]
struct ProfilerDir {
    torch_profiler_dir: PathBuf,
}

/// Serves.
///
/// # Errors
/// When the port is taken.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // Whoever sends to it is this person.
    hold_memory(PROMPTS_BYTES);
    block_on(async {
        let server = Server::bind(args.port, args.rate).await;
        let server = server.with_context(|| format!("failed to listen on port {}", args.port))?;
        let server = match &args.profiler_config {
            Some(config) => server.with_profiler(config.torch_profiler_dir.clone()),
            None => server,
        };
        let address = server.address()?;
        say(&format!(
            "serving the model {MODEL} at http://{address}; Ctrl-C ends it"
        ));
        tokio::select! {
            () = server.run() => {}
            ended = tokio::signal::ctrl_c() => ended?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn parse_profiler(text: &str) -> Result<ProfilerDir, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok();
    let rate = rate.filter(|rate| (0.01..=1e6).contains(rate));
    rate.ok_or_else(|| "must be a number of tokens a second, from 0.01 to 1000000".to_owned())
}
