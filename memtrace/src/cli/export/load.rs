//! `memtrace export --to load`: each run of a load experiment as the folder that `memtrace load run`
//! writes, with the memory that the recording knows.

use super::super::part::Part;
use super::super::progress::Progress;
use super::super::recorded::Rows;
use super::{GPU_CSV, MAX_SAMPLES, make};
use anyhow::{Context, bail};
use memtrace_analyze::{
    LoadRun, Names, Options, RoleHolding, RunClock, SampleOptions, analyze, gpu_files, sample,
    sample_gpus, trace_head, trace_line,
};
use memtrace_model::tables::RequestRow;
use memtrace_model::{BootNs, DurationNs};
use memtrace_report::visible;
use memtrace_store::Recording;
use std::io;
use std::path::Path;

/// Between two samples of GPUs, where nobody says.
pub(super) const INTERVAL: DurationNs = DurationNs(200_000_000);

/// The longest name of a folder.
const NAME_BYTES_MAX: usize = 128;

/// What is asked for.
pub(super) struct Wanted<'a> {
    pub(super) dir: &'a Path,
    pub(super) target: &'a Path,
    pub(super) interval: DurationNs,
    pub(super) names: Names,
    pub(super) is_forced: bool,
    /// Whether only what the folders that are there lack is written.
    pub(super) only_adds: bool,
    /// Of those only the one of this name.
    pub(super) only: Option<&'a str>,
    pub(super) last_boot_ns: Option<BootNs>,
}

/// The files of one run in the making.
struct Folder<'a> {
    run: &'a LoadRun<'a>,
    span: [BootNs; 2],
    workload: Option<Part>,
    trace: Option<Part>,
    gpus: Option<Part>,
    summary: Option<Part>,
    manifest: Option<Part>,
}

/// Makes the folders and writes their files, which get their names from whoever asked.
///
/// # Errors
/// When the recording has no load experiment, can't be read, or a file is there or can't be written.
pub(super) fn export(recording: &Recording, wanted: Wanted<'_>) -> anyhow::Result<Vec<Part>> {
    let progress = Progress::of("reading the recording");
    let shown = wanted.dir.display().to_string();
    let doing = || format!("failed to read the recording {}", visible(&shown));
    let found = |instants| {
        let options = Options {
            instants,
            last_boot_ns: wanted.last_boot_ns,
            ..Options::default()
        };
        analyze(recording.info(), &Rows(recording), options).with_context(doing)
    };
    let report = found(Vec::new())?;
    let runs = LoadRun::all(&report.analysis);
    if runs.is_empty() {
        bail!(
            "{} has no load experiment: none ran while it was recorded, and none was imported \
             into it",
            visible(&shown)
        );
    }
    // Who held what at the peaks is known only when these are.
    let peaks = runs.iter().flat_map(LoadRun::peaks);
    let roles_at = found(peaks.collect())?.analysis.roles_at;
    let names = folder_names(runs.iter().map(|run| run.id));
    let named = runs.iter().zip(names);
    let is_wanted = |name: &str| match wanted.only_adds {
        true => wanted.only.is_none_or(|only| only == name) && wanted.target.join(name).is_dir(),
        false => true,
    };
    let named = named.filter(|(_, name)| is_wanted(name));
    let mut folders = named
        .map(|(run, name)| Folder::open(run, &name, &wanted))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let writing = || format!("failed to write to {}", wanted.target.display());
    let clock = &report.analysis.clock;
    let to_wall = |at| clock.to_wall(at);
    let mut outcome = Ok(());
    let traced = recording.scan(&columns(), |row: RequestRow| {
        let folder = folders
            .iter_mut()
            .find(|folder| folder.run.id == row.load_run);
        if let Some(trace) = folder.and_then(|folder| folder.trace.as_mut())
            && outcome.is_ok()
        {
            outcome = trace_line(&mut trace.file, &row, &to_wall);
        }
    });
    traced.with_context(doing)?;
    outcome.with_context(writing)?;
    trace_gpus(recording, &wanted, &mut folders).with_context(doing)??;
    drop(progress);
    let mut parts = Vec::new();
    for mut folder in folders {
        let written = folder.write(recording, clock, &shown, &roles_at);
        written.with_context(writing)?;
        parts.extend(folder.parts());
    }
    Ok(parts)
}

fn columns() -> Vec<&'static str> {
    use memtrace_model::Row;
    let columns = RequestRow::TABLE.columns.iter();
    columns.map(|column| column.name).collect()
}

/// Writes the memory of GPUs while each run was sent. What it answers within is how that went.
fn trace_gpus(
    recording: &Recording,
    wanted: &Wanted<'_>,
    folders: &mut [Folder<'_>],
) -> anyhow::Result<anyhow::Result<()>> {
    let options = SampleOptions {
        interval: wanted.interval,
        top: 0,
        last_boot_ns: wanted.last_boot_ns,
    };
    // The instants alone are wanted, and the clock.
    let (all, _) = sample(recording.info(), &Rows(recording), options, |_, _| false)?;
    let mut left = MAX_SAMPLES;
    let mut outcome = Ok(());
    sample_gpus(
        &Rows(recording),
        &all,
        |one| {
            for folder in folders.iter_mut() {
                let is_within =
                    folder.span[0] <= one.at.boot_ns && one.at.boot_ns <= folder.span[1];
                if let Some(gpus) = folder.gpus.as_mut()
                    && outcome.is_ok()
                    && is_within
                {
                    left -= 1;
                    outcome = match left < 0 {
                        true => Err(io::Error::other("too many lines: give a longer --interval")),
                        false => gpu_files::gpu_line(&mut gpus.file, &all, one),
                    };
                }
            }
            outcome.is_ok()
        },
        |_| false,
    )?;
    Ok(outcome.with_context(|| format!("failed to write to {}", wanted.target.display())))
}

impl<'a> Folder<'a> {
    /// Makes it, with the files that belong there.
    fn open(run: &'a LoadRun<'a>, name: &str, wanted: &Wanted<'_>) -> anyhow::Result<Self> {
        let place = wanted.target.join(name);
        make(&place)?;
        let open = |name: &'static str| match wanted.only_adds && place.join(name).exists() {
            true => Ok(None),
            false => Part::open(&place, name, wanted.is_forced).map(Some),
        };
        let mut folder = Self {
            run,
            span: run.span().unwrap_or_default(),
            workload: open("workload.jsonl")?,
            trace: open("request_trace.csv")?,
            gpus: open(GPU_CSV)?,
            summary: open("summary.json")?,
            manifest: open("manifest.json")?,
        };
        let of_requests = folder.trace.as_mut();
        let of_gpus = folder.gpus.as_mut();
        of_requests
            .map_or(Ok(()), |trace| trace_head(&mut trace.file))
            .and_then(|()| {
                of_gpus.map_or(Ok(()), |gpus| {
                    gpu_files::gpu_head(&mut gpus.file, wanted.names)
                })
            })
            .with_context(|| format!("failed to write to {}", place.display()))?;
        Ok(folder)
    }

    fn write(
        &mut self,
        recording: &Recording,
        clock: &RunClock,
        path: &str,
        roles_at: &[(BootNs, Vec<RoleHolding>)],
    ) -> io::Result<()> {
        let to_wall = |at| clock.to_wall(at);
        if let Some(workload) = &mut self.workload {
            self.run.workload(&mut workload.file)?;
        }
        if let Some(summary) = &mut self.summary {
            self.run.summary(roles_at, to_wall, &mut summary.file)?;
        }
        if let Some(manifest) = &mut self.manifest {
            let manifest = &mut manifest.file;
            self.run
                .manifest(recording.info(), path, to_wall, manifest)?;
        }
        Ok(())
    }

    fn parts(self) -> impl Iterator<Item = Part> {
        let all = [
            self.workload,
            self.trace,
            self.gpus,
            self.summary,
            self.manifest,
        ];
        all.into_iter().flatten()
    }
}

/// The names of runs as those of folders, each another.
fn folder_names<'r>(runs: impl Iterator<Item = &'r str>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for run in runs {
        let name = folder_name(run);
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        let mut all = std::iter::once(name.clone()).chain(numbered);
        names.extend(all.find(|name| !names.contains(name)));
    }
    names
}

/// The name of a run as that of a folder. Whoever sent a mark has chosen it.
fn folder_name(run: &str) -> String {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let fine = run.chars().map(|c| if is_fine(c) { c } else { '_' });
    let name: String = fine.take(NAME_BYTES_MAX).collect();
    match name.trim_start_matches('.') {
        "" => "run".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_of_a_run_leads_elsewhere() {
        for (run, name) in [
            ("load-20260301T120144Z", "load-20260301T120144Z"),
            ("../../etc", "_.._etc"),
            ("..", "run"),
            ("", "run"),
            ("a/b c", "a_b_c"),
        ] {
            assert_eq!(folder_name(run), name);
        }
        assert_eq!(folder_name(&"ü".repeat(500)).len(), NAME_BYTES_MAX);
    }

    #[test]
    fn runs_whose_names_look_alike_have_folders_of_their_own() {
        let names = folder_names(["a/b", "a_b", "a b", "a_b-2"].into_iter());
        assert_eq!(names, ["a_b", "a_b-2", "a_b-3", "a_b-2-2"]);
    }
}
