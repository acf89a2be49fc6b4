//! Recordings that someone made to do harm: whatever stands in place of a file or a folder, and
//! whatever the rows say, each command ends soon, with the rest or with an error.

use super::*;
use memtrace::model::tables::{
    MarkKind, MarkRow, MarkSource, MemRow, MemSource, TitleRow, TitleSource,
};
use memtrace::model::{BootNs, Bytes, ClockReading, Record, RunInfo, RunState, Upid, WallNs};
use memtrace::store::{Writer, read_run_info};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// How long a command may take beyond what the same one takes on a good recording.
const MORE_TIME: Duration = Duration::from_secs(2);
/// How much memory a command may take beyond that.
const MORE_BYTES: i64 = 200 << 20;
/// Texts of 64 MiB and the numbers beside them, as many as a short recording can have.
const MORE_OUTPUT: u64 = 128 << 20;
/// On a busy machine a command that only starts takes a while.
const HANGS: Duration = Duration::from_secs(60);

/// What reads recordings.
const COMMANDS: [&str; 4] = ["report", "diff", "export", "recover"];

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
    memtrace.arg(command).arg(dir);
    match command {
        "diff" => memtrace.arg(dir),
        "export" => memtrace.args(["--to", "csv", "-o"]).arg(out.path()),
        _ => &mut memtrace,
    };
    memtrace.stdin(Stdio::null());
    memtrace.stdout(file.try_clone()?).stderr(file);
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

/// A real recording, closed, or as a killed recorder leaves it.
fn good(is_closed: bool) -> Result<Recorded> {
    let sleeps = shell("sleep 1");
    if is_closed {
        return memtrace_tests::recorder::record(&[], &sleeps);
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
    assert!(copied.success());
    Ok((parent, to))
}

/// Runs every command on copies of a recording, and compares with the same on a good one.
fn survives(good: &Path, what: &str, bad: &Path) -> Result<()> {
    for command in COMMANDS {
        let (_parent, dir) = copy(good)?;
        let on_good = run(command, &dir)?;
        let (_parent, dir) = copy(bad)?;
        let ran = run(command, &dir)?;
        let told = &ran.said.chars().take(2_000).collect::<String>();
        assert!(
            matches!(ran.code, Some(0 | 1)),
            "{command}, {what}: ended with {:?}: {told}",
            ran.code
        );
        assert!(!told.contains("panicked"), "{command}, {what}: {told}");
        let more = ran.took.saturating_sub(on_good.took);
        // Without optimisation, and beside other tests, all takes many times as long.
        let may = MORE_TIME * if cfg!(debug_assertions) { 30 } else { 1 };
        assert!(more <= may, "{command}, {what}: took {:?}", ran.took);
        // It reads the bad one twice.
        let read_count = if command == "diff" { 2 } else { 1 };
        assert!(
            ran.max_rss - on_good.max_rss <= read_count * MORE_BYTES,
            "{command}, {what}: {} MiB, {} on a good one",
            ran.max_rss >> 20,
            on_good.max_rss >> 20
        );
        assert!(
            ran.written_bytes <= on_good.written_bytes + MORE_OUTPUT,
            "{command}, {what}: wrote {} bytes",
            ran.written_bytes
        );
    }
    Ok(())
}

/// Puts something in place of each file and folder of a recording.
fn survives_in_every_place(
    is_closed: bool,
    what: &str,
    put: impl Fn(&Path) -> Result<()>,
) -> Result<()> {
    let recorded = good(is_closed)?;
    let path = recorded.path();
    let places: &[&str] = match is_closed {
        true => &["run.json", "mem/part-00001.parquet", "mem", "damaged"],
        false => &["run.json", "spool/mem-00001.arrows", "spool", "mem"],
    };
    for place in places {
        let (_parent, bad) = copy(&path)?;
        let replaced = bad.join(place);
        if replaced.is_dir() {
            std::fs::remove_dir_all(&replaced)?;
        } else if replaced.exists() {
            std::fs::remove_file(&replaced)?;
        }
        put(&replaced)?;
        survives(&path, &format!("{what} as {place}"), &bad)?;
    }
    Ok(())
}

fn fifo(place: &Path) -> Result<()> {
    let made = Command::new("mkfifo").arg(place).status()?;
    assert!(made.success());
    Ok(())
}

#[test]
fn a_fifo_in_any_place_hangs_no_command() -> Result<()> {
    survives_in_every_place(true, "a FIFO", fifo)?;
    survives_in_every_place(false, "a FIFO", fifo)
}

#[test]
fn a_link_to_a_device_in_any_place_is_not_followed() -> Result<()> {
    let link = |place: &Path| Ok(symlink("/dev/zero", place)?);
    survives_in_every_place(true, "a link", link)?;
    survives_in_every_place(false, "a link", link)
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
fn survives_rows(what: &str, rows: impl Fn(&RunInfo, i64) -> Option<Record>) -> Result<()> {
    let recorded = good(true)?;
    let info = read_run_info(&recorded.path())?;
    let parent = tempfile::tempdir()?;
    let bad = parent.path().join("bad");
    made(&bad, &info, (0..).map_while(|row| rows(&info, row)))?;
    survives(&recorded.path(), what, &bad)
}

/// So many are more than there can be; `MEMTRACE_TEST_ROWS` says another number.
fn many() -> i64 {
    let asked = std::env::var("MEMTRACE_TEST_ROWS").ok();
    asked.and_then(|rows| rows.parse().ok()).unwrap_or(150_000)
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
        rss_file_bytes: None,
        rss_shmem_bytes: None,
        swap_bytes: None,
        vm_size_bytes: Some(Bytes(8192)),
        heap_bytes: None,
        footprint_bytes: None,
        source: Some(MemSource::Snapshot),
    }
}

#[test]
fn absurd_times_and_amounts_stop_no_command() -> Result<()> {
    let absurd = [i64::MIN, -1, i64::MAX / 2, i64::MAX];
    survives_rows("absurd rows", |info, row| {
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

#[test]
fn more_processes_without_a_row_than_there_can_be_stop_no_command() -> Result<()> {
    survives_rows("too many processes without a row", |info, row| {
        (row < many()).then(|| mem(info, row).into())
    })
}

#[test]
fn more_processes_than_there_can_be_stop_no_command() -> Result<()> {
    let of_the_good = good(true)?;
    let processes: Vec<ProcessRow> = of_the_good.recording.rows()?;
    let one = processes.first().context("no process")?.clone();
    survives_rows("too many processes", |info, row| {
        let process = ProcessRow {
            upid: Upid(row),
            cmdline: Some(format!("/usr/bin/process --number {row}")),
            start_boot_ns: now(info).boot_ns,
            first_seen_boot_ns: now(info).boot_ns,
            exit_boot_ns: None,
            ..one.clone()
        };
        (row < many()).then(|| process.into())
    })
}

#[test]
fn more_titles_than_there_can_be_stop_no_command() -> Result<()> {
    survives_rows("too many titles", |info, row| {
        let title = TitleRow {
            ts: now(info).wall_ns,
            boot_ns: now(info).boot_ns,
            upid: Upid(row % 1_000),
            comm: "title".to_owned(),
            title: Some(format!("title {row} {}", "x".repeat(200))),
            role: None,
            source: Some(TitleSource::Rename),
        };
        (row < many()).then(|| title.into())
    })
}

#[test]
fn more_marks_than_there_can_be_stop_no_command() -> Result<()> {
    survives_rows("too many marks", |info, row| {
        let mark = MarkRow {
            ts: now(info).wall_ns,
            boot_ns: now(info).boot_ns,
            upid: None,
            tgid: None,
            name: format!("step {row} {}", "x".repeat(4_000)),
            kind: Some(MarkKind::Begin),
            span: Some(row),
            source: Some(MarkSource::Socket),
            attributes: None,
        };
        // More text than there can be: by number alone so many can be.
        (row < many() / 5).then(|| mark.into())
    })
}
