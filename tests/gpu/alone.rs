//! `memtrace record --gpu-only`: the memory of GPUs and who holds it, and nothing else.

use super::*;
use memtrace_model::{MemRow, NodeMemRow};

#[test]
fn a_recording_of_gpus_alone_has_their_memory_and_who_holds_it() -> Result<()> {
    let (holder, _other) = (Sleeper::start()?, Sleeper::start()?);
    let fake = FakeGpus::new(&script(&[device(
        0,
        3 * GIB,
        &[Process::new(holder.pid(), GIB)],
    )]))?;
    let words = ["--quiet", "--gpu-only", "-a"];
    let recorder = Recorder::start_with(&words, &fake.environment())?;
    sleep(Duration::from_millis(2_500));
    let recorded = recorder.stop()?;
    let held = processes(&recorded)?;
    assert!(
        held.iter().all(|row| row.tgid.0 == holder.pid()),
        "{held:#?}"
    );
    assert!(!devices(&recorded)?.is_empty());
    let rows: Vec<ProcessRow> = recorded.recording.rows()?;
    let known: Vec<u32> = rows.iter().map(|row| row.tgid.0).collect();
    assert_eq!(known, [holder.pid()]);
    let mem: Vec<MemRow> = recorded.recording.rows()?;
    let node: Vec<NodeMemRow> = recorded.recording.rows()?;
    assert_eq!((mem.len(), node.len()), (0, 0));
    assert_eq!(info(&recorded).mark_socket, None);
    let report = report(&recorded, &[])?;
    assert!(report.contains("NVIDIA Test 80GB"), "{report}");
    assert!(report.contains("sleep"), "{report}");
    Ok(())
}

#[test]
fn without_a_gpu_there_is_nothing_to_record_alone() -> Result<()> {
    let fake = FakeGpus::new(&script(&[]))?.absent();
    let dir = tempfile::tempdir()?;
    let output = Command::new(program::memtrace()?)
        .args(["record", "--gpu-only", "-a", "-o"])
        .arg(dir.path().join("recording"))
        .envs(fake.environment())
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no GPU can be observed: "), "{said}");
    assert_eq!(dir.path().read_dir()?.count(), 0);
    Ok(())
}
