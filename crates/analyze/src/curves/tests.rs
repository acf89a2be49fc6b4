//! What is drawn against what the report says, on every golden run.

use crate::Report;
use crate::golden::{
    RUNS, Reported, Script, boot, mem_row, ray_with_vllm, ray_with_vllm_later, upid,
};
use crate::{Diff, DiffReport};
use memtrace_model::tables::MarkKind::{Begin, End};
use memtrace_model::{Bytes, Record, Tgid};
use memtrace_report::{Style, Written};
use serde_json::Value;
use std::collections::BTreeMap;

/// The document of a page, as whoever draws it reads it.
fn document(report: &mut dyn Written) -> Value {
    let mut out = Vec::new();
    let text = report.chapters(&Style::default());
    let written = report.page(&Style::default(), &text, &mut out);
    written.expect("a Vec can be written to");
    serde_json::from_slice(&out).expect("JSON")
}

fn every_document() -> impl Iterator<Item = (&'static str, Report, Value)> {
    RUNS.iter().map(|(name, script, _)| {
        let mut report = script().drawn();
        let document = document(&mut report);
        (*name, report, document)
    })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn ints(value: &Value) -> Vec<i64> {
    let ints = list(value).iter();
    ints.map(|int| int.as_i64().expect("an integer")).collect()
}

/// Instants, or places, from gaps.
fn summed(gaps: &Value) -> Vec<i64> {
    let sums = ints(gaps).into_iter().scan(0, |sum, gap| {
        *sum += gap;
        Some(*sum)
    });
    sums.collect()
}

/// What a series of the host is at each of so many instants.
fn values(series: &Value, count: usize) -> Vec<Option<i64>> {
    values_from(Some(0), series, count)
}

/// The same of one that is this before its first change.
fn values_from(before: Option<i64>, series: &Value, count: usize) -> Vec<Option<i64>> {
    let places = summed(&series["at"]);
    let mut known = 0;
    let changes = list(&series["bytes"]).iter().map(|more| {
        known += more.as_i64().unwrap_or(0);
        more.as_i64().map(|_| known)
    });
    let changes: BTreeMap<i64, Option<i64>> = places.into_iter().zip(changes).collect();
    let mut now = before;
    let instants = (0..count as i64).map(|place| {
        now = changes.get(&place).copied().unwrap_or(now);
        now
    });
    instants.collect()
}

fn highest(series: &Value, count: usize) -> i64 {
    let values = values(series, count).into_iter().flatten();
    values.max().unwrap_or(0)
}

fn find<'a>(of: &'a Value, key: &str, value: &Value) -> Option<&'a Value> {
    list(of).iter().find(|one| one[key] == *value)
}

#[test]
fn every_stack_adds_up_to_its_line_at_every_instant() {
    let mut count = 0;
    for (name, _, document) in every_document() {
        let curves = &document["curves"];
        let instants = summed(&curves["time_ns"]);
        assert!(instants.is_sorted_by(|a, b| a < b), "{name}");
        let processes = list(&document["processes"]).iter();
        let has_cgroups = processes
            .clone()
            .any(|process| process["cgroup"].is_string());
        let by_cgroup = find(&curves["stacks"], "by", &"cgroup".into());
        assert_eq!(by_cgroup.is_some(), has_cgroups, "{name}");
        for stack in list(&curves["stacks"]) {
            let line = find(&curves["lines"], "id", &stack["total"]).expect("a line");
            let whole = values(line, instants.len());
            let parts = list(&stack["series"]).iter();
            let parts: Vec<_> = parts.map(|part| values(part, instants.len())).collect();
            for (place, whole) in whole.iter().enumerate() {
                let sum: i64 = parts.iter().filter_map(|part| part[place]).sum();
                assert_eq!(sum, whole.unwrap_or(0), "{name} {} {place}", stack["by"]);
                let is_part = |part: &Vec<Option<i64>>| part[place] >= Some(0);
                assert!(parts.iter().all(is_part), "{name} {} {place}", stack["by"]);
                count += 1;
            }
        }
        for gpu in list(&curves["gpus"]) {
            let count = list(&gpu["time_ns"]).len();
            let parts = list(&gpu["series"]).iter();
            let parts: Vec<_> = parts.map(|part| values_from(None, part, count)).collect();
            let used = values_from(None, &gpu["used"], count);
            for (place, used) in used.iter().enumerate() {
                let Some(used) = used else { continue };
                let sum: i64 = parts.iter().filter_map(|part| part[place]).sum();
                assert_eq!(sum, *used, "{name} {} {place}", gpu["id"]);
            }
        }
    }
    assert!(count > 1_000, "{count}");
}

#[test]
fn every_peak_that_the_report_names_is_drawn_at_its_height_and_time() {
    let mut seen = 0;
    for (name, report, document) in every_document() {
        let curves = &document["curves"];
        let instants = summed(&curves["time_ns"]);
        let mut check = |series: &Value, peak: &Value, at: &Value| {
            let values = values(series, instants.len());
            let place = instants.iter().position(|one| Some(*one) == at.as_i64());
            let drawn = place.and_then(|place| values[place]);
            assert_eq!(drawn, peak.as_i64(), "{name} {} at {at}", series["id"]);
            let highest = values.into_iter().flatten().max();
            assert_eq!(highest, peak.as_i64(), "{name} {}", series["id"]);
            seen += 1;
        };
        let text = &document["report"];
        let line = |id: &str| find(&curves["lines"], "id", &id.into()).expect("a line");
        if let Some(held) = text["held_peak"]["bytes"].as_i64() {
            let at = &text["peak"]["at"]["offset_ns"];
            check(line("held"), &held.into(), at);
        }
        let rss = &text["sum_of_rss_peak_bytes"];
        if rss.as_i64() > Some(0) {
            check(line("rss"), rss, &text["sum_of_rss_peak_at"]["offset_ns"]);
        }
        for process in &report.analysis.processes {
            let peak = process.peak.amounts.rss().unwrap_or_default().0;
            let lane = find(&document["processes"], "upid", &process.upid.0.into());
            let levels = list(&lane.expect("a lane")["rss"]).iter();
            let level = levels.filter_map(|step| step[1].as_i64()).max();
            // A lane shows all that a process maps, also what fork gave it.
            assert!(level.unwrap_or(0) >= peak, "{name} {}", process.name);
            seen += 1;
        }
        let devices = text["gpu"]["devices"].as_array();
        for device in devices.into_iter().flatten() {
            let gpu = find(&curves["gpus"], "id", &device["device"]).expect("a curve");
            let used = &device["peak"]["used_bytes"];
            if used.is_i64() {
                let count = list(&gpu["time_ns"]).len();
                assert_eq!(highest(&gpu["used"], count), used.as_i64().unwrap());
                seen += 1;
            }
        }
    }
    assert!(seen > 100, "{seen}");
}

#[test]
fn a_role_is_drawn_at_the_peak_with_what_the_report_says_that_it_held() {
    let mut seen = 0;
    for (name, _, document) in every_document() {
        let curves = &document["curves"];
        let text = &document["report"];
        let at = text["peak"]["at"]["offset_ns"].as_i64();
        let instants = summed(&curves["time_ns"]);
        let Some(place) = instants.iter().position(|one| Some(*one) == at) else {
            continue;
        };
        let stack = find(&curves["stacks"], "by", &"role".into()).expect("a stack");
        for role in list(&text["roles"]) {
            let held = role["at_peak"]["host_bytes"].as_i64();
            let drawn = find(&stack["series"], "name", &role["name"]);
            if let (Some(held), Some(drawn)) = (held, drawn) {
                let drawn = values(drawn, instants.len())[place].unwrap_or(0);
                // A layer moves when it is another to a person.
                assert!(
                    (drawn - held).abs() <= held / 256 + 64,
                    "{name} {role}: {drawn}"
                );
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn the_document_has_the_object_of_the_report_and_every_process_after_its_parent() {
    for (name, mut report, document) in every_document() {
        let mut json = Vec::new();
        report.json(&Style::default(), &mut json).expect("a Vec");
        let json: Value = serde_json::from_slice(&json).expect("JSON");
        if report.analysis.processes.len() <= crate::page::TOP {
            assert_eq!(document["report"], json, "{name}");
        }
        let lanes = list(&document["processes"]);
        assert_eq!(lanes.len(), report.analysis.processes.len(), "{name}");
        for (place, lane) in lanes.iter().enumerate() {
            let parent = lane["parent"].as_u64();
            assert!(parent.is_none_or(|parent| parent < place as u64), "{name}");
        }
    }
}

#[test]
fn a_fork_is_drawn_with_what_it_grew_by_and_the_eldest_with_all_that_is_shared() {
    let mut run = Script::command(&["server"], 100.0);
    run.process(1, None, 0.0, "server");
    run.mem(1, 1.0, [600.0, 0.0, 0.0]);
    for tgid in 2..4 {
        run.process(tgid, Some(1), 5.0, "server");
        run.inherits(tgid, 600.0);
        run.mem(tgid, 6.0, [620.0, 0.0, 0.0]);
    }
    // The next one has the rest.
    run.exit(1, 50.0, 0);
    let mut report = run.drawn();
    let document = document(&mut report);
    let curves = &document["curves"];
    let instants = summed(&curves["time_ns"]);
    let stack = find(&curves["stacks"], "by", &"process".into()).expect("a stack");
    let drawn = |tgid: u32, second: i64| {
        let upid = upid(Tgid(tgid)).0;
        let series = find(&stack["series"], "upid", &upid.into()).expect("a process");
        let place = instants.partition_point(|at| *at <= second * 1_000_000_000) - 1;
        values(series, instants.len())[place].map(|bytes| bytes >> 20)
    };
    let all = |second| [1, 2, 3].map(|tgid| drawn(tgid, second));
    assert_eq!(all(10), [Some(600), Some(20), Some(20)]);
    assert_eq!(all(60), [Some(0), Some(620), Some(20)]);
}

#[test]
fn beyond_those_with_a_curve_of_their_own_all_share_one() {
    let mut run = Script::command(&["pool"], 100.0);
    for tgid in 1..=60 {
        run.process(tgid, (tgid > 1).then_some(1), 0.0, "worker");
        run.mem(tgid, 1.0, [f64::from(tgid), 0.0, 0.0]);
    }
    // For an instant one of the small ones is large.
    let spike = mem_row(upid(Tgid(2)).0, boot(50.0).0, Some(7 << 30));
    run.put(spike);
    run.mem(2, 50.005, [1.0, 0.0, 0.0]);
    let mut report = run.drawn();
    let document = document(&mut report);
    let curves = &document["curves"];
    let count = list(&curves["time_ns"]).len();
    let stack = find(&curves["stacks"], "by", &"process".into()).expect("a stack");
    let series = list(&stack["series"]);
    assert!(series.len() <= 31, "{}", series.len());
    let rest = find(&stack["series"], "id", &"rest".into()).expect("the others");
    assert_eq!(
        rest["name"],
        "30 other processes, kernel memory, huge pages, files of a tmpfs"
    );
    assert!(highest(&series[0], count) > 7 << 30 || highest(rest, count) > 7 << 30);
    assert_eq!(Bytes(highest(&curves["lines"][1], count)), {
        let (peak, _) = report.analysis.rss_peak.expect("a peak");
        peak
    });
}

#[test]
fn each_step_is_a_band_with_its_line_and_its_number() {
    let mut seen = 0;
    for (name, _, document) in every_document() {
        let lines = document["report"]["phases"]["lines"].as_array();
        // What happens at an instant has no band.
        let lines = lines.into_iter().flatten();
        let numbered = lines.filter(|line| line["kind"] == "phase");
        let numbered: Vec<&Value> = numbered.filter(|line| line["steps"].is_object()).collect();
        for line in &numbered {
            let bands = list(&document["bands"]).iter();
            let bands: Vec<&Value> = bands.filter(|band| band["stage"] == line["name"]).collect();
            assert_eq!(Some(bands.len() as u64), line["count"].as_u64(), "{name}");
            let steps = bands.iter().map(|band| band["step"].as_i64().expect("it"));
            assert_eq!(steps.clone().min(), line["steps"]["first"].as_i64());
            assert_eq!(steps.max(), line["steps"]["last"].as_i64());
            seen += 1;
        }
        for band in list(&document["bands"]) {
            let is_named = |line: &&Value| line["name"] == band["stage"];
            assert_eq!(band["step"].is_i64(), numbered.iter().any(is_named));
        }
    }
    assert!(seen > 1, "{seen}");
}

#[test]
fn a_page_of_two_recordings_begins_with_what_changed() {
    let [mut before, mut after] = [ray_with_vllm(), ray_with_vllm_later()].map(Script::drawn);
    let own = document(&mut after);
    before.analysis.path = Some("before".to_owned());
    let mut text: DiffReport<Diff> = DiffReport::of(before, after, None);
    let compared = document(&mut text);
    assert_eq!(compared["title"], "memtrace diff");
    let lines = list(&compared["answer"]).iter();
    let lines: Vec<&str> = lines.filter_map(|line| line["text"].as_str()).collect();
    assert!(lines[0].starts_with("A: before, "), "{lines:?}");
    let peak = lines.iter().find(|line| line.starts_with("Most held: "));
    assert!(peak.is_some_and(|peak| peak.contains(" → ")), "{lines:?}");
    let of_b = list(&own["answer"]).iter();
    let of_b: Vec<&str> = of_b.filter_map(|line| line["text"].as_str()).collect();
    assert!(lines.iter().all(|line| !of_b.contains(line)), "{lines:?}");
    assert_eq!(compared["report"], own["report"]);
}

#[test]
fn a_step_that_an_attribute_numbers_is_distinguished_from_others_of_its_name() {
    let mut run = Script::command(&["train"], 40.0);
    run.process(1, None, 0.0, "trainer");
    run.mem(1, 0.5, [100.0, 0.0, 0.0]);
    for step in 500..512_u32 {
        let at = f64::from(step - 499);
        run.numbered_mark(Some(1), at, Begin, "rollout", Some(step));
        run.numbered_mark(Some(1), at + 0.5, End, "rollout", Some(step));
    }
    // As a name of a stage, without a number.
    run.mark(Some(1), 20.0, Begin, "<N><N><N>rollout");
    run.mark(Some(1), 21.0, End, "<N><N><N>rollout");
    run.mark(Some(1), 22.0, Begin, "rollout");
    run.mark(Some(1), 23.0, End, "rollout");
    let document = document(&mut run.drawn());
    let bands = list(&document["bands"]).iter();
    let text: Vec<_> = bands
        .map(|band| (band["stage"].as_str(), band["step"].as_i64()))
        .collect();
    let rollouts = (500..512).map(|step| (Some("rollout"), Some(step)));
    let others = [(None, None), (None, None)];
    assert_eq!(text, rollouts.chain(others).collect::<Vec<_>>());
}

#[test]
fn who_holds_nothing_of_a_gpu_at_its_first_reading_is_known_to() {
    let mut seen = 0;
    for (_, _, document) in every_document() {
        for gpu in list(&document["curves"]["gpus"]) {
            let count = list(&gpu["time_ns"]).len();
            for series in list(&gpu["series"]) {
                let first = values_from(None, series, count)[0];
                seen += usize::from(first == Some(0));
            }
        }
    }
    assert!(seen > 0, "{seen}");
}

#[test]
fn kinds_of_memory_have_names_in_words() {
    let mut documents = every_document();
    let (_, _, document) = documents.find(|(name, ..)| *name == "shared").expect("it");
    let stack = find(&document["curves"]["stacks"], "by", &"kind".into()).expect("it");
    let words = [
        ("huge", "huge pages"),
        ("anon", "anonymous"),
        ("shmem", "shared memory"),
    ];
    for (id, name) in words {
        let series = find(&stack["series"], "id", &id.into()).expect("a kind");
        assert_eq!(series["name"], name);
    }
}

#[test]
fn kills_elsewhere_and_groups_without_readings_take_no_place_from_those_that_hold() {
    let run = || {
        let mut runs = RUNS.iter();
        let (_, script, _) = runs.find(|(name, _, _)| *name == "oom_kill").expect("it");
        script()
    };
    let text = |script: Script| {
        let document = document(&mut script.drawn());
        let limits = list(&document["curves"]["limits"]).iter();
        let names = limits.map(|limit| limit["name"].as_str().expect("a name").to_owned());
        names.collect::<Vec<_>>()
    };
    let alone = text(run());
    assert!(!alone.is_empty());
    let mut script = run();
    let kill = script.rows.0.iter().find_map(|record| match record {
        Record::Oom(row) => Some(row.clone()),
        _ => None,
    });
    for place in 0..20 {
        let path = format!("/other{place}");
        script.cgroup(1.0, &path, [1.0, 0.5, 0.0], None);
        let mut stranger = kill.clone().expect("a kill");
        (stranger.victim_upid, stranger.trigger_upid) = (None, None);
        (stranger.victim_tgid, stranger.trigger_tgid) = (Tgid(90_000 + place), None);
        stranger.boot_ns = boot(f64::from(place) / 10.0);
        stranger.memcg = Some(path);
        script.put(*stranger);
    }
    assert_eq!(text(script), alone);
}

#[test]
fn kinds_of_gpu_memory_are_drawn_after_their_device() {
    let mut documents = every_document();
    let (.., document) = documents
        .find(|(name, ..)| *name == "gpu_by_calls")
        .expect("a run");
    let gpus = list(&document["curves"]["gpus"]);
    let ids: Vec<&str> = gpus.iter().filter_map(|gpu| gpu["id"].as_str()).collect();
    let [first, second] = ["GPU-0a7b", "GPU-1a7b"];
    let by_calls = [first, second].map(|id| format!("{id} by calls"));
    assert_eq!(ids, [first, &by_calls[0], second, &by_calls[1]]);
    let kind = |gpu: &Value, name: &str| {
        let count = list(&gpu["time_ns"]).len();
        highest(
            find(&gpu["series"], "id", &name.into()).expect("a kind"),
            count,
        )
    };
    // The trainer holds 36 GiB beside a worker.
    assert_eq!(kind(&gpus[1], "vmm"), (34 << 30) + (388 << 20));
    assert_eq!(kind(&gpus[3], "direct"), (36 << 30) + (899 << 20));
}
