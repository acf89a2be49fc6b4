//! Samples as the files that per-run profilers of Python programs write, so that scripts made
//! for those can read a recording: `memory_samples.csv`, `memory_samples.jsonl`,
//! `memory_summary.json` and `memory_summary.md`. As there, a GB is 2³⁰ bytes and an MB 2²⁰,
//! and an empty cell or null is unknown. What torch's allocator holds no recording knows.

use super::{LabelledPeak, MemorySample, SampleSummary, Samples};
use crate::analyze::Process;
use crate::model::{BootNs, Bytes};
use crate::report::{quote, visible, write_line, write_object};
use serde_json::json;
use std::io::{self, Write};

const GB: f64 = (1_u64 << 30) as f64;
const MB: f64 = (1_u64 << 20) as f64;

/// So many processes are named in the summary.
const SUMMARY_PROCESSES: usize = 20;

/// Options whose value is a secret.
const SECRETS: [&str; 5] = [
    "--api-key",
    "--hf-token",
    "--token",
    "--password",
    "--secret",
];
const HIDDEN: &str = "***";

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
    ("main_rss_gb", |_, sample| gb(sample.main_rss?)),
    ("main_vms_gb", |_, sample| gb(sample.main_vm_size?)),
    ("children_rss_gb", |_, sample| gb(sample.children_rss)),
    ("total_tracked_rss_gb", |samples, sample| {
        gb(total(samples, sample)?)
    }),
    ("system_used_gb", |_, sample| gb(used(sample)?)),
    ("system_available_gb", |_, sample| {
        gb(sample.node?.available)
    }),
    ("system_percent", |_, sample| {
        Some(format!("{:.2}", percent(sample)?))
    }),
    ("python_heap_mb", |_, sample| {
        mb(sample.python_heap?.current)
    }),
    ("python_heap_peak_mb", |_, sample| {
        mb(sample.python_heap?.peak?)
    }),
    ("torch_cuda_alloc_gb", |_, _| None),
    ("torch_cuda_reserved_gb", |_, _| None),
    ("torch_mps_alloc_gb", |_, _| None),
    ("torch_mps_driver_gb", |_, _| None),
];

/// Writes the first line of `memory_samples.csv`.
///
/// # Errors
/// When `out` can't be written to.
pub fn csv_head(out: &mut dyn Write) -> io::Result<()> {
    let names: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    write!(out, "{}\r\n", names.join(","))
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
    for (place, (_, cell)) in COLUMNS.iter().enumerate() {
        let between = if place == 0 { "" } else { "," };
        let text = cell(samples, sample).unwrap_or_default();
        write!(out, "{between}{}", quote(&text))?;
    }
    write!(out, "\r\n")
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
        let process = &samples.processes[*position];
        json!({
            "pid": process.tgid,
            "name": &*process.comm,
            "cmdline": cmdline(process),
            "rss_bytes": rss,
        })
    });
    let line = json!({
        "timestamp": samples.clock.to_wall(sample.boot_ns).map(|wall| wall.0 as f64 / 1e9),
        "timestamp_iso": time(samples, sample.boot_ns),
        "elapsed_s": elapsed(samples, sample.boot_ns),
        "label": sample.label,
        "main_rss_bytes": sample.main_rss,
        "main_vms_bytes": sample.main_vm_size,
        "children_rss_bytes": sample.children_rss,
        "total_tracked_rss_bytes": total(samples, sample),
        "system_used_bytes": used(sample),
        "system_available_bytes": sample.node.map(|node| node.available),
        "system_percent": percent(sample),
        "python_heap_bytes": sample.python_heap.map(|heap| heap.current),
        "python_heap_peak_bytes": sample.python_heap.and_then(|heap| heap.peak),
        "torch_cuda_alloc_bytes": null,
        "torch_cuda_reserved_bytes": null,
        "torch_mps_alloc_bytes": null,
        "torch_mps_driver_bytes": null,
        "top_children": children.collect::<Vec<_>>(),
    });
    write_line(&line, out)
}

/// Writes `memory_summary.json`.
///
/// # Errors
/// When `out` can't be written to.
pub fn summary_json(
    out: &mut dyn Write,
    samples: &Samples,
    summary: &SampleSummary,
) -> io::Result<()> {
    let amount = |peak: &Option<LabelledPeak>| peak.as_ref().map(|peak| peak.bytes.0 as f64 / GB);
    let label = |peak: &Option<LabelledPeak>| peak.as_ref().map(|peak| peak.label.to_string());
    let at = |peak: &Option<LabelledPeak>| time(samples, peak.as_ref()?.boot_ns);
    let children = children(samples, summary)
        .into_iter()
        .map(|(process, peak)| {
            json!({
                "pid": process.tgid,
                "name": &*process.comm,
                "peak_rss_gb": peak.0 as f64 / GB,
                "cmdline": cmdline(process),
            })
        });
    let text = json!({
        "peak_main_rss_gb": amount(&summary.main),
        "peak_main_label": label(&summary.main),
        "peak_main_timestamp": at(&summary.main),
        "peak_children_rss_gb": amount(&summary.children),
        "peak_children_label": label(&summary.children),
        "peak_children_timestamp": at(&summary.children),
        "peak_total_tracked_rss_gb": amount(&summary.total),
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
                "- Peak {name}: `{:.3} GB` at `{}` ({})",
                peak.bytes.0 as f64 / GB,
                in_code(&peak.label),
                time(samples, peak.boot_ns).unwrap_or_default(),
            )?,
            None => writeln!(out, "- Peak {name}: unknown")?,
        }
    }
    writeln!(out, "\n## Top Child Processes by Peak RSS\n")?;
    writeln!(out, "| PID | Name | Peak RSS (GB) | Command |")?;
    writeln!(out, "| --- | --- | ---: | --- |")?;
    for (process, peak) in children(samples, summary) {
        let pid = process
            .tgid
            .map_or_else(String::new, |tgid| tgid.to_string());
        let command = cmdline(process).unwrap_or_default();
        writeln!(
            out,
            "| {pid} | {} | {:.3} | `{}` |",
            in_code(&process.comm),
            peak.0 as f64 / GB,
            in_code(&command),
        )?;
    }
    Ok(())
}

fn children<'a>(samples: &'a Samples, summary: &SampleSummary) -> Vec<(&'a Process, Bytes)> {
    let processes = samples.processes.iter().zip(&summary.processes).enumerate();
    let mut children: Vec<(&Process, Bytes)> = processes
        .filter(|(position, _)| Some(*position) != samples.main)
        .filter_map(|(_, (process, series))| {
            // The kernel's own figure knows of what was between two rows.
            let peak = process.peak.rss_bytes.max(*series)?;
            Some((process, peak))
        })
        .collect();
    children.sort_by_key(|(process, peak)| (std::cmp::Reverse(*peak), process.upid));
    children.truncate(SUMMARY_PROCESSES);
    children
}

/// The command line, without what is secret in it.
fn cmdline(process: &Process) -> Option<String> {
    let mut is_secret = false;
    let words = process.cmdline.as_deref()?.split(' ').map(|word| {
        if std::mem::take(&mut is_secret) {
            return HIDDEN.to_owned();
        }
        match word.split_once('=') {
            Some((option, _)) if SECRETS.contains(&option) => format!("{option}={HIDDEN}"),
            _ => {
                is_secret = SECRETS.contains(&word);
                word.to_owned()
            }
        }
    });
    Some(words.collect::<Vec<_>>().join(" "))
}

fn in_code(text: &str) -> String {
    let text = visible(text).replace('|', "\\|");
    text.replace('`', "'")
}

/// RFC 3339 in UTC, with the offset that every version of Python's `fromisoformat` reads.
fn time(samples: &Samples, at: BootNs) -> Option<String> {
    let text = samples.clock.to_wall(at)?.rfc3339()?;
    let (seconds, _) = text.split_at_checked("2026-03-01T12:01:44".len())?;
    Some(format!("{seconds}+00:00"))
}

fn elapsed(samples: &Samples, at: BootNs) -> f64 {
    samples.clock.offset(at).as_secs_f64()
}

/// Unknown while what the main process holds is, where there is one.
fn total(samples: &Samples, sample: &MemorySample<'_>) -> Option<Bytes> {
    let main = match samples.main {
        Some(_) => sample.main_rss?,
        None => Bytes(0),
    };
    Some(main + sample.children_rss)
}

fn used(sample: &MemorySample<'_>) -> Option<Bytes> {
    let node = sample.node?;
    Some(node.total - node.available)
}

fn percent(sample: &MemorySample<'_>) -> Option<f64> {
    let node = sample.node?;
    (node.total.0 > 0).then(|| (node.total - node.available).0 as f64 * 100.0 / node.total.0 as f64)
}

fn gb(bytes: Bytes) -> Option<String> {
    Some(format!("{:.4}", bytes.0 as f64 / GB))
}

fn mb(bytes: Bytes) -> Option<String> {
    Some(format!("{:.2}", bytes.0 as f64 / MB))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::{SampleOptions, golden, sample};
    use crate::model::DurationNs;

    /// The files of a run: samples as CSV and as lines of JSON, the summary as JSON and Markdown.
    fn written(run: golden::Script, top: usize) -> [String; 4] {
        let (info, rows, _) = run.recorded();
        let options = SampleOptions {
            interval: DurationNs(15_000_000_000),
            top,
            last_boot_ns: None,
        };
        let (mut csv, mut jsonl) = (Vec::new(), Vec::new());
        csv_head(&mut csv).unwrap();
        let (samples, summary) = sample(&info, &rows, options, |samples, sample| {
            csv_line(&mut csv, samples, sample).unwrap();
            json_line(&mut jsonl, samples, sample).unwrap();
            true
        })
        .unwrap();
        let (mut json, mut markdown) = (Vec::new(), Vec::new());
        summary_json(&mut json, &samples, &summary).unwrap();
        summary_markdown(&mut markdown, &samples, &summary).unwrap();
        [csv, jsonl, json, markdown].map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn the_files_of_a_run_are_as_they_were() {
        let [csv, jsonl, json, markdown] = written(golden::vllm_start_up(), 2);
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
            crate::model::tables::MarkKind::Instant,
            hostile,
        );
        for tgid in [400, 410] {
            run.edit(tgid, |row| {
                row.cmdline = Some(hostile.into());
                row.comm = hostile.to_owned();
            });
        }
        let [csv, jsonl, json, markdown] = written(run, 9);
        for text in [&csv.replace("\r\n", "\n"), &jsonl, &json, &markdown] {
            let hidden = text.replace('\n', "").find(crate::report::is_hidden);
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
        let options = SampleOptions {
            interval: DurationNs(60_000_000_000),
            top: 2,
            last_boot_ns: None,
        };
        let (samples, _) = sample(&info, &rows, options, |_, _| true).unwrap();
        let mut process = samples.processes[0].clone();
        process.cmdline = Some("vllm --api-key sk-1 --hf-token=hf_2 --port 1 --token".into());
        assert_eq!(
            cmdline(&process).as_deref(),
            Some("vllm --api-key *** --hf-token=*** --port 1 --token")
        );
    }
}
