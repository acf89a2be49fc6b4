//! `memtrace diff`: two recordings against each other, and an exit code for CI.

use super::progress::Progress;
use super::report::{Wanted, Writing, analyzed};
use crate::analyze::{Diff, DiffReport};
use std::path::PathBuf;
use std::process::ExitCode;

/// The exit status when something rose by more than `--fail-above` allows.
const EXIT_ABOVE: u8 = 3;

const AFTER_HELP: &str = "\
Example:
  memtrace diff before after --fail-above 5%

Exit status: 0; 3 when --fail-above is given and something rose by more than that, or the command
of B failed and that of A did not; 1 after an error, 2 after a wrong use.

Compared are the peak and the mean of the RSS of all processes together, and of every role that
holds at least 5 % of the whole in either recording; what they hold on GPUs; and, of numbered
phases, what memory grows by from step to step. A role that is new in B rose from nothing. A rise
within what the figures can be off is none, and RSS that was observed in two ways (bpf and polling)
is not judged.";

/// Compare two recordings by role and kind of memory: peak, mean and growth
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// The recording before
    #[arg(value_name = "A")]
    before: PathBuf,
    /// The recording after
    #[arg(value_name = "B")]
    after: PathBuf,
    #[command(flatten)]
    writing: Writing,
    /// End with status 3 when a peak, a mean or a slope per step rose by more than this (5%), or B newly failed
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, allow_hyphen_values = true)]
    fail_above: Option<f64>,
}

/// Compares.
pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let format = args.writing.format()?;
    let progress = Progress::of("reading two recordings");
    // Beside each other: most of the time goes into reading.
    let [before, after] = std::thread::scope(|scope| {
        let after = scope.spawn(|| analyzed(&args.after, Wanted::by(format)));
        let before = analyzed(&args.before, Wanted::by(format));
        let after = after.join();
        [
            before,
            after.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        ]
    });
    drop(progress);
    let (before, after) = (before?, after?);
    let diff = Diff::of(&before.analysis, &after.analysis);
    let limit = args
        .fail_above
        .map(|allowed| (allowed, diff.excesses(allowed)));
    let mut told = DiffReport {
        before,
        after,
        diff,
        limit,
    };
    let style = args.writing.style();
    args.writing
        .write(|out| format.write(&mut told, &style, out))?;
    let has_failed = told.diff.is_newly_failed;
    let is_above = told
        .limit
        .is_some_and(|(_, excesses)| has_failed || !excesses.is_empty());
    Ok(match is_above {
        true => ExitCode::from(EXIT_ABOVE),
        false => ExitCode::SUCCESS,
    })
}

/// A part in percent, with or without its sign.
fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    match number.parse::<f64>() {
        Ok(percent) if percent >= 0.0 && percent.is_finite() => Ok(percent / 100.0),
        _ => Err(format!(
            "'{text}' is not a percentage: write it like 5% or 0.5%"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_is_read_with_or_without_its_sign() {
        for (text, part) in [("5%", 0.05), ("5", 0.05), ("0", 0.0), ("0.5 %", 0.005)] {
            assert_eq!(parse_percent(text), Ok(part), "{text}");
        }
        for text in ["", "%", "-1%", "five", "NaN", "inf"] {
            assert!(parse_percent(text).is_err(), "{text}");
        }
    }
}
