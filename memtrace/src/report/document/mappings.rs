//! Address space: who reserves how much and touches how little of it, who churns, what the
//! largest mappings are.

use super::{Section, Tone, figures, flexible, name, pid, pid_and_name};
use crate::analyze::{Analysis, Mapping, ProcessMappings};
use crate::model::Bytes;
use crate::model::tables::{DiagKind, DiagRow};
use crate::report::words;

/// The largest mappings that are listed.
const LARGEST_MAX: usize = 5;

/// Below this much of anything an address space is of no interest.
const MATTERS: Bytes = Bytes(1 << 30);

/// What processes did to their address spaces, or that it was not seen; `None` where it is of
/// no interest, and where a polling backend saw nothing, which is said with its limits.
pub(super) fn mappings(analysis: &Analysis, top: usize) -> Option<Section> {
    let Some(found) = analysis.mappings.as_ref() else {
        return unseen(analysis);
    };
    let processes: Vec<&ProcessMappings> = found
        .processes
        .iter()
        .filter(|sums| matters(sums))
        .collect();
    let mut section = Section::new(format!(
        "Address space: {}",
        headline(analysis, processes.first()?)
    ));
    section.table(
        vec![
            figures("PID", 0),
            flexible("PROCESS"),
            figures("RESERVED", 0),
            figures("PEAK RSS", 0),
            figures("MAPPED", 2),
            figures("ANON", 5),
            figures("UNMAPPED", 4),
            figures("PER SECOND", 3),
            figures("GIVEN BACK", 2),
            figures("HEAP", 1),
        ],
        processes
            .iter()
            .take(top)
            .map(|sums| row(analysis, sums))
            .collect(),
    );
    if processes.len() > top {
        let rest = words::processes(processes.len() - top);
        section.say(Tone::Quiet, format!("{rest} more."));
    }
    if !found.largest.is_empty() {
        section.say(Tone::Plain, "The largest mappings:");
        section.table(
            vec![
                figures("SIZE", 0),
                figures("AT", 0),
                figures("PID", 0),
                flexible("WHAT"),
            ],
            found
                .largest
                .iter()
                .take(LARGEST_MAX)
                .map(|mapping| mapping_row(analysis, mapping))
                .collect(),
        );
    }
    section.say(
        Tone::Quiet,
        "Address space is no memory: it becomes resident when it is touched. MAPPED and UNMAPPED \
         add up mmap, mremap and munmap, PER SECOND both for each second; GIVEN BACK is what \
         madvise named; HEAP is growth by brk, beside which allocators map anonymous memory \
         (ANON).",
    );
    Some(section)
}

fn unseen(analysis: &Analysis) -> Option<Section> {
    let is_said = analysis
        .losses
        .iter()
        .any(|loss| loss.subject == DiagRow::PROBES && loss.kind == Some(DiagKind::Unavailable));
    is_said.then(|| {
        Section::new("Address space: mmap, brk and madvise were not seen (see memtrace doctor)")
    })
}

/// Whether a process reserves much that it does not touch, or moves much about.
fn matters(sums: &ProcessMappings) -> bool {
    let unused = sums
        .reserved_bytes
        .map(|reserved| reserved - sums.resident_bytes.unwrap_or(Bytes(0)));
    let moved = sums.mapped_bytes + sums.unmapped_bytes;
    unused.is_some_and(|unused| unused >= MATTERS)
        || moved >= MATTERS
        || sums.returned_bytes >= MATTERS
        || sums.heap_bytes >= MATTERS
}

fn headline(analysis: &Analysis, first: &ProcessMappings) -> String {
    let who = pid_and_name(analysis, first.process);
    match (first.reserved_bytes, first.resident_bytes) {
        (Some(reserved), Some(resident)) => format!(
            "{who} reserves {}, held {} at most",
            words::bytes(reserved),
            words::bytes(resident)
        ),
        (Some(reserved), None) => format!("{who} reserves {}", words::bytes(reserved)),
        (None, _) => format!("{who} mapped {}", words::bytes(first.mapped_bytes)),
    }
}

fn row(analysis: &Analysis, sums: &ProcessMappings) -> Vec<String> {
    let moved = |amount: Bytes| words::bytes_or_dash(Some(amount));
    let churn = sums.churn_bytes_per_second.map(|rate| Bytes(rate as i64));
    vec![
        pid(&analysis.processes[sums.process]),
        name(analysis, sums.process),
        words::bytes_or_unknown(sums.reserved_bytes),
        words::bytes_or_unknown(sums.resident_bytes),
        moved(sums.mapped_bytes),
        moved(sums.anon_bytes),
        moved(sums.unmapped_bytes),
        words::bytes_or_dash(churn),
        moved(sums.returned_bytes),
        moved(sums.heap_bytes),
    ]
}

fn mapping_row(analysis: &Analysis, mapping: &Mapping) -> Vec<String> {
    let what = match (&mapping.file, mapping.is_anonymous) {
        (Some(file), _) => file.clone(),
        (None, true) if mapping.is_reserved => "reserved, neither readable nor writable".to_owned(),
        (None, true) => "anonymous".to_owned(),
        (None, false) => "a file of unknown name".to_owned(),
    };
    vec![
        words::bytes(mapping.length_bytes),
        words::offset(&analysis.clock, mapping.boot_ns),
        pid(&analysis.processes[mapping.process]),
        what,
    ]
}
