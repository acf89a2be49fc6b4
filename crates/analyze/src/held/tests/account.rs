//! What memory cgroups are charged, beside what is known of the processes in them.

use super::*;
use crate::HeldBasis;
use crate::golden::{group, nested};
use memtrace_model::Target;
use memtrace_model::tables::{CgroupMemRow, NodeMemRow, OomRow, SelfCostRow};

const GROUP: &str = "/job";

/// A reading of the group: anonymous and shared memory, in MiB, and who lives there that is not
/// recorded: how many, and what they hold in MiB.
pub(super) fn charged(run: &mut Script, at: f64, amounts: [i64; 2], others: Option<(i64, i64)>) {
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

pub(super) fn live_in_the_group(run: &mut Script, tgids: impl IntoIterator<Item = u32>) {
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
fn a_fall_of_the_only_one_who_can_hold_it_was_one_whatever_the_next_reading_finds() {
    let mut run = Script::command(&["x"], 60.0);
    run.process(500, None, 0.0, "x");
    live_in_the_group(&mut run, [500]);
    run.mem(500, 0.1, [640.0, 0.0, 0.0]);
    // Of what was charged 20 MiB are in nobody's RSS.
    charged(&mut run, 1.0, [660, 0], Some((0, 0)));
    run.mem(500, 1.4, [100.0, 0.0, 0.0]);
    run.mem(500, 1.6, [680.0, 0.0, 0.0]);
    charged(&mut run, 2.0, [700, 0], Some((0, 0)));
    assert_eq!(held_at(&run, "+1.2s")[1], 660);
    assert_eq!(held_at(&run, "+1.5s")[1], 120);
    assert_eq!(held_at(&run, "+1.8s")[1], 700);
}

#[test]
fn a_copy_that_exec_replaces_later_holds_what_its_parent_had() {
    let mut run = forked();
    live_in_the_group(&mut run, [500, 501]);
    charged(&mut run, 7.0, [600, 0], Some((0, 0)));
    run.exit(500, 7.2, 0);
    charged(&mut run, 8.0, [600, 0], Some((0, 0)));
    run.exec(501, 8.5, "sleep");
    run.mem(501, 8.5, [1.0, 0.0, 0.0]);
    assert_eq!(held_at(&run, "+7.5s")[1], 600);
}

#[test]
fn gains_too_small_for_a_row_are_within_the_bounds() {
    let mut run = Script::command(&["x"], 60.0);
    run.process(500, None, 0.0, "x");
    run.mem(500, 0.1, [400.0, 0.0, 0.0]);
    for tgid in 501..801 {
        run.process(tgid, Some(500), 0.0, "x");
        run.inherits(tgid, 0.0);
        run.mem(tgid, 0.1, [10.0, 0.0, 0.0]);
    }
    live_in_the_group(&mut run, 500..801);
    charged(&mut run, 1.0, [3_400, 0], Some((0, 0)));
    run.mem(500, 1.5, [200.0, 0.0, 0.0]);
    charged(&mut run, 2.0, [3_400, 0], Some((0, 0)));
    assert_eq!(held_at(&run, "+1.8s"), [3_200, 3_200, 3_400]);
}

#[test]
fn beside_others_copies_that_were_never_read_hold_what_is_left() {
    let mut run = attached();
    charged(&mut run, 1.0, [5_100, 40], Some((30, 60)));
    let by_fork = "what fork gave them is known, not what they copied";
    assert_eq!(held_at(&run, "+2s"), [20, 20, 5_100], "{by_fork}");
    let mut run = attached();
    for tgid in 501..1_001 {
        run.edit(tgid, |process| {
            process.first_seen_by = Some(FirstSeenBy::Snapshot);
            process.inherited_anon_bytes = None;
        });
    }
    charged(&mut run, 1.0, [5_100, 40], Some((30, 60)));
    assert_eq!(held_at(&run, "+0.5s"), [20, 5_040, 5_100]);
    assert_eq!(held_at(&run, "+2s"), [20, 5_040, 5_100]);
    assert_eq!(basis_at(&run, "+2s"), HeldBasis::Bounds);
    charged(&mut run, 3.0, [5_100, 40], None);
    assert_eq!(held_at(&run, "+4s"), [20, 20, 5_100], "unknown others");
}

#[test]
fn few_others_are_taken_off_the_charge_as_they_were_counted() {
    let mut run = attached();
    charged(&mut run, 1.0, [5_100, 40], Some((3, 60)));
    assert_eq!(held_at(&run, "+2s"), [5_040, 5_040, 5_100]);
    charged(&mut run, 3.0, [5_180, 40], Some((3, 120)));
    assert_eq!(held_at(&run, "+2s")[0], 4_980, "they can have grown since");
}

#[test]
fn what_others_gain_between_two_counts_is_not_the_trees() {
    let mut run = forked();
    live_in_the_group(&mut run, [500, 501]);
    run.mem(501, 6.0, [690.0, 0.0, 0.0]);
    // The others were counted at 1 s, and grow by 400 MiB at 7 s.
    for (at, anon) in [(1.0, 700), (6.5, 790), (7.0, 1_190), (8.0, 1_190)] {
        charged(&mut run, at, [anon, 0], Some((30, 100)));
    }
    for at in ["+6.7s", "+7s", "+7.5s", "+9s"] {
        let [least, figure, most] = held_at(&run, at);
        assert_eq!([least, figure], [690, 690], "{at}");
        assert!(most >= 790, "{at}: {most}");
    }
    assert_eq!(held_peak(&run.analyzed(None))[..2], [690, 690]);
}

#[test]
fn a_group_is_shared_since_others_can_have_come_who_were_counted_later() {
    let mut run = forked();
    live_in_the_group(&mut run, [500, 501]);
    for (at, others) in [(7.0, 0), (8.0, 0), (9.0, 1)] {
        charged(&mut run, at, [900, 0], Some((others, 200 * others)));
    }
    let [least, figure, most] = held_at(&run, "+7.5s");
    assert!(
        figure < 900 && least <= figure && most >= figure,
        "{least} {figure} {most}"
    );
    assert_eq!(basis_at(&run, "+7.5s"), HeldBasis::Bounds);
}

#[test]
fn what_is_of_a_group_alone_is_certain_beside_a_shared_one() {
    let mut run = attached();
    run.process(2_000, None, 0.0, "x");
    run.mem(2_000, 0.1, [30.0, 0.0, 0.0]);
    run.edit(2_000, |row| row.cgroup = Some("/shared".into()));
    charged(&mut run, 1.0, [5_020, 0], Some((0, 0)));
    charged(&mut run, 1.001, [900, 0], Some((30, 100)));
    if let Some(Record::CgroupMem(row)) = run.rows.0.last_mut() {
        row.cgroup = "/shared".to_owned();
    }
    assert_eq!(held_at(&run, "+2s"), [5_020, 5_020, 5_920]);
}

#[test]
fn the_recorder_is_no_part_of_what_is_held_in_its_group() {
    let mut run = Script::command(&["x"], 60.0);
    run.process(500, None, 0.0, "x");
    live_in_the_group(&mut run, [500]);
    run.mem(500, 0.1, [100.0, 0.0, 0.0]);
    with_recorder(&mut run, 30);
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
    read("/a", 75.0);
    assert_eq!(held_at(&run, "+25s"), [100; 3]);
    run.exit(501, 32.0, 0);
    assert_eq!(held_at(&run, "+80s"), [50; 3]);
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
    use super::super::charges::{Charged, Reading, coarsen};
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
    let text = |one: &Reading| {
        (
            one.at.0,
            one.anon.least,
            one.anon.most,
            one.mark,
            one.is_alone,
        )
    };
    let text: Vec<_> = readings.iter().map(text).collect();
    let expected = [
        (0, 9, 10, Some(1), true),
        (2, 7, 8, Some(3), false),
        (4, 6, 6, Some(4), true),
    ];
    assert_eq!(text, expected);
}

/// The last reading of the group also tells of kernel memory and of all that is in use, in MiB.
fn in_use(run: &mut Script, kernel: i64, current: i64) {
    if let Some(Record::CgroupMem(row)) = run.rows.0.last_mut() {
        row.kernel_bytes = Some(Bytes(kernel * MIB));
        row.file_bytes = row.shmem_bytes;
        row.current_bytes = Some(Bytes(current * MIB));
    }
}

fn one() -> Script {
    let mut run = Script::command(&["x"], 60.0);
    run.process(500, None, 0.0, "x");
    live_in_the_group(&mut run, [500]);
    run.mem(500, 0.1, [100.0, 0.0, 0.0]);
    run
}

/// Kernel memory and what is of no kind, each as its bounds and its figure.
fn beside_at(run: &Script, at: &str) -> [[i64; 3]; 2] {
    let state = run.clone().analyzed(Some(at)).at.expect("a state");
    let held = state.held.expect("kinds are known");
    [mibs(&held.kernel), mibs(&held.unnamed)]
}

#[test]
fn kernel_memory_of_a_group_and_what_it_names_by_no_kind_are_held() {
    let mut run = one();
    charged(&mut run, 1.0, [100, 10], Some((0, 0)));
    in_use(&mut run, 300, 410 + 256);
    assert_eq!(beside_at(&run, "+2s"), [[300; 3], [256; 3]]);
    assert_eq!(held_at(&run, "+2s"), [666; 3]);
    // Counts lag each other by as much.
    charged(&mut run, 3.0, [100, 10], Some((0, 0)));
    in_use(&mut run, 300, 410 + 2);
    assert_eq!(beside_at(&run, "+4s"), [[300; 3], [0; 3]]);
}

#[test]
fn what_one_reading_alone_names_by_no_kind_is_being_freed() {
    let mut run = one();
    for (at, unnamed) in [(1.0, 0), (2.0, 40), (3.0, 0), (4.0, 60), (5.0, 90)] {
        charged(&mut run, at, [100, 10], Some((0, 0)));
        in_use(&mut run, 0, 110 + unnamed);
    }
    assert_eq!(beside_at(&run, "+1.5s")[1], [0, 0, 40]);
    assert_eq!(beside_at(&run, "+2.5s")[1], [0, 0, 40]);
    assert_eq!(beside_at(&run, "+4.5s")[1], [60, 60, 90]);
}

/// The recorder lives in the group.
fn with_recorder(run: &mut Script, anon: i64) {
    run.put(SelfCostRow {
        ts: wall(0.1),
        boot_ns: boot(0.1),
        rss_anon_bytes: Some(Bytes(anon * MIB)),
        cgroup: Some(format!("{GROUP}/below")),
        ..SelfCostRow::default()
    });
}

#[test]
fn of_a_group_that_others_share_only_page_tables_are_certain_kernel_memory() {
    let mut run = one();
    read(&mut run, 500, 0.5, [100.0, 100.0]);
    if let Some(Record::Pss(row)) = run.rows.0.last_mut() {
        row.page_tables_bytes = Some(Bytes(3 * MIB));
    }
    for (at, kernel) in [(1.0, 200), (3.0, 930)] {
        charged(&mut run, at, [100, 0], Some((1, 0)));
        in_use(&mut run, kernel, 100 + kernel + 500);
    }
    assert_eq!(beside_at(&run, "+4s"), [[3, 3, 930], [0, 0, 500]]);
    assert_eq!(held_at(&run, "+4s"), [103, 103, 1_530]);
}

#[test]
fn beside_the_recorder_kernel_memory_of_a_command_is_what_came_since() {
    let kernel_at = |first: f64| {
        let mut run = one();
        with_recorder(&mut run, 0);
        for (at, kernel) in [(first, 200), (3.0, 230)] {
            charged(&mut run, at, [100, 0], Some((0, 0)));
            in_use(&mut run, kernel, 100 + kernel);
        }
        beside_at(&run, "+4s")
    };
    assert_eq!(kernel_at(0.2), [[0, 30, 30], [0; 3]]);
    assert_eq!(kernel_at(1.0), [[0, 30, 230], [0; 3]], "it came meanwhile");
}

#[test]
fn where_a_group_was_not_read_the_others_are_no_cap() {
    let mut run = one();
    run.process(501, Some(500), 0.0, "x");
    run.mem(501, 0.1, [50.0, 0.0, 0.0]);
    run.edit(501, |row| row.cgroup = Some("/elsewhere".into()));
    charged(&mut run, 1.0, [100, 0], Some((0, 0)));
    run.mem(501, 1.5, [5_000.0, 0.0, 0.0]);
    assert_eq!(held_at(&run, "+2s"), [5_100; 3]);
    assert_eq!(basis_at(&run, "+2s"), HeldBasis::Processes);
    run.edit(501, |row| row.exit_boot_ns = Some(boot(0.5)));
    assert_eq!(
        basis_at(&run, "+2s"),
        HeldBasis::Cgroup,
        "it was there for a moment"
    );
}

#[test]
fn the_log_of_a_kill_is_a_reading_of_its_group() {
    let mut run = one();
    charged(&mut run, 1.0, [100, 0], Some((0, 0)));
    let mut kill = OomRow::of_victim(wall(5.0), boot(5.0), Tgid(500));
    kill.memcg = Some(GROUP.to_owned());
    kill.memcg_usage_bytes = Some(Bytes(300 * MIB));
    kill.memcg_anon_bytes = Some(Bytes(280 * MIB));
    kill.memcg_shmem_bytes = Some(Bytes(0));
    run.put(kill);
    charged(&mut run, 6.0, [100, 0], Some((0, 0)));
    assert_eq!(held_at(&run, "+2s"), [100, 100, 280]);
    assert_eq!(held_peak(&run.analyzed(None))[1], 280);
}

#[test]
fn where_everybody_is_recorded_the_machine_is_the_group() {
    let mut run = one();
    run.put(NodeMemRow {
        ts: wall(1.0),
        boot_ns: boot(1.0),
        anon_bytes: Some(Bytes(130 * MIB)),
        shmem_bytes: Some(Bytes(20 * MIB)),
        page_tables_bytes: Some(Bytes(5 * MIB)),
        ..NodeMemRow::default()
    });
    assert_eq!(
        held_at(&run, "+2s"),
        [100, 100, 105],
        "others are there, too"
    );
    run.info.target = Target::All;
    assert_eq!(held_at(&run, "+2s"), [155; 3]);
    assert_eq!(basis_at(&run, "+2s"), HeldBasis::Cgroup);
}

#[test]
fn huge_pages_that_forks_share_are_no_more_than_the_machine_has_in_use() {
    let mut run = one();
    for tgid in 501..505 {
        run.process(tgid, Some(500), 0.5, "x");
        run.mem(tgid, 0.6, [1.0, 0.0, 0.0]);
        read(&mut run, tgid, 1.0, [1.0, 1.0]);
        if let Some(Record::Pss(row)) = run.rows.0.last_mut() {
            row.hugetlb_bytes = Some(Bytes(64 * MIB));
        }
    }
    let huge = |run: &Script| {
        let state = run.clone().analyzed(Some("+2s")).at.expect("a state");
        mibs(&state.held.expect("kinds are known").huge)
    };
    assert_eq!(huge(&run), [64, 256, 256]);
    run.put(NodeMemRow {
        ts: wall(0.8),
        boot_ns: boot(0.8),
        hugetlb_used_bytes: Some(Bytes(70 * MIB)),
        ..NodeMemRow::default()
    });
    assert_eq!(huge(&run), [64, 70, 70]);
}

#[test]
fn sockets_that_v1_charges_to_nobody_count_once_for_all_groups_and_take_nothing_from_other_kinds() {
    let mut run = Script::command(&["x"], 60.0);
    for (tgid, group) in [(500, "/a"), (501, "/b")] {
        run.process(tgid, None, 0.0, "x");
        run.mem(tgid, 0.1, [10.0, 0.0, 0.0]);
        run.edit(tgid, |row| row.cgroup = Some(group.into()));
    }
    for at in [1.0, 2.0] {
        for group in ["/a", "/b"] {
            charged(&mut run, at, [50, 0], Some((0, 0)));
            if let Some(Record::CgroupMem(row)) = run.rows.0.last_mut() {
                row.cgroup = group.to_owned();
                row.peak_bytes = Some(Bytes(60 * MIB));
            }
        }
    }
    for (at, sockets) in [(0.0, 30), (0.5, 130)] {
        run.put(NodeMemRow {
            ts: wall(at),
            boot_ns: boot(at),
            sockets_bytes: Some(Bytes(sockets * MIB)),
            ..NodeMemRow::default()
        });
    }
    assert_eq!(held_at(&run, "+1.5s"), [100, 100, 200]);
    for record in &mut run.rows.0 {
        if let Record::CgroupMem(row) = record {
            row.version = 2;
        }
    }
    assert_eq!(held_at(&run, "+1.5s"), [100; 3], "v2 charges them");
}

/// One process of 50 MiB in a group that is read three times, with so much shared memory each time, and of
/// no kind, in MiB.
fn read_thrice(amounts: [[f64; 2]; 3]) -> Script {
    let mut run = Script::command(&["x"], 60.0);
    run.process(500, None, 0.0, "x");
    live_in_the_group(&mut run, [500]);
    run.mem(500, 0.1, [50.0, 0.0, 0.0]);
    for (at, [shared, unnamed]) in [1.0, 2.0, 3.0].into_iter().zip(amounts) {
        group(
            &mut run,
            at,
            GROUP,
            [50.0 + shared, 170.0, 50.0, shared],
            None,
        );
        if let Some(Record::CgroupMem(row)) = run.rows.0.last_mut() {
            row.current_bytes = row
                .current_bytes
                .map(|used| used + Bytes(unnamed as i64 * MIB));
        }
    }
    run
}

#[test]
fn what_a_reading_tells_is_certain_at_its_instant() {
    let run = read_thrice([[0.0, 0.0], [120.0, 0.0], [0.0, 0.0]]);
    let peak = run.clone().analyzed(None).peak.expect("a peak");
    let held = peak.held.expect("kinds are known");
    assert_eq!(
        (mibs(&held.shared), mibs(&held.all())),
        ([120; 3], [170; 3])
    );
    assert_eq!(held_at(&run, "+2s"), [170; 3]);
    assert_eq!(held_at(&run, "+2.5s"), [50, 170, 170], "until the next");
}

#[test]
fn what_one_reading_alone_has_of_no_kind_is_not_known_to_be_there() {
    let unnamed = |amounts: [f64; 3]| {
        let run = read_thrice(amounts.map(|unnamed| [0.0, unnamed]));
        let state = run.clone().analyzed(Some("+2s")).at.expect("a state");
        mibs(&state.held.expect("kinds are known").unnamed)
    };
    assert_eq!(unnamed([0.0, 300.0, 0.0]), [0, 0, 300]);
    assert_eq!(unnamed([0.0, 300.0, 310.0]), [300, 300, 310]);
}

#[test]
fn a_mark_that_rose_bounds_what_came_and_went_between_two_readings() {
    let mut run = nested();
    assert_eq!(held_peak(&run.clone().analyzed(None)), [110, 110, 140]);
    for record in &mut run.rows.0 {
        if let Record::CgroupMem(row) = record {
            row.peak_bytes = Some(Bytes(180 * MIB));
        }
    }
    let most = held_peak(&run.analyzed(None));
    assert_eq!(most, [110; 3], "a mark from before");
}
