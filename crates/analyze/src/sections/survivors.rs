//! Processes that outlived the root of their tree.

use crate::leftovers::held_in_words;
use crate::{Analysis, Report, Survivor};
use memtrace_model::tables::{Fate, SurvivorRow};
use memtrace_model::{Bytes, Label, Target};
use memtrace_report::words::{bytes, bytes_at_least};
use memtrace_report::{
    Cell, Chapter, MORE_IN_JSON, Section, Table, TableOf, one_part, visible, words,
};

pub(super) const SECTION: Section<Report> = Section {
    name: "survivors",
    doc: "processes that outlived the root of their tree",
    keys: &["survivor_count", "survivors_held_bytes", "survivors"],
    tables: Some(|analysis, top| one_part(table(analysis, top))),
    tell: |analysis, view| {
        let all = &analysis.leftovers.outlived;
        if all.is_empty() {
            return Vec::new();
        }
        let held = held_in_words(all.iter());
        let on_gpus = match analysis.gpus.is_some() {
            true => on_gpus(all),
            false => String::new(),
        };
        let mut section = Chapter::alarming(format!(
            "Survivors: {} outlived the root of the tree and held {held}{on_gpus}",
            words::processes(all.len())
        ));
        section.table(table(analysis, view.top));
        section.rest(all.len(), view.top, words::count, MORE_IN_JSON);
        let can_end = analysis.info.target != Target::All;
        if can_end && all.iter().any(|one| one.row.fate == Some(Fate::Left)) {
            section.quiet(
                "`memtrace record --kill-survivors` ends such processes when the recording ends.",
            );
        }
        vec![section]
    },
    ..Section::EMPTY
};

fn table(analysis: &Analysis, top: usize) -> Table {
    TableOf::of(analysis.leftovers.outlived.iter().take(top))
        .flexible("process", |one| match one.who.name {
            Some(_) => one.who.in_words(),
            None => one.row.tgid.to_string(),
        })
        .data("pid", |one| Cell::known(one.who.pid))
        .data("upid", |one| Cell::known(one.who.upid))
        .held("anon_bytes", 0, |one| one.row.rss_anon_bytes)
        .held("shmem_bytes", 1, |one| one.row.rss_shmem_bytes)
        .held("file_bytes", 2, |one| one.row.rss_file_bytes)
        .held("swap_bytes", 3, |one| one.row.swap_bytes)
        .held("gpu_bytes", 0, |one| one.row.gpu_bytes)
        .only_if(analysis.gpus.is_some())
        .words("child_of", 2, |one| parent(&one.row))
        .words("now", 0, |one| match one.row.fate {
            Some(fate) => Cell::from(fate.as_str()).shown_as(fate.shown().to_owned()),
            None => Cell::Text(None),
        })
        .done()
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
