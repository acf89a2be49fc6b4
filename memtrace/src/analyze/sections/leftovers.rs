//! What outlived the tree, and shared memory that nobody owns any more.

use super::{MORE_IN_JSON, in_words};
use crate::analyze::{Analysis, LeftObject, Survivor, together};
use crate::model::tables::{Fate, LeftObjectRow, SurvivorRow};
use crate::model::{Bytes, Label, MappingKind};
use crate::report::words::{bytes, bytes_at_least, bytes_or_unknown};
use crate::report::{Cell, TableOf, Told, visible, words};

/// Processes that outlived the root of their tree; `None` when there were none.
pub(super) fn survivors(analysis: &Analysis, top: usize) -> Option<Told> {
    let all = &analysis.leftovers.outlived;
    if all.is_empty() {
        return None;
    }
    let held = together(all.iter().map(|one| one.row.held_bytes()));
    let has_gpu = analysis.gpus.is_some();
    let on_gpus = match has_gpu {
        true => on_gpus(all),
        false => String::new(),
    };
    let mut section = Told::alarming(format!(
        "Survivors: {} outlived the root of the tree, {} in all (sum of RSS and swap){on_gpus}",
        words::processes(all.len()),
        bytes_or_unknown(held)
    ));
    TableOf::of(all.iter().take(top))
        .flexible("process", |one| match one.who.name {
            Some(_) => in_words(&one.who),
            None => one.row.tgid.to_string(),
        })
        .held("anon_bytes", 0, |one| one.row.rss_anon_bytes)
        .held("shmem_bytes", 1, |one| one.row.rss_shmem_bytes)
        .held("file_bytes", 2, |one| one.row.rss_file_bytes)
        .held("swap_bytes", 3, |one| one.row.swap_bytes)
        .held("gpu_bytes", 0, |one| one.row.gpu_bytes)
        .only_if(has_gpu)
        .words("child_of", 2, |one| parent(&one.row))
        .words("now", 0, |one| Cell::known(one.row.fate.map(Label::shown)))
        .add_to(&mut section);
    section.rest(all.len(), top, words::count, MORE_IN_JSON);
    if all.iter().any(|one| one.row.fate == Some(Fate::Left)) {
        section.quiet(
            "`memtrace record --kill-survivors` ends such processes when the recording ends.",
        );
    }
    Some(section)
}

/// What they hold on GPUs, for the title.
fn on_gpus(all: &[Survivor]) -> String {
    let known: Bytes = all.iter().filter_map(|one| one.row.gpu_bytes).sum();
    match all.iter().any(|one| one.row.gpu_bytes.is_none()) {
        true => format!(", {} on GPUs", bytes_at_least(Some(known))),
        false if known.0 == 0 => String::new(),
        false => format!(", {} on GPUs", bytes(known)),
    }
}

fn parent(row: &SurvivorRow) -> Option<String> {
    let tgid = row.parent_tgid?;
    Some(match &row.parent_comm {
        Some(comm) => format!("{tgid} {}", visible(comm)),
        None => tgid.to_string(),
    })
}

/// Shared memory without an owner; `None` when there is none.
pub(super) fn objects(analysis: &Analysis, top: usize) -> Option<Told> {
    let all = &analysis.leftovers.objects;
    if all.is_empty() {
        return None;
    }
    let mut section = Told::alarming(format!(
        "Shared memory left without an owner: {}, {}",
        words::objects(all.len()),
        bytes(analysis.leftovers.objects_bytes())
    ));
    TableOf::of(all.iter().take(top))
        .flexible("object", |one| object(&one.row))
        .figures("allocated_bytes", 0, |one| one.row.allocated_bytes)
        .figures("size_bytes", 1, |one| one.row.size_bytes)
        .words("whose", 2, |one| one.row.family.map_or("", Label::as_str))
        .words("made_by", 1, |one| maker(one))
        .add_to(&mut section);
    section.rest(all.len(), top, words::count, MORE_IN_JSON);
    if all.iter().any(|one| !one.row.is_certain) {
        section.quiet(
            "Not every process could be looked into: one of them may still have these files.",
        );
    }
    Some(section)
}

fn object(row: &LeftObjectRow) -> String {
    match row.kind {
        Some(MappingKind::Sysv) => format!("SysV segment {} (ipcrm -m {0})", row.inode),
        _ => visible(&row.name).into_owned(),
    }
}

fn maker(one: &LeftObject) -> Option<String> {
    let recorded = one.owner.upid.map(|_| in_words(&one.owner));
    recorded.or_else(|| Some(format!("{}, not recorded", one.row.creator_tgid?)))
}
