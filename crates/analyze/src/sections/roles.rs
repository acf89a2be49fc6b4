//! The processes by role.

use super::parts::{ESTIMATE, marked};
use crate::keys::highest;
use crate::{PeakAt, Report, RoleAtPeak, RoleFinding, RoleShares};
use memtrace_model::{Bytes, Kind, MAIN};
use memtrace_report::words::bytes_or_unknown;
use memtrace_report::{Cell, Chapter, Section, Table, TableOf, one_part, words};

/// Who holds what by role; nothing where no rule knew any process, or there is but one role.
pub(super) const SECTION: Section<Report> = Section {
    name: "roles",
    doc: "the processes by role",
    keys: &["role_count", "roles"],
    tables: Some(|analysis, top| {
        let roles = &analysis.roles;
        one_part(table(roles, top))
    }),
    tell: |analysis, view| {
        let roles = &analysis.roles;
        if !is_reported(roles) {
            return Vec::new();
        }
        let mut section = Chapter::new("By role");
        section.table(table(roles, view.top));
        if let Some(next) = roles.get(view.top) {
            let largest = bytes_or_unknown(highest(peak(next)));
            let words = format!(", the largest with a peak of {largest}.");
            section.rest(roles.len(), view.top, words::more_roles, &words);
        }
        if roles.iter().take(view.top).any(is_estimate) {
            section.quiet(format!("{ESTIMATE}."));
        }
        section.explain(how_to_read(has_gpu(roles)));
        vec![section]
    },
    ..Section::EMPTY
};

fn table(roles: &[RoleFinding], top: usize) -> Table {
    let has_gpu = has_gpu(roles);
    let held = |role: &RoleFinding, kind| at_peak(role).totals[kind].bytes();
    TableOf::of(roles.iter().take(top))
        .flexible("role", |role| role.name.to_string())
        .words("count", 1, count)
        .data("process_count", |role| role.process_count.to_string())
        .figures(("host_bytes", "HELD"), 0, |role| {
            marked(Cell::Held(at_peak(role).host_bytes()), is_estimate(role))
        })
        .data("is_estimate", |role| {
            shares(role).map(|shares| shares.is_estimate().to_string())
        })
        .held("anon_bytes", 2, |role| {
            shares(role).map(|shares| shares.anon_bytes)
        })
        .held("shmem_bytes", 3, |role| {
            shares(role).map(|shares| shares.shmem_bytes)
        })
        .held(("rss_bytes", "RSS SUM"), 0, |role| held(role, Kind::Rss))
        .figures(("own_peak_bytes", "RSS PEAK"), 0, |role| {
            highest(peak(role))
        })
        .figures(("own_peak_at_s", "AT"), 4, |role| {
            let peak = peak(role).filter(|(bytes, _)| bytes.0 > 0);
            Cell::reached(peak.map(|(_, at)| at))
        })
        .figures(("mean_bytes", "RSS MEAN"), 5, |role| {
            role.kind(Kind::Rss).mean_bytes
        })
        .held("gpu_bytes", 2, |role| match role.gpu {
            Some(gpu) => gpu.at_peak_bytes,
            None => Some(Bytes(0)),
        })
        .only_if(has_gpu)
        .figures("gpu_peak_bytes", 0, |role| gpu_peak(role))
        .only_if(has_gpu)
        .figures(("gpu_peak_at_s", "AT"), 4, |role| {
            Cell::reached(role.gpu.and_then(|gpu| gpu.highest.at))
        })
        .only_if(has_gpu)
        .done()
}

fn has_gpu(roles: &[RoleFinding]) -> bool {
    roles.iter().any(|role| role.gpu.is_some())
}

fn is_reported(roles: &[RoleFinding]) -> bool {
    let is_known = |role: &RoleFinding| role.role.as_ref().is_some_and(|role| role.role != MAIN);
    roles.len() > 1 && roles.iter().any(is_known)
}

fn shares(role: &RoleFinding) -> Option<RoleShares> {
    role.at_peak.as_ref()?.shares
}

fn is_estimate(role: &RoleFinding) -> bool {
    shares(role).is_some_and(|shares| shares.is_estimate())
}

fn at_peak(role: &RoleFinding) -> RoleAtPeak {
    role.at_peak.unwrap_or_default()
}

fn peak(role: &RoleFinding) -> Option<PeakAt> {
    role.kind(Kind::Rss).peak
}

/// How many there are at the peak, of all that there ever were.
fn count(role: &&RoleFinding) -> Cell {
    let (count, total) = (at_peak(role).process_count, role.process_count);
    let shown = match count == total {
        true => words::count(total),
        false => format!("{} of {}", words::count(count), words::count(total)),
    };
    Cell::from(count.to_string()).shown_as(shown)
}

/// The highest that it held on all GPUs together.
fn gpu_peak(role: &RoleFinding) -> Cell {
    let Some(gpu) = role.gpu else {
        return Cell::shown_only("-");
    };
    Cell::bounded(gpu.highest.bytes, gpu.highest.is_lower_bound)
}

fn how_to_read(has_gpu: bool) -> String {
    let gpu = match has_gpu {
        true => {
            " GPU is at that same peak; GPU PEAK is the highest on all GPUs together, at its own \
             time."
        }
        false => "",
    };
    format!(
        "Roles: HELD, where it is known, counts every page once: what processes share is divided \
         among them. COUNT to RSS SUM are at the peak of all processes; RSS PEAK and RSS MEAN are \
         sums of RSS too.{gpu}"
    )
}
