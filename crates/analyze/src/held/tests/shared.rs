//! Shared memory, every object once.

use super::*;
use memtrace_model::MappingKind;
use proptest::prelude::*;

/// Processes that have 1 MiB of their own.
fn alone(tgids: std::ops::Range<u32>) -> Script {
    let mut run = Script::command(&["x"], 60.0);
    for tgid in tgids {
        run.process(tgid, (tgid > 500).then_some(500), 0.0, "x");
        run.mem(tgid, 0.5, [1.0, 0.0, 0.0]);
    }
    run
}

#[test]
fn shared_memory_that_many_map_is_at_least_the_largest_part_until_its_object_is_known() {
    let mut run = alone(500..503);
    for tgid in 500..503 {
        run.mem(tgid, 10.0, [1.0, 0.0, 256.0]);
    }
    assert_eq!(held_at(&run, "+12s"), [259, 259, 771]);
    run.shared_object(500..503, 11.0, "/dev/shm/a", 256.0);
    assert_eq!(held_at(&run, "+12s"), [259; 3]);
    run.shared_object(500..500, 30.0, "/dev/shm/a", 0.0);
    for tgid in 500..503 {
        run.mem(tgid, 29.5, [1.0, 0.0, 0.0]);
    }
    assert_eq!(held_at(&run, "+31s"), [3; 3]);
}

#[test]
fn from_one_look_to_the_next_an_object_is_within_both() {
    let mut run = alone(500..501);
    run.mem(500, 1.0, [1.0, 0.0, 100.0]);
    for (at, bytes) in [(5.0, 100.0), (30.0, 300.0)] {
        run.shared_object(500..501, at, "/dev/shm/a", bytes);
    }
    assert_eq!(held_at(&run, "+20s"), [101; 3], "it was looked at since");
    assert_eq!(held_at(&run, "+28s"), [101, 101, 301]);
    assert_eq!(held_at(&run, "+31s"), [301; 3]);
}

#[test]
fn a_file_of_a_tmpfs_counts_for_certain_where_a_recorded_process_had_it_open() {
    let mut run = alone(500..501);
    run.shared_object(500..500, 20.0, "/dev/shm/f", 512.0);
    assert_eq!(
        held_at(&run, "+25s"),
        [1, 1, 513],
        "whose it is is not known"
    );
    run.opened(500);
    assert_eq!(held_at(&run, "+25s"), [513; 3]);
    let peak = run.analyzed(None).peak.expect("a peak");
    assert_eq!(peak.at.boot_ns, boot(20.0));
}

#[test]
fn an_object_of_huge_pages_counts_once_and_in_no_rss() {
    let mut run = alone(500..502);
    run.shared_object(500..502, 5.0, "/dev/hugepages/a", 64.0);
    if let Some(Record::ShmObject(row)) = run.rows.0.last_mut() {
        row.kind = Some(MappingKind::Hugetlb);
    }
    for tgid in 500..502 {
        read(&mut run, tgid, 6.0, [1.0, 1.0]);
        if let Some(Record::Pss(row)) = run.rows.0.last_mut() {
            // One has 10 MiB of its own beside it.
            let own = if tgid == 500 { 10 } else { 0 };
            row.hugetlb_bytes = Some(Bytes((64 + own) * MIB));
        }
    }
    assert_eq!(held_at(&run, "+7s"), [76; 3]);
}

proptest! {
    /// What is moved along is what adding up would give.
    #[test]
    fn sums_over_objects_are_those_of_all_there_are(
        steps in proptest::collection::vec((0..3_usize, 0..4_usize, 0..100_i64, any::<bool>()), 0..60)
    ) {
        let mut objects = Objects::default();
        let mut amounts = [0; 3];
        let mut shmem = [0; 4];
        let mut mappers: [std::sync::Arc<[usize]>; 3] = Default::default();
        for (object, process, bytes, is_object) in steps {
            if is_object {
                amounts[object] = bytes;
                mappers[object] = (0..process).collect();
                objects.put(object, bytes, &mappers[object]);
            } else {
                shmem[process] = bytes;
                objects.set(process, bytes);
            }
            let known = |process| {
                let all = mappers.iter().zip(&amounts);
                all.filter(|(mappers, _)| mappers.contains(&process)).map(|(_, bytes)| bytes).sum::<i64>()
            };
            let excess: i64 = shmem.iter().enumerate().map(|(process, held)| (held - known(process)).max(0)).sum();
            let (seen, largest) = (amounts.iter().sum::<i64>(), *shmem.iter().max().unwrap());
            let held = objects.held();
            let [at_least, bytes, at_most] = [held.at_least, held.bytes, held.at_most].map(|bytes| bytes.0);
            prop_assert_eq!(at_least, seen.max(largest));
            prop_assert_eq!(at_most, (seen + excess).max(at_least));
            prop_assert_eq!(bytes, seen.clamp(at_least, at_most));
        }
    }
}
