//! Who belongs to the tree, and under which names.

use super::book::{Book, Score, bytes, exact_peak, no_loss, versus};
use crate::recorder::record;
use crate::workload::{self, number};
use anyhow::{Context, Result, bail};
use memtrace_model::tables::TitleRow;

/// Double-forked, reparented grandchildren with sessions of their own.
///
/// # Errors
/// When the run itself fails.
pub fn daemons(words: &[&str]) -> Result<Vec<Score>> {
    let recorded = record(words, &workload::command(&["daemons"])?)?;
    let book = Book::open(&recorded)?;
    let mut in_tree = Score::new("every daemon is in the tree");
    let mut parents = Score::new("its parent is the one who forked it");
    let mut peaks = Score::new("its peak_rss_bytes = its own pages, and is called exact");
    for line in workload::parse(&recorded.output)? {
        let pid = number(&line, "pid")?;
        let process = book.process(pid);
        let middle = book.process(number(&line, "middle_pid")?);
        let root = process.and_then(|row| row.root_upid);
        let is_in_tree = root.is_some() && root == middle.and_then(|row| row.root_upid);
        in_tree.case(is_in_tree, || format!("pid {pid}: root {root:?}"));
        let parent = process.and_then(|row| row.parent_upid);
        let is_child = parent.is_some() && parent == middle.map(|row| row.upid);
        parents.case(is_child, || format!("pid {pid}: parent {parent:?}"));
        exact_peak(&mut peaks, process, number(&line, "walked_bytes")?, pid);
    }
    Ok(vec![in_tree, parents, peaks, no_loss(&recorded)?])
}

/// Short-lived programs with odd names and long command lines.
///
/// # Errors
/// When the run itself fails.
pub fn execs(words: &[&str]) -> Result<Vec<Score>> {
    let recorded = record(words, &workload::command(&["execs"])?)?;
    let book = Book::open(&recorded)?;
    let mut exes = Score::new("the file that was executed is known");
    let mut cmdlines = Score::new("the whole command line is known");
    for line in workload::parse(&recorded.output)? {
        if !line["hwm"].is_null() {
            continue;
        }
        let pid = number(&line, "pid")?;
        let process = book.process(pid);
        let truth = text(&line["exe_hex"])?;
        let found = process.and_then(|row| row.exe.clone());
        exes.case(
            found.as_deref() == Some(truth.trim_end_matches('\0')),
            || format!("pid {pid}: {found:?}, truth {truth:?}"),
        );
        // Arguments joined by spaces; the last NUL separates nothing.
        let truth = text(&line["cmdline_hex"])?;
        let truth = truth.trim_end_matches('\0').replace('\0', " ");
        let found = process.and_then(|row| row.cmdline.clone());
        cmdlines.case(found.as_deref() == Some(truth.as_str()), || {
            let length = found.as_ref().map(|found| found.len());
            format!("pid {pid}: length {length:?}, truth {}", truth.len())
        });
    }
    Ok(vec![exes, cmdlines, no_loss(&recorded)?])
}

/// exec from a thread that does not lead: one process, two images.
///
/// # Errors
/// When the run itself fails.
pub fn exec_from_thread(words: &[&str]) -> Result<Vec<Score>> {
    let recorded = record(words, &workload::command(&["exec-from-thread"])?)?;
    let book = Book::open(&recorded)?;
    let lines = workload::parse(&recorded.output)?;
    let line = lines.last().context("the workload said nothing")?;
    let pid = number(line, "pid")?;
    let process = book.expect(pid)?;
    let first_image = number(line, "first_image_vmhwm_bytes")?;
    let peak = bytes(process.peak_rss_bytes);
    let maxrss = bytes(process.kernel_maxrss_bytes);
    let truth = number(line, "ru_maxrss_bytes")?;
    Ok(vec![
        Score::of(
            "the peak covers the image before exec",
            peak.is_some_and(|peak| peak >= first_image),
            || versus(pid, peak, first_image),
        ),
        Score::of(
            "kernel_maxrss_bytes = wait4's ru_maxrss",
            maxrss == Some(truth),
            || versus(pid, maxrss, truth),
        ),
    ])
}

/// Names and titles that a process takes one after the other.
///
/// # Errors
/// When the run itself fails.
pub fn titles(words: &[&str]) -> Result<Vec<Score>> {
    let recorded = record(words, &workload::command(&["titles"])?)?;
    let book = Book::open(&recorded)?;
    let lines = workload::parse(&recorded.output)?;
    let first = lines.first().context("the workload said nothing")?;
    let upid = book.expect(number(first, "pid")?)?.upid;
    let rows: Vec<TitleRow> = recorded.recording.rows()?;
    let mut comms = Score::new("every name is in the title table");
    let mut titles = Score::new("every title is in the title table");
    for line in &lines {
        let mut of_process = rows.iter().filter(|row| row.upid == upid);
        let has = |row: &&TitleRow| line["comm"] == row.comm.as_str();
        comms.case(of_process.clone().any(|row| has(&row)), || line.to_string());
        let has = of_process.any(|row| {
            let title = row.title.as_deref().unwrap_or_default();
            line["title"] == title.trim_end_matches(['\0', ' '])
        });
        titles.case(has, || line.to_string());
    }
    Ok(vec![comms, titles, no_loss(&recorded)?])
}

/// Bytes given in hexadecimal, as text, with what is not UTF-8 replaced.
fn text(hex: &serde_json::Value) -> Result<String> {
    let hex = hex.as_str().context("not a text")?;
    let mut bytes = Vec::new();
    for at in (0..hex.len()).step_by(2) {
        match hex.get(at..at + 2).map(|pair| u8::from_str_radix(pair, 16)) {
            Some(Ok(byte)) => bytes.push(byte),
            _ => bail!("{hex:?} is not hexadecimal"),
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
