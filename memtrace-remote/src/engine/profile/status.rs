//! `memtrace engine profile status`: whether the profilers can be used, without touching them.

use super::all_or_none;
use crate::engine::action;
use crate::engine::engines::{Engine, Engines};
use crate::engine::local::{Config, RpcTimeout};
use crate::engine::traces::Listing;
use crate::engine::workers::{Servers, looked_at};
use crate::limits::LOOK_TIME;
use memtrace::cli::say;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::process::ExitCode;

/// Say whether the profiler of each server can be used, without starting it
///
/// For servers on this machine, the command line and the environment are read.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit status: 0; 1 when a server does not answer, or has no profiler.")]
pub(super) struct Args {
    #[command(flatten)]
    servers: Servers,

    /// Where the servers write their traces [default: as their command lines say]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Looks.
///
/// # Errors
/// When the servers can't be found.
pub(super) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let engines = Engines::find(&args.servers, args.dir.as_deref()).await?;
    let mut is_well = true;
    looked_at(&engines.all, of, |engine, (line, is_usable)| {
        say(&format!("{}: {line}", engine.worker.shown()));
        is_well &= is_usable;
    })
    .await;
    engines.warn();
    for dir in &engines.dirs {
        let count = Listing::of(std::slice::from_ref(dir)).len();
        let line = match dir.is_dir() {
            true => format!("files in {}: {count}", dir.display()),
            false => format!("{} is not there yet, or not on this machine", dir.display()),
        };
        say(&line);
    }
    Ok(all_or_none(is_well))
}

/// One of them: what is known, and whether it has a profiler, or may have.
async fn of(engine: &Engine) -> (String, bool) {
    let client = &engine.worker.client;
    let health = match client.status("/health", LOOK_TIME).await {
        // Not every engine has that path.
        Ok(200 | 404) => "up".to_owned(),
        Ok(503) => "up, but its engine is not ready or has died (503)".to_owned(),
        Ok(status) => format!("up, with status {status}"),
        Err(failure) => return (failure.to_string(), false),
    };
    let has_route = has_route(engine).await;
    let profiler = match has_route {
        Some(true) => "has a profiler".to_owned(),
        Some(false) => format!(
            "was started without a profiler; start it with {}",
            action::OPTION
        ),
        None => "does not list its routes (/openapi.json)".to_owned(),
    };
    let mut parts = vec![health, profiler];
    match &engine.local {
        None => parts.push("its process is not visible from here".to_owned()),
        Some(local) => {
            parts.push(format!("process {}", local.pid));
            parts.push(match &local.config {
                Config::Given(config) => config.in_words(),
                Config::Missing => {
                    "no --profiler-config on its command line, which vLLM needs".to_owned()
                }
                Config::Hidden => "its command line is hidden by a title".to_owned(),
            });
            parts.push(match local.rpc_timeout {
                RpcTimeout::Set(timeout) => {
                    format!("VLLM_RPC_TIMEOUT is {} s", timeout.as_secs_f64())
                }
                RpcTimeout::Usual => "VLLM_RPC_TIMEOUT is not in its environment".to_owned(),
                RpcTimeout::Unknown => "its VLLM_RPC_TIMEOUT can't be read".to_owned(),
            });
        }
    }
    (parts.join("; "), has_route != Some(false))
}

#[derive(Deserialize)]
struct Api {
    paths: Map<String, Value>,
}

/// Whether it has the path, by its own description. To ask at the path itself may start a profiler.
async fn has_route(engine: &Engine) -> Option<bool> {
    let api: Result<Api, _> = engine.worker.client.json("/openapi.json", LOOK_TIME).await;
    Some(api.ok()?.paths.contains_key("/start_profile"))
}
