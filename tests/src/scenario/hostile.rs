//! Recordings that someone made to do harm: whatever stands in place of a file or a folder, and
//! whatever the rows say, each command ends soon, with the rest or with an error.

use crate::beside::at_once;
use crate::own_peak;
use crate::program;
use crate::recorder::{Recorded, Recorder, record};
use anyhow::{Context, Result, ensure};
use memtrace_model::tables::{
    MarkKind, MarkRow, MarkSource, MemRow, MemSource, ProcessRow, TitleRow, TitleSource,
};
use memtrace_model::{BootNs, Bytes, ClockReading, Record, RunInfo, RunState, Upid, WallNs};
use memtrace_store::{Writer, read_run_info};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// On a busy machine a command that only starts takes a while.
const HANGS: Duration = Duration::from_secs(60);

/// What reads recordings.
const COMMANDS: [&str; 5] = [
    "report",
    "diff",
    "export",
    "export --to perfetto",
    "recover",
];

/// What a command takes of a hostile recording beyond what it takes of a good one, at the most.
#[derive(Clone, Copy, Debug, Default)]
pub struct Excess {
    /// How much more time it takes.
    pub time: Duration,
    /// The command that took it.
    pub slowest: &'static str,
    /// Its peak RSS, for each recording that it reads.
    pub rss_bytes: i64,
    /// Bytes of the files that it writes.
    pub written_bytes: u64,
}

impl Excess {
    /// The highest of each.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        let slower = if self.time >= other.time { self } else { other };
        Self {
            time: slower.time,
            slowest: slower.slowest,
            rss_bytes: self.rss_bytes.max(other.rss_bytes),
            written_bytes: self.written_bytes.max(other.written_bytes),
        }
    }
}

/// What is wrong with a recording.
#[derive(Clone, Copy, Debug)]
pub enum Hostile {
    /// A FIFO in place of each file and folder.
    Fifo,
    /// A link to a device.
    Link,
    /// Times and amounts that can't be.
    AbsurdRows,
    /// More processes than there can be.
    Processes,
    /// Memory of more processes than there can be.
    ProcessesWithoutRow,
    /// More titles than there can be.
    Titles,
    /// More marks than there can be.
    Marks,
}

impl Hostile {
    /// Every kind there is.
    pub const ALL: [Self; 7] = [
        Self::Fifo,
        Self::Link,
        Self::AbsurdRows,
        Self::Processes,
        Self::ProcessesWithoutRow,
        Self::Titles,
        Self::Marks,
    ];
}

/// Runs every command on recordings that are hostile in one way, those of rows with so many of
/// them; so many commands at a time, one where their time counts.
///
/// # Errors
/// When a run fails, hangs, or ends in another way than with the rest or an error.
pub fn hostile(kind: Hostile, rows: i64, commands: usize) -> Result<Excess> {
    let link = |place: &Path| Ok(symlink("/dev/zero", place)?);
    let good = || Good::new(true, commands);
    match kind {
        Hostile::Fifo => in_every_place(commands, "a FIFO", fifo),
        Hostile::Link => in_every_place(commands, "a link", link),
        Hostile::AbsurdRows => absurd(&good()?),
        Hostile::Processes => processes(&good()?, rows),
        Hostile::ProcessesWithoutRow => {
            let what = "too many processes without a row";
            of_rows(&good()?, what, |info, row| {
                (row < rows).then(|| mem(info, row).into())
            })
        }
        Hostile::Titles => titles(&good()?, rows),
        Hostile::Marks => marks(&good()?, rows),
    }
}

struct Ran {
    took: Duration,
    max_rss: i64,
    code: Option<i32>,
    said: String,
    written_bytes: u64,
}

/// Runs a command on a recording, for as long as a hang would be noticed.
fn run(command: &str, dir: &Path) -> Result<Ran> {
    let out = tempfile::tempdir()?;
    let said = out.path().join("said");
    let file = std::fs::File::create(&said)?;
    let mut memtrace = Command::new(program::memtrace()?);
    memtrace.args(command.split(' ')).arg(dir);
    match command {
        "diff" => memtrace.arg(dir),
        "export" => memtrace.args(["--to", "csv", "-o"]).arg(out.path()),
        "export --to perfetto" => memtrace.arg("-o").arg(out.path()),
        _ => &mut memtrace,
    };
    memtrace.stdin(Stdio::null());
    memtrace.stdout(file.try_clone()?).stderr(file);
    own_peak::forget();
    let start = Instant::now();
    let mut child = memtrace.spawn()?;
    let pid = i32::try_from(child.id())?;
    // SAFETY: all zeroes is a valid rusage.
    let (mut status, mut usage) = (0, unsafe { std::mem::zeroed::<libc::rusage>() });
    loop {
        // SAFETY: the child is ours and waited for nowhere else; the pointers are to live values.
        let ended = unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut usage) };
        if ended == pid {
            break;
        }
        if start.elapsed() > HANGS {
            child.kill()?;
            child.wait()?;
            anyhow::bail!("memtrace {command} hangs on {}", dir.display());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let took = start.elapsed();
    let mut written_bytes = 0;
    for entry in out.path().read_dir()? {
        written_bytes += entry?.metadata()?.len();
    }
    Ok(Ran {
        took,
        max_rss: usage.ru_maxrss * 1024,
        code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
        said: String::from_utf8_lossy(&std::fs::read(said)?).into_owned(),
        written_bytes,
    })
}

/// A recording that is as it should be, and what each command takes of it.
struct Good {
    recorded: Recorded,
    ran: Vec<Ran>,
    /// So many commands run at a time.
    at_once: usize,
}

impl Good {
    fn new(is_closed: bool, commands: usize) -> Result<Self> {
        let recorded = real(is_closed)?;
        let ran = ran(commands, &recorded.path())?;
        Ok(Self {
            recorded,
            ran,
            at_once: commands,
        })
    }
}

/// Runs every command, each on a copy of a recording.
fn ran(commands: usize, recording: &Path) -> Result<Vec<Ran>> {
    at_once(commands, &COMMANDS, |command| {
        let (_parent, dir) = copy(recording)?;
        run(command, &dir)
    })
}

/// A real recording, closed, or as a killed recorder leaves it.
fn real(is_closed: bool) -> Result<Recorded> {
    let shell = |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        shell
    };
    if is_closed {
        return record(&[], &shell("sleep 1"));
    }
    let mut recorder = Recorder::of_command(&["--kill-child"], &shell("echo here; sleep 60"))?;
    recorder.line()?;
    std::thread::sleep(Duration::from_millis(1_300));
    recorder.signal(libc::SIGKILL)?;
    Ok(recorder.wait_alone()?.0)
}

fn copy(from: &Path) -> Result<(tempfile::TempDir, PathBuf)> {
    let parent = tempfile::tempdir()?;
    let to = parent.path().join("recording");
    let copied = Command::new("cp").arg("-a").args([from, &to]).status()?;
    ensure!(copied.success(), "failed to copy {}", from.display());
    Ok((parent, to))
}

/// Runs every command on copies of a recording, and compares with the same on a good one.
fn survives(good: &Good, what: &str, bad: &Path) -> Result<Excess> {
    let mut most = Excess::default();
    let on_bad = ran(good.at_once, bad)?;
    for ((command, on_good), ran) in COMMANDS.into_iter().zip(&good.ran).zip(on_bad) {
        let text = ran.said.chars().take(2_000).collect::<String>();
        let is_orderly = matches!(ran.code, Some(0 | 1)) && !text.contains("panicked");
        ensure!(
            is_orderly,
            "{command}, {what}: ended with {:?}: {text}",
            ran.code
        );
        let read_count = if command == "diff" { 2 } else { 1 };
        most = most.max(Excess {
            time: ran.took.saturating_sub(on_good.took),
            slowest: command,
            rss_bytes: (ran.max_rss - on_good.max_rss) / read_count,
            written_bytes: ran.written_bytes.saturating_sub(on_good.written_bytes),
        });
    }
    Ok(most)
}

/// Puts something in place of each file and folder of a recording.
fn in_every_place(
    commands: usize,
    what: &str,
    put: impl Fn(&Path) -> Result<()>,
) -> Result<Excess> {
    const CLOSED: [&str; 4] = ["run.json", "mem/part-00001.parquet", "mem", "damaged"];
    const OPEN: [&str; 4] = ["run.json", "spool/mem-00001.arrows", "spool", "mem"];
    let (closed, open) = (Good::new(true, commands)?, Good::new(false, commands)?);
    let places = CLOSED.map(|place| (&closed, place)).into_iter();
    let mut most = Excess::default();
    for (good, place) in places.chain(OPEN.map(|place| (&open, place))) {
        let (_parent, bad) = copy(&good.recorded.path())?;
        let replaced = bad.join(place);
        if replaced.is_dir() {
            std::fs::remove_dir_all(&replaced)?;
        } else if replaced.exists() {
            std::fs::remove_file(&replaced)?;
        }
        put(&replaced)?;
        most = most.max(survives(good, &format!("{what} as {place}"), &bad)?);
    }
    Ok(most)
}

fn fifo(place: &Path) -> Result<()> {
    let made = Command::new("mkfifo").arg(place).status()?;
    ensure!(made.success(), "failed to make a FIFO");
    Ok(())
}

/// Makes a closed recording of some seconds, with rows.
fn made(dir: &Path, info: &RunInfo, rows: impl Iterator<Item = Record>) -> Result<()> {
    let mut writer = Writer::create(dir, info)?;
    for row in rows {
        writer.append(&row)?;
    }
    let mut info = info.clone();
    info.state = RunState::Closed;
    writer.finish(info)?;
    Ok(())
}

/// A recording of the same host and time as a good one comes with these rows.
fn of_rows(
    good: &Good,
    what: &str,
    rows: impl Fn(&RunInfo, i64) -> Option<Record>,
) -> Result<Excess> {
    let mut info = read_run_info(&good.recorded.path())?;
    // What there can be goes by the CPUs: else it is none too many on a large machine.
    info.cpu_count = 1;
    let parent = tempfile::tempdir()?;
    let bad = parent.path().join("bad");
    made(&bad, &info, (0..).map_while(|row| rows(&info, row)))?;
    survives(good, what, &bad)
}

fn now(info: &RunInfo) -> ClockReading {
    info.clocks[0]
}

fn mem(info: &RunInfo, upid: i64) -> MemRow {
    MemRow {
        ts: now(info).wall_ns,
        boot_ns: now(info).boot_ns,
        upid: Upid(upid),
        rss_bytes: Some(Bytes(4096)),
        rss_anon_bytes: Some(Bytes(4096)),
        vm_size_bytes: Some(Bytes(8192)),
        source: Some(MemSource::Snapshot),
        ..MemRow::default()
    }
}

fn absurd(good: &Good) -> Result<Excess> {
    let absurd = [i64::MIN, -1, i64::MAX / 2, i64::MAX];
    of_rows(good, "absurd rows", |info, row| {
        let value = *absurd.get(usize::try_from(row / 3).ok()?)?;
        let mut mem = mem(info, row);
        match row % 3 {
            0 => mem.boot_ns = BootNs(value),
            1 => mem.ts = WallNs(value),
            _ => mem.rss_bytes = Some(Bytes(value)),
        }
        Some(mem.into())
    })
}

fn processes(good: &Good, rows: i64) -> Result<Excess> {
    let processes: Vec<ProcessRow> = good.recorded.recording.rows()?;
    let one = processes.first().context("no process")?.clone();
    of_rows(good, "too many processes", |info, row| {
        let process = ProcessRow {
            upid: Upid(row),
            cmdline: Some(format!("/usr/bin/process --number {row}").into()),
            start_boot_ns: now(info).boot_ns,
            first_seen_boot_ns: now(info).boot_ns,
            exit_boot_ns: None,
            ..one.clone()
        };
        (row < rows).then(|| process.into())
    })
}

fn titles(good: &Good, rows: i64) -> Result<Excess> {
    of_rows(good, "too many titles", |info, row| {
        let title = TitleRow {
            ts: now(info).wall_ns,
            boot_ns: now(info).boot_ns,
            upid: Upid(row % 1_000),
            comm: "title".to_owned(),
            title: Some(format!("title {row} {}", "x".repeat(200)).into()),
            role: None,
            source: Some(TitleSource::Rename),
        };
        (row < rows).then(|| title.into())
    })
}

fn marks(good: &Good, rows: i64) -> Result<Excess> {
    of_rows(good, "too many marks", |info, row| {
        let mark = MarkRow {
            ts: now(info).wall_ns,
            boot_ns: now(info).boot_ns,
            name: format!("step {row} {}", "x".repeat(4_000)),
            kind: Some(MarkKind::Begin),
            span: Some(row),
            source: Some(MarkSource::Socket),
            ..MarkRow::default()
        };
        // More text than there can be: by number alone so many can be.
        (row < rows / 5).then(|| mark.into())
    })
}
