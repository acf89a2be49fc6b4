//! Where a recording goes below a root.

use crate::objects::is_address;
use anyhow::{Context, bail};
use memtrace_model::{PlaceName, RunInfo};
use rustix::fs::Mode;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What nobody else may do.
pub(super) const PRIVATE: Mode = Mode::RWXG.union(Mode::RWXO);

/// What a person says of a recording; it counts more than what the recording says.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Given {
    /// The run [default: what the recording's folders or its run.json say, else START-HOST]
    #[arg(long, value_name = "ID")]
    run: Option<PlaceName>,

    /// The host [default: what the recording's folders or its run.json say, else its hostname]
    #[arg(long, value_name = "NAME")]
    host: Option<PlaceName>,
}

/// The path of a recording below a root: by what was given, else by the folders in which it lies,
/// else by what it says of itself.
pub(super) fn path_below(source: &Path, info: &RunInfo, given: &Given) -> anyhow::Result<String> {
    let of_itself = || {
        let place = info.place.clone()?;
        Some([place.run, place.host, place.rec])
    };
    let (run, host, rec) = match of_folders(source).or_else(of_itself) {
        Some([run, host, rec]) => (Some(run), Some(host), rec),
        None => (None, None, started(info)?),
    };
    let host = given.host.clone().or(host);
    let host = host.unwrap_or_else(|| PlaceName::nearest(&info.hostname));
    let run = given.run.clone().or(run);
    let run = run.unwrap_or_else(|| PlaceName::nearest(&format!("{rec}-{host}")));
    Ok(format!("run={run}/host={host}/rec={rec}"))
}

/// What a recording is called that has no name of the layout.
fn started(info: &RunInfo) -> anyhow::Result<PlaceName> {
    let started = info.clocks.first();
    let started = started
        .context("it does not say when it was started")?
        .wall_ns;
    let started = jiff::Timestamp::from_nanosecond(i128::from(started.0))?;
    let started = started.strftime("%Y%m%dT%H%M%SZ").to_string();
    Ok(PlaceName::nearest(&started))
}

/// What the last three folders of a path say, where they are those of a recording in a root.
fn of_folders(source: &Path) -> Option<[PlaceName; 3]> {
    let path = source.canonicalize().ok()?;
    let mut above = path.ancestors();
    let mut next = |key: &str| {
        let name = above.next()?.file_name()?.to_str()?;
        name.strip_prefix(key)?.parse::<PlaceName>().ok()
    };
    let (rec, host, run) = (next("rec=")?, next("host=")?, next("run=")?);
    Some([run, host, rec])
}

/// What is made in a root that is a directory is private, unless others may read the root itself.
pub(super) fn take_rights_of(root: &Path, umask: Mode) {
    let Ok(metadata) = root.metadata() else {
        return;
    };
    let rights = Mode::from_raw_mode(metadata.mode());
    if rights.intersects(Mode::RGRP | Mode::ROTH) {
        rustix::process::umask(umask | (PRIVATE - rights));
    }
}

/// That the root is neither in what is carried there nor to be found, and makes it where only the
/// last folder of its path is missing.
///
/// # Errors
/// When it is, or can't be made.
pub(super) fn check_apart(source: &Path, root: &str) -> anyhow::Result<()> {
    let path = root.strip_prefix("file://").unwrap_or(root);
    let path = Path::new(path);
    let keys = ["run=", "host=", "rec="];
    let last = path.file_name().and_then(|name| name.to_str());
    if last.is_some_and(|last| keys.iter().any(|key| last.starts_with(key))) {
        bail!("{root} is a folder within a root: name the root itself");
    }
    if is_address(root) && !root.starts_with("file://") {
        return Ok(());
    }
    let source_path = resolved(source)?;
    let (above, name) = match path.exists() {
        true => (resolved(path)?, None),
        false => {
            let above = path.parent().filter(|above| !above.as_os_str().is_empty());
            (resolved(above.unwrap_or(Path::new(".")))?, path.file_name())
        }
    };
    if above.starts_with(&source_path) {
        let source = source.display();
        bail!("{root} is within {source}, which would be uploaded into itself: name another root");
    }
    if name.is_some() {
        std::fs::create_dir(path).with_context(|| format!("failed to make {root}"))?;
    }
    Ok(())
}

fn resolved(path: &Path) -> anyhow::Result<PathBuf> {
    let doing = || format!("failed to find {}", path.display());
    path.canonicalize().with_context(doing)
}

/// Whether a recording lies already where it would be carried to.
pub(super) fn is_there_itself(source: &Path, root: &Path, below: &str) -> bool {
    let same = |a: Metadata, b: Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    let there = std::fs::metadata(root.join(below));
    let here = std::fs::metadata(source);
    here.ok()
        .zip(there.ok())
        .is_some_and(|(here, there)| same(here, there))
}
