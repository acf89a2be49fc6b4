//! `memtrace traces`: what traces of torch's profiler hold, without opening them in a browser.

use super::output::say;
use super::progress::Progress;
use super::writing::{data_format_names, write_data};
use anyhow::{Context, bail};
use memtrace_report::{FORMATS, visible};
use memtrace_traces::{Overview, TraceSummary, find, read};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

/// Sum up traces of torch's profiler: operators, kernels, idle devices, memory, ranks
///
/// Reads what torch.profiler, vLLM and SGLang write (`*.pt.trace.json.gz`, `*.json`), compressed or
/// not, as a stream, in bounded memory. A trace that was cut off is reported as far as it goes.
/// Hints name probable bottlenecks: an idle device, short kernels, communication that nothing overlaps,
/// a late rank. docs/traces.md says what each figure means.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  memtrace traces profile/
  memtrace traces profile/ --all-ranks
  memtrace traces profile/ --rank 0

Exit status: 0, even if a trace was cut off or one of several could not be read, which is reported;
1 if a path does not exist or holds no trace, or none could be read; 2 on a usage error.")]
pub(super) struct Args {
    /// Traces, or folders of them
    #[arg(value_name = "DIR|FILE", required = true)]
    places: Vec<PathBuf>,
    /// Show only ranks side by side: which start and end late, and which is slow in which step
    #[arg(long)]
    all_ranks: bool,
    /// Only the trace of this rank; may be repeated
    #[arg(long, value_name = "N")]
    rank: Vec<u32>,
    /// How many operators and kernels to show of each trace, and operators of each device's memory
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// How to write
    #[arg(short, long, value_name = "FORMAT", value_parser = data_format_names("one line per operator and kernel (RFC 4180)"), default_value = FORMATS[0].name)]
    format: String,
}

pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let files = found(&args.places)?;
    let progress = Progress::of("reading traces");
    let traces: Vec<_> = files.iter().map(|file| read(file, args.top)).collect();
    drop(progress);
    let traces = of_ranks(traces, &args.rank)?;
    let is_any = traces.iter().any(|trace| trace.is_trace);
    let mut overview = Overview::of(traces, args.all_ranks);
    write_data(&mut overview, &args.format)?;
    Ok(match is_any {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Those of ranks that were asked for; all where none was.
fn of_ranks(mut traces: Vec<TraceSummary>, ranks: &[u32]) -> anyhow::Result<Vec<TraceSummary>> {
    let there: BTreeSet<u32> = traces.iter().filter_map(|trace| trace.rank).collect();
    if let Some(missing) = ranks.iter().find(|rank| !there.contains(rank)) {
        let there: Vec<String> = there.iter().map(ToString::to_string).collect();
        match there.as_slice() {
            [] => bail!("no trace is of rank {missing}: none says its rank"),
            there => bail!(
                "no trace is of rank {missing}: there are {}",
                there.join(", ")
            ),
        }
    }
    if !ranks.is_empty() {
        traces.retain(|trace| trace.rank.is_some_and(|rank| ranks.contains(&rank)));
    }
    Ok(traces)
}

/// The traces of files and folders, each once.
pub(super) fn found(places: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for place in places {
        let shown = place.display().to_string();
        let shown = visible(&shown);
        let found = find(place).with_context(|| format!("failed to read {shown}"))?;
        if found.files.is_empty() {
            bail!("{shown} holds no trace: no file ends in .json or .json.gz");
        }
        if found.has_more {
            say(&format!("{shown} holds more traces than memtrace reads"));
        }
        files.extend(found.files);
    }
    files.sort();
    files.dedup();
    Ok(files)
}
