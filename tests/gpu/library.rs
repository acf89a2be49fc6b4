//! The library itself: absent, old, slow, hung, or asked for some of its devices only.

use super::RESERVED;
use super::{
    Sleeper, a_moment, amount, device, devices, diagnoses, info, processes, recorded, report,
    script, words,
};
use anyhow::{Context, Result};
use memtrace_model::{DiagKind, DiagRow};
use memtrace_tests::gpu::{DRIVER_MISMATCH, Device, FakeGpus, GIB, NOT_SUPPORTED, Process, Script};
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
fn slow_calls_are_made_less_often() -> Result<()> {
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
    let is_slowed =
        |row: &&DiagRow| row.kind == Some(DiagKind::BackOff) && row.subject == "nvml memory";
    let slowed = said.iter().find(is_slowed).context("nothing was said")?;
    assert!(slowed.detail.starts_with("read every"), "{}", slowed.detail);
    let last = devices(&recorded)?.pop().context("no device")?;
    let (spent, count) = (last.call_total_ns.context("no time")?.0, last.call_count);
    // 30 readings in 3 s would be some 60 calls and 600 ms.
    assert!(count.is_some_and(|count| count < 40), "{count:?}");
    assert!(spent < 400_000_000, "{spent}");
    Ok(())
}

#[test]
fn memory_and_processes_that_are_read_less_often_are_reported_for_each() -> Result<()> {
    let ours = Sleeper::start()?;
    let mut slow = script(&[device(0, GIB, &[Process::new(ours.pid(), GIB)])]);
    for (call, micros) in [
        ("MemoryInfo_v2", 5_000),
        ("ComputeRunningProcesses_v3", 80_000),
    ] {
        slow.slow_us.insert(format!("nvmlDeviceGet{call}"), micros);
    }
    let recorded = recorded(&FakeGpus::new(&slow)?, ours.pid(), &[], || {
        sleep(Duration::from_millis(5_000));
        Ok(())
    })?;
    let text = words(&report(&recorded, &[])?);
    for subject in ["nvml memory: read every", "nvml processes: read every"] {
        assert!(text.contains(subject), "{subject} is not in {text}");
    }
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
    // It had hung for less than a second, and the end of the recording tells of it.
    let last = devices(&recorded)?.pop().context("no device")?;
    assert_eq!((last.used_bytes, last.error.is_some()), (None, true));
    let said = diagnoses(&recorded)?;
    assert!(
        said.iter().any(|row| row.subject == "nvml call"),
        "{said:?}"
    );
    Ok(())
}

/// A device whose memory takes so long to be distinguished from a second on, for two more.
fn hanging_for(hang: Duration, after: Duration) -> Result<memtrace_tests::recorder::Recorded> {
    let ours = Sleeper::start()?;
    let listed = [Process::new(ours.pid(), GIB)];
    let good = script(&[device(0, GIB, &listed), device(1, GIB, &listed)]);
    let mut hung = good.clone();
    let micros = u64::try_from(hang.as_micros())?;
    hung.slow_us
        .insert("nvmlDeviceGetMemoryInfo_v2".to_owned(), micros);
    let fake = FakeGpus::new(&good)?;
    recorded(&fake, ours.pid(), &[], || {
        sleep(Duration::from_secs(1));
        fake.set(&hung)?;
        sleep(Duration::from_millis(400));
        fake.set(&good)?;
        sleep(after);
        Ok(())
    })
}

#[test]
fn while_a_call_hangs_memory_is_unknown_and_its_time_counts() -> Result<()> {
    let recorded = hanging_for(Duration::from_secs(60), Duration::from_secs(2))?;
    let rows = devices(&recorded)?;
    let known = rows.iter().rfind(|row| row.used_bytes.is_some());
    let known = known.context("nothing was known")?.boot_ns;
    let said = diagnoses(&recorded)?;
    let hung: Vec<_> = said
        .iter()
        .filter(|row| row.subject == "nvml call")
        .collect();
    let [hung] = hung[..] else {
        anyhow::bail!("{said:?}");
    };
    // Rows of the device stand where it changed.
    assert!((0..2_500_000_000).contains(&(hung.boot_ns - known).0));
    for uuid in ["GPU-0", "GPU-1"] {
        let own = rows.iter().filter(|row| row.device == uuid);
        let own: Vec<_> = own.filter(|row| row.boot_ns >= hung.boot_ns).collect();
        assert_eq!(own.first().map(|row| row.boot_ns), Some(hung.boot_ns));
        assert!(own.iter().all(|row| row.used_bytes.is_none()), "{own:?}");
        // Until the recording had waited for it.
        let spent = own.last().and_then(|row| row.call_total_ns);
        let spent = spent.context("no cost")?.0;
        assert!((2_500_000_000..6_000_000_000).contains(&spent), "{spent}");
        // One device hangs; the other only waits.
        let longest = own.last().and_then(|row| row.memory_call_ns);
        assert_eq!(longest.is_some(), uuid == "GPU-0");
        let held = processes(&recorded)?;
        let last = held.iter().rfind(|row| row.device == uuid);
        assert_eq!(last.context("no process")?.used_bytes, None, "{uuid}");
    }
    let text = words(&report(&recorded, &["--at", "+2.5s"])?);
    assert!(text.contains("does not come back"), "{text}");
    assert!(text.contains("NVIDIA Test 80GB ? 80.0 GiB"), "{text}");
    Ok(())
}

#[test]
fn when_a_call_that_hung_comes_back_memory_is_known_again() -> Result<()> {
    let recorded = hanging_for(Duration::from_secs(2), Duration::from_millis(5_500))?;
    let rows = devices(&recorded)?;
    for uuid in ["GPU-0", "GPU-1"] {
        let own: Vec<_> = rows.iter().filter(|row| row.device == uuid).collect();
        assert!(own.is_sorted_by_key(|row| row.boot_ns), "{own:?}");
        let mut states: Vec<_> = own.iter().map(|row| row.used_bytes.is_some()).collect();
        states.dedup();
        assert_eq!(states.first(), Some(&true), "{own:?}");
        assert_eq!(states.last(), Some(&true), "{own:?}");
        assert!(states.contains(&false), "{own:?}");
        let held = processes(&recorded)?;
        let last = held.iter().rfind(|row| row.device == uuid);
        assert_eq!(last.context("no process")?.used_bytes, amount(GIB));
    }
    let said = diagnoses(&recorded)?;
    let back = said.iter().find(|row| row.detail == "it has come back");
    assert!(back.is_some(), "{said:?}");
    Ok(())
}

#[test]
fn a_library_that_does_not_start_is_reported_in_the_report() -> Result<()> {
    let ours = Sleeper::start()?;
    let broken = Script {
        fail: [("nvmlInit_v2".to_owned(), DRIVER_MISMATCH)].into(),
        ..script(&[device(0, GIB, &[])])
    };
    let recorded = recorded(&FakeGpus::new(&broken)?, ours.pid(), &[], a_moment)?;
    let text = words(&report(&recorded, &[])?);
    assert!(
        text.contains("memory of NVIDIA GPUs is unknown") && text.contains("does not start"),
        "{text}"
    );
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
fn a_list_that_is_not_supported_is_reported_and_the_device_goes_on() -> Result<()> {
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
    let text = said
        .iter()
        .find(|row| row.subject == "processes of GPU-0")
        .context("unreported")?;
    assert!(
        text.detail.contains("ComputeRunningProcesses"),
        "{}",
        text.detail
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
    for text in [
        "driver 999.01",
        "0 NVIDIA Test 80GB (GPU-0, 80.0 GiB)",
        "1 NVIDIA Test 80GB (GPU-1, no memory of its own, shared with the machine)",
        "memory v2 ",
        "compute processes v3 ",
        "MPS processes: ",
        "utilisation: ",
        "nvidia-smi -am 1",
    ] {
        assert!(said.contains(text), "{text} is not in {said}");
    }
    Ok(())
}
