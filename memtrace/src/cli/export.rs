//! `memtrace export`: a recording as the files of other profilers, for scripts made for those, and as
//! a trace for Perfetto.

mod load;
mod prometheus;
mod with;

use super::analyzed::{Wanted, analyzed};
use super::output::say;
use super::part::Part;
use super::progress::Progress;
use super::recorded::{Rows, Strictness, open, recording_dir, recording_dir_at};
use super::remote;
use super::traces::found;
use anyhow::{Context, bail};
use clap::ValueEnum;
use memtrace_analyze::{
    Moment, Names, RssThen, SampleOptions, Samples, StackFile, export_stacks, gpu_files, perfetto,
    sample, sample_files, sample_gpus,
};
use memtrace_model::{BootNs, DurationNs, RunInfo};
use memtrace_report::visible;
use memtrace_store::{Recording, Recordings, StoreError};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const CSV: &str = "memory_samples.csv";
const JSONL: &str = "memory_samples.jsonl";
const SUMMARY_JSON: &str = "memory_summary.json";
const SUMMARY_MD: &str = "memory_summary.md";
const GPU_CSV: &str = "gpu_mem_trace.csv";
const GPU_PROCESS_CSV: &str = "gpu_mem_processes.csv";
const TRACE: &str = "memtrace.pftrace";
/// Files of stacks.
const STACKS: [(What, StackFile, &str); 3] = [
    (What::Folded, StackFile::Folded, "memtrace.folded"),
    (
        What::Speedscope,
        StackFile::Speedscope,
        "memtrace.speedscope.json",
    ),
    (What::Pprof, StackFile::Pprof, "memtrace.pb.gz"),
];

/// Write a recording as samples and a summary for scripts, or as a trace for Perfetto
///
/// The files are like those that per-run profilers of Python programs write: one sample for each
/// interval and for each mark, with the main process, its children together, and the largest
/// children. Sums of RSS count shared memory in each process. The summary's peaks are those of the
/// recording, including those between two samples. GPU memory has files of its own, with the same
/// instants. Others are written only on request: with `--to load` a folder for each run of a load
/// experiment, with `--to perfetto` the recording as a trace that ui.perfetto.dev opens, with every
/// change, with `--to folded`, `speedscope` or `pprof` resident memory by stack, and with `--to
/// prometheus` its newest figures for a monitoring system. docs/exports.md says what each column, track
/// and series means.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  memtrace export --to csv --interval 500ms
  memtrace export --names compat -o samples/
  memtrace export --to perfetto
  memtrace export --to prometheus --every 15s -o /var/lib/prometheus/node-exporter
  memtrace export --to prometheus --listen 9847 /var/lib/memtrace
  memtrace export --to otlp --endpoint http://localhost:4318 --every 15s /var/lib/memtrace
  memtrace export --force --to perfetto --with profile/")]
pub(super) struct Args {
    /// The recording's directory [default: the newest recording here]
    #[arg(value_name = "DIR")]
    recording: Option<PathBuf>,
    /// What to write; may be repeated [default: csv, jsonl, summary and gpu]
    #[arg(long = "to", value_name = "WHAT")]
    what: Vec<What>,
    /// Where to write; made if it does not exist [default: here]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Add traces of torch's profiler to memtrace.pftrace: files, or folders of them; may be
    /// repeated
    #[arg(long, value_name = "DIR|FILE")]
    with: Vec<PathBuf>,
    /// Time between two samples [default: 1s; for load 200ms]
    #[arg(long, value_name = "TIME", value_parser = super::values::parse_interval)]
    interval: Option<DurationNs>,
    /// With --to folded, speedscope or pprof: what was held at this time, such as `peak`, +83.2s or
    /// 12:03:07 (UTC) [default: what was resident at the end, or before the end of a process]
    #[arg(long, value_name = "TIME")]
    at: Option<Moment>,
    /// For a running recording: rewrite memtrace.prom (or send to --endpoint) this often until the
    /// recording ends, and then remove it. For a directory of recordings: follow its newest, until stopped
    #[arg(long, value_name = "TIME", value_parser = super::values::parse_interval)]
    every: Option<DurationNs>,
    /// What columns and keys of samples and GPUs are called
    #[arg(long, value_enum, value_name = "NAMES", default_value = "units")]
    names: NamesOption,
    /// With --to otlp: send the newest figures there, once or with --every until stopped, such as
    /// http://localhost:4318. Follows the newest recording of DIR
    #[arg(long, value_name = "URL", conflicts_with_all = ["output", "force"])]
    endpoint: Option<String>,
    /// Instead of writing memtrace.prom, answer Prometheus's scrapes at /metrics of that port, such as
    /// 9847 (on this machine only) or 0.0.0.0:9847, until stopped. Follows the newest recording of DIR
    #[arg(long, value_name = "[ADDRESS:]PORT", conflicts_with_all = ["output", "every", "force"])]
    listen: Option<String>,
    /// How many children to name in each sample
    #[arg(long, value_name = "N", default_value_t = 8)]
    top: usize,
    /// Replace files that exist
    #[arg(long)]
    force: bool,
    /// With --to load: of the folders that `memtrace load run` has made, write the files that they lack
    #[arg(long, conflicts_with = "force")]
    add: bool,
    /// With --add: only of the folder of that name
    #[arg(long, value_name = "NAME", requires = "add", hide = true)]
    only: Option<String>,
    #[command(flatten)]
    pub(super) strictness: Strictness,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// memory_samples.csv, a line for each sample
    Csv,
    /// memory_samples.jsonl, with the largest children of each sample
    Jsonl,
    /// memory_summary.json and memory_summary.md
    Summary,
    /// gpu_mem_trace.csv, and gpu_mem_processes.csv with who holds it
    Gpu,
    /// A folder for each run of a load experiment, also of an imported one: workload.jsonl,
    /// request_trace.csv, gpu_mem_trace.csv, summary.json and manifest.json
    Load,
    /// memtrace.pftrace: memory over time, processes, phases, kills and requests on one clock
    Perfetto,
    /// memtrace.folded: resident memory by stack, for flame graphs (recorded with --stacks)
    Folded,
    /// memtrace.speedscope.json: the same for speedscope.app, a profile for each process
    Speedscope,
    /// memtrace.pb.gz: the same for pprof and Pyroscope, as `inuse_space`
    Pprof,
    /// memtrace.prom: the newest figures, for the textfile collector of node_exporter, or with --listen
    /// for scrapes; 200 series at most
    Prometheus,
    /// The same figures, sent to --endpoint as metrics of OpenTelemetry (OTLP over HTTP)
    Otlp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum NamesOption {
    /// By their units: `main_rss_gib`, `python_heap_mib`
    Units,
    /// As most scripts that poll call them: `main_rss_gb`, `python_heap_mb`, with the same values
    Compat,
}

impl From<NamesOption> for Names {
    fn from(option: NamesOption) -> Self {
        match option {
            NamesOption::Units => Self::Units,
            NamesOption::Compat => Self::Compat,
        }
    }
}

impl What {
    /// Those that are written where nobody says which: files of samples.
    const OF_SAMPLES: [Self; 4] = [Self::Csv, Self::Jsonl, Self::Summary, Self::Gpu];
}

impl Args {
    fn wants(&self, what: What) -> bool {
        match self.what.is_empty() {
            true => What::OF_SAMPLES.contains(&what),
            false => self.what.contains(&what),
        }
    }

    /// Refuses options that do not go together.
    fn check(&self) -> anyhow::Result<()> {
        let [is_prometheus, is_otlp] = [What::Prometheus, What::Otlp].map(|what| self.wants(what));
        if (is_prometheus || is_otlp) && self.what.len() > 1 {
            bail!("prometheus and otlp are written alone: remove the other --to");
        }
        if self.add && !self.wants(What::Load) {
            bail!("--add is for folders of runs: add --to load");
        }
        if self.every.is_some() && !is_prometheus && !is_otlp {
            bail!(
                "--every is for figures that are written again: add --to prometheus or --to otlp"
            );
        }
        if is_otlp != self.endpoint.is_some() {
            bail!("--to otlp and --endpoint go together: add the other one");
        }
        if self.every.is_some_and(|every| every < prometheus::SHORTEST) {
            bail!("--every must be at least one second");
        }
        if self.listen.is_some() && !is_prometheus {
            bail!("--listen is for Prometheus: add --to prometheus");
        }
        let mut named = What::OF_SAMPLES.into_iter().chain([What::Load]);
        if self.names == NamesOption::Compat && !named.any(|what| self.wants(what)) {
            bail!("--names is for samples and GPUs: add --to csv, jsonl, summary, gpu or load");
        }
        if self.at.is_some() && !STACKS.iter().any(|(what, ..)| self.wants(*what)) {
            bail!("--at is for stacks: add --to folded, speedscope or pprof");
        }
        if !self.with.is_empty() && !self.wants(What::Perfetto) {
            bail!("--with puts traces into the one for Perfetto: add --to perfetto");
        }
        Ok(())
    }

    fn open(&self, what: What, target: &Path, name: &'static str) -> anyhow::Result<Option<Part>> {
        let file = self.wants(what);
        file.then(|| Part::open(target, name, self.force))
            .transpose()
    }
}

/// The files of samples that are wanted.
struct Files {
    csv: Option<Part>,
    jsonl: Option<Part>,
    json: Option<Part>,
    markdown: Option<Part>,
    gpus: Option<Part>,
    holders: Option<Part>,
}

impl Files {
    /// All are made before one gets its name: half of the files would look like all of them.
    fn open(args: &Args, target: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            csv: args.open(What::Csv, target, CSV)?,
            jsonl: args.open(What::Jsonl, target, JSONL)?,
            json: args.open(What::Summary, target, SUMMARY_JSON)?,
            markdown: args.open(What::Summary, target, SUMMARY_MD)?,
            gpus: args.open(What::Gpu, target, GPU_CSV)?,
            holders: args.open(What::Gpu, target, GPU_PROCESS_CSV)?,
        })
    }

    fn into_parts(self) -> [Option<Part>; 6] {
        let Self {
            csv,
            jsonl,
            json,
            markdown,
            gpus,
            holders,
        } = self;
        [csv, jsonl, json, markdown, gpus, holders]
    }
}

/// Who held what at a moment of the recording.
fn held_at(recordings: &Recordings, dir: &Path, at: Moment) -> anyhow::Result<RssThen> {
    let wanted = Wanted {
        at: Some(at),
        ..Wanted::default()
    };
    let report = analyzed(recordings, dir, wanted)?;
    let at = report.analysis.at.context("nothing was recorded at --at")?;
    Ok(RssThen::from(&at))
}

/// Writes the files.
///
/// # Errors
/// When the recording can't be read, or a file is there or can't be written.
pub(super) fn run(args: Args, recordings: &Recordings) -> anyhow::Result<ExitCode> {
    args.check()?;
    if let Some(done) = export_newest(&args, recordings)? {
        return Ok(done);
    }
    let target = args.output.as_deref().unwrap_or(Path::new("."));
    let dir = recording_dir_at(args.recording.as_deref(), args.at, false)?;
    let (recording, last_boot_ns) = open(recordings, &dir)?;
    let with = found(&args.with)?;
    let has_samples = What::OF_SAMPLES.into_iter().any(|what| args.wants(what));
    let options = SampleOptions {
        interval: args.interval.unwrap_or(INTERVAL),
        top: args.top,
        last_boot_ns,
    };
    if has_samples {
        check_count(recording.info(), last_boot_ns, options.interval)?;
    }
    let at = args.at.map(|at| held_at(recordings, &dir, at));
    let at = at.transpose()?;
    make(target)?;
    let mut files = Files::open(&args, target)?;
    let mut trace = args.open(What::Perfetto, target, TRACE)?;
    let mut stacks = Vec::new();
    for (what, file, name) in STACKS {
        stacks.extend(args.open(what, target, name)?.map(|part| (file, part)));
    }
    let mut parts = Vec::new();
    if args.wants(What::Load) {
        let interval = args.interval.unwrap_or(load::INTERVAL);
        check_count(recording.info(), last_boot_ns, interval)?;
        let wanted = load::Wanted {
            dir: &dir,
            target,
            interval,
            names: args.names.into(),
            is_forced: args.force,
            only_adds: args.add,
            only: args.only.as_deref(),
            last_boot_ns,
        };
        parts = load::export(&recording, wanted)?;
    }
    let progress = Progress::of("reading the recording");
    let shown = dir.display().to_string();
    let reading = || format!("failed to read the recording {}", visible(&shown));
    let mut outcome = Ok(());
    let mut remarks = Vec::new();
    if has_samples {
        let names = args.names.into();
        outcome = export_samples(&recording, options, names, &mut files).with_context(reading)?;
    }
    if let (Ok(()), Some(trace)) = (&outcome, &mut trace) {
        let traced = perfetto(
            recording.info(),
            &Rows(&recording),
            last_boot_ns,
            &mut trace.file,
            |trace, recorded| remarks = with::merged(trace, recorded, &with),
        );
        outcome = traced.with_context(reading)?;
    }
    for (file, part) in &mut stacks {
        if outcome.is_err() {
            break;
        }
        let count = export_stacks(&Rows(&recording), *file, at.as_ref(), &mut part.file)
            .with_context(reading)?;
        if let Ok(0) = count {
            bail!("no stacks were recorded, or nothing of them was held: record with --stacks");
        }
        outcome = count.map(drop);
    }
    drop(progress);
    let others = files.into_parts().into_iter().chain([trace]);
    parts.extend(others.flatten());
    parts.extend(stacks.into_iter().map(|(_, part)| part));
    outcome
        .and_then(|()| parts.iter_mut().try_for_each(Part::sync))
        .with_context(|| format!("failed to write to {}", target.display()))?;
    let mut written = Vec::new();
    for part in parts {
        written.push(part.finish()?.display().to_string());
    }
    for remark in remarks {
        say(&remark);
    }
    say(&format!("wrote {}", written.join(", ")));
    Ok(ExitCode::SUCCESS)
}

/// Hands out the newest figures where these are asked for, and not the recording.
fn export_newest(args: &Args, recordings: &Recordings) -> anyhow::Result<Option<ExitCode>> {
    let given = args.recording.as_deref();
    if let Some(listen) = &args.listen {
        let words = ["serve".into(), "--listen".into(), listen.into()];
        return remote::metrics(&words, given.unwrap_or(Path::new("."))).map(Some);
    }
    if let Some(endpoint) = &args.endpoint {
        let mut words = vec!["send".into(), "--endpoint".into(), endpoint.into()];
        if let Some(every) = args.every {
            words.push(format!("--every={}", every.as_secs_f64()).into());
        }
        return remote::metrics(&words, given.unwrap_or(Path::new("."))).map(Some);
    }
    let target = args.output.as_deref().unwrap_or(Path::new("."));
    if args.wants(What::Prometheus) {
        // A directory of recordings is followed from one to the next.
        let dir = given.map_or_else(|| recording_dir(None), |dir| Ok(dir.to_owned()))?;
        prometheus::export(recordings, &dir, target, args.every, args.force)?;
        return Ok(Some(ExitCode::SUCCESS));
    }
    Ok(None)
}

/// Makes the directory that files are written to.
fn make(target: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(target)
        .with_context(|| format!("failed to make the directory {}", target.display()))
}

/// Writes the files of samples. What it answers within is how that went.
fn export_samples(
    recording: &Recording,
    options: SampleOptions,
    names: Names,
    files: &mut Files,
) -> Result<io::Result<()>, StoreError> {
    let mut outcome = match &mut files.csv {
        Some(csv) => sample_files::csv_head(&mut csv.file, names),
        None => Ok(()),
    };
    let (all, summary) = sample(recording.info(), &Rows(recording), options, |all, one| {
        if outcome.is_ok()
            && let Some(csv) = &mut files.csv
        {
            outcome = sample_files::csv_line(&mut csv.file, all, one);
        }
        if outcome.is_ok()
            && let Some(jsonl) = &mut files.jsonl
        {
            outcome = sample_files::json_line(&mut jsonl.file, all, one);
        }
        outcome.is_ok()
    })?;
    if let (Ok(()), Some(gpus), Some(holders)) = (&outcome, &mut files.gpus, &mut files.holders) {
        outcome = export_gpus(recording, &all, names, gpus, holders)?;
    }
    Ok(outcome
        .and_then(|()| match &mut files.json {
            Some(json) => sample_files::summary_json(&mut json.file, names, &all, &summary),
            None => Ok(()),
        })
        .and_then(|()| match &mut files.markdown {
            Some(markdown) => sample_files::summary_markdown(&mut markdown.file, &all, &summary),
            None => Ok(()),
        }))
}

/// Writes the files of GPUs. What it answers within is how that went.
fn export_gpus(
    recording: &Recording,
    all: &Samples,
    names: Names,
    gpus: &mut Part,
    holders: &mut Part,
) -> Result<io::Result<()>, StoreError> {
    let mut wrote = (
        gpu_files::gpu_head(&mut gpus.file, names),
        gpu_files::gpu_process_head(&mut holders.file, names),
    );
    let mut left = (MAX_SAMPLES, MAX_SAMPLES);
    let take = |left: &mut i64| {
        *left -= 1;
        let too_many = || io::Error::other("too many lines of GPUs: give a longer --interval");
        (*left >= 0).then_some(()).ok_or_else(too_many)
    };
    sample_gpus(
        &Rows(recording),
        all,
        |one| {
            if wrote.0.is_ok() {
                wrote.0 =
                    take(&mut left.0).and_then(|()| gpu_files::gpu_line(&mut gpus.file, all, one));
            }
            wrote.0.is_ok()
        },
        |one| {
            if wrote.1.is_ok() {
                wrote.1 = take(&mut left.1)
                    .and_then(|()| gpu_files::gpu_process_line(&mut holders.file, all, one));
            }
            wrote.1.is_ok()
        },
    )?;
    Ok(wrote.0.and(wrote.1))
}

/// Between two samples, where nobody says.
const INTERVAL: DurationNs = DurationNs(1_000_000_000);

/// A sample takes some hundred bytes in each file.
const MAX_SAMPLES: i64 = 10_000_000;

/// That there are not too many regular samples: a recording says itself how long it is.
fn check_count(
    info: &RunInfo,
    last_boot_ns: Option<BootNs>,
    interval: DurationNs,
) -> anyhow::Result<()> {
    let readings = info.clocks.first().zip(info.clocks.last());
    let Some((first, last)) = readings else {
        return Ok(());
    };
    let end = last_boot_ns.unwrap_or(last.boot_ns).max(last.boot_ns);
    let count = (end - first.boot_ns).0 / interval.0.max(1);
    if count > MAX_SAMPLES {
        bail!(
            "the recording is so long that there would be {count} samples, and {MAX_SAMPLES} is \
             the maximum: give a longer --interval"
        );
    }
    Ok(())
}
