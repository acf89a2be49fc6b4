//! Memory that several processes share: counted once, whoever holds it.

use super::book::{Book, Score, bytes, no_loss, versus};
use super::settle::{Settle, read_processes};
use crate::recorder::{Recorded, Recorder};
use crate::workload::{Running, number};
use anyhow::{Context, Result};
use memtrace_host::clock;
use memtrace_model::tables::{CachedFileRow, MappingKind, PssRow, ShmObjectRow};
use memtrace_model::{BootNs, Upid};
use memtrace_store::Recording;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// Records a running workload until so many processes were read.
fn observe(words: &[&str], running: &Running, processes: usize) -> Result<Recorded> {
    let pid = running.pid().to_string();
    // A large budget: what is tested is the result and not the pace.
    let all = [words, &["--quiet", "--budget", "100", "-p", &pid]].concat();
    let recorder = Recorder::start(&all)?;
    Settle::UntilRead.wait(&recorder, |so_far| Ok(read_processes(so_far)? >= processes))?;
    recorder.stop()
}

/// The last reading of each process.
fn last_readings(recording: &Recording) -> Result<HashMap<Upid, PssRow>> {
    last_readings_by(BootNs(i64::MAX), recording)
}

/// The same of those that were over by an instant.
fn last_readings_by(instant: BootNs, recording: &Recording) -> Result<HashMap<Upid, PssRow>> {
    let rows: Vec<PssRow> = recording.rows()?;
    let past = rows.into_iter().filter(|row| row.boot_ns <= instant);
    Ok(past.map(|row| (row.upid, row)).collect())
}

fn is_near(sum: i64, truth: i64) -> bool {
    (sum - truth).abs() * 100 <= truth
}

/// A sum over all processes that must be within 1 % of the truth.
fn sum_score(
    requirement: &'static str,
    readings: &HashMap<Upid, PssRow>,
    truth: i64,
    amount: fn(&PssRow) -> Option<i64>,
) -> Score {
    let sum: Option<i64> = readings.values().map(amount).sum();
    let is_near = sum.is_some_and(|sum| is_near(sum, truth));
    Score::of(requirement, is_near, || format!("{sum:?}, truth {truth}"))
}

/// One reading of each process that the workload names.
fn each_is_read(line: &Value, book: &Book, readings: &HashMap<Upid, PssRow>) -> Result<Score> {
    let mut score = Score::new("every process was read");
    for pid in line["pids"].as_array().context("no pids")? {
        let pid = pid.as_i64().context("a pid is no number")?;
        let process = book.expect(pid)?;
        score.case(readings.contains_key(&process.upid), || {
            format!("pid {pid} was not")
        });
    }
    Ok(score)
}

/// Anonymous memory that children inherit and read.
///
/// # Errors
/// When the run itself fails.
pub fn inherited(words: &[&str], size: u64, readers: u64) -> Result<Vec<Score>> {
    let (size_word, readers) = (size.to_string(), readers.to_string());
    let mut cow = Running::start(&["cow", "--bytes", &size_word, "--processes", &readers])?;
    let line = cow.line()?;
    // What each process has of its own comes on top: a few hundred KiB.
    let own: i64 = rollup_of_all(&line, "Pss_Anon")?;
    let named = line["pids"].as_array().map_or(0, Vec::len);
    let recorded = observe(words, &cow, named + 1)?;
    cow.finish()?;
    let book = Book::open(&recorded)?;
    let readings = last_readings(&recorded.recording)?;
    let is_plausible = own >= i64::try_from(size)?;
    Ok(vec![
        Score::of("the workload shares what it says", is_plausible, || {
            format!("{own} of {size}")
        }),
        each_is_read(&line, &book, &readings)?,
        sum_score("PSS of inherited memory adds up", &readings, own, |row| {
            bytes(row.pss_anon_bytes)
        }),
        no_loss(&recorded)?,
    ])
}

/// An object that several processes map, touch and have open: a file in /dev/shm (`posix`) or
/// a `memfd`.
///
/// # Errors
/// When the run itself fails.
pub fn object(words: &[&str], kind: &str, size: u64, processes: u64) -> Result<Vec<Score>> {
    let (size_word, count) = (size.to_string(), processes.to_string());
    let words_of_shm = [
        "shm",
        "--kind",
        kind,
        "--bytes",
        &size_word,
        "--processes",
        &count,
    ];
    let mut shm = Running::held(&words_of_shm)?;
    let pid = shm.pid().to_string();
    let recorder = Recorder::start(&[words, &["--quiet", "--budget", "100", "-p", &pid]].concat())?;
    shm.go()?;
    for _ in 0..processes {
        shm.line()?;
    }
    let truth = shm.line()?;
    let inode = number(&truth, "inode")?;
    let allocated = number(&truth, "allocated_bytes")?;
    // Whoever is read before the last one has mapped it is read again.
    Settle::UntilRead.wait(&recorder, |so_far| {
        let readings = last_readings(so_far)?;
        let mapped = readings
            .values()
            .filter_map(|row| bytes(row.pss_shmem_bytes));
        let shares: Vec<i64> = mapped.filter(|&share| share > 0).collect();
        Ok(shares.len() as u64 >= processes && is_near(shares.iter().sum(), allocated))
    })?;
    let held = clock::boot();
    shm.finish()?;
    let recorded = recorder.stop()?;
    let rows: Vec<ShmObjectRow> = recorded.recording.rows()?;
    let files: Vec<CachedFileRow> = recorded.recording.rows()?;
    // Inodes of two devices can be the same.
    let is_object = |row: &&CachedFileRow| row.inode == inode && row.path.contains("workload");
    let as_file = files.iter().find(is_object);
    let reported_kind = match kind {
        "memfd" => MappingKind::Memfd,
        _ => MappingKind::Tmpfs,
    };
    let of_object: Vec<&ShmObjectRow> = rows
        .iter()
        .filter(|row| row.inode == inode && row.kind == Some(reported_kind))
        .collect();
    let names: HashSet<&str> = of_object
        .iter()
        .filter_map(|row| row.name.as_deref())
        .collect();
    let most_mappers = of_object.iter().map(|row| row.mapper_count).max();
    let most = of_object
        .iter()
        .filter_map(|row| bytes(row.allocated_bytes));
    let most = most.max();
    // One that is read while it ends has unmapped the object.
    let readings = last_readings_by(held, &recorded.recording)?;
    let expected = i64::try_from(processes)?;
    Ok(vec![
        Score::of("the object is one, by one name", names.len() == 1, || {
            format!("{names:?}")
        }),
        Score::of("it is no page cache", as_file.is_none(), || {
            format!("{as_file:?}")
        }),
        Score::of(
            "its allocation is the truth",
            most == Some(allocated),
            || format!("{most:?}, truth {allocated}"),
        ),
        Score::of(
            "all its mappers are seen",
            most_mappers == Some(expected),
            || format!("{most_mappers:?} of {expected}"),
        ),
        sum_score(
            "PSS of shared memory adds up",
            &readings,
            allocated,
            |row| bytes(row.pss_shmem_bytes),
        ),
        no_loss(&recorded)?,
    ])
}

/// What a recording of one large process showed, and what that process felt of it.
#[derive(Debug)]
pub struct Large {
    /// Its PSS is what the kernel says.
    pub scores: Vec<Score>,
    /// The longest that it waited for a lock while it mapped, touched and unmapped memory.
    pub worst_wait_ns: i64,
    /// From the start of the recording to its first PSS; `None` without one.
    pub first_ns: Option<i64>,
}

/// One process with a heap or with many mappings.
///
/// # Errors
/// When the run itself fails.
pub fn large(words: &[&str], size: u64, mappings: u64, settle: Settle) -> Result<Large> {
    let (size, mappings) = (size.to_string(), mappings.to_string());
    let mut stall = Running::start(&["stall", "--bytes", &size, "--mappings", &mappings])?;
    let pid = number(&stall.line()?, "pid")?;
    let pid_word = pid.to_string();
    let recorder = Recorder::start(&[words, &["--quiet", "-p", &pid_word]].concat())?;
    settle.wait(&recorder, |so_far| Ok(read_processes(so_far)? > 0))?;
    let recorded = recorder.stop()?;
    let lines = stall.finish()?;
    let felt = lines.first().context("the workload said nothing")?;
    let truth = number(felt, "pss_bytes")?;
    let book = Book::open(&recorded)?;
    let process = book.expect(pid)?;
    let rows: Vec<PssRow> = recorded.recording.rows()?;
    let mut of_process = rows.iter().filter(|row| row.upid == process.upid);
    let first = of_process.clone().next();
    let pss = of_process.next_back().and_then(|row| bytes(row.pss_bytes));
    let is_near = pss.is_some_and(|pss| (pss - truth).abs() * 50 <= truth);
    let near = Score::of("PSS within 2 % of smaps_rollup", is_near, || {
        versus(pid, pss, truth)
    });
    let seen_from = process.first_seen_boot_ns;
    Ok(Large {
        scores: vec![near, no_loss(&recorded)?],
        worst_wait_ns: number(felt, "worst_slept_ns")?,
        first_ns: first.map(|row| (row.boot_ns - seen_from).0),
    })
}

fn rollup_of_all(line: &Value, key: &str) -> Result<i64> {
    let pids = line["pids"].as_array().context("no pids")?;
    let all = pids.iter().chain([&line["root"]]);
    all.map(|pid| rollup(pid.as_i64().context("a pid is no number")?, key))
        .sum()
}

/// A line of smaps_rollup, in bytes.
fn rollup(pid: i64, key: &str) -> Result<i64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib
        .context("smaps_rollup has no such line")?
        .parse::<i64>()?
        * 1024)
}
