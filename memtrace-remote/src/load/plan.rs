//! `memtrace load plan`: writes a grid of conditions, one line of JSON each.

mod condition;
mod grid;
mod read;

pub(crate) use condition::{CONCURRENCY_MAX, Condition, REQUESTS_MAX, TOKENS_MAX};
pub(crate) use grid::{Grid, lines};
pub(crate) use read::read;

use anyhow::{Context, bail};
use memtrace::cli::say;
use std::collections::HashSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// The part of a prompt that `high` shares.
const HIGH: f64 = 0.8;

/// Write a plan: every combination of prompt length, output length, prefix and concurrency
///
/// The file has one line of JSON for each condition and no prompts: they are made from its seed when
/// they are sent. The same options give the same bytes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where it goes; `-` is stdout
    #[arg(short, long, value_name = "FILE", default_value = "plan.jsonl")]
    output: PathBuf,

    /// Tokens of the prompts
    #[arg(long, value_name = "N,…", value_delimiter = ',', env = "INPUT_LENS",
          default_value = "8192,16384,32768", value_parser = tokens)]
    input_lens: Vec<usize>,

    /// Tokens of the outputs
    #[arg(long, value_name = "N,…", value_delimiter = ',', env = "OUTPUT_LENS",
          default_value = "64,128", value_parser = tokens)]
    output_lens: Vec<usize>,

    /// Requests in flight at a time
    #[arg(long, value_name = "N,…", value_delimiter = ',', env = "CONCURRENCIES",
          default_value = "8,16,32,64", value_parser = concurrency)]
    concurrencies: Vec<usize>,

    /// Which part of each prompt all prompts of a condition share: low (0), high (0.8), or a number
    /// from 0 to 1
    #[arg(long, value_name = "SHARE,…", value_delimiter = ',', env = "PREFIX_MODES",
          default_value = "low,high", value_parser = share)]
    prefix_reuse: Vec<f64>,

    /// Requests of each condition; fewer than its concurrency never reach it [default: as many as its
    /// concurrency]
    #[arg(long, value_name = "N", env = "N_PER_CONDITION", alias = "per-condition",
          value_parser = requests)]
    requests_per_condition: Option<usize>,

    /// The seed that prompts are made from
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u32,
}

/// Writes it.
///
/// # Errors
/// When a value is given twice, or the file can't be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let grid = Grid {
        input_tokens: args.input_lens.clone(),
        output_tokens: args.output_lens.clone(),
        concurrencies: args.concurrencies.clone(),
        prefix_reuse: args.prefix_reuse.clone(),
        requests_per_condition: args.requests_per_condition,
        seed: args.seed,
    };
    let conditions = grid.conditions();
    let names: HashSet<&str> = conditions.iter().map(|one| one.name.as_str()).collect();
    if names.len() < conditions.len() {
        bail!("a value is given twice, and its conditions could not be distinguished");
    }
    let text = lines(&conditions)?;
    if args.output.as_os_str() == "-" {
        let written = std::io::stdout().lock().write_all(text.as_bytes());
        written.context("failed to write to stdout")?;
        return Ok(ExitCode::SUCCESS);
    }
    std::fs::write(&args.output, text)
        .with_context(|| format!("failed to write {}", args.output.display()))?;
    say(&written(&conditions, args));
    Ok(ExitCode::SUCCESS)
}

/// What was written, for a person: how many requests, and why so many.
fn written(conditions: &[Condition], args: &Args) -> String {
    let requests: usize = conditions.iter().map(|one| one.requests).sum();
    let each = match args.requests_per_condition {
        Some(1) => "1 request each".to_owned(),
        Some(count) => format!("{count} requests each"),
        None => "as many requests as its concurrency each: --requests-per-condition".to_owned(),
    };
    let short = conditions
        .iter()
        .filter(|one| one.requests < one.concurrency);
    let unreached = match short.count() {
        0 => String::new(),
        count => format!("; {count} have fewer than their concurrency, and don't reach it"),
    };
    format!(
        "{} conditions with {requests} requests ({each}) are in {}{unreached}",
        conditions.len(),
        args.output.display()
    )
}

fn tokens(text: &str) -> Result<usize, String> {
    count(text, TOKENS_MAX)
}

fn concurrency(text: &str) -> Result<usize, String> {
    count(text, CONCURRENCY_MAX)
}

fn requests(text: &str) -> Result<usize, String> {
    count(text, REQUESTS_MAX)
}

fn count(text: &str, most: usize) -> Result<usize, String> {
    let count = text.trim().parse().ok();
    let count = count.filter(|count| (1..=most).contains(count));
    count.ok_or_else(|| format!("must be a whole number from 1 to {most}"))
}

fn share(text: &str) -> Result<f64, String> {
    match text.trim() {
        "low" => Ok(0.0),
        "high" => Ok(HIGH),
        text => {
            let share = text.parse().ok();
            let share = share.filter(|share| (0.0..=1.0).contains(share));
            share.ok_or_else(|| "must be low, high, or a number from 0 to 1".to_owned())
        }
    }
}
