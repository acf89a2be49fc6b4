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
    /// What is served under that name, where the server tells.
    root: Option<String>,
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
        self.meant(&models).cloned()
    }

    fn meant<'m>(&self, models: &'m [Model]) -> anyhow::Result<&'m Model> {
        let names = || {
            let names = models.iter().map(|model| model.id.as_str());
            let named: Vec<&str> = names.take(NAMED).collect();
            let rest = if models.len() > NAMED { ", …" } else { "" };
            format!("{}{rest}", named.join(", "))
        };
        let Some(first) = models.first() else {
            bail!("{} has no model", self.url);
        };
        // A script's `MODEL_NAME=` is no name.
        if let Some(name) = self.model.as_ref().filter(|name| !name.is_empty()) {
            let found = models.iter().find(|model| model.id == *name);
            return found
                .with_context(|| format!("{} has no model {name}; it has {}", self.url, names()));
        }
        // A model that is served under several names has one root.
        let is_only = models[1..]
            .iter()
            .all(|model| model.root.is_some() && model.root == first.root);
        match is_only {
            true => Ok(first),
            false => bail!(
                "{} has several models, say which with --model: {}",
                self.url,
                names()
            ),
        }
    }
}

async fn models(client: &Client, patience: Duration) -> Result<Vec<Model>, Failure> {
    let models: Models = client.json("/v1/models", patience).await?;
    Ok(models.data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::parse_url;

    fn endpoint(model: Option<&str>) -> Endpoint {
        Endpoint {
            url: parse_url("http://127.0.0.1:8000").unwrap(),
            model: model.map(str::to_owned),
            chat: false,
            api_key: None,
        }
    }

    fn models(names: &[(&str, Option<&str>)]) -> Vec<Model> {
        let models = names.iter().map(|(id, root)| Model {
            id: (*id).to_owned(),
            max_model_len: None,
            root: root.map(str::to_owned),
        });
        models.collect()
    }

    #[test]
    fn without_a_name_the_only_model_is_meant_under_whatever_names() {
        let only = models(&[("a", None)]);
        for unnamed in [None, Some("")] {
            assert_eq!(endpoint(unnamed).meant(&only).unwrap().id, "a");
        }
        let two_names = models(&[("a", Some("/m")), ("b", Some("/m"))]);
        assert_eq!(endpoint(None).meant(&two_names).unwrap().id, "a");
        assert_eq!(endpoint(Some("b")).meant(&two_names).unwrap().id, "b");
    }

    #[test]
    fn of_several_models_one_must_be_named() {
        let two = models(&[("a", Some("/m")), ("b", Some("/n"))]);
        let several = endpoint(None).meant(&two).unwrap_err().to_string();
        assert!(several.contains("with --model: a, b"), "{several}");
        let unknown = endpoint(Some("c")).meant(&two).unwrap_err().to_string();
        assert!(unknown.contains("has no model c; it has a, b"), "{unknown}");
        let none = endpoint(None).meant(&[]).unwrap_err().to_string();
        assert!(none.contains("has no model"), "{none}");
    }
}
