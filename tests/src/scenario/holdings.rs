//! What a tree holds, every page once, against what its memory cgroup is charged.

use super::book::{Score, no_loss};
use crate::cgroup::MemoryGroup;
use crate::recorder::{Recorded, Recorder};
use crate::workload::Running;
use anyhow::{Context, Result, bail};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Between two looks at the group.
const PACE: Duration = Duration::from_millis(250);
/// What the kernel's figures for a group lag by: it adds up what CPUs keep for themselves only
/// from time to time.
const LAG_BYTES: i64 = 2 << 20;
/// What stands for so long is to be known.
const STANDS: Duration = Duration::from_secs(1);
/// So long reports may take in all: where they are slow, as in an emulated machine, only some of
/// the looks are judged.
const JUDGING: Duration = Duration::from_secs(40);
/// Until so long before it changes: whether something was copied is looked at twice a second.
const LOOKS: Duration = Duration::from_millis(600);

/// What the group was charged at some time from `boot_ns` to `until_ns`.
struct Look {
    boot_ns: i64,
    until_ns: i64,
    bytes: i64,
}

/// What the report says was held then.
#[derive(Clone, Copy)]
struct Reported {
    at_least: i64,
    bytes: i64,
    at_most: i64,
}

/// A tree that holds memory of every kind that several processes can hold, one after the other:
/// whether what is reported is within its bounds, whether it is known well, and that nothing was lost.
///
/// # Errors
/// When the run itself fails.
pub fn holdings(words: &[&str], size: u64) -> Result<[Score; 3]> {
    let group = MemoryGroup::new("memtrace-holdings", 8 << 30)?;
    let size_word = size.to_string();
    let options = ["holdings", "--bytes", &size_word, "--held", "1"];
    let mut tree = Running::start_in(&group, &options)?;
    let pid = tree.pid().to_string();
    let recorder = Recorder::start(&[words, &["--quiet", "-p", &pid]].concat())?;
    tree.go()?;
    let is_over = AtomicBool::new(false);
    let (looks, ended) = std::thread::scope(|scope| {
        let looks = scope.spawn(|| looks(&group, &is_over));
        let ended = tree.finish();
        is_over.store(true, Ordering::Relaxed);
        (looks.join(), ended)
    });
    ended?;
    let looks = match looks {
        Ok(looks) => looks?,
        Err(_) => bail!("the group could not be looked at"),
    };
    let recorded = recorder.stop()?;
    let mut within = Score::new("what is held is within the stated bound");
    let mut known = Score::new("what has stood for a second is known to 2 %");
    let start = recorded.report(&["--at", "peak"])?["recording"]["start"]["boot_ns"]
        .as_i64()
        .context("no start")?;
    if looks.is_empty() {
        bail!("nobody looked at the group");
    }
    let mut already = HashMap::new();
    let mut tell = |place: usize| {
        if let Some(known) = already.get(&place) {
            return Ok(*known);
        }
        let text = reported_around(&recorded, &looks[place], start)?;
        already.insert(place, text);
        anyhow::Ok(text)
    };
    let begun = Instant::now();
    tell(0)?;
    let step = step(looks.len(), begun.elapsed());
    // Of the first and the last it is not known how what is charged moves.
    for (place, look) in looks.iter().enumerate().skip(1).step_by(step) {
        let Some(around) = looks.get(place - 1..place + 2) else {
            break;
        };
        let far = |other: &Look| (other.bytes - look.bytes).abs();
        let near = |other: &Look| far(other) * 100 <= look.bytes;
        // The report and the look are of two instants, and a busy kernel takes its time to free what
        // nobody holds any more: what moves is between its neighbours.
        let range = match around.iter().all(|other| far(other) <= LAG_BYTES) {
            true => place..place + 1,
            false => place - 1..place + 2,
        };
        let of = tell(place)?;
        let (mut at_least, mut at_most) = (of.at_least, of.at_most);
        let (mut low, mut high) = (look.bytes, look.bytes);
        for other in range.filter(|other| *other != place) {
            let (text, bytes) = (tell(other)?, looks[other].bytes);
            at_least = at_least.min(text.at_least);
            at_most = at_most.max(text.at_most);
            (low, high) = (low.min(bytes), high.max(bytes));
        }
        let is_within = low <= at_most + LAG_BYTES && at_least - LAG_BYTES <= high;
        let seconds = || (look.boot_ns - start) as f64 / 1e9;
        let in_words = || {
            format!(
                "at +{:.2}s: charged {}, reported {} ({} to {})",
                seconds(),
                look.bytes,
                of.bytes,
                of.at_least,
                of.at_most
            )
        };
        within.case(is_within, in_words);
        let reaches = |other: &Look, far: Duration| {
            (look.boot_ns - other.boot_ns).abs() >= far.as_nanos() as i64
        };
        let mut before = looks[..place].iter().rev().take_while(|other| near(other));
        let mut after = looks[place..].iter().take_while(|other| near(other));
        let has_stood = before.any(|earlier| reaches(earlier, STANDS));
        let stands = has_stood && after.any(|later| reaches(later, LOOKS));
        if stands && look.bytes >= size.cast_signed() {
            let bound = (of.at_most - of.bytes).max(of.bytes - of.at_least);
            known.case(bound * 50 <= look.bytes, in_words);
        }
    }
    Ok([within, known, no_loss(&recorded)?])
}

/// Every how many looks one is judged, where a report takes so long: all where they are quick.
fn step(looks: usize, report: Duration) -> usize {
    let fit = JUDGING.as_nanos() / report.as_nanos().max(1);
    looks.div_ceil(usize::try_from(fit).unwrap_or(usize::MAX).max(10))
}

fn looks(group: &MemoryGroup, is_over: &AtomicBool) -> Result<Vec<Look>> {
    let mut looks = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let begin = Instant::now();
        let boot_ns = memtrace_host::clock::boot().0;
        let bytes = group.charged_bytes()?;
        looks.push(Look {
            boot_ns,
            until_ns: memtrace_host::clock::boot().0,
            bytes,
        });
        sleep(PACE.saturating_sub(begin.elapsed()));
    }
    Ok(looks)
}

/// What the report says of the begin and of the end of a look.
fn reported_around(recorded: &Recorded, look: &Look, start: i64) -> Result<Reported> {
    let [begun, done] = [look.boot_ns, look.until_ns].map(|boot_ns| boot_ns - start);
    let (begun, done) = std::thread::scope(|scope| {
        let begun = scope.spawn(|| reported(recorded, begun));
        let done = reported(recorded, done);
        (begun.join(), done)
    });
    let (Ok(begun), done) = (begun, done?) else {
        bail!("a report panicked");
    };
    let begun = begun?;
    Ok(Reported {
        at_least: begun.at_least.min(done.at_least),
        bytes: begun.bytes,
        at_most: begun.at_most.max(done.at_most),
    })
}

fn reported(recorded: &Recorded, offset_ns: i64) -> Result<Reported> {
    let moment = format!("+{:.6}s", offset_ns.max(0) as f64 / 1e9);
    let report = recorded.report(&["--at", &moment, "--section", "at"])?;
    let amount = |key: &str| {
        let text = report["at"][key].as_i64();
        text.with_context(|| format!("the report has no {key} at {moment}"))
    };
    Ok(Reported {
        at_least: amount("held_at_least_bytes")?,
        bytes: amount("held_bytes")?,
        at_most: amount("held_at_most_bytes")?,
    })
}
