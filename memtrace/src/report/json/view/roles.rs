//! The processes by role in the JSON report.

use crate::analyze::{self, Analysis, Growth, KindFigures, RoleFinding, RoleOnGpus};
use crate::model::{Bytes, Instant, Kind, PerKind, Upid};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct RoleGroup<'a> {
    name: &'a str,
    framework: Option<&'a str>,
    role: Option<&'a str>,
    process_count: usize,
    upids: Vec<Upid>,
    at_peak: Option<AtPeak>,
    kinds: PerKind<Figures>,
    gpu: Option<OnGpus>,
}

#[derive(Serialize)]
struct OnGpus {
    peak_bytes: Option<Bytes>,
    peak_is_lower_bound: bool,
    peak_at: Option<Instant>,
    at_peak_bytes: Option<Bytes>,
}

#[derive(Serialize)]
struct AtPeak {
    process_count: usize,
    sum_of_rss_bytes: Option<Bytes>,
    sum_of_anon_bytes: Option<Bytes>,
    sum_of_file_bytes: Option<Bytes>,
    sum_of_shmem_bytes: Option<Bytes>,
    host_bytes: Option<Bytes>,
    own_anon_bytes: Option<Bytes>,
    own_shmem_bytes: Option<Bytes>,
}

#[derive(Serialize)]
struct Figures {
    peak_bytes: Option<Bytes>,
    peak_at: Option<Instant>,
    mean_bytes: Option<Bytes>,
    growth: Option<Growth>,
}

/// At most so many roles, in the order of the findings.
pub(super) fn of(analysis: &Analysis, most: usize) -> Vec<RoleGroup<'_>> {
    let roles = analysis.roles.iter().take(most);
    roles.map(|role| RoleGroup::of(analysis, role)).collect()
}

impl<'a> RoleGroup<'a> {
    fn of(analysis: &'a Analysis, finding: &'a RoleFinding) -> Self {
        let role = finding.role.as_ref();
        let members = finding.members.iter();
        Self {
            name: &finding.name,
            framework: role.and_then(|role| role.framework.as_deref()),
            role: role.map(|role| role.role.as_str()),
            process_count: finding.members.len(),
            upids: members
                .map(|&member| analysis.processes[member].upid)
                .collect(),
            at_peak: finding.at_peak.as_ref().map(AtPeak::of),
            kinds: PerKind::of(|kind| Figures::of(analysis, finding.kind(kind))),
            gpu: finding.gpu.map(OnGpus::of),
        }
    }
}

impl OnGpus {
    fn of(gpu: RoleOnGpus) -> Self {
        Self {
            peak_bytes: gpu.highest.bytes,
            peak_is_lower_bound: gpu.highest.is_lower_bound,
            peak_at: gpu.highest.at,
            at_peak_bytes: gpu.at_peak_bytes,
        }
    }
}

impl AtPeak {
    fn of(at_peak: &analyze::RoleAtPeak) -> Self {
        let totals = &at_peak.totals;
        Self {
            process_count: at_peak.process_count,
            sum_of_rss_bytes: totals[Kind::Rss].bytes(),
            sum_of_anon_bytes: totals[Kind::Anon].bytes(),
            sum_of_file_bytes: totals[Kind::File].bytes(),
            sum_of_shmem_bytes: totals[Kind::Shmem].bytes(),
            host_bytes: at_peak.host_bytes(),
            own_anon_bytes: at_peak.shares.and_then(|shares| shares.anon_bytes),
            own_shmem_bytes: at_peak.shares.and_then(|shares| shares.shmem_bytes),
        }
    }
}

impl Figures {
    fn of(analysis: &Analysis, figures: &KindFigures) -> Self {
        Self {
            peak_bytes: figures.peak.map(|(bytes, _)| bytes),
            peak_at: figures.peak.map(|(_, at)| analysis.clock.at(at)),
            mean_bytes: figures.mean_bytes,
            growth: figures.growth,
        }
    }
}
