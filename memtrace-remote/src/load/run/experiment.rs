//! A run of a plan: condition after condition, each with its prompts made before it begins.

use super::closed_loop::{self, Attempt, Load};
use super::progress::Progress;
use super::results::{Manifest, Results, State};
use super::summary::{Summary, Tally};
use crate::http::{Ask, Client};
use crate::load::plan::Condition;
use crate::load::prompt::Prompts;
use crate::load::tokenizer::{Tokenizer, messages};
use crate::recordings::Recordings;
use crate::stop::Stop;
use bytes::Bytes;
use memtrace_host::clock;
use memtrace_model::{RequestOutcome, RequestRow, WallNs};
use serde_json::json;
use std::time::{Duration, Instant};

/// So many prompts of a condition are counted by the server, and no longer than a request may take; the
/// rest are as long as the last of these.
const COUNTED: usize = 4_096;

/// What is run, and how.
#[derive(Clone, Debug)]
pub(crate) struct Experiment {
    pub(crate) run_id: String,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) model: String,
    pub(crate) is_chat: bool,
    pub(crate) is_stream: bool,
    pub(crate) ignores_eos: bool,
    pub(crate) timeout: Duration,
    pub(crate) retries: u32,
    pub(crate) cool_down: Duration,
    /// Whether a terminal shows how far it is.
    pub(crate) has_bar: bool,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Every condition was sent.
    Done {
        /// Requests that were answered.
        answered: usize,
        /// Requests that were not.
        failed: usize,
    },
    /// It was asked to end: Ctrl-C, or SIGTERM.
    Interrupted,
    /// Nobody took connections any more.
    GivenUp {
        /// Conditions that were not sent.
        left: usize,
    },
}

impl Ended {
    /// For a person.
    pub(crate) fn in_words(self) -> String {
        match self {
            Self::Done { answered, failed } => {
                format!("{answered} requests were answered, {failed} failed")
            }
            Self::Interrupted => "ended before the plan was".to_owned(),
            Self::GivenUp { left } => {
                format!(
                    "no connection to the server succeeds any more, and {left} conditions are not sent"
                )
            }
        }
    }
}

/// The prompts of a condition, before it begins.
struct Prepared {
    prompts: Prompts,
    /// The length of each prompt in words; those beyond have the last one's.
    words: Vec<usize>,
    /// Its length in tokens, where the server counts.
    tokens: Vec<Option<usize>>,
}

impl Experiment {
    /// Runs it.
    ///
    /// # Errors
    /// When results can't be written.
    pub(crate) async fn run(
        &self,
        client: &Client,
        mut results: Results,
        mut recordings: Recordings,
        stop: Stop,
    ) -> anyhow::Result<Ended> {
        let mut wish = stop.clone();
        let mut tokenizer = tokio::select! {
            tokenizer = Tokenizer::find(client, &self.model, self.is_chat) => tokenizer,
            // The first condition finds that it is to end.
            () = wish.wished() => Tokenizer::by_words(&self.model, self.is_chat),
        };
        let mut manifest = self.manifest(client, &tokenizer, &recordings);
        results.workload(&self.conditions)?;
        results.manifest(&manifest)?;
        let mut summary = Summary {
            run_id: self.run_id.clone(),
            conditions: Vec::new(),
        };
        let progress = Progress::of(&self.conditions, self.has_bar);
        let (mut answered, mut failed) = (0, 0);
        let mut ended = None;
        for (place, condition) in self.conditions.iter().enumerate() {
            progress.note(condition, 0);
            let prepared = async {
                if place > 0 {
                    tokio::time::sleep(self.cool_down).await;
                }
                self.prepare(client, &mut tokenizer, condition).await
            };
            let prepared = tokio::select! {
                biased;
                () = wish.wished() => {
                    ended = Some(Ended::Interrupted);
                    break;
                }
                prepared = prepared => prepared,
            };
            recordings.begin(&self.run_id, condition);
            let load = self.load(client, condition, &prepared);
            let (mut workers, mut attempts) = closed_loop::start(load, &stop);
            let mut tally = Tally::default();
            let mut first_failure = None;
            let mut done = 0;
            while let Some(attempt) = attempts.recv().await {
                let row = self.row(condition, &prepared, &attempt);
                recordings.request(&row);
                tally.take(&row, attempt.is_last);
                results.request(&row)?;
                if attempt.is_last {
                    first_failure = first_failure.or(attempt.answer.failure);
                    done += 1;
                    progress.note(condition, done);
                    progress.advance(condition);
                }
            }
            while workers.join_next().await.is_some() {}
            recordings.end(condition, tally.answered(), tally.failed());
            answered += tally.answered();
            failed += tally.failed();
            summary.conditions.push(tally.figures(condition));
            results.summary(&summary)?;
            let first_failure = first_failure.map_or_else(String::new, |failure| {
                format!("; the first: {}: {failure}", client.target())
            });
            progress.say(&format!(
                "{} ({} of {}): {} requests answered, {} failed{first_failure}",
                condition.name,
                place + 1,
                self.conditions.len(),
                tally.answered(),
                tally.failed()
            ));
            if stop.is_wished() {
                ended = Some(Ended::Interrupted);
                break;
            }
            let left = self.conditions.len() - place - 1;
            if tally.is_nobody_there() && left > 0 {
                ended = Some(Ended::GivenUp { left });
                break;
            }
        }
        drop(progress);
        let ended = ended.unwrap_or(Ended::Done { answered, failed });
        manifest.state = match ended {
            Ended::Done { .. } => State::Done,
            Ended::Interrupted => State::Interrupted,
            Ended::GivenUp { .. } => State::GivenUp,
        };
        let now = clock::read();
        manifest.end_wall = now.wall_ns.rfc3339();
        manifest.end_wall_ns = Some(now.wall_ns);
        manifest.end_boot_ns = Some(now.boot_ns);
        manifest.unreported_count = recordings.dropped();
        manifest.prompt_length = tokenizer.in_words();
        results.summary(&summary)?;
        results.manifest(&manifest)?;
        Ok(ended)
    }

    fn manifest(
        &self,
        client: &Client,
        tokenizer: &Tokenizer,
        recordings: &Recordings,
    ) -> Manifest {
        let now = clock::read();
        Manifest {
            memtrace_version: env!("CARGO_PKG_VERSION"),
            run_id: self.run_id.clone(),
            state: State::Running,
            url: client.target().to_string(),
            model: self.model.clone(),
            is_chat: self.is_chat,
            is_stream: self.is_stream,
            ignores_eos: self.ignores_eos,
            timeout_s: self.timeout.as_secs_f64(),
            retries: self.retries,
            cool_down_s: self.cool_down.as_secs_f64(),
            condition_count: self.conditions.len(),
            prompt_length: tokenizer.in_words(),
            recordings: recordings.names(),
            unreported_count: 0,
            start_wall: now.wall_ns.rfc3339(),
            start_wall_ns: now.wall_ns,
            start_boot_ns: now.boot_ns,
            end_wall: None,
            end_wall_ns: None,
            end_boot_ns: None,
        }
    }

    /// Finds how long each prompt has to be. This asks the server, so it is done before the condition
    /// begins.
    async fn prepare(
        &self,
        client: &Client,
        tokenizer: &mut Tokenizer,
        condition: &Condition,
    ) -> Prepared {
        let mut prepared = Prepared {
            prompts: Prompts {
                seed: condition.seed,
                prefix_share: condition.prefix_reuse,
            },
            words: Vec::new(),
            tokens: Vec::new(),
        };
        let begun = Instant::now();
        for request in 0..condition.requests.min(COUNTED) {
            if begun.elapsed() >= self.timeout {
                break;
            }
            let target = condition.input_tokens;
            let fitted = tokenizer.fit(client, prepared.prompts, request, target);
            let fitted = fitted.await;
            prepared.words.push(fitted.words);
            prepared.tokens.push(fitted.tokens);
        }
        prepared
    }

    fn load(&self, client: &Client, condition: &Condition, prepared: &Prepared) -> Load {
        let experiment = self.clone();
        let (prompts, words) = (prepared.prompts, prepared.words.clone());
        let output_tokens = condition.output_tokens;
        let make = move |request: usize| {
            let words = words.get(request).or(words.last());
            let text = prompts.text(request, words.copied().unwrap_or(1));
            experiment.ask(&text, output_tokens)
        };
        Load {
            client: client.clone(),
            request_count: condition.requests,
            concurrency: condition.concurrency,
            retries: self.retries,
            make: Box::new(make),
        }
    }

    fn ask(&self, prompt: &str, output_tokens: usize) -> Ask {
        let mut body = json!({
            "model": self.model,
            "max_tokens": output_tokens,
            "temperature": 0,
            "stream": self.is_stream,
        });
        match self.is_chat {
            true => body["messages"] = messages(prompt),
            false => body["prompt"] = prompt.into(),
        }
        if self.is_stream {
            body["stream_options"] = json!({"include_usage": true});
        }
        if self.ignores_eos {
            body["ignore_eos"] = true.into();
        }
        Ask {
            path: match self.is_chat {
                true => "/v1/chat/completions",
                false => "/v1/completions",
            },
            body: Bytes::from(body.to_string()),
            timeout: self.timeout,
        }
    }

    fn row(&self, condition: &Condition, prepared: &Prepared, attempt: &Attempt) -> RequestRow {
        let answer = &attempt.answer;
        let counted = prepared.tokens.get(attempt.request).copied().flatten();
        let failure = answer.failure.as_ref();
        RequestRow {
            // The recorder has its own.
            ts: WallNs::default(),
            boot_ns: answer.end,
            load_run: self.run_id.clone(),
            condition: condition.name.clone(),
            request: attempt.request as i64,
            attempt: attempt.attempt.into(),
            start_boot_ns: answer.start,
            first_token_boot_ns: answer.first_token,
            planned_prompt_tokens: Some(condition.input_tokens as i64),
            prompt_tokens: answer.prompt_tokens.or(counted.map(|count| count as i64)),
            planned_output_tokens: Some(condition.output_tokens as i64),
            output_tokens: answer.output_tokens,
            http_status: answer.status.map(i32::from),
            outcome: Some(failure.map_or(RequestOutcome::Ok, |failure| failure.outcome())),
            error: failure.map(ToString::to_string),
            time_error_ns: None,
        }
    }
}
