//! Marks: that they are on the kernel's clock, that senders never wait, and that the command's
//! output passes at its own pace.

use crate::measured::Measured;
use crate::{Bench, stats};
use anyhow::{Context, Result, bail};
use memtrace_model::{DiagKind, DiagRow};
use memtrace_tests::program;
use memtrace_tests::scenario;
use memtrace_tests::scenario::Score;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Instant;

pub(crate) const BENCHES: &[Bench] = &[
    Bench {
        name: "marks",
        run: |effort| run(effort.pick(2_000, 62_500)),
    },
    Bench {
        name: "output",
        run: |effort| output(effort.pick(10_000_000, 100_000_000)),
    },
];

const PROCESSES: u64 = 8;
/// Of each process: 100,000 a second together.
const PER_SECOND: u64 = 12_500;
/// Output that must pass in a second.
const OUTPUT_RATE: f64 = 200e6;
/// A mark may be off by this much.
const CLOCK_ERROR_MAX_US: f64 = 100.0;

fn run(count: u64) -> Result<Vec<Measured>> {
    let seen = scenario::marks(&["--quiet"], PROCESSES, count, PER_SECOND)?;
    let mut rows: Vec<Measured> = seen
        .scores
        .into_iter()
        .map(|score| Measured::score("marks", score))
        .collect();
    let errors: Vec<f64> = seen
        .rename_after_ns
        .iter()
        .map(|ns| *ns as f64 / 1e3)
        .collect();
    rows.push(Measured::estimate_at_most(
        "marks-clock",
        "from a mark to the kernel event after it",
        "µs",
        CLOCK_ERROR_MAX_US,
        stats::estimate(&errors),
    ));
    let lost = Measured::at_most(
        "marks-dropped",
        "marks that found the queue full and are counted",
        "%",
        0.0,
        seen.dropped as f64 * 100.0 / seen.tried as f64,
    );
    rows.push(lost.with_note(format!(
        "{:.0} marks a second from {PROCESSES} processes; a sender took {:.0} µs at most",
        seen.per_second,
        seen.longest_ns as f64 / 1e3
    )));
    Ok(rows)
}

/// So many numbered lines through memtrace, which looks for marks in them.
fn output(lines: u64) -> Result<Vec<Measured>> {
    let dir = tempfile::tempdir()?;
    let place = dir.path().join("recording");
    let mut recorder = Command::new(program::memtrace()?)
        .args(["record", "--quiet", "--marks-from-output", "-o"])
        .arg(&place)
        .args(["--", "seq", &lines.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("failed to start memtrace")?;
    let mut stdout = recorder.stdout.take().context("a pipe")?;
    let mut expected = Counter::default();
    let mut chunk = vec![0; 256 << 10];
    let (mut bytes, mut start) = (0, None);
    loop {
        let length = stdout.read(&mut chunk)?;
        if length == 0 {
            break;
        }
        start.get_or_insert_with(Instant::now);
        bytes += length;
        expected.take(&chunk[..length]);
    }
    let seconds = start.context("no output")?.elapsed().as_secs_f64();
    if !recorder.wait()?.success() {
        bail!("memtrace failed");
    }
    let recording = memtrace_store::Recordings::default().open(&place)?;
    let unread: i64 = recording
        .rows::<DiagRow>()?
        .iter()
        .filter(|row| row.subject == "mark" && row.kind == Some(DiagKind::LostEvents))
        .filter_map(|row| row.count)
        .sum();
    let is_whole = !expected.is_wrong && expected.lines == lines;
    let whole = Score::of(
        "every line of the output is there, in its order",
        is_whole,
        || {
            format!(
                "{} of {lines} lines until the first wrong one",
                expected.lines
            )
        },
    );
    let rate = bytes as f64 / seconds;
    let row = Measured::at_most(
        "output-pass",
        "time for 200 MB of output to pass through --marks-from-output",
        "s",
        1.0,
        OUTPUT_RATE / rate,
    );
    Ok(vec![
        Measured::score("output-whole", whole),
        row.with_note(format!(
            "{:.0} MB/s; {:.0} % of it came too fast to be searched, and is counted",
            rate / 1e6,
            unread as f64 * 100.0 / bytes as f64
        )),
    ])
}

/// What `seq` writes, as it comes.
#[derive(Default)]
struct Counter {
    /// The next line's digits, and how many of them have come.
    next: Vec<u8>,
    come: usize,
    lines: u64,
    is_wrong: bool,
}

impl Counter {
    fn take(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.come == 0 {
                self.increment();
            }
            let is_end = self.come == self.next.len();
            let expected = if is_end { b'\n' } else { self.next[self.come] };
            self.is_wrong |= byte != expected;
            self.come = if is_end { 0 } else { self.come + 1 };
            self.lines += u64::from(is_end && !self.is_wrong);
        }
    }

    fn increment(&mut self) {
        for digit in self.next.iter_mut().rev() {
            if *digit != b'9' {
                *digit += 1;
                return;
            }
            *digit = b'0';
        }
        self.next.insert(0, b'1');
    }
}
