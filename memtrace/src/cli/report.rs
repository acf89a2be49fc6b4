//! `memtrace report`: reads a recording, on any machine, and says who held the memory.

mod hosts;

use super::browser;
use super::output::{has_color, print, width};
use super::part::Part;
use super::progress::Progress;
use super::recorded::{Rows, open, recording_dir};
use crate::analyze::{self, Moment, ParseMomentError, RUN_SECTIONS, SECTIONS, SectionInfo};
use crate::model::{Finding, SCHEMA_VERSION, TABLES};
use crate::report::{FORMATS, Format, Style, visible};
use crate::store::{FindingsWriter, Problem, ProblemKind, Recording};
use anyhow::{Context, bail};
use clap::builder::{PossibleValue, PossibleValuesParser, RangedU64ValueParser, TypedValueParser};
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
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

Exit status: 0 also when the recording has losses or its command failed; 1 when it can't be read,
or what --at, --phase, --from or --to asks for is not in it; 2 after a wrong use.";

/// The phases that are steps.
const STEPS: &str = "step_*";

/// What `memtrace report` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// The recording's directory [default: the newest recording here]; or a root of recordings of many
    /// hosts, a run below it (ROOT/run=ID) or a host of that (ROOT/run=ID/host=NAME)
    #[arg(value_name = "DIR")]
    recording: Option<PathBuf>,
    #[command(flatten)]
    writing: Writing,
    /// Show every section and every line, the tree of processes too, in text and md
    #[arg(long)]
    full: bool,
    /// Say at the end how the figures are to be read, in text and md; --full does too
    #[arg(long)]
    explain: bool,
    /// Show the tree of processes
    #[arg(long)]
    tree: bool,
    /// Show who held the memory at that time: `peak`, `+83.2s`, `+1h02m`, `12:03:07` (UTC without
    /// --local-time), or RFC 3339
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    at: Option<Moment>,
    /// Show every line of the phases, not only the ten that changed most
    #[arg(long)]
    phases: bool,
    /// Show only the phases of that name, each of them, and what each role, GPU and process gained
    /// or lost from the begin of the first to the end of the last: the name as it was marked, or a
    /// pattern such as `step_3_*`, where * stands for any text and ? for one character
    #[arg(long, value_name = "NAME", conflicts_with_all = ["at", "phases", "style"])]
    phase: Option<String>,
    /// Show one row a step: the phases named `step_…`, as --phase 'step_*' --section phase does, and
    /// nothing else
    #[arg(long, conflicts_with_all = ["at", "phases", "style", "phase", "from", "to", "section"])]
    steps: bool,
    /// Show only a window of the recording, from that time, in the forms of --at, to --to or the
    /// end: what each role, GPU and process gained or lost in it, as --phase shows a phase
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_edge,
          conflicts_with_all = ["at", "phases", "style", "phase", "save_findings"])]
    from: Option<Moment>,
    /// The end of that window; without --from it begins with the first reading of memory
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_edge,
          conflicts_with_all = ["at", "phases", "style", "phase", "save_findings"])]
    to: Option<Moment>,
    /// Show the life of one process: what it held over time and who laid that out, its mappings,
    /// phases, shared memory and children. By its id, or the largest whose name or role has these
    /// words
    #[arg(long, value_name = "PID|NAME", conflicts_with_all = ["phases", "style", "phase", "from", "to", "steps"])]
    process: Option<String>,
    /// Write only that section; csv has the tables of those that have one
    #[arg(long, value_name = "NAME", value_parser = section_names())]
    section: Option<String>,
    /// Name the sections of a report, a line each, and read no recording
    #[arg(long, exclusive = true)]
    list_sections: bool,
    /// Write something other than the whole report, as text or md
    #[arg(long, value_name = "STYLE", conflicts_with = "at")]
    style: Option<Special>,
    /// Of a recording that goes on: write each phase when it has ended, until the recording ends
    #[arg(long, requires = "style",
          conflicts_with_all = ["output", "open", "section", "phases", "save_findings", "top", "tree",
                                "local_time"])]
    follow: bool,
    /// Tell times of the wall clock in your time zone, with its offset, and not in UTC; also read
    /// those of --at, --from and --to so. json and csv have UTC
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

/// How and where to write.
#[derive(Debug, clap::Args)]
pub(super) struct Writing {
    /// How to write
    #[arg(short, long, value_name = "FORMAT", value_parser = format_names(), default_value = FORMATS[0].name())]
    format: String,
    /// Write to a file instead of the terminal
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write html and open it in a browser: the one that BROWSER names, or the desktop's. Without
    /// -o it goes to a temporary file
    #[arg(long, conflicts_with = "format")]
    open: bool,
    /// List so many processes, phases or roles [default: 10; html: 500; json and csv: all]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    top: Option<usize>,
}

impl Writing {
    pub(super) fn format(&self) -> anyhow::Result<&'static dyn Format> {
        let mut formats = FORMATS.iter();
        let found = match self.open {
            true => formats.find(|format| format.is_page()),
            false => formats.find(|format| format.name() == self.format),
        };
        let found = found
            .copied()
            .with_context(|| format!("there is no format {}", self.format))?;
        if found.is_page() && self.output.is_none() && !self.open && io::stdout().is_terminal() {
            bail!(
                "{} is for a browser, not for a terminal: add -o report.html, or --open to see it",
                found.name()
            );
        }
        Ok(found)
    }

    pub(super) fn style(&self) -> Style {
        Style {
            width: width(),
            has_color: self.output.is_none() && has_color(),
            top: self.top,
            ..Style::default()
        }
    }

    /// Hands the place to write to to `write`.
    pub(super) fn write(
        &self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        let buffered = |out: &mut dyn Write| {
            let mut out = BufWriter::new(out);
            write(&mut out)?;
            out.flush()
        };
        let Some(path) = &self.output else {
            if self.open {
                let mut page = browser::private_file()?;
                buffered(page.as_file_mut()).context("failed to write the page")?;
                let (_, path) = page.keep().context("failed to keep the page")?;
                browser::open(&path);
                return Ok(());
            }
            return match buffered(&mut io::stdout().lock()) {
                // `memtrace report | head` has what it wants.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                written => written.context("failed to write the report"),
            };
        };
        let doing = || format!("failed to write {}", path.display());
        match Part::in_place_of(path) {
            Some(mut part) => {
                buffered(&mut part.file).with_context(doing)?;
                part.finish()?;
            }
            None => {
                let mut file = File::create(path).with_context(doing)?;
                buffered(&mut file).with_context(doing)?;
            }
        }
        if self.open {
            browser::open(path);
        }
        Ok(())
    }
}

/// Another way to look at a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Special {
    /// A log of the phases in the order of their ends: what each added, and the sum so far
    Startup,
}

fn format_names() -> impl TypedValueParser<Value = String> {
    let formats = FORMATS.iter();
    PossibleValuesParser::new(
        formats.map(|format| PossibleValue::new(format.name()).help(format.doc())),
    )
}

fn parse_edge(text: &str) -> Result<Moment, String> {
    text.parse()
        .map_err(|error: ParseMomentError| error.of_window())
}

fn section_names() -> impl TypedValueParser<Value = String> {
    let sections = SECTIONS.iter().map(|section| (section.name, section.doc));
    // Those of one name show the same, of one recording or of many.
    let of_runs = RUN_SECTIONS
        .iter()
        .map(|section| (section.name, section.doc));
    let of_runs = of_runs.filter(|(name, _)| SectionInfo::named(name).is_none());
    PossibleValuesParser::new(
        sections
            .chain(of_runs)
            .map(|(name, doc)| PossibleValue::new(name).help(doc)),
    )
}

/// A line for each section; those with a table are marked.
fn list_sections() -> String {
    let lines = SECTIONS.iter().map(|section| {
        let mark = if section.has_table { " [csv]" } else { "" };
        format!("{:<15}{}{mark}\n", section.name, section.doc)
    });
    lines.collect()
}

/// That a section has a table, where one is asked for.
fn check_table(section: &SectionInfo) -> anyhow::Result<()> {
    if section.has_table {
        return Ok(());
    }
    let others = SECTIONS.iter().filter(|section| section.has_table);
    let others: Vec<&str> = others.map(|section| section.name).collect();
    bail!(
        "the section {} has no table for csv; these have one: {}",
        section.name,
        others.join(", ")
    );
}

/// Writes the report.
pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.list_sections {
        return print(&list_sections()).context("failed to list the sections");
    }
    if let Some(done) = hosts::run(&args)? {
        return Ok(done);
    }
    let format = args.writing.format()?;
    let has_window = args.from.is_some() || args.to.is_some();
    let only_table = args.steps || has_window && format.name() == "csv";
    let only_table = only_table.then_some("phase");
    let section = args.section.as_deref().or(only_table);
    if let Some(name) = section.filter(|name| SectionInfo::named(name).is_none()) {
        bail!("the section {name} is of a run of many hosts: name a root, or leave it out");
    }
    let section = section.and_then(SectionInfo::named);
    if let Some(section) = section.filter(|section| has_window && section.name != "phase") {
        bail!(
            "the section {} does not tell of a window: leave out --from and --to, or --section",
            section.name
        );
    }
    if let Some(section) = section.filter(|_| format.name() == "csv") {
        check_table(section)?;
    }
    if let Some(section) = section.filter(|_| format.is_page()) {
        let option = match args.steps {
            true => "--steps".to_owned(),
            false => format!("--section {}", section.name),
        };
        bail!(
            "{} shows the whole recording: leave out {option}",
            format.name()
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
            bail!("--section {section} tells of what {options}: add {example}");
        }
    }
    if args.style.is_some() && !matches!(format.name(), "text" | "md") {
        bail!(
            "--style is for text and md; {} has the phases anyway",
            format.name()
        );
    }
    if args.follow && format.name() != "text" {
        bail!("--follow writes text; leave out --format {}", format.name());
    }
    let dir = recording_dir(args.recording.as_deref())?;
    if args.follow {
        return follow(&dir);
    }
    let wanted = Wanted {
        at: args.at,
        phase: args.phase.or(args.steps.then(|| STEPS.to_owned())),
        process: args.process,
        from: args.from,
        to: args.to,
        is_local: args.local_time,
        saves: args.save_findings,
        ..Wanted::by(format)
    };
    let progress = Progress::of("reading the recording");
    let mut report = analyzed(&dir, wanted)?;
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

fn follow(dir: &Path) -> anyhow::Result<ExitCode> {
    let read = || {
        analyzed(
            dir,
            Wanted {
                is_unfolded: true,
                ..Wanted::default()
            },
        )
    };
    match super::follow::follow(read, &mut io::stdout().lock()) {
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        followed => followed.map(|()| ExitCode::SUCCESS),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// What is asked of a recording beside what is always told.
#[derive(Default)]
pub(super) struct Wanted {
    at: Option<Moment>,
    phase: Option<String>,
    process: Option<String>,
    from: Option<Moment>,
    to: Option<Moment>,
    /// Whether wall-clock times are those of the reader's time zone, and not UTC.
    is_local: bool,
    /// Whether findings are saved as tables.
    saves: bool,
    /// Whether each marked phase is told by itself.
    is_unfolded: bool,
    /// Whether memory over time is wanted.
    has_curves: bool,
}

impl Wanted {
    /// What a format needs.
    pub(super) fn by(format: &dyn Format) -> Self {
        Self {
            has_curves: format.is_page(),
            ..Self::default()
        }
    }
}

/// Saves what is found as tables beside a recording.
pub(super) fn save_findings(dir: &Path) -> anyhow::Result<()> {
    let wanted = Wanted {
        saves: true,
        ..Wanted::default()
    };
    analyzed(dir, wanted).map(drop)
}

pub(super) fn analyzed(dir: &Path, wanted: Wanted) -> anyhow::Result<analyze::Report> {
    let (recording, last_boot_ns) = open(dir)?;
    let shown = dir.display().to_string();
    let shown = visible(&shown);
    let doing = || format!("failed to read the recording {shown}");
    let options = analyze::Options {
        at: wanted.at,
        instants: Vec::new(),
        phase: wanted.phase,
        process: wanted.process,
        from: wanted.from,
        to: wanted.to,
        is_unfolded: wanted.is_unfolded,
        has_curves: wanted.has_curves,
        has_bins: false,
        zone: wanted.is_local.then(jiff::tz::TimeZone::system),
        path: Some(dir.display().to_string()),
        is_live: recording.is_live(),
        is_open: recording.is_open(),
        last_boot_ns,
    };
    let saving = "failed to save phases and roles as tables";
    let mut writer = wanted
        .saves
        .then(|| FindingsWriter::create(&recording))
        .transpose()
        .context(saving)?;
    let mut append = writer.as_mut().map(|writer| |row| writer.append(&row));
    let save = append
        .as_mut()
        .map(|append| append as &mut dyn FnMut(Finding));
    let report = analyze::analyze_into(recording.info(), &Rows(&recording), options, save);
    let mut report = match report {
        Err(analyze::AnalyzeError::Moment(error)) => {
            return Err(error).context("--at can't be answered");
        }
        Err(analyze::AnalyzeError::Window(error)) => {
            return Err(error).context("the window of --from and --to can't be shown");
        }
        Err(analyze::AnalyzeError::Phase(error)) => {
            return Err(error).context("those phases can't be shown");
        }
        Err(analyze::AnalyzeError::Process(error)) => {
            return Err(error).context("--process can't be answered");
        }
        analyzed => analyzed.with_context(doing)?,
    };
    // Damage shows only while reading.
    let problems = recording.problems();
    let missing: Vec<String> = match recording.is_closed() {
        true => missing_tables(&recording).collect(),
        false => Vec::new(),
    };
    if let Some(writer) = writer {
        check_whole(&problems, &missing, &shown).context(saving)?;
        writer.finish().context(saving)?;
    }
    let told = &mut report.analysis.problems;
    *told = problems.iter().map(ToString::to_string).collect();
    told.extend(missing);
    Ok(report)
}

/// That no damage makes findings poorer than those that were saved before. What was put aside
/// when the recording was closed has been missing since then, and nothing brings it back.
fn check_whole(problems: &[Problem], missing: &[String], shown: &str) -> anyhow::Result<()> {
    let problems = problems
        .iter()
        .filter(|problem| problem.kind != ProblemKind::PutAside);
    let problems = problems.map(ToString::to_string);
    let damage: Vec<String> = problems.chain(missing.iter().cloned()).collect();
    let Some(first) = damage.first() else {
        return Ok(());
    };
    let others = match damage.len() - 1 {
        0 => String::new(),
        count => format!("; and {count} more"),
    };
    bail!(
        "the recording is damaged ({first}{others}), and tables that were there stay as they are; \
         put back what it was, or see what is left of it with: memtrace report {shown}"
    );
}

/// A closed recording has a file of each table, also of an empty one. One of an older schema can
/// be without the tables that came later.
fn missing_tables(recording: &Recording) -> impl Iterator<Item = String> {
    let is_same = recording.info().schema_version == SCHEMA_VERSION;
    let tables = TABLES.iter().filter(move |_| is_same);
    let missing = tables.filter(|table| recording.lacks(table));
    missing.map(|table| format!("{}: no file of this table is here", table.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::golden::{RUNS, measured_by_itself};
    use crate::model::{FINDINGS, RunState};
    use crate::store::{Writer, recover};

    fn at(at: Option<Moment>) -> Wanted {
        Wanted {
            at,
            ..Wanted::default()
        }
    }

    fn with_findings_saved() -> Wanted {
        Wanted {
            saves: true,
            ..Wanted::default()
        }
    }

    fn told(report: &analyze::Report) -> String {
        written(report, FORMATS[0])
    }

    fn written(report: &analyze::Report, format: &dyn Format) -> String {
        let mut out = Vec::new();
        format
            .write(&mut report.clone(), &Style::default(), &mut out)
            .expect("a Vec takes it");
        String::from_utf8(out).expect("a report is UTF-8")
    }

    /// Writes a run as a recorder would, its rows up to two seconds late; one that was cut off
    /// stays unclosed.
    fn store(dir: &Path, script: fn() -> analyze::golden::Script) {
        let (info, rows, _) = script().recorded();
        let rows = rows.arrived(|time| time / 1_000 * 7_919 % 2_000_000_000);
        let mut writer = Writer::create(dir, &info).expect("a new recording");
        for record in &rows.0 {
            writer.append(record).expect("a row");
        }
        if info.state == RunState::Closed {
            writer.finish(info).expect("a closed recording");
        } else {
            writer.flush().expect("a spool");
        }
    }

    #[test]
    fn a_stored_recording_is_told_like_the_rows_it_was_written_from() {
        let root = tempfile::tempdir().expect("a directory");
        for (name, script, moment) in RUNS {
            let dir = root.path().join(name);
            store(&dir, *script);
            let asked = moment.map(|moment| moment.parse().expect("a moment"));
            let mut stored = analyzed(&dir, at(asked)).expect("a recording that can be read");
            let mut direct = script().reported(*moment, None);
            stored.analysis.path.clone_from(&direct.analysis.path);
            if stored.analysis.info.state == RunState::Closed {
                let problems = &stored.analysis.problems;
                assert!(problems.is_empty(), "{problems:?}");
            }
            // Damage is the store's to find; these files have none.
            direct.analysis.problems.clear();
            assert_eq!(told(&stored), told(&direct), "{name}");
        }
    }

    /// `cargo xtask python` has them kept, and reads them with the Python package.
    #[test]
    fn findings_saved_beside_a_recording_change_nothing_of_what_is_told() {
        let root = tempfile::tempdir().expect("a directory");
        let kept = std::env::var_os("MEMTRACE_GOLDEN_DIR").map(PathBuf::from);
        let root = kept.as_deref().unwrap_or(root.path());
        let json = FORMATS.iter().find(|format| format.name() == "json");
        let json = *json.expect("a format");
        let more = ("measured_by_itself", measured_by_itself as fn() -> _, None);
        for (name, script, _) in RUNS.iter().chain([&more]) {
            let dir = root.join(name);
            store(&dir, *script);
            if script().info.state != RunState::Closed {
                let refused = analyzed(&dir, with_findings_saved()).expect_err("it is not closed");
                let refused = format!("{refused:#}");
                assert!(refused.contains("memtrace recover"), "{refused}");
                recover(&dir).expect("it can be closed");
            }
            let saved = analyzed(&dir, with_findings_saved()).expect("findings");
            let beside = analyzed(&dir, Wanted::default()).expect("findings once more");
            let report = written(&saved, json);
            assert_eq!(report, written(&beside, json), "{name}");
            for table in FINDINGS {
                let files = std::fs::read_dir(dir.join(table.name)).expect("a folder");
                assert_eq!(files.count(), 1, "{name}: one part of {}", table.name);
            }
            std::fs::write(root.join(format!("{name}.json")), report).expect("a report");
            let (recording, last) = open(&dir).expect("a recording");
            let rows = Rows(&recording);
            let mut trace = Vec::new();
            let written = analyze::perfetto(recording.info(), &rows, last, &mut trace, |_, _| ());
            written.expect("a recording").expect("a trace");
            std::fs::write(root.join(format!("{name}.pftrace")), trace).expect("a trace");
        }
    }

    #[test]
    fn a_table_without_a_file_is_a_problem_and_mem_is_not_called_empty() {
        let root = tempfile::tempdir().expect("a directory");
        let dir = root.path().join("run");
        store(&dir, RUNS[0].1);
        std::fs::remove_dir_all(dir.join("mem")).expect("a table");
        let analysis = analyzed(&dir, Wanted::default()).expect("a recording that can be read");
        let report = told(&analysis);
        assert!(
            report.contains("mem: no file of this table is here"),
            "{report}"
        );
        assert!(report.contains("could not be read"), "{report}");
    }

    #[test]
    fn findings_of_a_damaged_recording_do_not_replace_those_from_before() {
        let root = tempfile::tempdir().expect("a directory");
        let dir = root.path().join("run");
        store(&dir, RUNS[0].1);
        analyzed(&dir, with_findings_saved()).expect("findings");
        let saved = || {
            let tables = FINDINGS.iter().map(|table| dir.join(table.name));
            let files = tables.map(|folder| folder.join("part-00001.parquet"));
            let contents = files.map(|file| std::fs::read(file).expect("a table"));
            contents.collect::<Vec<_>>()
        };
        let before = saved();
        let refused = |what: &str| {
            let refused = analyzed(&dir, with_findings_saved()).expect_err("it is damaged");
            let refused = format!("{refused:#}");
            assert!(refused.contains(what), "{refused}");
            assert!(refused.contains("memtrace report"), "{refused}");
            assert_eq!(saved(), before);
        };
        let part = dir.join("mem/part-00001.parquet");
        let mut bytes = std::fs::read(&part).expect("a table");
        bytes.truncate(bytes.len() / 2);
        std::fs::write(&part, bytes).expect("half a table");
        refused("mem/part-00001.parquet");
        std::fs::remove_dir_all(dir.join("mem")).expect("a table");
        refused("mem: no file of this table is here");
        analyzed(&dir, Wanted::default()).expect("what is left can be read");
    }

    #[test]
    fn a_section_without_a_table_names_those_that_have_one() {
        let named = |name| SectionInfo::named(name).expect("a section");
        let error = check_table(named("oom-kills")).expect_err("no table");
        let message = error.to_string();
        let begin = "the section oom-kills has no table for csv; these have one: phase, process";
        assert!(message.starts_with(begin), "{message}");
        check_table(named("survivors")).expect("a table");
        assert_eq!(list_sections().lines().count(), SECTIONS.len());
    }

    #[test]
    fn a_directory_without_a_recording_says_so_and_names_it() {
        let empty = tempfile::tempdir().expect("a directory");
        let error = analyzed(empty.path(), Wanted::default()).expect_err("no recording");
        let message = format!("{error:#}");
        assert!(message.contains("not a recording"), "{message}");
        assert!(
            message.contains(&empty.path().display().to_string()),
            "{message}"
        );
    }

    #[test]
    fn a_path_that_is_not_there_is_told_without_its_escape_codes() {
        let error =
            analyzed(Path::new("/nope\x1b[2J"), Wanted::default()).expect_err("no directory");
        assert_eq!(format!("{error:#}"), "no such directory: /nope\\x1b[2J");
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
        run(line.args).map_err(|error| format!("{error:#}"))?;
        Ok(std::fs::read_to_string(&out).expect("a report"))
    }

    #[test]
    fn a_window_is_told_by_its_section_and_by_no_other() {
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
        assert!(refused.contains("survivors does not tell"), "{refused}");
        let refused = reported(&["--section", "phase"]).expect_err("no phase");
        assert!(refused.contains("--from TIME --to TIME"), "{refused}");
        let refused = reported(&["--from", "-1s"]).expect_err("no time");
        assert!(
            refused.contains("`-1s` is not a time: use an offset"),
            "{refused}"
        );
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
        let refused = reported(&["--steps"]).expect_err("no steps");
        assert!(refused.contains("no phase \"step_*\""), "{refused}");
    }

    #[test]
    fn an_instant_outside_of_the_recording_is_named_as_the_cause() {
        let root = tempfile::tempdir().expect("a directory");
        let dir = root.path().join("run");
        store(&dir, RUNS[0].1);
        let moment = Some("+9h".parse().expect("a moment"));
        let message = format!("{:#}", analyzed(&dir, at(moment)).expect_err("too late"));
        assert!(message.contains("--at"), "{message}");
        assert!(message.contains("after the recording"), "{message}");
    }
}
