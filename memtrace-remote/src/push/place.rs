//! Where a recording goes below a root.

use crate::objects::is_address;
use anyhow::{Context, bail};
use memtrace::model::{PlaceName, RunInfo};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What a person says of a recording that does not say it itself.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Given {
    /// The run, for a recording that says none [default: START-HOST]
    #[arg(long, value_name = "ID")]
    run: Option<PlaceName>,

    /// The host, for a recording that says none [default: its hostname]
    #[arg(long, value_name = "NAME")]
    host: Option<PlaceName>,
}

/// The path of a recording below a root: by the folders in which it lies, else by what it says of
/// itself, else by what was given.
pub(super) fn path_below(source: &Path, info: &RunInfo, given: &Given) -> anyhow::Result<String> {
    if let Some(path) = of_folders(source) {
        return Ok(path);
    }
    if let Some(place) = &info.place {
        let path = place.path();
        return Ok(path.to_string_lossy().into_owned());
    }
    let started = info.clocks.first();
    let started = started
        .context("it does not say when it was started")?
        .wall_ns;
    let started = jiff::Timestamp::from_nanosecond(i128::from(started.0))?;
    let started = started.strftime("%Y%m%dT%H%M%SZ").to_string();
    let host = given.host.clone();
    let host = host.unwrap_or_else(|| PlaceName::nearest(&info.hostname));
    let run = given.run.clone();
    let run = run.unwrap_or_else(|| PlaceName::nearest(&format!("{started}-{host}")));
    Ok(format!("run={run}/host={host}/rec={started}"))
}

/// The last three folders of a path, where they are those of a recording in a root.
fn of_folders(source: &Path) -> Option<String> {
    let path = source.canonicalize().ok()?;
    let mut above = path.ancestors();
    let mut next = |key: &str| {
        let name = above.next()?.file_name()?.to_str()?;
        let value = name.strip_prefix(key)?.parse::<PlaceName>().ok()?;
        Some(format!("{key}{value}"))
    };
    let (rec, host, run) = (next("rec=")?, next("host=")?, next("run=")?);
    Some(format!("{run}/{host}/{rec}"))
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
        bail!("{root} is within {source}, which would be carried into itself: name another root");
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
