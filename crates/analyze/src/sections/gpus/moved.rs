//! What moved between a device and the machine's memory: sharp falls, sleeps that were marked,
//! and who is still there at the end.

use super::{NAMES_MAX, calls, parts, shorts};
use crate::who::Bundle;
use crate::{Analysis, Audit, CudaMoved, Fall, GpuPart, Gpus, HostGain, Who};
use memtrace_model::Bytes;
use memtrace_report::words::{self, bytes, bytes_or_unknown, change};
use memtrace_report::{Chapter, Tone, visible};

/// Of what a marked sleep was to free: less than that and it is reported although the fall is.
const NEARLY_ALL: f64 = 0.9;
/// A mark that moved less than this part did nothing to speak of.
const NOTHING: f64 = 0.01;

/// Tells all of it.
pub(super) fn tell(section: &mut Chapter, analysis: &Analysis, gpus: &Gpus) {
    let falls = gpus.falls.iter();
    for fall in falls.filter(|fall| !is_reported_by_an_audit(gpus, fall)) {
        section.say(fell(analysis, fall));
    }
    for audit in &gpus.audits {
        let share = share(audit);
        if audit.cuda.is_some() || !is_reported_by_a_fall(gpus, audit, share) {
            let did_nothing = share.is_some_and(|share| share < NOTHING);
            let tone = if did_nothing {
                Tone::Alert
            } else {
                Tone::Plain
            };
            section.tell(tone, [audited(analysis, audit)]);
        }
    }
    section.tell(Tone::Alert, still_on_a_gpu(analysis, gpus));
}

/// What moved as a part of what could.
fn share(audit: &Audit) -> Option<f64> {
    let whole = if audit.is_return {
        audit.after_bytes?
    } else {
        audit.before_bytes?
    };
    Some(audit.moved_bytes?.0 as f64 / whole.0.max(1) as f64)
}

fn is_reported_by_a_fall(gpus: &Gpus, audit: &Audit, share: Option<f64>) -> bool {
    let is_same = |fall: &Fall| fall.from.boot_ns <= audit.host_to && audit.from <= fall.to;
    let is_whole = share.is_some_and(|share| share >= NEARLY_ALL);
    audit.count == 1 && !audit.is_return && is_whole && gpus.falls.iter().any(is_same)
}

/// Whether a sleep that says what was left is that fall, and nobody ended.
fn is_reported_by_an_audit(gpus: &Gpus, fall: &Fall) -> bool {
    let is_all_of_it = fall.ended.is_empty() && fall.stayed_bytes.is_none();
    let mut audits = gpus.audits.iter();
    is_all_of_it
        && audits.any(|audit| {
            let is_same = fall.from.boot_ns <= audit.host_to && audit.from <= fall.to;
            is_same && audit.cuda.is_some() && audit.count == 1 && !audit.is_return
        })
}

/// What a mark did: how much of what was held left, who still holds it, what came to the host.
fn audited(analysis: &Analysis, audit: &Audit) -> String {
    let mut line = match &audit.cuda {
        Some(moved) => moved_by_parts(analysis, audit, moved),
        None => moved_in_all(analysis, audit),
    };
    if audit.count > 1 {
        let count = words::count(audit.count);
        let most = signed(audit.most_moved_bytes);
        line.push_str(&format!(
            " It moved the least of {count} with that name; the most was {most}."
        ));
    }
    line
}

/// By what the driver reports of processes, or of devices.
fn moved_in_all(analysis: &Analysis, audit: &Audit) -> String {
    let name = visible(&audit.name);
    let at = words::after(audit.from.offset_ns);
    let devices = shorts(analysis, &audit.devices);
    let verb = if audit.is_return {
        "brought back"
    } else {
        "freed"
    };
    let of = match (audit.before_bytes, audit.after_bytes, audit.moved_bytes) {
        (Some(before), Some(_), Some(moved)) if !audit.is_return => {
            format!("{} of {}", signed(moved), bytes(before))
        }
        (Some(before), Some(after), Some(moved)) => {
            format!("{}, {} → {},", signed(moved), bytes(before), bytes(after))
        }
        // The driver does not tell of each process.
        _ => {
            let before = audit.used_before_bytes;
            let moved = audit.moved(before, audit.used_after_bytes);
            format!("{} of the {} used by all", signed(moved), bytes(before))
        }
    };
    let length = words::duration(audit.host_to - audit.host_from);
    let mut line = format!(
        "{name} at {at} {verb} {of} on GPU {devices}; on the host within {length}: {}.",
        on_host(&audit.host)
    );
    let left = parts(still_held(audit, |_| true));
    if !left.is_empty() && !audit.is_return {
        line.push_str(&format!(" Still held by {left}."));
    }
    line
}

/// The same of those that it concerns, with what is still held by its parts.
fn moved_by_parts(analysis: &Analysis, audit: &Audit, by: &CudaMoved) -> String {
    let name = visible(&audit.name);
    let at = words::after(audit.from.offset_ns);
    let devices = shorts(analysis, &audit.devices);
    let who = Bundle::of(&analysis.processes, by.processes.clone()).in_words();
    let (before, after) = (bytes(by.before_bytes), bytes(by.after_bytes));
    let moved = signed(audit.moved(by.before_bytes, by.after_bytes));
    let what = match audit.is_return {
        true => format!("took back {moved}, {before} → {after}, on GPU {devices}"),
        false => {
            let made_of = calls::parts(&by.cuda_after);
            let colon = if made_of.is_empty() { "" } else { ": " };
            format!(
                "released {moved} of {before} on GPU {devices}; {after} still held{colon}{made_of}"
            )
        }
    };
    let length = words::duration(audit.host_to - audit.host_from);
    let host = on_host(&audit.host);
    let mut line = format!("{name} at {at}: {who} {what}. On the host within {length}: {host}.");
    if by.process_count > 1 && !audit.is_return {
        let is_concerned = |process: usize| by.processes.contains(&process);
        let left = parts(still_held(audit, is_concerned));
        if !left.is_empty() {
            line.push_str(&format!(" By process: {left}."));
        }
    }
    line
}

/// Who of some recorded processes held anything after it.
fn still_held(audit: &Audit, is_wanted: impl Fn(usize) -> bool) -> impl Iterator<Item = &GpuPart> {
    let holders = audit.holders.iter();
    let holders = holders.filter(move |part| part.holder.process.is_some_and(&is_wanted));
    holders.filter(|part| part.bytes != Some(Bytes(0)))
}

/// An amount that can be below zero.
fn signed(amount: Bytes) -> String {
    match amount.0 {
        0.. => bytes(amount),
        _ => format!("−{}", bytes(Bytes(-amount.0))),
    }
}

/// What shmem, anon and file gained.
fn on_host(host: &HostGain) -> String {
    let kinds = [
        ("shmem", host.shmem_bytes),
        ("anon", host.anon_bytes),
        ("file", host.file_bytes),
    ]
    .into_iter();
    let reported = kinds.map(|(kind, amount)| match amount {
        Some(Bytes(0)) => format!("{kind} ±0"),
        amount => format!("{kind} {}", change(amount)),
    });
    reported.collect::<Vec<_>>().join(", ")
}

/// A sharp fall: what left the device, and what came to the host.
fn fell(analysis: &Analysis, fall: &Fall) -> String {
    let devices = shorts(analysis, fall.devices.iter().map(|one| &one.device));
    let left = match fall.left.as_slice() {
        [] => String::new(),
        left => format!(" ({})", parts(left.iter())),
    };
    let offset = words::after(fall.from.offset_ns);
    let amount = bytes(fall.bytes);
    let mut line = format!("At {offset} {amount} left GPU {devices}{left}");
    if !fall.ended.is_empty() {
        let ended = words::processes(fall.ended.len());
        line.push_str(&format!(", with the end of {ended}"));
    }
    if let Some(stayed) = fall.stayed_bytes {
        let held = bytes(fall.left.iter().filter_map(|part| part.bytes).sum());
        line.push_str(&format!(
            "; {} of {held} stayed, held by no process",
            bytes(stayed)
        ));
    }
    let host = on_host(&fall.host);
    let length = words::duration(fall.to.boot_ns - fall.host_from);
    line.push_str(&format!("; on the host within {length}: {host}."));
    if let [nearest, ..] = fall.marks.as_slice() {
        line.push_str(&format!(" Mark: {}.", visible(nearest)));
    }
    line
}

/// Who survived on a GPU, after the command had ended.
fn still_on_a_gpu(analysis: &Analysis, gpus: &Gpus) -> Option<String> {
    analysis.info.command_exit_code?;
    let has_ended = |place: usize| analysis.processes[place].exit_boot_ns().is_some();
    let held = gpus.processes.iter().filter_map(|process| {
        let place = process.holder.process?;
        Some((place, gpus.held_at_end(place)?))
    });
    // Survivors have a section of their own.
    let is_reported = |place: usize| {
        let mut outlived = analysis.leftovers.outlived.iter();
        let upid = analysis.processes[place].upid;
        !has_ended(place) && outlived.any(|one| one.row.upid == upid)
    };
    let held = held.filter(|(place, _)| !is_reported(*place));
    // Of one that has ended, an amount that is not known is most likely none.
    let held = held.filter(|(place, held)| held.is_some() || !has_ended(*place));
    let reported: Vec<String> = held
        .take(NAMES_MAX)
        .map(|(place, held)| {
            let ended = if has_ended(place) {
                ", though it has ended"
            } else {
                ""
            };
            let who = Who::from(&analysis.processes[place]).in_words();
            format!("{who} {}{ended}", bytes_or_unknown(held))
        })
        .collect();
    (!reported.is_empty()).then(|| {
        format!(
            "Still on a GPU when the recording ended: {}.",
            reported.join(", ")
        )
    })
}
