//! `memtrace import`: what other programs noted while a recording was made, as rows of it.

mod search;

use super::analyzed::save_findings;
use super::output::say;
use super::progress::Progress;
use super::recorded::{open, recording_dir};
use crate::host::{HostFacts, Person, as_person};
use crate::import::{
    FILE_BYTES_MAX, FORMATS, FormatError, Known, Placed, format_of, place, read as read_load,
};
use crate::model::tables::{ClockRow, MarkRow, RequestRow};
use crate::model::{BootNs, Bytes, ClockReading, Clocks, FINDINGS, Target, quoted};
use crate::report::{visible, words};
use crate::store::{Addition, Recording, Recordings};
use anyhow::{Context, bail};
use search::Search;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Add to a closed recording what other programs noted meanwhile
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
}

/// Import the requests of a load generator
///
/// Each request becomes a row of the table `request`, and each condition a phase, so that `memtrace
/// report --section conditions` says what memory it took (docs/load.md). Their times are brought to
/// the clock of the recording by its table `clock`. A file that was imported before adds nothing,
/// and one whose runs have changed since is refused. What was sent while nothing was recorded is left
/// out, and a file of that alone is refused. Findings that were saved as tables are saved anew.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("Files that are understood are those of\n{}", known_formats()))]
struct Requests {
    /// Files of load generators; of a folder those below it that were written since the recording
    /// began
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

/// What is read beside a file is a page or two of options and figures.
const BESIDE_BYTES_MAX: u64 = 16 << 20;

/// Imports.
///
/// # Errors
/// When a file that was named or the recording can't be used; then nothing is imported.
pub(super) fn run(args: Args, recordings: &Recordings) -> anyhow::Result<ExitCode> {
    let What::Requests(args) = args.what;
    let dir = recording_dir(args.recording.as_deref())?;
    let progress = Progress::of("importing requests");
    let imported = import(recordings, &dir, &args)?;
    if imported > 0 {
        let has_findings = FINDINGS.iter().any(|table| dir.join(table.name).exists());
        if has_findings {
            save_findings(recordings, &dir)?;
        }
        drop(progress);
        let typed = quoted(&dir.display().to_string());
        say(&format!(
            "see what each condition took with: memtrace report --section conditions {typed}"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Imports, and answers how many rows are new. The recording is locked until this ends.
fn import(recordings: &Recordings, dir: &Path, args: &Requests) -> anyhow::Result<usize> {
    let person = Person::behind(&HostFacts::read(), false);
    let (recording, _) = open(recordings, dir)?;
    let shown = dir.display().to_string();
    let doing = || format!("failed to import into the recording {}", visible(&shown));
    let mut addition = Addition::begin(&recording).with_context(doing)?;
    let into = Destination::read(&recording).with_context(doing)?;
    let mut known = into.known;
    let mut requests = Vec::new();
    let mut marks = Vec::new();
    let mut told = 0;
    for (path, is_named) in wanted_files(args, &recording, person.as_ref())? {
        let file = Named {
            path: &path,
            person: person.as_ref(),
        };
        let placed = match file.placed((&into.clocks, into.span), &known, is_named) {
            Ok(Some(placed)) => placed,
            Ok(None) => continue,
            Err(error) if is_named => return Err(error),
            // Of those that were looked for, one that can't be used keeps no other out.
            Err(error) => {
                told += 1;
                say(&format!("{error:#}"));
                continue;
            }
        };
        told += 1;
        let placed = file.tell(placed);
        placed.note(&mut known);
        requests.extend(placed.requests);
        marks.extend(placed.marks);
    }
    if told == 0 {
        say("no file of a load generator was written since the recording began");
    }
    let new_rows = requests.len() + marks.len();
    if new_rows > 0 {
        // Phases last: a phase without its requests would say that there were none.
        let add = addition
            .add(requests, |row: &RequestRow| row.boot_ns)
            .and_then(|()| addition.add(marks, |row: &MarkRow| row.boot_ns));
        add.and_then(|()| addition.finish()).with_context(doing)?;
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
        let mut known = Known::default();
        let columns = ["load_run", "time_error_ns"];
        recording.scan(&columns, |row: RequestRow| known.request(&row))?;
        let columns = ["kind", "source", "attributes"];
        recording.scan(&columns, |row: MarkRow| known.mark(&row))?;
        Ok(Self {
            clocks: Clocks::of(readings),
            // One that was killed is noted to end when it began.
            span: [from.unwrap_or_default(), to.max(last).unwrap_or_default()],
            known,
        })
    }
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
        say("there are too many files to look at all of them: name those of the load generator");
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
}

/// A file that was understood and has a place.
struct Understood {
    name: &'static str,
    placed: Placed,
    unknown_fields: BTreeSet<String>,
}

impl Named<'_> {
    /// What it brings to a recording; `None` of a file that was looked for and is none of a load
    /// generator.
    fn placed(
        &self,
        (clocks, span): (&Clocks, [BootNs; 2]),
        known: &Known,
        is_named: bool,
    ) -> anyhow::Result<Option<Understood>> {
        let doing = |what: &str| format!("{}: failed to {what}", self.path.display());
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
        if !is_named && format_of(&mut file).is_err() {
            return Ok(None);
        }
        let beside = |name: &str| self.beside(name);
        let (format, told) = match read_load(&mut file, &beside) {
            Err(error @ FormatError::Missing { .. }) if !is_named => {
                bail!("{} is not imported: failed to {error}", self.path.display())
            }
            read => read.map_err(|error| anyhow::anyhow!(doing(&error.to_string())))?,
        };
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let placed = place((format.name, &name), &told, clocks, span, known)
            .map_err(|error| anyhow::anyhow!(doing(&error.to_string())))?;
        Ok(Some(Understood {
            name: format.name,
            placed,
            unknown_fields: told.unknown_fields,
        }))
    }

    /// A file of the same folder, as JSON.
    fn beside(&self, name: &str) -> Option<Value> {
        let file = open_regular(&self.path.with_file_name(name), self.person).ok()?;
        let mut text = Vec::new();
        file.take(BESIDE_BYTES_MAX).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Says what it brings, and gives that.
    fn tell(&self, found: Understood) -> Placed {
        let path = self.path.display();
        let new = found.placed;
        let (outside, error) = (new.outside_count, new.error);
        match (new.requests.len(), new.condition_count()) {
            (0, 0) => say(&format!("{path}: all of it is in the recording already")),
            (requests, conditions) => say(&format!(
                "{path}: {} of {} under {} of {}, on the clock of the recording to within {:.1} ms",
                words::counted(requests, "request", "requests"),
                words::count(new.within_count),
                words::counted(conditions, "condition", "conditions"),
                found.name,
                error.0 as f64 / 1e6
            )),
        }
        if outside > 0 {
            say(&format!(
                "{path}: {} left out, not wholly within the recording",
                words::counted(outside, "request", "requests")
            ));
        }
        if !found.unknown_fields.is_empty() {
            let fields: Vec<String> = found.unknown_fields.into_iter().collect();
            say(&format!(
                "{path}: fields that are not known and not used: {}",
                fields.join(", ")
            ));
        }
        new
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
        false => Err(io::Error::other("it is no regular file")),
    }
}
