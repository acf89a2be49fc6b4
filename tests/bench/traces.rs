//! What it takes to sum up a large trace of torch's profiler.

use crate::measured::Measured;
use crate::reading::{MIB, Walk, run};
use crate::{Bench, Effort, stats};
use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

pub(crate) const BENCHES: &[Bench] = &[Bench {
    name: "traces-1g",
    run: traces,
}];

/// Distinct operators, as a large model with its shapes has.
const OPERATORS: i64 = 2_000;
const KERNELS: i64 = 400;

fn traces(effort: Effort) -> Result<Vec<Measured>> {
    let dir = tempfile::tempdir()?;
    let trace = dir.path().join("rank0.pt.trace.json.gz");
    let length = effort.pick(100_000_000, 1_000_000_000);
    write(&trace, length).context("failed to write the trace")?;
    let words = [OsString::from("traces")];
    let (mut seconds, mut mebibytes) = (Vec::new(), Vec::new());
    for _ in 0..effort.pick(1, 5) {
        let (time, peak) = run(&words, &trace)?;
        seconds.push(time);
        mebibytes.push(peak);
    }
    let (seconds, mebibytes) = (stats::estimate(&seconds), stats::estimate(&mebibytes));
    let size = format!("{:.0} MB unpacked", length as f64 / 1e6);
    let packed = trace.metadata()?.len() as f64 / MIB;
    let time = format!("summary of a trace of {size}");
    let memory = format!("peak RSS of a summary of a trace of {size}");
    Ok(vec![
        Measured::estimate_at_most("traces-1g", &time, "s", 30.0, seconds)
            .with_note(format!("{packed:.0} MiB packed")),
        Measured::estimate_at_most("traces-1g", &memory, "MiB", 300.0, mebibytes),
    ])
}

/// Operators that call others, kernels, launches, memory, in the mixture of a training step.
fn write(path: &Path, length: u64) -> Result<()> {
    let file = BufWriter::new(File::create(path)?);
    let mut out = GzEncoder::new(file, Compression::fast());
    out.write_all(
        b"{\"schemaVersion\": 1, \"baseTimeNanoseconds\": 1763888000000000000,\n\
          \"distributedInfo\": {\"backend\": \"nccl\", \"rank\": 0, \"world_size\": 8},\n\
          \"traceEvents\": [\n",
    )?;
    let mut walk = Walk::default();
    let mut event = String::new();
    let (mut written, mut us) = (0_u64, 0.0_f64);
    while written < length {
        event.clear();
        let chance = walk.next();
        let (operator, kernel) = (chance % OPERATORS, chance % KERNELS);
        for (depth, duration) in [(0_i64, 60.0_f64), (1, 40.0), (2, 20.0)] {
            let (name, begin) = (operator * 3 + depth, us + depth as f64 * 5.0);
            event.push_str(&format!(
                "{{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::operator_{name}\", \
                 \"pid\": 4711, \"tid\": 4711, \"ts\": {begin:.3}, \"dur\": {duration:.3}, \"args\": \
                 {{\"External id\": {chance}, \"Record function id\": 0, \"Input Dims\": \
                 [[8, 4096, 4096], [4096, 4096]], \"Input type\": [\"c10::BFloat16\"]}}}},\n"
            ));
        }
        event.push_str(&format!(
            "{{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"void kernel_{kernel}<float, 4>\", \
             \"pid\": 0, \"tid\": 7, \"ts\": {us:.3}, \"dur\": 30.5, \"args\": {{\"device\": 0, \
             \"context\": 1, \"stream\": 7, \"correlation\": {chance}, \"grid\": [8, 1, 1]}}}},\n\
             {{\"ph\": \"i\", \"cat\": \"cpu_instant_event\", \"name\": \"[memory]\", \"pid\": 4711, \
             \"tid\": 4711, \"ts\": {us:.3}, \"s\": \"t\", \"args\": {{\"Total Reserved\": {kernel}, \
             \"Total Allocated\": {operator}, \"Bytes\": 512, \"Addr\": {chance}, \"Device Id\": 0, \
             \"Device Type\": 1}}}},\n"
        ));
        out.write_all(event.as_bytes())?;
        written += event.len() as u64;
        us += 100.0;
    }
    out.write_all(b"{\"ph\": \"M\", \"name\": \"process_name\", \"ts\": 0}]}\n")?;
    out.finish()?.flush()?;
    Ok(())
}
