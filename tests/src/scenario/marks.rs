//! Marks that programs send: none lost that is not counted, each with its sender and on the
//! clock of the kernel's events.

use super::book::{Book, Score};
use crate::recorder::record;
use crate::workload::{self, number};
use anyhow::{Context, Result};
use memtrace_model::{DiagKind, DiagRow, MarkKind, MarkRow, ProcessRow, TitleRow};

/// What a run of many marks showed.
#[derive(Debug)]
pub struct Marks {
    /// What must hold.
    pub scores: Vec<Score>,
    /// From the mark of a rename to the time that the kernel notes for it, each: at least as
    /// long as the two clocks differ.
    pub rename_after_ns: Vec<i64>,
    /// Marks that were tried in a hurry, and of them those that were dropped.
    pub tried: i64,
    /// Of those, the marks that were dropped.
    pub dropped: i64,
    /// Marks per second of all processes together.
    pub per_second: f64,
    /// The longest that a sender was held up.
    pub longest_ns: i64,
}

/// Some processes, each with marks around a fork and then many in a hurry.
///
/// # Errors
/// When the run itself fails.
pub fn marks(words: &[&str], processes: u64, count: u64, per_second: u64) -> Result<Marks> {
    let [processes, count, per_second] =
        [processes, count, per_second].map(|number| number.to_string());
    let command = workload::command(&[
        "marks",
        "--processes",
        &processes,
        "--count",
        &count,
        "--per-second",
        &per_second,
    ])?;
    let recorded = record(words, &command)?;
    let book = Book::open(&recorded)?;
    let rows: Vec<MarkRow> = recorded.recording.rows()?;
    let titles: Vec<TitleRow> = recorded.recording.rows()?;
    let diags: Vec<DiagRow> = recorded.recording.rows()?;

    let mut senders = Score::new("every mark has its sender");
    let mut clocks = Score::new("a rename comes after its mark, a fork between its two");
    let mut arrived_total = 0;
    let mut seen = Marks {
        scores: Vec::new(),
        rename_after_ns: Vec::new(),
        tried: 0,
        dropped: 0,
        per_second: 0.0,
        longest_ns: 0,
    };
    for line in workload::parse(&recorded.output)? {
        let process = book.expect(number(&line, "pid")?)?;
        let grandchild = book.expect(number(&line, "grandchild")?)?;
        let begin = find(&rows, process, "fork", MarkKind::Begin)?;
        let end = find(&rows, process, "fork", MarkKind::End)?;
        let (start, exit) = (grandchild.start_boot_ns, grandchild.exit_boot_ns);
        let renamed = titles
            .iter()
            .find(|row| row.upid == process.upid && row.comm == "marked")
            .context("the rename is not recorded")?;
        let mark = find(&rows, process, "rename", MarkKind::Instant)?;
        let rename_after_ns = (renamed.boot_ns - mark.boot_ns).0;
        let is_between = rename_after_ns >= 0
            && begin.boot_ns <= start
            && exit.is_some_and(|exit| exit <= end.boot_ns);
        clocks.case(is_between, || {
            format!("{begin:?} {start:?} {exit:?} {end:?}")
        });
        seen.rename_after_ns.push(rename_after_ns);
        let arrived = rows
            .iter()
            .filter(|row| row.upid == Some(process.upid) && row.name == "hurry")
            .count();
        let (tried, dropped) = (number(&line, "tried")?, number(&line, "dropped")?);
        arrived_total += i64::try_from(arrived)?;
        seen.tried += tried;
        seen.dropped += dropped;
        seen.per_second += tried as f64 * 1e9 / number(&line, "length_ns")? as f64;
        seen.longest_ns = seen.longest_ns.max(number(&line, "longest_ns")?);
    }
    // Whoever marks all recordings of this user meanwhile is not of the workload.
    let names = ["rename", "fork", "hurry", "done"];
    for row in rows.iter().filter(|row| names.contains(&row.name.as_str())) {
        senders.case(row.upid.is_some(), || format!("{row:?}"));
    }
    let text: i64 = diags
        .iter()
        .filter(|row| row.subject == "mark" && row.kind == Some(DiagKind::LostEvents))
        .filter_map(|row| row.count)
        .sum();
    let counts = Score::of(
        "every mark arrived or is counted",
        arrived_total + text == seen.tried,
        || {
            format!(
                "{arrived_total} arrived and {text} are reported, of {}",
                seen.tried
            )
        },
    );
    let text = Score::of("what was dropped is reported", text >= seen.dropped, || {
        format!("{text} of {} dropped marks are reported", seen.dropped)
    });
    seen.scores = vec![senders, clocks, counts, text];
    Ok(seen)
}

/// A mark of a process.
fn find<'a>(
    rows: &'a [MarkRow],
    process: &ProcessRow,
    name: &str,
    kind: MarkKind,
) -> Result<&'a MarkRow> {
    rows.iter()
        .find(|row| row.upid == Some(process.upid) && row.name == name && row.kind == Some(kind))
        .with_context(|| format!("pid {} has no mark {name:?} ({kind:?})", process.tgid))
}
