//! What NVML answers here, which of the calls of a recording work, and what they cost.

use super::LibraryError;
use super::device::{self, Gpu};
use super::library;
use super::list::{Buffer, List};
use super::pace::Calls;
use memtrace_host::{GpuCall, NvmlSurvey};
use memtrace_model::DurationNs;
use nvml_wrapper::error::NvmlError;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// A driver that has not answered by then is reported not to.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks once. Takes as long as the driver does to wake its devices, 10 s at most: the thread
/// that asks is left to a call that does not come back.
pub fn survey() -> NvmlSurvey {
    let (tell, reported) = sync_channel(1);
    let thread = std::thread::Builder::new()
        .name("memtrace-nvml".to_owned())
        .spawn(move || drop(tell.send(asked())));
    let answer = match thread {
        Ok(_) => reported.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            let seconds = PATIENCE.as_secs();
            Err(LibraryError::NoAnswer(format!("within {seconds} s")))
        }),
        Err(error) => Err(LibraryError::NoThread(error.to_string())),
    };
    match answer {
        Ok(survey) => survey,
        Err(error) => NvmlSurvey {
            is_absent: matches!(error, LibraryError::NotLoaded(_)),
            failure: Some(error.to_string()),
            ..NvmlSurvey::default()
        },
    }
}

fn asked() -> Result<NvmlSurvey, LibraryError> {
    let nvml = library::open()?;
    let (mut gpus, problems) = device::open_all(&nvml, &[], &Calls::default())?;
    let problems = problems.into_iter().map(|problem| GpuCall {
        name: "device".to_owned(),
        failure: Some(problem),
        cost_ns: DurationNs(0),
    });
    let mut calls: Vec<GpuCall> = problems.collect();
    if let Some(gpu) = gpus.first_mut() {
        calls.extend(calls_of(gpu));
    }
    Ok(NvmlSurvey {
        failure: None,
        is_absent: false,
        driver: nvml.sys_driver_version().ok(),
        devices: gpus.into_iter().map(|gpu| gpu.info).collect(),
        calls,
    })
}

/// Each call of a recording, made once.
fn calls_of(gpu: &mut Gpu<'_>) -> Vec<GpuCall> {
    let calls = Calls::default();
    let mut reported = Vec::new();
    let mut note = |name: String, (answer, cost): (Result<(), NvmlError>, DurationNs)| {
        reported.push(GpuCall {
            name,
            failure: answer.err().map(|error| error.to_string()),
            cost_ns: cost,
        });
    };
    let memory = calls.timed(|| match gpu.memory() {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(NvmlError::NotSupported),
        Err(error) => Err(error),
    });
    note(versioned("memory", gpu.memory_version()), memory);
    let mut buffer = Buffer::default();
    for list in List::ALL {
        let answer = calls.timed(|| gpu.list(list, &mut buffer).map(drop));
        let what = match list {
            List::Compute => "compute processes",
            List::Graphics => "graphics processes",
            List::Mps => "MPS processes",
        };
        note(versioned(what, gpu.list_version(list)), answer);
    }
    note(
        "utilisation".to_owned(),
        calls.timed(|| gpu.utilization().map(drop)),
    );
    let accounting = calls.timed(|| match gpu.has_accounting() {
        Ok(true) => Ok(()),
        Ok(false) => Err(NvmlError::NoData),
        Err(error) => Err(error),
    });
    note("accounting".to_owned(), accounting);
    for call in &mut reported {
        if call.name == "accounting" && call.failure.as_deref() == Some("no data") {
            call.failure = Some("mode is off (nvidia-smi -am 1 switches it on)".to_owned());
        }
    }
    reported
}

fn versioned(what: &str, version: Option<u32>) -> String {
    match version {
        Some(version) => format!("{what} v{version}"),
        None => what.to_owned(),
    }
}
