//! What a sample stands for: the kernel counts how much there is in all, the sample tells of
//! which objects.

use super::totals::MappingBytes;
use memtrace_model::Order;

/// An object of a class of pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// What the sample showed of it, already multiplied by what was left out.
    pub(super) seen: MappingBytes,
    /// Bytes that it can hold at most.
    pub(super) room: f64,
}

/// Scales what was seen so that all add up to what was counted, and none holds more than it
/// can. What is left over then is of the objects that the sample missed: they get it by their
/// size, shared as what was seen is.
pub(super) fn scale(counted: f64, parts: &mut [Part]) {
    let mut all = MappingBytes::NONE;
    for part in &*parts {
        all.add(&part.seen);
    }
    if counted <= 0.0 || all.rss <= 0.0 {
        return;
    }
    let (mut seen, missed): (Vec<&mut Part>, Vec<&mut Part>) =
        parts.iter_mut().partition(|part| part.seen.rss > 0.0);
    // Those that are full at the lowest factor come first.
    seen.order_by(|a, b| (a.room * b.seen.rss).total_cmp(&(b.room * a.seen.rss)));
    let (mut left, mut open) = (counted, all.rss);
    for part in seen {
        // It is one of the open ones, whatever rounding made of their sum.
        let wanted = (part.seen.rss * left / open.max(part.seen.rss)).max(0.0);
        let held = wanted.min(part.room.max(0.0));
        left -= held;
        open -= part.seen.rss;
        part.seen = part.seen.scaled(held / part.seen.rss);
    }
    let room: f64 = missed.iter().map(|part| part.room.max(0.0)).sum();
    if left < 1.0 || room <= 0.0 {
        return;
    }
    let filled = (left / room).min(1.0);
    for part in missed {
        part.seen = all.scaled(part.room.max(0.0) * filled / all.rss);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(rss: f64, room: f64) -> Part {
        let seen = MappingBytes {
            rss,
            pss: Some(rss / 2.0),
            ..MappingBytes::NONE
        };
        Part { seen, room }
    }

    fn scaled<const N: usize>(counted: f64, mut parts: [Part; N]) -> [f64; N] {
        scale(counted, &mut parts);
        for part in &parts {
            let pss = part.seen.pss.unwrap();
            assert!((pss - part.seen.rss / 2.0).abs() < 1e-9, "{part:?}");
        }
        parts.map(|part| part.seen.rss.round())
    }

    #[test]
    fn what_was_seen_is_scaled_to_what_was_counted() {
        let parts = [part(10.0, 1000.0), part(30.0, 1000.0)];
        assert_eq!(scaled(100.0, parts), [25.0, 75.0]);
        assert_eq!(scaled(20.0, parts), [5.0, 15.0]);
    }

    #[test]
    fn no_object_holds_more_than_it_can_and_the_others_hold_the_rest() {
        let parts = [part(30.0, 1000.0), part(10.0, 20.0), part(10.0, 25.0)];
        assert_eq!(scaled(150.0, parts), [105.0, 20.0, 25.0]);
        let parts = [part(190.0, 200.0), part(0.0, 30.0), part(0.0, 10.0)];
        assert_eq!(scaled(202.0, parts), [200.0, 2.0, 1.0]);
    }

    #[test]
    fn what_nothing_can_hold_is_nowhere() {
        let parts = [part(10.0, 20.0), part(0.0, 5.0)];
        assert_eq!(scaled(100.0, parts), [20.0, 5.0]);
        assert_eq!(scaled(100.0, [part(0.0, 5.0)]), [0.0]);
    }
}
