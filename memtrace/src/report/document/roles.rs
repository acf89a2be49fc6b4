//! The processes by role.

use super::{Column, Section, Tone, figures, flexible, words_in};
use crate::analyze::{Analysis, Basis, Kind, RoleFinding};
use crate::model::{Bytes, MAIN};
use crate::report::words;
use crate::report::words::{bytes_or_dash, bytes_or_unknown};

/// Who holds what by role; `None` where no rule knew any process, or there is but one role.
pub(super) fn by_role(analysis: &Analysis, top: usize) -> Option<Section> {
    let roles = &analysis.roles;
    if !is_told(roles) {
        return None;
    }
    let has_shares = roles.iter().any(|role| shares(role).is_some());
    let mut section = Section::new("By role");
    let shown = &roles[..roles.len().min(top)];
    let rows = shown.iter().map(|role| row(analysis, role, has_shares));
    section.table(columns(has_shares), rows.collect());
    if let Some(next) = roles.get(top) {
        let peak = next.kind(Kind::Rss).peak.map(|(bytes, _)| bytes);
        section.say(
            Tone::Quiet,
            format!(
                "{} more roles, the largest with a peak of {}.",
                words::count(roles.len() - top),
                bytes_or_unknown(peak)
            ),
        );
    }
    section.say(Tone::Quiet, remark(analysis, has_shares));
    Some(section)
}

fn is_told(roles: &[RoleFinding]) -> bool {
    let is_known = |role: &RoleFinding| role.role.as_ref().is_some_and(|role| role.role != MAIN);
    roles.len() > 1 && roles.iter().any(is_known)
}

fn shares(role: &RoleFinding) -> Option<(Bytes, Bytes)> {
    role.at_peak.as_ref()?.shares
}

/// What is held at the peak, then what the role reached over the recording.
fn columns(has_shares: bool) -> Vec<Column> {
    let mut columns = vec![flexible("ROLE"), words_in("COUNT", 1)];
    if has_shares {
        columns.push(figures("HOST", 0));
    }
    columns.extend([
        figures("ANON", 2),
        figures("SHMEM", 3),
        figures("RSS SUM", 0),
        figures("OWN PEAK", 0),
        figures("AT", 4),
        figures("MEAN", 5),
    ]);
    columns
}

fn row(analysis: &Analysis, role: &RoleFinding, has_shares: bool) -> Vec<String> {
    let at_peak = role.at_peak.unwrap_or_default();
    let total = role.members.len();
    let count = match at_peak.process_count {
        count if count == total => words::count(total),
        count => format!("{} of {}", words::count(count), words::count(total)),
    };
    let rss = role.kind(Kind::Rss);
    let totals = &at_peak.totals;
    let (anon, shmem) = match has_shares {
        true => at_peak.shares.unwrap_or_default(),
        false => (
            totals.anon.bytes().unwrap_or_default(),
            totals.shmem.bytes().unwrap_or_default(),
        ),
    };
    let mut cells = vec![role.name.to_string(), count];
    if has_shares {
        cells.push(bytes_or_dash(Some(anon + shmem)));
    }
    let at = rss.peak.filter(|(bytes, _)| bytes.0 > 0);
    cells.extend([
        bytes_or_dash(Some(anon)),
        bytes_or_dash(Some(shmem)),
        bytes_or_dash(totals.rss.bytes()),
        bytes_or_unknown(rss.peak.map(|(bytes, _)| bytes)),
        at.map_or_else(String::new, |(_, at)| words::offset(&analysis.clock, at)),
        bytes_or_unknown(rss.mean_bytes),
    ]);
    cells
}

fn remark(analysis: &Analysis, has_shares: bool) -> String {
    let when = "COUNT to RSS SUM are at the peak of all; OWN PEAK and MEAN are sums of RSS, too.";
    if !has_shares {
        return format!("{when} Shared pages count in every process that maps them.");
    }
    let shares = analysis.peak.iter().filter_map(|peak| peak.shares.as_ref());
    let unsure: Bytes = shares
        .flatten()
        .filter(|share| share.anon_basis == Basis::UpperBound)
        .filter_map(|share| share.anon_bytes)
        .sum();
    let unsure = match unsure.0 {
        0 => String::new(),
        _ => format!(" Of ANON, {} was never measured.", words::bytes(unsure)),
    };
    format!(
        "HOST is ANON and SHMEM with every page once: what processes share is divided among \
         them.{unsure} {when}"
    )
}
