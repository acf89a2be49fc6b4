//! Shared memory left without an owner.

use crate::analyze::section::{MORE_IN_JSON, Section, Tables, View, one_part};
use crate::analyze::{Analysis, OrphanedShmObject};
use crate::model::tables::OrphanedShmRow;
use crate::model::{Label, MappingKind};
use crate::report::words::bytes;
use crate::report::{Chapter, Table, TableOf, visible, words};
use schemars::JsonSchema;
use serde::Serialize;

#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(super) struct OrphanedShm {}

impl Section for OrphanedShm {
    const NAME: &'static str = "orphaned-shm";
    const DOC: &'static str = "shared memory left without an owner";
    const KEYS: &'static [&'static str] = &["orphaned_shm_count", "orphaned_shm"];
    const TABLES: Option<Tables<Self>> = Some(|_, analysis, top| one_part(table(analysis, top)));

    fn tell(&self, analysis: &Analysis, view: &View<'_>) -> Vec<Chapter> {
        let all = &analysis.leftovers.objects;
        if all.is_empty() {
            return Vec::new();
        }
        let mut section = Chapter::alarming(format!(
            "Shared memory left without an owner: {}, {}",
            words::objects(all.len()),
            bytes(analysis.leftovers.objects_bytes())
        ));
        section.table(table(analysis, view.top));
        section.rest(all.len(), view.top, words::count, MORE_IN_JSON);
        if all.iter().any(|one| !one.row.is_certain) {
            section.quiet(
                "Not every process could be looked into: one of them may still have these files.",
            );
        }
        vec![section]
    }
}

fn table(analysis: &Analysis, top: usize) -> Table {
    TableOf::of(analysis.leftovers.objects.iter().take(top))
        .flexible("object", |one| object(&one.row))
        .data("device", |one| one.row.device.clone())
        .data("inode", |one| one.row.inode.to_string())
        .figures("allocated_bytes", 0, |one| one.row.allocated_bytes)
        .figures("size_bytes", 1, |one| one.row.size_bytes)
        .words("whose", 2, |one| one.row.family.map_or("", Label::as_str))
        .words("made_by", 1, |one| maker(one))
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
