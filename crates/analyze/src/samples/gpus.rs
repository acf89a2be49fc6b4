//! The memory of GPUs at the instants of the samples: each device, and who holds it. One pass over
//! `gpu_device` and one over `gpu_process`; what is kept grows with devices and their processes.

use super::Samples;
use crate::Process;
use crate::on_gpus::{Devices, Holders, NamedGpu};
use memtrace_model::tables::{GpuDeviceRow, GpuProcessRow};
use memtrace_model::{BootNs, Bytes, DurationNs, RowSource, Tgid};

/// A device at an instant.
#[derive(Debug)]
pub struct GpuPlace<'a> {
    /// When it was sampled.
    pub boot_ns: BootNs,
    /// The mark that the sample was taken for, or "interval".
    pub label: &'a str,
    /// Which device it is.
    pub gpu: &'a NamedGpu,
}

/// A device's memory at an instant.
#[derive(Debug)]
pub struct GpuSample<'a> {
    /// When, and which device.
    pub at: GpuPlace<'a>,
    /// Memory that is not free.
    pub used: Option<Bytes>,
    /// Memory in all.
    pub total: Option<Bytes>,
    /// Part of the time in which a kernel ran, as the driver reported last.
    pub utilization_percent: Option<i32>,
}

/// What a process held on a device at an instant.
#[derive(Debug)]
pub struct GpuProcessSample<'a> {
    /// When, and on which device.
    pub at: GpuPlace<'a>,
    /// Its process id, as the driver tells it.
    pub tgid: Tgid,
    /// Who it is; `None` for one that is not recorded otherwise.
    pub process: Option<&'a Process>,
    /// The kernel's name of one that is not recorded otherwise.
    pub comm: Option<&'a str>,
    /// The command line of one that is not recorded otherwise.
    pub cmdline: Option<&'a str>,
    /// What it holds; `None` where the driver can't tell. A client of the driver that processes
    /// share counts for the one with the lowest id.
    pub used: Option<Bytes>,
}

/// Reads the memory of each device and of each process on it, at the instants of `samples`. Each
/// of the two gets its own in the order of time, until it says that it wants no more.
///
/// # Errors
/// When the rows can't be read.
pub fn sample_gpus<S: RowSource>(
    source: &S,
    samples: &Samples,
    mut each_device: impl FnMut(&GpuSample<'_>) -> bool,
    mut each_process: impl FnMut(&GpuProcessSample<'_>) -> bool,
) -> Result<(), S::Error> {
    let end = samples.clock.end() + DurationNs(1);
    let mut schedule = samples.schedule.clone();
    let mut devices = Devices::default();
    source.scan(&[], |row: GpuDeviceRow| {
        schedule.each_before(row.boot_ns, |at, label| {
            give_devices(&devices, at, label, &mut each_device)
        });
        devices.take(row);
    })?;
    schedule.each_before(end, |at, label| {
        give_devices(&devices, at, label, &mut each_device)
    });

    let mut schedule = samples.schedule.clone();
    let mut holders = Holders::new(&samples.processes, devices);
    source.scan(&[], |row: GpuProcessRow| {
        schedule.each_before(row.boot_ns, |at, label| {
            give_holders(samples, &holders, at, label, &mut each_process)
        });
        let _ = holders.take(row);
    })?;
    schedule.each_before(end, |at, label| {
        give_holders(samples, &holders, at, label, &mut each_process)
    });
    Ok(())
}

fn give_devices(
    devices: &Devices,
    boot_ns: BootNs,
    label: &str,
    each: &mut impl FnMut(&GpuSample<'_>) -> bool,
) -> bool {
    devices.gpus.iter().zip(&devices.now).all(|(gpu, now)| {
        each(&GpuSample {
            at: GpuPlace {
                boot_ns,
                label,
                gpu,
            },
            used: now.used,
            total: now.total,
            utilization_percent: now.utilization_percent,
        })
    })
}

fn give_holders(
    samples: &Samples,
    holders: &Holders,
    boot_ns: BootNs,
    label: &str,
    each: &mut impl FnMut(&GpuProcessSample<'_>) -> bool,
) -> bool {
    holders.now().all(|held| {
        each(&GpuProcessSample {
            at: GpuPlace {
                boot_ns,
                label,
                gpu: &holders.devices.gpus[held.device],
            },
            tgid: held.tgid,
            process: held.holder.process.map(|place| &samples.processes[place]),
            comm: held.holder.comm.as_deref(),
            cmdline: held.holder.cmdline.as_deref(),
            used: held.bytes,
        })
    })
}
