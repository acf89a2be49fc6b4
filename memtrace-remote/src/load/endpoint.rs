//! The server that a command is about, as a person names it, and what it says it has.

use crate::http::{Client, Failure, Target, parse_url};
use anyhow::{Context, bail};
use serde::Deserialize;
use std::time::Duration;

/// A list of models is there within this time, and where `--timeout` is no shorter.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// So many models are named.
const NAMED: usize = 20;

/// The server that is asked.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Endpoint {
    /// The server, with or without /v1
    #[arg(long, value_name = "URL", env = "VLLM_URL", default_value = "http://localhost:8000",
          value_parser = parse_url)]
    pub(crate) url: Target,

    /// The model [default: the only one that the server has]
    #[arg(long, value_name = "NAME", env = "MODEL_NAME")]
    pub(crate) model: Option<String>,

    /// Send chats (/v1/chat/completions) instead of prompts (/v1/completions)
    #[arg(long)]
    pub(crate) chat: bool,

    /// The API key of the server
    #[arg(
        long,
        value_name = "KEY",
        env = "OPENAI_API_KEY",
        hide_env_values = true
    )]
    pub(crate) api_key: Option<String>,
}

/// A model that a server has.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Model {
    pub(crate) id: String,
    /// The most tokens of a prompt and its output together, where the server tells.
    pub(crate) max_model_len: Option<usize>,
}

#[derive(Deserialize)]
struct Models {
    data: Vec<Model>,
}

impl Endpoint {
    /// What speaks with it.
    ///
    /// # Errors
    /// When the key can't be sent.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        Client::new(self.url.clone(), self.api_key.as_deref())
    }

    /// The model that is meant, as the server knows it.
    ///
    /// # Errors
    /// When the server does not answer, has no such model, or has several and none was named.
    pub(crate) async fn meant_model(
        &self,
        client: &Client,
        timeout: Duration,
    ) -> anyhow::Result<Model> {
        let models = models(client, timeout.min(PATIENCE)).await;
        let models =
            models.with_context(|| format!("failed to ask {} for its models", self.url))?;
        let names = || {
            let names = models.iter().map(|model| model.id.as_str());
            let named: Vec<&str> = names.take(NAMED).collect();
            let rest = if models.len() > NAMED { ", …" } else { "" };
            format!("{}{rest}", named.join(", "))
        };
        match (&self.model, models.as_slice()) {
            (_, []) => bail!("{} has no model", self.url),
            (None, [only]) => Ok(only.clone()),
            (None, _) => bail!(
                "{} has several models, say which with --model: {}",
                self.url,
                names()
            ),
            (Some(name), _) => match models.iter().find(|model| model.id == *name) {
                Some(model) => Ok(model.clone()),
                None => bail!("{} has no model {name}; it has {}", self.url, names()),
            },
        }
    }
}

async fn models(client: &Client, patience: Duration) -> Result<Vec<Model>, Failure> {
    let models: Models = client.json("/v1/models", patience).await?;
    Ok(models.data)
}
