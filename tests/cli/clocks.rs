//! Clocks that are not the machine's.

use super::*;

mod needs_root {
    use super::*;
    use serde_json::Value;

    #[test]
    fn in_a_time_namespace_rows_have_the_clock_of_the_machine() -> Result<()> {
        let boot = || memtrace_host::clock::boot().0 / 1_000_000_000;
        for offset in ["100000", "-1000"] {
            let folder = tempfile::tempdir()?;
            let recording = folder.path().join("recording");
            let begin = boot();
            // Nothing but its own clock ends it.
            let recorded = Command::new("timeout")
                .args([
                    "--signal=KILL",
                    "60",
                    "unshare",
                    "--time",
                    "--boottime",
                    offset,
                ])
                .arg(program::memtrace()?)
                .args([
                    "record",
                    "-d",
                    "500ms",
                    "-p",
                    &std::process::id().to_string(),
                ])
                .arg("-o")
                .arg(&recording)
                .output()?;
            assert!(recorded.status.success(), "{recorded:?}");
            let path = recording.display().to_string();
            let text = memtrace(["report", &path, "-f", "json"])?;
            let report: Value = serde_json::from_slice(&text.stdout)?;
            assert_eq!(report["problems"], Value::Null, "{offset}");
            assert!(report["held_peak"]["bytes"].as_i64() > Some(0), "{offset}");
            let run: Value = serde_json::from_slice(&std::fs::read(recording.join("run.json"))?)?;
            let started = run["clocks"][0]["boot_ns"].as_i64().context("a clock")? / 1_000_000_000;
            assert!((begin..=boot()).contains(&started), "{offset}: {started}");
        }
        Ok(())
    }
}
