//! Samples as the files that per-run profilers of Python programs write, so that scripts made
//! for those can read a recording: `memory_samples.csv`, `memory_samples.jsonl`,
//! `memory_summary.json` and `memory_summary.md`. An empty cell or null is unknown. What each column
//! means stands in docs/exports.md.

use super::{Allocated, LabelledPeak, MemorySample, Names, SampleSummary, Samples};
use crate::Process;
use memtrace_model::{BootNs, Bytes, DurationNs};
use memtrace_model::{Order, masked};
use memtrace_report::{quote, visible, write_line, write_object};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

const GIB: f64 = (1_u64 << 30) as f64;
const MIB: f64 = (1_u64 << 20) as f64;

/// So many processes are named in the summary.
const SUMMARY_PROCESSES: usize = 20;

type Cell = fn(&Samples, &MemorySample<'_>) -> Option<String>;

/// Every column of `memory_samples.csv`, in order, and how it is filled.
const COLUMNS: &[(&str, Cell)] = &[
    ("timestamp_iso", |samples, sample| {
        time(samples, sample.boot_ns)
    }),
    ("elapsed_s", |samples, sample| {
        Some(format!("{:.3}", elapsed(samples, sample.boot_ns)))
    }),
    ("label", |_, sample| Some(sample.label.to_owned())),
    ("main_rss_gib", |_, sample| gib(sample.main_rss?)),
    ("main_vms_gib", |_, sample| gib(sample.main_vm_size?)),
    ("children_rss_gib", |_, sample| gib(sample.children_rss?)),
    ("total_tracked_rss_gib", |samples, sample| {
        gib(total(samples, sample)?)
    }),
    ("system_used_gib", |_, sample| gib(used(sample)?)),
    ("system_available_gib", |_, sample| {
        gib(sample.node?.available)
    }),
    ("system_percent", |_, sample| {
        Some(format!("{:.2}", percent(sample)?))
    }),
    ("python_heap_mib", |_, sample| {
        mib(allocated(sample, "python_heap_bytes")?)
    }),
    ("python_heap_peak_mib", |_, sample| {
        mib(allocated(sample, "python_heap_peak_bytes")?)
    }),
    ("python_heap_age_s", |_, sample| {
        age(sample.allocations.age("python_heap_")?)
    }),
    ("torch_cuda_alloc_gib", |_, sample| {
        gib(allocated(sample, "torch_cuda_alloc_bytes")?)
    }),
    ("torch_cuda_reserved_gib", |_, sample| {
        gib(allocated(sample, "torch_cuda_reserved_bytes")?)
    }),
    ("torch_mps_alloc_gib", |_, sample| {
        gib(allocated(sample, "torch_mps_alloc_bytes")?)
    }),
    ("torch_mps_driver_gib", |_, sample| {
        gib(allocated(sample, "torch_mps_driver_bytes")?)
    }),
    ("torch_age_s", |_, sample| {
        age(sample.allocations.age("torch_")?)
    }),
    ("main_source", |_, sample| {
        sample
            .main_rss
            .map(|_| sample.main_source.as_str().to_owned())
    }),
];

/// The first line of a CSV file.
pub(super) fn head(
    out: &mut dyn Write,
    names: Names,
    columns: impl Iterator<Item = &'static str>,
) -> io::Result<()> {
    let names: Vec<_> = columns.map(|column| names.of(column)).collect();
    write!(out, "{}\r\n", names.join(","))
}

/// A line of a CSV file.
pub(super) fn line(
    out: &mut dyn Write,
    cells: impl Iterator<Item = Option<String>>,
) -> io::Result<()> {
    for (place, cell) in cells.enumerate() {
        let between = if place == 0 { "" } else { "," };
        write!(out, "{between}{}", quote(&cell.unwrap_or_default()))?;
    }
    write!(out, "\r\n")
}

/// Writes the first line of `memory_samples.csv`.
///
/// # Errors
/// When `out` can't be written to.
pub fn csv_head(out: &mut dyn Write, names: Names) -> io::Result<()> {
    head(out, names, COLUMNS.iter().map(|(name, _)| *name))
}

/// Writes one line of `memory_samples.csv`.
///
/// # Errors
/// When `out` can't be written to.
pub fn csv_line(
    out: &mut dyn Write,
    samples: &Samples,
    sample: &MemorySample<'_>,
) -> io::Result<()> {
    line(out, COLUMNS.iter().map(|(_, cell)| cell(samples, sample)))
}

/// Writes one line of `memory_samples.jsonl`.
///
/// # Errors
/// When `out` can't be written to.
pub fn json_line(
    out: &mut dyn Write,
    samples: &Samples,
    sample: &MemorySample<'_>,
) -> io::Result<()> {
    let children = sample.top_children.iter().map(|(position, rss)| {
        let mut child = who(&samples.processes[*position]);
        child.insert("rss_bytes".to_owned(), json!(rss));
        child
    });
    let mut line = json!({
        "timestamp": samples.clock.to_wall(sample.boot_ns).map(|wall| wall.0 as f64 / 1e9),
        "timestamp_iso": time(samples, sample.boot_ns),
        "elapsed_s": elapsed(samples, sample.boot_ns),
        "label": sample.label,
        "main_rss_bytes": sample.main_rss,
        "main_vms_bytes": sample.main_vm_size,
        "main_source": sample.main_rss.map(|_| sample.main_source.as_str()),
        "children_rss_bytes": sample.children_rss,
        "total_tracked_rss_bytes": total(samples, sample),
        "system_used_bytes": used(sample),
        "system_available_bytes": sample.node.map(|node| node.available),
        "system_percent": percent(sample),
        "python_heap_age_s": sample.allocations.age("python_heap_").map(DurationNs::as_secs_f64),
        "torch_age_s": sample.allocations.age("torch_").map(DurationNs::as_secs_f64),
        "top_children": children.collect::<Vec<_>>(),
    });
    for (attribute, allocated) in sample.allocations.iter() {
        line[attribute] = json!(allocated.map(|allocated| allocated.bytes));
    }
    write_line(&line, out)
}

/// Writes `memory_summary.json`.
///
/// # Errors
/// When `out` can't be written to.
pub fn summary_json(
    out: &mut dyn Write,
    names: Names,
    samples: &Samples,
    summary: &SampleSummary,
) -> io::Result<()> {
    let amount = |peak: &Option<LabelledPeak>| peak.as_ref().map(|peak| gibs(peak.bytes));
    let label = |peak: &Option<LabelledPeak>| peak.as_ref().map(|peak| peak.label.to_string());
    let at = |peak: &Option<LabelledPeak>| time(samples, peak.as_ref()?.boot_ns);
    let children = children(samples).into_iter().map(|(process, peak)| {
        let mut child = who(process);
        child.insert(names.of("peak_rss_gib").into_owned(), json!(gibs(peak)));
        let is_earlier = json!(process.peak.is_earlier);
        child.insert("is_peak_before_recording".to_owned(), is_earlier);
        child
    });
    let text = json!({
        names.of("peak_main_rss_gib"): amount(&summary.main),
        "peak_main_label": label(&summary.main),
        "peak_main_timestamp": at(&summary.main),
        names.of("peak_children_rss_gib"): amount(&summary.children),
        "peak_children_label": label(&summary.children),
        "peak_children_timestamp": at(&summary.children),
        names.of("peak_total_tracked_rss_gib"): amount(&summary.total),
        "peak_total_label": label(&summary.total),
        "peak_total_timestamp": at(&summary.total),
        "top_child_processes_by_peak_rss": children.collect::<Vec<_>>(),
    });
    write_object(&text, out)
}

/// Writes `memory_summary.md`.
///
/// # Errors
/// When `out` can't be written to.
pub fn summary_markdown(
    out: &mut dyn Write,
    samples: &Samples,
    summary: &SampleSummary,
) -> io::Result<()> {
    writeln!(out, "# Memory Profile Summary\n")?;
    for (name, peak) in [
        ("main process RSS", &summary.main),
        ("children total RSS", &summary.children),
        ("total tracked RSS", &summary.total),
    ] {
        match peak {
            Some(peak) => writeln!(
                out,
                "- Peak {name}: `{:.3} GiB` at `{}` ({})",
                gibs(peak.bytes),
                in_code(&peak.label),
                time(samples, peak.boot_ns).unwrap_or_default(),
            )?,
            None => writeln!(out, "- Peak {name}: unknown")?,
        }
    }
    writeln!(out, "\n## Top Child Processes by Peak RSS\n")?;
    writeln!(out, "| PID | Role | Rank | Name | Peak RSS (GiB) | Title |")?;
    writeln!(out, "| --- | --- | --- | --- | ---: | --- |")?;
    for (process, peak) in children(samples) {
        let pid = process
            .tgid
            .map_or_else(String::new, |tgid| tgid.to_string());
        let remark = match process.peak.is_earlier {
            true => " (before the recording)",
            false => "",
        };
        writeln!(
            out,
            "| {pid} | {} | {} | {} | {:.3}{remark} | `{}` |",
            in_code(role(process).unwrap_or_default()),
            in_code(rank(process).unwrap_or_default()),
            in_code(&process.comm),
            gibs(peak),
            in_code(&title(process).unwrap_or_default()),
        )?;
    }
    Ok(())
}

/// All but the main process with their own peaks, the highest first.
fn children(samples: &Samples) -> Vec<(&Process, Bytes)> {
    let processes = samples.processes.iter().enumerate();
    let mut children: Vec<(&Process, Bytes)> = processes
        .filter(|(position, _)| Some(*position) != samples.main)
        .filter_map(|(_, process)| {
            // One that has ended held nothing at the end.
            let at_end = process.exit_boot_ns().map(|_| Bytes(0));
            Some((process, process.peak.rss_bytes.or(at_end)?))
        })
        .collect();
    children.order_by_key(|(process, peak)| (std::cmp::Reverse(*peak), process.upid));
    children.truncate(SUMMARY_PROCESSES);
    children
}

/// Who a process is, wherever an object tells of one.
fn who(process: &Process) -> Map<String, Value> {
    let keys = [
        ("pid", json!(process.tgid)),
        ("role", json!(role(process))),
        ("rank", json!(rank(process))),
        ("name", json!(&*process.comm)),
        ("title", json!(title(process))),
        ("cmdline", json!(cmdline(process))),
    ];
    keys.map(|(key, value)| (key.to_owned(), value))
        .into_iter()
        .collect()
}

pub(super) fn role(process: &Process) -> Option<&str> {
    Some(&process.role.as_ref()?.role)
}

pub(super) fn rank(process: &Process) -> Option<&str> {
    process.role.as_ref()?.rank.as_deref()
}

/// Its last title, whole; the command line of one that never had another.
pub(super) fn title(process: &Process) -> Option<String> {
    let title = process.title.as_ref().or(process.cmdline.as_ref());
    title.map(|title| masked(title).into_owned())
}

fn cmdline(process: &Process) -> Option<String> {
    process
        .cmdline
        .as_deref()
        .map(|cmdline| masked(cmdline).into_owned())
}

fn in_code(text: &str) -> String {
    let text = visible(text).replace('|', "\\|");
    text.replace('`', "'")
}

/// RFC 3339 in UTC to the millisecond, with the offset that every version of Python's
/// `fromisoformat` reads.
pub(super) fn time(samples: &Samples, at: BootNs) -> Option<String> {
    let wall = samples.clock.to_wall(at)?;
    let text = wall.rfc3339()?;
    let (seconds, _) = text.split_at_checked("2026-03-01T12:01:44".len())?;
    let millis = wall.0.rem_euclid(1_000_000_000) / 1_000_000;
    Some(format!("{seconds}.{millis:03}+00:00"))
}

pub(super) fn elapsed(samples: &Samples, at: BootNs) -> f64 {
    samples.clock.offset(at).as_secs_f64()
}

/// Unknown while what the main process holds is, where there is one.
fn total(samples: &Samples, sample: &MemorySample<'_>) -> Option<Bytes> {
    let main = match samples.main {
        Some(_) => sample.main_rss?,
        None => Bytes(0),
    };
    Some(main + sample.children_rss?)
}

fn used(sample: &MemorySample<'_>) -> Option<Bytes> {
    let node = sample.node?;
    Some(node.total - node.available)
}

fn percent(sample: &MemorySample<'_>) -> Option<f64> {
    let node = sample.node?;
    (node.total.0 > 0).then(|| (node.total - node.available).0 as f64 * 100.0 / node.total.0 as f64)
}

fn allocated(sample: &MemorySample<'_>, attribute: &str) -> Option<Bytes> {
    sample
        .allocations
        .get(attribute)
        .map(|Allocated { bytes, .. }| bytes)
}

fn age(age: DurationNs) -> Option<String> {
    Some(format!("{:.3}", age.as_secs_f64()))
}

fn gibs(bytes: Bytes) -> f64 {
    bytes.0 as f64 / GIB
}

fn gib(bytes: Bytes) -> Option<String> {
    Some(format!("{:.4}", gibs(bytes)))
}

pub(super) fn mib(bytes: Bytes) -> Option<String> {
    Some(format!("{:.2}", bytes.0 as f64 / MIB))
}

#[cfg(test)]
mod tests {
    use super::super::gpu_files::{gpu_head, gpu_line, gpu_process_head, gpu_process_line};
    use super::*;
    use crate::{GpuProcessSample, GpuSample, SampleOptions, golden, sample, sample_gpus};
    use std::collections::BTreeSet;

    /// The files of a run: samples as CSV and as lines of JSON, the summary as JSON and Markdown,
    /// GPUs and their processes.
    fn written(run: golden::Script, top: usize) -> [String; 6] {
        let (info, rows, _) = run.recorded();
        let options = SampleOptions {
            interval: DurationNs(15_000_000_000),
            top,
            last_boot_ns: None,
        };
        let (mut csv, mut jsonl) = (Vec::new(), Vec::new());
        csv_head(&mut csv, Names::Units).unwrap();
        let (samples, summary) = sample(&info, &rows, options, |samples, sample| {
            csv_line(&mut csv, samples, sample).unwrap();
            json_line(&mut jsonl, samples, sample).unwrap();
            true
        })
        .unwrap();
        let (mut json, mut markdown) = (Vec::new(), Vec::new());
        summary_json(&mut json, Names::Units, &samples, &summary).unwrap();
        summary_markdown(&mut markdown, &samples, &summary).unwrap();
        let (mut gpus, mut holders) = (Vec::new(), Vec::new());
        gpu_head(&mut gpus, Names::Units).unwrap();
        gpu_process_head(&mut holders, Names::Units).unwrap();
        let device = |one: &GpuSample<'_>| gpu_line(&mut gpus, &samples, one).is_ok();
        let holder =
            |one: &GpuProcessSample<'_>| gpu_process_line(&mut holders, &samples, one).is_ok();
        sample_gpus(&rows, &samples, device, holder).unwrap();
        [csv, jsonl, json, markdown, gpus, holders].map(|bytes| String::from_utf8(bytes).unwrap())
    }

    fn every_minute() -> SampleOptions {
        SampleOptions {
            interval: DurationNs(60_000_000_000),
            top: 2,
            last_boot_ns: None,
        }
    }

    /// Processes on two GPUs, one of which tells what torch and Python hold.
    fn training() -> golden::Script {
        let mut run = golden::put_to_sleep();
        run.node(0.5, golden::gib(900.0));
        run.mem(700, 2.0, [900.0, 120.0, 0.0]);
        run.sized(2.0);
        for (tgid, rank) in [(710, "TP0"), (711, "TP1")] {
            run.edit(tgid, |row| {
                row.role = Some("worker".to_owned());
                row.rank = Some(rank.to_owned());
            });
        }
        let shown = r#"{"python_heap_bytes":1048576,"python_heap_peak_bytes":2097152,
            "torch_cuda_alloc_bytes":1073741824,"torch_cuda_reserved_bytes":2147483648,
            "torch_mps_alloc_bytes":0,"torch_mps_driver_bytes":0}"#;
        let kind = memtrace_model::tables::MarkKind::End;
        run.said_mark(Some(700), 30.0, kind, "step", shown);
        run
    }

    /// The columns or keys of each file that docs/exports.md has, by the file's name.
    fn documented(file: &str) -> Vec<&'static str> {
        let page = include_str!("../../../../docs/exports.md");
        let (_, section) = page.split_once(&format!("## {file}\n")).unwrap();
        let section = section.split("\n## ").next().unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
        rows.map(|row| row.split('`').next().unwrap()).collect()
    }

    /// The keys of an object; those of objects in a list with the list's name in front.
    fn keys(object: &Value) -> BTreeSet<String> {
        let object = object.as_object().unwrap().iter();
        let each = object.flat_map(|(key, value)| match value.as_array() {
            Some(list) => {
                let inner = list.iter().flat_map(keys);
                inner.map(|inner| format!("{key}[].{inner}")).collect()
            }
            None => vec![key.clone()],
        });
        each.collect()
    }

    #[test]
    fn every_column_and_key_stands_in_the_docs() {
        let [csv, jsonl, json, _, gpus, holders] = written(training(), 2);
        for (file, text) in [
            ("memory_samples.csv", &csv),
            ("gpu_mem_trace.csv", &gpus),
            ("gpu_mem_processes.csv", &holders),
        ] {
            assert_eq!(cells(text.lines().next().unwrap()), documented(file));
        }
        let lines = jsonl
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        let in_lines: BTreeSet<String> = lines.flat_map(|line: Value| keys(&line)).collect();
        let in_summary = keys(&serde_json::from_str(&json).unwrap());
        for (file, keys) in [
            ("memory_samples.jsonl", in_lines),
            ("memory_summary.json", in_summary),
        ] {
            let shown: BTreeSet<String> = documented(file).into_iter().map(str::to_owned).collect();
            assert_eq!(keys, shown, "{file}");
        }
    }

    #[test]
    fn no_column_that_the_run_fills_is_empty() {
        let [csv, _, _, _, gpus, holders] = written(training(), 2);
        for text in [&csv, &gpus, &holders] {
            let mut rows = text.split_terminator("\r\n").map(cells);
            let names = rows.next().unwrap();
            let mut is_filled = vec![false; names.len()];
            for row in rows {
                for (is_filled, cell) in is_filled.iter_mut().zip(&row) {
                    *is_filled |= !cell.is_empty();
                }
            }
            let empty = names.iter().zip(is_filled).filter(|(_, filled)| !filled);
            assert_eq!(empty.map(|(name, _)| name).collect::<Vec<_>>(), [""; 0]);
        }
    }

    #[test]
    fn gpus_are_reported_at_every_sample_with_who_holds_them() {
        let [csv, .., gpus, holders] = written(training(), 2);
        let times = |text: &str| -> BTreeSet<String> {
            let rows = text.split_terminator("\r\n").skip(1);
            rows.map(|row| cells(row)[1].clone()).collect()
        };
        let mut all = times(&csv);
        assert!(all.remove("0.000"), "no device was read by then");
        assert_eq!(times(&gpus), all);
        insta::assert_snapshot!("gpu_csv", gpus.replace("\r\n", "\n"));
        insta::assert_snapshot!("gpu_processes_csv", holders.replace("\r\n", "\n"));
    }

    #[test]
    fn what_a_program_tells_of_its_allocators_stands_until_it_ends() {
        let [csv, ..] = written(training(), 2);
        let mut heaps = csv.split_terminator("\r\n").skip(1).map(|row| {
            let row = cells(row);
            [1, 10, 12, 13, 17].map(|column| row[column].clone())
        });
        let at = |heap: [String; 5]| heap.join(" ");
        let shown: Vec<String> = heaps.by_ref().map(at).collect();
        assert!(shown.contains(&"15.000    ".to_owned()), "{shown:?}");
        assert!(
            shown.contains(&"60.000 1.00 30.000 1.0000 30.000".to_owned()),
            "{shown:?}"
        );
        assert!(shown.contains(&"120.000    ".to_owned()), "{shown:?}");
    }

    #[test]
    fn names_of_scripts_that_poll_are_the_columns_of_always_with_the_same_values() {
        let widely_used = "timestamp_iso,elapsed_s,label,main_rss_gb,main_vms_gb,children_rss_gb,\
             total_tracked_rss_gb,system_used_gb,system_available_gb,system_percent,\
             python_heap_mb,python_heap_peak_mb,torch_cuda_alloc_gb,torch_cuda_reserved_gb,\
             torch_mps_alloc_gb,torch_mps_driver_gb";
        let mut head = Vec::new();
        csv_head(&mut head, Names::Compat).unwrap();
        let head = String::from_utf8(head).unwrap();
        let columns: Vec<&str> = head.trim_end().split(',').collect();
        let missing = widely_used
            .split(',')
            .filter(|name| !columns.contains(name));
        assert_eq!(missing.collect::<Vec<_>>(), [""; 0]);
        assert_eq!(columns.len(), COLUMNS.len());

        let (info, rows, _) = training().recorded();
        let (samples, summary) = sample(&info, &rows, every_minute(), |_, _| true).unwrap();
        let as_json = |names| -> Value {
            let mut text = Vec::new();
            summary_json(&mut text, names, &samples, &summary).unwrap();
            serde_json::from_slice(&text).unwrap()
        };
        let (units, compat) = (as_json(Names::Units), as_json(Names::Compat));
        for peak in [
            "peak_main_rss",
            "peak_children_rss",
            "peak_total_tracked_rss",
        ] {
            assert!(units[format!("{peak}_gib")].is_f64(), "{units}");
            assert_eq!(compat[format!("{peak}_gb")], units[format!("{peak}_gib")]);
        }
        let first =
            |summary: &Value, key: &str| summary["top_child_processes_by_peak_rss"][0][key].clone();
        assert_eq!(first(&compat, "peak_rss_gb"), first(&units, "peak_rss_gib"));
        assert!(!compat.to_string().contains("_gib"), "{compat}");
    }

    #[test]
    fn a_peak_from_before_the_recording_says_so() {
        let mut run = golden::Script::command(&["x"], 10.0);
        run.process(1, None, 0.0, "x");
        run.mem(1, 1.0, [100.0, 20.0, 0.0]);
        run.process(2, Some(1), -5.0, "worker");
        run.mem(2, 1.0, [150.0, 10.0, 0.0]);
        run.edit(2, |row| {
            row.peak_rss_bytes = Some(Bytes(302 << 20));
            row.peak_rss_source = Some(memtrace_model::tables::PeakSource::VmHwm);
        });
        let [_, _, json, markdown, ..] = written(run, 2);
        let json: Value = serde_json::from_str(&json).unwrap();
        let child = &json["top_child_processes_by_peak_rss"][0];
        assert_eq!(child["is_peak_before_recording"], true, "{json}");
        assert!(
            markdown.contains("| 0.295 (before the recording) |"),
            "{markdown}"
        );
    }

    #[test]
    fn titles_are_whole_and_without_secrets() {
        let long = format!("VLLM::Worker_TP0 --token sk-1 {}", "x".repeat(3_000));
        let mut run = golden::put_to_sleep();
        run.title(710, 7.0, &long);
        let [_, jsonl, json, markdown, _, holders] = written(run, 2);
        let whole = long.replace("sk-1", "***");
        for text in [&jsonl, &json, &markdown, &holders] {
            assert!(text.contains(&whole), "{text}");
            assert!(!text.contains("sk-1"));
        }
    }

    #[test]
    fn the_files_of_a_run_are_as_they_were() {
        let [csv, jsonl, json, markdown, ..] = written(golden::vllm_start_up(), 2);
        let csv = csv.replace("\r\n", "\n");
        insta::assert_snapshot!("samples_csv", csv);
        let few: Vec<&str> = jsonl.lines().step_by(9).collect();
        insta::assert_snapshot!("samples_jsonl", few.join("\n"));
        insta::assert_snapshot!("summary_json", json);
        insta::assert_snapshot!("summary_md", markdown);
    }

    /// The cells of a line of CSV.
    fn cells(line: &str) -> Vec<String> {
        let mut cells = vec![String::new()];
        let (mut is_quoted, mut chars) = (false, line.chars().peekable());
        while let Some(c) = chars.next() {
            let last = cells.len() - 1;
            match c {
                '"' if is_quoted && chars.next_if_eq(&'"').is_some() => cells[last].push('"'),
                '"' => is_quoted = !is_quoted,
                ',' if !is_quoted => cells.push(String::new()),
                c => cells[last].push(c),
            }
        }
        assert!(!is_quoted, "{line}");
        cells
    }

    #[test]
    fn names_that_would_break_a_file_or_a_terminal_break_neither() {
        let hostile = "a\nb,\"c\"\r\n\u{1b}[2J\u{9b}31m\u{202e}\u{fffd}\0";
        let mut run = golden::vllm_start_up();
        run.mark(
            Some(400),
            3.0,
            memtrace_model::tables::MarkKind::Instant,
            hostile,
        );
        for tgid in [400, 410] {
            run.edit(tgid, |row| {
                row.cmdline = Some(hostile.into());
                row.comm = hostile.to_owned();
            });
        }
        let [csv, jsonl, json, markdown, ..] = written(run, 9);
        for text in [&csv.replace("\r\n", "\n"), &jsonl, &json, &markdown] {
            let hidden = text.replace('\n', "").find(memtrace_report::is_hidden);
            assert_eq!(hidden, None, "{text}");
        }
        let rows: Vec<Vec<String>> = csv.split_terminator("\r\n").map(cells).collect();
        assert!(rows.iter().all(|row| row.len() == COLUMNS.len()), "{csv}");
        assert!(
            rows.iter()
                .any(|row| row[2].starts_with("a\\nb,\"c\"\\r\\n\\x1b[2J"))
        );
        let lines: Vec<serde_json::Value> = jsonl
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert!(lines.iter().any(|line| line["label"] == hostile));
        let children = lines
            .iter()
            .flat_map(|line| line["top_children"].as_array().unwrap());
        let mut named = children.filter(|child| child["pid"] == 410);
        assert!(named.any(|child| child["cmdline"] == hostile && child["name"] == hostile));
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let top = json["top_child_processes_by_peak_rss"].as_array().unwrap();
        assert!(top.iter().any(|child| child["cmdline"] == hostile));
    }

    #[test]
    fn what_is_secret_on_a_command_line_is_not_handed_on() {
        let (info, rows, _) = golden::vllm_start_up().recorded();
        let (samples, _) = sample(&info, &rows, every_minute(), |_, _| true).unwrap();
        let mut process = samples.processes[0].clone();
        process.cmdline = Some("vllm --api-key sk-1 --hf-token=hf_2 --port 1 --token".into());
        assert_eq!(
            cmdline(&process).as_deref(),
            Some("vllm --api-key *** --hf-token=*** --port 1 --token")
        );
    }
}
