//! The workload of the test that needs a GPU, with a stand-in for torch: it is known to say what
//! the test reads, and to end, before anybody runs it on a GPU.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn the_workload_says_what_each_process_holds_and_ends_though_one_was_killed() -> Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("gpu");
    let mut child = Command::new("python3")
        .arg(here.join("torch_workload.py"))
        .env("PYTHONPATH", here.join("fake_torch"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().context("no stdin")?;
    let output = BufReader::new(child.stdout.take().context("no stdout")?);
    let mut roles = Vec::new();
    for line in output.lines().take(5) {
        let line: Value = serde_json::from_str(&line?)?;
        ensure!(
            line["pid"].is_u64() && line["reserved_bytes"].is_u64(),
            "{line}"
        );
        roles.push(line["role"].as_str().unwrap_or_default().to_owned());
    }
    roles.sort();
    assert_eq!(roles, ["brief", "context", "ipc", "killed", "tensor"]);
    writeln!(stdin, "kill")?;
    drop(stdin);
    let begin = Instant::now();
    while child.try_wait()?.is_none() {
        if begin.elapsed() > Duration::from_secs(30) {
            child.kill()?;
            anyhow::bail!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(child.wait()?.success());
    Ok(())
}
