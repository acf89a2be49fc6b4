//! How a recording begins and ends beside a driver that takes its time, and devices that are
//! asked for by name.

use super::{RESERVED, Sleeper, amount, device, devices, info, report, script};
use anyhow::{Context, Result};
use memtrace_tests::gpu::{Device, FakeGpus, GIB, GPU_IS_LOST, Script};
use memtrace_tests::program;
use memtrace_tests::recorder::{Recorded, record_in};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// A driver that takes so long to wake its devices.
fn slow_to_start(seconds: u64) -> Result<FakeGpus> {
    let mut slow = script(&[device(0, GIB, &[])]);
    let init = "nvmlInit_v2".to_owned();
    slow.slow_us.insert(init, seconds * 1_000_000);
    FakeGpus::new(&slow)
}

fn command(fake: &FakeGpus, words: &[&str], command: &mut Command) -> Result<(Recorded, Duration)> {
    let begin = Instant::now();
    let all = ["--quiet", "--backend", "procfs"];
    let words: Vec<&str> = all.iter().chain(words).copied().collect();
    let recorded = record_in(&words, command, |mut recorder| {
        recorder.envs(fake.environment());
        recorder
    })?;
    Ok((recorded, begin.elapsed()))
}

#[test]
fn a_short_command_waits_for_no_driver_neither_at_its_begin_nor_at_its_end() -> Result<()> {
    let fake = slow_to_start(20)?;
    let (recorded, took) = command(&fake, &[], &mut Command::new("true"))?;
    assert_eq!(recorded.exit_code, 0);
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(devices(&recorded)?, []);
    let info = info(&recorded);
    assert_eq!(info.gpus, []);
    let note = info.gpu_note.as_deref().context("no note")?;
    assert!(note.contains("did not answer by the end"), "{note}");
    let report = super::words(&report(&recorded, &[])?);
    assert!(
        report.contains("memory of NVIDIA GPUs is unknown: the driver did not answer by the end"),
        "{report}"
    );
    Ok(())
}

#[test]
fn a_driver_that_answers_late_is_recorded_from_then_on_and_the_report_says_from_when() -> Result<()>
{
    let fake = slow_to_start(2)?;
    let (recorded, _) = command(&fake, &[], Command::new("sleep").arg("4"))?;
    let first = devices(&recorded)?.into_iter().next().context("no row")?;
    assert_eq!(first.used_bytes, amount(GIB + RESERVED));
    let begin = info(&recorded).clocks[0].boot_ns;
    let late = first.boot_ns - begin;
    assert!((1_900_000_000..3_500_000_000).contains(&late.0), "{late:?}");
    assert_eq!(info(&recorded).gpus.len(), 1);
    assert_eq!(info(&recorded).gpu_note, None);

    let report = report(&recorded, &[])?;
    let text = format!("GPU memory is known only from +{:.1}s", late.as_secs_f64());
    assert!(report.contains(&text), "{text}: {report}");
    Ok(())
}

#[test]
fn a_command_that_ends_as_its_gpus_are_found_still_has_them_in_its_recording() -> Result<()> {
    let fake = FakeGpus::new(&script(&[device(0, GIB, &[])]))?;
    let (recorded, _) = command(&fake, &[], &mut Command::new("true"))?;
    let last = devices(&recorded)?.pop().context("no row")?;
    assert_eq!(last.used_bytes, amount(GIB + RESERVED));
    Ok(())
}

fn named(fake: &FakeGpus, names: &[&str]) -> Result<Output> {
    let sleeper = Sleeper::start()?;
    let dir = tempfile::tempdir()?;
    let mut memtrace = Command::new(program::memtrace()?);
    memtrace.args(["record", "-d", "1s", "-p"]);
    memtrace.arg(sleeper.pid().to_string());
    memtrace.arg("-o").arg(dir.path().join("run"));
    names.iter().for_each(|name| {
        memtrace.args(["--gpu", name]);
    });
    Ok(memtrace.envs(fake.environment()).output()?)
}

#[test]
fn a_gpu_that_was_named_and_is_not_there_is_an_error_that_names_those_that_are() -> Result<()> {
    let mut lost = device(1, 0, &[]);
    lost.fail
        .insert("nvmlDeviceGetUUID".to_owned(), GPU_IS_LOST);
    let all: [Device; 3] = [device(0, 0, &[]), lost, device(2, 0, &[])];
    let fake = FakeGpus::new(&script(&all))?;
    let absent = FakeGpus::new(&Script::default())?.absent();
    let cases: [(&FakeGpus, &[&str], &[&str]); 5] = [
        (
            &fake,
            &["7"],
            &["no GPU 7 can be", "0 (GPU-0), 2 (GPU-2)", "memtrace doctor"],
        ),
        // One that is there does not excuse one that is not.
        (
            &fake,
            &["0", "GPU-5"],
            &["no GPU GPU-5 can be", "0 (GPU-0)"],
        ),
        (
            &fake,
            &["1"],
            &[
                "no GPU 1 can be",
                "device 1 can't be asked",
                "fell off the bus",
            ],
        ),
        (
            &fake,
            &["pci:0000:99:00.0"],
            &["no GPU pci:0000:99:00.0 can be", "/sys/class/drm"],
        ),
        (
            &absent,
            &["0"],
            &["no GPU 0 can be", "cannot open shared object file"],
        ),
    ];
    for (fake, names, text) in cases {
        let output = named(fake, names)?;
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        for part in text {
            assert!(said.contains(part), "{part} is not in {said}");
        }
    }
    Ok(())
}

/// Both wait for ten seconds, beside each other.
#[test]
fn the_doctor_and_who_names_a_gpu_are_reported_that_the_driver_did_not_answer_in_ten_seconds()
-> Result<()> {
    let (named, doctor) = std::thread::scope(|scope| {
        let named = scope.spawn(who_names_a_gpu_is_reported_so);
        let doctor = the_doctor_says_so();
        (named.join(), doctor)
    });
    doctor?;
    match named {
        Ok(named) => named,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn who_names_a_gpu_is_reported_so() -> Result<()> {
    let fake = slow_to_start(30)?;
    let begin = Instant::now();
    let output = named(&fake, &["0"])?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("did not answer within 10 s"), "{said}");
    assert!(!said.contains("from when it does"), "{said}");
    assert!(begin.elapsed() < Duration::from_secs(20));
    Ok(())
}

fn the_doctor_says_so() -> Result<()> {
    let fake = slow_to_start(60)?;
    let begin = Instant::now();
    let output = Command::new(program::memtrace()?)
        .arg("doctor")
        .envs(fake.environment())
        .output()?;
    let said = super::words(&String::from_utf8(output.stdout)?);
    assert!(said.contains("did not answer within 10 s"), "{said}");
    assert!(begin.elapsed() < Duration::from_secs(30));
    Ok(())
}

#[test]
fn who_names_a_gpu_waits_for_a_slow_driver() -> Result<()> {
    let fake = slow_to_start(2)?;
    let output = named(&fake, &["0"])?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("with the memory of NVIDIA Test 80GB"),
        "{said}"
    );
    Ok(())
}
