//! Why a server did not do what it was asked, and what helps.

use super::action::Action;
use super::workers::is_router;
use crate::http::{Client, Failure};

/// What keeps a front end from giving up, and how to have it there.
pub(super) const RPC_TIMEOUT: &str = "start the server with VLLM_RPC_TIMEOUT=1800000 (milliseconds) \
    in its environment; a shell's export does not reach Ray's workers, there it belongs in env_vars \
    of the runtime environment";

/// In words of its own for each way to fail.
pub(super) async fn in_words(action: Action, client: &Client, failure: &Failure) -> String {
    let is_stop = matches!(action, Action::StopProfile(_));
    match failure {
        Failure::Status { status, .. }
            if [404, 405, 503].contains(status) && is_router(client).await =>
        {
            format!(
                "it is a router ({status}): name it with --router, and its \
                 servers are asked"
            )
        }
        Failure::Status { status: 404, .. } => format!("404: {}", action.missing()),
        Failure::Status {
            status: 503,
            message,
            ..
        } => format!(
            "the server itself answers 503 ({message}): its engine is not ready yet, or has died"
        ),
        failure if is_stop && has_given_up(failure) => format!(
            "the server gave up before its workers had written their traces, which may be incomplete \
             ({failure}): {RPC_TIMEOUT}, or profile fewer requests"
        ),
        Failure::TimedOut { .. } if is_stop => {
            format!("{failure}: it may still be writing its traces; --timeout waits longer")
        }
        Failure::Connect(_) => format!(
            "{failure}: no server is there any more, or not yet; ports change with each job, read \
             them from the log of the one that runs (--from-log FILE)"
        ),
        failure => failure.to_string(),
    }
}

/// Whether the server ended the wait, and not this program.
fn has_given_up(failure: &Failure) -> bool {
    match failure {
        Failure::BrokenBefore(_) | Failure::BrokenWithin(_) => true,
        Failure::Status { status: 504, .. } => true,
        Failure::Status {
            status: 500,
            message,
            ..
        } => {
            let message = message.to_ascii_lowercase();
            ["timeout", "timed out", "time out"]
                .iter()
                .any(|word| message.contains(word))
        }
        _ => false,
    }
}
