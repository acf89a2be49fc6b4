//! Shared memory, every object once.

use super::*;
use crate::analyze::golden::shared_by_a_newcomer;

#[test]
fn shared_memory_that_many_map_is_at_least_the_largest_part_until_its_object_is_known() {
    let mut run = Script::command(&["x"], 60.0);
    for tgid in 500..503 {
        run.process(tgid, (tgid > 500).then_some(500), 0.0, "x");
        run.mem(tgid, 10.0, [1.0, 0.0, 256.0]);
    }
    assert_eq!(held_at(&run, "+12s"), [259, 259, 771]);
    run.shared_object(500..503, 11.0, "/dev/shm/a", 256.0);
    assert_eq!(held_at(&run, "+10.5s"), [259; 3]);
    assert_eq!(held_at(&run, "+12s"), [259; 3]);
    run.shared_object(500..500, 30.0, "/dev/shm/a", 0.0);
    for tgid in 500..503 {
        run.mem(tgid, 29.5, [1.0, 0.0, 0.0]);
    }
    assert_eq!(held_at(&run, "+31s"), [3; 3]);
}

#[test]
fn what_a_process_has_until_it_is_seen_what_it_maps_is_of_that() {
    let mut run = shared_by_a_newcomer();
    run.mem(501, 10.0, [1.0, 0.0, 256.0]);
    assert_eq!(held_at(&run, "+11s"), [258; 3]);
    assert_eq!(held_peak(&run.clone().analyzed(None)), [258; 3]);
    run.mem(501, 10.5, [1.0, 0.0, 300.0]);
    assert_eq!(held_at(&run, "+11s"), [302; 3], "an object beside it");
}

#[test]
fn what_a_process_gave_back_before_it_was_seen_what_it_maps_can_be_of_another_object() {
    let mut run = shared_by_a_newcomer();
    let amounts = [
        (10.0, 256.0),
        (10.5, 56.0),
        (11.0, 256.0),
        (15.0, 300.0),
        (16.0, 280.0),
    ];
    for (at, shmem) in amounts {
        run.mem(501, at, [1.0, 0.0, shmem]);
    }
    assert_eq!(held_at(&run, "+10.2s"), [258, 258, 458]);
    assert_eq!(held_at(&run, "+10.7s"), [258; 3]);
    assert_eq!(held_at(&run, "+11.5s"), [258; 3]);
    assert_eq!(held_at(&run, "+15.5s"), [302; 3], "it was seen by then");
}

#[test]
fn what_was_given_back_right_before_a_look_can_stand_in_a_row_after_it() {
    let mut run = shared_by_a_newcomer();
    run.mem(501, 10.0, [1.0, 0.0, 256.0]);
    run.mem(501, 12.05, [1.0, 0.0, 56.0]);
    assert_eq!(held_at(&run, "+11s"), [258, 258, 458]);
}

#[test]
fn what_is_given_back_after_it_was_read_what_a_process_maps_says_nothing_of_the_time_before() {
    let mut run = shared_by_a_newcomer();
    run.mem(501, 10.0, [1.0, 0.0, 256.0]);
    run.mem(501, 11.5, [1.0, 0.0, 0.0]);
    assert_eq!(held_at(&run, "+11s"), [258, 258, 514]);
    read(&mut run, 501, 10.2, [1.0, 1.0]);
    assert_eq!(held_at(&run, "+10.1s"), [258; 3]);
    assert_eq!(held_at(&run, "+11s"), [258; 3]);
}

#[test]
fn what_a_process_had_before_it_was_read_not_to_map_an_object_is_of_another() {
    let mut run = shared_by_a_newcomer();
    run.mem(501, 6.0, [1.0, 0.0, 256.0]);
    assert_eq!(held_at(&run, "+8s"), [258; 3], "it was read once");
    run.mem(501, 6.9, [1.0, 0.0, 56.0]);
    run.mem(501, 7.5, [1.0, 0.0, 256.0]);
    read(&mut run, 501, 7.0, [1.0, 1.0]);
    read(&mut run, 501, 11.0, [1.0, 1.0]);
    assert_eq!(held_at(&run, "+6.5s"), [258, 258, 514]);
    assert_eq!(
        held_at(&run, "+8s"),
        [258, 258, 314],
        "56 were there before"
    );
}

#[test]
fn an_object_that_is_seen_late_is_no_more_than_what_came_to_be_in_those_that_map_it() {
    let mut run = alone(500..503);
    for (tgid, shmem) in [(500, 100.0), (501, 200.0), (502, 300.0)] {
        shmem_course(&mut run, tgid, &[(4.0, shmem)]);
    }
    for (at, tgid) in [(20.0, 500), (21.0, 501), (22.0, 502)] {
        read(&mut run, tgid, at, [1.0, 1.0]);
    }
    run.shared_object(500..503, 23.0, "/dev/shm/a", 300.0);
    assert_eq!(held_at(&run, "+2s"), [3; 3]);
    assert_eq!(held_at(&run, "+5s"), [303; 3]);
    let mut replaced = run.clone();
    replaced.mem(500, 10.0, [1.0, 0.0, 0.0]);
    assert_eq!(
        held_at(&replaced, "+9s"),
        [303, 303, 403],
        "it can be of another"
    );
    assert_eq!(held_at(&replaced, "+11s"), [303; 3]);
    // Half of it came after a reading that did not see it.
    run.mem(502, 15.0, [1.0, 0.0, 150.0]);
    run.mem(502, 17.0, [1.0, 0.0, 300.0]);
    read(&mut run, 502, 16.0, [1.0, 1.0]);
    assert_eq!(held_at(&run, "+16.5s"), [203, 203, 453]);
}

#[test]
fn newcomers_to_several_objects_have_as_much_as_all_of_these_take() {
    let mut run = shared_by_a_newcomer();
    run.process(502, Some(500), 0.0, "x");
    run.mem(502, 1.0, [1.0, 0.0, 0.0]);
    run.mem(500, 4.6, [1.0, 0.0, 384.0]);
    for (at, mappers) in [(5.0, 500..501), (12.0, 500..503)] {
        run.shared_object(mappers, at, "/dev/shm/b", 128.0);
    }
    run.mem(501, 10.0, [1.0, 0.0, 384.0]);
    run.mem(502, 10.0, [1.0, 0.0, 100.0]);
    assert_eq!(held_at(&run, "+11s"), [387; 3]);
    // One of them maps one of them no more, and again.
    run.shared_object(500..502, 14.0, "/dev/shm/b", 128.0);
    run.shared_object(500..503, 15.0, "/dev/shm/b", 128.0);
    run.mem(502, 13.9, [1.0, 0.0, 0.0]);
    run.mem(502, 14.1, [1.0, 0.0, 100.0]);
    assert_eq!(held_at(&run, "+14.5s"), [387; 3]);
    run.mem(502, 14.2, [1.0, 0.0, 200.0]);
    assert_eq!(held_at(&run, "+14.5s"), [387, 387, 459]);
}

#[test]
fn a_file_of_a_tmpfs_counts_for_certain_where_a_recorded_process_had_it_open() {
    let mut run = Script::command(&["x"], 60.0);
    run.process(500, None, 0.0, "x");
    run.mem(500, 1.0, [1.0, 0.0, 0.0]);
    run.shared_object(500..500, 20.0, "/dev/shm/f", 512.0);
    assert_eq!(
        held_at(&run, "+25s"),
        [1, 1, 513],
        "whose it is is not known"
    );
    run.opened(500);
    assert_eq!(held_at(&run, "+25s"), [513; 3]);
    let peak = run.analyzed(None).peak.expect("a peak");
    assert_eq!(peak.at.boot_ns, crate::analyze::golden::boot(20.0));
}

/// Processes that have 1 MiB of their own, and no shared memory until 1 s.
fn alone(tgids: std::ops::Range<u32>) -> Script {
    let mut run = Script::command(&["x"], 60.0);
    for tgid in tgids {
        run.process(tgid, (tgid > 500).then_some(500), 0.0, "x");
        run.mem(tgid, 0.5, [1.0, 0.0, 0.0]);
    }
    run
}

fn shmem_course(run: &mut Script, tgid: u32, amounts: &[(f64, f64)]) {
    for (at, shmem) in amounts {
        run.mem(tgid, *at, [1.0, 0.0, *shmem]);
    }
}

#[test]
fn a_reading_of_long_before_does_not_tell_what_is_mapped() {
    let mut run = alone(500..502);
    for tgid in 500..502 {
        shmem_course(&mut run, tgid, &[(20.0, 100.0), (20.3, 0.0), (39.0, 100.0)]);
        read(&mut run, tgid, 5.0, [1.0, 1.0]);
    }
    run.shared_object(500..502, 40.0, "/memfd:a", 100.0);
    assert_eq!(held_at(&run, "+20.1s"), [102, 102, 302], "two others");
    assert_eq!(held_at(&run, "+39.5s"), [102; 3]);
}

#[test]
fn objects_that_were_not_seen_yet_have_no_more_in_all_than_those_who_come_to_map_them() {
    let mut run = alone(500..501);
    for (second, name) in (1..).zip(["a", "b", "c", "d", "e"]) {
        let second = f64::from(second);
        shmem_course(&mut run, 500, &[(second, second * 100.0)]);
        run.shared_object(500..501, 8.1, &format!("/memfd:{name}"), 100.0);
    }
    read(&mut run, 500, 8.0, [1.0, 1.0]);
    assert_eq!(held_at(&run, "+2.5s"), [201; 3]);
    assert_eq!(held_at(&run, "+9s"), [501; 3]);
}

#[test]
fn what_a_process_had_when_it_was_read_is_of_no_object_that_it_came_to_map_later() {
    let mut run = alone(500..501);
    shmem_course(&mut run, 500, &[(1.0, 100.0), (20.0, 200.0)]);
    read(&mut run, 500, 2.0, [1.0, 1.0]);
    run.shared_object(500..501, 2.1, "/memfd:a", 100.0);
    read(&mut run, 500, 21.0, [1.0, 1.0]);
    run.shared_object(500..501, 21.1, "/memfd:b", 100.0);
    for (at, held) in [("+10s", 101), ("+20.5s", 201), ("+22s", 201)] {
        assert_eq!(held_at(&run, at), [held; 3], "{at}");
    }
}

#[test]
fn what_is_given_back_after_a_reading_says_nothing_of_the_time_before_it() {
    let mut run = alone(500..502);
    shmem_course(&mut run, 500, &[(1.0, 200.0)]);
    let amounts = [(20.0, 100.0), (26.0, 0.0), (28.0, 100.0), (33.0, 0.0)];
    shmem_course(&mut run, 501, &amounts);
    for at in [10.0, 24.0, 30.0] {
        read(&mut run, 501, at, [1.0, 1.0]);
    }
    for (at, name, mappers) in [
        (5.0, "a", 500..501),
        (5.0, "b", 500..501),
        (24.1, "a", 500..502),
        (27.0, "a", 500..501),
        (30.1, "b", 500..502),
    ] {
        run.shared_object(mappers, at, &format!("/memfd:{name}"), 100.0);
    }
    for at in ["+22s", "+25s", "+29s", "+32s"] {
        assert_eq!(held_at(&run, at), [202; 3], "{at}");
    }
}

#[test]
fn an_object_that_nobody_mapped_at_first_was_not_there_since_a_later_mapper_was_read() {
    let mut run = alone(500..502);
    run.shared_object(500..500, 40.0, "/memfd:a", 512.0);
    run.opened(500);
    shmem_course(&mut run, 501, &[(50.0, 512.0)]);
    read(&mut run, 501, 3.0, [1.0, 1.0]);
    read(&mut run, 501, 51.0, [1.0, 1.0]);
    run.shared_object(500..502, 52.0, "/memfd:a", 512.0);
    assert_eq!(held_at(&run, "+10s"), [2; 3]);
    assert_eq!(held_at(&run, "+39s"), [2, 2, 514]);
    assert_eq!(held_at(&run, "+50.5s"), [514; 3]);
}

#[test]
fn who_is_seen_later_to_map_an_object_has_a_part_of_it_before_its_first_look() {
    let mut run = alone(500..502);
    for (tgid, at) in [(500, 5.0), (501, 6.0)] {
        shmem_course(&mut run, tgid, &[(2.0, 100.0)]);
        read(&mut run, tgid, at, [1.0, 1.0]);
        run.shared_object(500..tgid + 1, at + 0.1, "/memfd:a", 100.0);
    }
    for at in ["+3s", "+5.5s", "+7s"] {
        assert_eq!(held_at(&run, at), [102; 3], "{at}");
    }
}

#[test]
fn what_is_of_more_objects_than_are_followed_counts_in_each_process() {
    let mut run = alone(500..502);
    for tgid in 500..502 {
        shmem_course(&mut run, tgid, &[(2.0, 70.0)]);
        read(&mut run, tgid, 5.0, [1.0, 1.0]);
    }
    for name in b'!'..b'!' + 70 {
        run.shared_object(500..502, 5.1, &format!("/memfd:{}", char::from(name)), 1.0);
    }
    assert_eq!(held_at(&run, "+3s"), [72, 72, 142]);
    assert_eq!(held_at(&run, "+6s"), [72; 3]);
}

#[test]
fn who_had_an_object_before_those_who_were_first_seen_to_map_it_had_it_beside_others() {
    let mut run = alone(500..502);
    run.process(502, Some(500), 20.0, "x");
    shmem_course(&mut run, 500, &[(1.0, 1024.0)]);
    run.shared_object(500..501, 1.5, "/memfd:s", 1024.0);
    for (tgid, at) in [(501, 2.0), (502, 21.0), (501, 30.0)] {
        read(&mut run, tgid, at, [1.0, 1.0]);
    }
    shmem_course(&mut run, 501, &[(5.0, 1024.0)]);
    shmem_course(&mut run, 502, &[(20.5, 1024.0)]);
    // One maps the other object, and nothing of it, too.
    run.shared_object(502..503, 21.5, "/memfd:o", 1024.0);
    run.shared_object(501..503, 30.5, "/memfd:o", 1024.0);
    run.shared_object(500..502, 30.5, "/memfd:s", 1024.0);
    for at in ["+10s", "+20.7s"] {
        let [at_least, _, at_most] = held_at(&run, at);
        assert!(
            at_least < 2048 && at_most >= 2048,
            "{at}: {at_least} {at_most}"
        );
    }
    assert_eq!(held_at(&run, "+31s"), [2051; 3]);
}
