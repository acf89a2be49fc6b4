//! Recordings as commands find and open them.

use super::output::say;
use super::remote::reader;
use anyhow::{Context, bail};
use jiff::tz::TimeZone;
use memtrace_analyze::Moment;
use memtrace_model::tables::OomRow;
use memtrace_model::{BootNs, Row, RowSource};
use memtrace_report::{visible, words};
use memtrace_store::{RUN_FILE, Recording, Recordings, StoreError, recordings_in};
use std::path::{Path, PathBuf};

/// The recording that was given, or the newest one in the directory that was given or, where none
/// was, here.
pub(super) fn recording_dir(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    recording_dir_at(given, None, false)
}

/// The same where a time on the wall was asked for, an OOM kill, or the last part: of several
/// recordings the newest that has it.
pub(super) fn recording_dir_at(
    given: Option<&Path>,
    moment: Option<Moment>,
    is_local: bool,
) -> anyhow::Result<PathBuf> {
    let found = several(given)?;
    let place = given.unwrap_or(Path::new(".")).display();
    let is_kill = moment == Some(Moment::OomKill);
    // The newest may have only begun, and what was asked for be in the one before.
    let has_anything = |recording: &PathBuf| {
        let opened = open(&Recordings::default(), recording);
        opened.is_ok_and(|(recording, last)| {
            let first = recording.info().clocks.first();
            recording.is_closed() || last > first.map(|reading| reading.boot_ns)
        })
    };
    let is_last = moment.is_some_and(Moment::is_of_last) && found.len() > 1;
    let chosen = match is_last {
        true => found.iter().position(has_anything).unwrap_or(0),
        false => 0,
    };
    let moment = moment.filter(|moment| is_kill || moment.is_wall());
    if let (Some(moment), 2..) = (moment, found.len()) {
        // What can't be read has neither.
        let has_it = |recording: &&PathBuf| {
            let opened = open(&Recordings::default(), recording);
            opened.is_ok_and(|(recording, last)| match is_kill {
                true => has_oom_kill(&recording),
                false => moment.is_in(recording.info(), last, zone(is_local)),
            })
        };
        return found.iter().find(has_it).cloned().with_context(|| {
            let (what, how) = match is_kill {
                true => ("an OOM kill", ""),
                false => ("that time", " (times of day are UTC without --local-time)"),
            };
            format!(
                "none of the {} recordings in {place} has {what}; `memtrace list` names them{how}",
                found.len()
            )
        });
    }
    match (found.get(chosen), given) {
        (Some(newest), _) => {
            if found.len() > 1 && (given.is_some() || chosen > 0) {
                let (newest, count) = (newest.display(), found.len());
                let which = match chosen {
                    0 => "",
                    _ => " that has anything yet",
                };
                say(&format!(
                    "{newest} is the newest of {count} recordings in {place}{which}; `memtrace list` \
                     names them"
                ));
            }
            Ok(newest.clone())
        }
        (None, Some(dir)) => Ok(no_option(dir)),
        (None, None) => bail!(
            "there is no recording in the current directory: give the directory of one, or make \
             one with `memtrace record -- COMMAND`"
        ),
    }
}

/// Whether the OOM killer killed a process of a recording, or another where none of it.
fn has_oom_kill(recording: &Recording) -> bool {
    let mut has_one = false;
    let scanned = recording.scan(&["victim_upid"], |_: OomRow| has_one = true);
    scanned.is_ok() && has_one
}

/// The recordings in the directory that was given, or here, the newest first; none where that is a
/// recording itself, an address, or no directory of recordings.
fn several(given: Option<&Path>) -> anyhow::Result<Vec<PathBuf>> {
    let Some(dir) = given else {
        return listed(Path::new("."));
    };
    let is_itself = address_of(dir).is_some() || dir.join(RUN_FILE).exists();
    Ok(match is_itself {
        true => Vec::new(),
        false => listed(dir).unwrap_or_default(),
    })
}

/// The reader's time zone, where times are shown in it.
pub(super) fn zone(is_local: bool) -> Option<TimeZone> {
    is_local.then(TimeZone::system)
}

/// The recordings in a directory, the newest first, as commands take them.
pub(super) fn listed(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let found = recordings_in(dir)
        .with_context(|| format!("failed to look for recordings in {}", dir.display()))?;
    let named = found
        .iter()
        .map(|found| no_option(found.strip_prefix(".").unwrap_or(found)));
    Ok(named.collect())
}

/// The same for a command that needs the recording where it is made.
pub(super) fn local_dir(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    let dir = recording_dir(given)?;
    match address_of(&dir) {
        Some(address) => bail!(
            "{address} is an address, which is only read from: do this where the recording is made"
        ),
        None => Ok(dir),
    }
}

/// The path as a command takes it, also one that a message names: a name that begins with `-` would
/// be an option.
pub(super) fn no_option(path: &Path) -> PathBuf {
    match path.as_os_str().as_encoded_bytes().starts_with(b"-") {
        true => Path::new(".").join(path),
        false => path.to_path_buf(),
    }
}

/// The address of a place that `memtrace-remote` reads, where this is no directory's path.
pub(super) fn address_of(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| text.contains("://"))
}

/// Opens a recording, with the time of its last row where it was not closed.
pub(super) fn open(
    recordings: &Recordings,
    dir: &Path,
) -> anyhow::Result<(Recording, Option<BootNs>)> {
    let shown = dir.display().to_string();
    let shown = visible(&shown);
    let doing = || format!("failed to read the recording {shown}");
    let address = address_of(dir);
    let opened = match address {
        Some(address) => recordings.open_remote(reader(address)?.into(), ""),
        None => recordings.open(dir),
    };
    let recording = match opened {
        Err(StoreError::NotARecording { .. }) if address.is_none() && !dir.exists() => {
            bail!("no such directory: {shown}")
        }
        // The store's own words have the path as it was given.
        Err(StoreError::NotARecording { .. }) => {
            bail!("{shown} holds no run.json, so it is not a recording")
        }
        opened => opened.with_context(doing)?,
    };
    let last_boot_ns = recording.cut_off_boot_ns().with_context(doing)?;
    Ok((recording, last_boot_ns))
}

/// How commands that read recordings are reported that nothing less than all of one will do.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Strictness {
    /// Exit with status 4 if part of the recording could not be read or is missing, also its end because
    /// the recorder was killed. What could not be read is printed to stderr with or without this option
    #[arg(long)]
    pub(super) strict: bool,
}

/// Says which of the recordings end before what was recorded did. Answers whether there was one. Without
/// a need for all of it the report says so, and nobody else has to.
pub(super) fn say_cut_off(recordings: &Recordings) -> bool {
    let cut_off = recordings.cut_off();
    for path in cut_off.iter().take(SAID_MAX) {
        say(&format!(
            "{}: cut off: its recorder ended before it closed it, so its end is missing",
            path.display()
        ));
    }
    if cut_off.len() > SAID_MAX {
        say(&format!(
            "and {} more were cut off",
            cut_off.len() - SAID_MAX
        ));
    }
    !cut_off.is_empty()
}

/// Problems that are said one by one.
const SAID_MAX: usize = 10;

/// Says on stderr what of the recordings that a command opened could not be read or is missing, wherever
/// its answer went. Answers whether there was anything.
pub(super) fn say_problems(recordings: &Recordings) -> bool {
    let problems = recordings.problems();
    let has_one = recordings.count() == 1;
    for (path, problem) in problems.iter().take(SAID_MAX) {
        match has_one {
            true => say(&problem.to_string()),
            false => say(&format!("{}: {problem}", path.display())),
        }
    }
    let more = problems.len().saturating_sub(SAID_MAX);
    if more > 0 {
        say(&format!(
            "and {} more",
            words::counted(more, "problem", "problems")
        ));
    }
    problems.iter().any(|(_, problem)| problem.is_loss())
}

/// The store as the analysis asks for it.
pub(super) struct Rows<'a>(pub(super) &'a Recording);

impl RowSource for Rows<'_> {
    type Error = StoreError;

    fn scan<R: Row>(&self, columns: &[&str], each: impl FnMut(R)) -> Result<(), StoreError> {
        self.0.scan(&named::<R>(columns), each)
    }
}

/// The columns that are asked for: all, where none is named.
fn named<'a, R: Row>(columns: &[&'a str]) -> Vec<&'a str> {
    match columns.is_empty() {
        true => R::TABLE.columns.iter().map(|column| column.name).collect(),
        false => columns.to_vec(),
    }
}
