//! Whose turn it is: the process whose memory moved most since it was read.

use memtrace_model::{BootNs, Bytes};

/// Who holds less is not read.
pub(in crate::smaps) const WORTH: Bytes = Bytes(32 << 20);
/// A move of less than this is none, nor one of less than a fourth.
const MOVED: i64 = 16 << 20;
const MOVED_PART: i64 = 4;
/// What did not move is read again after a fourth of the time that it was followed, within these
/// bounds: what was freed inside of it shows in no counter.
const STALE_PART: i64 = 4;
const STALE_NS: [i64; 2] = [2_000_000_000, 10_000_000_000];
/// Who moved by less holds as much as before.
const ALIKE_PART: i64 = 16;
/// Nobody is read more often than this.
const REST_NS: i64 = 1_000_000_000;

/// The last reading of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Last {
    pub(super) held: Bytes,
    pub(super) at: BootNs,
    /// When the first one was.
    pub(super) since: BootNs,
}

/// Whether a process holds about as much as when it was read last.
pub(super) fn is_alike(held: Bytes, last: Last) -> bool {
    (held - last.held).0.abs() <= held.0 / ALIKE_PART
}

/// How urgent a reading is, in bytes; `None` where none is wanted.
pub(super) fn urgency(held: Bytes, last: Option<Last>, now: BootNs) -> Option<i64> {
    if held < WORTH {
        return None;
    }
    let Some(last) = last else {
        return Some(held.0);
    };
    let age = (now - last.at).0;
    if age < REST_NS {
        return None;
    }
    let moved = (held - last.held).0.saturating_abs();
    if moved >= MOVED.max(held.0 / MOVED_PART) {
        return Some(moved);
    }
    let [least, most] = STALE_NS;
    let stale = ((now - last.since).0 / STALE_PART).clamp(least, most);
    (age >= stale).then_some(held.0 / 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: i64 = 1 << 20;
    const S: i64 = 1_000_000_000;

    fn after(held: i64, last: i64, seconds: i64) -> Option<i64> {
        let last = Last {
            held: Bytes(last * MIB),
            at: BootNs(0),
            since: BootNs(-40 * S),
        };
        urgency(Bytes(held * MIB), Some(last), BootNs(seconds * S))
    }

    #[test]
    fn who_moved_most_comes_first_and_small_ones_never() {
        assert_eq!(urgency(Bytes(31 * MIB), None, BootNs(0)), None);
        assert_eq!(urgency(Bytes(90 * MIB), None, BootNs(0)), Some(90 * MIB));
        assert_eq!(after(140, 100, 2), Some(40 * MIB));
        assert_eq!(after(110, 100, 2), None);
        assert_eq!(after(1_200, 1_000, 2), None, "less than a fourth");
        assert_eq!(after(70, 100, 2), Some(30 * MIB));
    }

    #[test]
    fn what_stands_still_is_read_again_and_nobody_all_the_time() {
        assert_eq!(after(1_000, 1_000, 9), None);
        assert_eq!(after(1_000, 1_000, 10), Some(50 * MIB));
        assert_eq!(after(9_000, 1_000, 0), None);
        let young = |seconds| {
            let (held, at) = (Bytes(100 * MIB), BootNs(0));
            let last = Last {
                held,
                at,
                since: at,
            };
            urgency(held, Some(last), BootNs(seconds * S))
        };
        assert_eq!(young(1), None);
        assert_eq!(young(2), Some(5 * MIB));
    }
}
