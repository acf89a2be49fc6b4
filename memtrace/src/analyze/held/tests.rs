//! What a tree holds, every page once, over courses of forks, execs and readings.

mod account;
mod shared;

use super::*;
use crate::analyze::Analysis;
use crate::analyze::golden::{Script, boot, upid, wall};
use crate::model::{Record, Tgid};

const MIB: i64 = 1 << 20;

fn mibs(held: &Held) -> [i64; 3] {
    [held.at_least, held.bytes, held.at_most].map(|bytes| bytes.0 / MIB)
}

fn held_at(run: &Script, at: &str) -> [i64; 3] {
    let state = run.clone().analyzed(Some(at)).at.expect("a state");
    mibs(&state.held.expect("kinds are known").all())
}

/// A reading of every page of a process: PSS and RSS of anonymous memory, in MiB.
fn read(run: &mut Script, tgid: u32, at: f64, amounts: [f64; 2]) {
    run.pss(tgid, at, amounts, false);
    if let Some(Record::Pss(row)) = run.rows.0.last_mut() {
        row.sampled_share = None;
    }
}

/// Both were read by 8 s, at the same amounts.
fn read_both(run: &mut Script, amounts: [f64; 2]) {
    for (tgid, at) in [(500, 7.0), (501, 8.0)] {
        read(run, tgid, at, amounts);
    }
}

fn held_peak(analysis: &Analysis) -> [i64; 3] {
    mibs(&analysis.held_peak.expect("a peak"))
}

/// A process of 600 MiB that forks at 5 s.
fn forked() -> Script {
    let mut run = Script::command(&["x"], 60.0);
    run.process(500, None, 0.0, "x");
    run.mem(500, 1.0, [600.0, 0.0, 0.0]);
    run.process(501, Some(500), 5.0, "x");
    run.inherits(501, 600.0);
    run.mem(501, 5.1, [600.0, 0.0, 0.0]);
    run
}

#[test]
fn a_copy_that_exec_replaces_counts_only_what_it_grew_by() {
    let mut run = forked();
    run.mem(501, 5.5, [602.0, 0.0, 0.0]);
    run.exec(501, 6.0, "sleep");
    run.mem(501, 6.0, [1.0, 0.0, 0.0]);
    let analysis = run.clone().analyzed(None);
    assert_eq!(held_peak(&analysis), [602; 3]);
    let (sum, _) = analysis.rss_peak.expect("a sum");
    assert_eq!(sum.0 / MIB, 1202, "what psutil would say");
    assert_eq!(held_at(&run, "+10s"), [601; 3]);
}

#[test]
fn a_copy_that_never_executes_is_between_its_growth_and_its_rss() {
    let mut run = forked();
    run.mem(501, 8.0, [650.0, 0.0, 0.0]);
    assert_eq!(held_at(&run, "+4s"), [600; 3]);
    assert_eq!(held_at(&run, "+6s"), [600, 600, 1200]);
    assert_eq!(held_at(&run, "+9s"), [650, 650, 1250]);
    run.exit(501, 20.0, 0);
    assert_eq!(held_at(&run, "+30s"), [600; 3], "alone again");
}

#[test]
fn readings_of_all_tell_what_is_held_and_bound_the_time_between_them() {
    let mut run = forked();
    read_both(&mut run, [300.0, 600.0]);
    assert_eq!(held_at(&run, "+6s"), [600; 3], "nothing until the first");
    assert_eq!(held_at(&run, "+9s"), [600; 3]);
    // The copy wrote to half of what it inherited.
    read(&mut run, 500, 20.0, [450.0, 600.0]);
    read(&mut run, 501, 21.0, [450.0, 600.0]);
    assert_eq!(held_at(&run, "+15s"), [600, 600, 750]);
    assert_eq!(held_at(&run, "+22s"), [900; 3]);
    run.mem(501, 25.0, [700.0, 0.0, 0.0]);
    assert_eq!(held_at(&run, "+30s"), [1000; 3], "growth is its own");
}

/// What all that can share pages with a process can have copied by then, in MiB; they were looked
/// at half a second before.
fn copied(run: &mut Script, tgid: u32, at: f64, amount: i64) {
    run.put(CowRow {
        ts: wall(at),
        boot_ns: boot(at),
        upid: upid(Tgid(tgid)),
        copied_bytes: Bytes(amount * MIB),
        unchanged_until_boot_ns: boot(at - 0.5),
    });
}

#[test]
fn what_is_copied_after_the_last_reading_is_within_the_upper_bound() {
    let mut run = forked();
    copied(&mut run, 500, 6.5, 50);
    read_both(&mut run, [300.0, 600.0]);
    copied(&mut run, 500, 10.5, 80);
    copied(&mut run, 500, 12.0, 150);
    run.exit(501, 20.0, 0);
    let mut again = run.clone();
    read(&mut again, 500, 14.0, [350.0, 600.0]);
    read(&mut again, 501, 15.0, [350.0, 600.0]);
    assert_eq!(held_at(&run, "+13s"), [600, 600, 700]);
    assert_eq!(held_at(&run, "+21s"), [600; 3], "alone again");
    assert_eq!(held_at(&again, "+13s"), [600, 600, 700]);
    assert_eq!(held_at(&again, "+16s"), [700; 3]);
    for run in [run, again] {
        assert_eq!(held_at(&run, "+9s"), [600; 3], "nothing was copied by +10s");
        assert_eq!(held_at(&run, "+10.2s"), [600, 600, 630]);
        assert_eq!(held_at(&run, "+11s"), [600, 600, 630]);
    }
}

#[test]
fn what_is_copied_while_one_after_the_other_is_read_is_within_the_upper_bound() {
    let mut run = forked();
    read(&mut run, 501, 7.0, [300.0, 600.0]);
    copied(&mut run, 500, 8.0, 200);
    read(&mut run, 500, 9.0, [400.0, 600.0]);
    assert_eq!(held_at(&run, "+10s"), [700, 700, 900]);
    read(&mut run, 501, 12.0, [400.0, 600.0]);
    assert_eq!(held_at(&run, "+10s"), [700, 700, 800]);
    assert_eq!(held_at(&run, "+13s"), [800; 3]);
}

#[test]
fn what_was_given_back_since_a_reading_lowers_one_bound_and_raises_the_other() {
    let mut refilled = forked();
    read_both(&mut refilled, [300.0, 600.0]);
    refilled.mem(500, 10.0, [300.0, 0.0, 0.0]);
    refilled.mem(500, 12.0, [600.0, 0.0, 0.0]);
    // The copy can still hold what the eldest gave back.
    assert_eq!(held_at(&refilled, "+13s"), [600, 600, 900]);
    let mut copies = forked();
    read_both(&mut copies, [450.0, 600.0]);
    assert_eq!(held_at(&copies, "+9s"), [900; 3]);
    // Its copies, or what it shared.
    copies.mem(501, 10.0, [300.0, 0.0, 0.0]);
    assert_eq!(held_at(&copies, "+11s"), [600, 900, 900]);
}

#[test]
fn a_later_reading_bounds_nothing_that_was_given_back_before_it() {
    let mut run = forked();
    read_both(&mut run, [300.0, 600.0]);
    copied(&mut run, 501, 10.0, 300);
    run.mem(501, 12.0, [300.0, 0.0, 0.0]);
    read(&mut run, 500, 14.0, [450.0, 600.0]);
    read(&mut run, 501, 15.0, [150.0, 300.0]);
    assert_eq!(held_at(&run, "+11s"), [600, 600, 900]);
    assert_eq!(held_at(&run, "+16s"), [600; 3]);
}

#[test]
fn copies_of_several_processes_add_up() {
    let mut run = forked();
    read_both(&mut run, [300.0, 600.0]);
    copied(&mut run, 500, 10.0, 100);
    copied(&mut run, 501, 10.2, 50);
    copied(&mut run, 500, 11.0, 120);
    assert_eq!(held_at(&run, "+9s"), [600; 3]);
    assert_eq!(held_at(&run, "+12s"), [600, 600, 770]);
}

#[test]
fn when_one_leaves_the_others_hold_no_more_than_all_did() {
    let mut run = forked();
    run.process(502, Some(500), 5.0, "x");
    run.inherits(502, 600.0);
    run.mem(502, 5.1, [600.0, 0.0, 0.0]);
    for (tgid, at) in [(500, 7.0), (501, 7.5), (502, 8.0)] {
        read(&mut run, tgid, at, [250.0, 600.0]);
    }
    assert_eq!(held_at(&run, "+9s"), [750; 3]);
    let mut eldest = run.clone();
    run.exit(501, 20.0, 0);
    assert_eq!(held_at(&run, "+21s"), [600, 750, 750]);
    copied(&mut run, 502, 25.0, 40);
    assert_eq!(held_at(&run, "+26s"), [600, 750, 790]);
    eldest.exit(500, 20.0, 0);
    assert_eq!(held_at(&eldest, "+21s"), [600, 750, 750]);
    run.process(503, Some(500), 30.0, "x");
    run.inherits(503, 600.0);
    run.mem(503, 30.1, [600.0, 0.0, 0.0]);
    assert_eq!(
        held_at(&run, "+31s"),
        [600, 750, 1800],
        "one comes, and nobody was read since"
    );
}

#[test]
fn a_reading_that_began_before_a_fork_says_nothing_of_the_time_after_it() {
    let mut run = forked();
    read(&mut run, 500, 5.2, [600.0, 600.0]);
    read(&mut run, 501, 6.0, [300.0, 600.0]);
    assert_eq!(held_at(&run, "+7s"), [600, 600, 1200]);
    read(&mut run, 500, 8.0, [300.0, 600.0]);
    assert_eq!(held_at(&run, "+9s"), [600; 3]);
}

#[test]
fn readings_from_before_a_fork_say_nothing_of_the_time_after_it() {
    let mut run = forked();
    read_both(&mut run, [300.0, 600.0]);
    run.process(502, Some(500), 10.0, "x");
    run.inherits(502, 600.0);
    run.mem(502, 10.1, [600.0, 0.0, 0.0]);
    assert_eq!(held_at(&run, "+12s"), [600, 600, 1800]);
    for tgid in 500..503 {
        read(&mut run, tgid, 13.0, [200.0, 600.0]);
    }
    assert_eq!(held_at(&run, "+12s"), [600; 3]);
}

#[test]
fn what_a_copy_holds_when_its_parent_has_gone_still_counts() {
    let mut run = forked();
    run.process(502, Some(500), 6.0, "x");
    run.inherits(502, 600.0);
    run.mem(502, 6.1, [610.0, 0.0, 0.0]);
    run.exit(500, 10.0, 0);
    let [at_least, bytes, at_most] = held_at(&run, "+12s");
    assert_eq!((at_least, at_most), (610, 1210));
    assert!((at_least..=at_most).contains(&bytes), "{bytes}");
}
