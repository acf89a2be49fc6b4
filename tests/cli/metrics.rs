//! `memtrace export --listen`, as a monitoring system meets it.

use super::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
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
