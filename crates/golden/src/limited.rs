//! Commands that came near the limit of a cgroup at another time than that of the peak.

use super::script::{Script, boot, gib, mib, wall};
use memtrace_model::tables::CgroupMemRow;

/// A reading of a group as v1 gives it, in MiB: in use, its mark, anonymous memory, shared memory; the
/// rest is page cache. And its limit.
pub fn group(run: &mut Script, at: f64, path: &str, amounts: [f64; 4], limit: Option<f64>) {
    let [current, peak, anon, shmem] = amounts;
    run.put(CgroupMemRow {
        ts: wall(at),
        boot_ns: boot(at),
        cgroup: path.to_owned(),
        version: 1,
        current_bytes: Some(mib(current)),
        peak_bytes: Some(mib(peak)),
        limit_bytes: limit.map(mib),
        anon_bytes: Some(mib(anon)),
        file_bytes: Some(mib(current - anon)),
        shmem_bytes: Some(mib(shmem)),
        kernel_bytes: Some(mib(0.0)),
        other_process_count: Some(0),
        ..CgroupMemRow::default()
    });
}

/// One group comes near its limit, later another without a limit holds most.
pub fn near_miss() -> Script {
    let mut run = Script::command(&["./jobs"], 20.0);
    run.process(10, None, 0.0, "./jobs");
    run.mem(10, 0.1, [1.0, 2.0, 0.0]);
    for (tgid, at, path, name) in [(11, 0.5, "/a", "./first"), (12, 8.0, "/b", "./second")] {
        run.process(tgid, Some(10), at, name);
        run.edit(tgid, |row| row.cgroup = Some(path.into()));
    }
    run.mem(11, 1.0, [188.0, 5.0, 0.0]);
    // Of what is in use so much could be reclaimed.
    group(&mut run, 2.0, "/a", [196.0, 196.0, 188.0, 0.0], Some(200.0));
    run.mem(11, 6.0, [3.0, 5.0, 0.0]);
    group(&mut run, 7.0, "/a", [3.0, 196.0, 3.0, 0.0], Some(200.0));
    run.mem(12, 9.0, [403.0, 5.0, 0.0]);
    group(&mut run, 10.0, "/b", [403.0, 403.0, 403.0, 0.0], None);
    run.node(10.0, gib(400.0));
    run.exit(12, 15.0, 0);
    run.exit(11, 16.0, 0);
    run.exit(10, 19.0, 0);
    run
}

/// A temporary of 30 MiB overlaps a new file of 30 MiB in /dev/shm for a moment that no reading meets: the
/// kernel's mark knows of it. Page cache of 40 MiB was there all the time.
pub fn nested() -> Script {
    let mut run = Script::command(&["./pod"], 20.0);
    run.process(10, None, 0.0, "./pod");
    run.edit(10, |row| row.cgroup = Some("/pod/inner".into()));
    run.mem(10, 0.1, [80.0, 5.0, 0.0]);
    let inner = |run: &mut Script, at, [current, peak, shmem]: [f64; 3]| {
        let cache = 40.0;
        group(
            run,
            at,
            "/pod/inner",
            [current + cache, peak + cache, 80.0, shmem],
            Some(200.0),
        );
        group(
            run,
            at,
            "/pod",
            [current + cache, peak + cache, 80.0, shmem],
            Some(400.0),
        );
    };
    inner(&mut run, 1.0, [80.0, 80.0, 0.0]);
    inner(&mut run, 2.0, [110.0, 140.0, 30.0]);
    run.node(2.0, gib(400.0));
    run.exit(10, 19.0, 0);
    run
}
