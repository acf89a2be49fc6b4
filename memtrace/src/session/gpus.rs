//! Starting what observes GPUs, with any backend. A machine without one is no reason for a
//! word, but where GPUs were asked for by name.

use super::start::Haste;
use super::{Options, StartError};
#[cfg(target_os = "linux")]
use memtrace_collect::gpu::{DrmCollector, DrmOptions, GpuCollector, GpuOptions, LibraryError};
use memtrace_collect::{Collector, Tick};
use memtrace_host::HostFacts;
use memtrace_model::{GpuInfo, Record, RunInfo};
#[cfg(target_os = "linux")]
use std::path::PathBuf;
#[cfg(target_os = "linux")]
use std::time::Duration;

/// How long a recording of GPUs that were named waits for the driver to wake them.
#[cfg(target_os = "linux")]
const PATIENCE_WITH_NAMES: Duration = Duration::from_secs(10);

/// The GPUs of a recording.
#[derive(Debug, Default)]
pub(super) struct Gpus {
    pub(super) infos: Vec<GpuInfo>,
    /// Why NVIDIA's are not observed, or not yet.
    pub(super) note: Option<String>,
}

/// Asks NVIDIA's library what it answers, for `memtrace doctor`.
pub fn survey_gpus(facts: &mut HostFacts) {
    #[cfg(target_os = "linux")]
    {
        facts.nvml = Some(memtrace_collect::gpu::survey());
    }
    #[cfg(not(target_os = "linux"))]
    let _ = facts;
}

/// NVIDIA's driver can take seconds to wake its devices: it begins before the backend does,
/// and nobody waits for it but who named a GPU or wants nothing else.
#[cfg(target_os = "linux")]
pub(super) struct Starting(Option<Result<GpuCollector, LibraryError>>);

/// Elsewhere there is nothing to ask.
#[cfg(not(target_os = "linux"))]
pub(super) struct Starting;

#[cfg(target_os = "linux")]
impl Starting {
    /// Has NVIDIA's library started.
    pub(super) fn begin(options: &Options, facts: &HostFacts) -> Self {
        let names = options.gpus.iter().filter(|name| !is_drm(name));
        let devices: Vec<String> = names.cloned().collect();
        if devices.is_empty() && !options.gpus.is_empty() {
            return Self(None);
        }
        let is_named = !devices.is_empty() || options.is_gpu_only;
        let mut starting = GpuCollector::start(GpuOptions {
            interval: options.gpu_interval,
            is_none_expected: facts.has_nvidia_device != Some(true) && !is_named,
            devices,
            proc: PathBuf::from("/proc"),
            is_initial_pid_ns: facts.is_initial_pid_ns == Some(true),
        });
        if let (true, Ok(nvidia)) = (is_named, &mut starting) {
            nvidia.wait(PATIENCE_WITH_NAMES);
        }
        Self(Some(starting))
    }

    /// What has NVIDIA's devices read at once.
    pub(super) fn haste(&self) -> Option<Haste> {
        let started = self.0.as_ref()?.as_ref().ok()?;
        Some(started.haste())
    }

    /// Adds the collectors of all GPUs that are wanted.
    pub(super) fn complete(
        self,
        options: &Options,
        tick: &Tick,
        collectors: &mut Vec<Box<dyn Collector>>,
        out: &mut Vec<Record>,
    ) -> Result<Gpus, StartError> {
        let (mut gpus, mut missing, mut is_waited_for) = (Gpus::default(), None, false);
        match self.0 {
            Some(Ok(mut nvidia)) => {
                nvidia.wait(Duration::ZERO);
                match nvidia.answer() {
                    Some(Ok(infos)) => gpus.infos.extend_from_slice(infos),
                    Some(Err(error)) => {
                        if let LibraryError::NoSuchDevice { missing: names, .. } = error {
                            missing = Some(names.clone());
                        }
                        gpus.note = Some(error.to_string());
                        out.extend(nvidia.unexpected(error, tick));
                    }
                    None => {
                        is_waited_for = true;
                        gpus.note = Some(
                            "the driver has not answered yet; it is recorded from when it does"
                                .to_owned(),
                        )
                    }
                }
                // One that has nothing to observe would only wake us.
                if !matches!(nvidia.answer(), Some(Err(_))) {
                    collectors.push(Box::new(nvidia));
                }
            }
            Some(Err(error)) => {
                gpus.note = Some(error.to_string());
                out.push(error.diag(tick));
            }
            None => {}
        }
        let drm = DrmCollector::new(DrmOptions {
            proc: PathBuf::from("/proc"),
            sys: PathBuf::from("/sys"),
            devices: options.gpus.clone(),
        });
        if let Some(drm) = drm {
            gpus.infos.extend(drm.cards().cloned());
            collectors.push(Box::new(drm));
        }
        let is_there = |name: &String| gpus.infos.iter().any(|gpu| gpu.is_named(name));
        let missing: Vec<String> = missing.unwrap_or_else(|| {
            let missing = options.gpus.iter().filter(|name| !is_there(name));
            missing.cloned().collect()
        });
        if options.is_gpu_only && gpus.infos.is_empty() && missing.is_empty() {
            return Err(StartError::NoGpu(gpus.note.unwrap_or_default()));
        }
        if missing.is_empty() {
            return Ok(gpus);
        }
        let reason = match missing.iter().all(|name| is_drm(name)) {
            true => "/sys/class/drm has no such card that reports its memory".to_owned(),
            false if is_waited_for => format!(
                "the driver did not answer within {} s",
                PATIENCE_WITH_NAMES.as_secs()
            ),
            false => gpus.note.unwrap_or_default(),
        };
        Err(StartError::NoSuchGpu {
            names: missing.join(", "),
            reason,
        })
    }
}

#[cfg(not(target_os = "linux"))]
impl Starting {
    pub(super) fn begin(_: &Options, _: &HostFacts) -> Self {
        Self
    }

    pub(super) fn haste(&self) -> Option<Haste> {
        None
    }

    pub(super) fn complete(
        self,
        options: &Options,
        _: &Tick,
        _: &mut Vec<Box<dyn Collector>>,
        _: &mut Vec<Record>,
    ) -> Result<Gpus, StartError> {
        if options.gpus.is_empty() && !options.is_gpu_only {
            return Ok(Gpus::default());
        }
        Err(StartError::NoSuchGpu {
            names: options.gpus.join(", "),
            reason: "GPUs are observed on Linux only".to_owned(),
        })
    }
}

/// Whether a GPU is named by its address: one that the kernel tells of, and not NVML.
#[cfg(target_os = "linux")]
fn is_drm(name: &str) -> bool {
    name.starts_with("pci:")
}

/// Enters into the head of a recording what a collector has come to know of GPUs.
pub(super) fn note(collector: &dyn Collector, info: &mut RunInfo) {
    match collector.gpus() {
        Some(Ok(gpus)) => {
            let is_known = |gpu: &GpuInfo| info.gpus.iter().any(|one| one.device == gpu.device);
            let new: Vec<GpuInfo> = gpus.into_iter().filter(|gpu| !is_known(gpu)).collect();
            info.gpus.extend(new);
            info.gpu_note = None;
        }
        Some(Err(reason)) => info.gpu_note = Some(reason),
        None => {}
    }
}
