//! What probably keeps a device waiting, with the figures that say so.

use super::activity::{DeviceActivity, Gap};
use super::kernels::KindTotal;
use super::times::{is_tenth, percent, took};
use memtrace_model::DurationNs;
use memtrace_report::words;
use serde::Serialize;

/// Kernels that are shorter on average take about as long to launch as to run.
const SHORT_NS: i64 = 10_000;
/// Of fewer kernels an average says nothing.
const KERNELS_MIN: u64 = 100;
/// Operators that wait for what the device computes.
const WAITS: [&str; 3] = ["aten::_local_scalar_dense", "aten::item", "aten::nonzero"];

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
    /// The device is idle, and nothing says why.
    Idle,
    /// Communication runs while nothing computes, or the CPU waits for other ranks.
    Communication,
    /// Copies run while no kernel does.
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
        hints.extend(copies(device));
    }
    let is_any_idle = activity
        .iter()
        .any(|device| is_tenth(device.idle_ns, device.span_ns));
    hints.extend(short_kernels(kinds, graph_launch_count).filter(|_| is_any_idle));
    hints
}

/// What the CPU did most in the longest gap of a device that was idle.
fn idle(device: &DeviceActivity) -> Option<Hint> {
    let longest = device.gaps.first()?;
    if !is_tenth(device.idle_ns, device.span_ns) {
        return None;
    }
    let gaps = device.gaps.iter().map(|gap| gap.duration_ns.0);
    let gaps = DurationNs(gaps.fold(0, i64::saturating_add));
    let (kind, why) = match longest.cpu_ns {
        _ if !is_tenth(gaps, device.idle_ns) => {
            let length = took(longest.duration_ns);
            let why = format!(", in many short gaps; the longest took {length}");
            (HintKind::Idle, why)
        }
        None => {
            let why = "; what the CPU did then is unknown: too many events";
            (HintKind::Idle, why.to_owned())
        }
        Some(ns) => in_longest(longest, ns),
    };
    Some(Hint {
        kind,
        device: Some(device.device),
        text: format!(
            "Device {} was idle {} of its time{why}.",
            device.device,
            percent(device.idle_ns, device.span_ns),
        ),
    })
}

/// What a gap comes from, in which something took so long on the CPU.
fn in_longest(gap: &Gap, cpu_ns: DurationNs) -> (HintKind, String) {
    let cpu = match &gap.cpu_name {
        Some(name) => format!("{name} took {} on the CPU", took(cpu_ns)),
        None => "nothing was traced on the CPU".to_owned(),
    };
    let is_most = cpu_ns.0.saturating_mul(2) >= gap.duration_ns.0;
    let name = gap.cpu_name.as_deref().filter(|_| is_most);
    let (kind, advice) = cause(name.unwrap_or_default());
    let why = format!(
        ". In its longest gap ({} at +{}) {cpu}: {advice}",
        took(gap.duration_ns),
        took(gap.begins_after_ns),
    );
    (kind, why)
}

/// What a gap comes from, by the name of what took most of it on the CPU, if anything did.
fn cause(name: &str) -> (HintKind, &'static str) {
    let begins = |with: &[&str]| with.iter().any(|with| name.starts_with(with));
    let call = call_of_driver(name).unwrap_or_default();
    let calls = |parts: &[&str]| parts.iter().any(|part| call.contains(part));
    if WAITS.contains(&name) || calls(&["Synchronize"]) {
        let advice = "the CPU waited for the device and had launched nothing after it; .item(), .cpu(), \
                      .tolist() and synchronize() do that";
        return (HintKind::WaitsForDevice, advice);
    }
    if name.contains("DataLoader") {
        let advice = "the loader was late; more workers, or prefetching, may help";
        return (HintKind::WaitsForData, advice);
    }
    if calls(&[
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
    if begins(&[
        "c10d::",
        "gloo:",
        "nccl:",
        "mpi:",
        "ucc:",
        "record_param_comms",
    ]) {
        let advice = "the CPU communicated with other ranks, or waited for one that was late";
        return (HintKind::Communication, advice);
    }
    let advice = match name.starts_with("ProfilerStep#") || name.is_empty() {
        true => "Python, or what the profiler does not trace, kept the CPU from launching kernels",
        false => "the CPU was busy with that, and launched no kernel",
    };
    (HintKind::CpuBound, advice)
}

/// A call of a device's driver or runtime, without the word for it: `StreamSynchronize`.
fn call_of_driver(name: &str) -> Option<&str> {
    let words = ["cuda", "cu", "hip", "ze", "ur"];
    let calls = words.iter().filter_map(|word| name.strip_prefix(word));
    let mut calls = calls.filter(|call| call.starts_with(|first: char| first.is_ascii_uppercase()));
    calls.next()
}

/// Communication beside which nothing computes.
fn communication(device: &DeviceActivity) -> Option<Hint> {
    let beside = device.communication_beside_compute_ns;
    let alone = DurationNs(device.communication_ns.0.saturating_sub(beside.0));
    is_tenth(alone, device.span_ns).then(|| Hint {
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

/// Copies beside which no kernel runs.
fn copies(device: &DeviceActivity) -> Option<Hint> {
    let copies = device.only_copies_ns;
    is_tenth(copies, device.span_ns).then(|| Hint {
        kind: HintKind::Copies,
        device: Some(device.device),
        text: format!(
            "Device {} copied or filled memory for {} ({} of its time) while no kernel ran.",
            device.device,
            took(copies),
            percent(copies, device.span_ns),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::KernelKind;

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
            only_copies_ns: ns(0),
            gaps: vec![Gap {
                begins_after_ns: ns(2_000),
                begin_wall_ns: None,
                duration_ns: ns(idle / 2),
                cpu_name: gap.map(str::to_owned),
                cpu_ns: Some(ns(gap.map_or(0, |_| idle / 4))),
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
        // The copies ran beside the kernels.
        let kinds = [
            kind(KernelKind::Gemm, 200, 200 * 50_000),
            kind(KernelKind::Memcpy, 2, 9_000_000),
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
            (Some("cuMemMap"), HintKind::Allocates),
            (Some("gloo:all_reduce"), HintKind::Communication),
            (Some("c10d::barrier"), HintKind::Communication),
            (Some("aten::nonzero_static"), HintKind::CpuBound),
            (Some("cudaEventQuery"), HintKind::CpuBound),
            (Some("FreeKV"), HintKind::CpuBound),
            (Some("customFree"), HintKind::CpuBound),
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
    fn a_cause_is_named_only_where_it_took_most_and_is_known() {
        let hint = |device: DeviceActivity| {
            let hint = hints(&[device], &[], 0).remove(0);
            (hint.kind, hint.text)
        };
        let mut idle = device(400_000, (0, 0), Some("cudaMalloc"));
        idle.gaps[0].cpu_ns = Some(DurationNs(99_000));
        let (kind, text) = hint(idle.clone());
        assert_eq!(kind, HintKind::CpuBound);
        assert!(
            text.contains("cudaMalloc took 99.0 µs on the CPU: Python, or what the profiler"),
            "{text}"
        );
        idle.gaps[0].cpu_ns = None;
        idle.gaps[0].cpu_name = None;
        let unknown = "Device 3 was idle 40.0 % of its time; what the CPU did then is unknown: too many events.";
        assert_eq!(hint(idle), (HintKind::Idle, unknown.to_owned()));
        let mut idle = device(400_000, (0, 0), Some("cudaMalloc"));
        idle.gaps[0].duration_ns = DurationNs(39_999);
        let short =
            "Device 3 was idle 40.0 % of its time, in many short gaps; the longest took 40.0 µs.";
        assert_eq!(hint(idle), (HintKind::Idle, short.to_owned()));
    }

    #[test]
    fn communication_alone_short_kernels_and_copies_are_named_with_their_figures() {
        let kinds = [
            kind(KernelKind::Gemm, 1_000, 4_000_000),
            kind(KernelKind::Memcpy, 10, 1_000_000),
        ];
        let mut device = [device(100_000, (300_000, 50_000), Some("aten::mm"))];
        device[0].only_copies_ns = DurationNs(200_000);
        let text = |graphs| {
            let found = hints(&device, &kinds, graphs).into_iter();
            found.map(|hint| (hint.kind, hint.text)).collect::<Vec<_>>()
        };
        let found = text(0);
        let kinds: Vec<HintKind> = found.iter().map(|(kind, _)| *kind).collect();
        use HintKind::{Communication, Copies, CpuBound, ShortKernels};
        assert_eq!(kinds, [CpuBound, Communication, Copies, ShortKernels]);
        for (place, part) in [
            (
                1,
                "communicated for 250.0 µs (25.0 % of its time) while nothing computed",
            ),
            (
                2,
                "Device 3 copied or filled memory for 200.0 µs (20.0 % of its time) while no kernel ran",
            ),
            (3, "1,000 kernels took 4.0 µs each on average"),
        ] {
            assert!(found[place].1.contains(part), "{}", found[place].1);
        }
        // A graph launches many at once.
        assert!(text(1).iter().all(|(kind, _)| *kind != ShortKernels));
    }
}
