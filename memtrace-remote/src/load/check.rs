//! `memtrace load check`: whether a plan can be run on a server, without sending load.

use super::endpoint::{Endpoint, Model, PATIENCE};
use super::plan::{self, Condition};
use super::tokenizer::Tokenizer;
use crate::block_on;
use anyhow::bail;
use memtrace::cli::say;
use std::path::PathBuf;
use std::process::ExitCode;

/// So many conditions that do not fit are named.
const NAMED: usize = 5;

/// Say whether a plan can be run on a server, without sending load
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit status: 0; 1 when a line of the plan is wrong, the server does not answer, lacks the model, or
a condition is longer than the model takes.")]
pub(crate) struct Args {
    /// The plan to check
    #[arg(value_name = "PLAN")]
    plan: PathBuf,

    #[command(flatten)]
    endpoint: Endpoint,
}

/// Checks.
///
/// # Errors
/// When the plan can't be run.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let conditions = plan::read(&args.plan)?;
    let requests: usize = conditions.iter().map(|one| one.requests).sum();
    say(&format!(
        "{} has {} conditions with {requests} requests",
        args.plan.display(),
        conditions.len()
    ));
    block_on(async {
        let client = args.endpoint.client()?;
        let model = args.endpoint.meant_model(&client, PATIENCE).await?;
        let most = match model.max_model_len {
            Some(most) => format!(", which takes {most} tokens"),
            None => String::new(),
        };
        say(&format!(
            "{} has the model {}{most}",
            args.endpoint.url, model.id
        ));
        let tokenizer = Tokenizer::find(&client, &model.id, args.endpoint.chat).await;
        say(&format!(
            "the length of prompts is known {}",
            tokenizer.in_words()
        ));
        fits(&conditions, &model)?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Whether the model takes every condition.
///
/// # Errors
/// When it does not.
pub(super) fn fits(conditions: &[Condition], model: &Model) -> anyhow::Result<()> {
    let Some(most) = model.max_model_len else {
        return Ok(());
    };
    let is_over = |one: &&Condition| one.input_tokens + one.output_tokens > most;
    let over: Vec<&Condition> = conditions.iter().filter(is_over).collect();
    if over.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = over
        .iter()
        .take(NAMED)
        .map(|one| one.name.as_str())
        .collect();
    let rest = match over.len() > NAMED {
        true => ", …",
        false => "",
    };
    bail!(
        "{} of {} conditions are longer than the {most} tokens that {} takes: {}{rest}",
        over.len(),
        conditions.len(),
        model.id,
        names.join(", ")
    )
}
