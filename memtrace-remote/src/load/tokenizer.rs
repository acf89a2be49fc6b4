//! How many tokens a prompt has: what the server's `/tokenize` says, where it answers, else one for
//! each word.

use super::prompt::Prompts;
use crate::http::{Client, Failure};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// The path that vLLM and SGLang have it at.
const PATH: &str = "/tokenize";

/// A list of all tokens can come with the count.
const ANSWER_MAX: usize = 256 << 20;

/// Lengths that are tried for one prompt.
const TRIES: usize = 6;

/// A prompt is counted within this time.
const PATIENCE: Duration = Duration::from_secs(60);

/// What prompts are measured with.
#[derive(Clone, Debug)]
pub(crate) struct Tokenizer {
    model: String,
    is_chat: bool,
    /// Whether the server counts.
    is_exact: bool,
    /// By how many tokens prompts differed from words, the last time.
    learned: i64,
}

/// A prompt, and what is known of its length before it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fitted {
    /// Its length in words.
    pub(crate) words: usize,
    /// As the server counts; `None` where it does not.
    pub(crate) tokens: Option<usize>,
}

#[derive(Deserialize)]
struct Counted {
    count: usize,
}

impl Tokenizer {
    /// Asks the server whether it counts tokens.
    pub(crate) async fn find(client: &Client, model: &str, is_chat: bool) -> Self {
        let mut tokenizer = Self::by_words(model, is_chat);
        tokenizer.is_exact = tokenizer.count(client, "time").await.is_ok();
        tokenizer
    }

    /// Without asking anybody.
    pub(crate) fn by_words(model: &str, is_chat: bool) -> Self {
        Self {
            model: model.to_owned(),
            is_chat,
            is_exact: false,
            learned: 0,
        }
    }

    /// How lengths are known, in words.
    pub(crate) fn in_words(&self) -> &'static str {
        match self.is_exact {
            true => "by the server's /tokenize",
            false => "about: by words, as the server does not (or not always) answer /tokenize",
        }
    }

    /// The prompt of a request, of so many tokens.
    pub(crate) async fn fit(
        &mut self,
        client: &Client,
        prompts: Prompts,
        request: usize,
        target: usize,
    ) -> Fitted {
        let mut words = self.words_for(target);
        if !self.is_exact {
            return Fitted {
                words,
                tokens: None,
            };
        }
        let mut best: Option<(usize, Fitted)> = None;
        for _ in 0..TRIES {
            let text = prompts.text(request, words);
            let Ok(tokens) = self.count(client, &text).await else {
                // Not asked again: one that hangs would keep every prompt waiting.
                self.is_exact = false;
                return Fitted {
                    words,
                    tokens: None,
                };
            };
            self.learned = tokens as i64 - words as i64;
            let off = tokens.abs_diff(target);
            if best.as_ref().is_none_or(|(least, _)| off < *least) {
                let tokens = Some(tokens);
                best = Some((off, Fitted { words, tokens }));
            }
            let next = self.words_for(target);
            if off == 0 || next == words {
                break;
            }
            words = next;
        }
        best.map_or_else(
            || Fitted {
                words,
                tokens: None,
            },
            |(_, fitted)| fitted,
        )
    }

    /// A prompt has a word at least.
    fn words_for(&self, target: usize) -> usize {
        usize::try_from(target as i64 - self.learned).map_or(1, |words| words.max(1))
    }

    async fn count(&self, client: &Client, text: &str) -> Result<usize, Failure> {
        let body = match self.is_chat {
            true => json!({"model": self.model, "messages": messages(text)}),
            false => json!({"model": self.model, "prompt": text}),
        };
        let body = Bytes::from(body.to_string());
        let counted = async {
            let mut exchange = client.send(PATH, Some(body)).await?;
            let answer = exchange.whole(ANSWER_MAX).await?;
            let status = exchange.status();
            let counted: Result<Counted, _> = serde_json::from_slice(&answer);
            match counted {
                Ok(counted) if status == 200 => Ok(counted.count),
                _ => Err(Failure::Other(format!("of status {status}"))),
            }
        };
        let timed_out = Failure::TimedOut {
            after: PATIENCE,
            has_begun: false,
        };
        let counted = tokio::time::timeout(PATIENCE, counted).await;
        counted.unwrap_or(Err(timed_out))
    }
}

/// A prompt as a chat.
pub(crate) fn messages(text: &str) -> Value {
    json!([{"role": "user", "content": text}])
}
