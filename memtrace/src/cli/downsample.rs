//! `memtrace downsample`: fewer rows of memory in recordings that are kept for long.

use super::analyzed::save_findings;
use super::output::{print, say};
use super::progress::Progress;
use super::recorded::{Rows, local_dir, open};
use super::values::{parse_age, parse_seconds};
use anyhow::{Context, bail};
use memtrace_analyze::Report;
use memtrace_host::clock;
use memtrace_host::mark_sockets::euid;
use memtrace_model::tables::MarkRow;
use memtrace_model::{BootNs, Downsampled, DurationNs, Finding};
use memtrace_report::{FORMATS, Style, visible, words};
use memtrace_store::{
    Kept, RUN_FILE, Recording, Recordings, Revision, Sampling, kept, size_of_recording,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What stays whole before a kill or a crash, and after it.
const BEFORE: DurationNs = DurationNs(300_000_000_000);
const AFTER: DurationNs = DurationNs(60_000_000_000);
/// So many lines of each list of a report have the instants that it names, and so many of the largest
/// processes their own peaks.
const LISTED: usize = 20;
const PEAKS: usize = 10_000;

/// Reduce closed recordings to a few values per process and period
///
/// In place of each change of a process's memory its last value in each period stays, and that at the
/// highest sum of RSS over all processes. What the report names stays exact: peaks, phases, marks,
/// kills; five minutes before and a minute after each crash, and each OOM kill that concerns the recording, keep all rows. Readings
/// of cgroups, of the machine, of PSS and of mappings stay next to such instants, and are instants
/// themselves; findings are saved anew, and all other tables are left as they are. A process that lived between two instants keeps
/// its start, its end and its peak, and no value between them. Means and
/// growth are computed from what stays: means are off by some percent, and whether something grows can
/// come out differently. What is left out can't be brought back.
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("how").required(true),
    after_help = "\
Examples:
  memtrace downsample before --to 1s
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
    /// The period by age: 1d:1s reduces recordings that ended more than a day ago to a second
    ///
    /// Those in the directory that are yours and have a name of memtrace's (memtrace-…). Recordings that
    /// are still being made are skipped.
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
    let progress = Progress::of("downsampling");
    if let Some(period) = args.to {
        let dir = local_dir(args.dir.as_deref())?;
        let done = one(recordings, &dir, period)?;
        drop(progress);
        return print(&in_line(&dir, &done));
    }
    let dir = args.dir.as_deref().unwrap_or(Path::new("."));
    let (due, count) = due(dir, &args.tiers)?;
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
        let there = words::counted(count, "closed recording", "closed recordings");
        text = format!("nothing to do: {there} of yours here, none of an age to be downsampled\n");
    }
    drop(progress);
    print(&text).map(|_| code)
}

fn in_line(dir: &Path, done: &str) -> String {
    format!("{}: {done}\n", visible(&dir.display().to_string()))
}

/// The recordings in a directory that have more rows than their age asks for, the oldest first, and how
/// many there are in all.
fn due(dir: &Path, tiers: &[Tier]) -> anyhow::Result<(Vec<(PathBuf, DurationNs)>, usize)> {
    let shown = visible(&dir.display().to_string()).into_owned();
    if dir.join(RUN_FILE).exists() {
        bail!("{shown} is a recording: give its period with --to, or the directory that it is in");
    }
    let there = kept(dir).with_context(|| format!("failed to look for recordings in {shown}"))?;
    let own = euid();
    let there: Vec<Kept> = there
        .into_iter()
        .filter(|kept| kept.is_closed && kept.uid == own && !kept.is_placed)
        .collect();
    let count = there.len();
    let now = clock::read().wall_ns;
    let due = there.into_iter().filter_map(|kept| {
        let tiers = tiers
            .iter()
            .filter(|tier| now.0.saturating_sub(kept.ended.0) > tier.age.0);
        let period = tiers.map(|tier| tier.period).max()?;
        let is_due = done(kept.downsampled, period).is_none();
        is_due.then_some((kept.dir, period))
    });
    Ok((due.collect(), count))
}

/// The period that a recording has already, where it is no shorter than that.
fn done(downsampled: Option<Downsampled>, period: DurationNs) -> Option<DurationNs> {
    let done = downsampled.filter(|done| done.is_complete && done.period_ns >= period);
    done.map(|done| done.period_ns)
}

/// Downsamples a recording, and says what came of it.
fn one(recordings: &Recordings, dir: &Path, period: DurationNs) -> anyhow::Result<String> {
    let shown = visible(&dir.display().to_string()).into_owned();
    let doing = || format!("failed to downsample {shown}");
    let (recording, _) = open(recordings, dir)?;
    recording.check_closed("downsample")?;
    recording.check_whole().with_context(doing)?;
    if let Some(done) = done(recording.info().downsampled, period) {
        let done = words::interval(done);
        return Ok(format!(
            "has a period of {done} already, and stays as it is"
        ));
    }
    let before = size_of_recording(dir).with_context(doing)?;
    let sampling = sampling(&recording, dir, period).with_context(doing)?;
    let revision = Revision::begin_to("downsample", &recording).with_context(doing)?;
    if revision.info() != recording.info() {
        bail!("{shown} changed while it was read, and stays as it is: try again");
    }
    let counted = revision
        .downsample(&recording, &sampling)
        .with_context(doing)?;
    // It holds the lock.
    drop(recording);
    save_findings(&Recordings::default(), dir).with_context(|| {
        format!("{shown} is downsampled, but its findings are those from before")
    })?;
    let after = size_of_recording(dir).with_context(doing)?;
    Ok(format!(
        "{} of {}, {} of {} rows of memory",
        words::bytes(after),
        words::bytes(before),
        words::count(counted.after),
        words::count(counted.before),
    ))
}

/// What stays of the rows of a recording: the instants that its report names, those of marks, and of
/// phases, also where the report has many in one line.
fn sampling(recording: &Recording, dir: &Path, period: DurationNs) -> anyhow::Result<Sampling> {
    let mut instants = BTreeSet::new();
    recording.scan(&[], |mark: MarkRow| instants.extend([mark.boot_ns]))?;
    let mut note_phase = |finding| {
        if let Finding::Phase(phase) = finding {
            let ends = [
                Some(phase.end_boot_ns),
                phase.begin_boot_ns,
                phase.rss_peak_boot_ns,
                phase.held_peak_boot_ns,
                phase.tree_rss_peak_boot_ns,
            ];
            instants.extend(ends.into_iter().flatten());
        }
    };
    let options = memtrace_analyze::Options {
        path: Some(dir.display().to_string()),
        ..memtrace_analyze::Options::default()
    };
    let rows = Rows(recording);
    let mut report =
        memtrace_analyze::analyze_into(recording.info(), &rows, options, Some(&mut note_phase))?;
    let analysis = &report.analysis;
    let largest = analysis.by_peak().into_iter().take(PEAKS);
    let peaks = largest.filter_map(|place| analysis.processes.get(place)?.peak.at);
    instants.extend(peaks.map(|at| at.boot_ns));
    let falls = analysis.gpus.iter().flat_map(|gpus| &gpus.falls);
    instants.extend(falls.map(|fall| fall.host_from));
    let around =
        |at: BootNs| BootNs(at.0.saturating_sub(BEFORE.0))..BootNs(at.0.saturating_add(AFTER.0));
    let kills = analysis.ooms.iter().filter(|kill| !kill.is_elsewhere);
    let kills = kills.map(|kill| kill.at.boot_ns);
    let crashes = analysis
        .processes
        .iter()
        .filter(|process| process.is_violent_end() && !process.is_stopped_end())
        .filter_map(|process| process.exit_boot_ns());
    let whole = kills.chain(crashes).map(around).collect();
    named_instants(&as_json(&mut report)?, &mut instants);
    Ok(Sampling::new(period, instants, whole))
}

fn as_json(report: &mut Report) -> anyhow::Result<Value> {
    let json = FORMATS.iter().find(|format| format.name == "json");
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
    use crate::cli::analyzed::{Wanted, analyzed};
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
                if let Some(Value::Array(lines)) = members.get_mut("answer") {
                    let is_of_growth = |line: &Value| {
                        let line = line.to_string();
                        line.contains("grows by") || line.contains("--from")
                    };
                    lines.retain(|line| !is_of_growth(line));
                }
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
            one(&Recordings::default(), &dir, MINUTE).expect("it is downsampled");
            let mut found = Vec::new();
            differences(&before, &said(&dir), "", &mut found);
            wrong.extend(found.into_iter().map(|found| format!("{name}{found}")));
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
        let found = |text| due(root.path(), &tiers(text)).expect("a directory").0;
        // One that was not closed is left as it is.
        assert_eq!(found("1d:1s,2d:1m"), [(dirs[0].clone(), MINUTE)]);
        assert_eq!(found("36500d:1s"), []);
        one(&Recordings::default(), &dirs[0], MINUTE).expect("it is downsampled");
        assert_eq!(found("1d:1s,2d:1m"), []);
        assert_eq!(found("1d:2m").len(), 1);
    }
}
