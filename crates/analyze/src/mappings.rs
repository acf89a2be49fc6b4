//! What processes did to their address spaces: how much they reserve against what they hold,
//! how fast they map and unmap, what they gave back, and the largest mappings.

use super::clock::RunClock;
use super::process_table::ProcessTable;
use super::who::Who;
use memtrace_model::tables::{VmEventRow, VmOp, VmSummaryRow};
use memtrace_model::{BootNs, Bytes, Instant, Order, RowSource, Upid};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;

/// How many of the largest mappings are kept.
const LARGEST_MAX: usize = 20;
/// MAP_ANONYMOUS of include/uapi/asm-generic/mman-common.h.
const MAP_ANONYMOUS: i32 = 0x20;

/// Address space over the recording.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Mappings {
    /// How many processes changed their address space; `processes` may list fewer.
    pub process_count: usize,
    /// Those processes, the one that reserves most first.
    pub processes: Vec<ProcessMappings>,
    /// The largest mappings that were made, at most 20, the largest first.
    #[serde(rename = "largest_mappings")]
    pub largest: Vec<Mapping>,
}

/// What one process did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ProcessMappings {
    /// The process that did it.
    #[serde(flatten)]
    pub who: Who,
    /// The largest its address space was seen; `None` when unknown.
    pub reserved_bytes: Option<Bytes>,
    /// Its peak RSS; `None` when unknown.
    pub peak_rss_bytes: Option<Bytes>,
    /// Bytes that mmap mapped and mremap added.
    pub mapped_bytes: Bytes,
    /// Of those, anonymous memory, as far as single calls tell.
    pub anon_mapped_bytes: Bytes,
    /// Bytes that munmap and mremap took away.
    pub unmapped_bytes: Bytes,
    /// Bytes that madvise named to be given back to the kernel, resident or not.
    pub returned_bytes: Bytes,
    /// Growth of the heap by brk, what it shrank taken off.
    pub heap_growth_bytes: Bytes,
    /// Calls of all kinds.
    pub call_count: i64,
    /// Mapped and unmapped bytes for each second in which it called; `None` when that is
    /// shorter than a second.
    pub churn_bytes_per_second: Option<f64>,
}

/// One mapping that was made.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Mapping {
    /// Who made it.
    #[serde(flatten)]
    pub who: Who,
    /// When it was made.
    pub at: Instant,
    /// Its length in bytes.
    pub length_bytes: Bytes,
    /// The file's name without directories; `None` for anonymous memory, and where unknown.
    pub file: Option<String>,
    /// Whether it is anonymous memory.
    pub is_anonymous: bool,
    /// Whether it may be neither read nor written: address space that is only reserved.
    pub is_reserved: bool,
}

/// The largest size of each address space, from the rows of `mem`, by position in the process table.
#[derive(Debug, Default)]
pub(super) struct Sizes(Vec<Option<Bytes>>);

impl Sizes {
    #[inline]
    pub(super) fn note(&mut self, process: usize, size: Option<Bytes>) {
        if self.0.len() <= process {
            self.0.resize(process + 1, None);
        }
        self.0[process] = self.0[process].max(size);
    }

    /// That of a process; `None` when unknown.
    pub(super) fn of(&self, process: usize) -> Option<Bytes> {
        self.0.get(process).copied().flatten()
    }
}

#[derive(Default)]
struct Account {
    sums: ProcessMappings,
    span: Option<(BootNs, BootNs)>,
}

impl Account {
    /// Adds calls of one kind. `added` and `removed` are address space, for madvise memory.
    fn add(&mut self, op: Option<VmOp>, calls: i64, added: Bytes, removed: Bytes) {
        let sums = &mut self.sums;
        sums.call_count += calls;
        match op {
            Some(VmOp::Mmap | VmOp::Munmap | VmOp::Mremap) => {
                sums.mapped_bytes = sums.mapped_bytes + added;
                sums.unmapped_bytes = sums.unmapped_bytes + removed;
            }
            Some(VmOp::Brk) => sums.heap_growth_bytes = sums.heap_growth_bytes + added - removed,
            Some(VmOp::Madvise) => sums.returned_bytes = sums.returned_bytes + removed,
            None => {}
        }
    }

    fn widen(&mut self, from: BootNs, to: BootNs) {
        let (first, last) = self.span.unwrap_or((from, to));
        self.span = Some((first.min(from), last.max(to)));
    }
}

/// Reads `vm_event` and `vm_summary`; `None` when both are empty.
pub(super) fn read<S: RowSource>(
    source: &S,
    sizes: &Sizes,
    table: &mut ProcessTable,
    clock: &RunClock,
) -> Result<Option<Mappings>, S::Error> {
    let mut accounts: HashMap<Upid, Account> = HashMap::new();
    let mut largest: Vec<(Upid, Mapping)> = Vec::new();
    source.scan(&[], |row: VmSummaryRow| {
        let account = accounts.entry(row.upid).or_default();
        account.add(row.op, row.call_count, row.added_bytes, row.removed_bytes);
        account.widen(row.since_boot_ns, row.boot_ns);
    })?;
    source.scan(&[], |row: VmEventRow| {
        let account = accounts.entry(row.upid).or_default();
        let grown = row.growth_bytes.unwrap_or(Bytes(0));
        let (added, removed) = match row.op {
            Some(VmOp::Madvise) => (Bytes(0), returned(&row)),
            _ => (grown.max(Bytes(0)), Bytes(0) - grown.min(Bytes(0))),
        };
        account.add(row.op, 1, added, removed);
        account.widen(row.boot_ns, row.boot_ns);
        if row.op == Some(VmOp::Mmap) && grown > Bytes(0) {
            let entry = mapping(row, grown);
            if entry.1.is_anonymous {
                let sums = &mut account.sums;
                sums.anon_mapped_bytes = sums.anon_mapped_bytes + grown;
            }
            keep_largest(&mut largest, entry);
        }
    })?;
    if accounts.is_empty() {
        return Ok(None);
    }
    let mut processes: Vec<(usize, ProcessMappings)> = accounts
        .into_iter()
        .map(|(upid, account)| {
            let (first, last) = account.span.unwrap_or_default();
            let process = table.position(upid, first);
            let seconds = (last - first).0 as f64 / 1e9;
            let moved = (account.sums.mapped_bytes + account.sums.unmapped_bytes).0;
            let sums = ProcessMappings {
                who: Who::from(&table.processes[process]),
                reserved_bytes: sizes.of(process),
                peak_rss_bytes: table.processes[process].peak.rss_bytes,
                churn_bytes_per_second: (seconds >= 1.0).then(|| moved as f64 / seconds),
                ..account.sums
            };
            (process, sums)
        })
        .collect();
    processes.order_by_key(|(process, sums)| {
        let moved = sums.mapped_bytes + sums.unmapped_bytes;
        std::cmp::Reverse((sums.reserved_bytes, moved, std::cmp::Reverse(*process)))
    });
    let processes: Vec<ProcessMappings> = processes.into_iter().map(|(_, sums)| sums).collect();
    let largest = largest
        .into_iter()
        .map(|(upid, mapping)| {
            let process = table.position(upid, mapping.at.boot_ns);
            Mapping {
                who: Who::from(&table.processes[process]),
                at: clock.at(mapping.at.boot_ns),
                ..mapping
            }
        })
        .collect();
    Ok(Some(Mappings {
        process_count: processes.len(),
        processes,
        largest,
    }))
}

/// What a call of madvise gave back: MADV_DONTNEED, MADV_FREE, MADV_REMOVE, MADV_PAGEOUT,
/// MADV_DONTNEED_LOCKED, where it did not fail.
fn returned(row: &VmEventRow) -> Bytes {
    match (row.flags, row.result) {
        (Some(4 | 8 | 9 | 21 | 24), 0) => row.length_bytes.unwrap_or(Bytes(0)),
        _ => Bytes(0),
    }
}

fn mapping(row: VmEventRow, length_bytes: Bytes) -> (Upid, Mapping) {
    let is_anonymous = row.flags.is_some_and(|flags| flags & MAP_ANONYMOUS != 0);
    let mapping = Mapping {
        who: Who::default(),
        at: Instant::unsettled(row.boot_ns),
        length_bytes,
        file: row.file,
        is_anonymous,
        is_reserved: row.prot == Some(0),
    };
    (row.upid, mapping)
}

/// Enters a mapping where it belongs, if it is large enough; of equals the first one stays.
fn keep_largest(largest: &mut Vec<(Upid, Mapping)>, entry: (Upid, Mapping)) {
    let length = entry.1.length_bytes;
    let place = largest.partition_point(|(_, kept)| kept.length_bytes >= length);
    if place < LARGEST_MAX {
        largest.insert(place, entry);
        largest.truncate(LARGEST_MAX);
    }
}
