//! How processes and hosts ended, as one chain over all hosts: who was first, and who followed.

use super::clocks::KnownClock;
use super::host::Host;
use super::run::{ChainLink, WallTime};
use memtrace_model::{DurationNs, Order, WallNs};

/// So many are reported.
const ENDS_MAX: usize = 64;

/// A host that was not heard from any more.
pub(super) struct Silence {
    pub(super) since: WallNs,
    pub(super) how: String,
}

/// The ends of all hosts in the order of time, and how many there are.
pub(super) fn chain(
    hosts: &[Host<'_>],
    silence: impl Fn(&Host<'_>) -> Option<Silence>,
) -> (Vec<ChainLink>, usize) {
    let mut links: Vec<(Option<WallNs>, &KnownClock, ChainLink)> = Vec::new();
    let mut count = 0;
    for host in hosts {
        let clock = &host.clock;
        let link = |at: Option<WallNs>| ChainLink {
            host: host.name.to_owned(),
            at: at.map(|wall| WallTime(clock.reported(wall))),
            ..ChainLink::default()
        };
        let ended = host.parts.iter().flat_map(|part| &part.ends);
        links.extend(ended.map(|end| {
            let link = ChainLink {
                is_oom_kill: end.is_oom_kill,
                cgroup: end.cgroup.clone(),
                pod: end.pod.clone(),
                name: Some(end.name.clone()),
                pid: end.pid,
                rank: end.rank.clone(),
                how: end.how.clone(),
                ..link(end.wall_ns)
            };
            (end.wall_ns, clock, link)
        }));
        count += host.parts.iter().map(|part| part.end_count).sum::<usize>();
        if let Some(Silence { since, how }) = silence(host) {
            count += 1;
            let link = ChainLink {
                is_host: true,
                how,
                ..link(Some(since))
            };
            links.push((Some(since), clock, link));
        }
    }
    links.order_by_key(|(_, _, link)| (link.at.is_none(), link.at, link.host.clone(), link.pid));
    let first = links
        .first()
        .and_then(|(wall, clock, _)| Some(((*wall)?, *clock)));
    let mut links: Vec<ChainLink> = links
        .into_iter()
        .map(|(wall, clock, mut link)| {
            if let (Some(wall), Some((first, first_clock))) = (wall, first) {
                let later = clock.later(wall, first_clock, first);
                link.after_first_ns = Some(DurationNs(later.ns));
                link.error_ns = later.error_ns.map(DurationNs);
                link.is_after_first = later.error_ns.is_some_and(|error| later.ns > error);
            }
            link
        })
        .collect();
    links.truncate(ENDS_MAX);
    (links, count)
}
