//! What has to hold of the figures of any report, whatever was recorded.

use serde_json::Value;
use std::collections::HashMap;

/// Looks at an object anywhere in a report: false where its figures contradict each other, or the
/// rest of the report. An object of another kind is as it should be.
type Holds = fn(&Value, &Whole<'_>) -> bool;

pub(super) const INVARIANTS: &[(&str, Holds)] = &[
    ("ledgers close", ledgers_close),
    ("lines of ledgers add up", lines_add_up),
    ("ledgers of GPUs close", gpu_ledgers_close),
    ("lines of GPUs add up", gpu_lines_add_up),
    ("parts on GPUs add up", parts_on_gpus_add_up),
    ("lines of code add up", lines_of_code_add_up),
    ("holders add up", holders_add_up),
    ("roles add up", roles_add_up),
    ("roles of a phase add up", roles_of_a_phase_add_up),
    (
        "what is held is the sum of its kinds",
        held_is_the_sum_of_its_kinds,
    ),
    ("nothing held is more than the peak", peak_is_the_most),
    (
        "the bounds of the peak hold those of its instant",
        bounds_of_the_peak_hold_those_of_its_instant,
    ),
    (
        "parts are no more than what is held",
        parts_are_no_more_than_all,
    ),
    ("bounds are in order", bounds_are_in_order),
    ("references resolve", references_resolve),
    ("counts are lengths", counts_are_lengths),
    ("instants agree", instants_agree),
    ("changes are differences", changes_are_differences),
    ("lengths are differences", lengths_are_differences),
    ("endings add up", endings_add_up),
    ("the largest come first", the_largest_come_first),
];

/// What the objects of a report are held against.
pub(super) struct Whole<'a> {
    report: &'a Value,
    start: i64,
    processes: HashMap<i64, &'a Value>,
}

/// The invariants that a whole report breaks, and where.
pub(super) fn faults(report: &Value) -> Vec<String> {
    let processes = list(&report["processes"]).iter();
    let whole = Whole {
        report,
        start: int(&report["recording"]["start"]["boot_ns"]),
        processes: processes.map(|one| (int(&one["upid"]), one)).collect(),
    };
    let mut faults = Vec::new();
    let mut open = vec![(String::new(), report)];
    while let Some((path, value)) = open.pop() {
        if value.is_object() {
            let broken = INVARIANTS.iter().filter(|(_, holds)| !holds(value, &whole));
            faults.extend(broken.map(|(name, _)| format!("{name}: not at {path}/")));
        }
        let keys = value.as_object().into_iter().flatten();
        open.extend(keys.map(|(key, value)| (format!("{path}/{key}"), value)));
        let places = list(value).iter().enumerate();
        open.extend(places.map(|(place, value)| (format!("{path}/{place}"), value)));
    }
    faults
}

/// What a reader adds up: unknown is nothing.
fn int(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn sum(values: &Value, of: impl Fn(&Value) -> i64) -> i64 {
    list(values).iter().map(of).sum()
}

const KINDS: [&str; 5] = ["rss", "anon", "file", "shmem", "swap"];

fn ledgers_close(one: &Value, _: &Whole<'_>) -> bool {
    const LINES: [&str; 9] = [
        "anonymous_bytes",
        "other_processes_bytes",
        "recorder_bytes",
        "shared_bytes",
        "other_shared_bytes",
        "files_bytes",
        "other_files_bytes",
        "kernel_bytes",
        "residual_bytes",
    ];
    let lines: i64 = LINES.iter().map(|line| int(&one[line])).sum();
    one["residual_bytes"].is_null() || one["current_bytes"] == lines
}

fn lines_of_code_add_up(one: &Value, _: &Whole<'_>) -> bool {
    let held = &one["held_by_line"];
    let lines = sum(&held["lines"], |line| int(&line["not_returned_bytes"]));
    let most = list(&held["lines"])
        .iter()
        .map(|line| int(&line["process_count"]))
        .max();
    lines == int(&held["not_returned_bytes"]) && most.unwrap_or(0) <= int(&held["process_count"])
}

fn lines_add_up(one: &Value, _: &Whole<'_>) -> bool {
    let in_memory = |object: &Value| match &object["resident_bytes"] {
        Value::Null => int(&object["allocated_bytes"]),
        resident => int(resident),
    };
    one["residual_bytes"].is_null()
        || int(&one["anonymous_bytes"]) == sum(&one["anonymous"], |line| int(&line["bytes"]))
            && int(&one["shared_bytes"]) == sum(&one["shared"], in_memory)
            && int(&one["files_bytes"]) == sum(&one["files"], |file| int(&file["cached_bytes"]))
            && int(&one["kernel_bytes"]) == sum(&one["kernel"], |part| int(&part["bytes"]))
}

fn gpu_ledgers_close(one: &Value, _: &Whole<'_>) -> bool {
    let lines = ["processes_bytes", "reserved_bytes", "unattributed_bytes"];
    let lines: i64 = lines.iter().map(|line| int(&one[line])).sum();
    one["unattributed_bytes"].is_null() || one["used_bytes"] == lines
}

fn gpu_lines_add_up(one: &Value, _: &Whole<'_>) -> bool {
    let once = |line: &Value| match line["is_counted_elsewhere"] == true {
        true => 0,
        false => int(&line["bytes"]),
    };
    one["processes_bytes"].is_null() || one["processes_bytes"] == sum(&one["lines"], once)
}

/// Of a line of a GPU, and of what all held before and after a sleep.
fn parts_on_gpus_add_up(one: &Value, _: &Whole<'_>) -> bool {
    let lines = [
        ("cuda", "bytes"),
        ("cuda_before", "before_bytes"),
        ("cuda_after", "after_bytes"),
    ];
    let add_up = |(parts, whole): (&str, &str)| {
        let (parts, whole) = (&one[parts], &one[whole]);
        let of = |keys: &[&str]| keys.iter().map(|key| int(&parts[*key])).sum::<i64>();
        let kinds = ["direct_bytes", "vmm_bytes", "pool_bytes", "padding_bytes"];
        let remaining = &parts["remaining_bytes"];
        let is_closed = whole.is_null() || *whole == of(&kinds) + int(remaining);
        let is_divided = parts["context_bytes"].is_null()
            || *remaining == of(&["context_bytes", "driver_bytes"]);
        !parts.is_object() || whole.is_array() || is_closed && is_divided
    };
    lines.into_iter().all(add_up)
}

fn holders_add_up(one: &Value, _: &Whole<'_>) -> bool {
    let holders = &one["holders"];
    let add_up = |kind: &str| {
        let held = sum(holders, |holder| int(&holder[format!("{kind}_bytes")]));
        int(&one[format!("sum_of_{kind}_bytes")]) == held
    };
    let unknown = sum(holders, |holder| i64::from(holder["rss_bytes"].is_null()));
    one["held_bytes"].is_null()
        || KINDS.into_iter().all(add_up) && one["unknown_process_count"] == unknown
}

fn roles_add_up(one: &Value, whole: &Whole<'_>) -> bool {
    let add_up = |kind: &str| {
        let key = format!("sum_of_{kind}_bytes");
        let roles = sum(&one["roles"], |role| int(&role["at_peak"][&key]));
        int(&one["peak"][&key]) == roles
    };
    one != whole.report || KINDS.into_iter().all(add_up)
}

fn roles_of_a_phase_add_up(one: &Value, _: &Whole<'_>) -> bool {
    let add_up = |side: &str| {
        let roles = sum(&one["roles"], |role| int(&role[side]["rss_bytes"]));
        int(&one["tree"][side]["rss_bytes"]) == roles
    };
    let has_roles = !list(&one["roles"]).is_empty() && one["tree"]["begin"].is_object();
    !has_roles || ["begin", "end"].into_iter().all(add_up)
}

fn held_is_the_sum_of_its_kinds(one: &Value, _: &Whole<'_>) -> bool {
    let kinds = ["anon", "shared", "huge", "kernel", "unnamed"];
    let parts = kinds.map(|kind| int(&one[format!("held_{kind}_bytes")]));
    one["held_bytes"].is_null() || one["held_bytes"] == parts.iter().sum::<i64>()
}

/// Whoever says how much was held at some time says no more than the peak, which is what the curve
/// shows.
fn peak_is_the_most(one: &Value, whole: &Whole<'_>) -> bool {
    let report = whole.report;
    let Some(most) = report["held_peak"]["bytes"].as_i64() else {
        return true;
    };
    let curve = list(&report["curve"]).iter();
    let highest = curve.map(|point| int(&point["max_bytes"])).max();
    let at_peak = &report["peak"]["held_bytes"];
    let is_peak = *at_peak == most && highest == Some(most);
    (one != report || is_peak)
        && int(&one["held_bytes"]) <= most
        && int(&one["held"]["peak_bytes"]) <= most
}

/// What can have been held at the peak can have been held at some time, and `--at peak` is that instant.
fn bounds_of_the_peak_hold_those_of_its_instant(one: &Value, whole: &Whole<'_>) -> bool {
    let report = whole.report;
    let (most, peak, at) = (&report["held_peak"], &report["peak"], &report["at"]);
    let keys = ["held_at_least_bytes", "held_bytes", "held_at_most_bytes"];
    let is_peak = at["at"]["boot_ns"] == peak["at"]["boot_ns"];
    let is_same = at.is_null() || !is_peak || keys.iter().all(|key| at[key] == peak[key]);
    let is_known = !most.is_null() && !peak["held_bytes"].is_null();
    one != report
        || is_same
            && (!is_known
                || int(&peak["held_at_least_bytes"]) <= int(&most["at_least_bytes"])
                    && peak["held_bytes"] == most["bytes"]
                    && int(&peak["held_at_most_bytes"]) <= int(&most["at_most_bytes"]))
}

/// Shares of processes and of roles, and the anonymous memory of a ledger, are parts of what all held.
fn parts_are_no_more_than_all(one: &Value, whole: &Whole<'_>) -> bool {
    let ledgers = list(&one["ledgers"]).iter();
    let anon = ledgers.map(|ledger| int(&ledger["anonymous_bytes"])).max();
    let is_within = one["held_bytes"].is_null() || anon <= one["held_anon_bytes"].as_i64();
    let peak = &whole.report["peak"];
    let roles = |key: &str| sum(&one["roles"], |role| int(&role["at_peak"][key]));
    let add_up = [
        ("host_bytes", "held_bytes"),
        ("own_anon_bytes", "held_anon_bytes"),
        ("own_shmem_bytes", "held_shared_bytes"),
    ];
    let is_part = |(part, all): (&str, &str)| roles(part) <= int(&peak[all]);
    is_within
        && (one != whole.report || peak["held_bytes"].is_null() || add_up.into_iter().all(is_part))
}

fn bounds_are_in_order(one: &Value, _: &Whole<'_>) -> bool {
    let bounds = [
        ["at_least_bytes", "bytes", "at_most_bytes"],
        ["held_at_least_bytes", "held_bytes", "held_at_most_bytes"],
        ["mean_bytes", "max_bytes", "max_bytes"],
        ["root_at_peak_bytes", "root_peak_bytes", "tree_peak_bytes"],
    ];
    bounds.into_iter().all(|keys| {
        let known: Vec<i64> = keys.iter().filter_map(|key| one[key].as_i64()).collect();
        known.len() < 3 || known.is_sorted()
    })
}

/// A process that is named is one of the report's, and is called there as here.
fn references_resolve(one: &Value, whole: &Whole<'_>) -> bool {
    let process = |upid: &Value| whole.processes.get(&upid.as_i64()?);
    let mut keys = one.as_object().into_iter().flatten();
    keys.all(|(key, value)| {
        if ["upids", "ended"].contains(&key.as_str()) {
            return list(value).iter().all(|upid| process(upid).is_some());
        }
        let Some(prefix) = key.strip_suffix("upid").filter(|_| !value.is_null()) else {
            return true;
        };
        let agrees = |here: &str, there: &str| match one.get(here) {
            Some(named) => process(value).is_some_and(|process| process[there] == *named),
            None => process(value).is_some(),
        };
        let name = match prefix.is_empty() && one.get("process_name").is_some() {
            true => "process_name".to_owned(),
            false => format!("{prefix}name"),
        };
        agrees(&format!("{prefix}pid"), "pid") && agrees(&name, "name")
    })
}

fn counts_are_lengths(one: &Value, _: &Whole<'_>) -> bool {
    let mut keys = one.as_object().into_iter().flatten();
    keys.all(|(key, count)| {
        let listed = match key.strip_suffix("_count") {
            Some(what) if one[what].is_array() => what.to_owned(),
            Some("process") if one["processes"].is_array() => "processes".to_owned(),
            Some("process") => "upids".to_owned(),
            Some(what) => format!("{what}s"),
            None if key == "count" => "phases".to_owned(),
            None => return true,
        };
        one[&listed].is_null() || *count == list(&one[&listed]).len()
    })
}

fn instants_agree(one: &Value, whole: &Whole<'_>) -> bool {
    let offset = int(&one["boot_ns"]) - whole.start;
    one["boot_ns"].is_null() || one["offset_ns"] == offset && one["offset_s"] == offset as f64 / 1e9
}

fn difference(begin: &Value, end: &Value) -> Value {
    let both = begin.as_i64().zip(end.as_i64());
    both.map_or(Value::Null, |(begin, end)| (end - begin).into())
}

fn changes_are_differences(one: &Value, _: &Whole<'_>) -> bool {
    let (begin, end) = (&one["begin"], &one["end"]);
    let mut kinds = one["delta"].as_object().into_iter().flatten();
    let is_change = |(key, delta): (&String, &Value)| *delta == difference(&begin[key], &end[key]);
    let is_level = one.get("begin_bytes").is_some() && one.get("delta_bytes").is_some();
    (begin.is_null() || kinds.all(is_change))
        && (!is_level || one["delta_bytes"] == difference(&one["begin_bytes"], &one["end_bytes"]))
}

fn lengths_are_differences(one: &Value, _: &Whole<'_>) -> bool {
    let ends = [("start", "end"), ("begin", "end")];
    ends.iter().all(|(begin, end)| {
        let [begin, end] = [begin, end].map(|key| &one[key]["boot_ns"]);
        begin.is_null()
            || one
                .get("duration_ns")
                .is_none_or(|length| *length == difference(begin, end))
    })
}

fn endings_add_up(one: &Value, whole: &Whole<'_>) -> bool {
    let endings = one["endings"].as_object().into_iter().flatten();
    let ended: i64 = endings.map(|(_, count)| int(count)).sum();
    one != whole.report || one["process_count"] == ended
}

fn the_largest_come_first(one: &Value, _: &Whole<'_>) -> bool {
    let lists = [
        ("processes", "/peak/rss_bytes"),
        ("holders", "/rss_bytes"),
        ("orphaned_shm", "/allocated_bytes"),
        ("anonymous", "/bytes"),
    ];
    lists.into_iter().all(|(key, size)| {
        let sizes = list(&one[key]).iter();
        sizes
            .map(|one| one.pointer(size).and_then(Value::as_i64))
            .rev()
            .is_sorted()
    })
}
