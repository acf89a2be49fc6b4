//! What only a GPU can tell: torch's own figures beside those of the recording.

use super::{amount, devices, processes};
use anyhow::{Context, Result, bail};
use memtrace_model::tables::GpuProcessRow;
use memtrace_tests::need;
use memtrace_tests::recorder::Recorder;
use serde_json::Value;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// What memory of a process may differ from torch's reserved memory and a context.
const WITHIN: f64 = 0.02;

fn number(line: &Value, key: &str) -> Result<i64> {
    line[key]
        .as_i64()
        .with_context(|| format!("no {key} in {line}"))
}

/// What nvidia-smi says that processes hold, in MiB by pid.
fn nvidia_smi() -> Result<HashMap<i64, i64>> {
    let output = Command::new("nvidia-smi")
        .args([
            "--query-compute-apps=pid,used_memory",
            "--format=csv,noheader,nounits",
        ])
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let pairs = text.lines().filter_map(|line| {
        let (pid, used) = line.split_once(',')?;
        Some((pid.trim().parse().ok()?, used.trim().parse().ok()?))
    });
    Ok(pairs.collect())
}

#[test]
fn processes_hold_what_torch_reserves_and_a_context() -> Result<()> {
    need::require("gpu");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("gpu/torch_workload.py");
    let mut child = Command::new("python3")
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().context("no stdin")?;
    let output = BufReader::new(child.stdout.take().context("no stdout")?);
    let pid = child.id().to_string();
    let recorder = Recorder::start(&["--quiet", "-p", &pid])?;
    let mut reported: HashMap<String, Value> = HashMap::new();
    for line in output.lines().take(5) {
        let line: Value = serde_json::from_str(&line?)?;
        let role = line["role"].as_str().context("a line without a role")?;
        reported.insert(role.to_owned(), line);
    }
    sleep(Duration::from_secs(3));
    let smi = nvidia_smi()?;
    writeln!(stdin, "kill")?;
    sleep(Duration::from_secs(3));
    let recorded = recorder.stop()?;
    drop(stdin);
    child.wait()?;

    let rows = processes(&recorded)?;
    let of = |role: &str| -> Result<Vec<&GpuProcessRow>> {
        let line = reported
            .get(role)
            .with_context(|| format!("{role} said nothing"))?;
        let pid = number(line, "pid")?;
        let rows: Vec<_> = rows
            .iter()
            .filter(|row| i64::from(row.tgid.0) == pid)
            .collect();
        match rows.is_empty() {
            true => bail!("{role} ({pid}) is not in gpu_process"),
            false => Ok(rows),
        }
    };
    let highest = |role: &str| -> Result<i64> {
        let amounts = of(role)?.into_iter().filter_map(|row| row.used_bytes);
        Ok(amounts
            .max()
            .with_context(|| format!("{role} has no amount"))?
            .0)
    };
    let reserved = |role: &str| number(&reported[role], "reserved_bytes");
    let context = highest("context")? - reserved("context")?;
    // Seen with `--no-capture`.
    eprintln!("context {context} bytes; bytes of torch, of the recording, MiB of nvidia-smi:");
    for role in ["context", "tensor", "ipc", "killed", "brief"] {
        let pid = number(&reported[role], "pid")?;
        let seen = highest(role).ok();
        eprintln!("{role}: {}, {seen:?}, {:?}", reserved(role)?, smi.get(&pid));
    }
    for role in ["tensor", "killed"] {
        let (seen, expected) = (highest(role)?, reserved(role)? + context);
        let off = (seen - expected).abs() as f64 / expected as f64;
        assert!(off <= WITHIN, "{role}: {seen} instead of {expected}");
    }
    // Of another's tensor a process holds its context alone.
    assert!(highest("ipc")? < reserved("tensor")?);
    let last = of("killed")?.last().and_then(|row| row.used_bytes);
    assert_eq!(last, amount(0), "who was killed holds nothing");
    for row in devices(&recorded)? {
        let sum = row
            .used_bytes
            .zip(row.free_bytes)
            .map(|(used, free)| used + free);
        assert_eq!(sum, row.total_bytes);
    }
    let pinned = number(&reported["tensor"], "pinned_bytes")?;
    let mappings: Vec<memtrace_model::tables::MappingRow> = recorded.recording.rows()?;
    let mut shown = mappings
        .iter()
        .filter(|row| format!("{row:?}").contains("/dev/zero"));
    eprintln!(
        "pinned {pinned} bytes; mappings of /dev/zero: {:#?}",
        shown.next_back()
    );
    Ok(())
}
