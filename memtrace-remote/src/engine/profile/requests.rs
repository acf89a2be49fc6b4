//! A few completions, so that there are iterations to profile.

use crate::engine::engines::Engine;
use crate::http::{Ask, Failure, ask};
use crate::load::endpoint::Endpoint;
use crate::stop::Stop;
use bytes::Bytes;
use memtrace::cli::say;
use serde_json::json;
use std::time::Duration;
use tokio::task::JoinSet;

/// A few tokens come within this, also under a profiler, and where `--timeout` is no shorter.
const PATIENCE: Duration = Duration::from_secs(300);
const TOKENS: u32 = 32;

/// What became of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    answered: usize,
    failed: usize,
}

impl Sent {
    pub(super) fn in_words(self) -> String {
        let Self { answered, failed } = self;
        format!("{answered} requests were answered within the window, {failed} failed")
    }

    /// Whether one was answered, or none was asked for.
    pub(super) fn is_well(self) -> bool {
        self.answered > 0 || self.failed == 0
    }
}

/// Sends so many, in turn to each server and all at once. Says of those that failed.
pub(super) async fn send(
    engines: &[Engine],
    count: usize,
    (model, timeout): (Option<&str>, Duration),
    stop: &Stop,
) -> Sent {
    let mut requests = JoinSet::new();
    for engine in engines.iter().cycle().take(count).cloned() {
        let model = model.map(ToOwned::to_owned);
        let mut stop = stop.clone();
        requests.spawn(async move {
            let shown = engine.worker.shown();
            (
                shown,
                one(&engine, model, timeout.min(PATIENCE), &mut stop).await,
            )
        });
    }
    let mut sent = Sent {
        answered: 0,
        failed: 0,
    };
    while let Some(ended) = requests.join_next().await {
        match ended {
            Ok((_, Ok(()))) => sent.answered += 1,
            Ok((shown, Err(reason))) => {
                say(&format!("{shown}: a request failed: {reason}"));
                sent.failed += 1;
            }
            Err(_) => sent.failed += 1,
        }
    }
    sent
}

async fn one(
    engine: &Engine,
    model: Option<String>,
    timeout: Duration,
    stop: &mut Stop,
) -> Result<(), String> {
    let client = &engine.worker.client;
    let endpoint = Endpoint {
        url: client.target().clone(),
        model,
        chat: false,
        // The client has it.
        api_key: None,
    };
    let model = endpoint.meant_model(client, timeout).await;
    let model = model.map_err(|error| format!("{error:#}"))?;
    let body = json!({
        "model": model.id,
        "prompt": "Once upon a time",
        "max_tokens": TOKENS,
        "ignore_eos": true,
    });
    let request = Ask {
        path: "/v1/completions",
        body: Bytes::from(body.to_string()),
        timeout,
    };
    let failure: Option<Failure> = ask(client, &request, stop.wished()).await.failure;
    failure.map_or(Ok(()), |failure| Err(failure.to_string()))
}
