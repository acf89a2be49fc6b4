//! An OOM kill in the cgroup that the recorder itself lives in.

use super::book::{Book, Score, bytes, versus};
use crate::cgroup::MemoryGroup;
use crate::recorder::record_in;
use crate::workload::{self, number};
use anyhow::{Context, Result};
use memtrace::model::tables::OomRow;

/// The recorder and the victim share a memory cgroup of 300 MiB.
///
/// # Errors
/// When the run itself fails, which it does too when the recorder dies.
pub fn oom(words: &[&str]) -> Result<Vec<Score>> {
    let group = MemoryGroup::new("memtrace-oom", 300 << 20)?;
    let command = workload::command(&["oom"])?;
    let recorded = record_in(words, &command, |recorder| group.inside(&recorder))?;
    let book = Book::open(&recorded)?;
    let lines = workload::parse(&recorded.output)?;
    let line = lines.first().context("the workload said nothing")?;
    let pid = number(line, "pid")?;
    let process = book.expect(pid)?;
    let ooms: Vec<OomRow> = recorded.recording.rows()?;
    let kill = ooms.iter().find(|row| i64::from(row.victim_tgid.0) == pid);

    let peak = bytes(process.peak_rss_bytes);
    let last = number(line, "last_own_vmhwm_bytes")?;
    // It was killed while it touched the step after its last reading.
    let range = last..=last + number(line, "step_bytes")?;
    let maxrss = bytes(process.kernel_maxrss_bytes);
    let truth = number(line, "ru_maxrss_bytes")?;
    Ok(vec![
        Score::of("the workload was killed", line["killed"] == true, || {
            line.to_string()
        }),
        Score::of("the kill is recorded", kill.is_some(), || {
            format!("{} rows in oom, none of pid {pid}", ooms.len())
        }),
        Score::of(
            "the victim is marked",
            process.oom_killed == Some(true) && process.exit_signal == Some(libc::SIGKILL),
            || format!("{:?}, signal {:?}", process.oom_killed, process.exit_signal),
        ),
        Score::of(
            "the victim's peak lies within its last step",
            peak.is_some_and(|peak| range.contains(&peak)),
            || versus(pid, peak, last),
        ),
        Score::of(
            "kernel_maxrss_bytes = wait4's ru_maxrss",
            maxrss == Some(truth),
            || versus(pid, maxrss, truth),
        ),
    ])
}
