//! Address space: who reserves how much and touches how little of it, who churns, what the
//! largest mappings are.

use crate::{Analysis, Mapping, ProcessMappings, Report};
use memtrace_model::Bytes;
use memtrace_model::tables::{DiagKind, DiagRow};
use memtrace_report::{Cell, Chapter, Section, Table, TableOf, one_part, words};

/// The largest mappings that are listed.
const LARGEST_MAX: usize = 5;

/// Below this much of anything an address space is of no interest.
const MATTERS: Bytes = Bytes(1 << 30);

/// What processes did to their address spaces, or that it was not seen; nothing where it is of no
/// interest, and where a polling backend saw nothing, which is said with its limits.
pub(super) const SECTION: Section<Report> = Section {
    name: "address-space",
    doc: "what processes reserve, map and give back",
    keys: &["address_space"],
    tables: Some(|analysis, top| {
        let processes = analysis.mappings.iter().flat_map(|found| &found.processes);
        one_part(table(processes.take(top)))
    }),
    is_worth_telling: |analysis| analysis.mappings.is_some(),
    tell: |analysis, view| {
        let Some(found) = analysis.mappings.as_ref() else {
            return unseen(analysis).into_iter().collect();
        };
        let processes: Vec<&ProcessMappings> = found
            .processes
            .iter()
            .filter(|sums| matters(sums))
            .collect();
        let Some(first) = processes.first() else {
            return Vec::new();
        };
        let mut section = Chapter::new(format!("Address space: {}", headline(first)));
        section.table(table(processes.iter().copied().take(view.top)));
        section.rest(processes.len(), view.top, words::processes, " more.");
        if !found.largest.is_empty() {
            section.say("The largest mappings:");
        }
        TableOf::of(found.largest.iter().take(LARGEST_MAX))
            .figures("size_bytes", 0, |mapping| mapping.length_bytes)
            .figures("at_s", 0, |mapping| mapping.at)
            .figures("pid", 0, |mapping| Cell::known(mapping.who.pid))
            .flexible("what", |mapping| what(mapping))
            .add_to(&mut section);
        section.explain(
            "Address space is not memory: it becomes resident when it is touched. MAPPED and \
             UNMAPPED add up mmap, mremap and munmap; PER SECOND is both, for each second. GIVEN \
             BACK is what madvise named. HEAP is growth by brk; allocators also map anonymous \
             memory (ANON).",
        );
        vec![section]
    },
    ..Section::EMPTY
};

fn table<'a>(processes: impl Iterator<Item = &'a ProcessMappings>) -> Table {
    TableOf::of(processes)
        .who(|sums| sums.who.cells())
        .known("upid", |sums| sums.who.upid)
        .figures("reserved_bytes", 0, |sums| sums.reserved_bytes)
        .figures("peak_rss_bytes", 0, |sums| sums.peak_rss_bytes)
        .held("mapped_bytes", 2, |sums| sums.mapped_bytes)
        .held("anon_bytes", 5, |sums| sums.anon_mapped_bytes)
        .held("unmapped_bytes", 4, |sums| sums.unmapped_bytes)
        .held("per_second_bytes", 3, |sums| {
            sums.churn_bytes_per_second.map(|rate| Bytes(rate as i64))
        })
        .held("given_back_bytes", 2, |sums| sums.returned_bytes)
        .held("heap_bytes", 1, |sums| sums.heap_growth_bytes)
        .done()
}

fn unseen(analysis: &Analysis) -> Option<Chapter> {
    let is_said = analysis
        .losses
        .iter()
        .any(|loss| loss.subject == DiagRow::PROBES && loss.kind == Some(DiagKind::Unavailable));
    is_said.then(|| {
        Chapter::new("Address space: mmap, brk and madvise were not seen (see memtrace doctor)")
    })
}

/// Whether a process reserves much that it does not touch, or moves much about.
fn matters(sums: &ProcessMappings) -> bool {
    let unused = sums
        .reserved_bytes
        .map(|reserved| reserved - sums.peak_rss_bytes.unwrap_or(Bytes(0)));
    let moved = sums.mapped_bytes + sums.unmapped_bytes;
    unused.is_some_and(|unused| unused >= MATTERS)
        || moved >= MATTERS
        || sums.returned_bytes >= MATTERS
        || sums.heap_growth_bytes >= MATTERS
}

fn headline(first: &ProcessMappings) -> String {
    let who = first.who.in_words();
    match (first.reserved_bytes, first.peak_rss_bytes) {
        (Some(reserved), Some(resident)) => format!(
            "{who} reserves {}, held {} at most",
            words::bytes(reserved),
            words::bytes(resident)
        ),
        (Some(reserved), None) => format!("{who} reserves {}", words::bytes(reserved)),
        (None, _) => format!("{who} mapped {}", words::bytes(first.mapped_bytes)),
    }
}

fn what(mapping: &Mapping) -> &str {
    match (&mapping.file, mapping.is_anonymous) {
        (Some(file), _) => file,
        (None, true) if mapping.is_reserved => "reserved, neither readable nor writable",
        (None, true) => "anonymous",
        (None, false) => "a file of unknown name",
    }
}
