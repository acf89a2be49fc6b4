//! Memory that stands for 10 ms, between two samples.

use super::book::{Book, Score, bytes, held_back_bytes, no_loss, series, versus};
use crate::recorder::record;
use crate::workload::{self, number};
use anyhow::{Context, Result};

/// Spikes of a kind and size, at any phase of the sampling.
///
/// # Errors
/// When the run itself fails.
pub fn spikes(words: &[&str], kind: &str, bytes_high: u64, count: usize) -> Result<Vec<Score>> {
    let (size, count) = (bytes_high.to_string(), count.to_string());
    judge(
        words,
        &["--kind", kind, "--bytes", &size, "--count", &count],
    )
}

/// Spikes whose last rise no sample may tell at once, because so many came before, and
/// which then fall by very little first.
///
/// # Errors
/// When the run itself fails.
pub fn spikes_after_churn(words: &[&str], count: usize) -> Result<Vec<Score>> {
    let count = count.to_string();
    let words_of_spike = ["--kind", "thp", "--bytes", "67108864", "--count", &count];
    let around_it = ["--churn", "60", "--first-fall", "131072"];
    judge(words, &[&words_of_spike[..], &around_it].concat())
}

fn judge(words: &[&str], options: &[&str]) -> Result<Vec<Score>> {
    // The sampling period is 100 ms, so the jitter covers every phase of it.
    let mut command = workload::command(&["spike", "--gap-ms", "120", "--jitter-ms", "100"])?;
    command.args(options);
    let recorded = record(words, &command)?;
    let book = Book::open(&recorded)?;
    let lines = workload::parse(&recorded.output)?;
    let first = lines.first().context("the workload said nothing")?;
    let process = book.expect(number(first, "pid")?)?;
    let rows = series(&recorded, process.upid)?;

    // A maximum between two samples is known as the counters stood then, without what CPUs
    // or threads held back.
    let counter_error = bytes(process.peak_error_bytes).unwrap_or(0);
    let counter_error = counter_error.max(held_back_bytes(&recorded)?);
    let mut in_series = Score::new("in the mem series within 1 %, or the counters' stated error");
    let (mut highest, mut hiwater) = (0, 0);
    for line in &lines {
        let high = number(line, "high_rss_bytes")?;
        highest = highest.max(high);
        hiwater = hiwater.max(number(line, "vmhwm_bytes")?);
        // The rows between the first page and the release, and the one that holds there.
        let (from, to) = (
            number(line, "begin_boot_ns")?,
            number(line, "release_boot_ns")?,
        );
        let begin = rows.partition_point(|row| row.boot_ns.0 < from);
        let end = rows.partition_point(|row| row.boot_ns.0 <= to);
        let seen = rows
            .get(begin.saturating_sub(1)..end)
            .unwrap_or_default()
            .iter()
            .filter_map(|row| bytes(row.rss_bytes))
            .max();
        let allowed = counter_error.max(high / 100);
        let is_near = seen.is_some_and(|seen| (seen - high).abs() <= allowed);
        in_series.case(is_near, || {
            format!(
                "spike {}: {}",
                line["spike"],
                versus(process.tgid.0.into(), seen, high)
            )
        });
    }
    // Both lag by what CPUs have not handed in: mostly the kernel's own figure for what is gone
    // lies below what the process read while it stood, now and then above it.
    let peak = bytes(process.peak_rss_bytes);
    let between = hiwater.min(highest)..=hiwater.max(highest);
    let is_exact = peak.is_some_and(|peak| between.contains(&peak));
    let peak = Score::of(
        "peak between the kernel's figure and the truth",
        is_exact,
        || {
            let pid = i64::from(process.tgid.0);
            format!("{}, kernel {hiwater}", versus(pid, peak, highest))
        },
    );
    Ok(vec![peak, in_series, no_loss(&recorded)?])
}
