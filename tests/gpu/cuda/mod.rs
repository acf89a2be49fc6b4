//! Calls of the CUDA driver, as programs make them. The driver is a stand-in that keeps its own
//! account of what it handed out; that is what the tables are compared with.

mod driver;

use anyhow::{Context, Result, ensure};
use memtrace_model::tables::{CudaCallRow, CudaMemoryRow};
use memtrace_model::{BootNs, ProcessRow, Upid};
use memtrace_tests::cuda::{DeviceHeld, FakeCuda, Held};
use memtrace_tests::recorder::{Recorded, Recorder};
use memtrace_tests::workload;
use std::collections::BTreeMap;

/// What the driver said that a process held, and when.
#[derive(Clone, Debug, serde::Deserialize)]
struct Checkpoint {
    at: String,
    pid: u32,
    boot_ns: i64,
    held: Held,
}

impl Checkpoint {
    /// Of the lines of a workload, those that are checkpoints.
    fn all(output: &[u8]) -> Result<Vec<Self>> {
        let lines = workload::parse(output)?.into_iter();
        lines
            .filter(|line| line["at"].is_string())
            .map(|line| Ok(serde_json::from_value(line)?))
            .collect()
    }
}

/// A recorded scenario.
struct Run {
    recorded: Recorded,
    checkpoints: Vec<Checkpoint>,
    memory: Vec<CudaMemoryRow>,
    calls: Vec<CudaCallRow>,
    upids: BTreeMap<u32, Upid>,
}

/// Records a scenario from its start to its end, with the library where the dynamic linker looks.
fn run(scenario: &str, words: &[&str]) -> Result<Run> {
    let cuda = FakeCuda::new()?;
    let all = [&["cuda", "--scenario", scenario], words].concat();
    let mut command = workload::command(&all)?;
    command.args(["--library", "libcuda.so.1"]);
    let words = ["--quiet", "--backend", "bpf"];
    let recorder = Recorder::of_command_with(&words, &command, &cuda.environment())?;
    Run::of(recorder.wait()?)
}

impl Run {
    /// Of a recorder whose command was the workload.
    fn of(recorded: Recorded) -> Result<Self> {
        ensure!(recorded.exit_code == 0, "{}", recorded.words()?);
        let checkpoints = Checkpoint::all(&recorded.output)?;
        Self::with(recorded, checkpoints)
    }

    fn with(recorded: Recorded, checkpoints: Vec<Checkpoint>) -> Result<Self> {
        ensure!(!checkpoints.is_empty(), "the workload said nothing");
        let processes: Vec<ProcessRow> = recorded.recording.rows()?;
        let upids = processes.iter().map(|row| (row.tgid.0, row.upid));
        Ok(Self {
            memory: recorded.recording.rows()?,
            calls: recorded.recording.rows()?,
            upids: upids.collect(),
            recorded,
            checkpoints,
        })
    }

    fn upid(&self, pid: u32) -> Result<Upid> {
        let upid = self.upids.get(&pid).copied();
        upid.with_context(|| format!("process {pid} is not recorded"))
    }

    fn checkpoint(&self, at: &str) -> Result<&Checkpoint> {
        let mut named = self.checkpoints.iter().filter(|one| one.at == at);
        named.next().with_context(|| format!("no checkpoint {at}"))
    }

    /// The row of a process and a device that holds at a time.
    fn row(&self, upid: Upid, device: Option<i32>, at: i64) -> Option<&CudaMemoryRow> {
        let rows = self.memory.iter().filter(|row| row.upid == upid);
        let rows = rows.filter(|row| row.cuda_device == device && row.boot_ns <= BootNs(at));
        rows.max_by_key(|row| row.boot_ns)
    }

    /// Every device of a process that the tables know.
    fn devices(&self, upid: Upid) -> Vec<Option<i32>> {
        let rows = self.memory.iter().filter(|row| row.upid == upid);
        let mut devices: Vec<_> = rows.map(|row| row.cuda_device).collect();
        devices.sort_unstable();
        devices.dedup();
        devices
    }

    /// Compares the tables with the driver's account at every checkpoint, and at the end.
    fn check(&self) -> Result<()> {
        let mut differences = Vec::new();
        for checkpoint in &self.checkpoints {
            differences.extend(self.differences(checkpoint)?);
        }
        differences.extend(self.left_at_the_end()?);
        ensure!(differences.is_empty(), "\n{}", differences.join("\n"));
        Ok(())
    }

    /// What a row says that the driver does not, at a checkpoint.
    fn differences(&self, checkpoint: &Checkpoint) -> Result<Vec<String>> {
        let upid = self.upid(checkpoint.pid)?;
        let mut differences = Vec::new();
        let mut devices = checkpoint.held.devices.clone();
        for device in self.devices(upid) {
            if devices.iter().all(|held| held.cuda_device != device) {
                devices.push(DeviceHeld {
                    cuda_device: device,
                    ..DeviceHeld::default()
                });
            }
        }
        for held in devices {
            let row = self.row(upid, held.cuda_device, checkpoint.boot_ns);
            for (name, expected, seen) in pairs(&held, row) {
                if expected != seen {
                    differences.push(format!(
                        "{} of {}, device {:?}: {name} is {seen} and not {expected}",
                        checkpoint.at, checkpoint.pid, held.cuda_device
                    ));
                }
            }
            if let Some(row) = row
                && held.device_uuid.is_some()
                && row.device_uuid != held.device_uuid
            {
                differences.push(format!(
                    "{} of {}: {:?} and not {:?}",
                    checkpoint.at, checkpoint.pid, row.device_uuid, held.device_uuid
                ));
            }
            if row.is_some_and(|row| !row.is_whole) {
                differences.push(format!(
                    "{} of {}: not whole",
                    checkpoint.at, checkpoint.pid
                ));
            }
        }
        Ok(differences)
    }

    /// What the last rows of processes hold: none lives any more.
    fn left_at_the_end(&self) -> Result<Vec<String>> {
        let mut left = Vec::new();
        for (pid, upid) in &self.upids {
            for device in self.devices(*upid) {
                let row = self.row(*upid, device, i64::MAX);
                for (name, expected, seen) in pairs(&DeviceHeld::default(), row) {
                    if seen != expected && name != "failed_count" {
                        left.push(format!("{pid} ended and holds {name} {seen} of {device:?}"));
                    }
                }
            }
        }
        Ok(left)
    }

    /// Direct, mapped by hand, of pools: of all devices, also of the one that is not known.
    fn sum(&self, checkpoint: &Checkpoint) -> Result<(i64, i64, i64)> {
        let upid = self.upid(checkpoint.pid)?;
        let devices = self.devices(upid).into_iter();
        let rows = devices.filter_map(|device| self.row(upid, device, checkpoint.boot_ns));
        let of = |row: &CudaMemoryRow| (row.direct_bytes.0, row.vmm_bytes.0, row.pool_bytes.0);
        Ok(rows.map(of).fold((0, 0, 0), |sum, row| {
            (sum.0 + row.0, sum.1 + row.1, sum.2 + row.2)
        }))
    }

    /// Calls of one process, oldest first.
    fn calls_of(&self, pid: u32) -> Result<Vec<&CudaCallRow>> {
        let upid = self.upid(pid)?;
        Ok(self.calls.iter().filter(|row| row.upid == upid).collect())
    }
}

/// What both sides count, by name: the driver's figure, and the table's.
fn pairs(held: &DeviceHeld, row: Option<&CudaMemoryRow>) -> Vec<(&'static str, i64, i64)> {
    let failed: u64 = held.refused.values().sum();
    let of = |value: fn(&CudaMemoryRow) -> i64| row.map_or(0, value);
    vec![
        (
            "direct_bytes",
            held.direct_bytes,
            of(|row| row.direct_bytes.0),
        ),
        ("vmm_bytes", held.vmm_bytes, of(|row| row.vmm_bytes.0)),
        ("pool_bytes", held.pool_bytes, of(|row| row.pool_bytes.0)),
        (
            "managed_bytes",
            held.managed_bytes,
            of(|row| row.managed_bytes.0),
        ),
        (
            "imported_bytes",
            held.imported_bytes,
            of(|row| row.imported_bytes.0),
        ),
        (
            "pinned_bytes",
            held.pinned_bytes,
            of(|row| row.pinned_bytes.0),
        ),
        (
            "registered_bytes",
            held.registered_bytes,
            of(|row| row.registered_bytes.0),
        ),
        (
            "padding_bytes",
            held.padding_bytes,
            of(|row| row.padding_bytes.0),
        ),
        (
            "context_count",
            held.context_count,
            of(|row| row.context_count),
        ),
        (
            "library_count",
            held.library_count,
            of(|row| row.library_count),
        ),
        ("graph_count", held.graph_count, of(|row| row.graph_count)),
        ("failed_count", failed as i64, of(|row| row.failed_count)),
    ]
}

mod needs_bpf;
