//! What a process reports of its descendants, against the recording.

use super::book::{Book, Score};
use crate::recorder::{Recorded, record};
use crate::workload::{self, number};
use anyhow::{Context, Result};
use memtrace_model::{BootNs, MarkKind, MarkRow, MemRow, MemSource, Upid};
use std::collections::{HashMap, HashSet};

/// A section in which a grandchild holds memory for a moment.
///
/// # Errors
/// When the run itself fails.
pub fn sections(words: &[&str], bytes: i64, hold_ms: u64) -> Result<Vec<Score>> {
    let [size, hold] = [bytes.to_string(), hold_ms.to_string()];
    let command = workload::command(&["asks", "--bytes", &size, "--hold-ms", &hold])?;
    let recorded = record(words, &command)?;
    let book = Book::open(&recorded)?;
    let lines = workload::parse(&recorded.output)?;
    let [stranger, line] = lines.as_slice() else {
        anyhow::bail!("not two lines: {lines:?}");
    };
    let owner = book.expect(number(line, "pid")?)?.upid;
    let text = line["answer"]["bytes"].as_i64();
    let read = highest(&recorded, &book, owner)?;
    let is_there = text.is_some_and(|text| text >= bytes && text < 2 * bytes);
    let is_refused = |answer: &serde_json::Value| answer["reason"].is_string();
    Ok(vec![
        Score::of(
            "the answer is what the recording says",
            text == Some(read),
            || format!("{line}, the recording {read}"),
        ),
        Score::of(
            "what a grandchild held is in it, and nothing later",
            is_there,
            || format!("{line}, of {bytes}"),
        ),
        Score::of(
            "of another's section, and of none, nothing is reported but why",
            is_refused(&stranger["stranger"]) && is_refused(&line["unknown"]),
            || format!("{stranger} {line}"),
        ),
    ])
}

/// The highest sum over the descendants of a process between its two marks.
fn highest(recorded: &Recorded, book: &Book, owner: Upid) -> Result<i64> {
    let marks: Vec<MarkRow> = recorded.recording.rows()?;
    let at = |kind| -> Result<BootNs> {
        let mut found = marks.iter();
        let found = found.find(|row| row.upid == Some(owner) && row.kind == Some(kind));
        Ok(found.context("a mark is missing")?.boot_ns)
    };
    let (begin, end) = (at(MarkKind::Begin)?, at(MarkKind::End)?);
    let below = book.descendants(owner);
    let mut rows: Vec<MemRow> = Vec::new();
    recorded
        .recording
        .scan(&["rss_bytes", "source"], |row: MemRow| {
            if below.contains(&row.upid) {
                rows.push(row);
            }
        })?;
    rows.sort_by_key(|row| row.boot_ns);
    let mut held: HashMap<Upid, i64> = HashMap::new();
    let mut highest = 0;
    for (index, row) in rows.iter().enumerate() {
        let rss = row.rss_bytes.map_or(0, |bytes| bytes.0);
        let is_exit = row.source == Some(MemSource::Exit);
        held.insert(row.upid, if is_exit { 0 } else { rss });
        let is_last_of_its_time = rows
            .get(index + 1)
            .is_none_or(|next| next.boot_ns > row.boot_ns);
        if is_last_of_its_time && (begin..=end).contains(&row.boot_ns) {
            highest = highest.max(held.values().sum());
        }
    }
    Ok(highest)
}

impl Book {
    fn descendants(&self, owner: Upid) -> HashSet<Upid> {
        let mut below = HashSet::new();
        // Identities are given in the order of birth: a parent has the lower one.
        for process in self.processes() {
            let parent = process.parent_upid;
            if parent.is_some_and(|parent| parent == owner || below.contains(&parent)) {
                below.insert(process.upid);
            }
        }
        below
    }
}
