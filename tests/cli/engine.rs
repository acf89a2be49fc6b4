//! `memtrace engine`: windows of the profilers of small servers, as a person opens and closes them.

use super::load::Server;
use super::*;
use memtrace_model::{MarkKind, MarkRow};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;

/// A server with a profiler that writes to a directory.
fn profiled(dir: &Path) -> Result<Server> {
    let config = serde_json::json!({"profiler": "torch", "torch_profiler_dir": dir});
    Server::start_with(
        &["--rate", "1000", "--profiler-config", &config.to_string()],
        &[("VLLM_RPC_TIMEOUT", "1800000")],
    )
}

fn traces(dir: &Path) -> Result<usize> {
    Ok(std::fs::read_dir(dir)?.count())
}

#[test]
fn a_window_of_two_servers_becomes_a_phase_and_its_traces_are_listed() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (first, second) = (profiled(dir.path())?, profiled(dir.path())?);
    let idle = Running::start(&["idle", "--processes", "1"])?;
    let pid = idle.pid().to_string();
    let recorder = Recorder::start(&["--quiet", "--backend", "procfs", "-p", &pid])?;
    let place = recorder.path().display().to_string();
    let urls = ["--url", &first.url, "--url", &second.url];
    let run = memtrace(
        [
            &["engine", "profile", "run", "-r", &place, "--requests", "3"],
            &urls[..],
        ]
        .concat(),
    )?;
    let said = words(&run);
    assert!(run.status.success(), "{said}");
    assert!(said.contains("3 requests were answered"), "{said}");
    let listed = String::from_utf8(run.stdout)?;
    assert_eq!(listed.lines().count(), 2, "{listed}");
    for file in listed.lines() {
        let trace: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
        assert!(trace["traceEvents"].is_array(), "{file}");
    }
    let recorded = recorder.stop()?;
    let marks: Vec<MarkRow> = recorded.recording.rows()?;
    let marks: Vec<(&str, Option<MarkKind>)> = marks
        .iter()
        .map(|row| (row.name.as_str(), row.kind))
        .filter(|(name, _)| name.starts_with("engine."))
        .collect();
    assert_eq!(
        marks,
        [
            ("engine.profile", Some(MarkKind::Begin)),
            ("engine.profile", Some(MarkKind::End)),
            ("engine.profile.flush", Some(MarkKind::Begin)),
            ("engine.profile.flush", Some(MarkKind::End)),
        ]
    );
    let report = recorded.report(&[])?;
    let phases = report["phases"].to_string();
    assert!(phases.contains("engine.profile.flush"), "{phases}");
    Ok(())
}

#[test]
fn start_and_stop_are_a_window_too_and_a_second_stop_finds_nothing() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let server = profiled(dir.path())?;
    let task = |task: &str, options: &[&str]| -> Result<Output> {
        let words = [
            "engine",
            "profile",
            task,
            "--no-recording",
            "--url",
            &server.url,
        ];
        memtrace([&words[..], options].concat())
    };
    let start = task("start", &[])?;
    assert!(start.status.success(), "{}", words(&start));
    assert_eq!(traces(dir.path())?, 0);
    let stop = task("stop", &[])?;
    assert!(stop.status.success(), "{}", words(&stop));
    assert_eq!(traces(dir.path())?, 1);
    let again = task("stop", &["--settle", "0.5"])?;
    assert_eq!(again.status.code(), Some(1));
    let said = words(&again);
    assert!(
        said.contains("answered 200, and nothing was written"),
        "{said}"
    );
    Ok(())
}

#[test]
fn a_window_opens_and_closes_where_it_is_open_which_recording_is_meant() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let server = profiled(dir.path())?;
    let trees = [
        Running::start(&["idle", "--processes", "1"])?,
        Running::start(&["idle", "--processes", "1"])?,
    ];
    let [one, other] = trees.each_ref().map(|tree| tree.pid().to_string());
    let recorders = [
        Recorder::start(&["--quiet", "--backend", "procfs", "-p", &one])?,
        Recorder::start(&["--quiet", "--backend", "procfs", "-p", &other])?,
    ];
    for (task, count) in [("start", 0), ("stop", 1)] {
        let done = memtrace(["engine", "profile", task, "--url", &server.url])?;
        let said = words(&done);
        assert!(done.status.success(), "{said}");
        assert!(said.contains("no recording gets the phase"), "{said}");
        assert_eq!(traces(dir.path())?, count, "{said}");
    }
    let gone = dir.path().join("gone");
    let gone = gone.to_str().context("a path")?;
    let named = memtrace([
        "engine",
        "profile",
        "start",
        "-r",
        gone,
        "--url",
        &server.url,
    ])?;
    assert!(named.status.success(), "{}", words(&named));
    for recorder in recorders {
        recorder.stop()?;
    }
    Ok(())
}

#[test]
fn status_reads_the_process_that_listens_and_touches_no_profiler() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let server = profiled(dir.path())?;
    let status = |url: &str| memtrace(["engine", "profile", "status", "--url", url]);
    let shown = status(&server.url)?;
    let said = words(&shown);
    assert!(shown.status.success(), "{said}");
    for part in [
        "has a profiler".to_owned(),
        format!("process {}", server.pid()),
        format!("traces in {}", dir.path().display()),
        "VLLM_RPC_TIMEOUT is 1800 s".to_owned(),
        format!("files in {}: 0", dir.path().display()),
    ] {
        assert!(said.contains(&part), "{part}: {said}");
    }
    let stop = memtrace(
        [
            &[
                "engine",
                "profile",
                "stop",
                "--no-recording",
                "--settle",
                "0.2",
            ],
            &["--url", &server.url][..],
        ]
        .concat(),
    )?;
    assert_eq!(traces(dir.path())?, 0, "{}", words(&stop));
    let plain = Server::start("100")?;
    let said = words(&status(&plain.url)?);
    assert!(said.contains("no --profiler-config"), "{said}");
    assert!(
        said.contains("VLLM_RPC_TIMEOUT is not in its environment"),
        "{said}"
    );
    Ok(())
}

#[test]
fn a_short_timeout_of_the_server_is_warned_of_before_the_start() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let config = format!("{{\"torch_profiler_dir\":\"{}\"}}", dir.path().display());
    let options = ["--rate", "1000", "--profiler-config", &config];
    let server = Server::start_with(&options, &[("VLLM_RPC_TIMEOUT", "20000")])?;
    let log = dir.path().join("train.log");
    let address = server.url.trim_start_matches("http://");
    let (host, port) = address.split_once(':').context("a port")?;
    std::fs::write(
        &log,
        format!("Ports for engine 0: {{'host': '{host}', 'port': {port}}}\n"),
    )?;
    let log = log.to_str().context("a path that is text")?;
    let start = memtrace([
        "engine",
        "profile",
        "start",
        "--no-recording",
        "--from-log",
        log,
    ])?;
    let said = words(&start);
    assert!(start.status.success(), "{said}");
    let warned = said
        .find("it waits 20 s for the traces")
        .context(said.clone())?;
    let started = said.find("its profiler is started").context(said.clone())?;
    assert!(warned < started, "{said}");
    assert!(
        said.contains("a shell's export does not reach Ray's workers"),
        "{said}"
    );
    Ok(())
}

/// A server that says the same to everything, for as long as the test runs.
fn answering(body: String) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            // A request is one write.
            let _ = stream.read(&mut [0; 4096]);
            let length = body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}"
            );
        }
    });
    Ok(url)
}

#[test]
fn behind_a_router_the_server_without_a_profiler_is_reported_and_the_other_goes_on() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (with, without) = (profiled(dir.path())?, Server::start("1000")?);
    let worker =
        |url: &str, is_healthy: bool| serde_json::json!({"url": url, "is_healthy": is_healthy});
    let listed = serde_json::json!({
        "workers": [worker(&with.url, true), worker(&without.url, false)],
    });
    let router = answering(listed.to_string())?;
    let log = dir.path().join("train.log");
    let address = router.trim_start_matches("http://");
    std::fs::write(
        &log,
        format!("Router launched at {address}, Prometheus port: 4153\n"),
    )?;
    let log = log.to_str().context("a path that is text")?;
    let run = [
        "engine",
        "profile",
        "run",
        "--no-recording",
        "--from-log",
        log,
    ];
    let run = memtrace(run)?;
    let said = words(&run);
    assert_eq!(run.status.code(), Some(1), "{said}");
    for part in [
        format!("{}: its router considers it unhealthy", without.url),
        format!(
            "{}: 404: the server was started without a profiler",
            without.url
        ),
        format!("{}: its profiler is stopped", with.url),
        "1 file was written".to_owned(),
    ] {
        assert!(said.contains(&part), "{part}: {said}");
    }
    assert_eq!(String::from_utf8(run.stdout)?.lines().count(), 1);
    Ok(())
}

#[test]
fn files_from_before_a_stop_are_those_of_a_profiler_that_has_a_limit() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let config = serde_json::json!({"torch_profiler_dir": dir.path(), "max_iterations": 3});
    let server = Server::start_with(
        &["--rate", "1000", "--profiler-config", &config.to_string()],
        &[],
    )?;
    std::fs::write(dir.path().join("rank0.1.pt.trace.json.gz"), "")?;
    let stop = memtrace([
        "engine",
        "profile",
        "stop",
        "--no-recording",
        "--url",
        &server.url,
    ])?;
    let said = words(&stop);
    assert!(stop.status.success(), "{said}");
    assert!(said.contains("no worker wrote at this stop"), "{said}");
    assert!(said.contains("max_iterations=3"), "{said}");
    Ok(())
}

#[test]
fn sleep_and_wake_are_phases_of_the_recording() -> Result<()> {
    let url = answering(r#"{"is_sleeping":true}"#.to_owned())?;
    let idle = Running::start(&["idle", "--processes", "1"])?;
    let pid = idle.pid().to_string();
    let recorder = Recorder::start(&["--quiet", "--backend", "procfs", "-p", &pid])?;
    let place = recorder.path().display().to_string();
    for task in [
        &["sleep", "--level", "2"][..],
        &["wake"],
        &["reset-prefix-cache"],
    ] {
        let words_given = [&["engine"], task, &["--url", &url, "-r", &place]].concat();
        let output = memtrace(words_given)?;
        assert!(output.status.success(), "{task:?}: {}", words(&output));
    }
    let status = memtrace(["engine", "status", "--url", &url])?;
    assert!(words(&status).contains("up; sleeps"), "{}", words(&status));
    let recorded = recorder.stop()?;
    let marks: Vec<MarkRow> = recorded.recording.rows()?;
    let begun = marks.iter().filter(|row| row.kind == Some(MarkKind::Begin));
    let begun: Vec<(&str, Option<&str>)> = begun
        .map(|row| (row.name.as_str(), row.attributes.as_deref()))
        .collect();
    assert_eq!(
        begun,
        [
            ("engine.sleep", Some(r#"{"level":2}"#)),
            ("engine.wake_up", None),
            ("engine.reset_prefix_cache", None),
        ]
    );
    let ends = marks.iter().filter(|row| row.kind == Some(MarkKind::End));
    assert_eq!(ends.count(), 3);
    Ok(())
}

#[test]
fn servers_are_named_in_one_way_only() -> Result<()> {
    let url = "http://localhost:8000";
    for wrong in [
        &["--router", url, "--url", url][..],
        &["--url", url, "--from-log", "log"],
        &["--url", "localhost:8000"],
    ] {
        let words = [&["engine", "profile", "status"], wrong].concat();
        assert_eq!(memtrace(words)?.status.code(), Some(2), "{wrong:?}");
    }
    let help = memtrace(["engine", "--help"])?;
    let text = String::from_utf8_lossy(&help.stdout).into_owned();
    assert!(text.contains("Usage: memtrace engine"), "{text}");
    Ok(())
}
