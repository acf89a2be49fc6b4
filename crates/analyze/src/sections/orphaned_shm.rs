//! Shared memory left without an owner.

use crate::{Analysis, OrphanedShmObject, Report};
use memtrace_model::tables::OrphanedShmRow;
use memtrace_model::{Bytes, Label, MappingKind};
use memtrace_report::words::bytes;
use memtrace_report::{Chapter, MORE_IN_JSON, Section, Table, TableOf, one_part, visible, words};

pub(super) const SECTION: Section<Report> = Section {
    name: "orphaned-shm",
    doc: "shared memory left without an owner",
    keys: &["orphaned_shm_count", "orphaned_shm"],
    tables: Some(|analysis, top| one_part(table(analysis.leftovers.objects.iter().take(top)))),
    tell: |analysis, view| {
        let all: Vec<&OrphanedShmObject> = analysis.leftovers.objects.iter().collect();
        if all.is_empty() {
            return Vec::new();
        }
        // Who asks for this section wants all of it.
        let is_ours = |one: &&OrphanedShmObject| view.is_alone || one.owner.upid.is_some();
        let (ours, others): (Vec<_>, Vec<_>) = all.into_iter().partition(is_ours);
        // It is no part of what was recorded: the peak has a line of it.
        if ours.is_empty() {
            return Vec::new();
        }
        let mut section = Chapter::alarming(format!(
            "Shared memory left without an owner: {}, {}",
            words::objects(ours.len()),
            bytes(allocated(&ours))
        ));
        section.table(table(ours.iter().copied().take(view.top)));
        section.rest(ours.len(), view.top, words::count, MORE_IN_JSON);
        if !others.is_empty() {
            section.quiet(format!("Also {}.", left_by_others(&others)));
        }
        if ours.iter().any(|one| !one.row.is_certain) {
            section.quiet(
                "Some processes could not be inspected: one of them may still have these files.",
            );
        }
        vec![section]
    },
    ..Section::EMPTY
};

/// What others alone left, in one line; `None` where there is none, or it stands below what processes of
/// this recording left.
pub(super) fn elsewhere(analysis: &Analysis) -> Option<String> {
    let objects = &analysis.leftovers.objects;
    let is_ours = objects.iter().any(|one| one.owner.upid.is_some());
    let others: Vec<&OrphanedShmObject> = objects.iter().collect();
    let is_reported = !is_ours && !others.is_empty();
    is_reported.then(|| format!("Shared memory of others: {}.", left_by_others(&others)))
}

/// What no recorded process was seen to make, map or have open: most likely other jobs left it.
fn left_by_others(objects: &[&OrphanedShmObject]) -> String {
    format!(
        "{} ({}) without an owner that no recorded process was seen to make, map or have open: \
         `--section orphaned-shm` lists them",
        words::objects(objects.len()),
        bytes(allocated(objects))
    )
}

fn allocated(objects: &[&OrphanedShmObject]) -> Bytes {
    let allocated = objects.iter().filter_map(|one| one.row.allocated_bytes);
    allocated.sum()
}

fn table<'a>(objects: impl Iterator<Item = &'a OrphanedShmObject>) -> Table {
    TableOf::of(objects)
        .flexible("object", |one| object(&one.row))
        .data("device", |one| one.row.device.clone())
        .data("inode", |one| one.row.inode.to_string())
        .figures("allocated_bytes", 0, |one| one.row.allocated_bytes)
        .figures("size_bytes", 1, |one| one.row.size_bytes)
        .words(("whose", "FAMILY"), 2, |one| {
            one.row.family.map_or("", Label::as_str)
        })
        .words(("made_by", "USED BY"), 1, |one| maker(one))
        .done()
}

fn object(row: &OrphanedShmRow) -> String {
    match row.kind {
        Some(MappingKind::Sysv) => format!("SysV segment {} (ipcrm -m {0})", row.inode),
        _ => visible(&row.name).into_owned(),
    }
}

fn maker(one: &OrphanedShmObject) -> Option<String> {
    let recorded = one.owner.upid.map(|_| one.owner.in_words());
    recorded.or_else(|| Some(format!("{}, not recorded", one.row.creator_tgid?)))
}
