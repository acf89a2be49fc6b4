//! `memtrace import`: what other programs noted while a recording was made, as rows of it.

mod search;
mod torch;

use super::analyzed::save_findings;
use super::output::say;
use super::progress::Progress;
use super::recorded::{open, recording_dir};
use anyhow::{Context, bail};
use memtrace_host::{HostFacts, Person, as_person};
use memtrace_import::{
    FILE_BYTES_MAX, FORMATS, Format, FormatError, Known, LoadFile, Placed, REQUESTS_MAX, format_of,
    place, read as read_load, rows,
};
use memtrace_model::tables::{ClockRow, MarkRow, RequestRow};
use memtrace_model::{BootNs, Bytes, ClockReading, Clocks, FINDINGS, Target, quoted};
use memtrace_report::{visible, words};
use memtrace_store::{Recording, Recordings, Revision};
use search::Search;
use serde_json::Value;
use std::collections::BTreeSet;
use std::error::Error;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::mem::take;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Add to a closed recording what other programs wrote during it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  memtrace import requests --auto")]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Requests(Requests),
    Torch(torch::Args),
}

/// Import the requests of a load generator
///
/// Each request becomes a row of the table `request`, and each condition a phase, so that `memtrace
/// report --section conditions` says what memory it took (docs/load.md). Their times are converted
/// to the clock of the recording by its table `clock`. A file that was imported before adds
/// nothing, and one whose runs have changed since is refused. Requests sent outside the recording
/// are left out, and a file with only such requests is refused. Findings that were saved as tables
/// are saved again.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("memtrace understands the files of\n{}", known_formats()))]
struct Requests {
    /// Files of load generators; for a folder, the files below it that were written since the
    /// recording started
    #[arg(value_name = "FILE", required_unless_present = "auto")]
    files: Vec<PathBuf>,

    /// Look for them: below the current directory, and where the recorded command names a file or a
    /// folder. Only files that were written since the recording began
    #[arg(long)]
    auto: bool,

    /// The recording [default: the newest recording here]
    #[arg(short, long, value_name = "DIR")]
    recording: Option<PathBuf>,
}

fn known_formats() -> String {
    let lines = FORMATS.iter().map(|format| format!("  {}", format.doc));
    lines.collect::<Vec<_>>().join("\n")
}

/// What is read beside a file is a page or two of options and figures. A value of two bytes takes 32 of
/// memory, and twice that where it stands in a list.
const BESIDE_BYTES_MAX: u64 = 1 << 20;

/// Imports.
///
/// # Errors
/// When a file that was named or the recording can't be used; then nothing is imported.
pub(super) fn run(args: Args, recordings: &Recordings) -> anyhow::Result<ExitCode> {
    let (given, doing) = match &args.what {
        What::Requests(args) => (&args.recording, "importing requests"),
        What::Torch(args) => (&args.recording, "importing snapshots"),
    };
    let dir = recording_dir(given.as_deref())?;
    let progress = Progress::of(doing);
    let (imported, what, section) = match &args.what {
        What::Requests(args) => {
            let imported = import(recordings, &dir, args)?;
            (imported, "what each condition took", "conditions")
        }
        What::Torch(args) => {
            let imported = torch::import(recordings, &dir, args)?;
            (imported, "what torch held", "torch")
        }
    };
    if imported > 0 {
        let has_findings = FINDINGS.iter().any(|table| dir.join(table.name).exists());
        if has_findings {
            save_findings(recordings, &dir)?;
        }
        drop(progress);
        let typed = quoted(&dir.display().to_string());
        say(&format!(
            "see {what} with: memtrace report --section {section} {typed}"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn doing(dir: &Path) -> String {
    let shown = dir.display().to_string();
    format!("failed to import into the recording {}", visible(&shown))
}

/// Imports, and answers how many rows are new. The recording is locked until this ends.
fn import(recordings: &Recordings, dir: &Path, args: &Requests) -> anyhow::Result<usize> {
    let person = Person::behind(&HostFacts::read(), false);
    let (recording, _) = open(recordings, dir)?;
    let doing = || doing(dir);
    let mut revision = Revision::begin(&recording).with_context(doing)?;
    let files = wanted_files(args, &recording, person.as_ref())?;
    let files = files.iter().map(|(path, is_named)| Named {
        path,
        person: person.as_ref(),
        is_named: *is_named,
    });
    let mut understood = Vec::new();
    let (mut reported, mut left) = (0, REQUESTS_MAX);
    for file in files {
        let found = file.understood(left).transpose();
        reported += usize::from(found.is_some());
        if let Some(found) = file.used(found)? {
            left -= found.1.request_count();
            understood.push((file, found));
        }
    }
    if reported == 0 {
        say("no file of a load generator was written since the recording began");
    }
    // Only now: what it knows of a million requests takes the room in which files were read.
    let mut into = Destination::read(&recording).with_context(doing)?;
    let mut placed = Vec::new();
    let mut understood = understood.into_iter().peekable();
    while let Some((file, found)) = understood.next() {
        let one = file.placed(found, (&into.clocks, into.span), &into.known);
        if let Some(one) = file.used(Some(one))? {
            if understood.peek().is_some() {
                one.note(&mut into.known);
            }
            placed.push(one);
        }
    }
    into.known = Known::default();
    let mut marks: Vec<MarkRow> = placed
        .iter_mut()
        .flat_map(|one| take(&mut one.marks))
        .collect();
    marks.sort_by_key(|row| row.boot_ns);
    let new_rows = placed.iter().map(Placed::request_count).sum::<usize>() + marks.len();
    if new_rows > 0 {
        // Phases last: a phase without its requests would say that there were none.
        let requests = rows(&placed, &into.clocks).with_context(doing)?;
        let add = revision
            .add(requests, |row: &RequestRow| row.boot_ns)
            .and_then(|()| revision.add(marks, |row: &MarkRow| row.boot_ns));
        add.and_then(|()| revision.finish()).with_context(doing)?;
    }
    Ok(new_rows)
}

/// What of the recording is needed.
struct Destination {
    clocks: Clocks,
    span: [BootNs; 2],
    known: Known,
}

impl Destination {
    fn read(recording: &Recording) -> anyhow::Result<Self> {
        let (clocks, span) = clocks_and_span(recording)?;
        let mut known = Known::default();
        let columns = ["load_run", "time_error_ns"];
        recording.scan(&columns, |row: RequestRow| known.request(&row))?;
        known.order();
        let columns = ["kind", "source", "attributes"];
        recording.scan(&columns, |row: MarkRow| known.mark(&row))?;
        Ok(Self {
            clocks,
            span,
            known,
        })
    }
}

/// The clocks of a recording, and when it began and ended.
fn clocks_and_span(recording: &Recording) -> anyhow::Result<(Clocks, [BootNs; 2])> {
    let mut readings = recording.info().clocks.clone();
    let from = readings.iter().map(|reading| reading.boot_ns).min();
    let to = readings.iter().map(|reading| reading.boot_ns).max();
    let last = recording.last_boot_ns()?;
    recording.scan(&["monotonic_ns"], |row: ClockRow| {
        readings.push(ClockReading {
            boot_ns: row.boot_ns,
            monotonic_ns: row.monotonic_ns.0,
            wall_ns: row.ts,
        });
    })?;
    // One that was killed is noted to end when it began.
    let span = [from.unwrap_or_default(), to.max(last).unwrap_or_default()];
    Ok((Clocks::of(readings), span))
}

/// The files, each with whether it was named.
fn wanted_files(
    args: &Requests,
    recording: &Recording,
    person: Option<&Person>,
) -> anyhow::Result<Vec<(PathBuf, bool)>> {
    let since = recording.info().clocks.first().map(|clock| clock.wall_ns);
    let mut search = Search::since(since.unwrap_or_default());
    let mut files = Vec::new();
    for path in &args.files {
        let metadata = as_person(person, || std::fs::metadata(path));
        let metadata = metadata.with_context(|| not_opened(path))?;
        match metadata.is_dir() {
            true => as_person(person, || search.below(path))
                .with_context(|| format!("failed to look below {}", path.display()))?,
            false => files.push((path.clone(), true)),
        }
    }
    if args.auto {
        let command = match &recording.info().target {
            Target::Command { argv } => argv.as_slice(),
            _ => &[],
        };
        as_person(person, || search.of_command(command))
            .context("failed to look below the current directory")?;
    }
    if search.is_cut() {
        say("there are too many files to search: name those of the load generator");
    }
    files.extend(search.found().map(|path| (path, false)));
    let mut met = BTreeSet::new();
    files.retain(|(path, _)| met.insert(path.clone()));
    Ok(files)
}

fn not_opened(path: &Path) -> String {
    format!("failed to open {}", path.display())
}

/// A file that the person has, opened as that person.
struct Named<'a> {
    path: &'a Path,
    person: Option<&'a Person>,
    /// By the person; else it was looked for.
    is_named: bool,
}

impl Named<'_> {
    /// Of those that were looked for, one that can't be used keeps no other out.
    fn used<T>(&self, found: Option<anyhow::Result<T>>) -> anyhow::Result<Option<T>> {
        match found.transpose() {
            Err(error) if !self.is_named => {
                say(&format!("{error:#}"));
                Ok(None)
            }
            found => found,
        }
    }

    fn failed(&self, what: &dyn Error) -> anyhow::Error {
        anyhow::anyhow!("{}: failed to {what}", self.path.display())
    }

    /// What it says, of so many requests at most; `None` of a file that was looked for and is none of
    /// a load generator.
    fn understood(&self, most: usize) -> anyhow::Result<Option<(&'static Format, LoadFile)>> {
        let file = open_regular(self.path, self.person).with_context(|| not_opened(self.path))?;
        if file
            .metadata()
            .is_ok_and(|file| file.len() > FILE_BYTES_MAX)
        {
            bail!(
                "{} has more than {}, and no file of a load generator is that long",
                self.path.display(),
                words::bytes(Bytes(FILE_BYTES_MAX as i64))
            );
        }
        let mut file = BufReader::with_capacity(1 << 16, file);
        if !self.is_named && format_of(&mut file).is_err() {
            return Ok(None);
        }
        let beside = |name: &str| self.beside(name);
        match read_load(&mut file, &beside, most) {
            Err(error @ FormatError::Missing { .. }) if !self.is_named => {
                bail!("{} is not imported: failed to {error}", self.path.display())
            }
            read => read.map(Some).map_err(|error| self.failed(&error)),
        }
    }

    /// What it brings to a recording, which is said.
    fn placed(
        &self,
        (format, mut reported): (&Format, LoadFile),
        (clocks, span): (&Clocks, [BootNs; 2]),
        known: &Known,
    ) -> anyhow::Result<Placed> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let unknown_fields = take(&mut reported.unknown_fields);
        let placed = place((format.name, &name), reported, clocks, span, known)
            .map_err(|error| self.failed(&error))?;
        self.tell(format.name, &placed, unknown_fields);
        Ok(placed)
    }

    /// A file of the same folder, as JSON.
    fn beside(&self, name: &str) -> Option<Value> {
        let file = open_regular(&self.path.with_file_name(name), self.person).ok()?;
        let mut text = Vec::new();
        file.take(BESIDE_BYTES_MAX).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Says what it brings.
    fn tell(&self, generator: &str, new: &Placed, unknown_fields: BTreeSet<String>) {
        let path = self.path.display();
        let (outside, error) = (new.outside_count, new.error);
        match (new.request_count(), new.condition_count()) {
            (0, 0) => say(&format!("{path}: all of it is in the recording already")),
            (requests, conditions) => say(&format!(
                "{path}: {} of {} under {} of {}, on the clock of the recording to within {:.1} ms",
                words::counted(requests, "request", "requests"),
                words::count(new.within_count),
                words::counted(conditions, "condition", "conditions"),
                generator,
                error.0 as f64 / 1e6
            )),
        }
        if outside > 0 {
            say(&format!(
                "{path}: {} left out, not wholly within the recording",
                words::counted(outside, "request", "requests")
            ));
        }
        if !unknown_fields.is_empty() {
            let fields: Vec<String> = unknown_fields.into_iter().collect();
            say(&format!(
                "{path}: unknown fields, not used: {}",
                fields.join(", ")
            ));
        }
    }
}

/// Opens a regular file without waiting, as a FIFO would have one wait.
fn open_regular(path: &Path, person: Option<&Person>) -> io::Result<File> {
    let file = as_person(person, || {
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        options.open(path)
    })?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
}
