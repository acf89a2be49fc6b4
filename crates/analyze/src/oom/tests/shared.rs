//! Shared memory and files of a tmpfs before an OOM kill.

use super::*;

/// A file of a tmpfs that takes so many bytes.
fn file(inode: i64, at: f64, bytes: i64) -> ShmObjectRow {
    ShmObjectRow {
        ts: wall(at),
        boot_ns: boot(at),
        device: "0:25".to_owned(),
        inode,
        kind: Some(MappingKind::Tmpfs),
        name: Some(format!("/dev/shm/file{inode}")),
        size_bytes: Some(Bytes(bytes)),
        allocated_bytes: Some(Bytes(bytes)),
        ..ShmObjectRow::default()
    }
}

#[test]
fn a_file_of_a_tmpfs_that_nobody_maps_is_named_with_who_has_it_open() {
    let mut run = run(120.0);
    run.cgroup(80.0, POD, [2.0, 1.5, 0.125], Some(LIMIT));
    run.oom(3, 2, 100.0, POD, LIMIT);
    edit_kill(&mut run, |row| {
        row.memcg_shmem_bytes = Some(Bytes(1_500 << 20));
        row.memcg_anon_bytes = Some(Bytes(2_500 << 20));
        row.memcg_file_bytes = Some(Bytes(1_510 << 20));
    });
    let object = |inode: i64, at: f64, mib: i64, opener: Option<u32>| ShmObjectRow {
        first_opener_upid: opener.map(|tgid| upid(Tgid(tgid))),
        ..file(inode, at, mib << 20)
    };
    run.put(object(1, 20.0, 900, None));
    // Of another group, and larger than all that this one has.
    run.put(object(3, 95.0, 3_900, None));
    run.put(object(2, 95.0, 700, None));
    // Read once more, after the kill, and larger then than before.
    run.put(object(2, 100.4, 1_400, None));
    // Who has it open is found last. The other one was opened by a process that is new.
    run.put(object(2, 100.6, 1_400, Some(2)));
    run.process(9, Some(1), 101.0, "worker");
    run.edit(9, |process| process.cgroup = Some(POD.into()));
    run.put(object(4, 95.0, 1_450, None));
    run.put(object(4, 102.0, 1_450, Some(9)));
    let analysis = run.analyzed(None);
    let found = only(&analysis).post_mortem.as_ref().expect("a post-mortem");
    assert_eq!(
        found.grown_kind.map(|grown| grown.kind),
        Some(HeldKind::Shared)
    );
    let object = found.grown_object.as_ref().expect("an object");
    assert_eq!(object.name.as_deref(), Some("/dev/shm/file2"));
    assert_eq!(object.grown_bytes.0 >> 20, 1_400);
    let who: Vec<_> = object.held_by.iter().map(|one| one.who.pid).collect();
    assert_eq!(who, [Some(Tgid(2))]);
    assert!(!object.is_mapped);
}

#[test]
fn a_file_read_after_the_kill_has_no_more_than_its_group_had() {
    let mut run = run(120.0);
    run.cgroup(80.0, POD, [2.0, 2.0, 0.0], Some(LIMIT));
    run.oom(3, 2, 100.0, POD, LIMIT);
    edit_kill(&mut run, |row| {
        row.memcg_shmem_bytes = Some(Bytes(1_500 << 20));
        row.memcg_anon_bytes = Some(Bytes(2_500 << 20));
        row.memcg_file_bytes = Some(Bytes(1_500 << 20));
    });
    run.put(ShmObjectRow {
        first_opener_upid: Some(upid(Tgid(2))),
        ..file(2, 100.4, 1_600 << 20)
    });
    let analysis = run.analyzed(None);
    let found = only(&analysis).post_mortem.as_ref().expect("a post-mortem");
    let object = found.grown_object.as_ref().expect("an object");
    let grown = [object.grown_bytes, object.objects_grown_bytes];
    assert_eq!(grown.map(|grown| grown.0 >> 20), [1_500; 2]);
    assert!(object.bytes.0 >> 20 <= 1_500, "{object:?}");
}

/// A process that grows by 1,700 MiB at once, and shared memory that has so many MiB a second before the
/// kill, and then 1,250.
fn beside_who_had_stopped(before: f64) -> Option<(HeldKind, i64)> {
    let mut run = run(8.0);
    run.cgroup(0.3, POD, [1.0, 0.5, 0.0], Some(LIMIT));
    run.mem(1, 1.0, [3_700.0, 100.0, 0.0]);
    let shmem = before / 1_024.0;
    run.cgroup(5.9, POD, [2.5 + shmem, 2.25, shmem], Some(LIMIT));
    run.oom(3, 2, 7.0, POD, LIMIT);
    edit_kill(&mut run, |row| {
        row.memcg_shmem_bytes = Some(Bytes(1_250 << 20));
        row.memcg_file_bytes = Some(Bytes(1_250 << 20));
    });
    let analysis = run.analyzed(None);
    let found = only(&analysis).post_mortem.as_ref().expect("a post-mortem");
    assert_eq!(found.growers[0].grown(1).0 >> 20, 1_700);
    found
        .grown_kind
        .map(|grown| (grown.kind, grown.grown_bytes.0 >> 20))
}

#[test]
fn shared_memory_is_named_beside_who_grew_by_more_and_had_stopped_where_it_went_on() {
    assert_eq!(
        beside_who_had_stopped(1_050.0),
        Some((HeldKind::Shared, 1_250))
    );
    assert_eq!(beside_who_had_stopped(1_250.0), None, "it had stopped, too");
}

/// A recording that was attached 30 s before a kill by a file of 2 GiB, with a store that was large
/// already. Which object grew, and by how many MiB.
fn attached(store_listed_before: Option<f64>) -> (Option<String>, i64) {
    let mut run = run(40.0);
    run.cgroup(0.2, POD, [22.0, 1.5, 20.0], Some(LIMIT));
    run.cgroup(13.0, POD, [23.0, 1.5, 21.0], Some(LIMIT));
    run.oom(3, 2, 30.0, POD, Bytes(24 << 30));
    edit_kill(&mut run, |row| {
        row.memcg_shmem_bytes = Some(Bytes(22 << 30));
        row.memcg_file_bytes = Some(Bytes(22 << 30));
    });
    let object = |inode: i64, at: f64, gib: i64, listed: Option<f64>| ShmObjectRow {
        first_opener_upid: Some(upid(Tgid(2))),
        unchanged_until_boot_ns: listed.map(boot),
        ..file(inode, at, gib << 30)
    };
    run.put(object(1, 1.0, 20, store_listed_before));
    run.put(object(2, 3.0, 0, Some(2.0)));
    run.put(object(2, 12.0, 1, Some(3.0)));
    run.put(object(2, 29.0, 2, Some(12.0)));
    let analysis = run.analyzed(None);
    let found = only(&analysis).post_mortem.as_ref().expect("a post-mortem");
    let object = found.grown_object.as_ref().expect("an object");
    (object.name.clone(), object.grown_bytes.0 >> 20)
}

#[test]
fn an_object_that_was_there_before_anybody_looked_did_not_grow_by_all_it_has() {
    let grown = || (Some("/dev/shm/file2".to_owned()), 2_048);
    assert_eq!(attached(None), grown());
    // Nor by more than all shared memory of the group did.
    assert_eq!(attached(Some(0.1)), grown());
}

#[test]
fn a_file_that_is_left_after_the_kill_is_as_large_as_it_was_found_then() {
    let mut run = run(102.0);
    run.cgroup(80.0, POD, [2.0, 1.5, 0.125], Some(LIMIT));
    run.oom(3, 2, 100.0, POD, LIMIT);
    edit_kill(&mut run, |row| {
        row.memcg_shmem_bytes = Some(Bytes(1_500 << 20));
        row.memcg_file_bytes = Some(Bytes(1_510 << 20));
    });
    run.put(OrphanedShmRow {
        ts: wall(101.0),
        boot_ns: boot(101.0),
        device: Some("0:25".to_owned()),
        inode: 9,
        kind: Some(MappingKind::Tmpfs),
        name: "/dev/shm/dump".to_owned(),
        uid: Some(1000),
        size_bytes: Some(Bytes(1_400 << 20)),
        allocated_bytes: Some(Bytes(1_400 << 20)),
        is_certain: true,
        ..OrphanedShmRow::default()
    });
    let analysis = run.analyzed(None);
    let found = only(&analysis).post_mortem.as_ref().expect("a post-mortem");
    let object = found.grown_object.as_ref().expect("an object");
    assert_eq!(object.name.as_deref(), Some("/dev/shm/dump"));
    assert_eq!(
        (object.bytes.0 >> 20, object.age_ns),
        (1_400, DurationNs(0))
    );
    assert!(object.held_by.is_empty());
}

#[test]
fn shared_memory_counts_once_in_those_who_grew_together() {
    let mut run = run(120.0);
    for loader in 10..14 {
        run.process(loader, Some(1), 90.0, "loader");
        run.edit(loader, |process| process.cgroup = Some(POD.into()));
        run.mem(loader, 95.0, [100.0, 0.0, 512.0]);
    }
    run.oom(3, 1, 100.0, POD, LIMIT);
    let analysis = run.analyzed(None);
    let found = only(&analysis).post_mortem.as_ref().expect("a post-mortem");
    let (grower, grown) = found.culprit().expect("a culprit");
    assert_eq!(
        (grower.who.members.len(), grown.0 >> 20),
        (4, 4 * 100 + 512)
    );
}

#[test]
fn who_has_most_of_what_is_shared_has_a_line_of_its_own() {
    let mut run = run(120.0);
    for holder in 10..13 {
        run.process(holder, Some(1), 1.0, "worker");
        run.edit(holder, |process| process.cgroup = Some(POD.into()));
        run.mem(holder, 2.0, [20.0, 0.0, 0.0]);
    }
    run.mem(12, 95.0, [20.0, 0.0, 1_024.0]);
    run.put(ShmObjectRow {
        mapper_count: 1,
        mappers: upid(Tgid(12)).0.to_string(),
        first_mapper_upid: Some(upid(Tgid(12))),
        ..file(1, 96.0, 1 << 30)
    });
    run.oom(3, 1, 100.0, POD, LIMIT);
    assert_eq!(culprit(&run.analyzed(None)), Some((12, 1_024, 10.0)));
}

/// Eight workers that map one object of 2 GiB in a group of 4 GiB, and a kill.
fn sharers(is_object_known: bool) -> Report {
    let mut run = Script::command(&["serve"], 120.0);
    run.process(1, None, 0.0, "serve");
    run.mem(1, 0.5, [200.0, 10.0, 0.0]);
    for worker in 10..18 {
        run.process(worker, Some(1), 50.0, "worker");
        run.mem(worker, 51.0, [50.0, 10.0, 0.0]);
        run.mem(worker, 95.0, [250.0, 10.0, 2_048.0]);
    }
    for tgid in [1].into_iter().chain(10..18) {
        run.edit(tgid, |process| process.cgroup = Some(POD.into()));
    }
    if is_object_known {
        let mappers = (10..18).map(|tgid| upid(Tgid(tgid)).0.to_string());
        let mappers: Vec<String> = mappers.collect();
        run.put(ShmObjectRow {
            mapper_count: 8,
            mappers: mappers.join(" "),
            first_mapper_upid: Some(upid(Tgid(10))),
            ..file(1, 96.0, 2 << 30)
        });
    }
    run.oom(10, 11, 100.0, POD, LIMIT);
    edit_kill(&mut run, |row| {
        row.memcg_anon_bytes = Some(Bytes(2_200 << 20));
        row.memcg_shmem_bytes = Some(Bytes(2 << 30));
        row.memcg_file_bytes = Some(Bytes(2 << 30));
    });
    run.reported(None, None)
}

#[test]
fn what_many_map_counts_once_in_what_they_held_and_in_what_they_grew_by() {
    for is_object_known in [true, false] {
        let report = sharers(is_object_known);
        let found = only(&report.analysis).post_mortem.as_ref();
        let found = found.expect("a post-mortem");
        let held: i64 = found.holders.iter().map(|one| one.bytes.0 >> 20).sum();
        assert!((4_230..=4_248).contains(&held), "{held} MiB");
        let text = written("text", &report, &Style::default());
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let grown = "10 worker grew by 2.2 GiB in the 10s before, and 7 more like it by 1.4 GiB";
        assert!(text.contains(grown), "{text}");
        let shares = "· 6 more 2.7 GiB.";
        assert!(text.contains(shares), "{text}");
    }
}

#[test]
fn files_of_processes_that_died_are_reported_together_and_none_of_them_is_blamed() {
    let mut run = run(120.0);
    run.cgroup(80.0, POD, [2.0, 1.5, 0.125], Some(LIMIT));
    for number in 0..6 {
        let tgid = 10 + number;
        let at = 91.0 + f64::from(number);
        run.process(tgid, Some(1), at, "writer");
        run.edit(tgid, |process| process.cgroup = Some(POD.into()));
        run.exit(tgid, at + 0.8, 0);
        run.put(ShmObjectRow {
            first_opener_upid: Some(upid(Tgid(tgid))),
            ..file(i64::from(number), at + 0.5, 230 << 20)
        });
    }
    run.oom(3, 2, 100.0, POD, LIMIT);
    edit_kill(&mut run, |row| {
        row.memcg_shmem_bytes = Some(Bytes(1_508 << 20));
        row.memcg_anon_bytes = Some(Bytes(2_500 << 20));
        row.memcg_file_bytes = Some(Bytes(1_510 << 20));
    });
    let report = run.reported(None, None);
    let found = only(&report.analysis).post_mortem.as_ref();
    let object = found.and_then(|found| found.grown_object.as_ref());
    let object = object.expect("an object");
    assert!(object.held_by.is_empty(), "{object:?}");
    assert_eq!(
        (object.object_count, object.objects_grown_bytes.0 >> 20),
        (6, 1_380)
    );
    let text = written("text", &report, &Style::default());
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains("in 6 objects (+1.3 GiB), the largest /dev/shm/file"),
        "{text}"
    );
    assert!(text.contains("which had ended"), "{text}");
    assert!(!text.contains("most of it in /dev/shm"), "{text}");
}
