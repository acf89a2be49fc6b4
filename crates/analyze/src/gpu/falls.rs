//! Sharp falls of a device's memory: what left the GPU, and what appeared in the machine's
//! memory in the same second. A model that is put to sleep is such a fall; so is the end of
//! a process, which is distinguished.

use super::ledger::{GpuHolder, GpuLedger, GpuPart};
use crate::process::Process;
use memtrace_model::{BootNs, Bytes, DurationNs, Instant, Kind, Order, Upid};
use memtrace_timeline::Totals;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;

/// A fall may take steps with so much time between them.
const STEP_NS: DurationNs = DurationNs(1_000_000_000);
/// What appears in the machine's memory so long before the fall's first step and after its
/// last counts to it: weights are copied before their place on the device is given up.
const AROUND_NS: DurationNs = DurationNs(1_000_000_000);
/// A mark so long before the fall can be what made it.
const MARK_BEFORE_NS: DurationNs = DurationNs(5_000_000_000);
/// A process that ended so long before the first step can be what made it: a device is read
/// a little later.
const END_BEFORE_NS: DurationNs = DurationNs(2_000_000_000);
/// A smaller fall is not reported.
const LEAST: Bytes = Bytes(256 << 20);
/// Nor is one by a smaller part of the device.
const LEAST_PART: i64 = 20;
/// The largest so many are reported.
const FALLS_MAX: usize = 5;

/// A fall on one device or several at once.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Fall {
    /// Just before it.
    pub from: Instant,
    /// From when on the machine's memory was looked at: a second before.
    #[serde(skip)]
    pub host_from: BootNs,
    /// A second after its last step, or the end of the recording.
    pub to: Instant,
    /// By how much all devices fell.
    pub bytes: Bytes,
    /// By how much each of them did.
    pub devices: Vec<DeviceFall>,
    /// Who held less after it, and by how much; the largest first.
    pub left: Vec<GpuPart>,
    /// The part that stayed on the devices though no process holds it any longer; `None` under
    /// 256 MiB, and where it is not known.
    pub stayed_bytes: Option<Bytes>,
    /// Processes that held memory of those devices and ended meanwhile, by `upid`.
    pub ended: Vec<Upid>,
    /// What came to the host meanwhile.
    #[serde(flatten)]
    pub host: HostGain,
    /// Marks around its start, the nearest first.
    pub marks: Vec<Arc<str>>,
}

/// By how much one device fell.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DeviceFall {
    /// The device, as `gpu_device` calls it.
    pub device: Arc<str>,
    /// The driver's number for it, as in `gpu_device`; null where it gave none.
    pub device_index: Option<i32>,
    /// By how much.
    pub bytes: Bytes,
}

/// What the recorded processes gained on the host while memory of a device moved; `None` when
/// unknown.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct HostGain {
    /// What the anonymous memory of recorded processes changed by on the host meanwhile; `None`
    /// when unknown.
    #[serde(rename = "host_anon_change_bytes")]
    pub anon_bytes: Option<Bytes>,
    /// The same of their shared memory, where pinned memory is.
    #[serde(rename = "host_shmem_change_bytes")]
    pub shmem_bytes: Option<Bytes>,
    /// The same of their mapped files.
    #[serde(rename = "host_file_change_bytes")]
    pub file_bytes: Option<Bytes>,
}

impl HostGain {
    pub(super) fn of(before: Option<&Totals>, after: Option<&Totals>) -> Self {
        let of = |kind| Some(after?[kind].bytes()? - before?[kind].bytes()?);
        Self {
            anon_bytes: of(Kind::Anon),
            shmem_bytes: of(Kind::Shmem),
            file_bytes: of(Kind::File),
        }
    }
}

impl Fall {
    /// Of all marks in the order of time, those that can belong to it.
    pub(super) fn near<'a>(&self, marks: &'a [(BootNs, Arc<str>)]) -> &'a [(BootNs, Arc<str>)] {
        let from = BootNs(self.from.boot_ns.0 - MARK_BEFORE_NS.0);
        let first = marks.partition_point(|(at, _)| *at < from);
        let end = marks.partition_point(|(at, _)| *at <= self.to.boot_ns);
        marks.get(first..end).unwrap_or_default()
    }

    /// Completes it with who held what before and after.
    pub(super) fn explain(
        &mut self,
        (before, after): (&[GpuLedger], &[GpuLedger]),
        (host_before, host_after): (Option<&Totals>, Option<&Totals>),
        processes: &[Process],
    ) {
        let mut left: HashMap<GpuHolder, i64> = HashMap::new();
        for (ledgers, sign) in [(before, 1), (after, -1)] {
            for ledger in ledgers {
                if !self.devices.iter().any(|fell| fell.device == ledger.device) {
                    continue;
                }
                for line in ledger
                    .lines
                    .iter()
                    .filter(|line| !line.is_counted_elsewhere)
                {
                    let bytes = line.bytes.map_or(0, |bytes| bytes.0);
                    *left.entry(line.holder.clone()).or_default() += sign * bytes;
                }
            }
        }
        self.left = left
            .into_iter()
            .filter(|(_, bytes)| *bytes > 0)
            .map(|(holder, bytes)| GpuPart {
                holder,
                bytes: Some(Bytes(bytes)),
            })
            .collect();
        self.left.order_by(|a, b| {
            let place = |part: &GpuPart| part.holder.process.unwrap_or(usize::MAX);
            let by_place = || (place(a), &a.holder.who).cmp(&(place(b), &b.holder.who));
            b.bytes.cmp(&a.bytes).then_with(by_place)
        });
        self.stayed_bytes = self.stayed(before, after);
        let ended = self.left.iter().filter_map(|part| {
            let process = &processes[part.holder.process?];
            let exit = process.exit_boot_ns()?;
            let is_meanwhile = exit.0 >= self.from.boot_ns.0 - END_BEFORE_NS.0;
            (is_meanwhile && exit <= self.to.boot_ns).then_some(process.upid)
        });
        self.ended = ended.collect();
        self.host = HostGain::of(host_before, host_after);
    }

    /// By how much more is used after it that no process explains.
    fn stayed(&self, before: &[GpuLedger], after: &[GpuLedger]) -> Option<Bytes> {
        let unexplained = |ledgers: &[GpuLedger], fell: &DeviceFall| {
            let mut own = ledgers.iter().filter(|ledger| ledger.device == fell.device);
            let ledger = own
                .next()
                .filter(|ledger| ledger.unknown_process_count == 0);
            ledger?.unattributed_bytes
        };
        let devices = self.devices.iter();
        let more = devices.map(|fell| {
            let (then, now) = (unexplained(before, fell)?, unexplained(after, fell)?);
            Some((now - then).max(Bytes(0)))
        });
        more.sum::<Option<Bytes>>().filter(|more| *more >= LEAST)
    }
}

/// Watches one device.
#[derive(Debug, Default)]
pub(super) struct Watch {
    last: Option<(BootNs, Bytes)>,
    /// Just before the first step, what was used then, and the time of the last step.
    falling: Option<(BootNs, Bytes, BootNs)>,
    found: Vec<(BootNs, BootNs, Bytes)>,
}

impl Watch {
    /// The device was read; `None` where it did not tell.
    pub(super) fn take(&mut self, boot: BootNs, used: Option<Bytes>, total: Option<Bytes>) {
        let is_over = self.falling.is_some_and(|(.., step)| boot - step > STEP_NS);
        let has_risen = self
            .last
            .zip(used)
            .is_none_or(|((_, last), used)| used > last);
        if is_over || has_risen || used.is_none() {
            self.settle(total);
        }
        if let (Some((_, last)), Some(used)) = (self.last, used)
            && used < last
        {
            let (from, high, _) = self.falling.unwrap_or((BootNs(boot.0 - 1), last, boot));
            self.falling = Some((from, high, boot));
        }
        self.last = used.map(|used| (boot, used));
    }

    fn settle(&mut self, total: Option<Bytes>) {
        let Some(((from, high, step), (_, low))) = self.falling.take().zip(self.last) else {
            return;
        };
        let bytes = high - low;
        let least = total.map_or(0, |total| total.0 / LEAST_PART).max(LEAST.0);
        if bytes.0 >= least {
            self.found.push((from, step, bytes));
            // What matters are the largest; memory is bounded.
            if self.found.len() > 4 * FALLS_MAX {
                self.found
                    .order_by_key(|(.., bytes)| std::cmp::Reverse(*bytes));
                self.found.truncate(2 * FALLS_MAX);
            }
        }
    }

    pub(super) fn finish(mut self, total: Option<Bytes>) -> Vec<(BootNs, BootNs, Bytes)> {
        self.settle(total);
        self.found
    }
}

/// From when on the machine's memory is looked at for what left a device after `from`.
pub(super) fn before(from: BootNs) -> BootNs {
    BootNs(from.0 - AROUND_NS.0)
}

/// Falls of several devices at one time are one; those of one device are not, for it may have risen
/// between them. They come device by device, each with its index.
pub(super) fn together(
    found: impl IntoIterator<Item = ((Arc<str>, Option<i32>), (BootNs, BootNs, Bytes))>,
    end: BootNs,
) -> Vec<Fall> {
    let mut found: Vec<_> = found.into_iter().collect();
    found.order_by_key(|(_, (from, ..))| *from);
    let mut falls: Vec<Fall> = Vec::new();
    for ((device, device_index), (from, step, bytes)) in found {
        let to = BootNs((step + AROUND_NS).0.min(end.0.max(step.0)));
        let (from, to) = (Instant::unsettled(from), Instant::unsettled(to));
        let fallen = DeviceFall {
            device,
            device_index,
            bytes,
        };
        let last = falls.last_mut().filter(|last| from <= last.to);
        match last.filter(|last| last.devices.iter().all(|one| one.device != fallen.device)) {
            Some(last) => {
                last.to = last.to.max(to);
                last.bytes = last.bytes + bytes;
                last.devices.push(fallen);
            }
            None => falls.push(Fall {
                from,
                host_from: before(from.boot_ns),
                to,
                bytes,
                devices: vec![fallen],
                ..Fall::default()
            }),
        }
    }
    falls.order_by_key(|fall| std::cmp::Reverse(fall.bytes));
    falls.truncate(FALLS_MAX);
    falls.order_by_key(|fall| fall.from);
    falls
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: i64 = 1 << 30;
    const MS: i64 = 1_000_000;

    fn falls(rows: &[(i64, i64)]) -> Vec<(i64, i64, i64)> {
        let mut watch = Watch::default();
        let total = Some(Bytes(80 * GIB));
        for (ms, gib) in rows {
            watch.take(BootNs(ms * MS), Some(Bytes(gib * GIB)), total);
        }
        let found = watch.finish(total).into_iter();
        found
            .map(|(from, step, bytes)| (from.0, step.0 / MS, bytes.0 / GIB))
            .collect()
    }

    #[test]
    fn a_fall_in_steps_is_one_and_a_slow_decline_is_none() {
        let rows = [
            (0, 60),
            (1_000, 40),
            (1_300, 30),
            (1_900, 20),
            (5_000, 20),
            (9_000, 25),
        ];
        assert_eq!(falls(&rows), [(1_000 * MS - 1, 1_900, 40)]);
        let slow: Vec<(i64, i64)> = (0..20).map(|step| (step * 2_000, 60 - step)).collect();
        assert_eq!(falls(&slow), []);
    }

    #[test]
    fn falls_of_all_devices_at_once_are_reported_together() {
        let fall = |ms: i64| (BootNs(ms * MS - 1), BootNs(ms * MS), Bytes(GIB));
        let device = |name: &str| (Arc::<str>::from(name), Some(0));
        let found = [
            (device("a"), fall(1_000)),
            (device("b"), fall(1_400)),
            (device("a"), fall(60_000)),
        ];
        let falls = together(found, BootNs(60_200 * MS));
        let text: Vec<_> = falls
            .iter()
            .map(|fall| (fall.devices.len(), fall.to.boot_ns.0 / MS))
            .collect();
        assert_eq!(text, [(2, 2_400), (1, 60_200)]);
    }
}
