//! `memtrace export --listen`, as a monitoring system meets it.

use super::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Child;

/// A program that hands out figures.
struct Exporter {
    program: Child,
    address: SocketAddr,
}

impl Exporter {
    fn start(dir: &Path) -> Result<Self> {
        let mut program = Command::new(program::memtrace()?)
            .args(["export", "--to", "prometheus", "--listen", "0"])
            .arg(dir)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut said = String::new();
        BufReader::new(program.stderr.take().context("a pipe")?).read_line(&mut said)?;
        let address = said
            .split("http://")
            .nth(1)
            .and_then(|rest| rest.split('/').next());
        let address = address
            .with_context(|| format!("no address: {said}"))?
            .parse()?;
        Ok(Self { program, address })
    }

    /// What comes back for these bytes.
    fn answer(&self, request: &str) -> Result<String> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(String::from_utf8(answer)?)
    }

    fn scrape(&self) -> Result<String> {
        let answer = self.answer("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        Ok(answer)
    }

    /// A figure without labels, where it is reported.
    fn value(&self, name: &str) -> Result<Option<f64>> {
        let scraped = self.scrape()?;
        let mut lines = scraped.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(value.map(str::parse).transpose()?)
    }

    fn end(mut self) -> Result<()> {
        let pid = i32::try_from(self.program.id())?;
        // SAFETY: kill takes no memory; the child is not waited for yet, so the id is its own.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
        let status = self.program.wait()?;
        assert!(status.success(), "{status}");
        Ok(())
    }
}

#[test]
fn scrapes_are_answered_from_one_recording_to_the_next() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let exporter = Exporter::start(dir.path())?;
    assert_eq!(exporter.value("memtrace_recorder_up")?, Some(0.0));
    for (name, mebibytes) in [("first", 64), ("second", 32)] {
        let held = format!("import time; held = bytearray({mebibytes} << 20); time.sleep(60)");
        let mut recorder = Command::new(program::memtrace()?)
            .args(["record", "--quiet", "-o"])
            .arg(dir.path().join(name))
            .args(["--", "python3", "-c", &held])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let least = f64::from(mebibytes << 20);
        await_that("it tells what is held", || {
            let held = exporter.value("memtrace_held_bytes");
            // Of the one that is recorded, and not of the one before.
            matches!(held, Ok(Some(held)) if (least..1.5 * least).contains(&held))
        });
        await_that("it tells what that costs", || {
            let cpu = exporter.value("memtrace_recorder_cpu_seconds_total");
            matches!(cpu, Ok(Some(cpu)) if cpu > 0.0)
        });
        let pid = i32::try_from(recorder.id())?;
        // SAFETY: kill takes no memory; the child is not waited for yet, so the id is its own.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
        recorder.wait()?;
        await_that("it tells that nobody records", || {
            matches!(exporter.value("memtrace_recorder_up"), Ok(Some(0.0)))
        });
        assert_eq!(
            exporter.value("memtrace_held_bytes")?,
            None,
            "no old figure stays"
        );
        assert_eq!(exporter.value("memtrace_oom_kills_total")?, Some(0.0));
    }
    exporter.end()
}

#[test]
fn whoever_asks_wrongly_or_not_at_all_holds_up_nobody() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let exporter = Exporter::start(dir.path())?;
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "404"),
        (
            "POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
            "405",
        ),
        ("nonsense\r\n\r\n", "400"),
    ] {
        let answer = exporter.answer(request)?;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{request}: {answer}"
        );
    }
    let head = exporter.answer("HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n")?;
    assert!(head.ends_with("\r\n\r\n"), "{head}");
    // A head without end.
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(1 << 20));
    let refused = exporter.answer(&long);
    assert!(!refused.is_ok_and(|answer| answer.contains("200 OK")));
    // Some that say nothing, fewer than there are places.
    let silent = (0..6).map(|_| TcpStream::connect(exporter.address));
    let silent = silent.collect::<Result<Vec<_>, _>>()?;
    exporter.scrape()?;
    drop(silent);
    // As many as there are places, and more: they have theirs for some seconds, and no longer.
    let silent = (0..20).map(|_| TcpStream::connect(exporter.address));
    let silent = silent.collect::<Result<Vec<_>, _>>()?;
    exporter.scrape()?;
    drop(silent);
    let missing = memtrace(["export", "--to", "prometheus", "--listen", "0", "/no/such"])?;
    assert_eq!(missing.status.code(), Some(1));
    assert!(words(&missing).contains("/no/such"), "{}", words(&missing));
    let wrong = memtrace(["export", "--to", "csv", "--listen", "0"])?;
    assert!(
        words(&wrong).contains("add --to prometheus"),
        "{}",
        words(&wrong)
    );
    exporter.end()
}

/// Takes what is sent once, and answers that it arrived.
fn served(listener: &TcpListener) -> Result<Vec<u8>> {
    let (mut stream, _) = listener.accept()?;
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    // All of it has come when the name of what comes last is there.
    while !request
        .windows(18)
        .any(|name| name == b"memtrace.oom_kills")
    {
        let length = stream.read(&mut piece)?;
        anyhow::ensure!(length > 0, "no request");
        request.extend_from_slice(&piece[..length]);
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")?;
    Ok(request)
}

#[test]
fn an_endpoint_that_is_down_is_reported_and_gets_the_newest_figures_when_it_is_back() -> Result<()>
{
    let dir = tempfile::tempdir()?;
    let recording = dir.path().join("recording");
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let endpoint = format!("http://{address}");
    let mut recorder = Command::new(program::memtrace()?)
        .args(["record", "--quiet", "-o"])
        .arg(&recording)
        .args(["--", "sleep", "60"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    await_that("it is recorded", || recording.join("run.json").exists());
    let mut export = Command::new(program::memtrace()?)
        .args([
            "export",
            "--to",
            "otlp",
            "--every",
            "1s",
            "--endpoint",
            &endpoint,
        ])
        .arg(&recording)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut said = BufReader::new(export.stderr.take().context("a pipe")?);
    let mut line = String::new();
    said.read_line(&mut line)?;
    assert!(line.contains("failed to send figures to http://"), "{line}");
    assert!(line.contains("failed to connect"), "{line}");
    let listener = TcpListener::bind(address)?;
    let serving = std::thread::spawn(move || served(&listener));
    let request = serving
        .join()
        .map_err(|_| anyhow::anyhow!("no request"))??;
    let request = String::from_utf8_lossy(&request);
    assert!(
        request.starts_with("POST /v1/metrics HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(request.contains("memtrace.held"), "{request}");
    line.clear();
    said.read_line(&mut line)?;
    assert!(
        line.contains("arrive at") && line.contains("again"),
        "{line}"
    );
    let pid = i32::try_from(recorder.id())?;
    // SAFETY: kill takes no memory; the child is not waited for yet, so the id is its own.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
    recorder.wait()?;
    // It ends with the recording, though nobody is there again.
    let status = export.wait()?;
    assert!(status.success(), "{status}");
    let closed = ["export", "--to", "otlp", "--endpoint", &endpoint];
    let closed = memtrace(
        closed
            .map(std::ffi::OsStr::new)
            .into_iter()
            .chain([recording.as_os_str()]),
    )?;
    assert!(words(&closed).contains("is closed"), "{}", words(&closed));
    let alone = memtrace(["export", "--to", "otlp"])?;
    assert!(words(&alone).contains("go together"), "{}", words(&alone));
    Ok(())
}
