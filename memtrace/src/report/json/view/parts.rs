//! The parts of the JSON report beside the processes.

use super::balance::Balance;
use crate::analyze::{self, Amounts, Analysis, GpuLedger, Sum};
use crate::model::{Bytes, DurationNs, Instant, Kind, Tgid, Upid};
use serde::Serialize;

/// Who held the memory at an instant.
#[derive(Serialize)]
pub(super) struct Composition<'a> {
    at: Instant,
    is_lower_bound: bool,
    held_bytes: Option<Bytes>,
    held_at_least_bytes: Option<Bytes>,
    held_at_most_bytes: Option<Bytes>,
    held_anon_bytes: Option<Bytes>,
    held_shared_bytes: Option<Bytes>,
    mapped_files_at_least_bytes: Option<Bytes>,
    mapped_files_at_most_bytes: Option<Bytes>,
    sum_of_rss_bytes: Option<Bytes>,
    sum_of_anon_bytes: Option<Bytes>,
    sum_of_file_bytes: Option<Bytes>,
    sum_of_shmem_bytes: Option<Bytes>,
    sum_of_swap_bytes: Option<Bytes>,
    unknown_process_count: u32,
    holder_count: usize,
    holders: Vec<Holder<'a>>,
    cgroups: Vec<Cgroup<'a>>,
    node: Option<Node>,
    ledgers: Vec<Balance<'a>>,
    gpus: &'a [GpuLedger],
}

#[derive(Serialize)]
struct Holder<'a> {
    pid: Option<Tgid>,
    upid: Upid,
    name: &'a str,
    #[serde(flatten)]
    amounts: Amounts,
}

#[derive(Serialize)]
struct Cgroup<'a> {
    path: &'a str,
    current_bytes: Option<Bytes>,
    anon_bytes: Option<Bytes>,
    file_bytes: Option<Bytes>,
    shmem_bytes: Option<Bytes>,
    kernel_bytes: Option<Bytes>,
    swap_bytes: Option<Bytes>,
    limit_bytes: Option<Bytes>,
    limited_by: Option<&'a str>,
    oom_kill_count: Option<i64>,
    age_ns: DurationNs,
}

#[derive(Serialize)]
struct Node {
    mem_total_bytes: Option<Bytes>,
    mem_available_bytes: Option<Bytes>,
    age_ns: DurationNs,
}

impl<'a> Composition<'a> {
    pub(super) fn of(
        analysis: &'a Analysis,
        state: &'a analyze::Composition,
        top: Option<usize>,
    ) -> Self {
        let sum = |sum: &Sum| sum.bytes();
        let totals = &state.totals;
        let listed = state.holders.iter().take(top.unwrap_or(usize::MAX));
        let held = state.held.map(|held| held.all());
        let files = state.mapped_files();
        Self {
            at: analysis.clock.at(state.boot_ns),
            is_lower_bound: analysis.info.is_polled() || totals[Kind::Rss].unknown_count() > 0,
            held_bytes: held.map(|held| held.bytes),
            held_at_least_bytes: held.map(|held| held.at_least),
            held_at_most_bytes: held.map(|held| held.at_most),
            held_anon_bytes: state.held.map(|held| held.anon.bytes),
            held_shared_bytes: state.held.map(|held| held.shared.bytes),
            mapped_files_at_least_bytes: files.map(|(least, _)| least),
            mapped_files_at_most_bytes: files.map(|(_, most)| most),
            sum_of_rss_bytes: sum(&totals[Kind::Rss]),
            sum_of_anon_bytes: sum(&totals[Kind::Anon]),
            sum_of_file_bytes: sum(&totals[Kind::File]),
            sum_of_shmem_bytes: sum(&totals[Kind::Shmem]),
            sum_of_swap_bytes: sum(&totals[Kind::Swap]),
            unknown_process_count: totals[Kind::Rss].unknown_count(),
            holder_count: state.holders.len(),
            holders: listed.map(|holder| Holder::of(analysis, holder)).collect(),
            cgroups: state.cgroups.iter().map(Cgroup::of).collect(),
            node: state.node.as_ref().map(|node| Node {
                mem_total_bytes: node.row.mem_total_bytes,
                mem_available_bytes: node.row.mem_available_bytes,
                age_ns: node.age_ns,
            }),
            ledgers: state
                .balances
                .iter()
                .map(|balance| Balance::of(analysis, balance, top))
                .collect(),
            gpus: &state.gpus,
        }
    }
}

impl<'a> Holder<'a> {
    fn of(analysis: &'a Analysis, holder: &analyze::Holder) -> Self {
        let process = &analysis.processes[holder.process];
        Self {
            pid: process.tgid,
            upid: process.upid,
            name: &process.name,
            amounts: holder.amounts,
        }
    }
}

impl<'a> Cgroup<'a> {
    fn of(cgroup: &'a analyze::CgroupUse) -> Self {
        let row = &cgroup.row;
        Self {
            path: &row.cgroup,
            current_bytes: row.current_bytes,
            anon_bytes: row.anon_bytes,
            file_bytes: row.file_bytes,
            shmem_bytes: row.shmem_bytes,
            kernel_bytes: row.kernel_bytes,
            swap_bytes: row.swap_bytes,
            limit_bytes: cgroup.effective_limit_bytes,
            limited_by: cgroup.limited_by.as_deref(),
            oom_kill_count: row.oom_kill_count,
            age_ns: cgroup.age_ns,
        }
    }
}
