//! What is said of the limits of cgroups, and of the bounds of the peak.

use super::*;
use crate::answer::Topic;

/// The line about limits in the first lines.
fn line(run: &Script) -> String {
    let lines = answer::lines(&run.clone().analyzed(None)).into_iter();
    let mut lines = lines.filter(|line| line.about == Topic::Limit);
    lines.next().expect("a line about limits").text
}

fn nearest(run: &Script) -> Value {
    let json = written(
        format("json"),
        &run.clone().reported(None, None),
        &Style::default(),
    );
    let json: Value = serde_json::from_str(&json).expect("JSON");
    json["limits"][0].clone()
}

#[test]
fn the_limit_reported_is_the_one_that_came_nearest_whenever_that_was() {
    let run = near_miss();
    let text = "188 MiB of the 200 MiB of cgroup /a were in use at 12:01:46 UTC (+2.0s), page cache \
                aside (94%).";
    assert_eq!(line(&run), text);
    let limit = nearest(&run);
    assert_eq!(
        (&limit["kind"], &limit["cgroup"]),
        (&"cgroup".into(), &"/a".into())
    );
    assert_eq!(limit["used_bytes"], 188 << 20);
    assert_eq!(limit["is_kernel_mark"], false);
    let text = written(&FORMATS[0], &run.reported(None, None), &Style::default());
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let section = "Nearest to its limit: 188 MiB of the 200 MiB of cgroup /a were in use";
    assert!(text.contains(section), "{text}");
}

#[test]
fn the_kernels_mark_tells_what_no_reading_met() {
    let run = nested();
    let text = "140 MiB of the 200 MiB of cgroup /pod/inner had been in use by 12:01:46 UTC (+2.0s), \
                page cache aside (70%, the kernel's mark).";
    assert_eq!(line(&run), text);
    assert_eq!(nearest(&run)["is_kernel_mark"], true);
}

#[test]
fn a_mark_that_can_be_from_before_the_recording_is_reported_as_such() {
    let mut run = Script::command(&["a"], 20.0);
    run.process(1, None, 0.0, "a");
    run.edit(1, |row| row.cgroup = Some("/a".into()));
    run.mem(1, 0.5, [50.0, 0.0, 0.0]);
    for at in [1.0, 2.0] {
        group(&mut run, at, "/a", [50.0, 99.0, 50.0, 0.0], Some(100.0));
    }
    let text = "50.0 MiB of the 100 MiB of cgroup /a were in use at the peak (50%; its mark, 99.0 MiB, \
                may be from before).";
    assert_eq!(line(&run), text);
}

#[test]
fn a_limit_that_was_far_away_leaves_room_for_what_the_machine_had() {
    let mut run = near_miss();
    for record in &mut run.rows.0 {
        if let Record::CgroupMem(row) = record {
            row.limit_bytes = row.limit_bytes.map(|_| gib(1.0));
        }
    }
    let line = line(&run);
    assert!(
        line.contains("400 GiB of the machine's 504 GiB were available"),
        "{line}"
    );
    assert!(
        line.contains("of the 1.0 GiB of cgroup /a") && !line.contains("none"),
        "{line}"
    );
}

#[test]
fn the_bounds_of_the_peak_are_those_of_its_instant_wherever_they_stand() {
    let run = nested();
    let text = |at: Option<&str>| {
        let text = written(
            &FORMATS[0],
            &run.clone().reported(at, None),
            &Style::default(),
        );
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let peak = "110 MiB at 12:01:46 UTC (+2.0s), never more than 140 MiB";
    let first = text(None);
    assert!(first.contains(&format!("Most held: {peak};")), "{first}");
    assert!(
        first.contains(&format!("Peak of the tree: {peak} ")),
        "{first}"
    );
    let at = text(Some("peak"));
    assert!(
        at.contains("At 12:01:46 UTC (+2.0s): 110 MiB, 100% of the peak"),
        "{at}"
    );
}

#[test]
fn memory_that_nobody_knows_to_be_there_is_not_named() {
    let mut run = nested();
    for record in &mut run.rows.0 {
        if let Record::CgroupMem(row) = record
            && row.boot_ns == boot(1.0)
        {
            row.current_bytes = row.current_bytes.map(|used| used + Bytes(300 << 20));
        }
    }
    let text = written(
        &FORMATS[0],
        &run.reported(Some("+1.5s"), None),
        &Style::default(),
    );
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains("charged and not known up to 300 MiB"),
        "{text}"
    );
    assert!(!text.contains("pinned"), "{text}");
}
