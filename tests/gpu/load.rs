//! A condition of a load experiment, while the memory of GPUs changes.

use super::*;

/// What a file of the only run has.
fn exported(recorded: &Recorded, name: &str) -> Result<String> {
    let to = recorded.path().with_file_name("exported");
    if !to.exists() {
        let output = Command::new(program::memtrace()?)
            .arg("export")
            .arg(recorded.path())
            .args(["--to", "load", "-o"])
            .arg(&to)
            .output()?;
        anyhow::ensure!(output.status.success(), "{output:?}");
    }
    Ok(std::fs::read_to_string(to.join("some-run").join(name))?)
}

#[test]
fn an_exported_run_has_the_memory_of_each_gpu_while_it_was_sent() -> Result<()> {
    let sleeper = Sleeper::start()?;
    let held = |used: [u64; 2]| {
        let own = [Process::new(sleeper.pid(), used[0] * GIB)];
        script(&[
            device(0, used[0] * GIB, &own),
            device(1, used[1] * GIB, &[]),
        ])
    };
    let fake = FakeGpus::new(&held([1, 2]))?;
    let pid = sleeper.pid().to_string();
    let words = ["--quiet", "--backend", "procfs", "-p", &pid];
    let recorder = Recorder::start_with(&words, &fake.environment())?;
    let mark = |words: &[&str]| -> Result<()> {
        let output = Command::new(program::memtrace()?)
            .args(["mark", "in8-out4", "--recording"])
            .arg(recorder.path())
            .args(words)
            .output()?;
        anyhow::ensure!(output.status.success(), "{output:?}");
        Ok(())
    };
    a_moment()?;
    fake.set(&held([3, 4]))?;
    a_moment()?;
    mark(&[
        "--begin",
        "--attr",
        "load_run=some-run",
        "--attr",
        "condition=0",
        "--attr",
        "concurrency=2",
    ])?;
    a_moment()?;
    fake.set(&held([5, 4]))?;
    sleep(Duration::from_secs(1));
    mark(&["--end"])?;
    fake.set(&held([7, 8]))?;
    a_moment()?;
    let recorded = recorder.stop()?;
    let trace = exported(&recorded, "gpu_mem_trace.csv")?;
    let mut lines = trace
        .split_terminator("\r\n")
        .map(|line| line.split(',').collect::<Vec<_>>());
    let names = lines.next().context("a head")?;
    let place = |name: &str| names.iter().position(|column| *column == name);
    let [index, used] = [place("gpu_index"), place("used_mib")];
    let (index, used) = (index.context("an index")?, used.context("an amount")?);
    let mut seen: Vec<(&str, u64)> = Vec::new();
    let mut count = 0;
    for line in lines {
        let mib: f64 = line[used].parse()?;
        // What the driver reserves is in use too.
        seen.push((line[index], (mib as u64 * MIB - RESERVED).div_ceil(GIB)));
        count += 1;
    }
    seen.sort_unstable();
    seen.dedup();
    // Neither what was held before the condition nor what was after it.
    assert_eq!(seen, [("0", 3), ("0", 5), ("1", 4)], "{trace}");
    assert!(
        (10..=24).contains(&count),
        "{count} lines in some 1.5 s: {trace}"
    );
    let summary: serde_json::Value = serde_json::from_str(&exported(&recorded, "summary.json")?)?;
    let memory = &summary["conditions"][0]["memory"];
    let role = &memory["roles_at_gpu_peak"][0];
    assert_eq!(role["gpu_bytes"], 5 * GIB, "{memory}");
    assert!(
        memory["gpu_peak_bytes"].as_u64() >= Some(9 * GIB),
        "{memory}"
    );
    Ok(())
}
