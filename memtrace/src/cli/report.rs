//! `memtrace report`: reads a recording, on any machine, and says who held the memory.

mod hosts;

use super::analyzed::{Wanted, analyzed};
use super::output::print;
use super::progress::Progress;
use super::recorded::{Strictness, recording_dir_at};
use super::reduced::root_at;
use super::writing::Writing;
use anyhow::{Context, bail};
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::error::ErrorKind;
use memtrace_analyze::{Moment, ParseMomentError, RUN_SECTIONS, Report, RunReport, SECTIONS};
use memtrace_report::{Format, Reported, Section, Style, visible};
use memtrace_store::Recordings;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const AFTER_HELP: &str = "\
Examples:
  memtrace report
  memtrace report --full --explain > report.txt
  memtrace report --at peak
  memtrace report --steps -f csv > steps.csv
  memtrace report --format html -o report.html
  memtrace report --format json > report.json
  memtrace report root --run 4711

Exit status: 0, even if the recording has losses or its command failed; 1 if it can't be read, or
does not contain what --at, --phase, --from or --to asks for; 2 on a usage error; 4 with --strict if
part of it could not be read or is missing.";

/// The phases that are steps.
const STEPS: &str = "step_*";

/// What `memtrace report` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// The recording's directory [default: the newest recording here, or the one that has the time of
    /// --at or --from]; a directory that holds recordings stands for the same of these. Or a root of
    /// recordings of many hosts, a run below it (ROOT/run=ID) or a host of that
    /// (ROOT/run=ID/host=NAME)
    #[arg(value_name = "DIR")]
    recording: Option<PathBuf>,
    #[command(flatten)]
    writing: Writing,
    #[command(flatten)]
    pub(super) strictness: Strictness,
    /// Show every section and every line, the tree of processes too, in text and md
    #[arg(long)]
    full: bool,
    /// Explain at the end how to read the figures, in text and md; --full does too
    #[arg(long)]
    explain: bool,
    /// Show the tree of processes
    #[arg(long)]
    tree: bool,
    /// Show who held the memory at that time: `peak`, `oom-kill` (the last one), `+83.2s`, `+1h02m`,
    /// `12:03:07` (UTC without --local-time), or RFC 3339
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    at: Option<Moment>,
    /// Show every line of the phases, not only the ten that changed most
    #[arg(long)]
    phases: bool,
    /// Show only the phases of that name, each of them, and what each role, GPU and process gained
    /// or lost from the start of the first to the end of the last: the name as it was marked, or a
    /// pattern such as `step_3_*`, where * matches any text and ? one character
    #[arg(long, value_name = "NAME", conflicts_with_all = ["at", "phases", "style"])]
    phase: Option<String>,
    /// Show only one row per step: the phases named `step_…`, as --phase 'step_*' --section phase
    /// does
    #[arg(long, conflicts_with_all = ["at", "phases", "style", "phase", "from", "to", "section"])]
    steps: bool,
    /// Show only a window of the recording, from that time (in the forms of --at) to --to or the
    /// end: what each role, GPU and process gained or lost in it, as --phase shows a phase
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_edge,
          conflicts_with_all = ["at", "phases", "style", "phase", "save_findings"])]
    from: Option<Moment>,
    /// The end of that window; without --from it starts with the first reading of memory
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_edge,
          conflicts_with_all = ["at", "phases", "style", "phase", "save_findings"])]
    to: Option<Moment>,
    /// Show the last part of the recording, of that length, as --from shows a window: 30s, 10m, 1h, 1d
    #[arg(long, value_name = "TIME", value_parser = Moment::of_last,
          conflicts_with_all = ["at", "phases", "style", "phase", "save_findings", "from", "to", "process", "steps"])]
    last: Option<Moment>,
    /// Show the life of one process: what it held over time and what is inside of it, its mappings,
    /// phases, shared memory and children. Give its id, or words in its name or role: the largest
    /// that matches is shown
    #[arg(long, value_name = "PID|NAME", conflicts_with_all = ["phases", "style", "phase", "from", "to", "steps"])]
    process: Option<String>,
    /// Write only that section; --list-sections names them all. csv has the tables of those that
    /// have one
    #[arg(long, value_name = "NAME", value_parser = SectionName, hide_possible_values = true)]
    section: Option<String>,
    /// Name the sections of the report of a recording (of a run if DIR is a root), a line each
    #[arg(long, conflicts_with_all = ["Writing", "Options", "section", "full", "explain", "tree", "at", "phases",
                                      "phase", "steps", "from", "to", "last", "process", "style", "save_findings"])]
    list_sections: bool,
    /// Write something other than the whole report, as text or md
    #[arg(long, value_name = "STYLE", conflicts_with = "at")]
    style: Option<Special>,
    /// For a running recording: write each phase when it has ended, until the recording ends
    #[arg(long, requires = "style",
          conflicts_with_all = ["output", "open", "section", "phases", "save_findings", "top", "tree",
                                "local_time"])]
    follow: bool,
    /// Show wall-clock times in your time zone, with its offset, instead of UTC, and read --at,
    /// --from and --to that way. json and csv keep UTC
    #[arg(long)]
    local_time: bool,
    /// Also save phases and the memory of roles as tables in the recording, `phase` and
    /// `role_mem`, for programs that read tables. `record` does that by itself up to 10,000,000
    /// rows
    #[arg(long)]
    save_findings: bool,
    #[command(flatten)]
    hosts: hosts::Options,
}

/// Another way to look at a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Special {
    /// A log of the phases in the order of their ends: what each added, and the sum so far
    Startup,
}

fn parse_edge(text: &str) -> Result<Moment, String> {
    text.parse()
        .map_err(|error: ParseMomentError| error.of_window())
}

/// The name of a section: which there are goes by whether it is a recording or a run, which the words
/// alone do not tell.
#[derive(Clone)]
struct SectionName;

impl TypedValueParser for SectionName {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    /// For completions: those of both.
    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let of_one = SECTIONS.iter().map(|section| (section.name, section.doc));
        // Those of one name show the same, of one recording or of many.
        let of_runs = RUN_SECTIONS
            .iter()
            .map(|section| (section.name, section.doc));
        let of_runs = of_runs.filter(|(name, _)| Section::<Report>::named(name).is_none());
        let values = of_one.chain(of_runs);
        Some(Box::new(
            values.map(|(name, doc)| PossibleValue::new(name).help(doc)),
        ))
    }
}

/// A line for each section; those with a table are marked.
fn list_sections<R: Reported>() -> String {
    let lines = R::sections().iter().map(|section| {
        let mark = section.tables.map_or("", |_| " [csv]");
        format!("{:<15}{}{mark}\n", section.name, section.doc)
    });
    lines.collect()
}

/// The section of that name, of which a table is there if `has_table` asks for one.
fn section_of<R: Reported>(
    of: &str,
    name: &str,
    has_table: bool,
) -> anyhow::Result<&'static Section<R>> {
    let names = |sections: &mut dyn Iterator<Item = &Section<R>>| {
        let names: Vec<&str> = sections.map(|section| section.name).collect();
        names.join(", ")
    };
    let mut sections = R::sections().iter();
    let Some(section) = Section::named(name) else {
        let (name, names) = (visible(name), names(&mut sections));
        let has = format!("{of} has no section {name}; it has {names}\n");
        return Err(clap::Error::raw(ErrorKind::InvalidValue, has).into());
    };
    if has_table && section.tables.is_none() {
        let others = names(&mut sections.filter(|section| section.tables.is_some()));
        bail!("the section {name} has no table for csv; these have one: {others}");
    }
    Ok(section)
}

/// Writes the report.
pub(super) fn run(args: Args, recordings: &Recordings) -> anyhow::Result<ExitCode> {
    if args.list_sections {
        let run = args.hosts.chosen().run;
        let root = |path| root_at(path, run);
        let is_root = args.recording.as_deref().map(root).transpose()?;
        let sections = match is_root.flatten() {
            Some(_) => list_sections::<RunReport>(),
            None => list_sections::<Report>(),
        };
        return print(&sections).context("failed to list the sections");
    }
    if let Some(done) = hosts::run(&args, recordings)? {
        return Ok(done);
    }
    let format = args.writing.format()?;
    let section = chosen_section(&args, format)?;
    let moment = args.at.or(args.from).or(args.to).or(args.last);
    let given = args.recording.as_deref();
    let dir = recording_dir_at(given, moment, args.local_time)?;
    if args.follow {
        return follow(recordings, &dir);
    }
    let wanted = Wanted {
        at: args.at,
        phase: args.phase.or(args.steps.then(|| STEPS.to_owned())),
        process: args.process,
        from: args.from.or(args.last),
        to: args.to,
        is_local: args.local_time,
        saves: args.save_findings,
        has_source_lines: true,
        ..Wanted::by(format)
    };
    let progress = Progress::of("reading the recording");
    let mut report = analyzed(recordings, &dir, wanted)?;
    drop(progress);
    let style = Style {
        has_tree: args.tree || args.full,
        has_phases: args.phases || args.full,
        is_full: args.full,
        has_explanations: args.explain || args.full,
        is_startup_log: args.style == Some(Special::Startup),
        has_only_rows: args.steps,
        has_path: args.recording.is_none(),
        section: section.map(|section| section.name),
        ..args.writing.style()
    };
    args.writing
        .write(|out| format.write(&mut report, &style, out))?;
    Ok(ExitCode::SUCCESS)
}

/// The section that is asked for, where everything else that is asked for goes with it.
fn chosen_section(
    args: &Args,
    format: &Format,
) -> anyhow::Result<Option<&'static Section<Report>>> {
    let has_window = args.from.or(args.to).or(args.last).is_some();
    let only_table = args.steps || has_window && format.name == "csv";
    let only_table = only_table.then_some("phase");
    let section = args.section.as_deref().or(only_table);
    let is_of_runs = |name: &&str| {
        Section::<Report>::named(name).is_none() && Section::<RunReport>::named(name).is_some()
    };
    if let Some(name) = section.filter(is_of_runs) {
        bail!(
            "the section {name} belongs to a run of many hosts: name a root, or leave the \
             option out"
        );
    }
    let is_csv = format.name == "csv";
    let section = section.map(|name| section_of("the report of a recording", name, is_csv));
    let section = section.transpose()?;
    if let Some(section) = section.filter(|section| has_window && section.name != "phase") {
        bail!(
            "the section {} does not show a window: leave out --from and --to, or --section",
            section.name
        );
    }
    if let Some(section) = section.filter(|_| format.is_page) {
        let option = match args.steps {
            true => "--steps".to_owned(),
            false => format!("--section {}", section.name),
        };
        bail!(
            "{} shows the whole recording: leave out {option}",
            format.name
        );
    }
    let has_stretch = args.phase.is_some() || has_window;
    for (section, options, example, is_given) in [
        ("at", "--at gives", "--at TIME", args.at.is_some()),
        (
            "phase",
            "--phase, or --from and --to, give",
            "--phase NAME or --from TIME --to TIME",
            has_stretch,
        ),
        (
            "process",
            "--process gives",
            "--process PID",
            args.process.is_some(),
        ),
    ] {
        if args.section.as_deref() == Some(section) && !is_given {
            bail!("--section {section} shows what {options}: add {example}");
        }
    }
    if args.style.is_some() && !matches!(format.name, "text" | "md") {
        bail!(
            "--style is for text and md; {} has the phases anyway",
            format.name
        );
    }
    if args.follow && format.name != "text" {
        bail!("--follow writes text; leave out --format {}", format.name);
    }
    Ok(section)
}

fn follow(recordings: &Recordings, dir: &Path) -> anyhow::Result<ExitCode> {
    let read = || {
        analyzed(
            recordings,
            dir,
            Wanted {
                is_unfolded: true,
                ..Wanted::default()
            },
        )
    };
    let goes_on = || recordings.open(dir).is_ok_and(|one| one.is_live());
    match super::follow::follow(read, goes_on, &mut io::stdout().lock()) {
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        followed => followed.map(|()| ExitCode::SUCCESS),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::analyzed::tests::store;
    use memtrace_golden::RUNS;

    #[test]
    fn a_section_without_a_table_names_those_that_have_one() {
        let section = |name| section_of::<Report>("the report of a recording", name, true);
        let error = section("oom-kills").expect_err("no table");
        let message = error.to_string();
        let begin = "the section oom-kills has no table for csv; these have one: phase, process";
        assert!(message.starts_with(begin), "{message}");
        section("survivors").expect("a table");
        assert_eq!(list_sections::<Report>().lines().count(), SECTIONS.len());
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    /// What it writes, or says.
    fn reported(words: &[&str]) -> Result<String, String> {
        of_run(RUNS[0].0, words)
    }

    /// The same of another run.
    fn of_run(name: &str, words: &[&str]) -> Result<String, String> {
        let root = tempfile::tempdir().expect("a directory");
        let dir = root.path().join("run");
        let script = RUNS.iter().find(|(run, ..)| *run == name);
        store(&dir, script.expect("a run").1);
        let out = root.path().join("out");
        let places = ["report", "-o"].map(Path::new);
        let places = places.into_iter().chain([out.as_path(), dir.as_path()]);
        let words = places.chain(words.iter().map(Path::new));
        let line = <Line as clap::Parser>::try_parse_from(words.map(Path::as_os_str));
        let line = line.map_err(|error| error.to_string())?;
        run(line.args, &Recordings::default()).map_err(|error| format!("{error:#}"))?;
        Ok(std::fs::read_to_string(&out).expect("a report"))
    }

    #[test]
    fn a_window_is_reported_by_its_section_and_by_no_other() {
        let window = ["--from", "+1s", "--to", "+2s"];
        let of_window = |words: &[&str]| reported(&[&window, words].concat());
        let table = of_window(&["--format", "csv"]).expect("a table");
        let section = ["--format", "csv", "--section", "phase"];
        assert_eq!(table, of_window(&section).expect("the same"));
        assert_ne!(table, reported(&["--format", "csv"]).expect("processes"));
        let json = of_window(&["--format", "json"]).expect("an object");
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["phase"]["is_window"], true);
        let refused = of_window(&["--section", "survivors"]).expect_err("another section");
        assert!(refused.contains("survivors does not show"), "{refused}");
        let refused = reported(&["--section", "phase"]).expect_err("no phase");
        assert!(refused.contains("--from TIME --to TIME"), "{refused}");
        let refused = reported(&["--from", "-1s"]).expect_err("no time");
        assert!(
            refused.contains("`-1s` is not a time: use an offset"),
            "{refused}"
        );
    }

    #[test]
    fn the_last_part_is_of_the_newest_recording_that_has_anything() {
        let root = tempfile::tempdir().expect("a directory");
        let out = root.path().join("out");
        let recordings = root.path().join("recordings");
        std::fs::create_dir(&recordings).expect("a directory");
        store(&recordings.join("memtrace-a"), RUNS[0].1);
        let (mut info, ..) = RUNS[0].1().recorded();
        info.state = memtrace_model::RunState::Recording;
        info.clocks.truncate(1);
        let newer = recordings.join("memtrace-b");
        let writer = memtrace_store::Writer::create(&newer, &info).expect("a recording");
        let report = |dir: &Path, last: &str| {
            let places = ["report".as_ref(), "-o".as_ref(), out.as_path()];
            let words = places
                .into_iter()
                .chain([dir, "--last".as_ref(), last.as_ref()]);
            let line = <Line as clap::Parser>::try_parse_from(words.map(Path::as_os_str));
            let args = line.expect("a command line").args;
            run(args, &Recordings::default()).expect("a report");
            std::fs::read_to_string(&out).expect("a report")
        };
        let of_both = report(&recordings, "10s");
        assert!(of_both.contains("Window: from"), "{of_both}");
        assert!(!of_both.contains("recording is only"), "{of_both}");
        let longer = report(&recordings, "1d");
        assert!(
            longer.contains("long, not 1d00h00m: `memtrace list`"),
            "{longer}"
        );
        let of_newer = report(&newer, "10s");
        assert!(!of_newer.contains("Window: from"), "{of_newer}");
        drop(writer);
    }

    #[test]
    fn steps_are_a_row_each_and_nothing_else() {
        let of_steps = |words: &[&str]| of_run("steps_that_leak", &[&["--steps"], words].concat());
        let csv = of_steps(&["-f", "csv"]).expect("a table");
        let by_name = ["--phase", "step_*", "--section", "phase", "-f", "csv"];
        assert_eq!(csv, of_run("steps_that_leak", &by_name).expect("the same"));
        let rows = csv.lines().count() - 1;
        // Two marks a step, from 0 on.
        let numbers = csv.lines().skip(1).map(|row| row.split(',').nth(2));
        let numbers: Vec<String> = numbers.flatten().map(str::to_owned).collect();
        assert_eq!(numbers[..4], ["0", "0", "1", "1"]);
        assert!(rows > 12, "{rows}");
        let text = of_steps(&[]).expect("a table");
        let is_row = |line: &&str| line.contains("step_");
        assert_eq!(text.lines().skip(1).filter(is_row).count(), rows, "{text}");
        assert!(!text.contains("By role"), "{text}");
        let few = of_steps(&["--top", "3"]).expect("a table");
        assert_eq!(few.lines().skip(1).filter(is_row).count(), 3, "{few}");
        let refused = of_steps(&["--format", "html"]).expect_err("a page");
        assert!(refused.contains("leave out --steps"), "{refused}");
        let refused = reported(&["--steps"]).expect_err("no marks");
        assert!(refused.contains("no marks at all: --from"), "{refused}");
        let refused = of_run("vllm_start_up", &["--steps"]).expect_err("no steps");
        let has = "no phase \"step_*\"; it has ";
        assert!(refused.contains(has), "{refused}");
        assert!(refused.ends_with(": --phase NAME shows one"), "{refused}");
    }
}
