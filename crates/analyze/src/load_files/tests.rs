use super::*;
use crate::golden::server_under_load;
use crate::{Options, analyze};
use serde_json::Value;
use std::collections::BTreeSet;

fn analyzed(instants: Vec<BootNs>) -> Analysis {
    let (info, rows, _) = server_under_load().recorded();
    let options = Options {
        instants,
        ..Options::default()
    };
    analyze(&info, &rows, options).unwrap().analysis
}

fn summary() -> Value {
    let analysis = analyzed(Vec::new());
    let runs = LoadRun::all(&analysis);
    let [run] = runs.as_slice() else {
        panic!("{runs:?}");
    };
    let roles_at = analyzed(run.peaks().collect()).roles_at;
    let mut out = Vec::new();
    let to_wall = |at: BootNs| Some(WallNs(at.0 + 1));
    run.summary(&roles_at, to_wall, &mut out).unwrap();
    serde_json::from_slice(&out).unwrap()
}

#[test]
fn the_summary_has_what_each_role_held_at_the_peaks_of_a_condition() {
    let summary = summary();
    let last = &summary["conditions"][3];
    assert_eq!(last["name"], "in16384-out64-prefix0-c4");
    assert_eq!(
        (&last["ended_count"], &last["failed_count"]),
        (&4.into(), &2.into())
    );
    let memory = &last["memory"];
    let role = |at: &str| {
        let roles = memory[at].as_array().unwrap();
        let worker = roles
            .iter()
            .find(|role| role["name"] == "vLLM worker")
            .unwrap();
        worker.clone()
    };
    let mib = |count: i64| Value::from(count << 20);
    assert_eq!(role("roles_at_held_peak")["sum_of_anon_bytes"], mib(2_100));
    // The card is read two seconds after that, and holds most then.
    assert_eq!(role("roles_at_gpu_peak")["gpu_bytes"], mib(36 << 10));
    let at = |key: &str| memory[key].as_i64().unwrap();
    assert!(at("gpu_peak_bytes") > 36 << 30, "{memory}");
    assert!(at("held_peak_boot_ns") < at("gpu_peak_boot_ns"), "{memory}");
}

#[test]
fn a_condition_says_when_it_was_on_both_clocks() {
    let summary = summary();
    let conditions = summary["conditions"].as_array().unwrap();
    for condition in conditions {
        let at = |key: &str| condition[key].as_i64().unwrap();
        assert!(at("begin_boot_ns") < at("end_boot_ns"), "{condition}");
        assert_eq!(at("begin_wall_ns"), at("begin_boot_ns") + 1);
        assert_eq!(at("end_wall_ns"), at("end_boot_ns") + 1);
    }
    assert!(conditions.len() > 1);
}

#[test]
fn every_key_of_memory_stands_in_the_docs() {
    let page = include_str!("../../../../docs/exports.md");
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `conditions[].memory."));
    let documented = rows.map(|row| row.split('`').next().unwrap().trim_end_matches("[]"));
    let documented: BTreeSet<&str> = documented.collect();
    let summary = summary();
    let memory = summary["conditions"][0]["memory"].as_object().unwrap();
    assert_eq!(
        memory.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        documented
    );
}
