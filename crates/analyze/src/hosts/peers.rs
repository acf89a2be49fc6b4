//! Who stands out from others that do the same. Robust: by the median and the median absolute
//! deviation, which one that is far off does not move, and by a floor below which nobody cares.

use super::part::{HostPart, PartRank, PartRole};
use super::run::{Measure, Outlier};
use memtrace_model::{Order, Tgid};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Of fewer nobody can say who is like the others.
const PEERS_MIN: usize = 4;
/// Where more than one of so many is far, and more than one in all, they are another kind of peer.
const PEERS_PER_OUTLIER: usize = 4;
/// So many deviations away is far.
const DEVIATIONS: f64 = 4.0;
/// The median absolute deviation of a normal distribution, as a part of its standard deviation.
const MAD_OF_NORMAL: f64 = 1.4826;
/// A difference below a part of the median is none, and neither is one below an amount.
const FLOOR_PART: i64 = 20;
const FLOOR_BYTES: i64 = 64 << 20;
const FLOOR_BYTES_PER_STEP: i64 = 1 << 20;
const FLOOR_BYTES_PER_HOUR: i64 = 64 << 20;
/// So many are reported.
const OUTLIERS_MAX: usize = 32;

/// One of those that do the same.
struct Peer<'a> {
    rank: Option<&'a str>,
    host: &'a str,
    pid: Option<Tgid>,
    bytes: i64,
}

/// The processes that are one rank of a host in the last recording that has any.
#[derive(Default)]
struct Latest<'a> {
    rec: &'a str,
    ranks: Vec<&'a PartRank>,
}

/// The middle one; of an even number the lower of two.
pub(super) fn median(sorted: &[i64]) -> Option<i64> {
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

/// Who stands out, the largest difference first, those who hold or grow by more before the others.
pub(super) fn outliers(parts: &[HostPart]) -> Vec<Outlier> {
    let mut found = Vec::new();
    // By host and rank those of the last recording: with each of them a rank would be its own peer.
    let mut ranks: BTreeMap<&str, BTreeMap<(&str, &str), Latest<'_>>> = BTreeMap::new();
    let mut roles: BTreeMap<&str, BTreeMap<&str, Vec<&PartRole>>> = BTreeMap::new();
    for part in parts {
        let host = &*part.place.host;
        for rank in &part.ranks {
            let of_role = ranks.entry(&rank.role).or_default();
            let latest = of_role.entry((host, &rank.rank)).or_default();
            if latest.rec != part.place.rec {
                *latest = Latest {
                    rec: &part.place.rec,
                    ranks: Vec::new(),
                };
            }
            latest.ranks.push(rank);
        }
        for role in part.roles.iter().filter(|role| role.is_known) {
            let hosts = roles.entry(&role.name).or_default();
            hosts.entry(host).or_default().push(role);
        }
    }
    for (role, ranks) in &ranks {
        let mut of = |measure, get: &dyn Fn(&PartRank) -> Option<i64>| {
            let latest = ranks
                .iter()
                .flat_map(|((host, _), latest)| latest.ranks.iter().map(move |rank| (host, rank)));
            let peers = latest.filter_map(|(host, rank)| {
                Some(Peer {
                    rank: Some(&rank.rank),
                    host,
                    pid: rank.pid,
                    bytes: get(rank)?,
                })
            });
            found.extend(standing_out(role, measure, peers.collect()));
        };
        of(Measure::Peak, &|rank| Some(rank.peak_bytes?.0));
        of(Measure::PerStep, &|rank| rank.bytes_per_step);
        of(Measure::PerHour, &|rank| rank.bytes_per_hour);
    }
    for (name, hosts) in &roles {
        let mut of = |measure, get: &dyn Fn(&PartRole) -> Option<i64>| {
            let peers = hosts.iter().filter_map(|(host, recs)| {
                Some(Peer {
                    rank: None,
                    host,
                    pid: None,
                    bytes: recs.iter().filter_map(|role| get(role)).max()?,
                })
            });
            found.extend(standing_out(name, measure, peers.collect()));
        };
        of(Measure::Peak, &|role| Some(role.peak_bytes?.0));
        of(Measure::PerHour, &|role| role.bytes_per_hour);
    }
    let difference = |one: &Outlier| one.bytes.saturating_sub(one.median_bytes);
    // A process says more than all of a role on its host.
    found.order_by_key(|one| {
        let more = difference(one);
        let order = (
            one.measure,
            more < 0,
            Reverse(more.saturating_abs()),
            one.rank.is_none(),
        );
        (order, one.role.clone(), one.host.clone(), one.rank.clone())
    });
    found.truncate(OUTLIERS_MAX);
    found
}

fn standing_out(role: &str, measure: Measure, peers: Vec<Peer<'_>>) -> Vec<Outlier> {
    let mut sorted: Vec<i64> = peers.iter().map(|peer| peer.bytes).collect();
    sorted.sort_unstable();
    let Some(middle) = median(&sorted).filter(|_| peers.len() >= PEERS_MIN) else {
        return Vec::new();
    };
    let deviations = sorted
        .iter()
        .map(|bytes| bytes.saturating_sub(middle).saturating_abs());
    let mut deviations: Vec<i64> = deviations.collect();
    deviations.sort_unstable();
    // Of an even number the upper of two: the lower is none for two halves that differ.
    let deviation = deviations.get(deviations.len() / 2).copied().unwrap_or(0);
    let mad = deviation as f64 * MAD_OF_NORMAL * DEVIATIONS;
    let floor = match measure {
        Measure::Peak => FLOOR_BYTES,
        Measure::PerStep => FLOOR_BYTES_PER_STEP,
        Measure::PerHour => FLOOR_BYTES_PER_HOUR,
    };
    let threshold = (mad as i64)
        .max(floor)
        .max(middle.saturating_abs() / FLOOR_PART);
    let is_far = |peer: &Peer<'_>| peer.bytes.saturating_sub(middle).saturating_abs() > threshold;
    let others = peers.len() - 1;
    let outlier = |peer: Peer<'_>| Outlier {
        role: role.to_owned(),
        rank: peer.rank.map(str::to_owned),
        host: peer.host.to_owned(),
        pid: peer.pid,
        measure,
        bytes: peer.bytes,
        median_bytes: middle,
        threshold_bytes: threshold,
        other_count: others,
    };
    let most = (peers.len() / PEERS_PER_OUTLIER).max(1);
    let far: Vec<Peer<'_>> = peers.into_iter().filter(is_far).collect();
    if far.len() > most {
        return Vec::new();
    }
    far.into_iter().map(outlier).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(measure: Measure, amounts: &[i64]) -> Vec<(usize, i64)> {
        let names: Vec<String> = (0..amounts.len()).map(|place| place.to_string()).collect();
        let peers = names.iter().zip(amounts).map(|(name, &bytes)| Peer {
            rank: Some(name),
            host: "n",
            pid: None,
            bytes,
        });
        let found = standing_out("rank", measure, peers.collect());
        let rank = |one: &Outlier| one.rank.as_deref().and_then(|rank| rank.parse().ok());
        found
            .iter()
            .filter_map(|one| Some((rank(one)?, one.median_bytes)))
            .collect()
    }

    const GIB: i64 = 1 << 30;

    #[test]
    fn one_of_eight_stands_out_and_noise_does_not() {
        let mut amounts = [20 * GIB; 8];
        assert_eq!(of(Measure::Peak, &amounts), []);
        amounts[3] += 9 * GIB;
        assert_eq!(of(Measure::Peak, &amounts), [(3, 20 * GIB)]);
        // Amounts that lie apart by a tenth have no one who is like the others.
        let noisy = [18, 20, 22, 19, 21, 23, 17, 24].map(|gib| gib * GIB);
        assert_eq!(of(Measure::Peak, &noisy), []);
        let mut noisy = noisy;
        noisy[0] = 80 * GIB;
        assert_eq!(of(Measure::Peak, &noisy), [(0, 21 * GIB)]);
    }

    #[test]
    fn who_is_one_of_two_halves_or_thirds_does_not_stand_out() {
        let halves = [20, 20, 20, 20, 29, 29, 29, 29].map(|gib| gib * GIB);
        assert_eq!(of(Measure::Peak, &halves), []);
        let thirds = [20, 20, 20, 20, 29, 29, 29].map(|gib| gib * GIB);
        assert_eq!(of(Measure::Peak, &thirds), []);
        let quarter = [20, 20, 20, 20, 20, 20, 29, 29].map(|gib| gib * GIB);
        assert_eq!(of(Measure::Peak, &quarter).len(), 2);
    }

    #[test]
    fn who_grows_where_others_do_not_stands_out_and_less_than_the_floor_does_not() {
        let mut steps = [0; 8];
        steps[5] = 40 << 20;
        assert_eq!(of(Measure::PerStep, &steps), [(5, 0)]);
        steps[5] = 1 << 20;
        assert_eq!(of(Measure::PerStep, &steps), []);
        assert_eq!(
            of(Measure::PerStep, &[0, 0, 40 << 20]),
            [],
            "three are too few"
        );
    }
}
