//! What memory cgroups are charged, beside what is known of the processes in them.

use super::*;
use crate::analyze::HeldBasis;
use crate::model::tables::{CgroupMemRow, SelfCostRow};

const GROUP: &str = "/job";

/// A reading of the group: anonymous and shared memory, in MiB, and who lives there that is not
/// recorded: how many, and what they hold in MiB.
fn charged(run: &mut Script, at: f64, amounts: [i64; 2], others: Option<(i64, i64)>) {
    let [anon, shmem] = amounts.map(|amount| Some(Bytes(amount * MIB)));
    run.put(CgroupMemRow {
        ts: wall(at),
        boot_ns: boot(at),
        cgroup: GROUP.to_owned(),
        version: 1,
        anon_bytes: anon,
        shmem_bytes: shmem,
        other_process_count: others.map(|(count, _)| count),
        other_anon_bytes: others.map(|(_, anon)| Bytes(anon * MIB)),
        ..CgroupMemRow::default()
    });
}

fn live_in_the_group(run: &mut Script, tgids: impl IntoIterator<Item = u32>) {
    for tgid in tgids {
        run.edit(tgid, |row| row.cgroup = Some(GROUP.into()));
    }
}

fn basis_at(run: &Script, at: &str) -> HeldBasis {
    let state = run.clone().analyzed(Some(at)).at.expect("a state");
    state.held.expect("kinds are known").basis
}

/// Five hundred forks of one that was attached to, of which no one was read: 10 MiB each of their own.
fn attached() -> Script {
    let mut run = Script::command(&["x"], 60.0);
    run.process(500, None, 0.0, "x");
    run.mem(500, 0.1, [20.0, 0.0, 0.0]);
    for tgid in 501..1001 {
        run.process(tgid, Some(500), 0.0, "x");
        run.inherits(tgid, 20.0);
        run.mem(tgid, 0.1, [20.0, 0.0, 0.0]);
    }
    live_in_the_group(&mut run, 500..1001);
    run
}

#[test]
fn what_the_group_is_charged_is_what_is_held_where_nobody_else_lives_there() {
    let mut run = attached();
    assert_eq!(
        held_at(&run, "+10s"),
        [20, 20, 10_020],
        "of the processes alone"
    );
    assert_eq!(basis_at(&run, "+10s"), HeldBasis::Processes);
    for at in [1.0, 11.0, 21.0] {
        charged(&mut run, at, [5_020, 30], Some((0, 0)));
    }
    assert_eq!(
        held_at(&run, "+0.5s"),
        [20, 5_020, 5_020],
        "before it was read"
    );
    assert_eq!(held_at(&run, "+10s"), [5_050; 3]);
    assert_eq!(basis_at(&run, "+10s"), HeldBasis::Cgroup);
    assert_eq!(held_peak(&run.clone().analyzed(None))[1], 5_050);
}

#[test]
fn what_processes_gain_and_give_back_between_two_readings_counts_from_the_one_before() {
    let mut run = Script::command(&["x"], 60.0);
    run.process(500, None, 0.0, "x");
    live_in_the_group(&mut run, [500]);
    run.mem(500, 0.1, [100.0, 0.0, 0.0]);
    // Of what was charged 50 MiB are in nobody's RSS.
    charged(&mut run, 1.0, [150, 0], Some((0, 0)));
    run.mem(500, 1.2, [400.0, 0.0, 0.0]);
    run.mem(500, 1.4, [110.0, 0.0, 0.0]);
    charged(&mut run, 2.0, [160, 0], Some((0, 0)));
    assert_eq!(held_at(&run, "+1.1s"), [150, 150, 160]);
    assert_eq!(
        held_at(&run, "+1.3s")[1],
        450,
        "a spike that no reading saw"
    );
    assert_eq!(held_peak(&run.clone().analyzed(None))[1], 450);
    assert_eq!(held_at(&run, "+1.5s")[1], 160);
    assert_eq!(held_at(&run, "+3s"), [160; 3]);
}

#[test]
fn a_fall_that_the_next_reading_knows_nothing_of_was_none() {
    let mut run = forked();
    live_in_the_group(&mut run, [500, 501]);
    charged(&mut run, 7.0, [900, 0], Some((0, 0)));
    // The copy lives on with all that it wrote to.
    run.exit(500, 8.0, 0);
    charged(&mut run, 8.5, [600, 0], Some((0, 0)));
    let [least, figure, most] = held_at(&run, "+8.2s");
    assert!(
        figure >= 600 && least <= 600 && most >= 600,
        "{least} {figure} {most}"
    );
    assert_eq!(held_at(&run, "+9s"), [600; 3]);
}

#[test]
fn what_others_in_the_group_can_hold_is_taken_off_and_leaves_bounds() {
    let mut run = attached();
    charged(&mut run, 1.0, [5_100, 40], Some((3, 60)));
    assert_eq!(
        held_at(&run, "+2s"),
        [5_040, 5_040, 5_100],
        "nobody has shared memory"
    );
    assert_eq!(basis_at(&run, "+2s"), HeldBasis::Bounds);
    charged(&mut run, 3.0, [5_100, 40], None);
    assert_eq!(held_at(&run, "+4s"), [20, 20, 5_100], "unknown others");
}

#[test]
fn the_recorder_is_no_part_of_what_is_held_in_its_group() {
    let mut run = Script::command(&["x"], 60.0);
    run.process(500, None, 0.0, "x");
    live_in_the_group(&mut run, [500]);
    run.mem(500, 0.1, [100.0, 0.0, 0.0]);
    run.put(SelfCostRow {
        ts: wall(0.5),
        boot_ns: boot(0.5),
        rss_anon_bytes: Some(Bytes(30 * MIB)),
        cgroup: Some(format!("{GROUP}/below")),
        ..SelfCostRow::default()
    });
    charged(&mut run, 1.0, [130, 0], Some((0, 0)));
    assert_eq!(held_at(&run, "+2s"), [100; 3]);
}

#[test]
fn memory_that_was_charged_elsewhere_is_held_all_the_same() {
    let mut run = Script::command(&["x"], 60.0);
    run.process(500, None, 0.0, "x");
    live_in_the_group(&mut run, [500]);
    run.mem(500, 0.1, [400.0, 0.0, 0.0]);
    // It came into the group with what it had.
    charged(&mut run, 1.0, [10, 0], Some((2, 10)));
    assert_eq!(held_at(&run, "+2s"), [400; 3]);
    assert_eq!(basis_at(&run, "+2s"), HeldBasis::Processes);
}

#[test]
fn groups_of_which_neither_lies_in_the_other_add_up_and_one_that_is_gone_counts_no_more() {
    let mut run = Script::command(&["x"], 120.0);
    for (tgid, group) in [(500, "/a"), (501, "/b")] {
        run.process(tgid, None, 0.0, "x");
        run.mem(tgid, 0.1, [10.0, 0.0, 0.0]);
        run.edit(tgid, |row| row.cgroup = Some(group.into()));
    }
    let mut read = |group: &str, at: f64| {
        charged(&mut run, at, [50, 0], Some((0, 0)));
        if let Some(Record::CgroupMem(row)) = run.rows.0.last_mut() {
            row.cgroup = group.to_owned();
        }
    };
    for at in [1.0, 11.0, 21.0, 31.0] {
        read("/a", at);
        read("/b", at);
    }
    read("/a", 47.0);
    assert_eq!(held_at(&run, "+25s"), [100; 3]);
    run.exit(501, 32.0, 0);
    assert_eq!(held_at(&run, "+50s"), [50; 3]);
}

#[test]
fn kinds_that_come_while_others_go_are_no_more_than_was_ever_in_use() {
    let mut run = Script::command(&["x"], 60.0);
    for tgid in [500, 501] {
        run.process(tgid, None, 0.0, "x");
        run.mem(tgid, 0.1, [150.0, 0.0, 0.0]);
    }
    live_in_the_group(&mut run, [500, 501]);
    // Read while one gives its memory back, and before the other shares memory.
    run.exit(501, 0.9, 0);
    charged(&mut run, 1.0, [300, 0], Some((0, 0)));
    run.mem(500, 1.5, [150.0, 0.0, 100.0]);
    charged(&mut run, 2.0, [150, 100], Some((0, 0)));
    for record in &mut run.rows.0 {
        if let Record::CgroupMem(row) = record {
            row.peak_bytes = Some(Bytes(310 * MIB));
        }
    }
    let [_, figure, most] = held_at(&run, "+1.7s");
    assert_eq!([figure, most], [310, 310]);
}

#[test]
fn readings_that_are_too_many_become_half_as_many_within_what_they_were() {
    use super::super::account::{Charged, Reading, coarsen};
    let reading = |at: i64, anon: i64| Reading {
        at: BootNs(at),
        anon: Charged {
            least: anon,
            most: anon,
        },
        mark: Some(at),
        is_alone: at != 2,
        ..Reading::default()
    };
    let mut readings: Vec<Reading> = (0..5).map(|at| reading(at, 10 - at)).collect();
    coarsen(&mut readings);
    let told = |one: &Reading| {
        (
            one.at.0,
            one.anon.least,
            one.anon.most,
            one.mark,
            one.is_alone,
        )
    };
    let told: Vec<_> = readings.iter().map(told).collect();
    let expected = [
        (0, 9, 10, Some(1), true),
        (2, 7, 8, Some(3), false),
        (4, 6, 6, Some(4), true),
    ];
    assert_eq!(told, expected);
}
