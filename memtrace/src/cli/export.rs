//! `memtrace export`: a recording as the files of other profilers, for scripts made for those.

use super::recorded::{Rows, open, recording_dir};
use crate::analyze::{SampleOptions, sample};
use crate::model::DurationNs;
use crate::report::{samples, visible};
use anyhow::{Context, bail};
use clap::ValueEnum;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const CSV: &str = "memory_samples.csv";
const JSONL: &str = "memory_samples.jsonl";
const SUMMARY_JSON: &str = "memory_summary.json";
const SUMMARY_MD: &str = "memory_summary.md";

/// Write samples and a summary as per-run profilers of Python programs do
///
/// One sample for each interval and for each mark: the main process, its children together, and
/// those that hold most. Sums of RSS count what processes share in each of them. The summary's
/// peaks are those of the recording, also between two samples.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The recording's directory [default: the newest recording here]
    #[arg(value_name = "DIR")]
    recording: Option<PathBuf>,
    /// What to write; may be repeated [default: all]
    #[arg(long = "to", value_name = "WHAT")]
    what: Vec<What>,
    /// Where to write; made where it is not there [default: here]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Time between two samples
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = super::values::parse_interval)]
    interval: DurationNs,
    /// Name so many children in each sample
    #[arg(long, value_name = "N", default_value_t = 8)]
    top: usize,
    /// Replace files that are there
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// memory_samples.csv
    Csv,
    /// memory_samples.jsonl, with the largest children of each sample
    Jsonl,
    /// memory_summary.json and memory_summary.md
    Summary,
}

/// Writes the files.
///
/// # Errors
/// When the recording can't be read, or a file is there or can't be written.
pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let dir = recording_dir(args.recording.as_deref())?;
    let (recording, last_boot_ns) = open(&dir)?;
    let target = args.output.as_deref().unwrap_or(Path::new("."));
    std::fs::create_dir_all(target)
        .with_context(|| format!("failed to make the directory {}", target.display()))?;
    let is_wanted = |what| args.what.is_empty() || args.what.contains(&what);
    let mut files = Files {
        target,
        is_forced: args.force,
        written: Vec::new(),
    };
    // All are made first: half of the files would look like all of them.
    let mut csv = files.open_if(is_wanted(What::Csv), CSV)?;
    let mut jsonl = files.open_if(is_wanted(What::Jsonl), JSONL)?;
    let mut json = files.open_if(is_wanted(What::Summary), SUMMARY_JSON)?;
    let mut markdown = files.open_if(is_wanted(What::Summary), SUMMARY_MD)?;

    let options = SampleOptions {
        interval: args.interval,
        top: args.top,
        last_boot_ns,
    };
    let mut outcome = match &mut csv {
        Some(csv) => samples::csv_head(csv),
        None => Ok(()),
    };
    let read = sample(recording.info(), &Rows(&recording), options, |all, one| {
        if outcome.is_ok()
            && let Some(csv) = &mut csv
        {
            outcome = samples::csv_line(csv, all, one);
        }
        if outcome.is_ok()
            && let Some(jsonl) = &mut jsonl
        {
            outcome = samples::json_line(jsonl, all, one);
        }
        outcome.is_ok()
    });
    let shown = dir.display().to_string();
    let (all, summary) =
        read.with_context(|| format!("failed to read the recording {}", visible(&shown)))?;
    outcome
        .and_then(|()| match &mut json {
            Some(json) => samples::summary_json(json, &all, &summary),
            None => Ok(()),
        })
        .and_then(|()| match &mut markdown {
            Some(markdown) => samples::summary_markdown(markdown, &all, &summary),
            None => Ok(()),
        })
        .and_then(|()| {
            let mut files = [csv, jsonl, json, markdown].into_iter().flatten();
            files.try_for_each(|mut file| file.flush())
        })
        .with_context(|| format!("failed to write to {}", target.display()))?;
    for problem in recording.problems() {
        say(&format!("memtrace: {problem}\n"));
    }
    let names: Vec<String> = files
        .written
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    say(&format!("memtrace: wrote {}\n", names.join(", ")));
    Ok(ExitCode::SUCCESS)
}

struct Files<'a> {
    target: &'a Path,
    is_forced: bool,
    written: Vec<PathBuf>,
}

impl Files<'_> {
    fn open_if(&mut self, is_wanted: bool, name: &str) -> anyhow::Result<Option<BufWriter<File>>> {
        is_wanted.then(|| self.open(name)).transpose()
    }

    fn open(&mut self, name: &str) -> anyhow::Result<BufWriter<File>> {
        let path = self.target.join(name);
        let mut options = OpenOptions::new();
        let options = match self.is_forced {
            true => options.write(true).create(true).truncate(true),
            false => options.write(true).create_new(true),
        };
        match options.open(&path) {
            Ok(file) => {
                self.written.push(path);
                Ok(BufWriter::new(file))
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                // Those that this call has made have nothing in them yet.
                for made in self.written.drain(..) {
                    let _ = std::fs::remove_file(made);
                }
                bail!("{} is there already; --force replaces it", path.display())
            }
            Err(error) => Err(error).with_context(|| format!("failed to write {}", path.display())),
        }
    }
}

fn say(text: &str) {
    // Nothing is left to tell it to when stderr is closed.
    let _ = io::stderr().write_all(visible(text.trim_end()).as_bytes());
    let _ = io::stderr().write_all(b"\n");
}
