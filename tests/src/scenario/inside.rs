//! Memory that grows inside one process for a known cause, and what the report says of it.

use super::book::Score;
use crate::recorder::{Recorded, Recorder};
use crate::workload;
use anyhow::{Context, Result, bail};
use memtrace_host::clock;
use memtrace_model::tables::{LayoutPart, LayoutRow, MemRow};
use memtrace_model::{BootNs, Bytes};
use memtrace_store::{Recording, Recordings};
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Enough for a cause to be reported.
const SMALL: &str = "64M";
/// So many seconds it takes for that.
const QUICK: u64 = 3;
/// What is measured grows as slowly as a program does.
const SLOW: u64 = 8;
/// So long what a program's memory is may take to be read.
const PATIENCE: Duration = Duration::from_secs(90);

/// A program that grows for one cause.
#[derive(Clone, Copy, Debug)]
pub struct Inside {
    /// What it is called.
    pub name: &'static str,
    /// The cause that the report has to tell.
    pub cause: &'static str,
    program: Program,
    /// Whether no header tells it, or not all of them are read in so short a time.
    is_guessed: bool,
    /// So much memory, as a workload takes it.
    bytes: &'static str,
    /// So many seconds it holds still.
    hold: u64,
    /// The begin of the name of a library that is loaded first.
    preload: Option<&'static str>,
}

#[derive(Clone, Copy, Debug)]
enum Program {
    /// The workload, by the name of its cause.
    Workload(&'static str),
    /// Python, which keeps objects.
    Python,
}

const fn of(name: &'static str, cause: &'static str) -> Inside {
    Inside {
        name,
        cause,
        program: Program::Workload(name),
        is_guessed: false,
        bytes: "192M",
        hold: 7,
        preload: None,
    }
}

/// The same of a cause that follows from how such memory behaves.
const fn guessed(name: &'static str, cause: &'static str) -> Inside {
    Inside {
        is_guessed: true,
        ..of(name, cause)
    }
}

const fn preloaded(name: &'static str, library: &'static str) -> Inside {
    Inside {
        program: Program::Workload("live"),
        is_guessed: true,
        preload: Some(library),
        ..of(name, "live_data")
    }
}

/// Every program there is.
pub const INSIDES: &[Inside] = &[
    guessed("live", "live_data"),
    Inside {
        program: Program::Python,
        ..of("python", "live_data")
    },
    of("freed", "retained"),
    // Of small blocks a heap is searched piece by piece: a smaller one, and more time.
    Inside {
        bytes: "96M",
        hold: 15,
        ..of("fragmented", "retained")
    },
    of("arenas", "retained"),
    of("mmapped", "live_data"),
    of("equal", "equal_mappings"),
    guessed("pinned", "pinned"),
    of("copies", "file_copies"),
    guessed("huge", "huge_pages"),
    guessed("bounded", "live_data"),
    of("lazy", "lazily_freed"),
    preloaded("jemalloc", "libjemalloc.so"),
    preloaded("mimalloc", "libmimalloc.so"),
];

/// Objects that a list keeps, over 8 s.
const PYTHON: &str = "
import json, os, sys, time
kept = []
for step in range(40):
    kept.append([{'key': place, 'value': str(place) * 3} for place in range(16000)])
    time.sleep(0.2)
print(json.dumps({'grown': os.getpid()}), flush=True)
time.sleep(int(sys.argv[1]))
";

/// Directories of libraries that a package can have put one into.
const LIBRARIES: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
];

impl Inside {
    /// Whether it can run here.
    ///
    /// # Errors
    /// The library that is missing.
    pub fn is_possible(&self) -> Result<()> {
        self.library().map(drop)
    }

    fn library(&self) -> Result<Option<PathBuf>> {
        let Some(wanted) = self.preload else {
            return Ok(None);
        };
        let found = LIBRARIES.iter().flat_map(|directory| {
            let entries = std::fs::read_dir(directory).into_iter().flatten();
            entries.flatten().map(|entry| entry.path())
        });
        let name = |path: &Path| {
            path.file_name()
                .map(|name| name.to_string_lossy().into_owned())
        };
        let mut found: Vec<PathBuf> = found
            .filter(|path| name(path).is_some_and(|name| name.starts_with(wanted)))
            .collect();
        found.sort();
        let first = found.into_iter().next();
        first
            .map(Some)
            .with_context(|| format!("{wanted} is not installed"))
    }

    /// Takes so much within so many seconds, and holds still for so many in the end.
    fn command(&self, bytes: &str, seconds: u64, hold: u64) -> Result<Command> {
        let (seconds, hold) = (seconds.to_string(), hold.to_string());
        let command = match self.program {
            Program::Workload(cause) => {
                let words = ["inside", "--cause", cause, "--bytes", bytes];
                let times = ["--seconds", &seconds, "--hold", &hold];
                workload::command(&[&words[..], &times].concat())?
            }
            Program::Python => {
                let mut python = Command::new("python3");
                python.args(["-c", PYTHON, &hold]);
                python
            }
        };
        let Some(library) = self.library()? else {
            return Ok(command);
        };
        let mut preloaded = Command::new("env");
        let mut variable = OsString::from("LD_PRELOAD=");
        variable.push(library);
        preloaded.arg(variable).arg(command.get_program());
        preloaded.args(command.get_args());
        Ok(preloaded)
    }
}

/// What was said of one run.
#[derive(Clone, Debug)]
pub struct Reported {
    /// Whose it is.
    pub inside: Inside,
    /// The cause that was reported; `None` where none was.
    pub cause: Option<String>,
    /// How sure that is.
    pub confidence: Option<String>,
    /// By how much the parts and the kernel's count of the same moment differ, as a part of it.
    pub off_by: f64,
    /// The sentence of the report, where it was asked for.
    pub sentence: Option<String>,
}

impl Reported {
    /// Whether that is right, and read rather than guessed where there are headers to read.
    pub fn is_right(&self) -> bool {
        let is_read = self.confidence.as_deref() == Some("measured");
        self.cause.as_deref() == Some(self.inside.cause) && (is_read || self.inside.is_guessed)
    }

    /// Whether it takes memory for live data that is none: what a person would call a leak.
    pub fn is_wrong_leak(&self) -> bool {
        self.cause.as_deref() == Some("live_data") && self.inside.cause != "live_data"
    }
}

/// Records some of them beside each other, each with a recorder of its own.
///
/// # Errors
/// When a run itself fails.
pub fn reported_inside(words: &[&str], insides: &[Inside]) -> Result<Vec<Reported>> {
    let recorders = insides
        .iter()
        .map(|inside| {
            let command = inside.command(inside.bytes, SLOW, inside.hold)?;
            Ok((*inside, Recorder::of_command(words, &command)?))
        })
        .collect::<Result<Vec<_>>>()?;
    recorders
        .into_iter()
        .map(|(inside, recorder)| {
            let recorded = recorder.wait()?;
            let text = recorded.report_text(&["--section", "layout"])?;
            Ok(Reported {
                sentence: text.lines().nth(1).map(|line| line.trim().to_owned()),
                ..reported(inside, &recorded)?
            })
        })
        .collect()
}

fn reported(inside: Inside, recorded: &Recorded) -> Result<Reported> {
    let report = recorded.report(&[])?;
    let layouts = report["layouts"].as_array().context("no layouts")?;
    let most = layouts.first();
    let cause = most.and_then(|layout| layout["cause"].as_str());
    Ok(Reported {
        inside,
        cause: cause.map(str::to_owned),
        confidence: most
            .and_then(|layout| layout["confidence"].as_str())
            .map(str::to_owned),
        off_by: most.map_or(Ok(1.0), |layout| off_by(layout, &recorded.recording))?,
        sentence: None,
    })
}

/// By how much the anonymous parts differ from the rows of `mem` around the reading, as a part of
/// those.
fn off_by(layout: &Value, recording: &Recording) -> Result<f64> {
    let number = |value: &Value| value.as_i64().context("no number");
    let (upid, at) = (number(&layout["upid"])?, number(&layout["at"]["boot_ns"])?);
    let from = at - number(&layout["span_ns"])?;
    let shown = number(&layout["anon_bytes"])? as f64;
    let mut amounts: Vec<(i64, f64)> = Vec::new();
    recording.scan(&["rss_anon_bytes"], |row: MemRow| {
        let anon = row.rss_anon_bytes.filter(|_| row.upid.0 == upid);
        amounts.extend(anon.map(|anon| (row.boot_ns.0, anon.0 as f64)));
    })?;
    // What held when it began, and what came until it ended: a row tells where it moved to.
    let before = amounts.iter().rposition(|(when, _)| *when <= from);
    let after = amounts.partition_point(|(when, _)| *when <= at);
    let around = before.unwrap_or(0)..(after + 1).min(amounts.len());
    let around = amounts.get(around).unwrap_or_default();
    let least = around
        .iter()
        .map(|(_, anon)| *anon)
        .fold(f64::MAX, f64::min);
    let most = around.iter().map(|(_, anon)| *anon).fold(0.0, f64::max);
    if most == 0.0 {
        bail!("no row of mem around the reading");
    }
    Ok((least - shown).max(shown - most).max(0.0) / most)
}

/// A program that holds still: it is ended when the value goes.
struct Grown(i32);

impl Drop for Grown {
    fn drop(&mut self) {
        // SAFETY: it holds still for twice as long as anybody waits, so the id is mostly its own; one
        // that ended long ago gets no signal.
        unsafe { libc::kill(self.0, libc::SIGTERM) };
    }
}

/// Whether a reading was begun since then, and heaps that matter were searched since.
fn is_read(place: &Path, since: BootNs) -> Result<bool> {
    const HEAPS: [LayoutPart; 2] = [LayoutPart::BrkHeap, LayoutPart::GlibcArenas];
    const MATTERS: Bytes = Bytes(16 << 20);
    let rows: Vec<LayoutRow> = Recordings::default().open(place)?.rows()?;
    let readings = rows.chunk_by(|one, next| one.boot_ns == next.boot_ns);
    Ok(readings.into_iter().any(|reading| {
        reading.iter().all(|row| {
            let is_heap = row.part.is_some_and(|part| HEAPS.contains(&part));
            let is_searched = || {
                row.searched_age_ns
                    .is_some_and(|age| row.boot_ns - since >= age)
            };
            row.boot_ns - since >= row.span_ns
                && (!is_heap || row.rss_bytes < MATTERS || is_searched())
        })
    }))
}

/// Whether the report is right of these, of small amounts; programs hold still until they were read,
/// which takes its time in an emulated machine.
///
/// # Errors
/// When a run itself fails.
pub fn inside(words: &[&str], insides: &[Inside]) -> Result<Vec<Score>> {
    let begin = |inside: &Inside| {
        let command = inside.command(SMALL, QUICK, 2 * PATIENCE.as_secs())?;
        Ok((*inside, Recorder::of_command(words, &command)?))
    };
    let mut runs = insides.iter().map(begin).collect::<Result<Vec<_>>>()?;
    let grown = runs
        .iter_mut()
        .map(|(_, recorder)| {
            let line = serde_json::from_str(&recorder.line()?)?;
            Ok(Grown(i32::try_from(workload::number(&line, "grown")?)?))
        })
        .collect::<Result<Vec<Grown>>>()?;
    let since = clock::boot();
    let start = Instant::now();
    let mut read = Score::new("what it grew to is read in time");
    for (inside, recorder) in &runs {
        let is_read = || is_read(&recorder.path(), since);
        while start.elapsed() < PATIENCE && !is_read()? {
            std::thread::sleep(Duration::from_millis(100));
        }
        read.case(is_read()?, || inside.name.to_owned());
    }
    drop(grown);
    let shown = runs
        .into_iter()
        .map(|(inside, recorder)| reported(inside, &recorder.wait()?));
    let shown = shown.collect::<Result<Vec<_>>>()?;
    let mut causes = Score::new("the cause is right");
    let mut sums = Score::new("the parts add up to anonymous memory within 1 %");
    for shown in &shown {
        causes.case(shown.is_right(), || format!("{shown:?}"));
        sums.case(shown.off_by <= 0.01, || format!("{shown:?}"));
    }
    Ok(vec![read, causes, sums])
}

/// Threads that free all they allocated, with as many arenas as they like and with two: what the diff
/// says of it.
///
/// # Errors
/// When a run itself fails.
pub fn inside_diff(words: &[&str]) -> Result<Value> {
    let command = workload::command(&["inside", "--cause", "arenas"])?;
    let few = [("MALLOC_ARENA_MAX", OsString::from("2"))];
    let before = Recorder::of_command(words, &command)?;
    let after = Recorder::of_command_with(words, &command, &few)?;
    let (before, after) = (before.wait()?, after.wait()?);
    let output = Command::new(crate::program::memtrace()?)
        .args(["diff", "--format", "json"])
        .args([before.path(), after.path()])
        .output()?;
    Ok(serde_json::from_slice(&output.stdout)?)
}
