//! Calls on address spaces, held against what the workload says it called.

use super::book::{Book, Score, no_loss};
use crate::recorder::{Recorded, Recorder};
use crate::workload::{Running, number};
use anyhow::{Context, Result};
use memtrace_model::{DiagKind, DiagRow, Label, VmEventRow, VmOp, VmSummaryRow};
use serde_json::{Value, json};

/// Every large call is a row and says what the workload says, every small one is in the
/// sums, and an untraced process beside it has neither. `words` name the way.
///
/// # Errors
/// When the run itself fails.
pub fn vm(words: &[&str], small: u64) -> Result<Vec<Score>> {
    Ok(reported(words, small)?.0)
}

/// The ways in turn, each with a run of its own: every one tells the truth, and all tell the
/// same.
///
/// # Errors
/// When a run itself fails.
pub fn vm_ways(ways: &[&'static str], small: u64) -> Result<Vec<Score>> {
    let mut scores = Vec::new();
    let mut same = Score::new("the same rows and sums as by the first way");
    let mut first = None;
    for way in ways {
        let (own, rows) = reported(&["--probes", way], small)?;
        scores.extend(own);
        let first = first.get_or_insert_with(|| rows.clone());
        same.case(*first == rows && !rows.is_empty(), || {
            format!("{}: {first:?}, {way}: {rows:?}", ways[0])
        });
    }
    scores.push(same);
    Ok(scores)
}

/// Runs the workload; the scores, and what was recorded without what differs from run to run:
/// times, process ids, and addresses, which `rows` above holds against the truth.
fn reported(words: &[&str], small: u64) -> Result<(Vec<Score>, Vec<String>)> {
    let small_word = small.to_string();
    let arguments = ["vm", "--small", &small_word];
    let mut traced = Running::start(&arguments)?;
    let mut stranger = Running::start(&arguments)?;
    let pid = number(&traced.line()?, "pid")?;
    let stranger_pid = number(&stranger.line()?, "pid")?;
    let pid_word = pid.to_string();
    let all = [words, &["--quiet", "-p", &pid_word]].concat();
    let recorder = Recorder::start(&all)?;
    stranger.go()?;
    traced.go()?;
    let mut truth = Vec::new();
    for _ in 0..LARGE_CALLS {
        truth.push(traced.line()?);
        stranger.line()?;
    }
    traced.finish()?;
    stranger.finish()?;
    let recorded = recorder.stop()?;

    let book = Book::open(&recorded)?;
    let process = book.expect(pid)?;
    let events: Vec<VmEventRow> = recorded.recording.rows()?;
    let mut rows = Score::new("large calls as rows that say the same");
    for (index, truth) in truth.iter().enumerate() {
        let seen = events.get(index).map(as_json);
        rows.case(seen.as_ref() == Some(truth), || {
            format!("{truth}, recorded {seen:?}")
        });
    }
    let is_own = |upid| upid == process.upid;
    let no_more = Score::of(
        "no row of anything else",
        events.len() == truth.len() && events.iter().all(|row| is_own(row.upid)),
        || format!("{} rows", events.len()),
    );
    let stranger_unknown = Score::of(
        "the untraced process is not there",
        book.expect(stranger_pid).is_err(),
        || format!("pid {stranger_pid} is recorded"),
    );
    let small_sums = sums(&recorded, small.cast_signed(), is_own)?;
    let scores = vec![
        rows,
        no_more,
        stranger_unknown,
        small_sums,
        no_loss(&recorded)?,
    ];
    let mut plain: Vec<String> = events.iter().map(plain).collect();
    for (word, _) in VmOp::WORDS {
        let sum = VmOp::from_word(word).map(|op| sum(&recorded, op));
        plain.push(format!("{word}: {:?}", sum.transpose()?));
    }
    Ok((scores, plain))
}

/// A row without what differs from run to run.
fn plain(row: &VmEventRow) -> String {
    let mut row = as_json(row);
    for place in ["addr", "result"] {
        // What failed has the same error everywhere.
        if row[place].as_i64().is_some_and(|value| value > 0) {
            row[place] = json!("somewhere");
        }
    }
    row.to_string()
}

/// Calls, failed and large ones, and bytes added and removed, over the whole recording.
fn sum(recorded: &Recorded, op: VmOp) -> Result<[i64; 5]> {
    let rows: Vec<VmSummaryRow> = recorded.recording.rows()?;
    let mut sum = [0; 5];
    for row in rows.iter().filter(|row| row.op == Some(op)) {
        sum[0] += row.call_count;
        sum[1] += row.failed_count;
        sum[2] += row.large_count;
        sum[3] += row.added_bytes.0;
        sum[4] += row.removed_bytes.0;
    }
    Ok(sum)
}

/// More calls wait in the kernel than kretprobes have room for: what they miss is counted
/// where the kernel tells, and where it does not the recording says that.
///
/// # Errors
/// When the run itself fails.
pub fn missed_by_kretprobes(threads: u64) -> Result<Vec<Score>> {
    let count = threads.to_string();
    let mut blocked = Running::start(&["blocked", "--threads", &count])?;
    let pid = number(&blocked.line()?, "pid")?.to_string();
    let recorder = Recorder::start(&["--quiet", "--probes", "kprobe", "-p", &pid])?;
    blocked.go()?;
    blocked.line()?;
    blocked.finish()?;
    let recorded = recorder.stop()?;
    let threads = threads.cast_signed();
    let seen = sum(&recorded, VmOp::Madvise)?[0];
    let diags: Vec<DiagRow> = recorded.recording.rows()?;
    let missed: i64 = diags
        .iter()
        .filter(|row| row.kind == Some(DiagKind::LostEvents) && row.subject == "vm_kretprobe")
        .filter_map(|row| row.count)
        .sum();
    let is_unknown = diags
        .iter()
        .any(|row| row.subject == "probes" && row.detail.contains("does not report how many"));
    Ok(vec![
        Score::of("some calls were missed", seen < threads, || {
            format!("{seen} of {threads} seen")
        }),
        Score::of(
            "they are counted, or said to be unknown",
            // Others on the machine can miss some too.
            if is_unknown {
                missed == 0
            } else {
                seen + missed >= threads
            },
            || format!("{seen} of {threads} seen, {missed} missed, unknown: {is_unknown}"),
        ),
    ])
}

/// How many large calls the workload makes and tells.
const LARGE_CALLS: usize = 9;
const PAGE: i64 = 4096;

/// The sums over the whole recording, which began before the first call.
fn sums(
    recorded: &Recorded,
    small: i64,
    is_own: impl Fn(memtrace_model::Upid) -> bool,
) -> Result<Score> {
    let rows: Vec<VmSummaryRow> = recorded.recording.rows()?;
    let mut score = Score::new("sums of small calls");
    let failed_munmap = 1;
    let expected = [
        (VmOp::Mmap, [small, 0, 0, small * PAGE, 0]),
        (
            VmOp::Munmap,
            [small + failed_munmap, failed_munmap, 0, 0, small * PAGE],
        ),
    ];
    for (op, expected) in expected {
        let sum = sum(recorded, op)?;
        score.case(sum == expected, || {
            format!("{}: {sum:?}, truth {expected:?}", op.as_str())
        });
    }
    score.case(rows.iter().all(|row| is_own(row.upid)), || {
        "sums of another process".to_owned()
    });
    Ok(score)
}

/// A row in the words of the workload: what a call does not have is zero or empty there.
fn as_json(row: &VmEventRow) -> Value {
    let op = row.op.map_or("unknown", VmOp::as_str);
    let bytes = |bytes: Option<memtrace_model::Bytes>| bytes.map_or(0, |bytes| bytes.0);
    // mmap's row has the address it got; the workload asked for none.
    let addr = if op == "mmap" { 0 } else { row.addr };
    let growth = if op == "brk" {
        bytes(row.growth_bytes)
    } else {
        0
    };
    json!({
        "op": op,
        "addr": addr,
        "length_bytes": bytes(row.length_bytes),
        "old_length_bytes": bytes(row.old_length_bytes),
        "growth_bytes": growth,
        "prot": row.prot.unwrap_or(0),
        "flags": row.flags.unwrap_or(0),
        "file": row.file.as_deref().unwrap_or(""),
        "result": row.result,
    })
}

/// A storm of calls of one size: the sums are exact, whatever was a row of its own, and the
/// recorder does not grow.
///
/// # Errors
/// When the run itself fails.
pub fn vm_storm(words: &[&str], small: u64) -> Result<(Vec<Score>, i64)> {
    let small_word = small.to_string();
    let mut traced = Running::start(&["vm", "--small", &small_word])?;
    let pid = number(&traced.line()?, "pid")?.to_string();
    let recorder = Recorder::start(&[words, &["--quiet", "-p", &pid]].concat())?;
    traced.go()?;
    for _ in 0..LARGE_CALLS {
        traced.line().context("the workload ended early")?;
    }
    traced.finish()?;
    let recorded = recorder.stop()?;
    let events: Vec<VmEventRow> = recorded.recording.rows()?;
    let small_rows = events
        .iter()
        .filter(|row| row.length_bytes.is_some_and(|length| length.0 == PAGE))
        .count();
    let rows = Score::of("no row of a small call", small_rows == 0, || {
        format!("{small_rows} rows")
    });
    let sums = sums(&recorded, small.cast_signed(), |_| true)?;
    Ok((vec![rows, sums], recorded.maxrss_bytes))
}
