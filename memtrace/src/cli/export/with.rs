//! `--with`: traces of torch's profiler beside a recording.

use memtrace_analyze::Recorded;
use memtrace_perfetto::Trace;
use memtrace_report::visible;
use memtrace_report::words::{count, counted};
use memtrace_traces::{Merger, Place};
use std::path::{Path, PathBuf};

/// Puts traces beside the recording. Answers what became of each, for a person.
pub(super) fn merged(
    trace: &mut Trace<'_>,
    recorded: &Recorded<'_>,
    files: &[PathBuf],
) -> Vec<String> {
    let find = |wall| recorded.find(wall);
    let process = |pid, at| recorded.process(pid, at);
    let mut merger = Merger::new(Place {
        span: recorded.span(),
        find: &find,
        process: &process,
    });
    let each = files.iter();
    each.map(|file| merge(&mut merger, trace, file)).collect()
}

fn merge(merger: &mut Merger<'_>, trace: &mut Trace<'_>, file: &Path) -> String {
    let shown = file.display().to_string();
    let shown = visible(&shown);
    let merged = match merger.merge(trace, file) {
        Ok(merged) => merged,
        Err(error) => return format!("{shown} is left out: {error}"),
    };
    let mut words = match merged.refused {
        Some(why) => format!("{shown} is left out: {why}"),
        None => {
            let slices = counted(merged.slice_count, "slice", "slices");
            match merged.apart {
                None => format!("{shown}: {slices} under its process"),
                Some(why) => format!("{shown}: {slices} on tracks of its own: {why}"),
            }
        }
    };
    if merged.left_out_count > 0 {
        words += &format!(", {} more left out", count(merged.left_out_count));
    }
    if let Some(problem) = merged.problem {
        words += &format!("; not read to its end: {problem}");
    }
    words
}
