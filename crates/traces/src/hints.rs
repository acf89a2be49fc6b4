//! What probably keeps a device waiting, with the figures that say so.

use super::activity::{DeviceActivity, Gap};
use super::kernels::{KernelKind, KindTotal};
use super::times::{percent, took};
use memtrace_model::DurationNs;
use memtrace_report::words;
use serde::Serialize;

/// From this part of a device's time on it is worth a word, in per cent.
const WORTH_PERCENT: i64 = 10;
/// Kernels that are shorter on average take about as long to launch as to run.
const SHORT_NS: i64 = 10_000;
/// Of fewer kernels an average says nothing.
const KERNELS_MIN: u64 = 100;

/// What a bottleneck probably is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HintKind {
    /// The CPU waits for the device, and launches nothing meanwhile.
    WaitsForDevice,
    /// The CPU waits for data.
    WaitsForData,
    /// The allocator waits for the driver.
    Allocates,
    /// The CPU does something else.
    CpuBound,
    /// Kernels are too short for their number.
    ShortKernels,
    /// Communication runs while nothing computes.
    Communication,
    /// Copies take the time.
    Copies,
}

/// A probable bottleneck.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hint {
    /// What it is.
    pub kind: HintKind,
    /// The device that waits; `None` for all of the trace.
    pub device: Option<i64>,
    /// The same in words, with the figures that say so.
    pub text: String,
}

/// The hints of a trace, device by device.
pub(super) fn hints(
    activity: &[DeviceActivity],
    kinds: &[KindTotal],
    graph_launch_count: u64,
) -> Vec<Hint> {
    let mut hints: Vec<Hint> = Vec::new();
    for device in activity {
        hints.extend(idle(device));
        hints.extend(communication(device));
    }
    let is_any_idle = activity
        .iter()
        .any(|device| is_worth(device.idle_ns, device.span_ns));
    hints.extend(short_kernels(kinds, graph_launch_count).filter(|_| is_any_idle));
    hints.extend(copies(kinds));
    hints
}

fn is_worth(part: DurationNs, whole: DurationNs) -> bool {
    whole.0 > 0 && part.0 >= whole.0 / 100 * WORTH_PERCENT
}

/// What the CPU did most in the gaps of a device that was idle.
fn idle(device: &DeviceActivity) -> Option<Hint> {
    let longest = device.gaps.first()?;
    if !is_worth(device.idle_ns, device.span_ns) {
        return None;
    }
    let (kind, advice) = cause(longest);
    let cpu = match (&longest.cpu_name, longest.cpu_ns) {
        (Some(name), Some(ns)) => format!("{name} took {} on the CPU", took(ns)),
        _ => "nothing was traced on the CPU".to_owned(),
    };
    Some(Hint {
        kind,
        device: Some(device.device),
        text: format!(
            "Device {} was idle {} of its time. In its longest gap ({} at +{}) {cpu}: {advice}.",
            device.device,
            percent(device.idle_ns, device.span_ns),
            took(longest.duration_ns),
            took(longest.begins_after_ns),
        ),
    })
}

/// What a gap comes from, by the name of what the CPU did.
fn cause(gap: &Gap) -> (HintKind, &'static str) {
    let name = gap.cpu_name.as_deref().unwrap_or_default();
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    if has(&[
        "Synchronize",
        "_local_scalar_dense",
        "aten::item",
        "aten::nonzero",
        "EventQuery",
    ]) {
        let advice = "the CPU waited for the device and had launched nothing after it; .item(), .cpu(), \
                      .tolist() and synchronize() do that";
        return (HintKind::WaitsForDevice, advice);
    }
    if has(&["DataLoader"]) {
        let advice = "the loader was late; more workers, or prefetching, may help";
        return (HintKind::WaitsForData, advice);
    }
    if has(&[
        "Malloc",
        "Free",
        "MemCreate",
        "MemMap",
        "MemUnmap",
        "MemRelease",
    ]) {
        let advice = "the allocator asked the driver for memory, or gave it back";
        return (HintKind::Allocates, advice);
    }
    let advice = match name.starts_with("ProfilerStep#") || name.is_empty() {
        true => "Python, or what the profiler does not trace, kept the CPU from launching kernels",
        false => "the CPU was busy with that, and launched no kernel",
    };
    (HintKind::CpuBound, advice)
}

/// Communication beside which nothing computes.
fn communication(device: &DeviceActivity) -> Option<Hint> {
    let beside = device.communication_beside_compute_ns;
    let alone = DurationNs(device.communication_ns.0.saturating_sub(beside.0));
    is_worth(alone, device.span_ns).then(|| Hint {
        kind: HintKind::Communication,
        device: Some(device.device),
        text: format!(
            "Device {} communicated for {} ({} of its time) while nothing computed: computing and \
             communication overlap too little, or another rank was late.",
            device.device,
            took(alone),
            percent(alone, device.span_ns),
        ),
    })
}

/// Many kernels that are as short as their launch.
fn short_kernels(kinds: &[KindTotal], graph_launch_count: u64) -> Option<Hint> {
    let computing = kinds.iter().filter(|one| one.kind.is_compute());
    let (count, ns) = computing.fold((0, 0_i64), |(count, ns), one| {
        (count + one.count, ns.saturating_add(one.total_ns.0))
    });
    let average = ns / i64::try_from(count.max(1)).unwrap_or(i64::MAX);
    let is_so = count >= KERNELS_MIN && average < SHORT_NS && graph_launch_count == 0;
    is_so.then(|| Hint {
        kind: HintKind::ShortKernels,
        device: None,
        text: format!(
            "{} kernels took {} each on average, and no CUDA graph was launched: to launch them takes about \
             as long as to run them. A CUDA graph, torch.compile or a larger batch may help.",
            words::count(i64::try_from(count).unwrap_or(i64::MAX)),
            took(DurationNs(average)),
        ),
    })
}

/// Copies that take a part of the time of all.
fn copies(kinds: &[KindTotal]) -> Option<Hint> {
    let sum = |those: &mut dyn Iterator<Item = &KindTotal>| {
        DurationNs(those.fold(0, |ns, one| ns.saturating_add(one.total_ns.0)))
    };
    let all = sum(&mut kinds.iter());
    let copies = sum(&mut kinds.iter().filter(|one| one.kind == KernelKind::Memcpy));
    is_worth(copies, all).then(|| Hint {
        kind: HintKind::Copies,
        device: None,
        text: format!(
            "Copies and memsets took {} ({} of what ran on devices).",
            took(copies),
            percent(copies, all),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(idle: i64, communication: (i64, i64), gap: Option<&str>) -> DeviceActivity {
        let ns = DurationNs;
        DeviceActivity {
            device: 3,
            span_ns: ns(1_000_000),
            busy_ns: ns(1_000_000 - idle),
            idle_ns: ns(idle),
            compute_ns: ns(1_000_000 - idle),
            communication_ns: ns(communication.0),
            communication_beside_compute_ns: ns(communication.1),
            gaps: vec![Gap {
                begins_after_ns: ns(2_000),
                begin_wall_ns: None,
                duration_ns: ns(idle / 2),
                cpu_name: gap.map(str::to_owned),
                cpu_ns: gap.map(|_| ns(idle / 4)),
            }],
        }
    }

    fn kind(kind: KernelKind, count: u64, ns: i64) -> KindTotal {
        KindTotal {
            kind,
            count,
            total_ns: DurationNs(ns),
        }
    }

    #[test]
    fn a_device_that_is_busy_with_long_kernels_gets_no_hint() {
        let kinds = [
            kind(KernelKind::Gemm, 200, 200 * 50_000),
            kind(KernelKind::Memcpy, 2, 900_000),
        ];
        assert_eq!(hints(&[device(90_000, (99_000, 0), None)], &kinds, 0), []);
        assert_eq!(hints(&[], &[], 0), []);
    }

    #[test]
    fn an_idle_device_is_explained_by_what_the_cpu_did_in_its_longest_gap() {
        for (name, expected) in [
            (Some("cudaStreamSynchronize"), HintKind::WaitsForDevice),
            (Some("aten::_local_scalar_dense"), HintKind::WaitsForDevice),
            (
                Some("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"),
                HintKind::WaitsForData,
            ),
            (Some("cudaMalloc"), HintKind::Allocates),
            (Some("ProfilerStep#7"), HintKind::CpuBound),
            (Some("aten::mm"), HintKind::CpuBound),
            (None, HintKind::CpuBound),
        ] {
            let found = hints(&[device(400_000, (0, 0), name)], &[], 0);
            let [hint] = &found[..] else {
                panic!("{found:?}");
            };
            assert_eq!((hint.kind, hint.device), (expected, Some(3)), "{name:?}");
            let evidence =
                "Device 3 was idle 40.0 % of its time. In its longest gap (200.0 µs at +2.0 µs) ";
            assert!(hint.text.starts_with(evidence), "{}", hint.text);
            if let Some(name) = name {
                assert!(
                    hint.text.contains(&format!("{name} took 100.0 µs")),
                    "{}",
                    hint.text
                );
            }
        }
    }

    #[test]
    fn communication_alone_short_kernels_and_copies_are_named_with_their_figures() {
        let kinds = [
            kind(KernelKind::Gemm, 1_000, 4_000_000),
            kind(KernelKind::Memcpy, 10, 1_000_000),
        ];
        let device = [device(100_000, (300_000, 50_000), Some("aten::mm"))];
        let text = |graphs| {
            let found = hints(&device, &kinds, graphs).into_iter();
            found.map(|hint| (hint.kind, hint.text)).collect::<Vec<_>>()
        };
        let found = text(0);
        let kinds: Vec<HintKind> = found.iter().map(|(kind, _)| *kind).collect();
        use HintKind::{Communication, Copies, CpuBound, ShortKernels};
        assert_eq!(kinds, [CpuBound, Communication, ShortKernels, Copies]);
        for (place, part) in [
            (
                1,
                "communicated for 250.0 µs (25.0 % of its time) while nothing computed",
            ),
            (2, "1,000 kernels took 4.0 µs each on average"),
            (
                3,
                "Copies and memsets took 1.00 ms (20.0 % of what ran on devices)",
            ),
        ] {
            assert!(found[place].1.contains(part), "{}", found[place].1);
        }
        // A graph launches many at once.
        assert!(text(1).iter().all(|(kind, _)| *kind != ShortKernels));
    }
}
