//! `memtrace diff`: two recordings against each other, or two runs of many hosts, and an exit code
//! for CI.

use super::analyzed::{Wanted, analyzed};
use super::output::say;
use super::progress::Progress;
use super::recorded::{Strictness, address_of};
use super::reduced::{Chosen, reduced, root_at};
use super::writing::Writing;
use anyhow::{Context, anyhow, bail};
use clap::error::ErrorKind;
use memtrace_analyze::{ComparedRun, Diff, DiffReport, Difference, RunDiff};
use memtrace_report::{Format, visible, words};
use memtrace_store::{Recordings, Root};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The exit status when something rose by more than `--fail-above` allows.
const EXIT_ABOVE: u8 = 3;

const AFTER_HELP: &str = "\
Examples:
  memtrace diff before after --fail-above 5%
  memtrace diff root/run=4711 root/run=4712
  memtrace diff root --run 4711 --run 4712

Exit status: 0; 3 with --fail-above if something rose by more than that, or if B failed and A did
not (an OOM kill, a command that did not exit 0, or, without a command, a process asked for by -p,
--match, ... that crashed, was killed or exited with an error); 1 after an error, 2 on a usage
error; 4 with --strict or --fail-above if part of either could not be read or is
missing.

The comparison uses, for all processes together, the most that they held (every page once), or the
peak of the sum of RSS if the two recordings do not know what was held in the same way; for each
role that holds at least 5 % of the whole in either recording, its peak RSS; for both, the mean RSS
and the peak on GPUs; and for numbered phases, the growth of memory from step to step. A role that
is new in B counts as a rise from zero. A rise within the error of the figures does not count, and
host memory that was observed in two ways (bpf and polling) is not judged.

For two runs of many hosts, their reports are compared: the peak of all hosts within its bounds, the
most on one host, the most on the GPUs of one host, each role by the most on one host and the median
over its hosts, the growth per step of the fastest rank, the hosts by name, unexpected ends and
missing hosts. The peak of all hosts is judged only if both runs have the same number of hosts; the
peaks of single hosts are not judged.";

/// Compare two recordings, or runs of many hosts: peak, mean and growth
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// The recording before; or a run of many hosts (ROOT/run=ID), or their root
    #[arg(value_name = "A")]
    before: PathBuf,
    /// The recording after; can be left out where --run names two runs of A
    #[arg(value_name = "B")]
    after: Option<PathBuf>,
    /// Compare that run of a root [default: the newest]; given twice, the first is from A and the
    /// second from B
    #[arg(long, value_name = "ID")]
    run: Vec<String>,
    #[command(flatten)]
    writing: Writing,
    #[command(flatten)]
    pub(super) strictness: Strictness,
    /// Exit with status 3 if a peak, a mean or the growth per step rose by more than this (5%), or
    /// if B failed and A did not
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, allow_hyphen_values = true)]
    fail_above: Option<f64>,
}

impl Args {
    /// Whether nothing less than all of both will do: what is missing can be what rose.
    pub(super) fn is_strict(&self) -> bool {
        self.strictness.strict || self.fail_above.is_some()
    }
}

pub(super) fn run(args: Args, recordings: &Recordings) -> anyhow::Result<ExitCode> {
    let format = args.writing.format()?;
    if let Some(runs) = two_runs(&args)? {
        return of_runs(&args, recordings, format, runs);
    }
    let after = args.after.as_deref().unwrap_or(&args.before);
    let progress = Progress::of("reading two recordings");
    // Beside each other: most of the time goes into reading.
    let [before, after] = std::thread::scope(|scope| {
        let after = scope.spawn(|| analyzed(recordings, after, Wanted::by(format)));
        let before = analyzed(recordings, &args.before, Wanted::by(format));
        let after = after.join();
        [
            before,
            after.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        ]
    });
    drop(progress);
    let report: DiffReport<Diff> = DiffReport::of(before?, after?, args.fail_above);
    write(&args, format, report, false)
}

/// Writes a comparison. The status is what `--fail-above` makes of it, where it was given; `has_failed`
/// says that the second has failed, whatever it holds.
fn write<D: Difference>(
    args: &Args,
    format: &Format,
    mut report: DiffReport<D>,
    has_failed: bool,
) -> anyhow::Result<ExitCode> {
    let style = args.writing.style();
    args.writing
        .write(|out| format.write(&mut report, &style, out))?;
    let has_failed = has_failed || report.diff.is_newly_failed();
    let limit = report.limit.as_ref();
    Ok(
        match limit.is_some_and(|(_, excesses)| has_failed || !excesses.is_empty()) {
            true => ExitCode::from(EXIT_ABOVE),
            false => ExitCode::SUCCESS,
        },
    )
}

/// A folder of runs, or one of them, and which run is meant.
struct Named<'a> {
    path: &'a Path,
    root: Root,
    run: Option<&'a str>,
}

/// The two runs that are named, the one before first; `None` where two recordings are.
fn two_runs(args: &Args) -> anyhow::Result<Option<[Named<'_>; 2]>> {
    let run = |place: usize| args.run.get(place).or(args.run.last()).map(String::as_str);
    // Of one root two runs are named.
    let after = match (&args.after, &*args.run) {
        (Some(after), _) => after,
        (None, [_, _]) => &args.before,
        (None, _) => {
            let missing = "only one thing to compare was named: name a second, or two runs of a \
                 root by --run A --run B\n";
            return Err(clap::Error::raw(ErrorKind::MissingRequiredArgument, missing).into());
        }
    };
    if args.run.len() > 2 {
        bail!("--run names one run of both, or one of A and one of B, and no more");
    }
    let find = |path: &Path, run: Option<&str>| {
        let shown = path.display().to_string();
        root_at(path, run)
            .with_context(|| format!("failed to look for recordings in {}", visible(&shown)))
    };
    match (find(&args.before, run(0))?, find(after, run(1))?) {
        (Some(before), Some(later)) => Ok(Some([
            Named {
                path: &args.before,
                root: before,
                run: run(0),
            },
            Named {
                path: after,
                root: later,
                run: run(1),
            },
        ])),
        (None, None) if !args.run.is_empty() => {
            is_there(&args.before)?;
            is_there(after)?;
            bail!("--run is for the runs of many hosts below a root, and neither of these is one")
        }
        (None, None) => Ok(None),
        (before, _) => {
            let (of_runs, of_one) = match before.is_some() {
                true => (&*args.before, &**after),
                false => (&**after, &*args.before),
            };
            is_there(of_one)?;
            let [of_runs, of_one] = [of_runs, of_one].map(|path| path.display().to_string());
            bail!(
                "{} holds runs of many hosts, and {} does not: compare two runs, or two recordings, \
                 such as ROOT/run=ID/host=NAME/rec=START",
                visible(&of_runs),
                visible(&of_one)
            )
        }
    }
}

/// An error where there is nothing at a path that may be looked at. Who reads an address says that
/// by itself.
fn is_there(path: &Path) -> anyhow::Result<()> {
    if address_of(path).is_none() {
        let shown = path.display().to_string();
        std::fs::metadata(path).with_context(|| format!("failed to open {}", visible(&shown)))?;
    }
    Ok(())
}

/// Compares two runs.
fn of_runs(
    args: &Args,
    recordings: &Recordings,
    format: &Format,
    runs: [Named<'_>; 2],
) -> anyhow::Result<ExitCode> {
    if format.is_page {
        bail!(
            "{} draws two recordings: the comparison of two runs has text, md, json and csv",
            format.name
        );
    }
    let [before, after] = runs.map(|named| {
        let shown = named.path.display().to_string();
        let chosen = Chosen {
            run: named.run,
            hosts: &[],
        };
        let doing = || format!("failed to read the run in {}", visible(&shown));
        let found = reduced(recordings, &named.root, &chosen, &shown).with_context(doing)?;
        if let (true, Some(unread)) = (found.parts.is_empty(), found.unread.first()) {
            let none = anyhow!(
                "none of its recordings can be read; of the first: {}",
                unread.why
            );
            return Err(none).with_context(doing);
        }
        let unread = found.unread.len();
        let report = memtrace_analyze::merge(&found.run, found.parts, found.unread, None);
        let path = shown;
        anyhow::Ok((ComparedRun { path, report }, unread))
    });
    let ((before, unread_before), (after, unread_after)) = (before?, after?);
    let is_less_read = unread_before == 0 && unread_after > 0;
    if is_less_read && args.fail_above.is_some() {
        let recordings = words::counted(unread_after, "recording", "recordings");
        say(&format!(
            "{recordings} of B can't be read, while all of A can: B counts as failed"
        ));
    }
    let report: DiffReport<RunDiff> = DiffReport::of(before, after, args.fail_above);
    write(args, format, report, is_less_read)
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
