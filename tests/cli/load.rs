//! `memtrace load`: the program that it starts, runs of a plan into recordings, and their end.

use super::*;
use memtrace_model::{LoadCondition, MarkKind, MarkRow, RequestOutcome, RequestRow};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Child;

/// The built-in server, which ends with this.
pub(super) struct Server {
    child: Child,
    pub(super) url: String,
}

impl Server {
    pub(super) fn start(rate: &str) -> Result<Self> {
        Self::start_with(&["--rate", rate], &[])
    }

    pub(super) fn start_with(options: &[&str], environment: &[(&str, &str)]) -> Result<Self> {
        Self::start_at("0", options, environment)
    }

    fn start_at(port: &str, options: &[&str], environment: &[(&str, &str)]) -> Result<Self> {
        let mut child = Command::new(program::memtrace_remote()?)
            .args(["load", "serve", "--port", port])
            .args(options)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = child.stderr.take().context("a pipe")?;
        let mut line = String::new();
        BufReader::new(stderr).read_line(&mut line)?;
        let url = line
            .split_whitespace()
            .find(|word| word.starts_with("http://"));
        let url = url.with_context(|| format!("no address in {line:?}"))?;
        let url = url.trim_end_matches(';').to_owned();
        Ok(Self { child, url })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// A plan in a directory.
fn plan(dir: &Path, options: &[&str]) -> Result<PathBuf> {
    let path = dir.join("plan.jsonl");
    let output = path.to_str().context("a path that is text")?;
    let made = memtrace([&["load", "plan", "-o", output], options].concat())?;
    assert!(made.status.success(), "{}", words(&made));
    Ok(path)
}

/// A run of a plan of which no recording hears.
fn load_run(plan: &Path, url: &str, dir: &Path) -> Result<Command> {
    let mut command = Command::new(program::memtrace()?);
    command.args(["load", "run", "--no-recording", "--cool-down", "0"]);
    command.arg(plan).args(["--url", url]).arg("-o").arg(dir);
    command.stdin(Stdio::null());
    Ok(command)
}

/// The only folder in a directory, which is that of a run.
fn folder(dir: &Path) -> Result<PathBuf> {
    let mut folders = std::fs::read_dir(dir)?.collect::<Result<Vec<_>, _>>()?;
    folders.retain(|entry| entry.path().is_dir());
    match folders.as_slice() {
        [only] => Ok(only.path()),
        _ => anyhow::bail!("not one folder: {folders:?}"),
    }
}

fn json(file: &Path) -> Result<serde_json::Value> {
    Ok(serde_json::from_str(&std::fs::read_to_string(file)?)?)
}

#[test]
fn a_plan_is_the_same_to_the_byte_each_time_and_flags_win_over_the_environment() -> Result<()> {
    let made = |options: &[&str], environment: &[(&str, &str)]| -> Result<String> {
        let mut command = Command::new(program::memtrace()?);
        command.args(["load", "plan", "-o", "-"]).args(options);
        command.envs(environment.iter().copied());
        let output = command.stdin(Stdio::null()).output()?;
        assert!(output.status.success(), "{}", words(&output));
        Ok(String::from_utf8(output.stdout)?)
    };
    let first = made(&[], &[])?;
    assert_eq!((first.lines().count(), &first), (48, &made(&[], &[])?));
    assert_ne!(first, made(&["--seed", "1"], &[])?);
    let environment = [
        ("INPUT_LENS", "64"),
        ("OUTPUT_LENS", "4,8"),
        ("CONCURRENCIES", "2"),
        ("PREFIX_MODES", "0.5"),
        ("N_PER_CONDITION", "3"),
    ];
    let named = made(&["--output-lens", "16"], &environment)?;
    let line: serde_json::Value = serde_json::from_str(&named)?;
    assert_eq!(line["name"], "in64-out16-prefix50-c2");
    assert_eq!(line["requests"], 3);
    Ok(())
}

#[test]
fn without_its_program_load_says_which_is_missing_and_how_to_get_it() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let alone = dir.path().join("memtrace");
    std::fs::copy(program::memtrace()?, &alone)?;
    let output = Command::new(&alone)
        .args(["load", "--help"])
        .env("PATH", dir.path())
        .output()?;
    assert_eq!(output.status.code(), Some(1));
    let said = words(&output);
    assert!(said.contains("memtrace-remote"), "{said}");
    for way in [
        "memtrace-python[remote]",
        "cargo install --path memtrace-remote",
    ] {
        assert!(said.contains(way), "{said}");
    }
    Ok(())
}

#[test]
fn help_and_wrong_uses_are_those_of_load() -> Result<()> {
    let help = memtrace(["load", "--help"])?;
    assert!(help.status.success());
    let text = String::from_utf8_lossy(&help.stdout).into_owned();
    for task in ["plan", "check", "run", "smoke", "serve"] {
        assert!(text.contains(task), "{text}");
    }
    assert!(text.contains("Usage: memtrace load"), "{text}");
    for wrong in [
        &["load", "plan", "--concurrencies", "0"][..],
        &["load", "plan", "--prefix-reuse", "1.5"],
        &["load", "run", "plan.jsonl", "--url", "localhost:8000"],
        &["load", "what"],
    ] {
        assert_eq!(memtrace(wrong)?.status.code(), Some(2), "{wrong:?}");
    }
    Ok(())
}

#[test]
fn a_check_names_the_wrong_line_and_what_the_server_lacks() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let server = Server::start("100")?;
    let path = plan(dir.path(), &[])?;
    let check = |options: &[&str]| -> Result<Output> {
        let path = path.to_str().context("a path that is text")?;
        memtrace([&["load", "check", path, "--url", &server.url], options].concat())
    };
    let fine = check(&[])?;
    assert!(fine.status.success(), "{}", words(&fine));
    assert!(words(&fine).contains("/tokenize"), "{}", words(&fine));
    let other = check(&["--model", "of-nobody"])?;
    assert_eq!(other.status.code(), Some(1));
    assert!(
        words(&other).contains("memtrace-words"),
        "{}",
        words(&other)
    );
    plan(dir.path(), &["--input-lens", "2000000"])?;
    let long = check(&[])?;
    assert!(
        words(&long).contains("longer than the 1048576 tokens"),
        "{}",
        words(&long)
    );
    let text = std::fs::read_to_string(&path)?;
    std::fs::write(&path, text + "nonsense\n")?;
    let bad = check(&[])?;
    let lines = std::fs::read_to_string(&path)?.lines().count();
    let named = format!("plan.jsonl, line {lines}: it is not a condition");
    assert!(words(&bad).contains(&named), "{}", words(&bad));
    Ok(())
}

#[test]
fn a_smoke_test_is_reported_to_the_recording_that_is_named() -> Result<()> {
    let idle = Running::start(&["idle", "--processes", "1"])?;
    let pid = idle.pid().to_string();
    let recorder = Recorder::start(&["--quiet", "--backend", "procfs", "-p", &pid])?;
    let place = recorder.path();
    let smoke = memtrace([
        "load".as_ref(),
        "smoke".as_ref(),
        "-r".as_ref(),
        place.as_os_str(),
    ])?;
    assert!(smoke.status.success(), "{}", words(&smoke));
    let recorded = recorder.stop()?;
    let requests: Vec<RequestRow> = recorded.recording.rows()?;
    assert_eq!(requests.len(), 24);
    let marks: Vec<MarkRow> = recorded.recording.rows()?;
    let of_kind = |kind| marks.iter().filter(move |row| row.kind == Some(kind));
    assert_eq!(of_kind(MarkKind::Begin).count(), 8);
    for request in &requests {
        assert_eq!(request.outcome, Some(RequestOutcome::Ok), "{request:?}");
        assert_eq!(request.prompt_tokens, request.planned_prompt_tokens);
        assert_eq!(request.output_tokens, request.planned_output_tokens);
        let its_own = |row: &&MarkRow| row.name == request.condition;
        let begin = of_kind(MarkKind::Begin).find(its_own).context("a begin")?;
        let end = of_kind(MarkKind::End).find(its_own).context("an end")?;
        assert!(begin.upid.is_none(), "it belongs to the recording");
        let attributes = begin.attributes.as_deref().and_then(LoadCondition::of);
        let condition = attributes.context("attributes of a condition")?;
        assert_eq!(condition.load_run, request.load_run);
        let first = request.first_token_boot_ns.context("a first token")?;
        let times = [
            begin.boot_ns,
            request.start_boot_ns,
            first,
            request.boot_ns,
            end.boot_ns,
        ];
        assert!(times.is_sorted(), "{request:?} in {begin:?} to {end:?}");
    }
    let report = recorded.report(&["--section", "conditions"])?;
    let conditions = report["conditions"]["list"].as_array().context("a list")?;
    assert_eq!(conditions.len(), 8);
    for condition in conditions {
        assert_eq!(condition["request_count"], condition["concurrency"]);
        assert_eq!(condition["failed_count"], 0);
        assert!(
            condition["held_peak_bytes"].as_i64() > Some(0),
            "{condition}"
        );
        let tokens = condition["tokens_in_flight_peak"]
            .as_i64()
            .context("tokens")?;
        let prompt = condition["input_tokens"].as_i64().context("tokens")?;
        assert!(tokens >= prompt, "{condition}");
    }
    Ok(())
}

#[test]
fn chats_and_answers_in_one_piece_have_their_planned_tokens_too() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let server = Server::start("500")?;
    let grid = [
        "--input-lens",
        "48",
        "--output-lens",
        "6",
        "--concurrencies",
        "3",
    ];
    let path = plan(
        dir.path(),
        &[&grid[..], &["--prefix-reuse", "0.5"]].concat(),
    )?;
    for options in [
        &["--chat"][..],
        &["--no-stream"],
        &["--chat", "--no-stream"],
    ] {
        let results = dir.path().join(options.concat());
        let url = format!("{}/v1/", server.url);
        let output = load_run(&path, &url, &results)?.args(options).output()?;
        assert!(output.status.success(), "{options:?}: {}", words(&output));
        let text = std::fs::read_to_string(folder(&results)?.join("request_trace.csv"))?;
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        let (header, rows) = rows.split_first().context("a header")?;
        assert_eq!(rows.len(), 3, "{text}");
        for row in rows {
            let field = |name: &str| {
                let place = header.iter().position(|column| *column == name);
                place.map_or("", |place| row[place])
            };
            assert_eq!(
                (field("prompt_tokens"), field("output_tokens")),
                ("48", "6"),
                "{text}"
            );
            assert_eq!(field("outcome"), "ok", "{text}");
            let has_first = !field("first_token_boot_ns").is_empty();
            assert_eq!(has_first, !options.contains(&"--no-stream"), "{text}");
        }
    }
    Ok(())
}

#[test]
fn a_run_ends_at_ctrl_c_with_what_is_there() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let server = Server::start("20")?;
    let grid = [
        "--input-lens",
        "16",
        "--output-lens",
        "4,2000",
        "--concurrencies",
        "2",
    ];
    let path = plan(
        dir.path(),
        &[&grid[..], &["--prefix-reuse", "low"]].concat(),
    )?;
    let run = load_run(&path, &server.url, dir.path())?
        .stderr(Stdio::piped())
        .spawn()?;
    let trace = || folder(dir.path()).map(|folder| folder.join("request_trace.csv"));
    let rows = || -> usize {
        let text = trace().and_then(|trace| Ok(std::fs::read_to_string(trace)?));
        text.map_or(0, |text| text.lines().count().saturating_sub(1))
    };
    await_that("the first condition has ended", || rows() == 2);
    std::thread::sleep(Duration::from_millis(300));
    let pid = i32::try_from(run.id())?;
    // SAFETY: a signal to a child that has not been waited for.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGINT) }, 0);
    let output = run.wait_with_output()?;
    assert_eq!(output.status.code(), Some(130), "{}", words(&output));
    let folder = folder(dir.path())?;
    assert_eq!(json(&folder.join("manifest.json"))?["state"], "interrupted");
    let text = std::fs::read_to_string(trace()?)?;
    assert_eq!(text.lines().filter(|line| line.contains(",ok,")).count(), 2);
    assert_eq!(
        text.lines()
            .filter(|line| line.contains(",interrupted,"))
            .count(),
        2
    );
    let summary = json(&folder.join("summary.json"))?;
    assert_eq!(summary["conditions"].as_array().map(Vec::len), Some(2));
    // The plan as it was sent is a plan.
    let again = memtrace([
        "load".as_ref(),
        "check".as_ref(),
        folder.join("workload.jsonl").as_os_str(),
        "--url".as_ref(),
        server.url.as_ref(),
    ])?;
    assert!(again.status.success(), "{}", words(&again));
    Ok(())
}

#[test]
fn a_run_says_what_it_waits_for_and_writes_where_it_was_started() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let grid = ["--input-lens", "8", "--output-lens", "2"];
    let more = ["--concurrencies", "1", "--prefix-reuse", "low"];
    let path = plan(dir.path(), &[grid, more].concat())?;
    let port = free_port()?.to_string();
    let url = format!("http://127.0.0.1:{port}");
    let mut run = Command::new(program::memtrace()?);
    run.args([
        "load",
        "run",
        "--no-recording",
        "--wait",
        "60",
        "--url",
        &url,
    ]);
    run.arg(&path)
        .current_dir(dir.path())
        .env_remove("OUTPUT_DIR");
    let mut run = run.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let mut said = BufReader::new(run.stderr.take().context("a pipe")?);
    let mut line = String::new();
    said.read_line(&mut line)?;
    let waits = format!("waiting for {url}/health, at most 60 s: failed to connect");
    assert!(line.contains(&waits), "{line}");
    // It is there only now.
    let _server = Server::start_at(&port, &["--rate", "200"], &[])?;
    let mut rest = String::new();
    said.read_to_string(&mut rest)?;
    assert_eq!(run.wait()?.code(), Some(0), "{rest}");
    assert!(rest.contains(&format!("{url} is ready after ")), "{rest}");
    assert!(rest.contains("the results are in ./load-"), "{rest}");
    assert!(folder(dir.path())?.join("request_trace.csv").exists());
    Ok(())
}

#[test]
fn a_server_that_dies_under_load_is_rows_and_ends_the_run() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut server = Server::start("20")?;
    let grid = [
        "--input-lens",
        "16,32,48",
        "--output-lens",
        "2000",
        "--concurrencies",
        "4",
    ];
    let path = plan(
        dir.path(),
        &[&grid[..], &["--prefix-reuse", "low"]].concat(),
    )?;
    let run = load_run(&path, &server.url, dir.path())?
        .stderr(Stdio::piped())
        .spawn()?;
    await_that("the run has begun", || {
        folder(dir.path()).is_ok_and(|folder| folder.join("manifest.json").exists())
    });
    std::thread::sleep(Duration::from_millis(500));
    server.end();
    let output = run.wait_with_output()?;
    let said = words(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("no connection to the server succeeds any more"),
        "{said}"
    );
    let folder = folder(dir.path())?;
    assert_eq!(json(&folder.join("manifest.json"))?["state"], "given_up");
    let text = std::fs::read_to_string(folder.join("request_trace.csv"))?;
    let count = |word: &str| text.lines().filter(|line| line.contains(word)).count();
    assert_eq!(
        (count(",broken,"), count(",not_connected,")),
        (4, 4),
        "{text}"
    );
    Ok(())
}

/// A port that nobody has, of the loopback.
fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port())
}

/// `record --load` of the built-in server, with the results in the same directory.
fn record_load(dir: &Path, plan: &Path, port: u16) -> Result<Command> {
    let mut command = Command::new(program::memtrace()?);
    command.args(["record", "--backend", "procfs", "-o"]);
    command.arg(dir.join("recording")).arg("--load").arg(plan);
    command.arg(format!("--load-url=http://127.0.0.1:{port}"));
    command.arg("--").arg(program::memtrace_remote()?);
    command.args([
        "load",
        "serve",
        "--rate",
        "200",
        "--port",
        &port.to_string(),
    ]);
    command.env("OUTPUT_DIR", dir.join("results"));
    command.stdin(Stdio::null());
    Ok(command)
}

#[test]
fn a_recording_with_a_load_starts_sends_ends_the_server_and_reports() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let grid = [
        "--input-lens",
        "16,32",
        "--output-lens",
        "8",
        "--concurrencies",
        "2",
    ];
    let path = plan(
        dir.path(),
        &[&grid[..], &["--prefix-reuse", "low"]].concat(),
    )?;
    // Another program can have taken the port meanwhile; seldom twice.
    let output = record_load(dir.path(), &path, free_port()?)?.output()?;
    let said = words(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("ending the server"), "{said}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("Load: 2 conditions, 4 requests, 0 failed"),
        "{text}"
    );
    let recording = memtrace_store::Recordings::default().open(&dir.path().join("recording"))?;
    let requests: Vec<RequestRow> = recording.rows()?;
    let is_ok = |row: &RequestRow| row.outcome == Some(RequestOutcome::Ok);
    assert_eq!((requests.len(), requests.iter().all(is_ok)), (4, true));
    let manifest = folder(&dir.path().join("results"))?.join("manifest.json");
    assert_eq!(json(&manifest)?["state"], "done");
    // The sender is no part of what is recorded.
    let processes: Vec<ProcessRow> = recording.rows()?;
    assert_eq!(processes.len(), 1, "{processes:#?}");
    Ok(())
}

#[test]
fn a_plan_that_can_not_be_sent_ends_the_server_that_was_started_for_it() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("plan.jsonl");
    std::fs::write(&path, "nonsense\n")?;
    let output = record_load(dir.path(), &path, free_port()?)?.output()?;
    let said = words(&output);
    assert!(said.contains("plan.jsonl, line 1"), "{said}");
    assert!(said.contains("ending the server"), "{said}");
    Ok(())
}

mod needs_root {
    use crate::*;
    use memtrace_tests::{need, workload};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    /// On every Linux.
    const NOBODY: u32 = 65_534;

    #[test]
    fn behind_sudo_the_sender_is_the_caller() -> Result<()> {
        need::require("root");
        let dir = tempfile::tempdir()?;
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777))?;
        let plan = dir.path().join("plan.jsonl");
        // The programs of a build are where only root may be.
        for program in [program::memtrace()?, program::memtrace_remote()?] {
            let name = program.file_name().context("a name")?;
            std::fs::copy(&program, dir.path().join(name))?;
        }
        let script = format!(
            "SUDO_UID={NOBODY} SUDO_GID={NOBODY} SUDO_USER=nobody '{}' load plan -o '{}'; exit $?",
            dir.path().join("memtrace").display(),
            plan.display(),
        );
        let output = workload::command(&["behind-sudo", "--script", &script])?
            .stdin(Stdio::null())
            .output()?;
        assert!(output.status.success(), "{}", words(&output));
        assert_eq!(std::fs::metadata(&plan)?.uid(), NOBODY);
        Ok(())
    }
}
