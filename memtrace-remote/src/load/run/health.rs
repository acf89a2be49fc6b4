//! Waits for a server that starts.

use super::server_process::ServerProcess;
use crate::http::Client;
use crate::stop::Stop;
use anyhow::bail;
use memtrace::cli::say;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Between two looks.
const PERIOD: Duration = Duration::from_millis(500);
/// How long one look may take, where there is so much time left.
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
    let left = || patience.saturating_sub(start.elapsed());
    loop {
        let found = tokio::select! {
            found = client.status("/health", LOOK.min(left())) => found,
            () = stop.wished() => return Ok(()),
        };
        // Not every engine has that path.
        if let Ok(200 | 404) = found {
            if has_said {
                let seconds = start.elapsed().as_secs();
                say(&format!("{} is ready after {seconds} s", client.target()));
            }
            return Ok(());
        }
        if server.is_some_and(ServerProcess::has_ended) {
            bail!("the server ended before it was ready");
        }
        if left().is_zero() {
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
                    Ok(status) => format!("it answers {status}"),
                    Err(failure) => failure.to_string(),
                }
            ));
        }
        tokio::select! {
            () = sleep(PERIOD.min(left())) => {}
            () = stop.wished() => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::parse_url;
    use std::net::TcpListener;

    #[test]
    fn a_server_that_does_not_answer_is_waited_for_no_longer_than_it_is_said() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let client = Client::new(parse_url(&url).expect("a URL"), None).expect("a client");
        let start = std::time::Instant::now();
        let waited = crate::block_on(async {
            let mut stop = Stop::by_signals().expect("signals");
            awaited(&client, Duration::from_millis(700), None, &mut stop).await
        });
        let refused = waited.expect_err("nobody answers").to_string();
        assert!(refused.ends_with("is not ready after 0.7 s"), "{refused}");
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "{:?}",
            start.elapsed()
        );
    }
}
