//! What is said of the lines that held most, all processes together.

use super::*;
use memtrace_model::tables::GrowthSiteRow;

/// Two workers that hold 300 MiB each for a second, which one line touched, and before that what came and
/// went there; samples say so many MiB of each.
fn run(sampled: i64, gone: i64) -> Script {
    let mut run = Script::command(&["python3", "pool.py"], 60.0);
    run.process(1, None, 0.0, "python3 pool.py");
    run.mem(1, 0.1, [10.0, 5.0, 0.0]);
    run.stack(1, &[("work", "/home/mia/pool.py", Some(3))]);
    for worker in [2, 3] {
        run.process(worker, Some(1), 1.0, "python3 pool.py");
        for (at, mib, grown, returned) in [
            (2.0, 5.0, gone, gone),
            (10.0, 300.0, gone + sampled, gone),
            (11.5, 5.0, gone + sampled, gone + sampled),
        ] {
            run.mem(worker, at, [mib, 5.0, 0.0]);
            run.put(GrowthSiteRow {
                ts: wall(at),
                boot_ns: boot(at),
                upid: upid(Tgid(worker)),
                stack_id: 1,
                sample_count: 9,
                grown_bytes: Bytes(grown << 20),
                resident_bytes: Bytes((grown - returned) << 20),
                returned_bytes: Bytes(returned << 20),
                ..GrowthSiteRow::default()
            });
        }
    }
    run
}

fn text(run: Script, at: Option<&str>) -> String {
    let report = written(&FORMATS[0], &run.reported(at, None), &Style::default());
    report.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn lines_of_the_peak_are_added_up_over_processes() {
    let of_all = "At the peak 2 processes held 600 MiB by samples: 100% at pool.py:3 work.";
    let said = text(run(300, 0), None);
    assert!(said.contains(of_all), "{said}");
    // Samples err: no process held more than it had.
    let said = text(run(400, 0), None);
    assert!(said.contains(of_all), "{said}");
    let said = text(run(300, 0), Some("+20s"));
    assert!(!said.contains("by samples"), "all is given back: {said}");
}

#[test]
fn a_line_that_had_passed_its_memory_on_at_the_peak_is_doubted() {
    let said = text(run(300, 1_200), None);
    assert!(!said.contains("At the peak"), "{said}");
    let said = text(run(300, 1_200), Some("peak"));
    let doubt = "100% at pool.py:3 work (it had touched 2.9 GiB and given most of it back:";
    assert!(said.contains(doubt), "{said}");
}

#[test]
fn of_a_process_whose_memory_is_not_known_samples_stand() {
    let mut run = run(300, 0);
    for row in &mut run.rows.0 {
        if let Record::Mem(row) = row {
            (row.rss_bytes, row.rss_anon_bytes, row.rss_shmem_bytes) = (None, None, None);
        }
    }
    let held = run.analyzed(Some("+10s")).held_by_line.expect("lines");
    assert_eq!(held.not_returned_bytes, Bytes(600 << 20));
}
