//! What the registry knows after a course of births, execs and ends.

use super::*;
use memtrace_model::PeakSource;

fn enter(table: &mut ProcessTable, tgid: u32) -> Upid {
    let birth = Birth {
        tgid: Tgid(tgid),
        start: BootNs(0),
        seen_by: FirstSeenBy::Poll,
        parent: None,
        comm: String::new(),
    };
    table.enter(birth, BootNs(0))
}

fn end(table: &mut ProcessTable, upid: Upid) {
    table.end(upid, BootNs(1), Some(9));
}

#[test]
fn an_id_inside_of_a_container_is_that_of_a_process_only_where_one_has_it() {
    let mut table = ProcessTable::default();
    let mut inside = |tgid, ns_tgid| {
        let upid = enter(&mut table, tgid);
        table.process_mut(upid).unwrap().row_mut().ns_tgid = Some(Tgid(ns_tgid));
        upid
    };
    let (first, _, _) = (inside(4_001, 31), inside(4_002, 32), inside(5_002, 32));
    let who = |ns_tgid| table.who_was_inside(Tgid(ns_tgid), BootNs(1));
    assert_eq!(who(31), Some(first));
    assert_eq!(who(32), None, "two containers have one");
    assert_eq!(who(4_001), None);
}

#[test]
fn who_crashed_is_kept_until_the_last_of_its_children_has_ended() {
    let mut table = ProcessTable::default();
    let parent = enter(&mut table, 1);
    let (first, second) = (enter(&mut table, 2), enter(&mut table, 3));
    table.note_parent(first, parent);
    table.note_parent(first, parent);
    table.note_parent(second, parent);
    let is_left =
        |table: &ProcessTable, upid| table.is_left_by_crash(table.process(upid).unwrap().row());
    assert!(!is_left(&table, first));
    end(&mut table, parent);
    assert!(is_left(&table, first) && is_left(&table, second));
    end(&mut table, first);
    assert!(is_left(&table, second));
    end(&mut table, second);
    assert!(table.crashed.is_empty(), "{:?}", table.crashed);
    let childless = enter(&mut table, 4);
    end(&mut table, childless);
    assert!(table.crashed.is_empty(), "{:?}", table.crashed);
}

fn written(table: &mut ProcessTable) -> Vec<(Upid, Option<bool>)> {
    let mut out = Vec::new();
    table.write_changes(false, &mut out);
    let oom_killed = |record| match record {
        Record::Process(row) => Some((row.upid, row.oom_killed)),
        _ => None,
    };
    out.into_iter().filter_map(oom_killed).collect()
}

#[test]
fn pages_are_unshared_from_exec_to_fork_and_again_when_the_child_is_gone() {
    let mut table = ProcessTable::default();
    let parent = enter(&mut table, 1);
    let is_alone = |table: &ProcessTable, upid| {
        let process = table.process(upid).unwrap();
        table.is_only_one_of_its_image(process)
    };
    assert!(!is_alone(&table, parent), "its own parent is unknown");
    table.note_exec(parent, 1);
    assert!(is_alone(&table, parent));
    let fork = |tgid, seen_by| Birth {
        tgid: Tgid(tgid),
        start: BootNs(0),
        seen_by,
        parent: Some(parent),
        comm: String::new(),
    };
    let child = table.enter(fork(2, FirstSeenBy::Fork), BootNs(0));
    assert!(!is_alone(&table, parent) && !is_alone(&table, child));
    table.note_exec(child, 1);
    assert!(is_alone(&table, parent) && is_alone(&table, child));
    let worker = table.enter(fork(3, FirstSeenBy::Fork), BootNs(0));
    end(&mut table, parent);
    assert!(is_alone(&table, worker), "what it inherited is its own now");
}

#[test]
fn a_child_whose_fork_was_not_seen_is_never_taken_to_be_alone() {
    let mut table = ProcessTable::default();
    let parent = enter(&mut table, 1);
    table.note_exec(parent, 1);
    let birth = Birth {
        tgid: Tgid(2),
        start: BootNs(0),
        seen_by: FirstSeenBy::Snapshot,
        parent: Some(parent),
        comm: String::new(),
    };
    let child = table.enter(birth, BootNs(0));
    end(&mut table, parent);
    assert!(!table.is_only_one_of_its_image(table.process(child).unwrap()));
}

#[test]
fn not_killed_is_said_only_while_kills_are_observed() {
    let mut table = ProcessTable::default();
    let before = enter(&mut table, 1);
    assert_eq!(written(&mut table), [(before, None)]);
    table.observe_oom_kills();
    let after = enter(&mut table, 2);
    assert_eq!(
        written(&mut table),
        [(before, Some(false)), (after, Some(false))]
    );
}

#[test]
fn whose_a_process_id_was_depends_on_the_time() {
    let mut table = ProcessTable::default();
    table.observe_oom_kills();
    let at = |table: &ProcessTable, ns| table.who_was(Tgid(1), BootNs(ns));
    let first = enter(&mut table, 1);
    assert_eq!(at(&table, 5), Some(first));
    end(&mut table, first);
    assert_eq!(at(&table, 1), Some(first));
    assert_eq!(at(&table, 5), None);
    written(&mut table);
    assert_eq!(at(&table, 1), Some(first));
    let birth = Birth {
        tgid: Tgid(1),
        start: BootNs(4),
        seen_by: FirstSeenBy::Poll,
        parent: None,
        comm: String::new(),
    };
    let second = table.enter(birth, BootNs(4));
    assert_eq!(at(&table, 1), Some(first));
    assert_eq!(at(&table, 5), Some(second));
    assert_eq!(table.who_was(Tgid(2), BootNs(5)), None);
}

#[test]
fn a_victim_is_found_before_its_end_after_it_and_after_that_was_written() {
    let mut table = ProcessTable::default();
    table.observe_oom_kills();
    let [living, ended, gone] = [1, 2, 3].map(|tgid| enter(&mut table, tgid));
    end(&mut table, gone);
    written(&mut table);
    end(&mut table, ended);
    for (tgid, upid) in [(1, living), (2, ended), (3, gone)] {
        assert_eq!(table.note_oom_kill(Tgid(tgid), None), Some(upid));
    }
    let mut rows = written(&mut table);
    rows.sort();
    assert_eq!(rows, [living, ended, gone].map(|upid| (upid, Some(true))));
    assert_eq!(table.note_oom_kill(Tgid(9), None), None);
}

#[test]
fn a_victim_is_distinguished_from_another_process_of_its_id() {
    let mut table = ProcessTable::default();
    table.observe_oom_kills();
    let upid = enter(&mut table, 1);
    assert_eq!(table.note_oom_kill(Tgid(1), Some(BootNs(7))), None);
    end(&mut table, upid);
    assert_eq!(table.note_oom_kill(Tgid(1), Some(BootNs(7))), None);
    assert_eq!(table.note_oom_kill(Tgid(1), Some(BootNs(0))), Some(upid));
}

#[test]
fn who_was_chosen_but_ended_otherwise_was_not_oom_killed() {
    let mut table = ProcessTable::default();
    table.observe_oom_kills();
    for (tgid, wait_status) in [(1, 3 << 8), (2, 15)] {
        let upid = enter(&mut table, tgid);
        assert_eq!(table.note_oom_kill(Tgid(tgid), None), Some(upid));
        table.end(upid, BootNs(1), Some(wait_status));
        assert_eq!(table.note_oom_kill(Tgid(tgid), None), None);
        assert_eq!(written(&mut table), [(upid, Some(false))]);
    }
}

#[test]
fn a_peak_that_rose_is_written_when_peaks_are_due() {
    let mut table = ProcessTable::default();
    let upid = enter(&mut table, 1);
    written(&mut table);
    let peak = Peak {
        bytes: Bytes(1),
        source: PeakSource::Poll,
        error: None,
        at: None,
    };
    table.raise_peak(upid, peak);
    assert_eq!(written(&mut table), []);
    for expected in [1, 0] {
        let mut out = Vec::new();
        table.write_changes(true, &mut out);
        assert_eq!(out.len(), expected);
    }
}

#[test]
fn what_waiting_tells_is_kept_also_when_a_poll_saw_the_end_first() {
    let mut table = ProcessTable::default();
    for is_written in [false, true] {
        let upid = enter(&mut table, 1);
        table.end(upid, BootNs(1), None);
        let mut out = Vec::new();
        if is_written {
            table.write_changes(false, &mut out);
        }
        let was_alive = table.note_wait(Tgid(1), BootNs(2), 7 << 8, Bytes(4096));
        assert_eq!(was_alive, None);
        out.clear();
        table.write_changes(false, &mut out);
        let [Record::Process(row)] = &out[..] else {
            panic!("{out:?}");
        };
        assert_eq!(row.exit_code, Some(7));
        assert_eq!(row.kernel_maxrss_bytes, Some(Bytes(4096)));
        assert_eq!(row.exit_boot_ns, Some(BootNs(1)));
    }
}

#[test]
fn command_lines_of_all_that_live_take_a_stated_number_of_bytes_and_those_that_are_cut_are_counted()
{
    let mut table = ProcessTable::default();
    let long = "ü".repeat(10_000);
    let fits = Part::Names.limit() / long.len();
    let mut upids = Vec::new();
    for tgid in 1..=fits + 3 {
        let upid = enter(&mut table, u32::try_from(tgid).unwrap());
        table.process_mut(upid).unwrap().row_mut().cmdline = Some(long.clone().into());
        upids.push(upid);
    }
    table.write_changes(false, &mut Vec::new());
    assert_eq!(std::mem::take(&mut table.news.cut_names_count), 3);
    let kept =
        |table: &ProcessTable, upid| table.row(upid).unwrap().cmdline.as_ref().unwrap().len();
    assert_eq!(kept(&table, upids[0]), long.len());
    assert_eq!(kept(&table, upids[fits]), NAME_BYTES_KEPT);
    // Whoever ends makes room.
    for upid in upids {
        end(&mut table, upid);
    }
    assert_eq!(table.ceiling().taken(Part::Names), 0);
    let upid = enter(&mut table, 1);
    table.process_mut(upid).unwrap().row_mut().cmdline = Some(long.clone().into());
    table.write_changes(false, &mut Vec::new());
    assert_eq!(
        (
            std::mem::take(&mut table.news.cut_names_count),
            kept(&table, upid)
        ),
        (0, long.len())
    );
}
