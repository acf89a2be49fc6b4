//! `record --stacks`: leaks are planted, and the first line that is named must be theirs.

use super::*;
use memtrace_tests::allocations::{mib, site};
use memtrace_tests::workload;

#[test]
fn another_backend_than_bpf_can_record_no_stacks() -> Result<()> {
    let words = ["record", "--stacks", "--backend", "procfs", "--", "true"];
    let output = memtrace(words)?;
    assert_eq!(output.status.code(), Some(1));
    let said = super::words(&output);
    assert!(said.contains("--stacks needs the bpf backend"), "{said}");
    Ok(())
}

mod needs_bpf {
    use super::*;
    use memtrace_tests::need;
    use memtrace_tests::recorder::record;

    #[test]
    fn what_malloc_keeps_free_is_not_called_live() -> Result<()> {
        need::require("bpf");
        let command = workload::command(&["sites", "--rounds", "0", "--in-heap", "500"])?;
        let recorded = record(&["--stacks"], &command)?;
        let report = recorded.report(&[])?;
        // 500 blocks of 96 KiB each; the page that two of them share is of who touches it first. Of some
        // 45 samples a tenth are of such pages, give or take four in a hundred.
        for (function, key, other) in [
            ("grow_in_heap_and_keep", "live_bytes", "kept_bytes"),
            ("grow_in_heap_and_free", "kept_bytes", "live_bytes"),
        ] {
            let one = site(&report, function)?;
            let resident = mib(one, "resident_bytes");
            assert!(resident >= 20.0, "{one}");
            assert!(mib(one, key) >= 0.7 * resident, "{one}");
            assert!(mib(one, other) <= 0.3 * resident, "{one}");
        }
        let text = recorded.report_text(&[])?;
        assert!(text.contains("kept free by malloc"), "{text}");
        let text = recorded.report_text(&["--process", "sites"])?;
        assert!(text.contains("Who allocated it"), "{text}");
        Ok(())
    }

    const SHARED: &str = r#"
import mmap, os, time
KEPT = []
ONES = b"1" * (1 << 20)
def keep_own():
    memory = mmap.mmap(-1, 1 << 20)
    memory.write(ONES)
    KEPT.append(memory)
def keep_for_reader():
    memory = mmap.mmap(-1, 1 << 20)
    memory.write(ONES)
    KEPT.append(memory)
for _ in range(30):
    if os.fork() == 0:
        held = b"2" * (4 << 20)
        os._exit(0)
    os.wait()
for i in range(50):
    keep_for_reader()
    time.sleep(0.01)
if os.fork() == 0:
    held = [memory[:] for memory in KEPT]
    time.sleep(6)
    os._exit(0)
for i in range(100):
    keep_own()
    time.sleep(0.01)
time.sleep(2)
os._exit(0)
"#;

    #[test]
    fn shared_memory_is_of_who_touched_it_until_others_map_it_too() -> Result<()> {
        need::require("bpf");
        let recorded = record(&["--stacks"], Command::new("python3").args(["-c", SHARED]))?;
        let report = recorded.report(&[])?;
        let [own, read] = ["keep_own", "keep_for_reader"].map(|function| site(&report, function));
        let (own, read) = (own?, read?);
        assert!(mib(own, "resident_bytes") >= 60.0, "{own}");
        assert_eq!(mib(own, "shared_bytes"), 0.0, "{own}");
        assert!(mib(read, "shared_bytes") >= 30.0, "{read}");
        assert!(mib(read, "resident_bytes") <= 10.0, "{read}");
        let text = recorded.report_text(&[])?;
        assert!(text.contains("in memory that others map, too"), "{text}");
        assert!(!text.contains("are left out"), "{text}");
        Ok(())
    }

    /// Who keeps memory, nine times as much as a thread does, and who gives it back. Some twenty samples
    /// of each are drawn, so what is closer can change places.
    const SCRIPT: &str = r#"
import mmap, threading, time
KEPT = []
ZEROS = bytes(1 << 20)
def update(i):
    KEPT.append([i * 1000 + k for k in range(60_000)])
def in_thread():
    for i in range(25):
        KEPT.append([i * 7 + k for k in range(20_000)])
        time.sleep(0.003)
def freed():
    memory = mmap.mmap(-1, 1 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(ZEROS)
    memory.close()
thread = threading.Thread(target=in_thread)
thread.start()
for i in range(80):
    update(i)
    freed()
    time.sleep(0.003)
thread.join()
time.sleep(1.5)
"#;

    #[test]
    fn a_leak_in_python_is_named_by_its_line() -> Result<()> {
        need::require("bpf");
        let dir = tempfile::tempdir()?;
        let script = dir.path().join("leak.py");
        std::fs::write(&script, SCRIPT)?;
        let mut command = Command::new("python3");
        command.arg("-c").arg(format!(
            "import sys; print(sys.version_info[:2] in [(3, 11), (3, 12), (3, 13)]); \
             sys.stdout.flush(); exec(compile(open({script:?}).read(), {script:?}, 'exec'))"
        ));
        let recorded = record(&["--stacks"], &command)?;
        let is_known = String::from_utf8_lossy(&recorded.output).contains("True");
        let report = recorded.report(&[])?;
        if !is_known {
            // Of a version that is not known nothing is read.
            assert!(!report["allocations"].to_string().contains("leak.py"));
            return Ok(());
        }
        let processes = report["allocations"].as_array().context("allocations")?;
        let first = &processes.first().context("a process")?["sites"][0];
        assert_eq!(first["frame"]["kind"], "python", "{first}");
        assert_eq!(first["frame"]["line"], 6, "{first}");
        let function = first["frame"]["function"].as_str().context("a function")?;
        assert!(function.starts_with("update"), "{first}");
        let in_thread = site(&report, "in_thread")?;
        assert_eq!(in_thread["frame"]["line"], 9, "{in_thread}");
        let freed = site(&report, "freed")?;
        let [held, grown] = ["resident_bytes", "grown_bytes"].map(|key| mib(freed, key));
        assert!(held <= grown / 2.0, "{freed}");
        let text = recorded.report_text(&[])?;
        assert!(text.contains("% at leak.py:6 update"), "{text}");
        Ok(())
    }
}
