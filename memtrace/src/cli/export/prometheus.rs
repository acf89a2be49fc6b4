//! `memtrace export --to prometheus`: the newest figures as a file for node_exporter.

use super::make;
use crate::cli::newest::Newest;
use crate::cli::output::say;
use crate::cli::part::Part;
use anyhow::Context;
use memtrace_model::DurationNs;
use memtrace_store::Recordings;
use memtrace_top::{end_with_signals, is_to_end_within};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What node_exporter's textfile collector takes: a name that ends so.
pub(super) const FILE: &str = "memtrace.prom";
/// A look takes some milliseconds, and a monitoring system asks every 10 s at the most.
pub(super) const SHORTEST: DurationNs = DurationNs(1_000_000_000);

/// Writes the file, once or, with `every`, until a signal comes or the recording ends, where it is one
/// and not a directory of them; then the file goes again, for what it says is no longer so.
///
/// # Errors
/// When the recording can't be read, or the file can't be written.
pub(super) fn export(
    recordings: &Recordings,
    dir: &Path,
    target: &Path,
    every: Option<DurationNs>,
    is_forced: bool,
) -> anyhow::Result<()> {
    make(target)?;
    let mut newest = Newest::open(recordings, dir)?;
    let Some(every) = every else {
        let path = write(&mut newest, target, is_forced)?;
        say(&format!("wrote {}", path.display()));
        return Ok(());
    };
    end_with_signals();
    let path = write(&mut newest, target, is_forced)?;
    let every = Duration::from_nanos(every.0.unsigned_abs());
    let kept_up = keep_up(&mut newest, target, every);
    let removed = std::fs::remove_file(&path);
    kept_up.and(removed.with_context(|| format!("failed to remove {}", path.display())))
}

/// Writes it anew so often, until nothing more comes or a signal does.
fn keep_up(newest: &mut Newest<'_>, target: &Path, every: Duration) -> anyhow::Result<()> {
    loop {
        if is_to_end_within(every) || newest.is_over() {
            return Ok(());
        }
        write(newest, target, true)?;
    }
}

/// Writes the file as it is now. Answers where.
fn write(newest: &mut Newest<'_>, target: &Path, is_forced: bool) -> anyhow::Result<PathBuf> {
    let families = newest.families()?;
    let mut part = Part::open(target, FILE, is_forced)?;
    for family in families {
        write!(part.file, "{family}")
            .with_context(|| format!("failed to write to {}", target.display()))?;
    }
    part.sync()
        .with_context(|| format!("failed to write to {}", target.display()))?;
    part.finish()
}
