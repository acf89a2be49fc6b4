//! What it takes to draw a day of a busy node: many processes, cgroups with limits, GPUs.

use crate::measured::Measured;
use crate::reading::{
    FILE_BYTES, MIB, START_NS, WALL_OFFSET_NS, Walk, clocks, info, mem, process, run,
};
use crate::{Bench, Effort};
use anyhow::{Context, Result};
use memtrace_model::tables::{CgroupMemRow, GpuDeviceRow, GpuProcessRow, GpuSource, NodeMemRow};
use memtrace_model::{BootNs, Bytes, Tgid, Upid, WallNs};
use memtrace_store::Writer;
use std::ffi::OsString;
use std::path::Path;

pub(crate) const BENCHES: &[Bench] = &[Bench {
    name: "page-24h",
    run: page,
}];

const SECONDS: i64 = 86_400;
const PROCESSES: i64 = 5_000;
const CGROUPS: i64 = 6;
const GPUS: i64 = 8;
/// On each GPU.
const HOLDERS: i64 = 8;
const SECOND_NS: i64 = 1_000_000_000;

fn page(effort: Effort) -> Result<Vec<Measured>> {
    let dir = tempfile::tempdir()?;
    let (recording, page) = (dir.path().join("recording"), dir.path().join("page.html"));
    // Every process has a row so often.
    let period = effort.pick(1_200, 60);
    write(&recording, period).context("failed to write the recording")?;
    let words = ["report", "--format", "html", "-o"].map(OsString::from);
    let words: Vec<OsString> = words.into_iter().chain([page.clone().into()]).collect();
    let (seconds, mebibytes) = run(&words, &recording)?;
    let length = page.metadata()?.len() as f64 / MIB;
    let name = "page-24h";
    let what = |what: &str| {
        format!("{what} of 24 h with {PROCESSES} processes, {CGROUPS} cgroups, {GPUS} GPUs")
    };
    let rows = format!("{} rows of mem", SECONDS / period * PROCESSES);
    Ok(vec![
        Measured::at_most(name, &what("size of a page"), "MiB", 8.0, length),
        Measured::at_most(name, &what("peak RSS of a page"), "MiB", 200.0, mebibytes),
        Measured::at_most(name, &what("page"), "s", 30.0, seconds).with_note(rows),
    ])
}

fn write(dir: &Path, period: i64) -> Result<()> {
    let end_ns = START_NS + SECONDS * SECOND_NS;
    let mut info = info();
    let mut writer = Writer::create(dir, &info)?;
    for index in 0..PROCESSES {
        let mut row = process(index, end_ns);
        row.cgroup = Some(cgroup(index % CGROUPS).into());
        writer.append(&row.into())?;
    }
    let mut walk = Walk::default();
    let mut pages = vec![10_000_i64; usize::try_from(PROCESSES)?];
    let mut on_gpus = vec![10_000_i64; usize::try_from(GPUS * HOLDERS)?];
    for second in 0..SECONDS {
        let boot_ns = START_NS + second * SECOND_NS;
        for (index, pages) in (0..PROCESSES).zip(&mut pages) {
            if index % period == second % period {
                walk.step(pages);
                writer.append(&mem(index, boot_ns + index * 1_000, *pages * 4096).into())?;
            }
        }
        let held: i64 = pages.iter().sum::<i64>() * 4096 + PROCESSES * FILE_BYTES;
        let noise = walk.next() % (1 << 28);
        let at = boot_ns + SECOND_NS / 2;
        for group in 0..CGROUPS {
            writer.append(&group_row(group, at, held / CGROUPS + noise + group).into())?;
        }
        writer.append(&node_row(at, held + noise).into())?;
        for gpu in 0..GPUS {
            let holders = usize::try_from(gpu * HOLDERS)?..usize::try_from((gpu + 1) * HOLDERS)?;
            if second % 10 == gpu {
                for holder in holders.clone() {
                    walk.step(&mut on_gpus[holder]);
                    let index = i64::try_from(holder)?;
                    let bytes = on_gpus[holder] << 17;
                    writer.append(&holder_row(gpu, index, at, bytes).into())?;
                }
            }
            let used = on_gpus[holders].iter().sum::<i64>() << 17;
            writer.append(&gpu_row(gpu, at + 1_000_000, used + noise).into())?;
        }
        if second % 10 == 0 {
            writer.flush()?;
        }
    }
    info.clocks.push(clocks(end_ns));
    writer.finish(info)?;
    Ok(())
}

fn cgroup(group: i64) -> String {
    format!("/kubepods/pod{group}")
}

fn group_row(group: i64, boot_ns: i64, current: i64) -> CgroupMemRow {
    CgroupMemRow {
        ts: WallNs(boot_ns + WALL_OFFSET_NS),
        boot_ns: BootNs(boot_ns),
        cgroup: cgroup(group),
        version: 2,
        current_bytes: Some(Bytes(current)),
        limit_bytes: Some(Bytes(1 << 40)),
        anon_bytes: Some(Bytes(current / 2)),
        file_bytes: Some(Bytes(current / 2)),
        ..CgroupMemRow::default()
    }
}

fn node_row(boot_ns: i64, used: i64) -> NodeMemRow {
    const TOTAL: i64 = 2 << 40;
    NodeMemRow {
        ts: WallNs(boot_ns + WALL_OFFSET_NS),
        boot_ns: BootNs(boot_ns),
        mem_total_bytes: Some(Bytes(TOTAL)),
        mem_available_bytes: Some(Bytes(TOTAL - used)),
        ..NodeMemRow::default()
    }
}

fn gpu_row(gpu: i64, boot_ns: i64, used: i64) -> GpuDeviceRow {
    GpuDeviceRow {
        ts: WallNs(boot_ns + WALL_OFFSET_NS),
        boot_ns: BootNs(boot_ns),
        device: device(gpu),
        device_index: i32::try_from(gpu).ok(),
        name: Some("NVIDIA H100 80GB HBM3".to_owned()),
        source: Some(GpuSource::Nvml),
        total_bytes: Some(Bytes(80 << 30)),
        used_bytes: Some(Bytes(used)),
        reserved_bytes: Some(Bytes(500 << 20)),
        ..GpuDeviceRow::default()
    }
}

fn device(gpu: i64) -> String {
    format!("GPU-00000000-0000-0000-0000-00000000000{gpu}")
}

fn holder_row(gpu: i64, index: i64, boot_ns: i64, bytes: i64) -> GpuProcessRow {
    GpuProcessRow {
        ts: WallNs(boot_ns + WALL_OFFSET_NS),
        boot_ns: BootNs(boot_ns),
        device: device(gpu),
        upid: Some(Upid(index + 1)),
        tgid: Tgid(u32::try_from(index).unwrap_or(0) + 1_000),
        source: Some(GpuSource::Nvml),
        used_bytes: Some(Bytes(bytes)),
        ..GpuProcessRow::default()
    }
}
