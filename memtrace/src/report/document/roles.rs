//! The processes by role.

use super::{Column, Section, Tone, figures, flexible, words_in};
use crate::analyze::{Analysis, Basis, Kind, RoleFinding, RoleOnGpus, RoleShares};
use crate::model::{Bytes, MAIN};
use crate::report::words;
use crate::report::words::{bytes_at_least, bytes_or_dash, bytes_or_unknown};
use std::collections::HashSet;

/// Who holds what by role; `None` where no rule knew any process, or there is but one role.
pub(super) fn by_role(analysis: &Analysis, top: usize) -> Option<Section> {
    let roles = &analysis.roles;
    if !is_told(roles) {
        return None;
    }
    let told = Told {
        has_shares: roles.iter().any(|role| shares(role).is_some()),
        has_gpu: roles.iter().any(|role| role.gpu.is_some()),
    };
    let mut section = Section::new("By role");
    let shown = &roles[..roles.len().min(top)];
    let rows = shown.iter().map(|role| row(analysis, role, told));
    section.table(columns(told), rows.collect());
    if let Some(next) = roles.get(top) {
        let peak = next.kind(Kind::Rss).peak.map(|(bytes, _)| bytes);
        section.say(
            Tone::Quiet,
            format!(
                "{}, the largest with a peak of {}.",
                words::more_roles(roles.len() - top),
                bytes_or_unknown(peak)
            ),
        );
    }
    section.say(Tone::Quiet, remark(analysis, told));
    Some(section)
}

/// What there is to tell beside RSS.
#[derive(Clone, Copy)]
struct Told {
    has_shares: bool,
    has_gpu: bool,
}

fn is_told(roles: &[RoleFinding]) -> bool {
    let is_known = |role: &RoleFinding| role.role.as_ref().is_some_and(|role| role.role != MAIN);
    roles.len() > 1 && roles.iter().any(is_known)
}

fn shares(role: &RoleFinding) -> Option<RoleShares> {
    role.at_peak.as_ref()?.shares
}

/// What is held at the peak, then what the role reached over the recording.
fn columns(told: Told) -> Vec<Column> {
    let mut columns = vec![flexible("ROLE"), words_in("COUNT", 1)];
    if told.has_shares {
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
    if told.has_gpu {
        columns.extend([figures("GPU", 2), figures("GPU PEAK", 0), figures("AT", 4)]);
    }
    columns
}

fn row(analysis: &Analysis, role: &RoleFinding, told: Told) -> Vec<String> {
    let at_peak = role.at_peak.unwrap_or_default();
    let total = role.members.len();
    let count = match at_peak.process_count {
        count if count == total => words::count(total),
        count => format!("{} of {}", words::count(count), words::count(total)),
    };
    let rss = role.kind(Kind::Rss);
    let totals = &at_peak.totals;
    let shares = at_peak.shares.filter(|_| told.has_shares);
    let (anon, shmem) = match shares {
        Some(shares) => (shares.anon_bytes, shares.shmem_bytes),
        None => (totals.anon.bytes(), totals.shmem.bytes()),
    };
    let mut cells = vec![role.name.to_string(), count];
    if told.has_shares {
        cells.push(shares.map_or_else(|| words::UNKNOWN.to_owned(), host));
    }
    let at = rss.peak.filter(|(bytes, _)| bytes.0 > 0);
    cells.extend([
        bytes_or_dash(anon),
        bytes_or_dash(shmem),
        bytes_or_dash(totals.rss.bytes()),
        bytes_or_unknown(rss.peak.map(|(bytes, _)| bytes)),
        at.map_or_else(String::new, |(_, at)| words::offset(&analysis.clock, at)),
        bytes_or_unknown(rss.mean_bytes),
    ]);
    if told.has_gpu {
        cells.extend(match role.gpu {
            Some(gpu) => on_gpus(analysis, gpu),
            None => ["-".to_owned(), "-".to_owned(), String::new()],
        });
    }
    cells
}

/// What they held on GPUs at the peak of all, the highest of it, and when that was.
fn on_gpus(analysis: &Analysis, gpu: RoleOnGpus) -> [String; 3] {
    let highest = gpu.highest.peak;
    let amount = highest.map(|(bytes, _)| bytes);
    [
        bytes_or_dash(gpu.at_peak_bytes),
        match gpu.highest.is_lower_bound {
            true => bytes_at_least(amount),
            false => bytes_or_unknown(amount),
        },
        highest.map_or_else(String::new, |(_, at)| words::offset(&analysis.clock, at)),
    ]
}

fn host(shares: RoleShares) -> String {
    match (shares.host_bytes(), shares.known_bytes) {
        (None, known) if known.0 > 0 => format!("≥{}", words::bytes(known)),
        (host, _) => bytes_or_dash(host),
    }
}

fn remark(analysis: &Analysis, told: Told) -> String {
    let when = "COUNT to RSS SUM are at the peak of all; OWN PEAK and MEAN are sums of RSS, too.";
    let when = match told.has_gpu {
        true => &format!(
            "{when} GPU is at that same peak, and GPU PEAK the highest on all GPUs together, at \
             its own time."
        ),
        false => when,
    };
    if !told.has_shares {
        return format!("{when} Shared pages count in every process that maps them.");
    }
    let shares = || {
        let shares = analysis.peak.iter().filter_map(|peak| peak.shares.as_ref());
        shares.flatten()
    };
    let unsure: Bytes = shares()
        .filter(|share| share.anon_basis == Basis::UpperBound)
        .filter_map(|share| share.anon_bytes)
        .sum();
    let unsure = match unsure.0 {
        0 => String::new(),
        _ => format!(" Of ANON, {} was never measured.", words::bytes(unsure)),
    };
    let strange = match unattributed(analysis).0 {
        0 => String::new(),
        bytes => format!(
            " Shared memory of no known object is in no role: {} as a sum of RSS.",
            words::bytes(Bytes(bytes))
        ),
    };
    format!(
        "HOST is ANON and SHMEM with every page once: what processes share is divided among \
         them.{unsure}{strange} {when}"
    )
}

/// What processes of unknown shares have of shared memory, in each of them.
fn unattributed(analysis: &Analysis) -> Bytes {
    let Some((peak, shares)) = analysis
        .peak
        .as_ref()
        .and_then(|peak| Some((peak, peak.shares.as_ref()?)))
    else {
        return Bytes(0);
    };
    let unknown: HashSet<usize> = shares
        .iter()
        .filter(|share| share.shmem_bytes.is_none())
        .map(|share| share.process)
        .collect();
    let holders = peak.holders.iter();
    let holders = holders.filter(|holder| unknown.contains(&holder.process));
    holders.filter_map(|holder| holder.amounts.shmem()).sum()
}
