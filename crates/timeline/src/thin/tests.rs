//! No extreme is lost, whatever the functions do, and what is kept adds up.

use super::*;
use proptest::prelude::*;

const S: i64 = 1_000_000_000;
const ROOM: usize = 200_000;

/// What a function is at an instant, by what is kept.
fn at(thin: &Thin, function: usize, instant: i64) -> Option<i64> {
    let until = thin.instants.partition_point(|at| at.0 <= instant) as u32;
    let steps = &thin.steps[function];
    let past = steps.partition_point(|(place, _)| *place < until);
    let last = past.checked_sub(1).map(|last| steps[last].1);
    last.map_or(Some(0), |value| value.map(|bytes| bytes.0))
}

fn highest(thin: &Thin, function: usize) -> Option<i64> {
    let values = thin.steps[function].iter();
    values.filter_map(|(_, value)| Some((*value)?.0)).max()
}

fn value_count(thin: &Thin) -> usize {
    thin.steps.iter().map(Vec::len).sum()
}

#[test]
fn a_spike_of_five_milliseconds_in_ten_hours_is_there_whoever_s_it_is() {
    const FUNCTIONS: usize = 40;
    let mut thinned = Thinned::new(FUNCTIONS, ROOM, DurationNs(36_000 * S), Vec::new());
    // All move all the time, each has its own spike, and one is larger than all of them.
    for second in 0..36_000 {
        for function in 0..FUNCTIONS as i64 {
            let value = match function {
                0 => 1 << 40,
                _ => (function << 20) + (second * 31 + function * 17) % 4_096,
            };
            let at = BootNs(second * S + function * 1_000);
            thinned.set(at, function as usize, Some(Bytes(value)));
        }
        let spiked = (second % 900 == 450).then_some((second / 900) as usize);
        if let Some(function) = spiked.filter(|function| *function > 0) {
            let at = second * S + 500_000_000;
            let before = (function as i64) << 20;
            thinned.set(BootNs(at), function, Some(Bytes(before * 3 + 7)));
            thinned.set(BootNs(at + 5_000_000), function, Some(Bytes(before)));
        }
    }
    let thin = thinned.finish();
    assert!(value_count(&thin) <= 2 * ROOM, "{}", value_count(&thin));
    for function in 1..FUNCTIONS {
        let spike = (function as i64 * 900 + 450) * S + 500_000_000;
        let height = (3 * function as i64) << 20 | 7;
        assert_eq!(highest(&thin, function), Some(height), "{function}");
        assert_eq!(at(&thin, function, spike), Some(height), "{function}");
        assert!(at(&thin, function, spike + 5_000_000) < Some(height / 2));
    }
}

#[test]
fn near_what_people_look_at_more_is_kept() {
    let focus = 30_000 * S;
    let mut thinned = Thinned::new(20, ROOM, DurationNs(36_000 * S), vec![BootNs(focus)]);
    for tick in 0..72_000 {
        for function in 0..20 {
            let value = (tick * 7_919 + function * 104_729) % 1_000_000;
            let at = BootNs(tick * S / 2);
            thinned.set(at, function as usize, Some(Bytes(value)));
        }
    }
    let thin = thinned.finish();
    let around = |at: i64| {
        let instants = thin.instants.iter();
        instants.filter(|one| (one.0 - at).abs() < 5 * S).count()
    };
    assert!(around(focus) > 12, "{} of 19", around(focus));
    assert!(around(focus / 2) < 9, "{}", around(focus / 2));
}

#[test]
fn what_is_unknown_is_reported_where_it_begins_and_ends() {
    let mut thinned = Thinned::new(1, ROOM, DurationNs(10), Vec::new());
    for (at, value) in [(1, Some(5)), (2, None), (3, Some(6))] {
        thinned.set(BootNs(at), 0, value.map(Bytes));
    }
    let thin = thinned.finish();
    assert_eq!(at(&thin, 0, 0), Some(0));
    assert_eq!(at(&thin, 0, 1), Some(5));
    assert_eq!(at(&thin, 0, 2), None);
    assert_eq!(at(&thin, 0, 3), Some(6));
}

#[test]
fn near_the_peak_detail_stays_when_many_functions_jitter_for_hours() {
    const FUNCTIONS: i64 = 80;
    let peak = 18_000;
    let mut thinned = Thinned::new(FUNCTIONS as usize, ROOM, DurationNs(36_000 * S), Vec::new());
    for second in 0..36_000 {
        for function in 0..FUNCTIONS {
            let value = (second * 7_919 + function * 104_729) % 1_000_000;
            let is_peak = function == 0 && second == peak;
            let value = value + i64::from(is_peak) * 10_000_000;
            thinned.set(BootNs(second * S), function as usize, Some(Bytes(value)));
        }
    }
    let thin = thinned.finish();
    let around = |at: i64| {
        let instants = thin.instants.iter();
        instants
            .filter(|one| (one.0 - at * S).abs() <= 300 * S)
            .count()
    };
    let (near, far) = (around(peak), around(peak / 2));
    assert!(near > 4 * far && near > 40, "{near} near, {far} far");
}

#[test]
fn what_is_not_known_at_first_begins_with_what_is_first_known_of_it() {
    let mut thinned = Thinned::of_unknown(3, ROOM, DurationNs(10), Vec::new());
    thinned.set(BootNs(5), 0, Some(Bytes(0)));
    thinned.set(BootNs(5), 1, None);
    thinned.set(BootNs(6), 0, Some(Bytes(7)));
    thinned.join();
    let thin = thinned.finish();
    assert_eq!(thin.instants, [BootNs(5), BootNs(6)]);
    assert_eq!(thin.steps[0], [(0, Some(Bytes(0))), (1, Some(Bytes(7)))]);
    assert_eq!(thin.steps[1..], [vec![], vec![]]);
}

#[test]
fn absurd_times_and_amounts_cost_no_more_than_others() {
    let mut thinned = Thinned::new(2, ROOM, DurationNs(i64::MAX), vec![BootNs(i64::MIN)]);
    for (place, at) in [i64::MIN, -1, 0, i64::MAX - 1, i64::MAX]
        .into_iter()
        .enumerate()
    {
        let value = if place % 2 == 0 { i64::MAX } else { -i64::MAX };
        thinned.set(BootNs(at), 0, Some(Bytes(value)));
        thinned.set(BootNs(at), 1, Some(Bytes(place as i64)));
    }
    let thin = thinned.finish();
    assert_eq!(highest(&thin, 0), Some(i64::MAX));
    assert_eq!(at(&thin, 1, i64::MAX), Some(4));
}

proptest! {
    #[test]
    fn at_every_instant_that_is_kept_all_are_what_they_were(
        steps in prop::collection::vec(
            (0_i64..400_000_000, 0_usize..3, prop::option::weighted(0.8, 0_i64..50)),
            1..120,
        ),
        focus in 0_i64..10_000_000_000,
    ) {
        let span = DurationNs(3 * S);
        let mut thinned = Thinned::new(3, ROOM, span, vec![BootNs(focus)]);
        let mut at_ns = 0;
        let mut changes = Vec::new();
        for (after, function, value) in steps {
            at_ns += after + 1;
            changes.push((at_ns, function, value));
            thinned.set(BootNs(at_ns), function, value.map(Bytes));
            if value.is_some_and(|value| value % 8 == 0) {
                // As when there is no more room.
                thinned.join();
            }
        }
        let thin = thinned.finish();
        let was = |function: usize, instant: i64| {
            let mut until = changes.iter().rev();
            until
                .find(|change| change.1 == function && change.0 <= instant)
                .map_or(Some(0), |change| change.2)
        };
        for instant in &thin.instants {
            for function in 0..3 {
                prop_assert_eq!(at(&thin, function, instant.0), was(function, instant.0));
            }
        }
        for function in 0..3 {
            let own = changes.iter().filter(|change| change.1 == function);
            let highest_ever = own.clone().filter_map(|change| change.2).max().unwrap_or(0);
            let is_lost = own.clone().any(|change| change.2.is_none());
            let is_reported = thin.steps[function].iter().any(|(_, value)| value.is_none());
            prop_assert_eq!(is_reported, is_lost);
            prop_assert_eq!(highest(&thin, function).unwrap_or(0), highest_ever);
            prop_assert_eq!(at(&thin, function, at_ns), was(function, at_ns));
        }
    }
}
