//! When something ran on each device: how long it was busy and idle, how much of its communication ran
//! beside computing, and its largest gaps with what the CPU did in them.
//!
//! Events of a trace come in no order, so all are kept until the end: 24 bytes each, up to a bound.

use super::document::GPUS_MAX;
use super::kernels::KernelKind;
use memtrace_model::{DurationNs, WallNs};
use serde::Serialize;
use std::cmp::Reverse;

/// Of more kernels it is not known when a device was busy: some 100 MB.
const RAN_MAX: usize = 4 << 20;
/// So many gaps of a device are reported.
const GAPS_MAX: usize = 5;

/// What a device did, from the begin of the first kernel or copy to the end of the last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceActivity {
    /// The number of the device.
    pub device: i64,
    /// From the first begin to the last end.
    pub span_ns: DurationNs,
    /// The time in which something ran, on however many streams.
    pub busy_ns: DurationNs,
    /// The time in which nothing ran.
    pub idle_ns: DurationNs,
    /// The time in which a kernel computed.
    pub compute_ns: DurationNs,
    /// The time in which a kernel communicated.
    pub communication_ns: DurationNs,
    /// The part of that in which another computed.
    pub communication_beside_compute_ns: DurationNs,
    /// The time in which copies ran, and no kernel.
    pub only_copies_ns: DurationNs,
    /// The longest times in which nothing ran, the longest first.
    pub gaps: Vec<Gap>,
}

/// A time in which nothing ran on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// When it began, after the begin of the trace.
    pub begins_after_ns: DurationNs,
    /// The same on the wall clock.
    pub begin_wall_ns: Option<WallNs>,
    /// How long it was.
    pub duration_ns: DurationNs,
    /// What took most time on the CPU then, without what it called; `None` where nothing was traced, or
    /// that is not known.
    pub cpu_name: Option<String>,
    /// How long that took within the gap: 0 where nothing was traced; `None` where that is not known.
    pub cpu_ns: Option<DurationNs>,
}

/// A begin and an end.
pub(super) type Stretch = (i64, i64);

#[derive(Clone, Copy, Debug)]
struct Ran {
    begin: i64,
    ns: i64,
    /// The place of the device.
    device: u16,
    kind: KernelKind,
}

/// What ran so far.
#[derive(Debug, Default)]
pub(super) struct Activity {
    list: Vec<Ran>,
    devices: Vec<i64>,
    has_too_many: bool,
}

impl Activity {
    /// Takes what ran on a device. Of one device too many nothing is known.
    pub(super) fn take(&mut self, device: i64, begin: i64, ns: i64, kind: KernelKind) {
        let known = self.devices.iter().position(|known| *known == device);
        let place = match known {
            _ if self.has_too_many => return,
            Some(place) => place,
            None if self.devices.len() == GPUS_MAX => return,
            None => {
                self.devices.push(device);
                self.devices.len() - 1
            }
        };
        if self.list.len() == RAN_MAX {
            self.has_too_many = true;
            self.list = Vec::new();
            return;
        }
        self.list.push(Ran {
            begin,
            ns,
            device: place as u16,
            kind,
        });
    }

    /// What each device did, in the order of their numbers; nothing where too much ran. `cpu` tells what
    /// the CPU did in a stretch of time, `wall` the wall time of an event's; `begin` is that of the trace.
    pub(super) fn reported(
        mut self,
        begin: i64,
        cpu: impl Fn(Stretch) -> Option<(Option<String>, i64)>,
        wall: impl Fn(i64) -> Option<WallNs>,
    ) -> Vec<DeviceActivity> {
        self.list
            .sort_unstable_by_key(|ran| (ran.device, ran.begin));
        let of_devices = self.list.chunk_by(|a, b| a.device == b.device);
        let gap = |(from, to): Stretch| {
            let done = cpu((from, to));
            Gap {
                begins_after_ns: length((begin, from)),
                begin_wall_ns: wall(from),
                duration_ns: length((from, to)),
                cpu_ns: done.as_ref().map(|(_, ns)| DurationNs(*ns)),
                cpu_name: done.and_then(|(name, _)| name),
            }
        };
        let each = of_devices.filter_map(|ran| {
            let those = |wanted: fn(KernelKind) -> bool| {
                let ran = ran.iter().filter(move |one| wanted(one.kind));
                union(ran.map(|one| (one.begin, one.begin.saturating_add(one.ns))))
            };
            let busy = those(|_| true);
            let span = (busy.first()?.0, busy.last()?.1);
            let compute = those(KernelKind::is_compute);
            let communication = those(|kind| kind == KernelKind::Communication);
            let kernels = sum(&those(|kind| kind != KernelKind::Memcpy));
            let mut gaps: Vec<Stretch> =
                busy.windows(2).map(|pair| (pair[0].1, pair[1].0)).collect();
            gaps.sort_by_key(|gap| (Reverse(length(*gap)), gap.0));
            gaps.truncate(GAPS_MAX);
            let (span_ns, busy_ns) = (length(span), sum(&busy));
            Some(DeviceActivity {
                device: self.devices[usize::from(ran.first()?.device)],
                span_ns,
                busy_ns,
                idle_ns: DurationNs(span_ns.0.saturating_sub(busy_ns.0)),
                compute_ns: sum(&compute),
                communication_ns: sum(&communication),
                communication_beside_compute_ns: sum(&shared(&communication, &compute)),
                only_copies_ns: DurationNs(busy_ns.0.saturating_sub(kernels.0)),
                gaps: gaps.into_iter().map(gap).collect(),
            })
        });
        let mut each: Vec<DeviceActivity> = each.collect();
        each.sort_by_key(|one| one.device);
        each
    }
}

fn length((begin, end): Stretch) -> DurationNs {
    DurationNs(end.saturating_sub(begin).max(0))
}

fn sum(stretches: &[Stretch]) -> DurationNs {
    let lengths = stretches.iter().map(|one| length(*one).0);
    DurationNs(lengths.fold(0, i64::saturating_add))
}

/// Stretches in the order of their begins as those that do not touch.
fn union(stretches: impl Iterator<Item = Stretch>) -> Vec<Stretch> {
    let mut apart: Vec<Stretch> = Vec::new();
    for (begin, end) in stretches {
        match apart.last_mut() {
            Some(last) if begin <= last.1 => last.1 = end.max(last.1),
            _ => apart.push((begin, end)),
        }
    }
    apart
}

/// What two lists of stretches that do not touch have in common.
fn shared(a: &[Stretch], b: &[Stretch]) -> Vec<Stretch> {
    let (mut of_a, mut of_b) = (a.iter().peekable(), b.iter().peekable());
    let mut common = Vec::new();
    while let (Some(&&one), Some(&&other)) = (of_a.peek(), of_b.peek()) {
        let (begin, end) = (one.0.max(other.0), one.1.min(other.1));
        if begin < end {
            common.push((begin, end));
        }
        match one.1 <= other.1 {
            true => of_a.next(),
            false => of_b.next(),
        };
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_a_device_are_one_time_and_communication_is_held_against_computing() {
        let mut activity = Activity::default();
        for (device, begin, ns, kind) in [
            // In no order, on whatever streams.
            (3, 500, 100, KernelKind::Other),
            (3, 0, 100, KernelKind::Gemm),
            (3, 50, 100, KernelKind::Communication),
            (3, 140, 20, KernelKind::Memcpy),
            (3, 300, 50, KernelKind::Communication),
            (0, 7, 5, KernelKind::Gemm),
        ] {
            activity.take(device, begin, ns, kind);
        }
        let cpu =
            |(from, to): Stretch| (from == 350).then(|| (Some("wait".to_owned()), to - from - 1));
        let all = activity.reported(-10, cpu, |at| Some(WallNs(at + 1_000)));
        let ns = DurationNs;
        let [first, third] = &all[..] else {
            panic!("{all:?}");
        };
        assert_eq!(
            (first.device, first.busy_ns, first.idle_ns),
            (0, ns(5), ns(0))
        );
        assert_eq!(third.span_ns, ns(600));
        assert_eq!(
            (third.busy_ns, third.idle_ns),
            (ns(160 + 50 + 100), ns(290))
        );
        assert_eq!(third.compute_ns, ns(200));
        assert_eq!(third.communication_ns, ns(150));
        assert_eq!(third.communication_beside_compute_ns, ns(50));
        assert_eq!(third.only_copies_ns, ns(10));
        let gaps: Vec<_> = third.gaps.iter().map(|gap| gap.duration_ns.0).collect();
        assert_eq!(gaps, [150, 140]);
        let longest = &third.gaps[0];
        assert_eq!(longest.begins_after_ns, ns(360));
        assert_eq!(longest.begin_wall_ns, Some(WallNs(1_350)));
        assert_eq!(longest.cpu_name.as_deref(), Some("wait"));
        assert_eq!(longest.cpu_ns, Some(ns(149)));
        assert_eq!(third.gaps[1].cpu_name, None);
    }

    #[test]
    fn of_too_many_kernels_nothing_is_said() {
        let mut activity = Activity::default();
        for at in 0..=RAN_MAX as i64 {
            activity.take(0, at, 1, KernelKind::Other);
        }
        assert_eq!(activity.reported(0, |_| None, |_| None), []);
    }
}
