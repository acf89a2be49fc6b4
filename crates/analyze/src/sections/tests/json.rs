//! The JSON of every golden run: as its schema says, with figures that agree with each other.

use super::*;
use crate::golden::{JOBS, Reported, reduced};
use crate::{HostPart, merge};

fn json_of(report: &Report, top: Option<usize>) -> Value {
    let style = Style {
        top,
        ..Style::default()
    };
    serde_json::from_str(&written(format("json"), report, &style)).expect("JSON")
}

/// Every run, and one with an eye on a phase.
fn all_reported() -> impl Iterator<Item = (&'static str, Report)> {
    let runs = RUNS.iter();
    let runs = runs.map(|(name, script, at)| (*name, script().reported(*at, None)));
    let phase = || ("a phase", with_phase("phases_on_gpus", Some("rollout")));
    runs.chain(std::iter::once_with(phase))
}

#[test]
fn the_figures_of_every_run_agree_with_each_other() {
    for (name, report) in all_reported() {
        let faults = invariants::faults(&json_of(&report, None));
        assert!(faults.is_empty(), "{name}: {faults:#?}");
    }
}

#[test]
fn a_wrong_figure_breaks_the_invariant_that_is_about_it() {
    let cases = [
        ("ledgers close", "shared", "/peak/ledgers/0/residual_bytes"),
        (
            "lines of ledgers add up",
            "shared",
            "/peak/ledgers/0/files/0/cached_bytes",
        ),
        (
            "ledgers of GPUs close",
            "gpus",
            "/gpu/devices/0/peak/used_bytes",
        ),
        (
            "lines of GPUs add up",
            "gpus",
            "/gpu/devices/0/peak/lines/0/bytes",
        ),
        (
            "parts on GPUs add up",
            "gpu_by_calls",
            "/gpu/devices/0/peak/lines/0/cuda/vmm_bytes",
        ),
        (
            "lines of code add up",
            "grown_by_lines",
            "/held_by_line/lines/0/not_returned_bytes",
        ),
        (
            "parts on GPUs add up",
            "gpu_by_calls",
            "/gpu/sleeps/0/cuda/cuda_after/context_bytes",
        ),
        (
            "holders add up",
            "oom_kill",
            "/oom_kills/0/held/holders/1/anon_bytes",
        ),
        (
            "roles add up",
            "oom_kill",
            "/roles/0/at_peak/sum_of_rss_bytes",
        ),
        (
            "roles of a phase add up",
            "phases_on_gpus",
            "/phases/lines/0/roles/0/end/rss_bytes",
        ),
        (
            "what is held is the sum of its kinds",
            "shared",
            "/at/held_shared_bytes",
        ),
        (
            "nothing held is more than the peak",
            "shared",
            "/held_peak/bytes",
        ),
        (
            "nothing held is more than the peak",
            "phases_on_gpus",
            "/phases/lines/0/held/peak_bytes",
        ),
        (
            "the bounds of the peak hold those of its instant",
            "trainer_with_vllm",
            "/peak/held_at_most_bytes",
        ),
        (
            "parts are no more than what is held",
            "shared",
            "/peak/ledgers/0/anonymous_bytes",
        ),
        (
            "parts are no more than what is held",
            "oom_kill",
            "/roles/0/at_peak/own_anon_bytes",
        ),
        ("bounds are in order", "shared", "/curve/0/mean_bytes"),
        ("references resolve", "oom_kill", "/roles/0/upids/0"),
        ("references resolve", "gpus", "/gpu/processes/0/pid"),
        (
            "references resolve",
            "phases_on_gpus",
            "/phases/lines/0/process_name",
        ),
        ("counts are lengths", "left_behind", "/orphaned_shm_count"),
        ("counts are lengths", "phases_on_gpus", "/phases/line_count"),
        ("instants agree", "oom_kill", "/oom_kills/0/at/offset_ns"),
        (
            "changes are differences",
            "phases_on_gpus",
            "/phases/lines/0/own/delta/anon_bytes",
        ),
        (
            "changes are differences",
            "phases_on_gpus",
            "/phases/lines/0/gpu/delta_bytes",
        ),
        (
            "lengths are differences",
            "phases_on_gpus",
            "/phases/lines/0/duration_ns",
        ),
        ("endings add up", "oom_kill", "/endings/running_count"),
        (
            "the largest come first",
            "oom_kill",
            "/processes/1/peak/rss_bytes",
        ),
    ];
    for (name, run, place) in cases {
        let run = RUNS.iter().find(|(one, ..)| *one == run).expect("a run");
        let mut json = json_of(&run.1().reported(run.2, None), None);
        let figure = json
            .pointer_mut(place)
            .unwrap_or_else(|| panic!("no {place}"));
        *figure = match figure.as_i64() {
            Some(figure) => (figure + (1 << 50)).into(),
            None => "somebody else".into(),
        };
        let faults = invariants::faults(&json);
        let is_about_it = |fault: &String| fault.starts_with(name);
        assert!(
            faults.iter().any(is_about_it),
            "{name}, {place}: {faults:?}"
        );
    }
    for (name, _) in invariants::INVARIANTS {
        assert!(
            cases.iter().any(|(one, ..)| one == name),
            "{name} is never broken"
        );
    }
}

/// The lists of a report that `--top` cuts.
const CUT: [&str; 12] = [
    "/processes",
    "/roles",
    "/survivors",
    "/orphaned_shm",
    "/peak/holders",
    "/peak/ledgers/0/anonymous",
    "/peak/ledgers/0/shared",
    "/peak/gpus/0/lines",
    "/gpu/processes",
    "/phases/lines",
    "/phase/holders",
    "/address_space/processes",
];

/// Whether a value is another with shorter lists, and nothing else.
fn is_cut_of(cut: &Value, whole: &Value) -> bool {
    match (cut, whole) {
        (Value::Array(cut), Value::Array(whole)) => {
            cut.len() <= whole.len() && cut.iter().zip(whole).all(|(a, b)| is_cut_of(a, b))
        }
        (Value::Object(cut), Value::Object(whole)) => {
            cut.keys().eq(whole.keys()) && cut.iter().all(|(key, a)| is_cut_of(a, &whole[key]))
        }
        _ => cut == whole,
    }
}

#[test]
fn top_cuts_lists_and_nothing_else() {
    let mut shortened = HashSet::new();
    for (name, report) in all_reported() {
        let (cut, whole) = (json_of(&report, Some(1)), json_of(&report, None));
        assert!(is_cut_of(&cut, &whole), "{name}");
        let length = |json: &Value, list| Some(json.pointer(list)?.as_array()?.len());
        for list in CUT {
            let (now, before) = (length(&cut, list), length(&whole, list));
            assert_eq!(now, before.map(|before| before.min(1)), "{name}: {list}");
            shortened.extend((now < before).then_some(list));
        }
    }
    assert_eq!(shortened, HashSet::from(CUT));
}

/// What is wrong with a value by a schema, if anything. Keys that the schema does not know are.
fn fault(value: &Value, schema: &Value, defs: &Value, path: &str) -> Option<String> {
    let wrong = |what: &str| Some(format!("{path}: {what}: {value}"));
    if let Some(name) = schema["$ref"].as_str() {
        let named = &defs[name.trim_start_matches("#/$defs/")];
        return fault(value, named, defs, path);
    }
    for several in ["anyOf", "oneOf"] {
        let Some(several) = schema[several].as_array() else {
            continue;
        };
        let faults = several.iter().map(|one| fault(value, one, defs, path));
        let faults: Option<Vec<String>> = faults.collect();
        if let Some(faults) = faults {
            return Some(faults.join(" and "));
        }
    }
    if schema.get("const").is_some_and(|only| only != value) {
        return wrong("not the constant");
    }
    let is_a = |name: &Value| match name.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => false,
    };
    match &schema["type"] {
        Value::Null => {}
        Value::Array(names) if names.iter().any(is_a) => {}
        name if is_a(name) => {}
        _ => return wrong("of another type"),
    }
    let mut items = value.as_array().into_iter().flatten();
    if let Some(fault) = items.find_map(|item| fault(item, &schema["items"], defs, path)) {
        return Some(fault);
    }
    let keys = value
        .as_object()
        .filter(|_| schema["properties"].is_object())?;
    let mut required = schema["required"].as_array().into_iter().flatten();
    if let Some(missing) = required.find(|key| !keys.contains_key(key.as_str().unwrap_or(""))) {
        return wrong(&format!("without {missing}"));
    }
    keys.iter()
        .find_map(|(key, value)| match &schema["properties"][key] {
            Value::Null => Some(format!("{path}.{key} is not in the schema")),
            known => fault(value, known, defs, &format!("{path}.{key}")),
        })
}

#[test]
fn every_json_report_is_as_its_schema_says() {
    let schema = crate::json_schema();
    let check = |json: &str, what: &str| {
        let json: Value = serde_json::from_str(json).expect("JSON");
        assert_eq!(fault(&json, &schema, &schema["$defs"], what), None);
        let mut other = json.clone();
        other["version"] = 99.into();
        assert!(fault(&other, &schema, &schema["$defs"], what).is_some());
    };
    for (name, report) in all_reported() {
        check(&written(format("json"), &report, &Style::default()), name);
    }
    let one = with_phase("phases_on_gpus", Some("load_model"));
    check(&written(format("json"), &one, &Style::default()), "one");
    let [before, after] =
        [ray_with_vllm(), ray_with_vllm_later()].map(|run| run.reported(None, None));
    let mut text: DiffReport<Diff> = DiffReport::of(before, after, Some(0.05));
    check(&said(format("json"), &mut text, &Style::default()), "diff");
    for (name, members, _) in JOBS {
        let parts: Vec<HostPart> = members().into_iter().map(reduced).collect();
        for part in &parts {
            check(&serde_json::to_string(part).expect("JSON"), name);
        }
        let mut run = merge("4711", parts, Vec::new(), None);
        check(&said(format("json"), &mut run, &Style::default()), name);
    }
}

#[test]
fn every_type_and_every_key_of_the_schema_has_a_line() {
    let schema = crate::json_schema();
    for (name, of) in schema["$defs"].as_object().expect("definitions") {
        assert!(of["description"].is_string(), "{name}");
        for (key, of) in of["properties"].as_object().into_iter().flatten() {
            assert!(of["description"].is_string(), "{name}.{key}");
        }
    }
}
