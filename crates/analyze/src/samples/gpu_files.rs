//! The memory of GPUs as files: `gpu_mem_trace.csv`, a line for each device at each sample, and
//! `gpu_mem_processes.csv`, one for each process on it. An empty cell is unknown. What each column
//! means stands in docs/exports.md.

use super::files::{elapsed, head, line, mib, rank, role, time, title};
use super::{GpuPlace, GpuProcessSample, GpuSample, Names, Samples};
use memtrace_model::masked;
use std::io::{self, Write};

type PlaceCell = fn(&Samples, &GpuPlace<'_>) -> Option<String>;
type DeviceCell = fn(&Samples, &GpuSample<'_>) -> Option<String>;
type ProcessCell = fn(&GpuProcessSample<'_>) -> Option<String>;

/// Which device, and when: what both files begin with.
const PLACE: &[(&str, PlaceCell)] = &[
    ("timestamp_iso", |samples, at| time(samples, at.boot_ns)),
    ("elapsed_s", |samples, at| {
        Some(format!("{:.3}", elapsed(samples, at.boot_ns)))
    }),
    ("label", |_, at| Some(at.label.to_owned())),
    ("gpu_index", |_, at| at.gpu.index.clone()),
    ("gpu_uuid", |_, at| Some(at.gpu.device.clone())),
    ("gpu_name", |_, at| at.gpu.name.clone()),
];

/// What a device's line ends with.
const DEVICE: &[(&str, DeviceCell)] = &[
    ("used_mib", |_, sample| mib(sample.used?)),
    ("total_mib", |_, sample| mib(sample.total?)),
    ("util_pct", |_, sample| {
        Some(sample.utilization_percent?.to_string())
    }),
    ("boot_ns", |_, sample| Some(sample.at.boot_ns.0.to_string())),
    ("wall_ns", |samples, sample| {
        let wall = samples.clock.to_wall(sample.at.boot_ns)?;
        Some(wall.0.to_string())
    }),
];

/// What a process's line ends with.
const PROCESS: &[(&str, ProcessCell)] = &[
    ("pid", |sample| Some(sample.tgid.to_string())),
    ("role", |sample| role(sample.process?).map(str::to_owned)),
    ("rank", |sample| rank(sample.process?).map(str::to_owned)),
    ("name", |sample| {
        let recorded = sample.process.map(|process| &*process.comm);
        recorded.or(sample.comm).map(str::to_owned)
    }),
    ("title", |sample| match sample.process {
        Some(process) => title(process),
        None => sample.cmdline.map(|cmdline| masked(cmdline).into_owned()),
    }),
    ("used_mib", |sample| mib(sample.used?)),
];

/// Writes the first line of `gpu_mem_trace.csv`.
///
/// # Errors
/// When `out` can't be written to.
pub fn gpu_head(out: &mut dyn Write, names: Names) -> io::Result<()> {
    head(out, names, columns(PLACE).chain(columns(DEVICE)))
}

/// Writes one line of `gpu_mem_trace.csv`.
///
/// # Errors
/// When `out` can't be written to.
pub fn gpu_line(out: &mut dyn Write, samples: &Samples, sample: &GpuSample<'_>) -> io::Result<()> {
    let own = DEVICE.iter().map(|(_, cell)| cell(samples, sample));
    line(out, place(samples, &sample.at).chain(own))
}

/// Writes the first line of `gpu_mem_processes.csv`.
///
/// # Errors
/// When `out` can't be written to.
pub fn gpu_process_head(out: &mut dyn Write, names: Names) -> io::Result<()> {
    head(out, names, columns(PLACE).chain(columns(PROCESS)))
}

/// Writes one line of `gpu_mem_processes.csv`.
///
/// # Errors
/// When `out` can't be written to.
pub fn gpu_process_line(
    out: &mut dyn Write,
    samples: &Samples,
    sample: &GpuProcessSample<'_>,
) -> io::Result<()> {
    let own = PROCESS.iter().map(|(_, cell)| cell(sample));
    line(out, place(samples, &sample.at).chain(own))
}

fn columns<C>(columns: &'static [(&'static str, C)]) -> impl Iterator<Item = &'static str> {
    columns.iter().map(|(name, _)| *name)
}

fn place<'a>(
    samples: &'a Samples,
    at: &'a GpuPlace<'a>,
) -> impl Iterator<Item = Option<String>> + 'a {
    PLACE.iter().map(move |(_, cell)| cell(samples, at))
}
