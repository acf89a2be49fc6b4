//! One request for tokens, and what became of it: when it began, when the first token came, how many
//! there were, and in which of many ways it failed.

use super::client::{Client, Exchange};
use super::events::Events;
use super::failure::Failure;
use super::message::{cut, message_of};
use crate::limits::{ANSWER_BYTES, REFUSAL_BYTES};
use bytes::Bytes;
use memtrace_host::clock;
use memtrace_model::BootNs;
use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, Visitor};
use std::fmt;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// A path such as `/v1/completions`.
    pub(crate) path: &'static str,
    /// The body, in JSON.
    pub(crate) body: Bytes,
    /// How long all of it may take.
    pub(crate) timeout: Duration,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Before the connection was made.
    pub(crate) start: BootNs,
    /// When the first text came; of an answer in one piece unknown.
    pub(crate) first_token: Option<BootNs>,
    pub(crate) end: BootNs,
    /// The HTTP status, if it came to one.
    pub(crate) status: Option<u16>,
    /// As the server counted.
    pub(crate) prompt_tokens: Option<i64>,
    /// As the server counted; where it did not say, the pieces of text that came.
    pub(crate) output_tokens: Option<i64>,
    pub(crate) failure: Option<Failure>,
}

impl Answer {
    fn begun() -> Self {
        let now = clock::boot();
        Self {
            start: now,
            first_token: None,
            end: now,
            status: None,
            prompt_tokens: None,
            output_tokens: None,
            failure: None,
        }
    }
}

/// Sends a request and reads its answer to the end, or until `stop` is ready. Answers in any case.
pub(crate) async fn ask(client: &Client, ask: &Ask, stop: impl Future<Output = ()>) -> Answer {
    let mut answer = Answer::begun();
    let exchange = tokio::time::timeout(ask.timeout, exchange(client, ask, &mut answer));
    let outcome = tokio::select! {
        biased;
        outcome = exchange => Some(outcome),
        () = stop => None,
    };
    answer.end = clock::boot();
    answer.failure = match outcome {
        Some(Ok(outcome)) => outcome.err(),
        Some(Err(_)) => Some(Failure::TimedOut {
            after: ask.timeout,
            has_begun: answer.status.is_some(),
        }),
        None => Some(Failure::Interrupted),
    };
    answer
}

async fn exchange(client: &Client, ask: &Ask, answer: &mut Answer) -> Result<(), Failure> {
    let mut exchange = client.send(ask.path, Some(ask.body.clone())).await?;
    let status = exchange.status();
    answer.status = Some(status);
    let content_type = exchange.content_type();
    if status != 200 {
        return Err(exchange.refused().await);
    }
    match content_type.as_str() {
        "text/event-stream" => stream(&mut exchange, answer).await,
        "application/json" => {
            let whole = exchange.whole(ANSWER_BYTES).await?;
            take(whole.bytes(), answer, &mut Seen::default())?;
            Ok(())
        }
        "" => Err(Failure::Other("of no stated type".to_owned())),
        other => Err(Failure::Other(cut(other))),
    }
}

/// What a stream has shown so far.
#[derive(Debug, Default)]
struct Seen {
    /// Pieces of text.
    pieces: i64,
    /// Whether the server said why it stopped.
    is_finished: bool,
    has_usage: bool,
}

async fn stream(exchange: &mut Exchange, answer: &mut Answer) -> Result<(), Failure> {
    let mut events = Events::default();
    let mut seen = Seen::default();
    while let Some(chunk) = exchange.next().await? {
        events.take(&chunk, |line| {
            if line == b"[DONE]" {
                seen.is_finished = true;
                return Ok(());
            }
            let has_text = take(line, answer, &mut seen)?;
            if has_text && answer.first_token.is_none() {
                answer.first_token = Some(clock::boot());
            }
            if !seen.has_usage && seen.pieces > 0 {
                answer.output_tokens = Some(seen.pieces);
            }
            Ok(())
        })?;
    }
    match (events.is_cut(), seen.is_finished) {
        (true, _) => Err(Failure::Cut("in the midst of a line")),
        (false, false) => Err(Failure::Cut("before the answer was finished")),
        (false, true) => Ok(()),
    }
}

/// Takes a piece of an answer, or all of it. Answers whether there is text in it.
fn take(text: &[u8], answer: &mut Answer, seen: &mut Seen) -> Result<bool, Failure> {
    let piece: Piece = match serde_json::from_slice(text) {
        Ok(piece) => piece,
        Err(error) => {
            let begin = cut(&String::from_utf8_lossy(text));
            return Err(Failure::Malformed(format!("{error}: {begin}")));
        }
    };
    if piece.error.is_some() {
        // Understood as JSON it takes many times its length, and of one so long nobody reads all.
        let begin = text.get(..REFUSAL_BYTES).unwrap_or(text);
        return Err(Failure::Reported(message_of(begin)));
    }
    if piece.choices.is_none() && piece.usage.is_none() {
        let begin = cut(&String::from_utf8_lossy(text));
        return Err(Failure::Malformed(format!(
            "neither choices nor usage: {begin}"
        )));
    }
    if let Some(usage) = piece.usage {
        answer.prompt_tokens = usage.prompt_tokens.or(answer.prompt_tokens);
        answer.output_tokens = usage.completion_tokens.or(answer.output_tokens);
        seen.has_usage |= usage.completion_tokens.is_some();
    }
    let mut has_text = false;
    for choice in piece.choices.iter().flatten() {
        if choice
            .finish_reason
            .as_ref()
            .is_some_and(|reason| reason.is_abort)
        {
            return Err(Failure::Reported(
                "it gave the request up (finish_reason)".to_owned(),
            ));
        }
        seen.is_finished |= choice.finish_reason.is_some();
        has_text |= choice.has_text();
    }
    seen.pieces += i64::from(has_text);
    Ok(has_text)
}

#[derive(Deserialize)]
struct Piece {
    choices: Option<Vec<Choice>>,
    usage: Option<Usage>,
    error: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Usage {
    prompt_tokens: Option<i64>,
    completion_tokens: Option<i64>,
}

#[derive(Deserialize)]
struct Choice {
    text: Option<Text>,
    delta: Option<Part>,
    message: Option<Part>,
    finish_reason: Option<Text>,
}

/// What a model says, and what it thinks where the server tells that apart.
#[derive(Deserialize)]
struct Part {
    content: Option<Text>,
    reasoning: Option<Text>,
    reasoning_content: Option<Text>,
}

impl Choice {
    fn has_text(&self) -> bool {
        let parts = [&self.delta, &self.message].into_iter().flatten();
        let texts =
            parts.flat_map(|part| [&part.content, &part.reasoning, &part.reasoning_content]);
        let mut texts = texts.chain([&self.text]).flatten();
        texts.any(|text| text.is_something)
    }
}

/// A text of which only matters whether there is any, and whether it says that a request was given up.
struct Text {
    is_something: bool,
    is_abort: bool,
}

/// What vLLM and SGLang give as `finish_reason` of a request that they gave up.
const ABORTS: [&str; 2] = ["abort", "error"];

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct IsText;
        impl Visitor<'_> for IsText {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text {
                    is_something: !text.is_empty(),
                    is_abort: ABORTS.contains(&text),
                })
            }
        }
        from.deserialize_str(IsText)
    }
}
