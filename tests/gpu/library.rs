//! The library itself: absent, old, slow, hung, or asked for some of its devices only.

use super::RESERVED;
use super::{
    Sleeper, a_moment, amount, device, devices, diagnoses, info, processes, recorded, script, words,
};
use anyhow::{Context, Result};
use memtrace::model::DiagKind;
use memtrace_tests::gpu::{Device, FakeGpus, GIB, NOT_SUPPORTED, Process, Script};
use memtrace_tests::program;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

#[test]
fn a_driver_without_the_third_version_is_asked_for_the_second() -> Result<()> {
    let ours = Sleeper::start()?;
    let listed = [Process::new(ours.pid(), GIB)];
    let fake = FakeGpus::new(&script(&[device(0, GIB, &listed)]))?.without(&[
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        "nvmlDeviceGetMPSComputeRunningProcesses_v3",
        "nvmlDeviceGetMemoryInfo_v2",
    ])?;
    let recorded = recorded(&fake, ours.pid(), &[], a_moment)?;
    assert_eq!(processes(&recorded)?[0].used_bytes, amount(GIB));
    let row = &devices(&recorded)?[0];
    assert_eq!(row.used_bytes, amount(GIB + RESERVED));
    assert_eq!(row.reserved_bytes, None);
    let said = diagnoses(&recorded)?;
    assert!(said.iter().all(|row| row.subject != "GPU-0"), "{said:?}");
    Ok(())
}

#[test]
fn slow_calls_are_made_less_often_and_hold_up_nothing() -> Result<()> {
    let ours = Sleeper::start()?;
    let mut slow = script(&[device(0, GIB, &[Process::new(ours.pid(), GIB)])]);
    slow.slow_us
        .insert("nvmlDeviceGetMemoryInfo_v2".to_owned(), 20_000);
    let fake = FakeGpus::new(&slow)?;
    let recorded = recorded(&fake, ours.pid(), &[], || {
        sleep(Duration::from_millis(3_000));
        Ok(())
    })?;
    let said = diagnoses(&recorded)?;
    let slowed = said.iter().find(|row| row.kind == Some(DiagKind::BackOff));
    let slowed = slowed.context("nothing was said")?;
    assert!(
        slowed.detail.starts_with("GPU memory now every"),
        "{}",
        slowed.detail
    );
    let last = devices(&recorded)?.pop().context("no device")?;
    let (spent, count) = (last.call_total_ns.context("no time")?.0, last.call_count);
    // 30 readings in 3 s would be some 60 calls and 600 ms.
    assert!(count.is_some_and(|count| count < 40), "{count:?}");
    assert!(spent < 400_000_000, "{spent}");
    // The loop of the recorder has gone on in its own time.
    let node: Vec<memtrace::model::tables::NodeMemRow> = recorded.recording.rows()?;
    assert!(node.len() >= 3, "{}", node.len());
    Ok(())
}

#[test]
fn a_call_that_hangs_does_not_keep_the_recording_from_ending() -> Result<()> {
    let ours = Sleeper::start()?;
    let good = script(&[device(0, GIB, &[Process::new(ours.pid(), GIB)])]);
    let mut hung = good.clone();
    hung.slow_us
        .insert("nvmlDeviceGetMemoryInfo_v2".to_owned(), 60_000_000);
    let fake = FakeGpus::new(&good)?;
    let mut asked = Instant::now();
    let recorded = recorded(&fake, ours.pid(), &[], || {
        a_moment()?;
        fake.set(&hung)?;
        a_moment()?;
        asked = Instant::now();
        Ok(())
    })?;
    assert!(
        asked.elapsed() < Duration::from_secs(10),
        "{:?}",
        asked.elapsed()
    );
    assert_eq!(recorded.exit_code, 0);
    assert_eq!(devices(&recorded)?[0].used_bytes, amount(GIB + RESERVED));
    Ok(())
}

#[test]
fn without_a_gpu_there_is_no_word_but_in_run_json() -> Result<()> {
    let ours = Sleeper::start()?;
    let fake = FakeGpus::new(&Script::default())?;
    let wrong = FakeGpus::new(&Script::default())?.of_another_machine()?;
    let none = FakeGpus::new(&Script::default())?;
    let cases = [
        (fake.absent(), "cannot open shared object file"),
        (wrong, "libnvidia-ml.so.1"),
        (none, "knows of no device"),
    ];
    for (fake, reason) in cases {
        let recorded = recorded(&fake, ours.pid(), &[], a_moment)?;
        let note = info(&recorded).gpu_note.clone().context("no note")?;
        assert!(note.contains(reason), "{note}");
        assert_eq!(devices(&recorded)?, []);
        let said = diagnoses(&recorded)?;
        assert!(said.iter().all(|row| row.subject != "nvml"), "{said:?}");
    }
    Ok(())
}

#[test]
fn gpus_are_chosen_by_index_or_uuid() -> Result<()> {
    let ours = Sleeper::start()?;
    let all: Vec<Device> = (0..4).map(|place| device(place, GIB, &[])).collect();
    let fake = FakeGpus::new(&script(&all))?;
    let words = ["--gpu", "3", "--gpu", "gpu-1"];
    let recorded = recorded(&fake, ours.pid(), &words, a_moment)?;
    let mut seen: Vec<String> = devices(&recorded)?
        .into_iter()
        .map(|row| row.device)
        .collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen, ["GPU-1", "GPU-3"]);
    Ok(())
}

#[test]
fn a_list_that_is_not_supported_is_told_and_the_device_goes_on() -> Result<()> {
    let ours = Sleeper::start()?;
    let mut gpu = device(0, GIB, &[]);
    for version in ["_v2", "_v3"] {
        let call = format!("nvmlDeviceGetComputeRunningProcesses{version}");
        gpu.fail.insert(call, NOT_SUPPORTED);
    }
    let fake = FakeGpus::new(&script(&[gpu]))?;
    let recorded = recorded(&fake, ours.pid(), &[], a_moment)?;
    assert_eq!(devices(&recorded)?[0].used_bytes, amount(GIB + RESERVED));
    assert_eq!(processes(&recorded)?, []);
    let said = diagnoses(&recorded)?;
    let told = said
        .iter()
        .find(|row| row.subject == "GPU-0")
        .context("untold")?;
    assert!(
        told.detail.contains("ComputeRunningProcesses"),
        "{}",
        told.detail
    );
    Ok(())
}

#[test]
fn doctor_says_what_the_library_answers_and_what_each_call_costs() -> Result<()> {
    let mut slow = script(&[device(0, GIB, &[])]);
    slow.slow_us
        .insert("nvmlDeviceGetComputeRunningProcesses_v3".to_owned(), 5_000);
    let fake = FakeGpus::new(&slow)?;
    let output = Command::new(program::memtrace()?)
        .args(["doctor", "--json"])
        .envs(fake.environment())
        .output()?;
    let document: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let nvml = &document["facts"]["nvml"];
    assert_eq!(nvml["driver"], "999.01");
    assert_eq!(nvml["devices"][0]["device"], "GPU-0");
    let calls = nvml["calls"].as_array().context("no calls")?;
    let list = calls
        .iter()
        .find(|call| call["name"] == "compute processes v3");
    let cost = list
        .and_then(|call| call["cost_ns"].as_i64())
        .context("no cost")?;
    assert!(cost >= 5_000_000, "{cost}");
    Ok(())
}

#[test]
fn doctor_tells_a_person_the_devices_and_each_call() -> Result<()> {
    let mut second = device(1, GIB, &[]);
    second.memory = None;
    let mut first = device(0, GIB, &[]);
    first
        .fail
        .insert("nvmlDeviceGetUtilizationRates".to_owned(), NOT_SUPPORTED);
    let fake = FakeGpus::new(&script(&[first, second]))?.without(&[
        "nvmlDeviceGetMPSComputeRunningProcesses_v3",
        "nvmlDeviceGetMPSComputeRunningProcesses_v2",
    ])?;
    let output = Command::new(program::memtrace()?)
        .arg("doctor")
        .envs(fake.environment())
        .output()?;
    let said = words(&String::from_utf8(output.stdout)?);
    for told in [
        "driver 999.01",
        "0 NVIDIA Test 80GB (GPU-0, 80.0 GiB)",
        "1 NVIDIA Test 80GB (GPU-1, no memory of its own, shared with the machine)",
        "memory v2 ",
        "compute processes v3 ",
        "MPS processes: ",
        "utilisation: ",
        "nvidia-smi -am 1",
    ] {
        assert!(said.contains(told), "{told} is not in {said}");
    }
    Ok(())
}
