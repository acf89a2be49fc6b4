//! A tree as vLLM makes one, on two GPUs, from its first context to the worker that is left:
//! what the report says by role, of a sleep that was marked, and of who outlives the server.

use super::{RESERVED, amount, device, report, script, words};
use anyhow::{Context, Result};
use memtrace_model::tables::{Fate, SurvivorRow};
use memtrace_tests::gpu::{FakeGpus, GIB, MIB, Process, Script};
use memtrace_tests::program;
use memtrace_tests::recorder::{Recorded, Recorder};
use serde_json::Value;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Two workers that say who they are; the first ends with the server, the second does not.
const SERVER: &str = r#"
for rank in 0 1; do
    bash -c "exec -a VLLM::Worker_TP$rank sleep 300" >/dev/null &
    worker[$rank]=$!
    echo ${worker[$rank]}
done
while [ ! -e "$STOP" ]; do sleep 0.05; done
kill ${worker[0]}
wait ${worker[0]} 2>/dev/null
exit 0
"#;

/// A server that is being recorded.
struct Engine {
    recorder: Recorder,
    fake: FakeGpus,
    stop: tempfile::TempDir,
    workers: [u32; 2],
}

impl Engine {
    fn start(words: &[&str]) -> Result<Self> {
        let fake = FakeGpus::new(&script(&[device(0, 0, &[]), device(1, 0, &[])]))?;
        let stop = tempfile::tempdir()?;
        let mut command = Command::new("env");
        command.arg(format!("STOP={}", stop.path().join("stop").display()));
        command.args(["bash", "-c", SERVER]);
        let words: Vec<&str> = words
            .iter()
            .chain(&["--backend", "procfs"])
            .copied()
            .collect();
        let mut recorder = Recorder::of_command_with(&words, &command, &fake.environment())?;
        let workers = [recorder.line()?.parse()?, recorder.line()?.parse()?];
        Ok(Self {
            recorder,
            fake,
            stop,
            workers,
        })
    }

    /// A worker on each device, with so many MiB.
    fn state(&self, used: [u64; 2]) -> Script {
        let devices = [0, 1].map(|place| {
            let listed = [Process::new(self.workers[place], used[place] * MIB)];
            device(
                u32::try_from(place).unwrap_or(0),
                used[place] * MIB,
                &listed,
            )
        });
        script(&devices)
    }

    fn hold(&self, used: [u64; 2]) -> Result<()> {
        self.fake.set(&self.state(used))?;
        sleep(Duration::from_millis(600));
        Ok(())
    }

    /// A mark, as a shell beside it makes one.
    fn mark(&self, name: &str) -> Result<()> {
        let output = Command::new(program::memtrace()?)
            .args(["mark", name, "--recording"])
            .arg(self.recorder.path())
            .output()?;
        anyhow::ensure!(output.status.success(), "{output:?}");
        Ok(())
    }

    fn end(self) -> Result<(Recorded, [u32; 2])> {
        std::fs::write(self.stop.path().join("stop"), "")?;
        Ok((self.recorder.wait()?, self.workers))
    }
}

/// Kills a process that outlived a test's recording.
fn kill(pid: u32) -> Result<()> {
    Command::new("kill")
        .args(["-9", &pid.to_string()])
        .status()?;
    let begin = Instant::now();
    while std::path::Path::new(&format!("/proc/{pid}/exe")).exists() {
        anyhow::ensure!(begin.elapsed() < Duration::from_secs(5), "{pid} lives on");
        sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn json(recorded: &Recorded) -> Result<Value> {
    Ok(serde_json::from_str(&report(recorded, &["-f", "json"])?)?)
}

fn bytes(mib: u64) -> Value {
    Value::from(mib * MIB)
}

#[test]
fn a_run_is_reported_by_role_by_sleep_and_by_who_is_left() -> Result<()> {
    let engine = Engine::start(&["--quiet"])?;
    engine.hold([500, 500])?;
    engine.hold([40_960, 40_960])?;
    sleep(Duration::from_millis(1_200));
    engine.mark("vllm.sleep")?;
    sleep(Duration::from_millis(200));
    // The second does not hear it.
    engine.hold([1_280, 40_960])?;
    sleep(Duration::from_millis(1_200));
    engine.mark("vllm.wake_up")?;
    engine.hold([40_960, 40_960])?;
    engine.hold([0, 40_960])?;
    let (recorded, workers) = engine.end()?;
    kill(workers[1])?;
    let shown = json(&recorded)?;

    let roles = shown["roles"].as_array().context("no roles")?;
    let workers_on_gpus = roles.iter().find(|role| role["name"] == "vLLM worker");
    let on_gpus = &workers_on_gpus.context("no workers")?["gpu"];
    assert_eq!(on_gpus["peak_bytes"], bytes(81_920));
    assert_eq!(on_gpus["peak_is_lower_bound"], false);
    assert!(
        roles.iter().any(|role| role["gpu"].is_null()),
        "the shell was on none"
    );
    assert_eq!(shown["gpu"]["recorded_peak"]["bytes"], bytes(81_920));

    let sleeps = shown["gpu"]["sleeps"].as_array().context("no sleeps")?;
    let [asleep, awake] = &sleeps[..] else {
        anyhow::bail!("{sleeps:?}");
    };
    assert_eq!(asleep["name"], "vllm.sleep");
    assert_eq!(asleep["before_bytes"], bytes(81_920));
    assert_eq!(asleep["moved_bytes"], bytes(39_680));
    assert_eq!(asleep["holders"][0]["pid"], workers[1]);
    assert_eq!(asleep["holders"][0]["bytes"], bytes(40_960));
    assert_eq!(awake["is_return"], true);
    assert_eq!(awake["moved_bytes"], bytes(39_680));

    let survivor = &shown["survivors"][0];
    assert_eq!(survivor["pid"], workers[1]);
    assert_eq!(survivor["gpu_bytes"], bytes(40_960));
    for device in shown["gpu"]["devices"].as_array().context("no devices")? {
        let books = &device["peak"];
        let [used, processes, reserved, rest] = [
            "used_bytes",
            "processes_bytes",
            "reserved_bytes",
            "unattributed_bytes",
        ]
        .map(|part| books[part].as_i64());
        let sum = [processes, reserved, rest].into_iter().sum::<Option<i64>>();
        assert_eq!(sum, used, "{books}");
        assert_eq!(reserved, amount(RESERVED).map(|bytes| bytes.0));
    }
    let text = words(&report(&recorded, &[])?);
    for line in [
        "Recorded processes held 80.0 GiB on GPUs at their peak",
        "freed 38.8 GiB of 80.0 GiB",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    Ok(())
}

#[test]
fn a_sleep_that_frees_nothing_is_reported_as_that() -> Result<()> {
    let engine = Engine::start(&["--quiet", "--kill-survivors"])?;
    engine.hold([7_578, 7_578])?;
    engine.mark("sleep")?;
    engine.hold([7_578, 7_578])?;
    let (recorded, _) = engine.end()?;
    let shown = json(&recorded)?;
    let asleep = &shown["gpu"]["sleeps"][0];
    assert_eq!(asleep["moved_bytes"], 0, "{asleep}");
    assert_eq!(asleep["before_bytes"], bytes(15_156));
    assert_eq!(shown["gpu"]["falls"].as_array().map(Vec::len), Some(0));
    let text = words(&report(&recorded, &[])?);
    assert!(text.contains("freed 0 B of 14.8 GiB on GPU 0,1"), "{text}");
    Ok(())
}

#[test]
fn who_is_ended_as_a_survivor_is_reported_with_what_it_held_on_gpus() -> Result<()> {
    let engine = Engine::start(&["--kill-survivors"])?;
    engine.hold([1_024, 35 * 1_024])?;
    let (recorded, workers) = engine.end()?;
    let rows: Vec<SurvivorRow> = recorded.recording.rows()?;
    let row = rows.iter().find(|row| row.tgid.0 == workers[1]);
    let row = row.context("the survivor is not there")?;
    assert_eq!(row.gpu_bytes, amount(35 * GIB));
    assert_eq!(row.fate, Some(Fate::Terminated));
    let said = recorded.words()?;
    let shown = format!("{} sleep with 35.0 GiB on a GPU", workers[1]);
    assert!(said.contains(&shown), "{shown} is not in {said}");
    Ok(())
}
