//! A phase as a row of a table.

use super::Phase;
use crate::keys::PeakAt;
use crate::process::Process;
use memtrace_model::Bytes;
use memtrace_model::tables::PhaseRow;

/// The row of a phase, whose process this is, and what descended from it at most.
pub(super) fn of(
    phase: &Phase,
    process: Option<&Process>,
    child_rss_peak_bytes: Option<Bytes>,
) -> PhaseRow {
    let role = process.and_then(|process| process.role.as_ref());
    let own = phase.own.as_ref();
    let (own_peak, tree_peak) = (own.and_then(|own| own.peak), phase.tree.peak);
    let (gpu, cache) = (phase.gpu.as_ref(), phase.page_cache.as_ref());
    let bytes = |peak: PeakAt| peak.0;
    let boot_ns = |peak: PeakAt| peak.1.boot_ns;
    let attributes = (!phase.attributes.is_empty())
        .then(|| serde_json::Value::Object(phase.attributes.clone()).to_string());
    PhaseRow {
        upid: phase.who.upid,
        tgid: phase.who.pid,
        name: phase.name.to_string(),
        process_name: phase.who.name.as_deref().map(str::to_owned),
        role: role.map(|role| role.role.clone()),
        framework: role.and_then(|role| role.framework.clone()),
        rank: role.and_then(|role| role.rank.clone()),
        kind: Some(phase.form),
        depth: phase.depth as i64,
        step: phase.step,
        begin_ts: phase.begin.and_then(|begin| begin.wall_ns),
        begin_boot_ns: phase.begin.map(|begin| begin.boot_ns),
        end_ts: phase.end.wall_ns,
        end_boot_ns: phase.end.boot_ns,
        duration_ns: phase.duration_ns,
        ended_by: Some(phase.ended_by),
        is_after_exit: phase.is_after_exit,
        rss_begin_bytes: own.and_then(|own| own.begin.rss()),
        rss_end_bytes: own.and_then(|own| own.end.rss()),
        rss_delta_bytes: own.and_then(|own| own.delta.rss()),
        rss_peak_bytes: own_peak.map(bytes),
        rss_peak_boot_ns: own_peak.map(boot_ns),
        rss_anon_begin_bytes: own.and_then(|own| own.begin.anon()),
        rss_anon_end_bytes: own.and_then(|own| own.end.anon()),
        begin_is_uncertain: phase.own_uncertain.begin,
        end_is_uncertain: phase.own_uncertain.end,
        exact_peak_bytes: phase.exact_peak_bytes,
        child_rss_peak_bytes,
        held_begin_bytes: phase.held.begin_bytes,
        held_end_bytes: phase.held.end_bytes,
        held_delta_bytes: phase.held.delta_bytes,
        held_peak_bytes: phase.held.peak.map(bytes),
        held_peak_boot_ns: phase.held.peak.map(boot_ns),
        tree_rss_begin_bytes: phase.tree.begin.rss(),
        tree_rss_end_bytes: phase.tree.end.rss(),
        tree_rss_delta_bytes: phase.tree.delta.rss(),
        tree_rss_peak_bytes: tree_peak.map(bytes),
        tree_rss_peak_boot_ns: tree_peak.map(boot_ns),
        tree_rss_anon_begin_bytes: phase.tree.begin.anon(),
        tree_rss_anon_end_bytes: phase.tree.end.anon(),
        tree_begin_is_uncertain: phase.tree_uncertain.begin,
        tree_end_is_uncertain: phase.tree_uncertain.end,
        gpu_begin_bytes: gpu.and_then(|gpu| gpu.begin_bytes),
        gpu_end_bytes: gpu.and_then(|gpu| gpu.end_bytes),
        gpu_peak_bytes: gpu.and_then(|gpu| gpu.peak).map(bytes),
        page_cache_begin_bytes: cache.and_then(|cache| cache.begin_bytes),
        page_cache_end_bytes: cache.and_then(|cache| cache.end_bytes),
        page_cache_peak_bytes: cache.and_then(|cache| cache.peak).map(bytes),
        attributes,
    }
}
