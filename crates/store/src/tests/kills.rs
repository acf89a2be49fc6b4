//! A writer, and a recovery, that are killed at any moment lose nothing that was flushed.
//!
//! A test starts this test program again to be killed.

use super::downsample as minute;
use super::*;
use crate::{Recording, recover};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const DIR_VARIABLE: &str = "MEMTRACE_TEST_KILLED";
/// How many of each are killed; `MEMTRACE_TEST_KILLS` says another number.
const KILLS: u64 = 5;

fn kills() -> u64 {
    std::env::var("MEMTRACE_TEST_KILLS").map_or(KILLS, |count| count.parse().unwrap())
}

/// This test program as another process, in which only this test runs.
fn start(test: &str, dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("tests::kills::{test}"), "--nocapture"])
        .env(DIR_VARIABLE, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits for the child to begin, lets it run for so long, and kills it. Gives the last number
/// that it has reported.
fn kill_after(mut child: Child, life: Duration) -> Option<i64> {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut numbers = lines.by_ref().filter_map(|line| number(&line.ok()?));
    let first = numbers.next();
    let start = Instant::now();
    std::thread::sleep(life.saturating_sub(start.elapsed()));
    // It may have come to its end before.
    let _ = child.kill();
    let last = numbers.last();
    child.wait().unwrap();
    last.or(first)
}

fn number(line: &str) -> Option<i64> {
    line.strip_prefix("at ")?.parse().ok()
}

fn tell(number: i64) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nat {number}").unwrap();
    out.flush().unwrap();
}

fn write_for_ever(dir: &Path) {
    let mut writer = Writer::create_with(dir, &info(), None, SMALL).unwrap();
    for at in 0.. {
        append_all(&mut writer, &[mem(at * 100, at % 5)]);
        append_all(&mut writer, &[process(at % 20, &format!("{at}"))]);
        if at % 7 == 0 {
            writer.flush().unwrap();
            tell(at);
            std::thread::sleep(Duration::from_micros(300));
        }
    }
}

fn holds_all_up_to(dir: &Path, at: i64, when: &str) {
    let recording = Recording::open(dir).unwrap();
    let rows = recording.rows::<MemRow>().unwrap();
    let times: Vec<i64> = rows.iter().map(|row| row.boot_ns.0 / 100_000_000).collect();
    let expected: Vec<i64> = (0..times.len() as i64).collect();
    assert!(
        times == expected,
        "{when}: not every row once, and in order"
    );
    assert!(
        times.len() as i64 > at,
        "{when}: {} rows of {at}",
        times.len()
    );
    assert!(
        !recording.rows::<ProcessRow>().unwrap().is_empty(),
        "{when}"
    );
}

#[test]
fn what_was_flushed_survives_a_kill_of_the_writer_and_kills_of_its_recovery() {
    const THIS: &str = "what_was_flushed_survives_a_kill_of_the_writer_and_kills_of_its_recovery";
    if let Some(dir) = std::env::var_os(DIR_VARIABLE) {
        let dir = Path::new(&dir);
        if !dir.exists() {
            return write_for_ever(dir);
        }
        tell(0);
        recover(dir).unwrap();
        return;
    }
    for kill in 0..kills() {
        let (_parent, dir) = new_dir();
        let life = Duration::from_millis(10 + kill * 37 % 150);
        let at = kill_after(start(THIS, &dir), life).unwrap();
        holds_all_up_to(&dir, at, &format!("kill {kill} of the writer"));
        kill_after(
            start(THIS, &dir),
            Duration::from_micros(kill * 1_733 % 60_000),
        );
        holds_all_up_to(&dir, at, &format!("kill {kill} of the recovery"));
        recover(&dir).unwrap();
        holds_all_up_to(&dir, at, &format!("recovery {kill}"));
        assert!(Recording::open(&dir).unwrap().is_closed());
    }
}

#[test]
fn a_recording_whose_downsampling_is_killed_reads_the_same_and_is_downsampled_the_next_time() {
    const THIS: &str =
        "a_recording_whose_downsampling_is_killed_reads_the_same_and_is_downsampled_the_next_time";
    if let Some(dir) = std::env::var_os(DIR_VARIABLE) {
        let recording = Recording::open(Path::new(&dir)).unwrap();
        tell(0);
        minute::downsample(&recording, &minute::sampling()).unwrap();
        return;
    }
    let rows = minute::rows();
    let (_parent, whole) = new_dir();
    minute::downsample(&minute::closed(&whole, &rows), &minute::sampling()).unwrap();
    let expected = minute::read(&whole);
    let mut cut = 0;
    for kill in 0..kills() {
        let (_parent, dir) = new_dir();
        drop(minute::closed(&dir, &rows));
        let life = Duration::from_millis(kill * 37 % 150);
        kill_after(start(THIS, &dir), life);
        // Without a problem, whatever of its parts was replaced.
        let left = minute::read(&dir);
        assert_eq!(
            minute::highest(&left),
            minute::highest(&rows),
            "kill {kill}"
        );
        let info = Recording::open(&dir).unwrap().info().clone();
        cut += u64::from(info.downsampled.is_none_or(|done| !done.is_complete));
        minute::downsample(&Recording::open(&dir).unwrap(), &minute::sampling()).unwrap();
        assert_eq!(minute::read(&dir), expected, "kill {kill}");
    }
    assert!(cut > 0, "none was killed in time");
}
