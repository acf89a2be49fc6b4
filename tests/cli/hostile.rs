//! Recordings that someone made to do harm, and every command on each.

use super::*;
use memtrace_tests::scenario::{Excess, Hostile, hostile};

/// As many commands as most machines have CPUs for: how long one takes matters little here.
const AT_ONCE: usize = 2;
/// More than there can be in a recording of a second.
const MANY: i64 = 150_000;
/// How long a command may take beyond what the same one takes on a good recording. Without
/// optimisation, and beside other tests, all takes many times as long; `cargo xtask bench hostile`
/// asks for 2 s.
const MORE_TIME: Duration = Duration::from_secs(60);
/// How much memory a command may take beyond that.
const MORE_BYTES: i64 = 210 << 20;
/// Texts of 64 MiB and the numbers beside them, as many as a short recording can have.
const MORE_OUTPUT: u64 = 128 << 20;

fn survives(kind: Hostile) -> Result<()> {
    let excess = hostile(kind, MANY, AT_ONCE)?;
    let Excess {
        time,
        rss_bytes,
        written_bytes,
        ..
    } = excess;
    let is_bounded = time <= MORE_TIME && rss_bytes <= MORE_BYTES && written_bytes <= MORE_OUTPUT;
    assert!(is_bounded, "{excess:?}");
    Ok(())
}

#[test]
fn a_fifo_in_any_place_hangs_no_command() -> Result<()> {
    survives(Hostile::Fifo)
}

#[test]
fn a_link_to_a_device_in_any_place_is_not_followed() -> Result<()> {
    survives(Hostile::Link)
}

#[test]
fn absurd_times_and_amounts_stop_no_command() -> Result<()> {
    survives(Hostile::AbsurdRows)
}

#[test]
fn more_processes_without_a_row_than_there_can_be_stop_no_command() -> Result<()> {
    survives(Hostile::ProcessesWithoutRow)
}

#[test]
fn more_processes_than_there_can_be_stop_no_command() -> Result<()> {
    survives(Hostile::Processes)
}

#[test]
fn more_titles_than_there_can_be_stop_no_command() -> Result<()> {
    survives(Hostile::Titles)
}

#[test]
fn more_marks_than_there_can_be_stop_no_command() -> Result<()> {
    survives(Hostile::Marks)
}
