//! What calls of the CUDA driver say: what memory of devices is made of, and what was refused.

use super::{DEVICES_MIN, say_some, short, shorts};
use crate::who::Bundle;
use crate::{
    Analysis, Cuda, CudaLine, CudaLines, CudaParts, CudaRefusal, CudaUnplaced, Ending, GpuLedger,
};
use memtrace_model::{Bytes, DurationNs, Order};
use memtrace_report::words::{self, bytes, counted};
use memtrace_report::{Chapter, Tone, visible};
use std::cmp::Reverse;
use std::sync::Arc;

/// Lines of processes that do the same thing are one where no part differs by more than so much of what
/// they hold.
const ALIKE: f64 = 0.02;
/// What the parts are.
pub(super) const EXPLAINED: &str = "What a process holds is what NVML reports, divided by its calls of \
    the CUDA driver: direct is cuMemAlloc (torch's allocator by default), vmm cuMemCreate (expandable \
    segments, sleeping engines, NCCL), pool cuMemAllocAsync, padding what the driver rounds up to \
    pieces of 2 MiB, context what NVML reported when the context had just been made, driver's own the \
    rest: GPU code, graphs, local memory, and what pools keep.";
/// Parts of less are left out.
const LEAST: Bytes = Bytes(1 << 20);
/// An older reading of what was free is reported with its age.
const OLD: DurationNs = DurationNs(1_000_000_000);

/// Lines of code of one process that are named.
const LINES: usize = 4;

/// What was refused so long before the end of its process can be why it ended.
const BEFORE_END: DurationNs = DurationNs(10_000_000_000);

/// What processes hold, or several of them that do the same thing.
struct Held<'a> {
    /// As indices into [`Analysis::processes`].
    processes: Vec<usize>,
    devices: Vec<&'a Arc<str>>,
    /// What the first of them holds.
    first: (Bytes, CudaParts),
    bytes: Bytes,
    parts: CudaParts,
    count: usize,
}

/// What is held of each device, by process, the largest first.
pub(super) fn made_of(
    section: &mut Chapter,
    analysis: &Analysis,
    ledgers: &[&GpuLedger],
    top: usize,
) {
    let mut all = held(analysis, ledgers);
    all.order_by_key(|held| Reverse(held.bytes));
    let lines = all.iter().take(top);
    section.tell(Tone::Plain, lines.map(|held| line(analysis, held)));
    section.rest(
        all.len(),
        top,
        words::processes,
        " more: see --format json.",
    );
    section.tell(Tone::Quiet, unexplained(analysis, ledgers));
}

/// What was refused, and what is of no device that is known.
pub(super) fn tell(section: &mut Chapter, analysis: &Analysis, cuda: &Cuda) {
    let lines = cuda.lines.iter().map(by_line);
    say_some(section, Tone::Plain, lines.collect());
    let refusals = cuda.refusals.iter();
    let refusals = refusals.map(|refusal| refused(analysis, refusal));
    say_some(section, Tone::Alert, refusals.collect());
    let unplaced = cuda.unplaced.iter();
    say_some(
        section,
        Tone::Plain,
        unplaced
            .filter_map(|one| of_no_device(analysis, one))
            .collect(),
    );
}

/// Which lines took what a process had taken at its highest: `load_model.py:31 load 12.0 GiB in 24
/// calls`.
fn by_line(of: &CudaLines) -> String {
    let named = |line: &CudaLine| {
        let calls = counted(line.call_count, "call", "calls");
        format!("{} {} in {calls}", line.line.place(), bytes(line.bytes))
    };
    let named: Vec<String> = of.lines.iter().take(LINES).map(named).collect();
    let shown: Bytes = of.lines.iter().take(LINES).map(|line| line.bytes).sum();
    let rest = match of.bytes - shown {
        Bytes(0) => String::new(),
        rest => format!(", other lines {}", bytes(rest)),
    };
    format!(
        "By line of code, {} had taken at least {} at {}: {}{rest}.",
        of.who.in_words(),
        bytes(of.bytes),
        words::after(of.at.offset_ns),
        named.join(", "),
    )
}

/// Who failed soon after the driver had refused it memory; the first of them.
pub(in crate::sections) fn refused_before_an_end(analysis: &Analysis) -> Option<String> {
    let cuda = analysis.gpus.as_ref()?.cuda.as_ref()?;
    let mut ended = cuda.refusals.iter().filter_map(|refusal| {
        let mut processes = analysis.processes.iter();
        let process = processes.find(|process| Some(process.upid) == refusal.who.upid)?;
        let before = process.exit_boot_ns()? - refusal.at.boot_ns;
        let has_failed = !matches!(process.ending, Ending::Exited(0));
        (has_failed && before <= BEFORE_END).then_some((refusal, before))
    });
    let (refusal, before) = ended.next()?;
    Some(format!(
        "{} ended {} after the driver had refused it {}{}.",
        refusal.who.in_words(),
        words::duration(before),
        asked_for(refusal),
        on_device(analysis, refusal),
    ))
}

fn held<'a>(analysis: &Analysis, ledgers: &[&'a GpuLedger]) -> Vec<Held<'a>> {
    let mut all: Vec<Held<'a>> = Vec::new();
    for ledger in ledgers {
        for line in &ledger.lines {
            let Some((process, parts)) = line.holder.process.zip(line.cuda) else {
                continue;
            };
            // Where the driver does not report, it is no less than that.
            let bytes = line.bytes.unwrap_or_else(|| parts.by_calls());
            let shape = |process: usize| &analysis.processes[process].shape;
            let same = all.iter_mut().find(|held| {
                let is_same =
                    held.processes.first().map(|first| shape(*first)) == Some(shape(process));
                is_same && are_alike(held.first, (bytes, parts))
            });
            match same {
                Some(held) => {
                    held.processes.push(process);
                    held.devices.push(&ledger.device);
                    held.bytes = held.bytes + bytes;
                    held.parts = held.parts.and(&parts);
                    held.count += 1;
                }
                None => all.push(Held {
                    processes: vec![process],
                    devices: vec![&ledger.device],
                    first: (bytes, parts),
                    bytes,
                    parts,
                    count: 1,
                }),
            }
        }
    }
    all
}

fn are_alike((bytes, a): (Bytes, CudaParts), (_, b): (Bytes, CudaParts)) -> bool {
    let amounts = |parts: CudaParts| {
        let kinds = parts.on_device().into_iter().chain(parts.beside());
        let kinds = kinds.map(|(_, bytes)| Some(bytes));
        kinds.chain([parts.remaining_bytes, parts.context_bytes])
    };
    let most = (bytes.0 as f64 * ALIKE) as i64;
    let is_near = |(a, b): (Option<Bytes>, Option<Bytes>)| match (a, b) {
        (Some(a), Some(b)) => (a.0 - b.0).abs() <= most,
        (a, b) => a == b,
    };
    a.is_whole == b.is_whole && amounts(a).zip(amounts(b)).all(is_near)
}

fn line(analysis: &Analysis, held: &Held<'_>) -> String {
    let mut processes = held.processes.clone();
    processes.sort_unstable();
    processes.dedup();
    let verb = if processes.len() == 1 {
        "holds"
    } else {
        "hold"
    };
    let who = Bundle::of(&analysis.processes, processes).in_words();
    let mut devices = held.devices.clone();
    devices.dedup();
    let devices = shorts(analysis, devices);
    let is_reported = held.parts.remaining_bytes.is_some();
    let amount = match held.count {
        1 if is_reported => format!("{} on GPU {devices}", bytes(held.bytes)),
        1 => format!("at least {} on GPU {devices}", bytes(held.bytes)),
        _ if !is_reported => {
            format!("at least {} together on GPU {devices}", bytes(held.bytes))
        }
        _ => format!(
            "about {} each on GPU {devices}, {} together",
            bytes(held.first.0),
            bytes(held.bytes)
        ),
    };
    format!("{who} {verb} {amount}: {}.", parts(&held.parts))
}

/// The parts of an amount, the largest first, and what is beside it: `vmm 15.0 GiB, context 518 MiB`.
pub(super) fn parts(of: &CudaParts) -> String {
    let named = of.on_device().into_iter();
    let mut named: Vec<(&str, Bytes, String)> = named
        .map(|(name, bytes)| (name, bytes, String::new()))
        .collect();
    match (of.context_bytes, of.driver_bytes, of.remaining_bytes) {
        (Some(context), Some(driver), _) => {
            named.push(("context", context, String::new()));
            named.push(("driver's own", driver, loaded(of)));
        }
        (.., Some(rest)) if rest.0 > 0 => named.push(match of.is_whole {
            true => ("context and driver's own", rest, loaded(of)),
            false => (
                "the rest",
                rest,
                " (context, driver's own, and what was allocated in calls that were not seen)"
                    .to_owned(),
            ),
        }),
        _ => {}
    }
    named.retain(|(_, amount, _)| *amount >= LEAST);
    named.order_by_key(|(_, amount, _)| Reverse(*amount));
    let named = named.into_iter();
    let named = named.map(|(name, amount, with)| format!("{name} {}{with}", bytes(amount)));
    let mut reported = named.collect::<Vec<_>>().join(", ");
    if let Some(rest) = of.remaining_bytes.filter(|rest| rest.0 < 0) {
        let more = bytes(Bytes(-rest.0));
        reported.push_str(&format!(
            "; calls add up to {more} more than the driver reports"
        ));
    }
    let beside = of.beside().into_iter();
    let beside = beside.filter(|(_, amount)| *amount >= LEAST);
    let beside = beside.map(|(name, amount)| format!("{} {name}", bytes(amount)));
    let beside = beside.collect::<Vec<_>>().join(", ");
    if !beside.is_empty() {
        let before = if reported.is_empty() {
            ""
        } else {
            "; beside it "
        };
        reported.push_str(&format!("{before}{beside}"));
    }
    reported
}

/// What can explain memory of the driver's own.
fn loaded(parts: &CudaParts) -> String {
    let of = |number: i64, one: &str, many: &str| {
        let number = usize::try_from(number).unwrap_or(0);
        (number > 0).then(|| counted(number, one, many))
    };
    let known = [
        of(parts.library_count, "library", "libraries"),
        of(parts.graph_count, "graph", "graphs"),
    ];
    let known: Vec<String> = known.into_iter().flatten().collect();
    match known.is_empty() {
        true => String::new(),
        false => format!(" ({})", known.join(", ")),
    }
}

/// What is left of each device.
fn unexplained(analysis: &Analysis, ledgers: &[&GpuLedger]) -> Option<String> {
    let known = ledgers.iter().filter_map(|ledger| {
        let (rest, used) = ledger.unexplained_bytes.zip(ledger.used_bytes)?;
        if rest.0 <= 0 {
            return None;
        }
        let gpu = short(analysis, &ledger.device);
        Some(format!("{} of {} on GPU {gpu}", bytes(rest), bytes(used)))
    });
    let known: Vec<String> = known.take(DEVICES_MIN).collect();
    (!known.is_empty()).then(|| {
        format!(
            "Explained by no call: {} (UNATTRIBUTED, the driver's own, contexts that are not known \
             alone).",
            known.join(", ")
        )
    })
}

fn refused(analysis: &Analysis, refusal: &CudaRefusal) -> String {
    let at = words::after(refusal.at.offset_ns);
    let who = refusal.who.in_words();
    let (size, on) = (asked_for(refusal), on_device(analysis, refusal));
    let free = refusal.free_bytes.zip(refusal.age_ns);
    let free = free.map_or(String::new(), |(free, age)| match age > OLD {
        true => format!(
            ", where {} were free {} earlier",
            bytes(free),
            words::duration(age)
        ),
        false => format!(", where {} were free", bytes(free)),
    });
    let more = match refusal.refused_count {
        1 => String::new(),
        count => format!(" It was the last of {} such calls.", words::count(count)),
    };
    format!(
        "At {at} the driver refused {who} {size} ({}): out of memory{on}{free}.{more}",
        visible(&refusal.call)
    )
}

fn asked_for(refusal: &CudaRefusal) -> String {
    match refusal.size_bytes {
        Some(size) => bytes(size),
        None => "memory".to_owned(),
    }
}

fn on_device(analysis: &Analysis, refusal: &CudaRefusal) -> String {
    match (&refusal.device, refusal.cuda_device) {
        (Some(device), _) => format!(" on GPU {}", short(analysis, device)),
        (None, Some(number)) => format!(" on device {number} of the process"),
        (None, None) => String::new(),
    }
}

fn of_no_device(analysis: &Analysis, unplaced: &CudaUnplaced) -> Option<String> {
    let held = parts(&unplaced.parts);
    let number = unplaced.cuda_device;
    let number = number.map_or(String::new(), |number| format!(" (its device {number})"));
    let which = match &unplaced.device {
        Some(device) => format!(
            "GPU {}, where the driver does not list it",
            short(analysis, device)
        ),
        None => format!("a GPU that is not known{number}"),
    };
    (!held.is_empty()).then(|| {
        format!(
            "{} held most at {} on {which}: {held}.",
            unplaced.who.in_words(),
            words::after(unplaced.at.offset_ns),
        )
    })
}
