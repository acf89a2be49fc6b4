//! Recordings as commands find and open them.

use super::output::say;
use super::remote::reader;
use anyhow::{Context, bail};
use jiff::tz::TimeZone;
use memtrace_analyze::Moment;
use memtrace_model::RowSource;
use memtrace_model::{BootNs, Row};
use memtrace_report::{visible, words};
use memtrace_store::{RUN_FILE, Recording, Recordings, StoreError, recordings_in};
use std::path::{Path, PathBuf};

/// The directory that was given, or the newest recording in it or, where none was given, here.
pub(super) fn recording_dir(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(dir) = given.filter(|dir| !holds_recordings(dir)) {
        return Ok(no_option(dir));
    }
    let dir = given.unwrap_or(Path::new("."));
    let found = listed(dir)?;
    let Some(newest) = found.first() else {
        bail!(
            "there is no recording in the current directory: give the directory of one, or make \
             one with `memtrace record -- COMMAND`"
        );
    };
    if given.is_some() && found.len() > 1 {
        say(&format!(
            "{} is the newest of {} recordings in {}; `memtrace list` names them",
            newest.display(),
            found.len(),
            dir.display()
        ));
    }
    Ok(newest.clone())
}

/// The same where a time on the wall was asked for: the newest recording that has it, if the given
/// directory, or the current one, holds several.
pub(super) fn recording_dir_at(
    given: Option<&Path>,
    moment: Option<Moment>,
    is_local: bool,
) -> anyhow::Result<PathBuf> {
    let Some(moment) = moment.filter(|moment| moment.is_wall()) else {
        return recording_dir(given);
    };
    if given.is_some_and(|dir| !holds_recordings(dir)) {
        return recording_dir(given);
    }
    let dir = given.unwrap_or(Path::new("."));
    let found = listed(dir)?;
    // What can't be read has no time: the message about the only one says why.
    let has_it = |recording: &&PathBuf| {
        let opened = open(&Recordings::default(), recording);
        opened.is_ok_and(|(recording, last)| moment.is_in(recording.info(), last, zone(is_local)))
    };
    match found.iter().find(has_it) {
        Some(recording) => Ok(recording.clone()),
        None if found.len() < 2 => recording_dir(given),
        None => bail!(
            "none of the {} recordings in {} has that time; `memtrace list` names them (times of day \
             are UTC without --local-time)",
            found.len(),
            dir.display()
        ),
    }
}

/// The reader's time zone, where times are shown in it.
pub(super) fn zone(is_local: bool) -> Option<TimeZone> {
    is_local.then(TimeZone::system)
}

/// Whether a directory is no recording itself and holds some.
fn holds_recordings(dir: &Path) -> bool {
    address_of(dir).is_none()
        && !dir.join(RUN_FILE).exists()
        && recordings_in(dir).is_ok_and(|found| !found.is_empty())
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
    let last_boot_ns = match recording.is_closed() {
        true => None,
        false => recording.last_boot_ns().with_context(doing)?,
    };
    Ok((recording, last_boot_ns))
}

/// How commands that read recordings are reported that nothing less than all of one will do.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Strictness {
    /// Exit with status 4 if part of the recording could not be read or is missing. What is missing
    /// is printed to stderr with or without this option
    #[arg(long)]
    pub(super) strict: bool,
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
