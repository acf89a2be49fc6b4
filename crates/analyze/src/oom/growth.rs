//! Which growth is reported: the one that led into the limit, and a slower one beside it.

use super::growers::Grower;
use super::kinds::{HeldKind, KindLine};
use super::windows::{SUDDEN, is_cut};
use crate::who::Bundle;
use memtrace_model::{Bytes, DurationNs, Order};
use schemars::JsonSchema;
use serde::Serialize;
use std::cmp::Reverse;

/// Growth in the shortest window is reported when it is one part in so many of what was in use: less
/// comes and goes within a second anywhere.
const SUDDEN_PART: i64 = 20;
/// Growth in a longer one is reported from one part in so many on.
const STEADY_PART: i64 = 100;
/// A longer window is reported while the same one grew by so many times as much in it.
const WIDENS_BY: i64 = 2;
/// A slower growth is worth a word when it is one part in so many of what was in use.
const LEAK_PART: i64 = 20;
/// Growth goes on when the last of it had this part of its rate.
const GOES_ON_PART: f64 = 0.25;
/// The last seconds of a slower one.
const LAST: DurationNs = DurationNs(10_000_000_000);

/// Who, or what, grew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Winner {
    /// A place among the growers.
    Grower(usize),
    Kind(HeldKind),
}

/// What is reported of the growth before a kill.
#[derive(Clone, Copy, Debug)]
pub(super) struct GrowthBefore {
    pub(super) window: usize,
    pub(super) winner: Option<(Winner, Bytes)>,
    pub(super) is_sudden: bool,
}

/// A slower growth than the one that met the limit, and which went on until then.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Leak {
    /// Who grew until then.
    #[serde(flatten)]
    pub who: Bundle,
    /// Whether it is the first of the growers.
    #[serde(skip)]
    pub is_first: bool,
    /// The length of the window in which it is reported.
    pub window_ns: DurationNs,
    /// By how much; of the one that met the limit itself, before that.
    pub grown_bytes: Bytes,
}

/// Chooses the window: the shortest in which anybody grew by enough, made longer while the same
/// one grew on in it. `kinds` are the kernel's, by window.
pub(super) fn choose(
    growers: &[Grower],
    kinds: &[Vec<KindLine>],
    windows: &[DurationNs],
    whole: Bytes,
) -> Option<GrowthBefore> {
    let last = windows.len().checked_sub(1)?;
    let foremost = |window: usize| foremost(growers, kinds, (windows, window), whole);
    // Who had stopped long before did not meet the limit, however much it grew since the start.
    let is_over = foremost(last).is_some_and(|(is_on, ..)| !is_on);
    let last = match last.checked_sub(1) {
        Some(shorter) if is_over && is_cut(windows[last]) && windows[shorter] > SUDDEN => shorter,
        _ => last,
    };
    let most = |window: usize| {
        let (_, grown, most) = foremost(window)?;
        (grown.0 > 0).then_some((most, grown))
    };
    let is_enough = |window: usize| {
        most(window).is_some_and(|(_, grown)| grown >= enough(windows[window], whole))
    };
    let first = (0..=last).find(|window| is_enough(*window)).unwrap_or(last);
    let mut window = first;
    while window < last
        && let (Some((winner, grown)), Some((next, further))) = (most(window), most(window + 1))
        && winner == next
        && further.0 >= grown.0 * WIDENS_BY
    {
        window += 1;
    }
    let winner = most(window);
    let is_sudden = match (winner, windows.get(window + 1)) {
        (Some((Winner::Grower(place), grown)), Some(_)) => {
            windows[window] <= SUDDEN && growers[place].grown(window + 1).0 < grown.0 * WIDENS_BY
        }
        _ => false,
    };
    Some(GrowthBefore {
        window,
        winner,
        is_sudden,
    })
}

impl GrowthBefore {
    /// Puts those that grew most first, and before them the one that met the limit.
    pub(super) fn put_first(&self, growers: &mut Vec<Grower>) {
        let met = match self.winner {
            Some((Winner::Grower(place), _)) => Some(growers.remove(place)),
            _ => None,
        };
        growers.order_by_key(|grower| {
            let grown = grower.grown_bytes.get(self.window).copied().flatten();
            Reverse((grown, grower.bytes))
        });
        growers.splice(0..0, met);
    }
}

/// Growth in a window of some length that matters.
fn enough(length: DurationNs, whole: Bytes) -> Bytes {
    let part = match length <= SUDDEN {
        true => SUDDEN_PART,
        false => STEADY_PART,
    };
    Bytes((whole.0 / part).max(1))
}

/// Who grew most in a window: a process, or a kind of memory that no process accounts for. Those
/// are read once a second, which is too seldom for the shortest window. Who grew by enough and went
/// on goes before who had stopped: that one did not meet the limit. Whether it went on comes first.
fn foremost(
    growers: &[Grower],
    kinds: &[Vec<KindLine>],
    (windows, window): (&[DurationNs], usize),
    whole: Bytes,
) -> Option<(bool, Bytes, Winner)> {
    let lately = window.checked_sub(1);
    let goes_on = |grown: Bytes, lately: (usize, Bytes)| {
        let (lately, grown_lately) = lately;
        pace(grown_lately, windows[lately]) >= pace(grown, windows[window]) * GOES_ON_PART
    };
    let enough = enough(windows[window], whole);
    let of_kind = |window: usize, kind: HeldKind| {
        let mut lines = kinds.get(window).into_iter().flatten();
        lines.find(|line| line.kind == kind)?.grown_bytes
    };
    // What is copied is what nobody else took, and others are counted less often than they take.
    let are_copies_unsure = of_kind(window, HeldKind::Unrecorded) >= Some(enough);
    let grown_of = |grower: &Grower, window: usize| match are_copies_unsure {
        true => grower.grown(window) - grower.copied(window).max(Bytes(0)),
        false => grower.grown(window),
    };
    let is_on = |grown: Bytes, lately: Option<(usize, Bytes)>| {
        grown >= enough && lately.is_none_or(|lately| goes_on(grown, lately))
    };
    let places = growers.iter().enumerate().map(|(place, grower)| {
        let grown = grown_of(grower, window);
        let lately = lately.map(|lately| (lately, grown_of(grower, lately)));
        (is_on(grown, lately), grown, grower.bytes, place)
    });
    let most_of_any = places.clone().map(|(_, grown, ..)| grown).max();
    let process =
        places.max_by_key(|(is_on, grown, held, place)| (*is_on, *grown, *held, Reverse(*place)));
    let process = process.map(|(is_on, grown, _, place)| (is_on, grown, Winner::Grower(place)));
    let lines = kinds.get(window).into_iter().flatten();
    let lines = lines.filter(|line| {
        let is_of_processes = matches!(line.kind, HeldKind::Anonymous | HeldKind::Swap);
        !is_of_processes && !line.is_ruled_out && windows[window] > SUDDEN
    });
    let kind = lines.filter_map(|line| {
        let grown = line.grown_bytes?;
        let lately = lately.filter(|lately| windows[*lately] > SUDDEN);
        let lately = lately.and_then(|lately| Some((lately, of_kind(lately, line.kind)?)));
        Some((is_on(grown, lately), grown, Winner::Kind(line.kind)))
    });
    let first = process.map(|(is_on, grown, _)| (is_on, grown));
    // Others are a cause also beside a process that grew by more and had stopped, if they have more than
    // little of the limit; so is shared memory that was seen to go on.
    let much = Bytes(whole.0 / SUDDEN_PART);
    let went_on = |kind: HeldKind, grown: Bytes| match kind {
        HeldKind::Unrecorded => true,
        HeldKind::Shared => of_kind(0, kind).is_some_and(|last| goes_on(grown, (0, last))),
        _ => false,
    };
    let kind = kind.filter(|(is_kind_on, by_kind, winner)| {
        let is_going_on = matches!(winner, Winner::Kind(kind) if went_on(*kind, *by_kind));
        let is_much = *is_kind_on && is_going_on && *by_kind >= much;
        Some((*is_kind_on, *by_kind)) > first && (is_much || Some(*by_kind) > most_of_any)
    });
    let kind = kind.max_by_key(|(is_on, grown, _)| (*is_on, *grown));
    kind.or(process)
}

/// Bytes in a ns.
fn pace(grown: Bytes, length: DurationNs) -> f64 {
    grown.0 as f64 / length.0 as f64
}

/// Who grew more slowly than the one that met the limit, and went on until then: beside a spike by
/// enough to matter, else by more than that one. `growers` are sorted, the one that met the limit
/// first.
pub(super) fn leak(
    growers: &[Grower],
    growth: &GrowthBefore,
    windows: &[DurationNs],
    whole: Bytes,
) -> Option<Leak> {
    let last = windows.len().checked_sub(1)?;
    let of_culprit =
        |place: usize| matches!(growth.winner, Some((Winner::Grower(_), _))) && place == 0;
    let enough = Bytes((whole.0 / LEAK_PART).max(1));
    let met = growth.winner.map_or(Bytes(0), |(_, grown)| grown);
    (growth.window + 1..=last).rev().find_map(|window| {
        // The last seconds of it.
        let recent = windows[..window].iter().rposition(|length| *length <= LAST);
        let recent = recent.unwrap_or(0);
        let leaks = growers.iter().enumerate().filter_map(|(place, grower)| {
            // Its leak stands before its own spike.
            let spike = match of_culprit(place) {
                true if growth.is_sudden => met,
                true => return None,
                false => Bytes(0),
            };
            let grown = grower.grown(window) - spike;
            let lately = grower.grown(recent) - spike;
            // Of the one that met the limit nothing but the spike is known of the last moment.
            let goes_on = (spike.0 > 0 && recent == growth.window)
                || pace(lately, windows[recent]) >= pace(grown, windows[window]) * GOES_ON_PART;
            (grown >= enough && goes_on).then_some((grown, place))
        });
        let (grown, place) = leaks.max_by_key(|(grown, place)| (*grown, Reverse(*place)))?;
        let of_reported = growers.first().filter(|_| of_culprit(0));
        let is_more =
            growth.is_sudden || of_reported.is_none_or(|reported| grown > reported.grown(window));
        is_more.then(|| Leak {
            who: growers[place].who.clone(),
            is_first: place == 0,
            window_ns: windows[window],
            grown_bytes: grown,
        })
    })
}
