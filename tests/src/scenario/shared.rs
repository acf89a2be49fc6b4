//! Processes whose memory is not theirs alone, or not theirs any more.

use super::book::{Book, Score, bytes, held_back_bytes, no_loss, series, versus};
use crate::recorder::record;
use crate::workload::{self, number};
use anyhow::{Context, Result};

/// A child that has ended and is not waited for: it holds nothing from its end on.
///
/// # Errors
/// When the run itself fails.
pub fn zombie(words: &[&str]) -> Result<Vec<Score>> {
    let recorded = record(words, &workload::command(&["zombie", "--hold-ms", "600"])?)?;
    let book = Book::open(&recorded)?;
    let lines = workload::parse(&recorded.output)?;
    let line = lines.first().context("the workload said nothing")?;
    let pid = number(line, "pid")?;
    let process = book.expect(pid)?;
    let truth = number(line, "ru_maxrss_bytes")?;
    let maxrss = bytes(process.kernel_maxrss_bytes);
    let rows = series(&recorded, process.upid)?;
    let last = rows.last().context("the child is in no row")?;
    let zombie_ns = number(line, "zombie_boot_ns")?;
    Ok(vec![
        Score::of(
            "kernel_maxrss_bytes = wait4's ru_maxrss",
            maxrss == Some(truth),
            || versus(pid, maxrss, truth),
        ),
        Score::of("it ended with 0", process.exit_code == Some(0), || {
            format!("{:?}", process.exit_code)
        }),
        Score::of(
            "it ended when it did, not when it was waited for",
            process.exit_boot_ns.is_some_and(|end| end.0 <= zombie_ns),
            || {
                format!(
                    "{:?}, seen as a zombie at {zombie_ns}",
                    process.exit_boot_ns
                )
            },
        ),
        Score::of(
            "a zombie holds nothing",
            bytes(last.rss_bytes) == Some(0) && Some(last.boot_ns) == process.exit_boot_ns,
            || format!("{last:?}"),
        ),
        no_loss(&recorded)?,
    ])
}

/// A child that shares its parent's address space: the memory is counted once.
///
/// # Errors
/// When the run itself fails.
pub fn clone_vm(words: &[&str]) -> Result<Vec<Score>> {
    let recorded = record(words, &workload::command(&["clone-vm"])?)?;
    let book = Book::open(&recorded)?;
    let lines = workload::parse(&recorded.output)?;
    let line = lines.first().context("the workload said nothing")?;
    let (pid, child) = (number(line, "pid")?, number(line, "child")?);
    let owner = book.expect(pid)?;
    let sharer = book.expect(child)?;
    let truth = number(line, "vmhwm_bytes")?;
    let peak = bytes(owner.peak_rss_bytes);
    // Where the kernel's counters give no bound, both threads hold back page faults.
    let error = match bytes(owner.peak_error_bytes) {
        Some(error) => error,
        None => 2 * held_back_bytes(&recorded)?,
    };
    let is_near = peak.is_some_and(|peak| (peak - truth).abs() <= error);
    let held: Vec<i64> = series(&recorded, sharer.upid)?
        .iter()
        .filter_map(|row| bytes(row.rss_bytes))
        .collect();
    Ok(vec![
        Score::of(
            "the owner's peak has what the sharer touched",
            is_near,
            || versus(pid, peak, truth),
        ),
        Score::of(
            "the sharer is the owner's child",
            sharer.parent_upid == Some(owner.upid),
            || format!("{:?}", sharer.parent_upid),
        ),
        Score::of(
            "the memory is counted once",
            held.iter().all(|held| *held == 0) && bytes(sharer.peak_rss_bytes).is_none(),
            || format!("{held:?}, peak {:?}", sharer.peak_rss_bytes),
        ),
        no_loss(&recorded)?,
    ])
}
