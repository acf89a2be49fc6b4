//! One device, or one MIG instance: who it is, and what it answers.

use super::LibraryError;
use super::library;
use super::list::{Buffer, Entry, List, ListCall};
use super::memory::{Answer, DeviceMemory, Meaning, bytes};
use super::pace::Calls;
use memtrace_model::{Bytes, GpuInfo};
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::struct_wrappers::device::AccountingStats;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::{
    nvmlMemory_t, nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH as VERSION_MISMATCH,
};

/// MIG mode is on.
const MIG_ENABLED: u32 = 1;

/// A device of NVML.
#[derive(Debug)]
pub(super) struct Gpu<'n> {
    device: Device<'n>,
    nvml: &'n Nvml,
    pub(super) info: GpuInfo,
    /// N of /dev/nvidiaN; of a MIG instance none.
    pub(super) minor: Option<u32>,
    /// The NUMA node that its memory is.
    pub(super) numa_node: Option<i32>,
    /// Whether it is divided into instances, which have the processes.
    pub(super) is_divided: bool,
    has_memory_v1: bool,
    has_memory_v2: bool,
    lists: [ListCall; 3],
}

/// Whether an error says that the call is not to be had, now or later.
pub(super) fn is_unsupported(error: &NvmlError) -> bool {
    matches!(
        error,
        NvmlError::NotSupported
            | NvmlError::FailedToLoadSymbol(_)
            | NvmlError::FunctionNotFound
            | NvmlError::UnexpectedVariant(VERSION_MISMATCH)
    )
}

/// Every device that is wanted, all where none is named, with what could not be opened. One
/// that is named and not here is an error.
pub(super) fn open_all<'n>(
    nvml: &'n Nvml,
    wanted: &[String],
    calls: &Calls,
) -> Result<(Vec<Gpu<'n>>, Vec<String>), LibraryError> {
    let library = || library::name().to_string_lossy().into_owned();
    let (count, _) = calls.timed(|| nvml.device_count());
    let count = count.map_err(|error| LibraryError::NotStarted {
        library: library(),
        reason: error.to_string(),
    })?;
    let (mut gpus, mut problems, mut known) = (Vec::new(), Vec::new(), Vec::new());
    for index in 0..count {
        let (opened, _) = calls.timed(|| {
            let device = nvml.device_by_index(index)?;
            Gpu::open(nvml, device, index, None)
        });
        let gpu = match opened {
            Ok(gpu) => gpu,
            Err(error) => {
                problems.push(format!("device {index} can't be asked: {error}"));
                continue;
            }
        };
        let instances = calls.timed(|| gpu.instances()).0;
        known.push(gpu.info.clone());
        known.extend(instances.iter().map(|instance| instance.info.clone()));
        let is_wanted = gpu.is_wanted(wanted);
        let instances = instances
            .into_iter()
            .filter(|instance| is_wanted || instance.is_wanted(wanted));
        let instances: Vec<_> = instances.collect();
        if is_wanted {
            gpus.push(gpu);
        }
        gpus.extend(instances);
    }
    let is_missing = |name: &&String| !known.iter().any(|gpu| gpu.is_named(name));
    let missing: Vec<String> = wanted.iter().filter(is_missing).cloned().collect();
    if !known.is_empty() && !missing.is_empty() {
        let known = known.iter().map(GpuInfo::names).chain(problems);
        return Err(LibraryError::NoSuchDevice {
            library: library(),
            missing,
            known: known.collect::<Vec<_>>().join(", "),
        });
    }
    match (gpus.is_empty(), problems.is_empty()) {
        (false, _) => Ok((gpus, problems)),
        (true, false) => Err(LibraryError::NotStarted {
            library: library(),
            reason: problems.join("; "),
        }),
        (true, true) => Err(LibraryError::NoDevice(library())),
    }
}

impl<'n> Gpu<'n> {
    fn open(
        nvml: &'n Nvml,
        device: Device<'n>,
        index: u32,
        parent: Option<&GpuInfo>,
    ) -> Result<Self, NvmlError> {
        let numa_node = device.numa_node_id().ok();
        let is_divided = device
            .mig_mode()
            .is_ok_and(|mode| mode.current == MIG_ENABLED);
        let mut gpu = Self {
            info: GpuInfo {
                device: device.uuid()?,
                parent_device: parent.map(|parent| parent.device.clone()),
                index: Some(index),
                name: device.name().ok(),
                total_bytes: None,
                is_unified: false,
            },
            minor: device.minor_number().ok(),
            numa_node: numa_node.and_then(|node| i32::try_from(node).ok()),
            is_divided: parent.is_none() && is_divided,
            has_memory_v1: true,
            has_memory_v2: true,
            lists: List::ALL.map(|list| ListCall::of(nvml.lib(), list)),
            device,
            nvml,
        };
        // An error that may pass is met again by the first reading.
        let memory = gpu.memory();
        gpu.info.total_bytes = memory
            .as_ref()
            .ok()
            .copied()
            .flatten()
            .and_then(|m| m.total);
        gpu.info.is_unified = gpu.numa_node.is_some() || matches!(memory, Ok(None));
        Ok(gpu)
    }

    /// The MIG instances of a device.
    fn instances(&self) -> Vec<Self> {
        if !self.is_divided {
            return Vec::new();
        }
        let count = self.device.mig_device_count().unwrap_or(0);
        let opened = (0..count).filter_map(|index| {
            // There are places without an instance.
            let device = self.device.mig_device_by_index(index).ok()?;
            Self::open(self.nvml, device, index, Some(&self.info)).ok()
        });
        opened.collect()
    }

    fn is_wanted(&self, wanted: &[String]) -> bool {
        wanted.is_empty() || wanted.iter().any(|name| self.info.is_named(name))
    }

    /// Its memory; `Ok(None)` where it has none that it could tell of.
    pub(super) fn memory(&mut self) -> Result<Option<DeviceMemory>, NvmlError> {
        if self.has_memory_v2 {
            match self.memory_v2() {
                Ok(answer) if answer.meaning() == Meaning::Unclear => {
                    // Version 1 knows nothing of reserved memory and may add up.
                    let plain = self.memory_v1().ok();
                    let plain = plain.filter(|plain| plain.meaning() != Meaning::Unclear);
                    self.has_memory_v2 = plain.is_none();
                    return Ok(Some(plain.unwrap_or(answer).memory()));
                }
                Ok(answer) => return Ok(Some(answer.memory())),
                Err(error) if is_unsupported(&error) => self.has_memory_v2 = false,
                Err(error) => return Err(error),
            }
        }
        if !self.has_memory_v1 {
            return Ok(None);
        }
        match self.memory_v1() {
            Ok(answer) => Ok(Some(answer.memory())),
            Err(error) if is_unsupported(&error) => {
                self.has_memory_v1 = false;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Version 2 of the call, which tells reserved memory apart.
    pub(super) fn memory_v2(&self) -> Result<Answer, NvmlError> {
        let info = self.device.memory_info()?;
        Ok(Answer {
            total: info.total,
            used: info.used,
            free: info.free,
            reserved: Some(info.reserved),
        })
    }

    /// Version 1 of the call, which nvml-wrapper no longer has.
    pub(super) fn memory_v1(&self) -> Result<Answer, NvmlError> {
        let call = nvml_sym(self.nvml.lib().nvmlDeviceGetMemoryInfo.as_ref())?;
        let mut info = nvmlMemory_t {
            total: 0,
            free: 0,
            used: 0,
        };
        // SAFETY: the handle is of this library, which `self.nvml` keeps started; the call
        // fills the struct, which is live and of the type that its binding names.
        nvml_try(unsafe { call(self.device.handle(), &raw mut info) })?;
        Ok(Answer {
            total: info.total,
            used: info.used,
            free: info.free,
            reserved: None,
        })
    }

    /// Which version of the memory call is made.
    pub(super) fn memory_version(&self) -> Option<u32> {
        match (self.has_memory_v2, self.has_memory_v1) {
            (true, _) => Some(2),
            (false, true) => Some(1),
            (false, false) => None,
        }
    }

    /// The processes of one list.
    pub(super) fn list(
        &mut self,
        list: List,
        buffer: &mut Buffer,
    ) -> Result<Vec<Entry>, NvmlError> {
        let call = &mut self.lists[list as usize];
        // SAFETY: the handle is of this library, which `self.nvml` keeps started, and the
        // call was taken out of the same library.
        unsafe { call.ask(self.device.handle(), buffer) }.map_err(NvmlError::from)
    }

    /// Which version of a list's call is made.
    pub(super) fn list_version(&self, list: List) -> Option<u32> {
        self.lists[list as usize].version()
    }

    /// Share of time in which a kernel ran, in percent.
    pub(super) fn utilization(&self) -> Result<i32, NvmlError> {
        let rates = self.device.utilization_rates()?;
        Ok(i32::try_from(rates.gpu).unwrap_or(i32::MAX))
    }

    /// Whether accounting mode is on.
    pub(super) fn has_accounting(&self) -> Result<bool, NvmlError> {
        self.device.is_accounting_enabled()
    }

    /// What accounting mode remembers of processes.
    pub(super) fn accounted(&self) -> Result<Vec<(u32, AccountingStats)>, NvmlError> {
        let pids = self.device.accounting_pids()?;
        // The ring buffer may have dropped one since.
        let stats = |pid| Some((pid, self.device.accounting_stats_for(pid).ok()?));
        Ok(pids.into_iter().filter_map(stats).collect())
    }
}

/// The highest that accounting mode knows, where it tells.
pub(super) fn accounted_peak(stats: &AccountingStats) -> Option<Bytes> {
    stats.max_memory_usage.map(bytes)
}
