//! `memtrace export` leaves whole files, or none.

use super::*;
use std::path::Path;

const NAMES: [&str; 6] = [
    "gpu_mem_processes.csv",
    "gpu_mem_trace.csv",
    "memory_samples.csv",
    "memory_samples.jsonl",
    "memory_summary.json",
    "memory_summary.md",
];

/// A recording of more than a second.
fn recorded(dir: &Path) -> Result<()> {
    let output = memtrace([
        "record".as_ref(),
        "-o".as_ref(),
        dir.as_os_str(),
        "--".as_ref(),
        "sh".as_ref(),
        "-c".as_ref(),
        "for i in 1 2 3 4 5 6; do sleep 0.2; done".as_ref(),
    ])?;
    anyhow::ensure!(output.status.success(), "{}", words(&output));
    Ok(())
}

fn listed(dir: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

#[test]
fn files_that_are_there_are_replaced_only_when_asked_for() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (recording, files) = (dir.path().join("recording"), dir.path().join("files"));
    recorded(&recording)?;
    let export = |more: &[&str]| {
        let words = [Path::new("export"), &recording, Path::new("-o"), &files];
        let words = words.into_iter().map(Path::as_os_str);
        memtrace(words.chain(more.iter().map(OsStr::new)))
    };
    let output = export(&[])?;
    assert!(output.status.success(), "{}", words(&output));
    assert_eq!(listed(&files)?, NAMES);
    let csv = files.join(NAMES[2]);
    std::fs::write(&csv, "mine")?;
    std::fs::remove_file(files.join(NAMES[3]))?;
    let output = export(&[])?;
    assert!(!output.status.success());
    assert!(
        words(&output).contains("--force replaces it"),
        "{}",
        words(&output)
    );
    assert_eq!(std::fs::read_to_string(&csv)?, "mine");
    assert_eq!(
        listed(&files)?,
        [NAMES[0], NAMES[1], NAMES[2], NAMES[4], NAMES[5]],
        "nothing is half made"
    );
    let output = export(&["--force"])?;
    assert!(output.status.success(), "{}", words(&output));
    assert!(std::fs::read_to_string(&csv)?.starts_with("timestamp_iso,"));
    assert_eq!(listed(&files)?, NAMES);
    Ok(())
}

#[test]
fn a_trace_for_perfetto_is_made_only_when_it_is_asked_for() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (recording, files) = (dir.path().join("recording"), dir.path().join("files"));
    recorded(&recording)?;
    let export = |more: &[&str]| {
        let words = [Path::new("export"), &recording, Path::new("-o"), &files];
        let words = words.into_iter().map(Path::as_os_str);
        memtrace(words.chain(more.iter().map(OsStr::new)))
    };
    let output = export(&["--to", "perfetto"])?;
    assert!(output.status.success(), "{}", words(&output));
    assert_eq!(listed(&files)?, ["memtrace.pftrace"]);
    let trace = std::fs::read(files.join("memtrace.pftrace"))?;
    assert!(trace.len() > 1_000, "{} bytes", trace.len());
    let has = |text: &str| {
        trace
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    };
    assert!(has("lifetime") && has("anon") && has("sleep 0.2"));
    let output = export(&["--to", "perfetto", "--to", "csv"])?;
    assert!(!output.status.success());
    assert_eq!(
        listed(&files)?,
        ["memtrace.pftrace"],
        "nothing is half made"
    );
    Ok(())
}

#[test]
fn traces_of_a_profiler_stand_beside_a_recording_of_the_same_time() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (recording, profile) = (dir.path().join("recording"), dir.path().join("profile"));
    std::fs::create_dir(&profile)?;
    // The shell is the process whose operator it is, and makes the trace while it is recorded.
    let script = r#"printf '{"baseTimeNanoseconds": %s, "traceEvents": [{"ph": "X", "cat": "cpu_op",
        "name": "aten::mm", "pid": %s, "tid": %s, "ts": 5.0, "dur": 1000.0}]}' \
        "$(date +%s%N)" $$ $$ > "$0/rank0.json"; sleep 0.5"#;
    let words_of = ["record", "-q", "-o"].map(OsStr::new).into_iter();
    let words_of = words_of.chain([recording.as_os_str()]);
    let command = ["--", "sh", "-c", script].map(OsStr::new);
    let output = memtrace(words_of.chain(command).chain([profile.as_os_str()]))?;
    anyhow::ensure!(output.status.success(), "{}", words(&output));
    std::fs::write(profile.join("old.json"), super::traces::SMALL)?;
    let export = |more: &[&OsStr]| {
        let words = [
            OsStr::new("export"),
            recording.as_os_str(),
            OsStr::new("-o"),
        ];
        memtrace(
            words
                .into_iter()
                .chain([dir.path().as_os_str()])
                .chain(more.iter().copied()),
        )
    };
    let pipe = dir.path().join("pipe.json");
    let made = Command::new("mkfifo").arg(&pipe).status()?;
    anyhow::ensure!(made.success(), "mkfifo: {made}");
    let with = ["--with".as_ref(), profile.as_os_str()];
    let with = with
        .into_iter()
        .chain(["--with".as_ref(), pipe.as_os_str()]);
    let with: Vec<&OsStr> = with.collect();
    let refused = export(&with)?;
    assert!(!refused.status.success());
    assert!(
        words(&refused).contains("add --to perfetto"),
        "{}",
        words(&refused)
    );
    let perfetto = ["--to", "perfetto"].map(OsStr::new);
    let output = export(&[&perfetto[..], &with].concat())?;
    let text = words(&output);
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("rank0.json: 1 slice under its process"),
        "{text}"
    );
    assert!(
        text.contains("old.json is left out: it is from another time"),
        "{text}"
    );
    assert!(
        text.contains("pipe.json is left out: it is not a regular file"),
        "{text}"
    );
    let trace = std::fs::read(dir.path().join("memtrace.pftrace"))?;
    assert!(trace.windows(8).any(|part| part == b"aten::mm"));
    Ok(())
}

#[test]
fn what_stands_where_a_file_is_made_is_not_followed() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (recording, files) = (dir.path().join("recording"), dir.path().join("files"));
    recorded(&recording)?;
    std::fs::create_dir(&files)?;
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "mine")?;
    for name in NAMES {
        std::os::unix::fs::symlink(&secret, files.join(format!("{name}.partial")))?;
        std::os::unix::fs::symlink(&secret, files.join(name))?;
    }
    let words_of = [Path::new("export"), &recording, Path::new("-o"), &files];
    let words_of = words_of.map(Path::as_os_str);
    let refused = memtrace(words_of)?;
    assert!(!refused.status.success());
    let forced = memtrace(words_of.into_iter().chain([OsStr::new("--force")]))?;
    assert!(forced.status.success(), "{}", words(&forced));
    assert_eq!(std::fs::read_to_string(&secret)?, "mine");
    for name in NAMES {
        assert!(files.join(name).symlink_metadata()?.is_file(), "{name}");
    }
    Ok(())
}

#[test]
fn an_export_that_is_interrupted_leaves_nothing_under_a_final_name() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (recording, files) = (dir.path().join("recording"), dir.path().join("files"));
    recorded(&recording)?;
    // What it reads is a pipe that nobody fills, so that it stops in the middle.
    for file in std::fs::read_dir(recording.join("mem"))? {
        let file = file?.path();
        std::fs::remove_file(&file)?;
        let made = Command::new("mkfifo").arg(&file).status()?;
        anyhow::ensure!(made.success(), "mkfifo: {made}");
    }
    let mut child = Command::new(program::memtrace()?)
        .args(["export", "--interval", "1ms", "-o"])
        .args([&files, &recording])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    await_that("it writes", || {
        listed(&files).is_ok_and(|names| names.len() == NAMES.len())
    });
    anyhow::ensure!(
        child.try_wait()?.is_none(),
        "it ended before it was interrupted"
    );
    let pid = i32::try_from(child.id())?;
    // SAFETY: kill takes no memory; the child is not waited for yet, so the id is its own.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGINT) }, 0);
    let status = child.wait()?;
    assert!(!status.success(), "{status}");
    let left = listed(&files)?;
    assert!(
        left.iter().all(|name| name.ends_with(".partial")),
        "{left:?}"
    );
    Ok(())
}

#[test]
fn the_newest_figures_are_a_file_while_it_is_recorded_and_none_after_it() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (recording, files) = (dir.path().join("recording"), dir.path().join("files"));
    let held = "import time; held = bytearray(100 << 20); time.sleep(60)";
    let mut recorder = Command::new(program::memtrace()?)
        .args(["record", "--quiet", "-o"])
        .arg(&recording)
        .args(["--", "python3", "-c", held])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    await_that("it is recorded", || recording.join("run.json").exists());
    let mut export = Command::new(program::memtrace()?)
        .args(["export", "--to", "prometheus", "--every", "1s", "-o"])
        .args([&files, &recording])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let file = files.join("memtrace.prom");
    let held = || {
        let text = std::fs::read_to_string(&file).ok()?;
        let value = |line: &str| {
            line.strip_prefix("memtrace_held_bytes ")?
                .parse::<f64>()
                .ok()
        };
        text.lines().find_map(value)
    };
    await_that("it tells what is held", || {
        held().is_some_and(|held| held >= f64::from(100 << 20))
    });
    assert_eq!(listed(&files)?, ["memtrace.prom"]);
    let pid = i32::try_from(recorder.id())?;
    // SAFETY: kill takes no memory; the child is not waited for yet, so the id is its own.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
    recorder.wait()?;
    let status = export.wait()?;
    assert!(status.success(), "{status}");
    assert!(listed(&files)?.is_empty(), "no old figure stays");
    let output = memtrace([
        "export".as_ref(),
        "--to".as_ref(),
        "prometheus".as_ref(),
        recording.as_os_str(),
    ])?;
    assert!(!output.status.success());
    assert!(words(&output).contains("is closed"), "{}", words(&output));
    Ok(())
}

mod needs_mount {
    use super::*;
    use memtrace_tests::need;

    #[test]
    fn a_full_disk_is_reported_and_leaves_no_half_file() -> Result<()> {
        need::require("mount");
        let dir = tempfile::tempdir()?;
        let (recording, disk) = (dir.path().join("recording"), dir.path().join("disk"));
        recorded(&recording)?;
        std::fs::create_dir(&disk)?;
        let script = r#"
            mount -t tmpfs -o size=64k none "$1" || exit 99
            "$2" export --interval 1ms -o "$1" "$3"
            code=$?
            ls -A "$1"
            exit $code
        "#;
        let output = shell_with_own_mounts(script)
            .arg(&disk)
            .arg(program::memtrace()?)
            .arg(&recording)
            .output()?;
        let text = words(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("No space left on device"), "{text}");
        assert_eq!(output.stdout, b"", "no file is left: {text}");
        Ok(())
    }
}

/// Where `request_trace.csv` has the wall-clock times.
const START_WALL: usize = 8;
const END_WALL: usize = 11;

/// The lines of a file, sorted.
fn sorted(file: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(file)?;
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    Ok(lines)
}

#[test]
fn a_run_of_a_load_experiment_is_exported_as_its_sender_wrote_it_with_the_memory_beside()
-> Result<()> {
    let dir = tempfile::tempdir()?;
    let server = load::Server::start("400")?;
    let run = |words: &[&str]| -> Result<Output> {
        let output = Command::new(program::memtrace()?)
            .args(words)
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .output()?;
        anyhow::ensure!(output.status.success(), "{}", super::words(&output));
        Ok(output)
    };
    let grid = [
        "--input-lens",
        "16,32",
        "--output-lens",
        "8",
        "--concurrencies",
        "2",
    ];
    run(&[
        &["load", "plan", "-o", "plan.jsonl", "--prefix-reuse", "0"][..],
        &grid,
    ]
    .concat())?;
    let program = program::memtrace()?;
    let program = program.to_str().context("a path that is text")?;
    let send = [
        program,
        "load",
        "run",
        "plan.jsonl",
        "--cool-down",
        "0",
        "--url",
        &server.url,
    ];
    let record = ["record", "-o", "recording", "--"];
    run(&[&record[..], &send, &["-o", "sent"]].concat())?;
    let export = ["export", "recording", "--to", "load", "-o", "exported"];
    // Where one file of all is there, no other is made.
    std::fs::create_dir(dir.path().join("taken"))?;
    std::fs::write(dir.path().join("taken/memory_samples.csv"), "mine")?;
    let both = [
        "export",
        "recording",
        "--to",
        "load",
        "--to",
        "csv",
        "-o",
        "taken",
    ];
    let refused = Command::new(program::memtrace()?)
        .args(both)
        .current_dir(dir.path())
        .output()?;
    assert!(!refused.status.success());
    assert_eq!(listed(&dir.path().join("taken"))?, ["memory_samples.csv"]);
    let said = run(&export)?;
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    let [name] = listed(&dir.path().join("sent"))?
        .try_into()
        .expect("one run");
    assert_eq!(
        listed(&dir.path().join("exported"))?,
        std::slice::from_ref(&name),
        "{said}"
    );
    let (sent, exported) = (
        dir.path().join("sent").join(&name),
        dir.path().join("exported").join(&name),
    );
    let names = listed(&sent)?;
    assert!(names.contains(&"gpu_mem_trace.csv".to_owned()), "{names:?}");
    assert_eq!(listed(&exported)?, names);
    assert_eq!(
        std::fs::read_to_string(sent.join("workload.jsonl"))?,
        std::fs::read_to_string(exported.join("workload.jsonl"))?
    );
    // Each reads the wall clock for itself.
    let without_wall = |line: &str| {
        let cells = line.split(',').enumerate();
        let cells = cells.filter(|(place, _)| ![START_WALL, END_WALL].contains(place));
        cells.map(|(_, cell)| cell).collect::<Vec<_>>().join(",")
    };
    let requests = |folder: &Path| -> Result<Vec<String>> {
        let lines = sorted(&folder.join("request_trace.csv"))?;
        let head = lines.first().context("a head")?;
        let names: Vec<&str> = head.split(',').collect();
        assert_eq!(
            (names[START_WALL], names[END_WALL]),
            ("start_wall_ns", "wall_ns")
        );
        Ok(lines.iter().map(|line| without_wall(line)).collect())
    };
    assert_eq!(requests(&sent)?, requests(&exported)?);
    let json = |dir: &Path, name: &str| -> Result<serde_json::Value> {
        Ok(serde_json::from_str(&std::fs::read_to_string(
            dir.join(name),
        )?)?)
    };
    let (own, shown) = (
        json(&sent, "summary.json")?,
        json(&exported, "summary.json")?,
    );
    for (own, shown) in [0, 1].map(|place| (&own["conditions"][place], &shown["conditions"][place]))
    {
        assert_eq!(
            (&shown["output_tokens"], &shown["output_tokens_total"]),
            (&8.into(), &16.into())
        );
        for (key, value) in own.as_object().context("an object")? {
            match key.ends_with("_wall_ns") {
                false => assert_eq!(value, &shown[key], "{key}"),
                true => {
                    let [one, other] = [value, &shown[key]].map(serde_json::Value::as_i64);
                    let apart = one.zip(other).map(|(one, other)| (one - other).abs());
                    assert!(apart.is_some_and(|ns| ns < 5_000_000), "{key}: {apart:?}");
                }
            }
        }
        let memory = &shown["memory"];
        let held = memory["held_peak_bytes"].as_i64().context("held")?;
        let roles = memory["roles_at_held_peak"].as_array().context("roles")?;
        let rss: i64 = roles
            .iter()
            .filter_map(|role| role["sum_of_rss_bytes"].as_i64())
            .sum();
        assert!(held > 0 && rss >= held, "{memory}");
        assert_eq!(memory["gpu_peak_bytes"], serde_json::Value::Null);
    }
    let manifest = json(&exported, "manifest.json")?;
    assert_eq!(
        (&manifest["run_id"], &manifest["condition_count"]),
        (&name.into(), &2.into())
    );
    let gpus = std::fs::read_to_string(exported.join("gpu_mem_trace.csv"))?;
    assert!(
        gpus.lines().count() == 1 && gpus.contains("gpu_index"),
        "{gpus}"
    );
    let refused = memtrace([
        "export".as_ref(),
        dir.path().join("recording").as_os_str(),
        "--to".as_ref(),
        "load".as_ref(),
        "-o".as_ref(),
        dir.path().join("exported").as_os_str(),
    ])?;
    assert!(
        words(&refused).contains("--force replaces it"),
        "{}",
        words(&refused)
    );
    Ok(())
}

#[test]
fn a_recording_without_a_load_experiment_has_none_to_export() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let recording = dir.path().join("recording");
    recorded(&recording)?;
    let words_of_export = [
        "export".as_ref(),
        recording.as_os_str(),
        "--to".as_ref(),
        "load".as_ref(),
    ];
    let output = memtrace(words_of_export)?;
    assert_eq!(output.status.code(), Some(1));
    assert!(
        words(&output).contains("has no load experiment"),
        "{}",
        words(&output)
    );
    Ok(())
}
