//! How processes and hosts ended, as one chain over all hosts: who was first, and who followed.

use super::clocks::KnownClock;
use super::part::HostPart;
use super::run::{ChainLink, WallTime};
use memtrace_model::{DurationNs, Order, WallNs};

/// So many are reported.
const ENDS_MAX: usize = 64;

/// A host that was not heard from any more.
pub(super) struct Silence {
    pub(super) since: WallNs,
    pub(super) how: String,
}

/// A host with what is known of it.
pub(super) struct EndsOf<'a> {
    pub(super) host: &'a str,
    pub(super) parts: &'a [&'a HostPart],
    pub(super) clock: &'a KnownClock,
    pub(super) silence: Option<Silence>,
}

/// The ends of all hosts in the order of time, and how many there are.
pub(super) fn chain(hosts: &[EndsOf<'_>]) -> (Vec<ChainLink>, usize) {
    let mut links: Vec<(Option<WallNs>, &KnownClock, ChainLink)> = Vec::new();
    let mut count = 0;
    for of in hosts {
        let reported = |wall: Option<WallNs>| wall.map(|wall| WallTime(of.clock.reported(wall)));
        let ended = of.parts.iter().flat_map(|part| &part.ends);
        links.extend(ended.map(|end| {
            let link = ChainLink {
                host: of.host.to_owned(),
                at: reported(end.wall_ns),
                after_first_ns: None,
                error_ns: None,
                is_after_first: false,
                is_oom_kill: end.is_oom_kill,
                is_host: false,
                cgroup: end.cgroup.clone(),
                pod: end.pod.clone(),
                name: Some(end.name.clone()),
                pid: end.pid,
                rank: end.rank.clone(),
                how: end.how.clone(),
            };
            (end.wall_ns, of.clock, link)
        }));
        count += of.parts.iter().map(|part| part.end_count).sum::<usize>();
        if let Some(silence) = &of.silence {
            count += 1;
            let link = ChainLink {
                host: of.host.to_owned(),
                at: reported(Some(silence.since)),
                after_first_ns: None,
                error_ns: None,
                is_after_first: false,
                is_oom_kill: false,
                is_host: true,
                cgroup: None,
                pod: None,
                name: None,
                pid: None,
                rank: None,
                how: silence.how.clone(),
            };
            links.push((Some(silence.since), of.clock, link));
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
