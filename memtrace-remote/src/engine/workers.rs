//! Which servers a command is about: those that a router names, those that a person names, and those
//! whose addresses a log tells.

use super::from_log::{self, Address};
use crate::http::{Client, Failure, Target, parse_url};
use crate::limits::{LOOK_TIME, SERVERS};
use anyhow::{Context, bail};
use futures_util::stream::{self, StreamExt};
use serde::Deserialize;
use std::path::PathBuf;

/// Of an address that is none no more is reported.
const URL_CHARS: usize = 200;
/// So many servers are looked at at a time.
const AT_ONCE: usize = 64;

/// The servers that are asked.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Servers {
    /// A router, whose workers are asked (GET /workers)
    #[arg(long, value_name = "URL", value_parser = parse_url, conflicts_with_all = ["url", "from_log"])]
    router: Option<Target>,

    /// A server; may be repeated [default: http://localhost:8000]
    #[arg(long, value_name = "URL", value_parser = parse_url, conflicts_with = "from_log")]
    url: Vec<Target>,

    /// Take the router, else the servers, from a log: the last addresses in it
    #[arg(long, value_name = "FILE")]
    from_log: Option<PathBuf>,

    /// The API key of the servers
    #[arg(
        long,
        value_name = "KEY",
        env = "OPENAI_API_KEY",
        hide_env_values = true
    )]
    api_key: Option<String>,
}

/// One of them.
#[derive(Clone)]
pub(crate) struct Worker {
    pub(crate) client: Client,
    /// What its router holds of it; `None` where there is no router, or it does not say.
    pub(crate) is_healthy: Option<bool>,
}

impl Worker {
    /// What a person knows it by.
    pub(crate) fn shown(&self) -> String {
        self.client.target().to_string()
    }
}

#[derive(Deserialize)]
struct Listed {
    workers: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    url: String,
    is_healthy: Option<bool>,
}

impl Servers {
    /// All that are meant.
    ///
    /// # Errors
    /// When a router does not tell, has none, or the log has no address.
    pub(crate) async fn workers(&self) -> anyhow::Result<Vec<Worker>> {
        let (router, urls) = match &self.from_log {
            Some(path) => match from_log::read(path)? {
                Address::Router(router) => (Some(router), Vec::new()),
                Address::Servers(urls) => (None, urls),
            },
            None => (self.router.clone(), self.url.clone()),
        };
        match (router, urls.as_slice()) {
            (Some(router), _) => self.behind(router).await,
            (None, []) => {
                let usual = parse_url("http://localhost:8000").map_err(anyhow::Error::msg)?;
                Ok(vec![self.worker(usual, None)?])
            }
            (None, urls) => urls
                .iter()
                .map(|url| self.worker(url.clone(), None))
                .collect(),
        }
    }

    fn worker(&self, target: Target, is_healthy: Option<bool>) -> anyhow::Result<Worker> {
        Ok(Worker {
            client: Client::new(target, self.api_key.as_deref())?,
            is_healthy,
        })
    }

    async fn behind(&self, router: Target) -> anyhow::Result<Vec<Worker>> {
        let client = Client::new(router.clone(), self.api_key.as_deref())?;
        let listed = match list(&client).await {
            Ok(listed) => listed,
            Err(failure) => bail!("{}", of_router(&router, &failure)),
        };
        if listed.workers.is_empty() {
            bail!(
                "the router at {router} has no worker: its engines have not started yet, or are another job's"
            );
        }
        let count = listed.workers.len();
        if count > SERVERS {
            bail!(
                "the router at {router} names {count} workers, and no more than {SERVERS} are \
                 asked: name those to ask with --url"
            );
        }
        let workers = listed.workers.into_iter().map(|entry| {
            let doing = || {
                let url: String = entry.url.chars().take(URL_CHARS).collect();
                format!("the router at {router} names a worker {url:?}")
            };
            let target = parse_url(&entry.url).map_err(anyhow::Error::msg);
            self.worker(target.with_context(doing)?, entry.is_healthy)
        });
        workers.collect()
    }
}

async fn list(client: &Client) -> Result<Listed, Failure> {
    client.json("/workers", LOOK_TIME).await
}

/// Looks at all of them, some at once, and hands out in their order what was seen.
pub(super) async fn looked_at<T, S>(
    all: &[T],
    look: impl AsyncFn(&T) -> S,
    mut each: impl FnMut(&T, S),
) {
    let look = &look;
    let looks = stream::iter(all).map(|one| async move { (one, look(one).await) });
    let mut looks = std::pin::pin!(looks.buffered(AT_ONCE));
    while let Some((one, seen)) = looks.next().await {
        each(one, seen);
    }
}

/// Whether it is a router: a server has no workers to tell of.
pub(super) async fn is_router(client: &Client) -> bool {
    list(client).await.is_ok()
}

/// Why a router tells of no workers.
fn of_router(router: &Target, failure: &Failure) -> String {
    match failure {
        Failure::Status {
            status: 503,
            message,
            ..
        } => format!(
            "the router at {router} answers 503 itself ({message}): it considers none of its \
             workers healthy, or belongs to another job, since a router's port may change with \
             every job. Name the servers with --url"
        ),
        Failure::Status { status: 404, .. } => format!(
            "{router} does not list workers (404): it is not a router that can. If it is a \
             server, name it with --url"
        ),
        Failure::Connect(reason) => format!(
            "no router takes connections at {router} ({reason}): the port changes with each job, \
             read it from the log of the one that runs (--from-log FILE), or name its servers with \
             --url"
        ),
        failure => format!("the router at {router} does not list its workers: {failure}"),
    }
}
