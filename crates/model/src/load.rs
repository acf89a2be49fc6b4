//! Load experiments on their way into a recording: what a phase says of its condition, and the
//! message that tells of a request. docs/marks.md has the format.

use super::mark::{MARK_NAME_BYTES_MAX, MARK_VERSION, MarkError, MarkMessage, cut_at};
use super::tables::{MarkKind, RequestOutcome, RequestRow};
use super::{BootNs, Label, WallNs};
use serde::{Deserialize, Serialize};

/// The longest text about what went wrong.
pub const ERROR_BYTES_MAX: usize = 512;

/// More tokens are in no prompt and no answer.
const TOKENS_MAX: i64 = 1 << 40;

/// The kind of a message about a request.
const KIND: &str = "request";

/// A condition of a load experiment: the attributes of its phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadCondition {
    /// The run of the plan.
    pub load_run: String,
    /// The load generator that it was imported from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generator: Option<String>,
    /// Its number in the plan.
    pub condition: i64,
    /// Tokens of each prompt.
    pub input_tokens: Option<i64>,
    /// Tokens of each output.
    pub output_tokens: Option<i64>,
    /// Requests under way at a time.
    pub concurrency: Option<i64>,
    /// Requests a second; `None` also where they are sent as fast as can be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_rate: Option<f64>,
    /// The part of each prompt that all share.
    pub prefix_reuse: Option<f64>,
    /// How many requests are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<i64>,
    /// What its prompts are made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u32>,
}

impl LoadCondition {
    /// Out of the attributes of a mark; `None` where they are no condition's.
    pub fn of(attributes: &str) -> Option<Self> {
        // Most marks are of other things.
        let may_be = attributes.contains("load_run");
        may_be.then(|| serde_json::from_str(attributes).ok())?
    }
}

/// What was received: a mark, or a request of a load experiment.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// A mark of that kind.
    Mark(MarkMessage, MarkKind),
    /// A request that has ended.
    Request(Box<RequestMessage>),
}

impl Message {
    /// Reads one message.
    ///
    /// # Errors
    /// When the bytes are no message of this version.
    pub fn parse(bytes: &[u8]) -> Result<Self, MarkError> {
        match MarkMessage::parse(bytes) {
            Ok((message, kind)) => Ok(Self::Mark(message, kind)),
            Err(MarkError::Kind(kind)) if kind == KIND => {
                RequestMessage::parse(bytes).map(|request| Self::Request(Box::new(request)))
            }
            Err(error) => Err(error),
        }
    }
}

/// A request that has ended. What is optional is unknown where it is not there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestMessage {
    /// Version of the message: [`MARK_VERSION`].
    pub v: u32,
    /// The word for such messages.
    pub kind: String,
    /// The name of the condition.
    pub name: String,
    /// Its end on CLOCK_BOOTTIME.
    pub boot_ns: i64,
    /// The run of the plan.
    pub load_run: String,
    /// Its number within the condition.
    pub request: i64,
    /// How often it was sent before.
    #[serde(default)]
    pub attempt: i64,
    /// When it was sent.
    pub start_boot_ns: i64,
    /// When the first text came.
    pub first_token_boot_ns: Option<i64>,
    /// Tokens that the prompt should have.
    pub planned_prompt_tokens: Option<i64>,
    /// Tokens that it had.
    pub prompt_tokens: Option<i64>,
    /// Tokens that were asked for.
    pub planned_output_tokens: Option<i64>,
    /// Tokens that came.
    pub output_tokens: Option<i64>,
    /// The HTTP status.
    pub http_status: Option<i32>,
    /// The word of a [`RequestOutcome`].
    pub outcome: String,
    /// Why it failed.
    pub error: Option<String>,
    /// Messages that the sender could not deliver since the last one that went through.
    #[serde(default)]
    pub dropped: u64,
}

impl RequestMessage {
    /// A message about a row, but for its wall-clock time, which the recorder knows.
    pub fn of(row: &RequestRow) -> Self {
        Self {
            v: MARK_VERSION,
            kind: KIND.to_owned(),
            name: row.condition.clone(),
            boot_ns: row.boot_ns.0,
            load_run: row.load_run.clone(),
            request: row.request,
            attempt: row.attempt,
            start_boot_ns: row.start_boot_ns.0,
            first_token_boot_ns: row.first_token_boot_ns.map(|at| at.0),
            planned_prompt_tokens: row.planned_prompt_tokens,
            prompt_tokens: row.prompt_tokens,
            planned_output_tokens: row.planned_output_tokens,
            output_tokens: row.output_tokens,
            http_status: row.http_status,
            outcome: row.outcome.map_or("", RequestOutcome::as_str).to_owned(),
            error: row.error.clone(),
            dropped: 0,
        }
    }

    fn parse(bytes: &[u8]) -> Result<Self, MarkError> {
        let mut message: Self = serde_json::from_slice(bytes)?;
        if message.name.is_empty() {
            return Err(MarkError::Nameless);
        }
        message.check().map_err(MarkError::Request)?;
        cut_at(&mut message.name, MARK_NAME_BYTES_MAX);
        cut_at(&mut message.load_run, MARK_NAME_BYTES_MAX);
        if let Some(error) = &mut message.error {
            cut_at(error, ERROR_BYTES_MAX);
        }
        Ok(message)
    }

    /// What can't be true of any request.
    fn check(&self) -> Result<(), &'static str> {
        let first = self.first_token_boot_ns.unwrap_or(self.start_boot_ns);
        if self.start_boot_ns < 0 || first < self.start_boot_ns || self.boot_ns < first {
            return Err("its times are not in order");
        }
        let counts = [
            Some(self.request),
            Some(self.attempt),
            self.planned_prompt_tokens,
            self.planned_output_tokens,
            self.prompt_tokens,
            self.output_tokens,
        ];
        let is_count = |count: i64| (0..=TOKENS_MAX).contains(&count);
        if !counts.into_iter().flatten().all(is_count) {
            return Err("one of its counts is impossible");
        }
        if !self
            .http_status
            .is_none_or(|status| (100..=999).contains(&status))
        {
            return Err("its HTTP status is impossible");
        }
        match RequestOutcome::from_word(&self.outcome) {
            Some(_) => Ok(()),
            None => Err("its outcome is not known"),
        }
    }

    /// Bytes that it holds outside of itself.
    pub fn heap_bytes(&self) -> usize {
        let texts = [&self.kind, &self.name, &self.load_run, &self.outcome];
        let texts = texts.into_iter().chain(&self.error);
        texts.map(String::capacity).sum()
    }

    /// Its row of the table `request`.
    pub fn row(self, ts: WallNs) -> RequestRow {
        RequestRow {
            ts,
            boot_ns: BootNs(self.boot_ns),
            load_run: self.load_run,
            condition: self.name,
            request: self.request,
            attempt: self.attempt,
            start_boot_ns: BootNs(self.start_boot_ns),
            first_token_boot_ns: self.first_token_boot_ns.map(BootNs),
            planned_prompt_tokens: self.planned_prompt_tokens,
            prompt_tokens: self.prompt_tokens,
            planned_output_tokens: self.planned_output_tokens,
            output_tokens: self.output_tokens,
            http_status: self.http_status,
            outcome: RequestOutcome::from_word(&self.outcome),
            error: self.error,
            time_error_ns: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn row() -> RequestRow {
        RequestRow {
            ts: WallNs(9),
            boot_ns: BootNs(300),
            load_run: "load-1".to_owned(),
            condition: "in8-out4-prefix0-c2".to_owned(),
            request: 1,
            attempt: 0,
            start_boot_ns: BootNs(100),
            first_token_boot_ns: Some(BootNs(200)),
            planned_prompt_tokens: Some(8),
            prompt_tokens: Some(8),
            planned_output_tokens: Some(4),
            output_tokens: None,
            http_status: Some(500),
            outcome: Some(RequestOutcome::Refused),
            error: Some("status 500: no".to_owned()),
            time_error_ns: None,
        }
    }

    fn read(message: &Value) -> Result<Message, MarkError> {
        Message::parse(message.to_string().as_bytes())
    }

    #[test]
    fn a_row_comes_back_as_it_was_sent() {
        let sent = serde_json::to_value(RequestMessage::of(&row())).unwrap();
        let Ok(Message::Request(received)) = read(&sent) else {
            panic!("no request");
        };
        assert_eq!(received.row(WallNs(9)), row());
    }

    #[test]
    fn a_mark_is_read_as_before() {
        let mark = json!({"v": 1, "kind": "instant", "name": "a", "boot_ns": 1});
        assert!(matches!(read(&mark), Ok(Message::Mark(..))));
        let unknown = json!({"v": 1, "kind": "requests", "name": "a", "boot_ns": 1});
        assert!(matches!(read(&unknown), Err(MarkError::Kind(_))));
    }

    #[test]
    fn what_no_request_can_be_is_refused_with_its_reason() {
        let cases = [
            ("start_boot_ns", json!(-1), "times"),
            ("start_boot_ns", json!(301), "times"),
            ("first_token_boot_ns", json!(99), "times"),
            ("boot_ns", json!(i64::MIN), "times"),
            ("request", json!(-1), "count"),
            ("prompt_tokens", json!(i64::MAX), "count"),
            ("http_status", json!(7), "status"),
            ("outcome", json!("fine"), "outcome"),
            ("name", json!(""), "without a name"),
            ("load_run", json!(7), "not a mark"),
        ];
        for (key, value, reason) in cases {
            let mut message = serde_json::to_value(RequestMessage::of(&row())).unwrap();
            message[key] = value;
            let refusal = read(&message).unwrap_err().to_string();
            assert!(refusal.contains(reason), "{key}: {refusal}");
        }
    }

    #[test]
    fn long_texts_are_cut() {
        let mut long = row();
        long.error = Some("ü".repeat(9_000));
        long.condition = "x".repeat(9_000);
        let sent = serde_json::to_value(RequestMessage::of(&long)).unwrap();
        let Ok(Message::Request(received)) = read(&sent) else {
            panic!("no request");
        };
        assert_eq!(received.error.unwrap().len(), ERROR_BYTES_MAX);
        assert_eq!(received.name.len(), MARK_NAME_BYTES_MAX);
    }

    #[test]
    fn attributes_of_a_condition_are_distinguished_from_those_of_other_phases() {
        let condition = LoadCondition {
            generator: None,
            load_run: "load-1".to_owned(),
            condition: 3,
            input_tokens: Some(8_192),
            output_tokens: Some(64),
            concurrency: Some(16),
            request_rate: None,
            prefix_reuse: Some(0.8),
            requests: Some(16),
            seed: None,
        };
        let text = serde_json::to_string(&condition).unwrap();
        assert_eq!(LoadCondition::of(&text), Some(condition));
        for other in [r#"{"step":1}"#, r#"{"load_run":"a"}"#, "load_run"] {
            assert_eq!(LoadCondition::of(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_a_message_or_an_error(bytes: Vec<u8>) {
            let _ = Message::parse(&bytes);
        }
    }
}
