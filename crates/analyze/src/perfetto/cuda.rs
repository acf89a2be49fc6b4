//! Calls of the CUDA driver: what each process holds by them as counters, and calls that were refused for
//! lack of memory as instants, both under its process.

use super::counter::Counter;
use super::processes::ProcessTracks;
use crate::process_table::ProcessTable;
use memtrace_model::RowSource;
use memtrace_model::tables::{CudaCallRow, CudaMemoryRow};
use memtrace_perfetto::{Note, Trace, Track};
use std::collections::HashMap;

/// Reads `cuda_memory` and `cuda_call` and writes them.
pub(super) fn write<S: RowSource>(
    trace: &mut Trace<'_>,
    source: &S,
    (table, tracks): (&ProcessTable, &mut ProcessTracks),
) -> Result<(), S::Error> {
    let mut counters: HashMap<(usize, Option<i32>, &str), Counter> = HashMap::new();
    source.scan(&[], |row: CudaMemoryRow| {
        let Some(process) = table.find(row.upid) else {
            return;
        };
        for (kind, bytes) in row.on_device().into_iter().chain(row.beside()) {
            let counter = counters
                .entry((process, row.cuda_device, kind))
                .or_default();
            counter.note(trace, row.boot_ns, Some(bytes), |trace| {
                let parent = tracks.of(trace, process);
                let name = match row.cuda_device {
                    Some(device) => format!("CUDA {device} {}", kind),
                    None => format!("CUDA {}", kind),
                };
                trace.counter(Some(parent), &name, None)
            });
        }
    })?;
    let columns = ["boot_ns", "upid", "call", "size_bytes", "result", "tid"];
    let mut refused: HashMap<usize, Track> = HashMap::new();
    source.scan(&columns, |row: CudaCallRow| {
        let process = table.find(row.upid);
        let Some(process) = process.filter(|_| row.result == CudaCallRow::OUT_OF_MEMORY) else {
            return;
        };
        let parent = tracks.of(trace, process);
        let track = *refused
            .entry(process)
            .or_insert_with(|| trace.track(Some(parent), "CUDA out of memory"));
        let size = row
            .size_bytes
            .map(|size| ("size_bytes", Note::Integer(size.0)));
        let notes = size
            .into_iter()
            .chain([("tid", Note::Integer(row.tid.into()))]);
        trace.instant(row.boot_ns, track, ("cuda", &row.call), notes);
    })
}
