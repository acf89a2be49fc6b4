//! `memtrace import requests` and `memtrace record --requests`: files of load generators, written
//! while a recording is made.

use super::*;
use memtrace_host::clock;
use memtrace_model::{BootNs, RequestOutcome, RequestRow};
use memtrace_store::Recordings;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// What `vllm bench serve` writes of two requests, the second of which fails. Times are of
/// CLOCK_MONOTONIC, in ns.
fn bench(start_ns: i64) -> Value {
    let start = start_ns as f64 / 1e9;
    json!({
        "date": "20261123-100000", "backend": "openai", "model_id": "some/model",
        "tokenizer_id": "some/model", "num_prompts": 2, "request_rate": "inf", "burstiness": 1.0,
        "max_concurrency": 2, "start_times": [start, start + 0.01], "ttfts": [0.02, 0.0],
        "itls": [[0.01, 0.02], []], "input_lens": [128, 128], "output_lens": [3, 0],
        "errors": ["", "Internal Server Error"], "from_a_newer_version": 1,
    })
}

/// A recording of a command that waits for a file, which is written below its directory meanwhile.
/// Gives what memtrace said, and when the first request was sent.
fn recorded(dir: &Path, file: &str, options: &[&str]) -> Result<(Output, BootNs)> {
    let script = format!("until test -s {file}; do sleep 0.05; done; sleep 0.2");
    let command = ["--", "sh", "-c", &script];
    let record = ["record", "--backend", "procfs", "-o", "recording"];
    let child = Command::new(program::memtrace()?)
        .args([&record[..], options, &command].concat())
        .current_dir(dir)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    await_that("a recording", || dir.join("recording/run.json").exists());
    std::thread::sleep(Duration::from_millis(300));
    let now = clock::read();
    let path = dir.join(file);
    std::fs::create_dir_all(path.parent().context("a folder")?)?;
    let ready = dir.join("made");
    std::fs::write(&ready, bench(now.monotonic_ns).to_string())?;
    std::thread::sleep(Duration::from_millis(100));
    std::fs::rename(ready, path)?;
    Ok((child.wait_with_output()?, now.boot_ns))
}

fn import(dir: &Path, words: &[&str]) -> Result<Output> {
    let output = Command::new(program::memtrace()?)
        .args(["import", "requests"])
        .args(words)
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()?;
    Ok(output)
}

fn requests(dir: &Path) -> Result<Vec<RequestRow>> {
    Ok(Recordings::default().open(&dir.join("recording"))?.rows()?)
}

fn conditions(dir: &Path) -> Result<Value> {
    let recording = dir.join("recording");
    let words = ["report", "-f", "json"].map(OsStr::new);
    let output = memtrace(words.into_iter().chain([recording.as_os_str()]))?;
    let report: Value = serde_json::from_slice(&output.stdout)?;
    Ok(report["conditions"].clone())
}

fn parts(dir: &Path) -> Result<Vec<Vec<u8>>> {
    let parts = ["request", "mark", "phase"].map(|table| {
        let part = format!("recording/{table}/part-00001.parquet");
        std::fs::read(dir.join(part))
    });
    Ok(parts.into_iter().collect::<Result<_, _>>()?)
}

#[test]
fn what_a_generator_wrote_meanwhile_is_imported_when_the_recording_is_closed() -> Result<()> {
    for (options, file) in [
        (&["--requests", "auto"][..], "results/of/today/bench.json"),
        (&["--requests", "bench.json"], "bench.json"),
        (&["--requests", "results"], "results/bench.json"),
    ] {
        let dir = tempfile::tempdir()?;
        let (output, sent) = recorded(dir.path(), file, options)?;
        let said = words(&output);
        assert!(output.status.success(), "{said}");
        assert!(said.contains("2 requests of 2 under 1 condition"), "{said}");
        assert!(said.contains("from_a_newer_version"), "{said}");
        let rows = requests(dir.path())?;
        let [first, second] = rows.as_slice() else {
            anyhow::bail!("{rows:#?}");
        };
        // The second has failed, and ended when it began for all that is known.
        assert_eq!(second.outcome, Some(RequestOutcome::Ok));
        assert_eq!(
            (first.outcome, first.request),
            (Some(RequestOutcome::Failed), 1)
        );
        let error = (second.start_boot_ns - sent).0.abs();
        assert!(error < 5_000_000, "{error} ns");
        assert!(
            second
                .time_error_ns
                .is_some_and(|error| error.0 < 5_000_000)
        );
        let found = conditions(dir.path())?;
        let condition = &found["list"][0];
        assert_eq!(condition["name"], "in128-out3-c2", "{found}");
        assert_eq!(
            (&condition["request_count"], &condition["failed_count"]),
            (&json!(2), &json!(1))
        );
        assert!(
            condition["held_peak_bytes"]
                .as_i64()
                .is_some_and(|held| held > 0),
            "{found}"
        );
        assert_eq!(found["unplaced_request_count"], 0);
        // Findings are saved afterwards, and have the phase.
        assert!(dir.path().join("recording/phase").exists());
    }
    Ok(())
}

#[test]
fn a_file_that_is_imported_again_adds_nothing_and_saved_findings_are_made_anew() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (output, _) = recorded(dir.path(), "bench.json", &[])?;
    assert!(output.status.success(), "{}", words(&output));
    assert_eq!(requests(dir.path())?, []);
    let before = parts(dir.path())?;
    let output = import(dir.path(), &["bench.json"])?;
    assert!(output.status.success(), "{}", words(&output));
    assert_eq!(requests(dir.path())?.len(), 2);
    let after = parts(dir.path())?;
    assert!(
        before
            .iter()
            .zip(&after)
            .all(|(before, after)| before != after)
    );
    for again in [
        &["bench.json"][..],
        &["--auto"],
        &["bench.json", "-r", "recording"],
    ] {
        let output = import(dir.path(), again)?;
        assert!(output.status.success(), "{}", words(&output));
        let said = words(&output);
        assert!(said.contains("in the recording already"), "{said}");
        assert!(parts(dir.path())? == after, "{again:?}");
    }
    let exported = memtrace([
        "export".as_ref(),
        dir.path().join("recording").as_os_str(),
        "-o".as_ref(),
        dir.path().join("exported").as_os_str(),
    ])?;
    assert!(exported.status.success(), "{}", words(&exported));
    Ok(())
}

#[test]
fn files_that_overlap_in_time_are_runs_of_their_own_and_compared_with_each_other() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (output, _) = recorded(dir.path(), "a.json", &[])?;
    assert!(output.status.success(), "{}", words(&output));
    let a: Value = serde_json::from_slice(&std::fs::read(dir.path().join("a.json"))?)?;
    for (name, later_s, concurrency) in [("b", 0.001, 2), ("c", 0.002, 4)] {
        let mut other = a.clone();
        let times = a["start_times"].as_array().context("a list")?;
        let times = times.iter().filter_map(Value::as_f64);
        other["start_times"] = times.map(|time| time + later_s).collect();
        other["max_concurrency"] = concurrency.into();
        std::fs::write(dir.path().join(format!("{name}.json")), other.to_string())?;
    }
    let output = import(dir.path(), &["a.json", "b.json", "c.json"])?;
    assert!(output.status.success(), "{}", words(&output));
    let found = conditions(dir.path())?;
    let list = found["list"].as_array().context("a list")?;
    assert_eq!(list.len(), 3, "{found}");
    for (one, (file, name)) in list.iter().zip([
        ("a", "in128-out3-c2"),
        ("b", "in128-out3-c2"),
        ("c", "in128-out3-c4"),
    ]) {
        assert_eq!(one["load_run"], format!("vllm-bench-serve/{file}"));
        assert_eq!(one["name"], name);
        let counts = (&one["request_count"], &one["failed_count"]);
        assert_eq!(counts, (&json!(2), &json!(1)), "{found}");
    }
    assert_eq!(list[2]["increments"][0]["axis"], "concurrency", "{found}");
    assert_eq!(list[2]["increments"][0]["against"], "in128-out3-c2");
    Ok(())
}

#[test]
fn a_file_that_has_no_place_or_lacks_what_is_needed_is_refused_and_nothing_is_written() -> Result<()>
{
    let dir = tempfile::tempdir()?;
    let (output, _) = recorded(dir.path(), "bench.json", &[])?;
    assert!(output.status.success(), "{}", words(&output));
    let before = parts(dir.path())?;
    let write =
        |name: &str, value: &Value| std::fs::write(dir.path().join(name), value.to_string());
    write("other-boot.json", &bench(7_000_000_000_000_000))?;
    let mut summary = bench(clock::read().monotonic_ns);
    let fields = summary.as_object_mut().context("an object")?;
    for detailed in [
        "start_times",
        "ttfts",
        "itls",
        "input_lens",
        "output_lens",
        "errors",
    ] {
        fields.remove(detailed);
    }
    write("summary.json", &summary)?;
    write("mine.json", &json!({"a": 1}))?;
    let mut uneven = bench(clock::read().monotonic_ns);
    uneven["ttfts"] = json!([0.1]);
    write("uneven.json", &uneven)?;
    for (file, reasons) in [
        (
            "other-boot.json",
            &[
                "from 7000000.0 s to",
                "and the recording is from",
                "another boot",
            ][..],
        ),
        (
            "summary.json",
            &["has no field start_times", "--save-detailed"],
        ),
        ("mine.json", &["which load generator wrote it", "guidellm"]),
        (
            "uneven.json",
            &["ttfts has 1 requests, and start_times has 2"],
        ),
        ("nothing.json", &["No such file"]),
    ] {
        // One that is fine does not save it.
        let output = import(dir.path(), &["bench.json", file])?;
        assert_eq!(output.status.code(), Some(1), "{file}");
        let said = words(&output);
        for reason in reasons {
            assert!(said.contains(reason), "{reason}: {said}");
        }
        assert!(parts(dir.path())? == before, "{file}");
    }
    Ok(())
}

#[test]
fn a_recording_without_a_file_of_a_generator_says_so_and_keeps_its_status() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let place: PathBuf = dir.path().join("recording");
    let output = Command::new(program::memtrace()?)
        .args([
            "record",
            "--requests",
            "auto",
            "--requests",
            "nowhere.json",
            "-o",
        ])
        .arg(&place)
        .args(["--", "sh", "-c", "exit 4"])
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .output()?;
    assert_eq!(output.status.code(), Some(4));
    let said = words(&output);
    assert!(
        said.contains("requests are not imported: failed to open nowhere.json"),
        "{said}"
    );
    let output = import(dir.path(), &["--auto"])?;
    assert!(output.status.success());
    assert!(
        words(&output).contains("no file of a load generator"),
        "{}",
        words(&output)
    );
    Ok(())
}
