//! Sends figures to what takes OTLP over HTTP, and goes on where that is down, slow or lies. Nothing is
//! kept to be sent later: the next figures say more.

use super::figures::{Figures, Now};
use super::otlp::Encoder;
use crate::block_on;
use crate::http::{Client, Failure, Target, parse_url};
use crate::limits::{OTLP_BYTES, OTLP_TIME};
use crate::seconds::parse_seconds;
use crate::stop::Stop;
use anyhow::{Context, anyhow};
use memtrace::cli::say;
use memtrace_analyze::Family;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prost::Message;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

const PATH: &str = "/v1/metrics";
/// What sends once tries so often.
const TRIES: u32 = 4;
/// After a failure that may pass; twice as long after each further one.
const PAUSE: Duration = Duration::from_secs(1);
/// A server that asks for more is asked again after this.
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// What sends once waits no longer than this.
const ONCE_MAX: Duration = Duration::from_secs(60);
/// A failure that lasts is said so often.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// Send to what takes OTLP
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The server that they go to
    #[arg(long, value_name = "URL", value_parser = parse_endpoint)]
    endpoint: Target,

    /// Until stopped, this often in seconds
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    every: Option<Duration>,

    /// A recording, or a directory of recordings
    dir: PathBuf,
}

/// A server as other exporters take it, with or without the path of metrics.
fn parse_endpoint(text: &str) -> Result<Target, String> {
    let server = text.trim().trim_end_matches('/');
    let server = server.strip_suffix(PATH).unwrap_or(server);
    parse_url(server).map_err(|_| {
        "it is not the address of a server that takes OTLP over HTTP: write it like \
         http://localhost:4318, without a name or a query"
            .to_owned()
    })
}

/// Sends once, or until stopped.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = Client::new(args.endpoint.clone(), None)?;
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy().into_owned();
    block_on(async {
        let mut stop = Stop::by_signals().context("failed to wait for signals")?;
        let figures = Figures::open(&args.dir).await?;
        let mut sender = Sender::of(client, host, OTLP_TIME);
        let sending = async {
            match args.every {
                None => sender.once(&figures.now().await?.families, PAUSE).await,
                Some(every) => sender.keep_up(async || figures.now().await, every).await,
            }
        };
        tokio::select! {
            sent = sending => sent?,
            () = stop.wished() => {}
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// What sends figures to one server.
pub(super) struct Sender {
    client: Client,
    encoder: Encoder,
    patience: Duration,
    /// When a failure was said that lasts.
    said: Option<Instant>,
}

/// Why figures did not arrive.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    /// There was no answer that says so.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// Some of them were not taken.
    #[error("it did not take {count} of them: {why}")]
    Partly {
        /// How many points it refused.
        count: i64,
        /// In the server's words.
        why: String,
    },
}

impl Refused {
    /// Whether the same can arrive later: <https://opentelemetry.io/docs/specs/otlp/#failures-1>.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Failure(Failure::Status { status, .. }) => {
                matches!(status, 429 | 502 | 503 | 504)
            }
            Self::Failure(
                Failure::Connect(_)
                | Failure::BrokenBefore(_)
                | Failure::BrokenWithin(_)
                | Failure::TimedOut { .. },
            ) => true,
            Self::Failure(_) | Self::Partly { .. } => false,
        }
    }

    /// How long the server asks to wait, as far as that is heeded.
    fn pause(&self) -> Option<Duration> {
        match self {
            Self::Failure(Failure::Status { retry_after, .. }) => {
                retry_after.map(|pause| pause.min(PAUSE_MAX))
            }
            _ => None,
        }
    }
}

impl Sender {
    /// What sends figures of a host, and waits so long for an answer.
    pub(super) fn of(client: Client, host: String, patience: Duration) -> Self {
        Self {
            client: client.with_bodies_of("application/x-protobuf"),
            encoder: Encoder::of(host, now_ns()),
            patience,
            said: None,
        }
    }

    /// Sends these figures.
    ///
    /// # Errors
    /// When they do not arrive, or not all.
    pub(super) async fn send(&mut self, families: &[Family]) -> Result<(), Refused> {
        let request = self.encoder.request(families, now_ns());
        let body = request.encode_to_vec().into();
        let within = (self.patience, OTLP_BYTES);
        let answer = self.client.bytes_to(PATH, body, within).await?;
        let answer = ExportMetricsServiceResponse::decode(answer);
        let answer = answer.map_err(|error| Failure::Malformed(error.to_string()))?;
        match answer.partial_success {
            Some(partly) if partly.rejected_data_points != 0 => Err(Refused::Partly {
                count: partly.rejected_data_points,
                why: partly.error_message.chars().take(300).collect(),
            }),
            _ => Ok(()),
        }
    }

    /// Sends these figures, a few times where that fails in a way that may pass.
    ///
    /// # Errors
    /// When they do not arrive.
    pub(super) async fn once(
        &mut self,
        families: &[Family],
        mut pause: Duration,
    ) -> anyhow::Result<()> {
        for left in (0..TRIES).rev() {
            let Err(refused) = self.send(families).await else {
                break;
            };
            let asked = refused.pause().unwrap_or_default();
            if left == 0 || !refused.may_pass() || asked > ONCE_MAX {
                let server = self.client.target();
                return Err(anyhow!("failed to send figures to {server}: {refused}"));
            }
            tokio::time::sleep(asked.max(pause)).await;
            pause *= 2;
        }
        Ok(())
    }

    /// Sends what is newest so often, until nothing more comes.
    ///
    /// # Errors
    /// When the figures can't be read.
    pub(super) async fn keep_up(
        &mut self,
        mut figures: impl AsyncFnMut() -> anyhow::Result<Arc<Now>>,
        every: Duration,
    ) -> anyhow::Result<()> {
        let mut pause = PAUSE;
        loop {
            let now = figures().await?;
            let sent = self.send(&now.families).await;
            if now.is_over {
                self.tell(sent);
                return Ok(());
            }
            let wait = match &sent {
                Err(refused) if refused.may_pass() => {
                    let wait = pause.min(every);
                    pause = every.min(2 * pause);
                    wait.max(refused.pause().unwrap_or_default())
                }
                _ => {
                    pause = PAUSE;
                    every
                }
            };
            self.tell(sent);
            rest(&mut figures, wait, every).await?;
        }
    }

    /// Says that it began to fail, from time to time that it still does, and that it does no longer.
    fn tell(&mut self, sent: Result<(), Refused>) {
        let server = self.client.target();
        match sent {
            Ok(()) => {
                if self.said.take().is_some() {
                    say(&format!("figures arrive at {server} again"));
                }
            }
            Err(refused) => {
                if self.said.is_none_or(|said| said.elapsed() >= SAY_EVERY) {
                    say(&format!("failed to send figures to {server}: {refused}"));
                    self.said = Some(Instant::now());
                }
            }
        }
    }
}

/// Waits, and looks so often at the figures: they have to be seen, and where nothing more comes the wait
/// is over.
async fn rest(
    figures: &mut impl AsyncFnMut() -> anyhow::Result<Arc<Now>>,
    wait: Duration,
    every: Duration,
) -> anyhow::Result<()> {
    let begin = Instant::now();
    loop {
        let left = wait.saturating_sub(begin.elapsed());
        tokio::time::sleep(left.min(every)).await;
        if left <= every || figures().await?.is_over {
            return Ok(());
        }
    }
}

fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_that_a_server_asks_for_has_a_maximum() {
        let pause = |seconds: Option<u64>| {
            let refused = Refused::Failure(Failure::Status {
                status: 429,
                message: String::new(),
                retry_after: seconds.map(Duration::from_secs),
            });
            refused.pause()
        };
        assert_eq!(pause(None), None);
        assert_eq!(pause(Some(599)), Some(Duration::from_secs(599)));
        assert_eq!(pause(Some(3600)), Some(PAUSE_MAX));
    }

    #[test]
    fn an_endpoint_is_taken_with_and_without_the_path_of_metrics() {
        for text in [
            "http://collector:4318",
            "http://collector:4318/",
            "http://collector:4318/v1/metrics",
        ] {
            let target = parse_endpoint(text).expect(text);
            assert_eq!(target.path(PATH), PATH, "{text}");
            assert_eq!((&*target.host, target.port), ("collector", 4318));
        }
        let below = parse_endpoint("https://host/otlp/v1/metrics").expect("a URL");
        assert_eq!(below.path(PATH), "/otlp/v1/metrics");
        for text in ["collector:4318", "grpc://collector", "", "http://a:b@host"] {
            let refused = parse_endpoint(text).expect_err(text);
            assert!(refused.contains("http://localhost:4318"), "{refused}");
        }
    }
}
