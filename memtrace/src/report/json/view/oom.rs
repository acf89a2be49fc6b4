//! OOM kills in the JSON report.

use crate::analyze::{self, Analysis, Composition, HeldKind, KindLine};
use crate::model::{Bytes, DurationNs, Instant, Tgid, Upid};
use serde::Serialize;

/// The holders and growers told with each OOM kill.
const MAX_OOM_HOLDERS: usize = 20;

#[derive(Serialize)]
pub(super) struct OomKill<'a> {
    at: Instant,
    victim_pid: Tgid,
    victim_upid: Option<Upid>,
    victim_comm: Option<&'a str>,
    victim_name: Option<&'a str>,
    victim_anon_bytes: Option<Bytes>,
    victim_file_bytes: Option<Bytes>,
    victim_shmem_bytes: Option<Bytes>,
    victim_oom_score_adj: Option<i32>,
    trigger_pid: Option<Tgid>,
    trigger_upid: Option<Upid>,
    trigger_comm: Option<&'a str>,
    constraint: Option<&'a str>,
    cgroup: Option<&'a str>,
    cgroup_limit_bytes: Option<Bytes>,
    cgroup_usage_bytes: Option<Bytes>,
    is_elsewhere: bool,
    held: Option<&'a Composition>,
    post_mortem: Option<PostMortem<'a>>,
}

/// What led to a kill.
#[derive(Serialize)]
struct PostMortem<'a> {
    is_of_node: bool,
    in_use_bytes: Option<Bytes>,
    reclaimable_bytes: Option<Bytes>,
    /// In the order of the growth of each grower, in nanoseconds.
    windows_ns: &'a [DurationNs],
    told_window_ns: Option<DurationNs>,
    is_sudden: bool,
    grower_count: usize,
    growers: Vec<Grower<'a>>,
    leak: Option<Leak<'a>>,
    holders: Vec<Holder<'a>>,
    grown_kind: Option<GrownKind>,
    grown_object: Option<GrownObject<'a>>,
    kinds: &'a [KindLine],
    kinds_age_ns: DurationNs,
    limit_hit_count: Option<i64>,
    waited_some_ns: Option<DurationNs>,
    waited_full_ns: Option<DurationNs>,
}

/// One process, or several small ones that are alike.
#[derive(Serialize)]
struct Who<'a> {
    name: &'a str,
    process_count: usize,
    pid: Option<Tgid>,
    upid: Option<Upid>,
}

#[derive(Serialize)]
struct Grower<'a> {
    #[serde(flatten)]
    who: Who<'a>,
    bytes: Bytes,
    grown_bytes: &'a [Option<Bytes>],
    copied_bytes: &'a [Option<Bytes>],
}

#[derive(Serialize)]
struct Leak<'a> {
    #[serde(flatten)]
    who: Who<'a>,
    window_ns: Option<DurationNs>,
    grown_bytes: Bytes,
}

#[derive(Serialize)]
struct Holder<'a> {
    #[serde(flatten)]
    who: Who<'a>,
    bytes: Bytes,
}

#[derive(Serialize)]
struct GrownKind {
    kind: HeldKind,
    grown_bytes: Bytes,
}

#[derive(Serialize)]
struct GrownObject<'a> {
    name: Option<&'a str>,
    device: &'a str,
    inode: i64,
    bytes: Bytes,
    age_ns: DurationNs,
    grown_bytes: Bytes,
    is_mapped: bool,
    held_by: Vec<Who<'a>>,
}

impl<'a> OomKill<'a> {
    pub(super) fn of(analysis: &'a Analysis, kill: &'a analyze::OomFinding) -> Self {
        let row = &kill.row;
        let victim = kill.victim.map(|position| &analysis.processes[position]);
        Self {
            at: analysis.clock.at(row.boot_ns),
            victim_pid: row.victim_tgid,
            victim_upid: row.victim_upid,
            victim_comm: row.victim_comm.as_deref(),
            victim_name: victim.map(|process| process.name.as_ref()),
            victim_anon_bytes: row.victim_rss_anon_bytes,
            victim_file_bytes: row.victim_rss_file_bytes,
            victim_shmem_bytes: row.victim_rss_shmem_bytes,
            victim_oom_score_adj: row.victim_oom_score_adj,
            trigger_pid: row.trigger_tgid,
            trigger_upid: row.trigger_upid,
            trigger_comm: row.trigger_comm.as_deref(),
            constraint: row.constraint.as_deref(),
            cgroup: row.memcg.as_deref(),
            cgroup_limit_bytes: row.memcg_limit_bytes,
            cgroup_usage_bytes: row.memcg_usage_bytes,
            is_elsewhere: kill.is_elsewhere,
            held: kill.holders.as_ref(),
            post_mortem: kill
                .post_mortem
                .as_ref()
                .map(|found| PostMortem::of(analysis, found)),
        }
    }
}

impl<'a> PostMortem<'a> {
    fn of(analysis: &'a Analysis, found: &'a analyze::PostMortem) -> Self {
        let growers = found.growers.iter().take(MAX_OOM_HOLDERS);
        let holders = found.holders();
        let pressure = found.pressure.as_ref();
        Self {
            is_of_node: found.is_of_node,
            in_use_bytes: found.in_use_bytes,
            reclaimable_bytes: found.reclaimable_bytes,
            windows_ns: &found.windows,
            told_window_ns: found.told_window(),
            grower_count: found.growers.len(),
            is_sudden: found.is_sudden,
            growers: growers.map(|one| Grower::of(analysis, one)).collect(),
            leak: found.leak.and_then(|leak| {
                Some(Leak {
                    who: Who::of(analysis, found.growers.get(leak.grower)?),
                    window_ns: found.windows.get(leak.window).copied(),
                    grown_bytes: leak.grown_bytes,
                })
            }),
            holders: holders
                .iter()
                .take(MAX_OOM_HOLDERS)
                .map(|one| Holder {
                    who: Who::of(analysis, one),
                    bytes: one.bytes,
                })
                .collect(),
            grown_kind: found
                .grown_kind
                .map(|(kind, grown_bytes)| GrownKind { kind, grown_bytes }),
            grown_object: found.grown_object.as_ref().map(|object| GrownObject {
                name: object.row.name.as_deref(),
                device: &object.row.device,
                inode: object.row.inode,
                bytes: object.bytes,
                age_ns: object.age_ns,
                grown_bytes: object.grown_bytes,
                is_mapped: object.is_mapped,
                held_by: object
                    .holders
                    .iter()
                    .take(MAX_OOM_HOLDERS)
                    .map(|place| Who::process(analysis, *place))
                    .collect(),
            }),
            kinds: &found.kinds,
            kinds_age_ns: found.kinds_age_ns,
            limit_hit_count: pressure.and_then(|pressure| pressure.limit_hit_count),
            waited_some_ns: pressure.and_then(|pressure| pressure.some_ns),
            waited_full_ns: pressure.and_then(|pressure| pressure.full_ns),
        }
    }
}

impl<'a> Who<'a> {
    fn of(analysis: &'a Analysis, grower: &'a analyze::Grower) -> Self {
        match grower.members.as_slice() {
            [only] => Self {
                name: &grower.label,
                ..Self::process(analysis, *only)
            },
            many => Self {
                name: &grower.label,
                process_count: many.len(),
                pid: None,
                upid: None,
            },
        }
    }

    fn process(analysis: &'a Analysis, place: usize) -> Self {
        let process = &analysis.processes[place];
        Self {
            name: &process.name,
            process_count: 1,
            pid: process.tgid,
            upid: Some(process.upid),
        }
    }
}

impl<'a> Grower<'a> {
    fn of(analysis: &'a Analysis, grower: &'a analyze::Grower) -> Self {
        Self {
            who: Who::of(analysis, grower),
            bytes: grower.bytes,
            grown_bytes: &grower.grown_bytes,
            copied_bytes: &grower.copied_bytes,
        }
    }
}
