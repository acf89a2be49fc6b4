//! Which growth is told: the one that led into the limit, and a slower one beside it.

use super::growers::Grower;
use super::kinds::{HeldKind, KindLine};
use super::windows::SUDDEN;
use crate::analyze::who::Bundle;
use crate::model::{Bytes, DurationNs};
use schemars::JsonSchema;
use serde::Serialize;

/// Growth in the shortest window is told when it is one part in so many of what was in use: less
/// comes and goes within a second anywhere.
const SUDDEN_PART: i64 = 20;
/// Growth in a longer one is told from one part in so many on.
const STEADY_PART: i64 = 100;
/// A longer window is told while the same one grew by so many times as much in it.
const WIDENS_BY: i64 = 2;
/// A slower growth is worth a word when it is one part in so many of what was in use.
const LEAK_PART: i64 = 20;
/// It goes on when the last seconds had this part of its rate.
const GOES_ON_PART: f64 = 0.25;
/// Those last seconds.
const LAST: DurationNs = DurationNs(10_000_000_000);

/// Who, or what, grew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Winner {
    /// A place among the growers.
    Grower(usize),
    Kind(HeldKind),
}

/// What is told of the growth before a kill.
#[derive(Clone, Copy, Debug)]
pub(super) struct GrowthBefore {
    pub(super) window: usize,
    pub(super) winner: Option<(Winner, Bytes)>,
    pub(super) is_sudden: bool,
}

/// A slower growth than the one that met the limit, and which went on until then.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Leak {
    /// Who.
    #[serde(flatten)]
    pub who: Bundle,
    /// Whether it is the first of the growers.
    #[serde(skip)]
    pub is_first: bool,
    /// The length of the window in which it is told.
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
    let most = |window: usize| most(growers, kinds, windows, window);
    let is_enough = |window: usize| {
        let part = match windows[window] <= SUDDEN {
            true => SUDDEN_PART,
            false => STEADY_PART,
        };
        most(window).is_some_and(|(_, grown)| grown.0 >= (whole.0 / part).max(1))
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

/// Who grew most in a window: a process, or a kind of memory that no process accounts for. Those
/// are read once a second, which is too seldom for the shortest window.
fn most(
    growers: &[Grower],
    kinds: &[Vec<KindLine>],
    windows: &[DurationNs],
    window: usize,
) -> Option<(Winner, Bytes)> {
    let places =
        (0..growers.len()).map(|place| (growers[place].grown(window), growers[place].bytes, place));
    let process =
        places.max_by_key(|(grown, held, place)| (*grown, *held, std::cmp::Reverse(*place)));
    let process = process.map(|(grown, _, place)| (Winner::Grower(place), grown));
    let lines = kinds.get(window).into_iter().flatten();
    let lines = lines.filter(|line| {
        let is_of_processes = matches!(line.kind, HeldKind::Anonymous | HeldKind::Swap);
        !is_of_processes && !line.is_ruled_out && windows[window] > SUDDEN
    });
    let kind = lines.filter_map(|line| Some((Winner::Kind(line.kind), line.grown_bytes?)));
    let kind = kind.max_by_key(|(_, grown)| *grown);
    let most = match (process, kind) {
        (Some((_, grown)), Some((_, by_kind))) if by_kind > grown => kind,
        (None, kind) => kind,
        (process, _) => process,
    };
    most.filter(|(_, grown)| grown.0 > 0)
}

/// Who grew more slowly than the one that met the limit, and went on until then: beside a spike by
/// enough to matter, else by more than that one. `growers` are sorted by their growth in the
/// window that is told.
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
        let recent = recent.unwrap_or(0).max(growth.window);
        let leaks = growers.iter().enumerate().filter_map(|(place, grower)| {
            // Its leak stands before its own spike.
            let spike = match of_culprit(place) {
                true if growth.is_sudden => met,
                true => return None,
                false => Bytes(0),
            };
            let grown = grower.grown(window) - spike;
            let lately = grower.grown(recent) - spike;
            let pace = |window: usize, grown: Bytes| grown.0 as f64 / windows[window].0 as f64;
            // Of the one that met the limit nothing but the spike is known of the last moment.
            let goes_on = (spike.0 > 0 && recent == growth.window)
                || pace(recent, lately) >= pace(window, grown) * GOES_ON_PART;
            (grown >= enough && goes_on).then_some((grown, place))
        });
        let (grown, place) =
            leaks.max_by_key(|(grown, place)| (*grown, std::cmp::Reverse(*place)))?;
        let of_told = growers.first().filter(|_| of_culprit(0));
        let is_more = growth.is_sudden || of_told.is_none_or(|told| grown >= told.grown(window));
        is_more.then(|| Leak {
            who: growers[place].who.clone(),
            is_first: place == 0,
            window_ns: windows[window],
            grown_bytes: grown,
        })
    })
}
