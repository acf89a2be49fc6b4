//! What a tree holds, every page once, over courses of forks, execs and readings.

mod account;
mod estimates;
mod shared;

use super::*;
use crate::Analysis;
use crate::golden::{Reported, Script, boot, wall};
use memtrace_model::tables::FirstSeenBy;
use memtrace_model::{Record, Tgid};

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
fn what_a_reading_finds_to_be_its_own_a_copy_holds_for_certain() {
    let mut run = forked();
    read(&mut run, 501, 8.0, [300.0, 600.0]);
    assert_eq!(held_at(&run, "+9s"), [600, 600, 1200]);
    // The copy wrote to half of what it inherited.
    read(&mut run, 500, 20.0, [450.0, 600.0]);
    read(&mut run, 501, 21.0, [450.0, 600.0]);
    let mut estimated = run.clone();
    if let Some(Record::Pss(row)) = estimated.rows.0.last_mut() {
        row.sampled_share = Some(0.5);
    }
    assert_eq!(held_at(&estimated, "+22s"), [600, 600, 1200]);
    assert_eq!(held_at(&run, "+22s"), [900, 900, 1200]);
    run.mem(501, 25.0, [700.0, 0.0, 0.0]);
    assert_eq!(
        held_at(&run, "+30s"),
        [1000, 1000, 1300],
        "growth is its own"
    );
    run.process(502, Some(500), 31.0, "x");
    run.inherits(502, 600.0);
    run.mem(502, 31.1, [600.0, 0.0, 0.0]);
    let held = held_at(&run, "+32s");
    assert_eq!(held, [1000, 1000, 1900], "a fork copies nothing");
}

#[test]
fn when_one_leaves_the_others_hold_what_is_their_own_and_the_eldest_all() {
    let mut run = forked();
    run.process(502, Some(500), 5.0, "x");
    run.inherits(502, 600.0);
    run.mem(502, 5.1, [600.0, 0.0, 0.0]);
    for (tgid, at) in [(500, 7.0), (501, 7.5), (502, 8.0)] {
        read(&mut run, tgid, at, [300.0, 600.0]);
        if let Some(Record::Pss(row)) = run.rows.0.last_mut() {
            row.uss_anon_bytes = Some(Bytes(150 * MIB));
        }
    }
    assert_eq!(held_at(&run, "+9s"), [900, 900, 1800]);
    let mut eldest = run.clone();
    run.exit(501, 20.0, 0);
    assert_eq!(held_at(&run, "+21s"), [750, 750, 1200]);
    eldest.exit(500, 20.0, 0);
    assert_eq!(held_at(&eldest, "+21s"), [750, 750, 1200]);
    run.exit(502, 25.0, 0);
    assert_eq!(held_at(&run, "+26s"), [600; 3], "alone");
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

/// Two of a program, of 220 MiB and 250 MiB, and one of another, that all ran before the recording.
fn orphans() -> Script {
    let mut run = Script::command(&["x"], 60.0);
    for (tgid, program, anon) in [(500, "x", 220.0), (501, "x", 250.0), (502, "y", 30.0)] {
        run.process(tgid, None, 0.0, program);
        run.edit(tgid, |process| {
            process.first_seen_by = Some(FirstSeenBy::Snapshot);
            process.inherited_anon_bytes = None;
        });
        run.mem(tgid, 1.0, [anon, 0.0, 0.0]);
    }
    run
}

#[test]
fn those_whose_parent_is_gone_can_be_copies_of_it() {
    let mut run = orphans();
    assert_eq!(held_at(&run, "+2s"), [250, 250, 500]);
    read(&mut run, 501, 3.0, [150.0, 250.0]);
    assert_eq!(held_at(&run, "+4s"), [300, 300, 500]);
}

#[test]
fn who_ran_before_is_thought_to_have_shared_what_the_first_reading_finds() {
    let mut run = orphans();
    run.mem(501, 2.5, [260.0, 0.0, 0.0]);
    // It shares 200 MiB.
    read(&mut run, 501, 3.0, [160.0, 260.0]);
    assert_eq!(held_at(&run, "+2s"), [250, 300, 500]);
    assert_eq!(held_at(&run, "+2.7s"), [260, 310, 510]);
    assert_eq!(held_at(&run, "+4s"), [310, 310, 510]);
    let mut estimated = run.clone();
    if let Some(Record::Pss(row)) = estimated.rows.0.last_mut() {
        row.sampled_share = Some(0.5);
    }
    assert_eq!(held_at(&estimated, "+2s"), [250, 300, 500]);
    assert_eq!(held_at(&estimated, "+4s"), [260, 310, 510]);
    // It wrote to 50 MiB more of them.
    read(&mut estimated, 501, 5.0, [185.0, 260.0]);
    assert_eq!(held_at(&estimated, "+4s"), [260, 310, 510]);
    assert_eq!(held_at(&estimated, "+6s"), [360, 360, 510]);
}

#[test]
fn page_tables_and_huge_pages_are_held_by_whom_they_were_read_of() {
    let mut run = forked();
    let read = |run: &mut Script, at: f64, huge: i64, tables: i64| {
        read(run, 501, at, [300.0, 600.0]);
        if let Some(Record::Pss(row)) = run.rows.0.last_mut() {
            row.hugetlb_bytes = Some(Bytes(huge * MIB));
            row.page_tables_bytes = Some(Bytes(tables * MIB));
        }
    };
    read(&mut run, 8.0, 64, 40);
    run.exit(501, 20.0, 0);
    let kinds = |at: &str| {
        let state = run.clone().analyzed(Some(at)).at.expect("a state");
        let held = state.held.expect("kinds are known");
        [mibs(&held.huge), mibs(&held.kernel)]
    };
    assert_eq!(kinds("+7s"), [[0; 3]; 2]);
    assert_eq!(kinds("+9s"), [[64; 3], [40; 3]]);
    assert_eq!(kinds("+21s"), [[0; 3]; 2]);
}
