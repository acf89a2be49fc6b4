//! What outlives a command is reported, and ended when that was asked for: all of it, and nobody
//! else.

use super::book::{Book, Score};
use crate::recorder::{Recorded, record};
use crate::workload::{self, Running};
use anyhow::{Context, Result};
use memtrace_model::tables::Fate;
use memtrace_model::{MappingKind, OrphanedShmRow, SurvivorRow};
use serde_json::Value;
use std::time::{Duration, Instant};

const BYTES: i64 = 32 << 20;

/// What a workload left, ended and removed however the test ends.
struct Left {
    pids: Vec<i32>,
    file: String,
    segment: i32,
}

impl Drop for Left {
    fn drop(&mut self) {
        for pid in &self.pids {
            // SAFETY: plain numbers. They are the workload's own, which live for two minutes.
            unsafe { libc::kill(*pid, libc::SIGKILL) };
        }
        let _ = std::fs::remove_file(&self.file);
        // SAFETY: plain numbers, and no buffer for this operation.
        unsafe { libc::shmctl(self.segment, libc::IPC_RMID, std::ptr::null_mut()) };
    }
}

impl Left {
    fn of(recorded: &Recorded) -> Result<Self> {
        let lines = workload::parse(&recorded.output)?;
        let line = lines.first().context("the workload said nothing")?;
        let pids = line["pids"].as_array().context("no pids")?;
        let number = |value: &Value| value.as_i64().and_then(|id| i32::try_from(id).ok());
        Ok(Self {
            pids: pids.iter().filter_map(number).collect(),
            file: line["file"].as_str().context("no file")?.to_owned(),
            segment: number(&line["segment"]).context("no segment")?,
        })
    }
}

/// A daemon, one that ignores SIGTERM, and a supervisor with its child, all double-forked;
/// a file in /dev/shm and a System V segment.
///
/// # Errors
/// When the run itself fails.
pub fn survivors(words: &[&str], kills: bool) -> Result<Vec<Score>> {
    let words = match kills {
        true => [words, &["--kill-survivors"]].concat(),
        false => words.to_vec(),
    };
    // One of the same program that is nobody of the tree.
    let mut stranger = Running::start(&["idle", "--processes", "1"])?;
    stranger.line()?;
    let recorded = record(&words, &workload::command(&["survivors"])?)?;
    let left = Left::of(&recorded)?;
    Book::open(&recorded)?;
    let is_gone = || !left.pids.iter().any(|pid| runs(*pid));
    let since = Instant::now();
    while kills && !is_gone() && since.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let rows: Vec<SurvivorRow> = recorded.recording.rows()?;
    let mut text = Score::new("each is reported, with what it holds, as a child of another by now");
    let mut fates = Score::new("each fares as was asked");
    for (place, pid) in left.pids.iter().enumerate() {
        let row = rows
            .iter()
            .find(|row| i64::from(row.tgid.0) == i64::from(*pid));
        let is_reported = row.is_some_and(|row| {
            row.has_root_ended
                && row.rss_anon_bytes.is_some_and(|anon| anon.0 >= BYTES)
                && row.parent_tgid.is_some()
        });
        text.case(is_reported, || format!("{row:?}"));
        let fate = row.and_then(|row| row.fate);
        // The second one ignores SIGTERM.
        let wanted = match (kills, place) {
            (false, _) => Fate::Left,
            (true, 1) => Fate::Killed,
            (true, _) => Fate::Terminated,
        };
        fates.case(fate == Some(wanted), || format!("{fate:?}, not {wanted:?}"));
        fates.case(runs(*pid) != kills, || {
            format!("{pid} runs: {}", runs(*pid))
        });
    }
    let objects: Vec<OrphanedShmRow> = recorded.recording.rows()?;
    let file = objects.iter().find(|row| row.name == left.file);
    let segment = objects
        .iter()
        .find(|row| row.kind == Some(MappingKind::Sysv) && row.inode == i64::from(left.segment));
    let takes = |row: Option<&OrphanedShmRow>, bytes: i64| {
        row.and_then(|row| row.allocated_bytes).map(|bytes| bytes.0) == Some(bytes)
    };
    let has_stranger = rows.iter().any(|row| row.tgid.0 == stranger.pid());
    let is_unharmed = stranger.finish().is_ok();
    Ok(vec![
        // Three, the supervisor's child, and those that it starts while it is ended.
        Score::of("nobody is missing", rows.len() >= 4, || format!("{rows:?}")),
        text,
        fates,
        Score::of(
            "who is not of the tree is not reported and not touched",
            !has_stranger && is_unharmed,
            || format!("reported {has_stranger}, unharmed {is_unharmed}"),
        ),
        Score::of(
            "the file in /dev/shm is left without an owner",
            takes(file, BYTES),
            || format!("{objects:?}"),
        ),
        Score::of("the segment of System V is", takes(segment, 0), || {
            format!("{objects:?}")
        }),
    ])
}

fn runs(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| {
        !stat
            .rsplit(") ")
            .next()
            .unwrap_or_default()
            .starts_with('Z')
    })
}
