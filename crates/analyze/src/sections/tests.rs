//! Every format on every golden run.

mod documented;
mod endings;
mod invariants;
mod json;
mod leaks;
mod limits;
mod lines;
mod log_kills;

use super::*;
use crate::golden::{
    RUNS, Reported, Script, assert_shown, boot, gib, group, left_behind, near_miss, nested,
    ray_with_vllm, ray_with_vllm_later, upid, wall,
};
use crate::{Diff, DiffReport, Ending, Loss, Options};
use memtrace_model::tables::{DiagKind, LayoutPart, LayoutRow, MarkKind, Severity, TmpfsRow};
use memtrace_model::{Bytes, Label, Record, RunState, Tgid};
use memtrace_report::{Block, Cell, FORMATS, Format, Style, Table, Written, columns, is_hidden};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashSet};

fn format(name: &str) -> &'static Format {
    let mut formats = FORMATS.iter();
    formats
        .find(|format| format.name == name)
        .expect("a format")
}

fn written(format: &Format, report: &Report, style: &Style) -> String {
    said(format, &mut report.clone(), style)
}

fn said(format: &Format, report: &mut dyn Written, style: &Style) -> String {
    let mut out = Vec::new();
    let written = format.write(report, style, &mut out);
    written.expect("a Vec can be written to");
    String::from_utf8(out).expect("a report is UTF-8")
}

/// The runs whose JSON a person reviews in full: these three show the most keys between them. What
/// any JSON must hold to is in [`invariants`].
const FULL_JSON: [&str; 3] = ["oom_kill", "shared", "phases_on_gpus"];

/// The sections of which those three show little.
const JSON_OF_SECTIONS: [(&str, &[&str]); 8] = [
    ("left_behind", &["survivors", "orphaned-shm"]),
    ("losses", &["missing"]),
    ("address_space", &["address-space"]),
    ("gpus", &["gpus"]),
    ("gpu_by_calls", &["gpus"]),
    ("torch_snapshots", &["torch"]),
    ("inside", &["layout"]),
    ("loaded", &["conditions"]),
];

#[test]
fn every_format_tells_every_run_as_agreed() {
    for (name, script, at) in RUNS {
        let reported = script().reported(*at, None);
        // A page is looked at in a browser (tests/page).
        for format in FORMATS.iter().filter(|format| !format.is_page) {
            if format.name == "json" && !FULL_JSON.contains(name) {
                continue;
            }
            // Runs with thousands of processes are cut, and show that `--top` is heard.
            let top = (reported.analysis.processes.len() > 100).then_some(12);
            let style = Style {
                top,
                has_tree: true,
                ..Style::default()
            };
            let report = written(format, &reported, &style);
            insta::assert_snapshot!(format!("{name}.{}", format.name), report);
        }
    }
}

#[test]
fn files_that_others_pay_for_are_a_few_by_the_ends_of_their_paths() {
    let mut run = Script::command(&["cargo", "check"], 60.0);
    run.process(500, None, 0.0, "rustc");
    run.edit(500, |row| row.cgroup = Some("/user.slice".into()));
    run.mem(500, 1.0, [1024.0, 0.0, 0.0]);
    for (place, file) in ["driver", "LLVM", "std", "alloc", "backend"]
        .iter()
        .enumerate()
    {
        let path = format!("/opt/rust/toolchains/stable-x86_64-unknown-linux-gnu/lib/lib{file}.so");
        run.cached(500, 5.0, &path, 3072.0 - place as f64);
    }
    run.cgroup(10.0, "/user.slice", [2.125, 1.0, 0.5], None);
    let style = Style {
        section: Some("ledger"),
        ..Style::default()
    };
    let report = written(&FORMATS[0], &run.reported(None, None), &style);
    let report = report.split_whitespace().collect::<Vec<_>>().join(" ");
    let named = "(3.0 GiB of …/lib/libdriver.so, 3.0 GiB of …/lib/libLLVM.so, 3.0 GiB of …/lib/libstd.so and 2 more).";
    assert!(report.contains(named), "{report}");
}

#[test]
fn the_first_lines_say_what_happened_who_held_most_and_what_to_look_at_next() {
    let joined = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (name, script, at) in RUNS {
        if at.is_some() {
            continue;
        }
        let mut reported = script().reported(None, None);
        let path = format!("/scratch/team's runs/{}", "memtrace-".repeat(8));
        reported.analysis.path = Some(path);
        let analysis = &reported.analysis;
        let lines = answer::lines(analysis);
        for width in [80, 100] {
            let style = Style {
                width,
                has_path: true,
                ..Style::default()
            };
            let text = written(&FORMATS[0], &reported, &style);
            let head: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).collect();
            assert!(head.len() <= 12, "{name} at {width}: {head:#?}");
            let shown = joined(&head.join(" "));
            for line in &lines {
                assert!(
                    shown.contains(&joined(&line.text)),
                    "{name}: {} in {shown}",
                    line.text
                );
                let command = line.command.as_deref().unwrap_or_default();
                assert!(head.iter().any(|one| one.trim() == command) || command.is_empty());
            }
        }
        let about = |topic: &str| lines.iter().find(|line| line.about.as_str() == topic);
        let happened = about("what_happened").expect("the end");
        let concerned = analysis.ooms.iter().find(|kill| !kill.is_elsewhere);
        if let Some(kill) = concerned {
            let cause = kill.row.memcg.as_deref().map_or_else(
                || "the machine was out of memory".to_owned(),
                |memcg| analysis.cgroup_in_short(memcg),
            );
            assert!(happened.text.contains(&cause), "{name}: {}", happened.text);
            assert!(happened.text.contains("grew"), "{name}: {}", happened.text);
        }
        assert_eq!(
            happened.is_alarming,
            concerned.is_some() || is_alarming(analysis),
            "{name}"
        );
        if let Some(peak) = &analysis.peak {
            let held = &about("most_held").expect("the peak").text;
            let largest = peak
                .holders
                .iter()
                .max_by_key(|holder| holder.amounts.anon());
            let largest = largest
                .and_then(|holder| holder.who.name.as_deref())
                .expect("a holder");
            let begin: String = memtrace_report::visible(largest).chars().take(20).collect();
            let is_named = held.contains(&begin);
            let is_one_of_several = held.contains(" each") || held.contains(" × ");
            assert!(
                is_named || is_one_of_several,
                "{name}: {largest} is not in {held}"
            );
        }
        let command = about("look_next").and_then(|line| line.command.as_deref());
        let command = command.expect("a command");
        let begin = "memtrace report '/scratch/team'\\''s runs/memtrace-";
        assert!(command.starts_with(begin), "{name}: {command}");
    }
}

/// Whether somebody was killed or crashed, the command failed, or the recording was cut off.
fn is_alarming(analysis: &Analysis) -> bool {
    let ending = analysis.command_ending();
    let has_failed = matches!(ending, Some(Ending::Exited(code)) if code != 0);
    let is_cut_off = ending.is_none() && analysis.info.state != RunState::Closed;
    let abnormal = abnormal_endings::AbnormalEndings::of(analysis);
    let abnormal = serde_json::to_value(abnormal).expect("JSON");
    let all = abnormal["abnormal_endings"].as_array();
    let violent = all.is_some_and(|all| !all.is_empty());
    has_failed || is_cut_off || violent
}

#[test]
fn a_command_to_look_next_is_read_by_a_shell_as_it_was_meant() {
    let run = || {
        let mut run = Script::command(&["a"], 30.0);
        run.process(1, None, 0.0, "a");
        run.mem(1, 1.0, [10.0, 1.0, 0.0]);
        run
    };
    for path in [
        "plain",
        "-x",
        "two words",
        "it's",
        "new\nline",
        "$(x) `y` \\",
    ] {
        let mut reported = run().reported(None, None);
        reported.analysis.path = Some(path.to_owned());
        let lines = answer::lines(&reported.analysis);
        let command = lines.iter().find_map(|line| line.command.as_deref());
        let command = command.expect("a command");
        let words = command.replacen("memtrace", "printf '%s\\0'", 1);
        let read = std::process::Command::new("bash")
            .args(["-c", &words])
            .output();
        let read = String::from_utf8(read.expect("a shell").stdout).expect("UTF-8");
        let words: Vec<&str> = read.split('\0').collect();
        assert_eq!(words, ["report", path, "--at", "peak", ""], "{command}");
        assert!(!command.contains('\n'), "{command}");
    }
}

#[test]
fn one_process_is_reported_on_one_page() {
    let (_, script, _) = RUNS
        .iter()
        .find(|(name, ..)| *name == "inside")
        .expect("a run");
    let options = |process: &str| Options {
        process: Some(process.to_owned()),
        at: Some("+310s".parse().expect("a moment")),
        ..Options::default()
    };
    let reported = script().reported_with(options("710"));
    for format in ["text", "md"] {
        let shown = written(self::format(format), &reported, &Style::default());
        insta::assert_snapshot!(format!("inside.process.{format}"), shown);
    }
    for wanted in ["OFFLOAD", "740"] {
        let life = script().reported_with(options(wanted));
        let json = written(self::format("json"), &life, &Style::default());
        let json: Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["process"]["pid"], 740);
        assert_eq!(json["process"]["shared"][0]["others"][0]["pid"], 710);
    }
}

#[test]
fn an_oom_kill_says_what_is_inside_of_who_grew() {
    let (_, script, _) = RUNS
        .iter()
        .find(|(name, ..)| *name == "oom_kill")
        .expect("a run");
    let mut run = script();
    for tgid in 600..616 {
        run.put(LayoutRow {
            boot_ns: boot(90.0),
            upid: upid(Tgid(tgid)),
            part: Some(LayoutPart::GlibcMmapped),
            item_count: 9,
            rss_bytes: gib(2.0),
            private_bytes: gib(2.0),
            ..LayoutRow::default()
        });
    }
    let reported = run.reported(None, None);
    let text = written(format("text"), &reported, &Style::default());
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let says = "gained 2.0 GiB by +90.0s: live data in large blocks of malloc (+2.0 GiB).";
    assert_eq!(joined.matches(says).count(), 2, "{text}");
    assert!(joined.contains("Inside: "), "{text}");
}

#[test]
fn anonymous_memory_of_no_known_allocator_is_called_that() {
    let mut run = Script::command(&["x"], 100.0);
    run.process(1, None, 0.0, "x");
    run.mem(1, 80.0, [300.0, 0.0, 0.0]);
    run.put(LayoutRow {
        boot_ns: boot(90.0),
        upid: upid(Tgid(1)),
        part: Some(LayoutPart::Other),
        item_count: 3,
        rss_bytes: Bytes(300 << 20),
        private_bytes: Bytes(300 << 20),
        ..LayoutRow::default()
    });
    let style = Style {
        section: Some("layout"),
        ..Style::default()
    };
    let text = written(format("text"), &run.reported(None, None), &style);
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let says = "gained 300 MiB by +90.0s: anonymous memory of no allocator that memtrace knows; it is in \
                other anonymous mappings (+300 MiB).";
    assert!(joined.contains(says), "{text}");
}

#[test]
fn json_has_the_keys_of_a_section() {
    for (name, sections) in JSON_OF_SECTIONS {
        let reported = with_phase(name, None);
        for section in sections {
            let style = Style {
                section: Some(section),
                ..Style::default()
            };
            let json = written(format("json"), &reported, &style);
            insta::assert_snapshot!(format!("{name}.{section}.json"), json);
        }
    }
}

/// That each column of a table has a name of its own, which tells the unit of its cells.
fn check_names(table: &Table, place: &str) {
    let mut names = HashSet::new();
    for column in table.columns.iter().filter(|one| !one.name.is_empty()) {
        let name = &column.name;
        assert!(names.insert(name), "{place}: {name} twice");
        let tells = |cell: &Cell| match cell {
            Cell::Bytes(_) | Cell::Held(_) | Cell::AtLeast(_) | Cell::Change(_) => {
                name.contains("bytes")
            }
            Cell::Rate(_) => name.ends_with("_bytes_per_hour"),
            Cell::Took(_) | Cell::At(_) => name.ends_with("_s"),
            _ => true,
        };
        assert!(column.cells.iter().all(tells), "{place}: {name}");
    }
}

#[test]
fn every_column_has_a_name_of_its_own_that_tells_the_unit() {
    let style = Style {
        has_tree: true,
        has_phases: true,
        ..Style::default()
    };
    for (run, script, at) in RUNS {
        let reported = script().reported(*at, None);
        for block in reported
            .chapters(&style)
            .iter()
            .flat_map(|shown| &shown.blocks)
        {
            if let Block::Table(table) = block {
                check_names(table, run);
            }
        }
        for section in SECTIONS {
            let tables = section.tables.map(|fill| fill(&reported, 12));
            tables
                .into_iter()
                .flatten()
                .for_each(|table| check_names(&table, &format!("{run}, {}", section.name)));
        }
    }
}

#[test]
fn sections_have_unique_names_a_line_on_each_and_together_every_key() {
    let mut names = HashSet::new();
    assert!(SECTIONS.iter().all(|section| names.insert(section.name)));
    assert!(SECTIONS.iter().all(|section| !section.doc.is_empty()));
    let reported = ray_with_vllm().reported(None, None);
    let json = written(format("json"), &reported, &Style::default());
    let json: BTreeMap<String, Value> = serde_json::from_str(&json).expect("JSON");
    let head = ["format", "version", "memtrace_version"];
    let keys = SECTIONS.iter().flat_map(|section| section.keys);
    let keys: BTreeSet<&str> = keys.copied().chain(head).collect();
    assert_eq!(
        json.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        keys
    );
}

#[test]
fn a_section_alone_says_what_it_says_in_the_whole_report() {
    for (run, script, at) in RUNS {
        let reported = script().reported(*at, None);
        let all = Style {
            top: Some(12),
            is_full: true,
            has_tree: true,
            has_phases: true,
            ..Style::default()
        };
        let text = written(&FORMATS[0], &reported, &all);
        let json = written(format("json"), &reported, &all);
        let json: BTreeMap<String, Value> = serde_json::from_str(&json).expect("JSON");
        let mode = memtrace_report::Reported::mode(&reported, &all);
        for section in SECTIONS {
            let name = section.name;
            let style = Style {
                section: Some(name),
                ..all
            };
            let alone = written(&FORMATS[0], &reported, &style);
            let is_nothing = alone.starts_with(&format!("{name}: nothing to report\n"));
            let in_one_line = alone.split_whitespace().collect::<Vec<_>>().join(" ");
            let has_doc = in_one_line.contains(&format!("It would show {}.", section.doc));
            assert!(!is_nothing || has_doc, "{alone}");
            // What others left is one line there.
            let is_one_line = alone.contains("USED BY") && !text.contains(&alone);
            assert!(!is_one_line || text.contains("`--section orphaned-shm`"));
            let is_there = section.modes.contains(&mode) && !is_one_line;
            // What the first lines say already is not said again, but all else is.
            let is_in_answer = ["oom-kills", "abnormal", "steps"].contains(&name);
            let head = text.split("\n\n").next().unwrap_or_default();
            let head = head.split_whitespace().collect::<Vec<_>>().join(" ");
            let shown = alone.split("\n  ").skip(1);
            let shown: Vec<&str> = shown.filter(|part| !text.contains(*part)).collect();
            let shown = shown
                .join(" ")
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ");
            let is_reported = match is_in_answer {
                true => head.contains(&shown),
                false => text.contains(&alone),
            };
            assert!(
                !is_there || is_nothing || is_reported,
                "{run}: {shown} of {alone}"
            );
            let alone = written(format("json"), &reported, &style);
            let alone: BTreeMap<String, Value> = serde_json::from_str(&alone).expect("JSON");
            assert_eq!(alone.len(), 3 + section.keys.len(), "{run}: {name}");
            assert!(
                alone.iter().all(|(key, value)| json[key] == *value),
                "{run}: {name}"
            );
        }
    }
}

#[test]
fn csv_has_the_table_of_a_section() {
    let cases = [
        ("left_behind", &["survivors", "orphaned-shm"][..]),
        ("oom_kill", &["peak", "endings"]),
        ("loaded", &["conditions"]),
        ("shared", &["ledger"]),
        ("vllm_on_gpus", &["roles", "gpus"]),
        ("vllm_start_up", &["phases", "trees"]),
        ("address_space", &["address-space"]),
        ("steps_that_leak", &["growth"]),
        ("nothing", &["peak", "at", "phase"]),
    ];
    for (name, sections) in cases {
        let run = RUNS.iter().find(|(run, ..)| *run == name);
        let reported = run.expect("a run of that name").1().reported(None, None);
        for section in sections {
            let style = Style {
                section: Some(section),
                ..Style::default()
            };
            let csv = written(format("csv"), &reported, &style);
            insta::assert_snapshot!(format!("{name}.{section}.csv"), csv);
        }
    }
}

#[test]
fn what_a_killed_process_leaves_on_a_gpu_is_reported_where_it_ended_and_at_the_end() {
    let reported = crate::golden::left_by_a_killed().reported(None, None);
    let text = written(&FORMATS[0], &reported, &Style::default());
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "GPU 0: 20.4 GiB was still used when the recording ended",
        "20.1 GiB of 61.1 GiB stayed, held by no process",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn what_could_not_be_seen_from_some_time_on_is_reported_with_the_time() {
    use crate::golden::boot;
    let shown = |at: f64| {
        let mut run = Script::command(&["a"], 30.0);
        run.process(1, None, 0.0, "a");
        run.mem(1, 1.0, [10.0, 1.0, 0.0]);
        run.put(memtrace_model::DiagRow {
            ts: memtrace_model::WallNs(boot(at).0),
            boot_ns: boot(at),
            severity: Some(Severity::Degraded),
            kind: Some(DiagKind::Unavailable),
            subject: "GPU-0".to_owned(),
            count: None,
            detail: "its memory is unknown from here on: Unknown Error".to_owned(),
        });
        written(&FORMATS[0], &run.reported(None, None), &Style::default())
    };
    assert!(shown(12.0).contains("Unknown Error (+12.0s)."));
    assert!(shown(0.5).contains("Unknown Error.\n"));
}

#[test]
fn gpus_that_differ_are_reported_and_compared_in_every_format_however_narrow() {
    use crate::golden::{card, gib, on_card};
    use memtrace_model::tables::GpuDeviceRow;
    let run = |held: f64, name: &str| {
        let mut run = Script::command(&["a"], 30.0);
        run.process(1, None, 0.0, "a");
        run.mem(1, 1.0, [10.0, 1.0, 0.0]);
        run.put(GpuDeviceRow {
            name: Some(name.to_owned()),
            ..card(0, 2.0, held)
        });
        run.put(on_card(0, 1, 2.0, Some(gib(held))));
        run.reported(None, None)
    };
    let shown = |before: &Report, after: &Report, format: &Format| {
        let mut shown: DiffReport<Diff> = DiffReport::of(before.clone(), after.clone(), None);
        let style = Style {
            width: 60,
            ..Style::default()
        };
        said(format, &mut shown, &style)
    };
    let (before, after) = (run(10.0, "H100"), run(20.0, "B200"));
    let text = shown(&before, &after, &FORMATS[0]);
    assert!(text.contains("1 × H100 in A, 1 × B200 in B"), "{text}");
    assert!(text.contains("GPU A     GPU B"), "{text}");
    assert!(text.contains("10.0 GiB  20.0 GiB"), "{text}");
    let csv = shown(&before, &after, format("csv"));
    let line = format!("gpu,1,1,{},{},,,,", gib(10.0), gib(20.0));
    assert!(csv.contains(&line), "{csv}");
    let json = shown(&before, &after, format("json"));
    assert!(json.contains("\"B200\""), "{json}");
    let same = shown(&before, &run(20.0, "H100"), &FORMATS[0]);
    assert!(!same.contains("Other GPUs"), "{same}");
}

#[test]
fn every_format_tells_what_changed_between_two_runs() {
    let before = ray_with_vllm().reported(None, None);
    let after = ray_with_vllm_later().reported(None, None);
    let mut shown: DiffReport<Diff> = DiffReport::of(before, after, Some(0.05));
    for format in FORMATS.iter().filter(|format| !format.is_page) {
        let report = said(format, &mut shown, &Style::default());
        insta::assert_snapshot!(format!("diff.{}", format.name), report);
    }
    for width in [60, 80, 120] {
        let style = Style {
            width,
            ..Style::default()
        };
        let report = said(&FORMATS[0], &mut shown, &style);
        for line in report.lines() {
            assert!(columns(line) <= width, "{width}: {line}");
        }
    }
}

#[test]
fn the_text_fits_a_narrow_and_a_wide_terminal() {
    for (name, script, at) in RUNS {
        let reported = script().reported(*at, None);
        for width in [60, 80, 100, 120, 200] {
            let style = Style {
                width,
                has_tree: true,
                is_full: width > 100,
                ..Style::default()
            };
            let report = written(&FORMATS[0], &reported, &style);
            for line in report.lines() {
                let columns = columns(line);
                // A command to type is one line, however long.
                let is_command = line.trim_start().starts_with("memtrace report ");
                assert!(
                    columns <= width || is_command,
                    "{name} at {width}: {columns} columns: {line}"
                );
            }
            if width == 80 {
                insta::assert_snapshot!(format!("{name}.80.text"), report);
            }
        }
    }
}

#[test]
fn a_recording_that_was_not_named_is_named_in_the_head() {
    let reported = RUNS[0].1().reported(None, None);
    let style = Style {
        has_path: true,
        ..Style::default()
    };
    let report = written(&FORMATS[0], &reported, &style);
    let head = report.split("\n\n").next().expect("a head");
    assert_eq!(head.matches("memtrace-gpu-node-7-").count(), 1, "{head}");
    let log = Style {
        is_startup_log: true,
        ..style
    };
    let report = written(&FORMATS[0], &reported, &log);
    let second = report.lines().nth(1).expect("a second line");
    assert!(second.contains("memtrace-gpu-node-7-"), "{second}");
}

#[test]
fn nothing_that_a_terminal_would_act_on_reaches_any_format() {
    for (name, script, at) in RUNS {
        let reported = script().reported(*at, None);
        for format in FORMATS {
            let report = written(
                format,
                &reported,
                &Style {
                    has_tree: true,
                    ..Style::default()
                },
            );
            let report = report.replace("\r\n", "\n").replace('\n', "");
            let hidden = report.find(is_hidden);
            assert_eq!(hidden, None, "{name} as {}", format.name);
        }
    }
}

#[test]
fn colours_come_only_when_asked_for_and_change_no_letter() {
    let reported = RUNS[0].1().reported(None, None);
    let plain = written(&FORMATS[0], &reported, &Style::default());
    let style = Style {
        has_color: true,
        ..Style::default()
    };
    let coloured = written(&FORMATS[0], &reported, &style);
    assert!(coloured.contains("\x1b[1m"));
    let mut stripped = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once('\x1b') {
        stripped.push_str(before);
        rest = after.split_once('m').map_or("", |(_, after)| after);
    }
    stripped.push_str(rest);
    assert_eq!(stripped, plain);
}

#[test]
fn the_list_of_formats_has_unique_names_and_a_line_on_each() {
    let mut names: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), FORMATS.len());
    assert!(FORMATS.iter().all(|format| !format.doc.is_empty()));
}

#[test]
fn the_first_screen_of_the_text_is_the_answer() {
    let reported = RUNS[0].1().reported(None, None);
    let report = written(
        &FORMATS[0],
        &reported,
        &Style {
            width: 80,
            ..Style::default()
        },
    );
    let screen: Vec<&str> = report.lines().take(25).collect();
    let screen = screen.join("\n");
    for answer in ["Peak of the tree", "VLLM::Worker_TP0", "Look next", "GiB"] {
        assert!(screen.contains(answer), "{answer} is not in\n{screen}");
    }
}

/// A run of that name, with an eye on a phase.
fn with_phase(name: &str, phase: Option<&str>) -> Report {
    let run = RUNS.iter().find(|(run, _, _)| *run == name);
    run.expect("a run of that name").1().reported(None, phase)
}

#[test]
fn phases_are_reported_in_full_one_by_one_and_as_a_log() {
    let all = Style {
        has_phases: true,
        ..Style::default()
    };
    let log = Style {
        is_startup_log: true,
        ..Style::default()
    };
    let plain = Style::default();
    let cases: [(&str, &str, Option<&str>, &Style); 10] = [
        ("all", "vllm_start_up", None, &all),
        ("log", "vllm_start_up", None, &log),
        ("one", "vllm_start_up", Some("load_model"), &plain),
        ("log", "steps_that_leak", None, &log),
        (
            "stage",
            "steps_that_leak",
            Some("step_*_after_rollout"),
            &plain,
        ),
        (
            "calls",
            "steps_that_leak",
            Some("ray::Rollout.generate"),
            &plain,
        ),
        ("all", "phases_on_gpus", None, &all),
        ("log", "phases_on_gpus", None, &log),
        ("one", "phases_on_gpus", Some("load_model"), &plain),
        ("stage", "phases_on_gpus", Some("rollout"), &plain),
    ];
    for (case, run, phase, style) in cases {
        let reported = with_phase(run, phase);
        for width in [80, 100, 200] {
            let style = Style { width, ..*style };
            let report = written(&FORMATS[0], &reported, &style);
            let widest = report.lines().map(columns).max();
            assert!(widest.is_some_and(|widest| widest <= width), "{report}");
            if width == 100 {
                insta::assert_snapshot!(format!("{run}.{case}.text"), report);
            } else if width == 200 && run == "phases_on_gpus" {
                insta::assert_snapshot!(format!("{run}.{case}.200.text"), report);
            }
        }
    }
    let rows = Style {
        section: Some("phase"),
        ..plain
    };
    let stage = with_phase("steps_that_leak", Some("step_*_after_rollout"));
    let csv = written(format("csv"), &stage, &rows);
    assert_eq!(csv.lines().count(), 1 + 40, "one row a step: {csv}");
    let ends: Vec<&str> = csv.lines().take(4).collect();
    insta::assert_snapshot!("steps_that_leak.rows.csv", ends.join("\n"));
    let one = with_phase("vllm_start_up", Some("capture_graphs"));
    let report = written(format("json"), &one, &Style::default());
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    insta::assert_snapshot!("vllm_start_up.one.json", format!("{:#}", report["phase"]));
    let stage = with_phase("phases_on_gpus", Some("rollout"));
    let report = written(format("json"), &stage, &Style::default());
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let shown = &report["phase"];
    let part = format!(
        "{:#}\n{:#}",
        shown["line"]["roles"], shown["line"]["devices"]
    );
    insta::assert_snapshot!("phases_on_gpus.stage.json", part);
}

#[test]
fn why_the_size_of_an_object_is_unknown_is_reported_by_whether_it_could_have_been_asked_for() {
    let shown = |capabilities: serde_json::Value| {
        let mut run = Script::command(&["a"], 30.0);
        run.process(1, None, 0.0, "a");
        run.edit(1, |row| row.cgroup = Some("/pod".into()));
        run.mem(1, 1.0, [100.0, 1.0, 50.0]);
        run.unasked_object(1, 5.0, "/dev/shm/plasmaA");
        run.cgroup(9.0, "/pod", [1.0, 0.25, 0.25], None);
        run.info.host = serde_json::json!({ "capabilities": capabilities });
        let style = Style {
            section: Some("ledger"),
            ..Style::default()
        };
        let report = written(&FORMATS[0], &run.reported(None, None), &style);
        report.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let gone = "Whenever the unknown objects were to be read, the processes that mapped them";
    let refused = "through a process that has it, which takes CAP_CHECKPOINT_RESTORE";
    for may_ask in ["CAP_CHECKPOINT_RESTORE", "CAP_SYS_ADMIN"] {
        let shown = shown(serde_json::json!(["CAP_BPF", may_ask]));
        assert!(shown.contains("1 object of unknown amount"), "{shown}");
        assert!(shown.contains(gone) && !shown.contains(refused), "{shown}");
    }
    let shown = shown(serde_json::json!(["CAP_BPF"]));
    assert!(shown.contains(refused) && !shown.contains(gone), "{shown}");
}

#[test]
fn who_held_most_is_named_with_a_part_of_what_all_held() {
    let shown = |inherited: f64, is_anyone_read: bool| {
        let mut run = Script::command(&["a"], 30.0);
        run.process(1, None, 0.0, "a");
        run.mem(1, 0.5, [400.0, 1.0, 0.0]);
        if is_anyone_read {
            run.pss(1, 0.6, [400.0, 400.0], true);
        }
        for child in 2..6 {
            run.process(child, Some(1), 1.0, "worker");
            run.inherits(child, inherited);
            run.mem(child, 2.0, [512.0, 1.0, 0.0]);
        }
        let lines = answer::lines(&run.reported(None, None).analysis);
        let mut held = lines
            .iter()
            .filter(|line| line.about.as_str() == "most_held");
        held.next().expect("the peak").text.clone()
    };
    for is_anyone_read in [true, false] {
        // What they share counts for the one that forked them.
        let shared = shown(400.0, is_anyone_read);
        assert!(shared.starts_with("848 MiB (at most 2.4 GiB)"), "{shared}");
        assert!(shared.contains("the most in 1 a: 400 MiB"), "{shared}");
        let own = shown(0.0, is_anyone_read);
        assert!(own.contains("4 processes, 512 MiB each"), "{own}");
    }
}

#[test]
fn without_marks_there_is_no_word_of_phases_unless_asked() {
    let reported = with_phase("trainer_with_vllm", None);
    let shown = |style: Style| written(&FORMATS[0], &reported, &style);
    assert!(!shown(Style::default()).contains("Phase"));
    let asked = Style {
        has_phases: true,
        ..Style::default()
    };
    assert!(shown(asked).contains("nothing was marked"));
}
