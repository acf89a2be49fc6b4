//! What recorded processes hold of each GPU by their calls of the CUDA driver, by kind, over time.

use super::coded::{CurveSeries, Gaps};
use super::known::Known;
use super::{GPU_VALUES, GpuCurves};
use crate::RunClock;
use crate::gpu::{GpuDevice, Gpus};
use memtrace_model::tables::CudaMemoryRow;
use memtrace_model::{BootNs, Bytes, RowSource};
use memtrace_timeline::Thinned;
use std::collections::{BTreeMap, HashMap};

/// The first function of a device is the sum of the others, one for each kind.
const SUM: usize = 0;

/// By kind, in the order of [`CudaMemoryRow::on_device`].
type Amounts = [Bytes; 4];

/// A device while it is followed.
struct Followed {
    thinned: Thinned,
    now: Amounts,
    /// Since when it differs from what was drawn.
    changed_at: Option<BootNs>,
}

/// Reads `cuda_memory`. Answers curves by the position of their device.
pub(super) fn read<S: RowSource>(
    source: &S,
    known: &Known<'_>,
) -> Result<BTreeMap<usize, GpuCurves>, S::Error> {
    let with_calls = known
        .gpus
        .and_then(|gpus| Some((gpus, gpus.cuda.as_ref()?)));
    let Some((gpus, cuda)) = with_calls else {
        return Ok(BTreeMap::new());
    };
    let (table, clock) = (known.table, known.clock);
    let room = GPU_VALUES / (2 * gpus.devices.len().max(1));
    let mut all: BTreeMap<usize, Followed> = BTreeMap::new();
    let mut held: HashMap<(usize, Option<i32>), Amounts> = HashMap::new();
    source.scan(&[], |row: CudaMemoryRow| {
        let ledger = table
            .find(row.upid)
            .map(|process| (process, row.cuda_device));
        let device = ledger.and_then(|ledger| cuda.places.get(&ledger));
        let Some((ledger, device)) = ledger.zip(device) else {
            return;
        };
        let followed = all.entry(*device).or_insert_with(|| Followed {
            thinned: Thinned::of_unknown(
                Amounts::default().len() + 1,
                room,
                clock.duration(),
                known.foci.to_vec(),
            ),
            now: Amounts::default(),
            changed_at: None,
        });
        followed.move_to(row.boot_ns);
        let amounts = row.on_device().map(|(_, bytes)| bytes);
        let before = held.insert(ledger, amounts).unwrap_or_default();
        for (now, (before, after)) in followed.now.iter_mut().zip(before.into_iter().zip(amounts)) {
            *now = *now + after - before;
        }
        followed.changed_at = Some(row.boot_ns);
    })?;
    let reported = all.into_iter();
    Ok(reported
        .map(|(place, followed)| (place, followed.reported(gpus, place, clock)))
        .collect())
}

impl Followed {
    /// When time moves on, what changed is drawn.
    fn move_to(&mut self, at: BootNs) {
        let changed = self.changed_at.take_if(|changed| *changed < at);
        let Some(changed) = changed else { return };
        let sum: Bytes = self.now.iter().copied().sum();
        self.thinned.set(changed, SUM, Some(sum));
        for (function, bytes) in (SUM + 1..).zip(self.now) {
            self.thinned.set(changed, function, Some(bytes));
        }
    }

    fn reported(mut self, gpus: &Gpus, place: usize, clock: &RunClock) -> GpuCurves {
        self.move_to(BootNs(i64::MAX));
        let device: &GpuDevice = &gpus.devices[place];
        let thin = self.thinned.finish();
        let series =
            |name: &str, function: usize| CurveSeries::new(name, name).with(&thin.steps[function]);
        let kinds = CudaMemoryRow::default().on_device().into_iter();
        let kinds = kinds
            .zip(SUM + 1..)
            .map(|((name, _), function)| series(name, function));
        let which = match device.index {
            Some(index) => index.to_string(),
            None => device.device.to_string(),
        };
        GpuCurves {
            id: format!("{} by calls", device.device).into(),
            index: device.index,
            label: format!("GPU {which} by calls of the CUDA driver"),
            total_bytes: None,
            time_ns: Gaps::of_instants(&thin.instants, clock.start()),
            used: series("all calls", SUM),
            series: kinds.filter(|kind| !kind.is_nothing()).collect(),
        }
    }
}
