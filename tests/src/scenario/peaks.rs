//! Peaks of processes that live too short to be polled, or that poll badly.

use super::book::{Book, Score, bytes, exact_peak, no_loss, versus};
use crate::recorder::record;
use crate::workload::{self, number};
use anyhow::{Context, Result};

/// Children that live 2 ms, all of them with exact peaks.
///
/// # Errors
/// When the run itself fails.
pub fn forkstorm(words: &[&str], count: usize) -> Result<Vec<Score>> {
    let count = count.to_string();
    let command = workload::command(&["forkstorm", "--count", &count])?;
    let recorded = record(words, &command)?;
    let lines = workload::parse(&recorded.output)?;
    let mut scores = children(&Book::open(&recorded)?, &lines)?;
    scores.push(no_loss(&recorded)?);
    Ok(scores)
}

/// The children of a fork storm, by its own lines.
pub(super) fn children(book: &Book, lines: &[serde_json::Value]) -> Result<Vec<Score>> {
    let mut seen = Score::new("every child recorded once");
    let mut maxrss = Score::new("kernel_maxrss_bytes = wait4's ru_maxrss");
    let mut peak = Score::new("peak_rss_bytes = the child's own pages, and is called exact");
    for line in lines {
        let pid = number(line, "pid")?;
        let process = book.process(pid);
        seen.case(process.is_some(), || format!("pid {pid}"));
        let found = process.and_then(|row| bytes(row.kernel_maxrss_bytes));
        let truth = number(line, "ru_maxrss_bytes")?;
        maxrss.case(found == Some(truth), || versus(pid, found, truth));
        exact_peak(&mut peak, process, number(line, "walked_bytes")?, pid);
    }
    Ok(vec![seen, maxrss, peak])
}

/// Small programs that a large process starts, by vfork and by fork: each shows its own memory.
///
/// # Errors
/// When the run itself fails.
pub fn vforkchild(words: &[&str]) -> Result<Vec<Score>> {
    /// More than /bin/true or a shell's like could ever use, and far below the parent.
    const SMALL_BYTES: i64 = 8 << 20;
    let recorded = record(words, &workload::command(&["vforkchild"])?)?;
    let book = Book::open(&recorded)?;
    let lines = workload::parse(&recorded.output)?;
    let mut started = Score::new("the peak of a program is its own, not that of who started it");
    let mut inherits = Score::new("its program inherited nothing");
    let mut own = Score::new("its peak_rss_bytes = its own pages, and is called exact");
    let mut maxrss = Score::new("kernel_maxrss_bytes = wait4's ru_maxrss");
    for line in lines.iter().filter(|line| line["ru_maxrss_bytes"].is_i64()) {
        let pid = number(line, "pid")?;
        let process = book.expect(pid)?;
        let truth = number(line, "ru_maxrss_bytes")?;
        let found = bytes(process.kernel_maxrss_bytes);
        maxrss.case(found == Some(truth), || versus(pid, found, truth));
        let found = bytes(process.peak_rss_bytes);
        let is_small = found.is_some_and(|peak| (1..SMALL_BYTES).contains(&peak));
        started.case(is_small, || versus(pid, found, SMALL_BYTES));
        let inherited = bytes(process.inherited_rss_bytes);
        inherits.case(inherited == Some(0), || versus(pid, inherited, 0));
        let tells = |tell: &&serde_json::Value| tell["hwm"] == "final" && tell["pid"] == pid;
        if let Some(tell) = lines.iter().find(tells) {
            exact_peak(&mut own, Some(process), number(tell, "walked_bytes")?, pid);
        }
    }
    Ok(vec![started, inherits, own, maxrss, no_loss(&recorded)?])
}

/// A process whose main thread is gone: /proc shows it as empty.
///
/// # Errors
/// When the run itself fails.
pub fn leader_exit(words: &[&str]) -> Result<Vec<Score>> {
    let recorded = record(words, &workload::command(&["leader-exit"])?)?;
    let book = Book::open(&recorded)?;
    let lines = workload::parse(&recorded.output)?;
    let line = lines.first().context("the workload said nothing")?;
    let pid = number(line, "pid")?;
    let process = book.expect(pid)?;
    let truth = number(line, "ru_maxrss_bytes")?;
    let maxrss = bytes(process.kernel_maxrss_bytes);
    let peak = bytes(process.peak_rss_bytes);
    let is_near = peak.is_some_and(|peak| (peak - truth).abs() * 100 <= truth);
    Ok(vec![
        Score::of(
            "kernel_maxrss_bytes = wait4's ru_maxrss",
            maxrss == Some(truth),
            || versus(pid, maxrss, truth),
        ),
        Score::of(
            "growth after the main thread's end is seen",
            is_near,
            || versus(pid, peak, truth),
        ),
    ])
}
