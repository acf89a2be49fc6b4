//! One line of a plan.

use serde::{Deserialize, Serialize};

/// The version of the lines.
pub(crate) const VERSION: u32 = 1;

/// The most tokens of a prompt or an output.
pub(crate) const TOKENS_MAX: usize = 10_000_000;
/// The most requests under way at a time.
pub(crate) const CONCURRENCY_MAX: usize = 4_096;
/// The most requests of one condition.
pub(crate) const REQUESTS_MAX: usize = 1_000_000;

/// Of 4,096 connections each took 42 KiB, of which 16 KiB are the room for an answer.
const CONNECTION_BYTES: u64 = 64 << 10;
/// A word has some seven letters, and a prompt is there twice while it is written as JSON.
const PROMPT_BYTES_PER_TOKEN: u64 = 16;
/// What is kept of a request for the figures of its condition, in a list that doubles as it grows.
const REQUEST_BYTES: u64 = 400;

/// What is sent under one condition. There are no prompts in it: they are made from the seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Condition {
    /// Version of the line: [`VERSION`].
    pub(crate) v: u32,
    /// Its number in the plan, from 0.
    pub(crate) condition: usize,
    /// Its name, which is that of the phase in a recording.
    pub(crate) name: String,
    /// Tokens of each prompt.
    pub(crate) input_tokens: usize,
    /// Tokens of each output.
    pub(crate) output_tokens: usize,
    /// Requests under way at a time.
    pub(crate) concurrency: usize,
    /// The part of each prompt that all prompts of the condition share, from 0 to 1.
    pub(crate) prefix_reuse: f64,
    /// How many requests are sent.
    pub(crate) requests: usize,
    /// What the prompts are made from.
    pub(crate) seed: u32,
}

impl Condition {
    /// The name of a condition with these values.
    pub(crate) fn name_of(input: usize, output: usize, concurrency: usize, reuse: f64) -> String {
        let percent = (reuse * 1e4).round() / 1e2;
        format!("in{input}-out{output}-prefix{percent}-c{concurrency}")
    }

    /// What can't be sent about it.
    pub(crate) fn problem(&self) -> Option<String> {
        let within = |what: &str, value: usize, most: usize| {
            let is_within = (1..=most).contains(&value);
            (!is_within).then(|| format!("{what} is {value}, not between 1 and {most}"))
        };
        if self.v != VERSION {
            let version = self.v;
            return Some(format!("it has version {version}, and not {VERSION}"));
        }
        if self.name.is_empty() || self.name.len() > memtrace_model::MARK_NAME_BYTES_MAX {
            return Some("its name is empty or too long".to_owned());
        }
        if !(0.0..=1.0).contains(&self.prefix_reuse) {
            let reuse = self.prefix_reuse;
            return Some(format!("prefix_reuse is {reuse}, not between 0 and 1"));
        }
        within("input_tokens", self.input_tokens, TOKENS_MAX)
            .or_else(|| within("output_tokens", self.output_tokens, TOKENS_MAX))
            .or_else(|| within("concurrency", self.concurrency, CONCURRENCY_MAX))
            .or_else(|| within("requests", self.requests, REQUESTS_MAX))
    }

    /// What sending it takes of memory whatever the server does: connections, the prompts that are under
    /// way, and a line for each request.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let under_way = self.concurrency.min(self.requests) as u64;
        let prompt = (self.input_tokens as u64).saturating_mul(PROMPT_BYTES_PER_TOKEN);
        let connections = under_way.saturating_mul(CONNECTION_BYTES + prompt);
        connections.saturating_add(self.requests as u64 * REQUEST_BYTES)
    }

    /// How much work it is, for an estimate of the time left: what its requests read and write.
    pub(crate) fn weight(&self) -> u64 {
        let tokens = self.input_tokens as u64 + 10 * self.output_tokens as u64;
        tokens.saturating_mul(self.requests as u64)
    }
}
