//! Files that a person names for a recording, opened with that person's rights: rules, and logs.

use anyhow::{Context, bail};
use memtrace_host::{Person, as_person};
use memtrace_model::{MarkRule, Rules};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A file of rules is longer than this only by mistake.
const RULES_BYTES_MAX: u64 = 4 << 20;

/// The rules for lines that are marks.
pub(super) fn mark_rules(
    own: Option<&Path>,
    person: Option<&Person>,
) -> anyhow::Result<Vec<MarkRule>> {
    let Some(path) = own else {
        return Ok(memtrace_model::builtin_mark_rules()?);
    };
    let shown = path.display().to_string();
    let text = read_rules(path, person)
        .with_context(|| format!("failed to read the rules for marks, {shown}"))?;
    Ok(memtrace_model::mark_rules(&shown, &text)?)
}

/// Reads a file that the person named, with that person's rights.
fn read_rules(path: &Path, person: Option<&Person>) -> anyhow::Result<String> {
    let mut text = String::new();
    let opened = as_person(person, || opened(path));
    let read = opened.and_then(|file| file.take(RULES_BYTES_MAX + 1).read_to_string(&mut text));
    read.map_err(|error| refused(error, person))?;
    if text.len() as u64 > RULES_BYTES_MAX {
        bail!("it has more than {RULES_BYTES_MAX} bytes");
    }
    Ok(text)
}

/// Opens a file without waiting: a FIFO would wait for its writer.
fn opened(path: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    let file = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(std::io::Error::other("it is not a file")),
    }
}

/// Says as whom a file was opened, where that is why it was refused.
fn refused(error: std::io::Error, person: Option<&Person>) -> anyhow::Error {
    match person {
        Some(person) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            anyhow::anyhow!("{error}: {person}")
        }
        _ => error.into(),
    }
}

/// A log file may appear later; what is there has to be one.
pub(super) fn check_log(path: &Path, person: Option<&Person>) -> anyhow::Result<()> {
    match as_person(person, || opened(path)) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(refused(error, person))
            .with_context(|| format!("failed to take marks from {}", path.display())),
    }
}

/// The rules for roles, with those of a file first.
pub(super) fn rules(file: Option<&Path>, person: Option<&Person>) -> anyhow::Result<Rules> {
    let Some(path) = file else {
        return Ok(Rules::builtin()?);
    };
    let shown = path.display();
    let text =
        read_rules(path, person).with_context(|| format!("failed to read the rules in {shown}"))?;
    Rules::with(&text).with_context(|| format!("the rules in {shown} can't be used"))
}
