//! Whose process ids NVML speaks of: those of the pid namespace that asks, which need not be
//! those of the recording.

use super::{amount, device, processes, script};
use anyhow::{Context, Result};
use memtrace_model::tables::GpuProcessRow;
use memtrace_model::{ProcessRow, Tgid};
use memtrace_store::{Recording, Recordings};
use memtrace_tests::gpu::{FakeGpus, GIB, MIB, Process};
use memtrace_tests::recorder::Recorder;
use memtrace_tests::{need, program};
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// The first ids of a new namespace: its own init, the recorder, the command and what it
/// starts. Each holds as many MiB as its id, so that an amount tells whose it is.
fn first_ids(used: impl Fn(u32) -> u64) -> Vec<Process> {
    (1..30).map(|pid| Process::new(pid, used(pid))).collect()
}

/// Records a command from within a new pid namespace.
fn recorded_inside(dir: &Path, fake: &FakeGpus, backend: &str) -> Result<Recording> {
    let run = dir.join("run");
    let output = Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc"])
        .arg(program::memtrace()?)
        .args(["record", "--quiet", "--backend", backend, "-o"])
        .arg(&run)
        .args(["--", "sleep", "2"])
        .envs(fake.environment())
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{said}");
    Ok(Recordings::default().open(&run)?)
}

/// What needs root: a pid namespace of its own.
mod needs_root {
    use super::*;

    #[test]
    fn zero_bytes_inside_a_pid_namespace_are_unknown() -> Result<()> {
        need::require("root");
        let fake = FakeGpus::new(&script(&[device(0, GIB, &first_ids(|_| 0))]))?;
        let dir = tempfile::tempdir()?;
        let recording = recorded_inside(dir.path(), &fake, "procfs")?;
        let rows: Vec<GpuProcessRow> = recording.rows()?;
        assert!(rows.iter().any(|row| row.upid.is_some()), "{rows:?}");
        for row in rows {
            assert_eq!(row.used_bytes, None, "{row:?}");
        }
        Ok(())
    }

    #[test]
    fn inside_a_pid_namespace_a_poll_knows_a_process_by_the_id_that_nvml_tells() -> Result<()> {
        need::require("root");
        let holds = |pid: u32| u64::from(pid) * MIB;
        let fake = FakeGpus::new(&script(&[device(0, GIB, &first_ids(holds))]))?;
        let dir = tempfile::tempdir()?;
        let recording = recorded_inside(dir.path(), &fake, "procfs")?;
        assert_known(&recording, |process| Some(process.tgid))
    }

    /// As in a container into which the machine's procfs is mounted: its ids are not those
    /// that NVML tells there.
    #[test]
    fn with_the_machines_procfs_a_process_is_known_by_its_id_in_our_namespace() -> Result<()> {
        need::require("root");
        let holds = |pid: u32| u64::from(pid) * MIB;
        let fake = FakeGpus::new(&script(&[device(0, GIB, &first_ids(holds))]))?;
        let dir = tempfile::tempdir()?;
        let run = dir.path().join("run");
        // Not --mount-proc. Init is the shell, then memtrace, which records by name.
        let name = format!("3{}", std::process::id());
        let words = format!(
            "sleep {name} & exec {} record --quiet --backend procfs --match 'sleep {name}' -d 1s \
             -o {}",
            program::memtrace()?.display(),
            run.display()
        );
        let output = Command::new("unshare")
            .args(["--pid", "--fork", "sh", "-c", &words])
            .envs(fake.environment())
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "{said}");
        assert_known(&Recordings::default().open(&run)?, |process| {
            assert_ne!(Some(process.tgid), process.ns_tgid);
            process.ns_tgid
        })
    }

    /// The command is in `gpu_process` with its identity and with its own amount, which is
    /// that of its id inside.
    fn assert_known(
        recording: &Recording,
        id_inside: impl Fn(&ProcessRow) -> Option<Tgid>,
    ) -> Result<()> {
        let known: Vec<ProcessRow> = recording.rows()?;
        let command = known.iter().find(|row| row.comm == "sleep");
        let command = command.context("the command is not recorded")?;
        let inside = id_inside(command).context("its id inside is unknown")?;
        let rows: Vec<GpuProcessRow> = recording.rows()?;
        let own: Vec<_> = rows
            .iter()
            .filter(|row| row.upid == Some(command.upid))
            .collect();
        let first = own.first().context("it is on no GPU")?;
        assert_eq!(first.tgid, inside, "{first:?}");
        assert_eq!(first.used_bytes, amount(u64::from(inside.0) * MIB));
        let others = rows.iter().filter(|row| row.tgid != inside);
        for row in others {
            assert_ne!(row.upid, Some(command.upid), "{row:?}");
        }
        Ok(())
    }
}

/// What needs the kernel's own ids.
mod needs_bpf {
    use super::*;

    #[test]
    fn from_the_machine_a_process_in_a_pid_namespace_is_known_by_its_id_outside() -> Result<()> {
        need::require("bpf");
        for backend in ["bpf", "procfs"] {
            let mut inner = Command::new("unshare");
            inner.args(["--pid", "--fork", "--mount-proc", "sleep", "300"]);
            let outer = super::super::Sleeper::of(&mut inner)?;
            // unshare forks, and the child calls exec.
            sleep(Duration::from_millis(300));
            let children = format!("/proc/{0}/task/{0}/children", outer.pid());
            let child: u32 = std::fs::read_to_string(children)?.trim().parse()?;
            // NVML tells the ids of whoever asks; id 1 is another's there.
            let listed = [Process::new(child, 3 * GIB), Process::new(1, GIB)];
            let fake = FakeGpus::new(&script(&[device(0, 4 * GIB, &listed)]))?;
            let pid = outer.pid().to_string();
            let words = ["--quiet", "--backend", backend, "-p", &pid];
            let recorder = Recorder::start_with(&words, &fake.environment())?;
            sleep(Duration::from_millis(1_200));
            let recorded = recorder.stop()?;
            let known: Vec<ProcessRow> = recorded.recording.rows()?;
            let known = known.iter().find(|row| row.tgid.0 == child);
            let known = known.context("the process is not recorded")?;
            if backend == "bpf" {
                assert_eq!(known.ns_tgid, Some(Tgid(1)));
            }
            let rows = processes(&recorded)?;
            let held = |pid: u32| {
                let row = rows.iter().find(|row| row.tgid.0 == pid);
                row.map(|row| (row.upid, row.used_bytes))
            };
            assert_eq!(
                held(child),
                Some((Some(known.upid), amount(3 * GIB))),
                "{backend}"
            );
            assert_eq!(held(1), Some((None, amount(GIB))), "{backend}");
            // The child has its signal from its parent's end.
            drop(outer);
            let _ = Command::new("kill")
                .args(["-9", &child.to_string()])
                .status();
        }
        Ok(())
    }
}
