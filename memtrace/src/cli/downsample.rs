//! `memtrace downsample`: fewer rows of memory in recordings that are kept for long.

use super::analyzed::{Wanted, analyzed, save_findings};
use super::output::{print, say};
use super::progress::Progress;
use super::recorded::{local_dir, open};
use super::values::{parse_age, parse_seconds};
use anyhow::Context;
use memtrace_analyze::Report;
use memtrace_host::clock;
use memtrace_model::tables::{HeldRow, MarkRow, PhaseRow};
use memtrace_model::{BootNs, Downsampled, DurationNs};
use memtrace_report::{FORMATS, Style, visible, words};
use memtrace_store::{Recording, Recordings, Sampling, downsample, kept, size_of_recording};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What stays whole before a kill or a crash, and after it.
const BEFORE: DurationNs = DurationNs(300_000_000_000);
const AFTER: DurationNs = DurationNs(60_000_000_000);
const PHASE_COLUMNS: &[&str] = &[
    "begin_boot_ns",
    "rss_peak_boot_ns",
    "held_peak_boot_ns",
    "tree_rss_peak_boot_ns",
];
/// So many processes of each list of a report have the instants that it names of them.
const LISTED: usize = 20;

/// Make the rows of closed recordings fewer, once each change is no longer needed
///
/// In place of each change of a process's memory two rows of it are kept in each period: its last
/// value, and that at the highest sum over all processes. The report stays the same where it names an
/// instant: peaks, phases, marks, ends; five minutes before and a minute after each OOM kill and each
/// crash keep all rows. Tables other than `mem` are not touched. What is left out can't be brought
/// back.
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("how").required(true),
    after_help = "\
Examples:
  memtrace downsample memtrace-host-20260101T000000Z --to 1s
  memtrace downsample --tiers 1d:1s,7d:10s /var/lib/memtrace

Exit status: 0; 1 if a recording can't be read or written, or is still being made; 2 on a usage error."
)]
pub(super) struct Args {
    /// A recording; with --tiers a directory of recordings [default: the newest recording here; with
    /// --tiers, this directory]
    dir: Option<PathBuf>,
    /// The period: 1s, 10s, 1m
    #[arg(long, value_name = "TIME", group = "how", value_parser = parse_seconds)]
    to: Option<DurationNs>,
    /// The period for recordings that ended so long ago; those that are still made are left out
    #[arg(long, value_name = "AGE:TIME,...", group = "how", value_parser = Tier::parse,
          value_delimiter = ',')]
    tiers: Vec<Tier>,
}

/// From which age on recordings have which period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tier {
    age: DurationNs,
    period: DurationNs,
}

impl Tier {
    /// Reads one as it is written, `1d:10s`.
    fn parse(text: &str) -> Result<Self, String> {
        let (age, period) = text
            .split_once(':')
            .ok_or_else(|| format!("'{text}' is no age and period: write it like 1d:1s"))?;
        Ok(Self {
            age: parse_age(age)?,
            period: parse_seconds(period)?,
        })
    }
}

/// Tiers as they were written.
pub(super) fn checked_tiers(text: &str) -> Result<String, String> {
    for tier in text.split(',') {
        Tier::parse(tier)?;
    }
    Ok(text.to_owned())
}

/// Runs the command.
pub(super) fn run(args: Args, recordings: &Recordings) -> anyhow::Result<ExitCode> {
    let progress = Progress::of("making rows fewer");
    if let Some(period) = args.to {
        let dir = local_dir(args.dir.as_deref())?;
        let done = one(recordings, &dir, period)?;
        drop(progress);
        return print(&in_line(&dir, &done));
    }
    let due = due(args.dir.as_deref().unwrap_or(Path::new(".")), &args.tiers)?;
    let mut text = String::new();
    let mut code = ExitCode::SUCCESS;
    for (dir, period) in &due {
        match one(recordings, dir, *period) {
            Ok(done) => text.push_str(&in_line(dir, &done)),
            // The others are no worse for it.
            Err(error) => {
                say(&format!("{error:#}"));
                code = ExitCode::FAILURE;
            }
        }
    }
    if due.is_empty() {
        text.push_str("no recording is old enough and has more rows than that\n");
    }
    drop(progress);
    print(&text).map(|_| code)
}

fn in_line(dir: &Path, done: &str) -> String {
    format!("{}: {done}\n", visible(&dir.display().to_string()))
}

/// The recordings in a directory that have more rows than their age asks for, the oldest first.
fn due(dir: &Path, tiers: &[Tier]) -> anyhow::Result<Vec<(PathBuf, DurationNs)>> {
    let there = kept(dir).with_context(|| {
        format!(
            "failed to look for recordings in {}",
            visible(&dir.display().to_string())
        )
    })?;
    let now = clock::read().wall_ns;
    let mut due = Vec::new();
    for kept in there {
        let tiers = tiers
            .iter()
            .filter(|tier| now.0 - kept.ended.0 > tier.age.0);
        if let Some(period) = tiers.map(|tier| tier.period).max()
            && kept.is_closed
            && !is_done(kept.downsampled, period)
        {
            due.push((kept.dir, period));
        }
    }
    Ok(due)
}

/// Whether a recording has no more rows than with that period.
fn is_done(downsampled: Option<Downsampled>, period: DurationNs) -> bool {
    downsampled.is_some_and(|done| done.is_complete && done.period_ns >= period)
}

/// Downsamples a recording, and says what came of it.
fn one(recordings: &Recordings, dir: &Path, period: DurationNs) -> anyhow::Result<String> {
    let shown = visible(&dir.display().to_string()).into_owned();
    let doing = || format!("failed to downsample {shown}");
    let (recording, _) = open(recordings, dir)?;
    let downsampled = recording.info().downsampled;
    if let Some(done) = downsampled.filter(|_| is_done(downsampled, period)) {
        let period = words::duration(done.period_ns);
        return Ok(format!("has a period of {period} already"));
    }
    recording.check_closed("downsample")?;
    let before = size_of_recording(dir).with_context(doing)?;
    // The tables of what is found have instants that the report does not name.
    let saving = Wanted {
        saves: true,
        ..Wanted::default()
    };
    let report = analyzed(recordings, dir, saving)?;
    let sampling = sampling(&recording, report, period)?;
    let counted = downsample(&recording, &sampling).with_context(doing)?;
    // It holds the lock.
    drop(recording);
    // Their marker says what they are of.
    save_findings(&Recordings::default(), dir)?;
    let after = size_of_recording(dir).with_context(doing)?;
    Ok(format!(
        "{} of {}, {} → {} rows",
        words::bytes(after),
        words::bytes(before),
        words::count(counted.before),
        words::count(counted.after)
    ))
}

/// What stays of the rows of a recording: the instants that its report names, and those of the curve
/// of what was held.
fn sampling(
    recording: &Recording,
    mut report: Report,
    period: DurationNs,
) -> anyhow::Result<Sampling> {
    let around = |at: BootNs| BootNs(at.0 - BEFORE.0)..BootNs(at.0 + AFTER.0);
    let kills = report.analysis.ooms.iter().map(|kill| kill.at.boot_ns);
    let processes = report.analysis.processes.iter();
    let crashes = processes
        .filter(|process| process.is_violent_end() && !process.is_stopped_end())
        .filter_map(|process| process.exit_boot_ns());
    let whole = kills.chain(crashes).map(around).collect();
    let mut instants = BTreeSet::new();
    recording.scan(&[], |held: HeldRow| instants.extend([held.boot_ns]))?;
    recording.scan(&[], |mark: MarkRow| instants.extend([mark.boot_ns]))?;
    recording.scan(PHASE_COLUMNS, |phase: PhaseRow| {
        let begin_and_peaks = [
            phase.begin_boot_ns,
            phase.rss_peak_boot_ns,
            phase.held_peak_boot_ns,
            phase.tree_rss_peak_boot_ns,
        ];
        instants.extend(begin_and_peaks.into_iter().flatten());
        instants.extend([phase.end_boot_ns]);
    })?;
    named_instants(&as_json(&mut report)?, &mut instants);
    Ok(Sampling::new(period, instants, whole))
}

fn as_json(report: &mut Report) -> anyhow::Result<Value> {
    let json = FORMATS.iter().find(|format| format.name() == "json");
    let style = Style {
        top: Some(LISTED),
        ..Style::default()
    };
    let mut text = Vec::new();
    json.context("no JSON")?.write(report, &style, &mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Each value of a `boot_ns`.
fn named_instants(value: &Value, instants: &mut BTreeSet<BootNs>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                match value.as_i64().filter(|_| key.ends_with("boot_ns")) {
                    Some(at) => drop(instants.insert(BootNs(at))),
                    None => named_instants(value, instants),
                }
            }
        }
        Value::Array(values) => values
            .iter()
            .for_each(|value| named_instants(value, instants)),
        _ => (),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::analyzed::tests::store;
    use memtrace_golden::RUNS;
    use memtrace_model::RunState;
    use memtrace_store::recover;

    const MINUTE: DurationNs = DurationNs(60_000_000_000);

    /// What a report says, but for what it works out from all points of a curve.
    fn said(dir: &Path) -> Value {
        let report = analyzed(&Recordings::default(), dir, Wanted::default());
        let mut said = as_json(&mut report.expect("a report")).expect("JSON");
        leave_out(&mut said);
        said
    }

    fn leave_out(value: &mut Value) {
        match value {
            Value::Object(members) => {
                members.remove("downsampled");
                members.retain(|key, _| {
                    key != "curve" && key != "growth" && !key.starts_with("mean_")
                });
                members.values_mut().for_each(leave_out);
            }
            Value::Array(values) => values.iter_mut().for_each(leave_out),
            _ => (),
        }
    }

    fn differences(one: &Value, other: &Value, place: &str, found: &mut Vec<String>) {
        match (one, other) {
            (Value::Object(one), Value::Object(other)) if one.len() == other.len() => {
                for (key, value) in one {
                    let place = format!("{place}.{key}");
                    differences(value, other.get(key).unwrap_or(&Value::Null), &place, found);
                }
            }
            (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
                for (number, (one, other)) in one.iter().zip(other).enumerate() {
                    differences(one, other, &format!("{place}[{number}]"), found);
                }
            }
            _ if one == other => (),
            _ => found.push(format!("{place}: {one} and {other}")),
        }
    }

    #[test]
    fn the_report_says_the_same_afterwards() {
        let root = tempfile::tempdir().expect("a directory");
        let mut wrong = Vec::new();
        for (name, script, _) in RUNS {
            let dir = root.path().join(name);
            store(&dir, *script);
            if script().info.state != RunState::Closed {
                recover(&dir).expect("it can be closed");
            }
            let before = said(&dir);
            let recording = open(&Recordings::default(), &dir).expect("a recording").0;
            let rows = recording
                .rows::<memtrace_model::tables::MemRow>()
                .expect("rows")
                .len();
            drop(recording);
            let done = one(&Recordings::default(), &dir, MINUTE).expect("it is downsampled");
            let mut found = Vec::new();
            differences(&before, &said(&dir), "", &mut found);
            wrong.extend(found.into_iter().map(|found| format!("{name}{found}")));
            eprintln!("{name}: {rows} {done}");
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn recordings_of_an_age_are_due_until_they_are_downsampled() {
        let root = tempfile::tempdir().expect("a directory");
        let script = |wanted: &str| RUNS.iter().find(|(name, ..)| *name == wanted);
        let dirs = ["shared", "cut_off"].map(|name| {
            let dir = root.path().join(format!("memtrace-{name}"));
            store(&dir, script(name).expect("a run").1);
            dir
        });
        let tiers = |text: &str| -> Vec<Tier> {
            let tiers = text.split(',').map(Tier::parse);
            tiers.collect::<Result<_, _>>().expect("tiers")
        };
        let found = |text| due(root.path(), &tiers(text)).expect("a directory");
        // One that was not closed is left as it is.
        assert_eq!(found("1d:1s,2d:1m"), [(dirs[0].clone(), MINUTE)]);
        assert_eq!(found("36500d:1s"), []);
        one(&Recordings::default(), &dirs[0], MINUTE).expect("it is downsampled");
        assert_eq!(found("1d:1s,2d:1m"), []);
        assert_eq!(found("1d:2m").len(), 1);
    }
}
