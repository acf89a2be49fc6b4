//! The service of the packages under systemd: what it records with the rights that its unit leaves it.

use super::book::{Book, Score};
use super::peaks::children;
use crate::program::said;
use crate::recorder::{PATIENCE, SETTLE};
use crate::{program, workload};
use anyhow::{Context, Result, bail};
use memtrace_model::tables::{ClockRow, DiagKind, DiagRow, MarkRow, MemRow, ProcessRow, Severity};
use memtrace_store::{Recording, Recordings, Writer};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

const UNIT: &str = include_str!("../../../xtask/dist/deb/memtrace.service");
/// The exposure that `systemd-analyze security` finds in the unit is no higher, in tenths.
const EXPOSURE_MAX: &str = "35";

/// Starts it, has a storm of forks and a mark recorded, stops it, and starts it once more, which
/// downsamples what is old.
///
/// # Errors
/// When the run itself fails.
pub fn service() -> Result<Vec<Score>> {
    let unit = Unit::install()?;
    unit.ask("start")?;
    let dir = unit.until("it records", || unit.recordings().pop())?;
    sleep(SETTLE);
    let lines = workload::run(&["forkstorm", "--count", "50"])?;
    said(Command::new(program::memtrace()?).args(["mark", "deployed"]))?;
    unit.ask("stop")?;
    let result = said(Command::new("systemctl").args(["show", "-P", "Result", &unit.name]))?;
    let recording = Recordings::default().open(&dir)?;
    let backend = recording.info().backend.clone();
    let mut scores = children(&Book::of(&recording)?, &lines)?;
    let old = unit.state.join("memtrace-old");
    write_aged(&recording, &old)?;
    unit.ask("start")?;
    unit.until("what is old is downsampled", || {
        let recording = Recordings::default().open(&old).ok()?;
        recording.info().downsampled.is_some().then_some(())
    })?;
    let security = format!("--threshold={EXPOSURE_MAX}");
    let security = Command::new("systemd-analyze")
        .args(["security", "--no-pager", &security, &unit.name])
        .output()?;
    scores.extend([
        Score::of(
            "it ended in order",
            result.trim() == "success" && recording.is_closed(),
            || format!("{result}, {:?}", recording.info().state),
        ),
        Score::of("it records by BPF", backend == "bpf", || backend.clone()),
        nothing_is_missing(&recording)?,
        is_marked(&recording)?,
        knows_its_clock(&recording)?,
        Score::of(
            "systemd-analyze finds it no more exposed than that",
            security.status.success(),
            || String::from_utf8_lossy(&security.stdout).into_owned(),
        ),
    ]);
    Ok(scores)
}

/// Writes the processes and their memory once more, as of two days before.
fn write_aged(recording: &Recording, dir: &Path) -> Result<()> {
    const AGE_NS: i64 = 2 * 24 * 3_600_000_000_000;
    let mut info = recording.info().clone();
    for clock in &mut info.clocks {
        clock.wall_ns.0 -= AGE_NS;
    }
    let mut writer = Writer::create(dir, &info)?;
    for row in recording.rows::<ProcessRow>()? {
        writer.append(&row.into())?;
    }
    for mut row in recording.rows::<MemRow>()? {
        row.ts.0 -= AGE_NS;
        writer.append(&row.into())?;
    }
    writer.finish(info)?;
    Ok(())
}

/// The recorder does without nothing for lack of a right. An emulated machine may be too slow for its pace.
fn nothing_is_missing(recording: &Recording) -> Result<Score> {
    let diags: Vec<DiagRow> = recording.rows()?;
    let is_lack = |row: &&DiagRow| {
        row.severity != Some(Severity::Info) && row.kind != Some(DiagKind::BackOff)
    };
    let lack = diags.iter().find(is_lack);
    Ok(Score::of("nothing is missing", lack.is_none(), || {
        format!("{lack:?}")
    }))
}

fn is_marked(recording: &Recording) -> Result<Score> {
    let marks: Vec<MarkRow> = recording.rows()?;
    let is_there = marks.iter().any(|row| row.name == "deployed");
    Ok(Score::of("a mark reaches it", is_there, || {
        format!("{marks:?}")
    }))
}

fn knows_its_clock(recording: &Recording) -> Result<Score> {
    let clocks: Vec<ClockRow> = recording.rows()?;
    let is_known = clocks.iter().any(|row| row.is_synchronized.is_some());
    Ok(Score::of(
        "whether its clock is synchronized is known",
        is_known,
        || format!("{clocks:?}"),
    ))
}

/// The unit of the packages under a name and with recordings of its own, with the programs of this build.
/// Stopped and removed when the value goes.
struct Unit {
    name: String,
    file: PathBuf,
    state: PathBuf,
}

impl Unit {
    fn install() -> Result<Self> {
        let name = format!("memtrace-test-{}", std::process::id());
        let program = program::memtrace()?;
        let changes = [
            ("/usr/bin/memtrace", program.to_str().context("a path")?),
            ("/var/lib/memtrace", &format!("/var/lib/{name}")),
            ("StateDirectory=memtrace", &format!("StateDirectory={name}")),
        ];
        let mut text = UNIT.to_owned();
        for (from, to) in changes {
            if !text.contains(from) {
                bail!("the unit has no {from}");
            }
            text = text.replace(from, to);
        }
        let unit = Self {
            file: PathBuf::from(format!("/run/systemd/system/{name}.service")),
            state: PathBuf::from(format!("/var/lib/{name}")),
            name,
        };
        std::fs::write(&unit.file, text)?;
        said(Command::new("systemctl").arg("daemon-reload"))?;
        Ok(unit)
    }

    fn ask(&self, verb: &str) -> Result<()> {
        said(Command::new("systemctl").args([verb, &self.name])).map(drop)
    }

    /// What is found within some time; else the error has the service's own words.
    fn until<T>(&self, what: &str, mut found: impl FnMut() -> Option<T>) -> Result<T> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if let Some(found) = found() {
                return Ok(found);
            }
            sleep(Duration::from_millis(50));
        }
        let mut journal = Command::new("journalctl");
        journal.args(["--no-pager", "-o", "cat", "-n", "30", "-u", &self.name]);
        let words = said(&mut journal)?;
        bail!("{what}: not within {} s: {words}", PATIENCE.as_secs())
    }

    /// The recordings that it has begun.
    fn recordings(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.state).into_iter().flatten();
        let dirs = entries.filter_map(|entry| Some(entry.ok()?.path()));
        dirs.filter(|dir| dir.join("run.json").is_file()).collect()
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        let _ = self.ask("stop");
        let _ = std::fs::remove_file(&self.file);
        let _ = std::fs::remove_dir_all(&self.state);
        let _ = said(Command::new("systemctl").arg("daemon-reload"));
    }
}
