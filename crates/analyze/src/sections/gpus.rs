//! GPUs: the ledger of each device, host and device side by side per process and what it is made of, and
//! what left a device at a sharp fall.

mod calls;
mod moved;

pub(super) use calls::refused_before_an_end;

use crate::{
    Analysis, Composition, GpuDevice, GpuHolder, GpuLedger, GpuPart, GpuProcess, Gpus, Report,
};
use memtrace_model::{Bytes, DurationNs, Order};
use memtrace_report::words::{self, bytes, bytes_at_least};
use memtrace_report::{Cell, Chapter, Section, Table, TableOf, Tone, one_part, visible};
use std::collections::BTreeMap;
use std::sync::Arc;

/// So much that no process explains is worth a line of its own.
const UNEXPLAINED: Bytes = Bytes(256 << 20);
/// A first reading that comes later is reported.
const LATE: DurationNs = DurationNs(1_000_000_000);
/// Names reported in one sentence.
const NAMES_MAX: usize = 4;
/// The same beside processes, where nobody else has the device open.
const MUCH_UNEXPLAINED: Bytes = Bytes(1 << 30);
/// So many devices are reported however few lines were asked for.
const DEVICES_MIN: usize = 8;

pub(super) const SECTION: Section<Report> = Section {
    name: "gpus",
    doc: "memory of GPUs: each device at its own peak, and who held it",
    keys: &["gpu"],
    tables: Some(|analysis, top| {
        let ledgers = analysis.gpus.as_ref().map(at_peaks).unwrap_or_default();
        one_part(table(analysis, &ledgers[..ledgers.len().min(top)], true))
    }),
    tell: |analysis, view| {
        let Some(gpus) = &analysis.gpus else {
            return Vec::new();
        };
        let mut section = Chapter::new(match gpus.devices.len() {
            0 => "GPU memory by calls of the CUDA driver; no device was read".to_owned(),
            1 => "GPU memory, at the device's own peak".to_owned(),
            count => format!("GPU memory of {count} devices, each at its own peak"),
        });
        let ledgers = at_peaks(gpus);
        ledger_table(&mut section, analysis, &ledgers, view.top, true);
        process_table(&mut section, analysis, gpus, view.top);
        calls::made_of(&mut section, analysis, &ledgers, view.top);
        if let Some(cuda) = &gpus.cuda {
            calls::tell(&mut section, analysis, cuda);
        }
        remarks(&mut section, analysis, gpus, &ledgers);
        let left = gpus.devices.iter().filter_map(GpuDevice::left_at_end);
        let left = left.map(|ledger| at_the_end(analysis, ledger));
        say_some(&mut section, Tone::Alert, left.collect());
        moved::tell(&mut section, analysis, gpus);
        let estimated = gpus.contexts.filter(|_| !has_contexts(&ledgers));
        if let Some(contexts) = estimated.filter(|contexts| contexts.count > 1) {
            section.say(format!(
                "Contexts: {} (one for each process on each device). The smallest amount seen is \
                 {}, so contexts alone take at most {} in total.",
                words::count(contexts.count),
                bytes(contexts.smallest_bytes),
                bytes(contexts.at_most_bytes),
            ));
        }
        let quiet = [late(gpus), cost(analysis, gpus)];
        section.tell(Tone::Quiet, quiet.into_iter().flatten());
        if gpus.cuda.is_some() {
            section.explain(calls::EXPLAINED);
        }
        vec![section]
    },
    ..Section::EMPTY
};

/// Whether any context was measured.
fn has_contexts(ledgers: &[&GpuLedger]) -> bool {
    let mut lines = ledgers.iter().flat_map(|ledger| &ledger.lines);
    lines.any(|line| line.cuda.is_some_and(|parts| parts.context_bytes.is_some()))
}

/// Each device at its own peak.
fn at_peaks(gpus: &Gpus) -> Vec<&GpuLedger> {
    let devices = gpus.devices.iter();
    devices.filter_map(|device| device.peak.as_ref()).collect()
}

/// Each device at the instant that was asked for; `None` without a GPU.
pub(crate) fn at(analysis: &Analysis, at: &Composition, top: usize) -> Option<Chapter> {
    let gpus = analysis.gpus.as_ref()?;
    let offset = words::after(at.at.offset_ns);
    let mut section = Chapter::new(format!("GPU memory at {offset}"));
    let ledgers: Vec<&GpuLedger> = at.gpus.iter().collect();
    if ledgers.is_empty() {
        section.say("No GPU had been read by then.");
        return Some(section);
    }
    ledger_table(&mut section, analysis, &ledgers, top, false);
    line_table(&mut section, analysis, at, top);
    calls::made_of(&mut section, analysis, &ledgers, top);
    remarks(&mut section, analysis, gpus, &ledgers);
    Some(section)
}

/// A device of `gpu_device`: `0`, or `0:1` for an instance of it.
pub(super) fn short(analysis: &Analysis, device: &str) -> String {
    let mut devices = analysis.gpus.iter().flat_map(|gpus| &gpus.devices);
    let reported = devices.find(|reported| &*reported.device == device);
    let index = reported.and_then(|reported| reported.index);
    let own = index.map_or_else(|| visible(device).into_owned(), |index| index.to_string());
    match reported.and_then(|reported| reported.parent_device.as_deref()) {
        Some(parent) => format!("{}:{own}", short(analysis, parent)),
        None => own,
    }
}

fn shorts<'a>(analysis: &Analysis, devices: impl IntoIterator<Item = &'a Arc<str>>) -> String {
    let devices = devices.into_iter();
    let names: Vec<String> = devices.map(|device| short(analysis, device)).collect();
    match names.len() {
        // An own instance of every small model of a big machine.
        count if count > 8 => format!("{count} of them"),
        _ => names.join(","),
    }
}

fn device_name(device: &GpuDevice) -> String {
    let name = device.name.as_deref().unwrap_or(&device.device);
    visible(name).into_owned()
}

/// Processes + reserved + unattributed = used, a device a line.
fn ledger_table(
    section: &mut Chapter,
    analysis: &Analysis,
    ledgers: &[&GpuLedger],
    top: usize,
    has_time: bool,
) {
    let (reported, rest) = most_used(ledgers, top);
    section.table(table(analysis, &reported, has_time));
    if rest > 0 {
        let devices = if rest == 1 { "device" } else { "devices" };
        section.quiet(format!("{rest} more {devices}: see --format json."));
    }
}

fn table(analysis: &Analysis, ledgers: &[&GpuLedger], has_time: bool) -> Table {
    let devices = analysis.gpus.as_ref().map(|gpus| &gpus.devices);
    let known = ledgers.iter();
    let known = known.filter_map(|ledger| Some((ledger, devices?.get(ledger.place)?)));
    TableOf::of(known)
        .words("gpu", 0, |(of, _)| short(analysis, &of.device))
        .data("device", |(of, _)| of.device.to_string())
        .flexible("name", |(_, device)| device_name(device))
        .figures("used_bytes", 0, |(of, _)| of.used_bytes)
        .figures(("total_bytes", "OF"), 2, |(of, _)| of.total_bytes)
        .figures("processes_bytes", 0, |(of, _)| {
            Cell::bounded(Some(of.processes_bytes), of.unknown_process_count > 0)
        })
        .figures("reserved_bytes", 1, |(of, _)| of.reserved_bytes)
        .figures("unattributed_bytes", 0, |(of, _)| of.unattributed_bytes)
        .figures("at_s", 3, |(of, _)| of.at)
        .only_if(has_time)
        .done()
}

/// The devices that have a line, and how many have none. In their own order where all have
/// one.
fn most_used<'a>(ledgers: &[&'a GpuLedger], top: usize) -> (Vec<&'a GpuLedger>, usize) {
    let mut reported = ledgers.to_vec();
    let max = top.max(DEVICES_MIN);
    if reported.len() > max {
        reported.order_by_key(|ledger| std::cmp::Reverse(ledger.used_bytes));
    }
    reported.truncate(max);
    let rest = ledgers.len() - reported.len();
    (reported, rest)
}

/// Id and name of a holder, for two columns.
fn holder_cells(holder: &GpuHolder) -> [Cell; 2] {
    if holder.process.is_some() {
        return holder.who.cells();
    }
    let name = holder.who.name.as_deref().unwrap_or("[not in this /proc]");
    let pid = Cell::known(holder.who.pid);
    [pid, format!("{name} (not recorded)").into()]
}

/// A holder inside a sentence.
fn holder(holder: &GpuHolder) -> String {
    if holder.process.is_some() {
        return holder.who.in_words();
    }
    let pid = Cell::known(holder.who.pid).shown();
    match &holder.who.name {
        Some(name) => format!("{pid} {}", visible(name)),
        None => format!("{pid} (not in this /proc)"),
    }
}

/// Those who have a part of something, inside a sentence.
fn parts<'a>(parts: impl Iterator<Item = &'a GpuPart>) -> String {
    let reported = parts.take(NAMES_MAX).map(|part| {
        let bytes = words::bytes_or_unknown(part.bytes);
        format!("{} {bytes}", holder(&part.holder))
    });
    reported.collect::<Vec<_>>().join(", ")
}

/// Who held most on GPUs, beside what it held on the host.
fn process_table(section: &mut Chapter, analysis: &Analysis, gpus: &Gpus, top: usize) {
    TableOf::of(gpus.processes.iter().take(top))
        .who(|process| holder_cells(&process.holder))
        .words("on_gpu", 1, |process| shorts(analysis, &process.devices))
        .figures("gpu_peak_bytes", 0, |process| {
            Cell::bounded(process.peak_bytes, process.peak_is_lower_bound)
        })
        .figures("at_s", 2, |process| process.peak_at)
        .figures("host_peak_bytes", 0, |process| {
            match process.holder.process {
                Some(place) => analysis.processes[place].peak.cell(),
                None => Cell::Bytes(None),
            }
        })
        .add_to(section);
    let rest = gpus.processes.get(top..).unwrap_or_default();
    section.tell(Tone::Quiet, more_processes(rest));
}

/// Of those that have no line: they come after the others, and last those of which the driver
/// tells nothing.
fn more_processes(rest: &[GpuProcess]) -> Option<String> {
    let is_unsure =
        |process: &GpuProcess| process.peak_bytes.is_none() || process.peak_is_lower_bound;
    let or_unknown = match rest.iter().any(is_unsure) {
        true => ", or an amount that the driver does not report",
        false => "",
    };
    let count = words::processes(rest.len());
    (!rest.is_empty()).then(|| format!("{count} more held less{or_unknown}."))
}

/// Every line of the ledger at an instant, beside what the process held on the host.
fn line_table(section: &mut Chapter, analysis: &Analysis, at: &Composition, top: usize) {
    let whole = at.gpus.iter().filter(|ledger| !ledger.is_divided);
    let lines = whole.flat_map(|ledger| ledger.lines.iter().map(move |line| (ledger, line)));
    let mut lines: Vec<_> = lines.collect();
    lines.order_by_key(|(ledger, line)| (std::cmp::Reverse(line.bytes), ledger.place));
    let rss = |place| {
        let held = at.holders.iter().find(|held| held.process == place);
        held.map_or(Some(Bytes(0)), |held| held.amounts.rss())
    };
    TableOf::of(lines.iter().take(top))
        .words("gpu", 0, |(ledger, _)| short(analysis, &ledger.device))
        .who(|(_, line)| {
            let [pid, name] = holder_cells(&line.holder);
            match line.is_counted_elsewhere {
                true => [pid, format!("{} (shared)", name.shown()).into()],
                false => [pid, name],
            }
        })
        .figures("on_gpu_bytes", 0, |(_, line)| line.bytes)
        .figures("host_rss_bytes", 0, |(_, line)| {
            line.holder.process.and_then(rss)
        })
        .add_to(section);
}

/// What to know before adding these figures to others.
fn remarks(section: &mut Chapter, analysis: &Analysis, gpus: &Gpus, ledgers: &[&GpuLedger]) {
    let whole = ledgers.iter().filter(|ledger| !ledger.is_divided);
    let mut whole: Vec<&GpuLedger> = whole.copied().collect();
    if whole.len() > DEVICES_MIN {
        whole.order_by_key(|ledger| std::cmp::Reverse(ledger.unattributed_bytes));
    }
    let ghosts = whole.iter().filter_map(|ledger| ghost(analysis, ledger));
    say_some(section, Tone::Alert, ghosts.collect());
    let unknown: usize = ledgers
        .iter()
        .filter(|ledger| !ledger.is_divided)
        .map(|ledger| ledger.unknown_process_count)
        .sum();
    if unknown > 0 {
        section.alert(format!(
            "The driver does not report what {} on a GPU {}: it is part of UNATTRIBUTED.",
            words::processes(unknown),
            if unknown == 1 { "holds" } else { "hold" },
        ));
    }
    let mut failed: BTreeMap<&str, Vec<&Arc<str>>> = BTreeMap::new();
    for device in &gpus.devices {
        if let Some(error) = device.error.as_deref() {
            failed.entry(error).or_default().push(&device.device);
        }
    }
    let failed = failed.into_iter().map(|(error, devices)| {
        format!(
            "GPU {} did not answer when last asked: {}.",
            shorts(analysis, devices),
            visible(error)
        )
    });
    say_some(section, Tone::Alert, failed.collect());
    let unified = gpus.devices.iter().filter(|device| device.is_unified);
    let unified = unified.map(|device| {
        let node = device.numa_node;
        let node = node.map_or(String::new(), |node| format!(" (NUMA node {node})"));
        format!(
            "GPU {} uses the machine's own memory{node}: it is in the node's ledger too, and \
             counts once.",
            short(analysis, &device.device)
        )
    });
    say_some(section, Tone::Plain, unified.collect());
}

/// Lines of one kind, a device each; of many devices only some.
fn say_some(section: &mut Chapter, tone: Tone, lines: Vec<String>) {
    let rest = lines.len().saturating_sub(DEVICES_MIN);
    section.tell(tone, lines.into_iter().take(DEVICES_MIN));
    let reported = format!("The same for {rest} more: see --format json.");
    section.tell(tone, (rest > 0).then_some(reported));
}

/// Memory that is used, and no process is reported to hold it.
fn ghost(analysis: &Analysis, ledger: &GpuLedger) -> Option<String> {
    let rest = ledger
        .unattributed_bytes
        .filter(|rest| *rest >= UNEXPLAINED)?;
    let has_reserved = ledger.reserved_bytes.is_some();
    let is_empty = ledger.lines.is_empty();
    // Beside processes the driver has buffers of its own; what processes of unknown size hold
    // is reported elsewhere.
    let is_much = is_empty || (rest >= MUCH_UNEXPLAINED && ledger.unknown_process_count == 0);
    if ledger.candidates.is_empty() && !(is_much && has_reserved) {
        return None;
    }
    Some(unexplained(analysis, ledger, ("is used", rest)))
}

/// The same of what was left at the end.
fn at_the_end(analysis: &Analysis, ledger: &GpuLedger) -> String {
    let rest = ledger.unattributed_bytes.unwrap_or(Bytes(0));
    let used = "was still used when the recording ended";
    unexplained(analysis, ledger, (used, rest))
}

fn unexplained(analysis: &Analysis, ledger: &GpuLedger, (used, rest): (&str, Bytes)) -> String {
    let is_empty = ledger.lines.is_empty();
    let (gpu, rest) = (short(analysis, &ledger.device), bytes(rest));
    let what = match is_empty {
        true => {
            format!("GPU {gpu}: {rest} {used}, and the driver reports no process that holds it")
        }
        false => format!("GPU {gpu}: {rest} {used} beyond what the driver reports for processes"),
    };
    let who = match ledger.candidates.as_slice() {
        [] => format!(
            "no{} visible process has the device open: it may be a process of another pid \
             namespace, a context that was not torn down, or the driver itself",
            if is_empty { "" } else { " other" }
        ),
        open => format!("the device is open in {}", names(open)),
    };
    format!("{what}; {who}.")
}

fn names(holders: &[GpuHolder]) -> String {
    let reported = holders.iter().take(NAMES_MAX).map(holder);
    let mut reported: Vec<String> = reported.collect();
    let rest = holders.len().saturating_sub(NAMES_MAX);
    if rest > 0 {
        reported.push(format!("{rest} more"));
    }
    reported.join(", ")
}

/// What the recorded processes held on GPUs at their highest, in a line beside the tree's
/// peak.
pub(super) fn highest(analysis: &Analysis) -> Option<String> {
    let gpus = analysis.gpus.as_ref().filter(|gpus| gpus.has_recorded())?;
    let recorded = gpus.recorded;
    let (amount, at) = recorded.bytes.zip(recorded.at)?;
    let amount = match recorded.is_lower_bound {
        true => bytes_at_least(Some(amount)),
        false => bytes(amount),
    };
    let at = words::after(at.offset_ns);
    Some(format!(
        "Recorded processes held {amount} on GPUs at their peak, at {at}."
    ))
}

/// From when on anything is known, where that is not from the start.
fn late(gpus: &Gpus) -> Option<String> {
    let from = gpus.known_from?.offset_ns;
    (from >= LATE).then(|| {
        let from = words::after(from);
        format!("GPU memory is known only from {from} on.")
    })
}

/// What the calls of the driver's library took.
fn cost(analysis: &Analysis, gpus: &Gpus) -> Option<String> {
    let (time, count) = (gpus.call_time_ns?, gpus.call_count?);
    let whole = analysis.clock.duration().0.max(1);
    let share = time.0 as f64 * 100.0 / whole as f64;
    let longest = |of: fn(&GpuDevice) -> Option<DurationNs>| {
        let longest = gpus.devices.iter().filter_map(of).max()?;
        Some(match longest.0 as f64 / 1e3 {
            micros if micros < 999.5 => format!("{micros:.0} µs"),
            micros => format!("{:.1} ms", micros / 1e3),
        })
    };
    let unknown = || words::UNKNOWN.to_owned();
    Some(format!(
        "{} calls of the driver's library, which take its lock, took {share:.2}% of the time; the \
         longest took {} for memory and {} for processes.",
        words::count(count),
        longest(|device| device.longest_memory_call_ns).unwrap_or_else(unknown),
        longest(|device| device.longest_process_call_ns).unwrap_or_else(unknown),
    ))
}

#[cfg(test)]
mod tests;
