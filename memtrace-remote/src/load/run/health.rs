//! Waits for a server that starts.

use super::server_process::ServerProcess;
use crate::http::{Client, Failure};
use crate::stop::Stop;
use anyhow::bail;
use memtrace::cli::say;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Between two looks.
const PERIOD: Duration = Duration::from_millis(500);
/// How long one look may take.
const LOOK: Duration = Duration::from_secs(10);

/// Waits until the server says that it is well, or that it is to end.
///
/// # Errors
/// When it is not within `patience`, or its process ends before.
pub(super) async fn awaited(
    client: &Client,
    patience: Duration,
    server: Option<&ServerProcess>,
    stop: &mut Stop,
) -> anyhow::Result<()> {
    let start = Instant::now();
    let mut has_said = false;
    loop {
        let look = timeout(LOOK, status(client));
        let found = tokio::select! {
            found = look => found,
            () = stop.wished() => return Ok(()),
        };
        // Not every engine has that path.
        if let Ok(Ok(200 | 404)) = found {
            if has_said {
                let seconds = start.elapsed().as_secs();
                say(&format!("{} is ready after {seconds} s", client.target()));
            }
            return Ok(());
        }
        if server.is_some_and(ServerProcess::has_ended) {
            bail!("the server ended before it was ready");
        }
        if start.elapsed() > patience {
            bail!(
                "{} is not ready after {} s",
                client.target(),
                patience.as_secs_f64()
            );
        }
        if !has_said {
            has_said = true;
            say(&format!(
                "waiting for {}/health, at most {} s: {}",
                client.target(),
                patience.as_secs_f64(),
                match found {
                    Ok(Ok(status)) => format!("it answers {status}"),
                    Ok(Err(failure)) => failure.to_string(),
                    Err(_) => format!("no answer within {} s", LOOK.as_secs()),
                }
            ));
        }
        tokio::select! {
            () = sleep(PERIOD) => {}
            () = stop.wished() => return Ok(()),
        }
    }
}

async fn status(client: &Client) -> Result<u16, Failure> {
    Ok(client.send("/health", None).await?.status())
}
