//! `memtrace load serve`: the small server of [`super::server`], for as long as it runs.

use super::server::{MODEL, Server};
use crate::runtime;
use anyhow::Context;
use memtrace::cli::say;
use std::process::ExitCode;

/// Serve words instead of a model, on this machine only: for trying `memtrace load` without a GPU
///
/// It speaks as vLLM's server does, takes a word as a token, and answers at a stated pace.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The port; 0 is any free one
    #[arg(long, value_name = "N", default_value_t = 8000)]
    port: u16,

    /// Tokens a second of each answer
    #[arg(long, value_name = "N", default_value_t = 50.0, value_parser = parse_rate)]
    rate: f64,
}

/// Serves.
///
/// # Errors
/// When the port is taken.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    runtime()?.block_on(async {
        let server = Server::bind(args.port, args.rate).await;
        let server = server.with_context(|| format!("failed to listen on port {}", args.port))?;
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

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok();
    let rate = rate.filter(|rate| (0.01..=1e6).contains(rate));
    rate.ok_or_else(|| "must be a number of tokens a second, from 0.01 to 1000000".to_owned())
}
