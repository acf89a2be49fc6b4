//! What torch's CUDA caching allocator held, by its own snapshots: `torch_memory`, from `memtrace import
//! torch`.

use super::allocations::{CodeLine, SourceLines, StackFrame, by_line, frames_of};
use super::clock::RunClock;
use super::process_table::ProcessTable;
use super::who::Who;
use memtrace_model::tables::{CudaMemoryRow, TorchBlockState, TorchMemoryRow};
use memtrace_model::{BootNs, Bytes, Instant, Order, RowSource, Upid};
use schemars::JsonSchema;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Lines of one snapshot.
const SITES_MAX: usize = 50;

/// What torch held of one device at one moment.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TorchSnapshot {
    /// Whose memory it is.
    #[serde(flatten)]
    pub who: Who,
    /// When that was.
    pub at: Instant,
    /// Name of the file.
    pub snapshot: String,
    /// The device as the process counts (CUDA_VISIBLE_DEVICES).
    pub cuda_device: i32,
    /// The number of segments: what torch took from the driver in one piece each.
    pub segment_count: usize,
    /// The number of blocks in them.
    pub block_count: i64,
    /// What the segments are together.
    pub reserved_bytes: Bytes,
    /// Of it, what tensors have.
    pub allocated_bytes: Bytes,
    /// Of that, what the program asked for; the rest is rounding.
    pub requested_bytes: Bytes,
    /// Freed by the program; another stream may still use it.
    pub awaiting_free_bytes: Bytes,
    /// Free within the segments: torch keeps it for the next tensors.
    pub inactive_bytes: Bytes,
    /// Of that, what segments have that are wholly free: torch.cuda.empty_cache() gives them back.
    pub free_segment_bytes: Bytes,
    /// The largest free block: a larger tensor needs a new segment, unless segments are expandable.
    pub largest_inactive_bytes: Bytes,
    /// Of the reserved bytes, those of private pools, as of CUDA graphs: no other tensor can have them.
    pub private_pool_bytes: Bytes,
    /// What the driver had handed out to the process on this device by then: direct, mapped by hand, and
    /// of pools. Null where its calls were not all recorded.
    pub driver_bytes: Option<Bytes>,
    /// Which lines allocated what tensors have, the one with most first; at most 50. Empty where
    /// torch recorded no history.
    pub sites: Vec<TorchSite>,
}

/// What the tensors that one line allocated have.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TorchSite {
    /// Which line it is.
    #[serde(flatten)]
    pub line: CodeLine,
    /// What its tensors have.
    pub allocated_bytes: Bytes,
    /// The number of their blocks.
    pub block_count: i64,
}

/// Time, file, process and device.
type Key = (BootNs, String, Option<Upid>, i32);

/// Process, device and time.
type OfDevice = (Upid, i32, BootNs);

/// The rows of one snapshot and device, as they come.
#[derive(Default)]
struct Sums {
    /// By address, what is free of each, and whether all is.
    segments: HashMap<i64, (Bytes, bool)>,
    block_count: i64,
    by_state: BTreeMap<TorchBlockState, Bytes>,
    requested: Bytes,
    largest_inactive: Bytes,
    private_pools: Bytes,
    /// Allocated, by stack.
    stacks: HashMap<i64, (Bytes, i64)>,
}

impl Sums {
    fn add(&mut self, row: &TorchMemoryRow) {
        let size = row.size_bytes;
        let segment = self.segments.entry(row.segment_address);
        let (free, is_free) = segment.or_insert((Bytes(0), true));
        match row.state {
            Some(TorchBlockState::Inactive) => *free = *free + size,
            _ => *is_free = false,
        }
        self.block_count = self.block_count.saturating_add(row.block_count);
        if row.pool.is_some() {
            self.private_pools = self.private_pools + size;
        }
        let Some(state) = row.state else {
            return;
        };
        let sum = self.by_state.entry(state).or_default();
        *sum = *sum + size;
        match state {
            TorchBlockState::Allocated => {
                self.requested = self.requested + row.requested_bytes;
                let (bytes, count) = self.stacks.entry(row.stack_id).or_default();
                *bytes = *bytes + size;
                *count = count.saturating_add(row.block_count);
            }
            TorchBlockState::Inactive => {
                self.largest_inactive = self.largest_inactive.max(row.largest_block_bytes);
            }
            TorchBlockState::AwaitingFree => {}
        }
    }

    fn free_segments(&self) -> Bytes {
        let free = self.segments.values().filter(|(_, is_free)| *is_free);
        free.map(|(bytes, _)| *bytes).sum()
    }
}

/// Reads the snapshots.
pub(super) fn read<S: RowSource>(
    source: &S,
    table: &ProcessTable,
    clock: &RunClock,
) -> Result<Vec<TorchSnapshot>, S::Error> {
    let mut all: BTreeMap<Key, Sums> = BTreeMap::new();
    source.scan(&[], |row: TorchMemoryRow| {
        let key = (row.boot_ns, row.snapshot.clone(), row.upid, row.cuda_device);
        all.entry(key).or_default().add(&row);
    })?;
    let stacks = all.values().flat_map(|sums| sums.stacks.keys());
    let wanted: HashSet<i64> = stacks.copied().filter(|stack| *stack != 0).collect();
    let frames = match wanted.is_empty() {
        true => HashMap::new(),
        false => frames_of(source, &wanted, &mut SourceLines::none())?,
    };
    let driver = driver(source, &all)?;
    let snapshots = all
        .into_iter()
        .map(|((boot_ns, snapshot, upid, cuda_device), sums)| {
            let process = upid.and_then(|upid| table.find(upid));
            let bytes = |state| sums.by_state.get(&state).copied().unwrap_or_default();
            TorchSnapshot {
                who: process.map_or_else(
                    || Who {
                        upid,
                        ..Who::default()
                    },
                    |process| Who::from(&table.processes[process]),
                ),
                at: clock.at(boot_ns),
                snapshot,
                cuda_device,
                segment_count: sums.segments.len(),
                block_count: sums.block_count,
                reserved_bytes: sums.by_state.values().copied().sum(),
                allocated_bytes: bytes(TorchBlockState::Allocated),
                requested_bytes: sums.requested,
                awaiting_free_bytes: bytes(TorchBlockState::AwaitingFree),
                inactive_bytes: bytes(TorchBlockState::Inactive),
                free_segment_bytes: sums.free_segments(),
                largest_inactive_bytes: sums.largest_inactive,
                private_pool_bytes: sums.private_pools,
                driver_bytes: upid.and_then(|upid| *driver.get(&(upid, cuda_device, boot_ns))?),
                sites: sites(&sums.stacks, &frames),
            }
        });
    Ok(snapshots.collect())
}

/// What the driver had handed out by process, device and time of the snapshots.
fn driver<S: RowSource>(
    source: &S,
    snapshots: &BTreeMap<Key, Sums>,
) -> Result<BTreeMap<OfDevice, Option<Bytes>>, S::Error> {
    let wanted = snapshots.keys();
    let wanted = wanted.filter_map(|(at, _, upid, device)| Some(((*upid)?, *device, *at)));
    let mut found: BTreeMap<_, Option<Bytes>> = wanted.map(|key| (key, None)).collect();
    if !found.is_empty() {
        source.scan(&[], |row: CudaMemoryRow| {
            let Some(device) = row.cuda_device else {
                return;
            };
            let held = row.direct_bytes + row.vmm_bytes + row.pool_bytes;
            let held = row.is_whole.then_some(held);
            let from = (row.upid, device, row.boot_ns);
            let to = (row.upid, device, BootNs(i64::MAX));
            // Rows come in the order of time: the last one before a snapshot stays.
            found
                .range_mut(from..=to)
                .for_each(|(_, known)| *known = held);
        })?;
    }
    Ok(found)
}

/// The lines of a snapshot; none where no block has a stack.
fn sites(
    stacks: &HashMap<i64, (Bytes, i64)>,
    frames: &HashMap<i64, Vec<StackFrame>>,
) -> Vec<TorchSite> {
    let mut stacks: Vec<(i64, Bytes, i64)> = stacks
        .iter()
        .map(|(stack, (bytes, count))| (*stack, *bytes, *count))
        .collect();
    if stacks.iter().all(|(stack, ..)| *stack == 0) {
        return Vec::new();
    }
    // The first stack of a line is the one that is shown of it.
    stacks.order_by_key(|(stack, bytes, _)| (Reverse(*bytes), *stack));
    let rows = stacks
        .into_iter()
        .map(|(stack, bytes, count)| (stack, (bytes, count)));
    let lines = by_line(rows, frames, |sum: &mut (Bytes, i64), (bytes, count)| {
        sum.0 = sum.0 + bytes;
        sum.1 = sum.1.saturating_add(count);
    });
    let sites = lines
        .into_iter()
        .map(|(line, (allocated_bytes, block_count))| TorchSite {
            line,
            allocated_bytes,
            block_count,
        });
    let mut sites: Vec<TorchSite> = sites.collect();
    sites.order_by_key(|site| Reverse(site.allocated_bytes));
    sites.truncate(SITES_MAX);
    sites
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{Reported, Script, boot, gib, upid, wall};
    use memtrace_model::Tgid;

    fn held(at: f64, tgid: u32, direct: f64, is_whole: bool) -> CudaMemoryRow {
        CudaMemoryRow {
            ts: wall(at),
            boot_ns: boot(at),
            upid: upid(Tgid(tgid)),
            cuda_device: Some(0),
            direct_bytes: gib(direct),
            vmm_bytes: gib(1.0),
            pinned_bytes: gib(5.0),
            is_whole,
            ..CudaMemoryRow::default()
        }
    }

    fn snapshot(at: f64, tgid: Option<u32>, cuda_device: i32) -> TorchMemoryRow {
        TorchMemoryRow {
            ts: wall(at),
            boot_ns: boot(at),
            upid: tgid.map(|tgid| upid(Tgid(tgid))),
            cuda_device,
            state: Some(TorchBlockState::Inactive),
            size_bytes: gib(1.0),
            ..TorchMemoryRow::default()
        }
    }

    #[test]
    fn what_the_driver_had_handed_out_is_the_last_row_before_the_snapshot() {
        let mut run = Script::command(&["a"], 60.0);
        run.process(7, None, 0.0, "a");
        for row in [
            held(5.0, 7, 1.0, true),
            held(10.0, 7, 3.0, true),
            held(10.0, 8, 30.0, true),
            held(30.0, 7, 9.0, true),
            held(40.0, 7, 9.0, false),
        ] {
            run.put(row);
        }
        for row in [
            snapshot(1.0, Some(7), 0),
            snapshot(20.0, None, 0),
            snapshot(20.0, Some(7), 0),
            snapshot(20.0, Some(7), 1),
            snapshot(30.0, Some(7), 0),
            snapshot(50.0, Some(7), 0),
        ] {
            run.put(row);
        }
        let report = run.reported(None, None);
        let found = report.analysis.torch_snapshots.iter();
        let found = found.map(|one| one.driver_bytes.map(|bytes| bytes.0 >> 30));
        let expected = [None, None, Some(4), None, Some(10), None];
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }
}
