//! Starting what observes GPUs, with any backend. A machine without one is no reason for a
//! word, but where GPUs were asked for by name.

use super::{Options, StartError};
#[cfg(target_os = "linux")]
use crate::collect::gpu::{DrmCollector, DrmOptions, GpuCollector, GpuOptions, LibraryError};
use crate::collect::{Collector, Tick};
use crate::host::{Backend, HostFacts};
#[cfg(target_os = "linux")]
use crate::model::{DiagKind, Severity};
use crate::model::{GpuInfo, Record};
#[cfg(target_os = "linux")]
use std::path::PathBuf;

/// The GPUs of a recording.
#[derive(Debug, Default)]
pub(super) struct Gpus {
    pub(super) infos: Vec<GpuInfo>,
    /// Why NVIDIA's are not observed.
    pub(super) note: Option<String>,
}

/// Asks NVIDIA's library what it answers, for `memtrace doctor`.
pub fn survey_gpus(facts: &mut HostFacts) {
    #[cfg(target_os = "linux")]
    {
        facts.nvml = Some(crate::collect::gpu::survey());
    }
    #[cfg(not(target_os = "linux"))]
    let _ = facts;
}

/// Starts the collectors of all GPUs that are wanted.
#[cfg(target_os = "linux")]
pub(super) fn start(
    options: &Options,
    facts: &HostFacts,
    backend: Backend,
    tick: &Tick,
    collectors: &mut Vec<Box<dyn Collector>>,
    out: &mut Vec<Record>,
) -> Result<Gpus, StartError> {
    let mut gpus = Gpus::default();
    let is_initial_pid_ns = facts.is_initial_pid_ns == Some(true);
    let started = GpuCollector::start(GpuOptions {
        interval: options.gpu_interval,
        devices: options.gpus.clone(),
        proc: PathBuf::from("/proc"),
        is_initial_pid_ns,
        are_ids_ours: backend != Backend::Bpf || facts.is_initial_pid_ns != Some(false),
    });
    gpus.infos.extend(started.gpus);
    if let Some(collector) = started.collector {
        collectors.push(Box::new(collector));
    }
    if let Some(error) = started.error {
        let is_expected = facts.has_nvidia_device != Some(true)
            && !matches!(error, LibraryError::NoSuchDevice(_));
        let detail = format!("memory of NVIDIA GPUs is unknown: {error}");
        gpus.note = Some(error.to_string());
        if !is_expected {
            let (severity, kind) = (Severity::Degraded, DiagKind::Unavailable);
            out.push(tick.diag(severity, kind, "nvml", None, detail));
        }
    }
    let drm = DrmCollector::new(DrmOptions {
        proc: PathBuf::from("/proc"),
        sys: PathBuf::from("/sys"),
        devices: options.gpus.clone(),
    });
    if let Some(drm) = drm {
        gpus.infos.extend(drm.gpus());
        collectors.push(Box::new(drm));
    }
    let is_observed = collectors
        .iter()
        .any(|collector| collector.name() == "nvml");
    if !options.gpus.is_empty() && gpus.infos.is_empty() && !is_observed {
        return Err(StartError::NoSuchGpu {
            names: options.gpus.join(", "),
            reason: gpus.note.unwrap_or_default(),
        });
    }
    Ok(gpus)
}

/// Elsewhere there is nothing to ask.
#[cfg(not(target_os = "linux"))]
pub(super) fn start(
    options: &Options,
    _: &HostFacts,
    _: Backend,
    _: &Tick,
    _: &mut Vec<Box<dyn Collector>>,
    _: &mut Vec<Record>,
) -> Result<Gpus, StartError> {
    if options.gpus.is_empty() {
        return Ok(Gpus::default());
    }
    Err(StartError::NoSuchGpu {
        names: options.gpus.join(", "),
        reason: "GPUs are observed on Linux only".to_owned(),
    })
}
