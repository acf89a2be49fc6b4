//! `memtrace recover`: closes a recording whose recorder was killed.

use super::output::print;
use super::progress::Progress;
use super::recorded::local_dir;
use anyhow::Context;
use memtrace_model::quoted;
use memtrace_report::visible;
use memtrace_store::RecoverReport;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Close a recording whose recorder was killed.
///
/// Turns what is still in the recording's spool into Parquet, so that every tool can read it, and
/// notes in `diag` that the recorder did not close it. `memtrace report` reads such a recording
/// without this, too. A file that can't be read in full is kept in `damaged`. Recovering twice does
/// no harm; it is refused while the recorder is alive.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  memtrace recover && memtrace report")]
pub(super) struct Args {
    /// The recording [default: the newest recording here]
    dir: Option<PathBuf>,
}

/// Runs the command.
pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let dir = local_dir(args.dir.as_deref())?;
    let progress = Progress::of("closing the recording");
    let report = memtrace_store::recover(&dir).context("failed to recover the recording")?;
    drop(progress);
    print(&describe(&dir, &report))
}

fn describe(dir: &Path, report: &RecoverReport) -> String {
    let mut text = String::new();
    let path = dir.display().to_string();
    let (dir, typed) = (visible(&path), quoted(&path));
    // Writing to a String can't fail.
    let _ = match report.was_closed {
        true => writeln!(text, "{dir} was closed already"),
        false => writeln!(text, "{dir} is closed"),
    };
    for problem in &report.problems {
        let _ = writeln!(text, "  {}", visible(&problem.to_string()));
    }
    if !report.was_closed {
        let _ = writeln!(
            text,
            "to save phases and roles as tables: memtrace report --save-findings {typed}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrace_model::Bytes;
    use memtrace_store::{Problem, ProblemKind};

    #[test]
    fn damaged_files_are_named() {
        let report = RecoverReport {
            was_closed: false,
            last_boot_ns: None,
            problems: vec![Problem {
                file: PathBuf::from("spool/mem-00001.arrows"),
                kind: ProblemKind::TruncatedTail {
                    lost_bytes: Bytes(12),
                },
            }],
        };
        assert_eq!(
            describe(Path::new("run"), &report),
            "run is closed\n  spool/mem-00001.arrows: ends within a batch; 12 bytes left out\nto \
             save phases and roles as tables: memtrace report --save-findings run\n"
        );
    }
}
