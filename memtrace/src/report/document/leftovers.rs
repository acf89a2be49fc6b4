//! What outlived the tree, and shared memory that nobody owns any more.

use super::{Section, Tone, figures, flexible, pid_and_name, words_in};
use crate::analyze::{Analysis, LeftObject, Survivor, together};
use crate::model::tables::Fate;
use crate::model::{Bytes, Label, MappingKind};
use crate::report::visible::visible;
use crate::report::words;
use crate::report::words::{bytes, bytes_at_least, bytes_or_dash, bytes_or_unknown};

/// Processes that outlived the root of their tree; `None` when there were none.
pub(super) fn survivors(analysis: &Analysis, top: usize) -> Option<Section> {
    let all = &analysis.leftovers.outlived;
    if all.is_empty() {
        return None;
    }
    let held = together(all.iter().map(Survivor::held_bytes));
    let has_gpu = analysis.gpus.is_some();
    let on_gpus = match has_gpu {
        true => on_gpus(all),
        false => String::new(),
    };
    let mut section = Section::new(format!(
        "Survivors: {} outlived the root of the tree, {} in all (sum of RSS and swap){on_gpus}",
        words::processes(all.len()),
        bytes_or_unknown(held)
    ));
    section.tone = Tone::Alert;
    let mut columns = vec![
        flexible("PROCESS"),
        figures("ANON", 0),
        figures("SHMEM", 1),
        figures("FILE", 2),
        figures("SWAP", 3),
    ];
    if has_gpu {
        columns.push(figures("GPU", 0));
    }
    columns.extend([words_in("CHILD OF", 2), words_in("NOW", 0)]);
    let rows = all.iter().take(top);
    let rows = rows.map(|one| row(analysis, one, has_gpu)).collect();
    section.table(columns, rows);
    if all.len() > top {
        let rest = words::count(all.len() - top);
        section.say(Tone::Quiet, format!("{rest} more: see `--format json`."));
    }
    if all.iter().any(|one| one.row.fate == Some(Fate::Left)) {
        section.say(
            Tone::Quiet,
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

fn row(analysis: &Analysis, one: &Survivor, has_gpu: bool) -> Vec<String> {
    let row = &one.row;
    let name = match one.process {
        Some(position) => pid_and_name(analysis, position),
        None => row.tgid.to_string(),
    };
    let parent = match (row.parent_tgid, &row.parent_comm) {
        (Some(tgid), Some(comm)) => format!("{tgid} {}", visible(comm)),
        (Some(tgid), None) => tgid.to_string(),
        (None, _) => words::UNKNOWN.to_owned(),
    };
    let mut cells = vec![
        name,
        bytes_or_dash(row.rss_anon_bytes),
        bytes_or_dash(row.rss_shmem_bytes),
        bytes_or_dash(row.rss_file_bytes),
        bytes_or_dash(row.swap_bytes),
    ];
    if has_gpu {
        cells.push(bytes_or_dash(row.gpu_bytes));
    }
    let fate = row.fate.map_or(words::UNKNOWN, Label::shown);
    cells.extend([parent, fate.to_owned()]);
    cells
}

/// Shared memory without an owner; `None` when there is none.
pub(super) fn objects(analysis: &Analysis, top: usize) -> Option<Section> {
    let all = &analysis.leftovers.objects;
    if all.is_empty() {
        return None;
    }
    let mut section = Section::new(format!(
        "Shared memory left without an owner: {}, {}",
        words::objects(all.len()),
        bytes(analysis.leftovers.objects_bytes())
    ));
    section.tone = Tone::Alert;
    let columns = vec![
        flexible("OBJECT"),
        figures("ALLOCATED", 0),
        figures("SIZE", 1),
        words_in("WHOSE", 2),
        words_in("MADE BY", 1),
    ];
    let shown = all.iter().take(top);
    section.table(columns, shown.map(|one| object(analysis, one)).collect());
    if all.len() > top {
        let rest = words::count(all.len() - top);
        section.say(Tone::Quiet, format!("{rest} more: see `--format json`."));
    }
    if all.iter().any(|one| !one.row.is_certain) {
        section.say(
            Tone::Quiet,
            "Not every process could be looked into: one of them may still have these files.",
        );
    }
    Some(section)
}

fn object(analysis: &Analysis, one: &LeftObject) -> Vec<String> {
    let row = &one.row;
    let name = match row.kind {
        Some(MappingKind::Sysv) => format!("SysV segment {} (ipcrm -m {0})", row.inode),
        _ => visible(&row.name).into_owned(),
    };
    let owner = match (one.owner, row.creator_tgid) {
        (Some(position), _) => pid_and_name(analysis, position),
        (None, Some(tgid)) => format!("{tgid}, not recorded"),
        (None, None) => words::UNKNOWN.to_owned(),
    };
    let family = row.family.map(Label::as_str);
    vec![
        name,
        bytes_or_unknown(row.allocated_bytes),
        bytes_or_unknown(row.size_bytes),
        family.unwrap_or_default().to_owned(),
        owner,
    ]
}
