//! OOM kills: who was killed, at whose limit, and who held the memory.

use super::{Section, Tone, pid_and_name};
use crate::analyze::{Analysis, OomFinding, together};
use crate::model::tables::OomRow;
use crate::report::words;
use crate::report::words::bytes_or_unknown;

/// Holders named in one line.
const MAX_HOLDERS: usize = 3;

/// The kills, first to last; `None` when there were none.
pub(super) fn oom_kills(analysis: &Analysis, top: usize) -> Option<Section> {
    let kills: Vec<&OomFinding> = analysis
        .ooms
        .iter()
        .filter(|kill| !kill.is_elsewhere)
        .collect();
    let count = kills.len();
    if count == 0 {
        return None;
    }
    let mut section = Section::new(match kills.as_slice() {
        [only] => format!(
            "OOM kill: {} at {}",
            victim(analysis, only),
            words::when(&analysis.clock, only.row.boot_ns)
        ),
        _ => format!("OOM kills: {}", words::count(count)),
    });
    section.tone = Tone::Alert;
    for kill in kills.into_iter().take(top) {
        if count > 1 {
            let when = words::when(&analysis.clock, kill.row.boot_ns);
            section.say(
                Tone::Alert,
                format!("{}, at {when}", victim(analysis, kill)),
            );
        }
        section.say(Tone::Plain, victim_line(&kill.row));
        section.say(Tone::Plain, cause_line(analysis, kill));
        if let Some(line) = holders_line(analysis, kill) {
            section.say(Tone::Plain, line);
        }
    }
    if count > top {
        let rest = words::count(count - top);
        section.say(Tone::Quiet, format!("{rest} more: see `--format json`."));
    }
    Some(section)
}

/// The kills that concern nobody in the recording, in one line.
pub(super) fn elsewhere(analysis: &Analysis) -> Option<String> {
    let count = analysis
        .ooms
        .iter()
        .filter(|kill| kill.is_elsewhere)
        .count();
    let kills = match count {
        0 => return None,
        1 => "1 OOM kill".to_owned(),
        count => format!("{} OOM kills", words::count(count)),
    };
    Some(format!(
        "{kills} elsewhere on this machine (see `--format json`)."
    ))
}

fn victim(analysis: &Analysis, kill: &OomFinding) -> String {
    match kill.victim {
        Some(position) => pid_and_name(analysis, position),
        None => format!(
            "{} {} (not part of this recording)",
            kill.row.victim_tgid,
            kill.row.victim_comm.as_deref().unwrap_or(words::UNKNOWN)
        ),
    }
}

fn victim_line(row: &OomRow) -> String {
    let kinds = words::kinds(
        row.victim_rss_anon_bytes,
        row.victim_rss_file_bytes,
        row.victim_rss_shmem_bytes,
    );
    match kinds.is_empty() {
        true => "The victim held nothing.".to_owned(),
        false => format!("The victim held {kinds}."),
    }
}

fn cause_line(analysis: &Analysis, kill: &OomFinding) -> String {
    let row = &kill.row;
    let trigger = match (kill.trigger, row.trigger_tgid, &row.trigger_comm) {
        (Some(position), _, _) => pid_and_name(analysis, position),
        (None, Some(tgid), comm) => {
            format!("{tgid} {}", comm.as_deref().unwrap_or(words::UNKNOWN))
        }
        (None, None, _) => return format!("{}.", bound(row)),
    };
    format!(
        "{}; the allocation that hit it was made by {trigger}.",
        bound(row)
    )
}

fn bound(row: &OomRow) -> String {
    match (row.constraint.as_deref(), &row.memcg) {
        (_, Some(memcg)) => format!(
            "The limit of cgroup {memcg} was hit: {} in use of {}",
            bytes_or_unknown(row.memcg_usage_bytes),
            bytes_or_unknown(row.memcg_limit_bytes)
        ),
        (Some("CONSTRAINT_NONE"), None) => "The whole machine was out of memory".to_owned(),
        (Some("CONSTRAINT_MEMCG"), None) => "The limit of some cgroup was hit".to_owned(),
        (Some(constraint), None) => format!("The bound that was hit is {constraint}"),
        (None, None) => "Which limit was hit is unknown (the kernel log can't be read)".to_owned(),
    }
}

fn holders_line(analysis: &Analysis, kill: &OomFinding) -> Option<String> {
    let state = kill.holders.as_ref()?;
    let groups = state.groups(&analysis.processes);
    let mut told: Vec<String> = groups
        .iter()
        .take(MAX_HOLDERS)
        .map(|group| {
            let amount = bytes_or_unknown(group.totals.rss.bytes());
            match group.members.as_slice() {
                [only] => format!("{} {amount}", pid_and_name(analysis, only.process)),
                many => format!("{} × {} {amount}", words::count(many.len()), group.label),
            }
        })
        .collect();
    let rest = groups.get(MAX_HOLDERS..).unwrap_or_default();
    if !rest.is_empty() {
        let count: usize = rest.iter().map(|group| group.members.len()).sum();
        let amount = together(rest.iter().map(|group| group.totals.rss.bytes()));
        let amount = bytes_or_unknown(amount);
        told.push(format!("{} more {amount}", words::count(count)));
    }
    let whole = bytes_or_unknown(state.totals.rss.bytes());
    let holds = format!(
        "Held at that instant: {whole} (sum of RSS), {}.",
        told.join(" · ")
    );
    (!told.is_empty()).then_some(holds)
}
