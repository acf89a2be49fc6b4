//! Whose turn it is: the process of which most has moved since it was read.

use memtrace_model::{BootNs, Bytes};

/// Less than this is not worth a reading, however long ago the last one was.
const WORTH: i64 = 1 << 20;
/// What did not move is read again after so long, as if a tenth of it had: others that share
/// it come and go.
const STALE_NS: i64 = 60_000_000_000;
/// The same where forks share it: a copy of a page changes the parts of all, and no counter.
const SHARED_STALE_NS: i64 = 20_000_000_000;
/// What a coarse look can be off by, as a part of the whole.
const COARSE_PART: i64 = 20;

/// The memory of a process that can be shared, and what cannot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) anon: Bytes,
    /// Mapped files and shared memory.
    pub(super) shared: Bytes,
    /// Huge pages of hugetlbfs and page tables, which no RSS counts.
    pub(super) unseen: Bytes,
}

/// The last reading of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Last {
    pub(super) held: Held,
    pub(super) at: BootNs,
    /// Whether only a few of its pages were looked at, to have something of everyone soon.
    pub(super) was_coarse: bool,
}

/// Whether a coarse look will do for now: of a process that was never read, and of one that has
/// moved by half of what it holds since it was, for it may go on so. Not where others can share its
/// anonymous pages, of which its parts are known by a close look alone.
pub(super) fn begins_coarsely(now: Held, is_unshared: bool, last: Option<&Last>) -> bool {
    let moved = |now: Bytes, then: Bytes| (now - then).0.saturating_abs();
    last.is_none_or(|last| {
        let moved = moved(now.anon, last.held.anon) + moved(now.shared, last.held.shared);
        is_unshared && moved.saturating_mul(2) >= (now.anon + now.shared).0
    })
}

/// How much is wrong with what is known of a process, in bytes; `None` when it is good
/// enough.
pub(super) fn urgency(
    now: Held,
    is_unshared: bool,
    last: Option<&Last>,
    at: BootNs,
) -> Option<i64> {
    let Some(last) = last else {
        return Some((now.anon + now.shared).0.max(1));
    };
    let moved = |now: Bytes, then: Bytes| (now - then).0.saturating_abs();
    let mut wrong = moved(now.shared, last.held.shared);
    let mut whole = now.shared.0;
    if !is_unshared {
        wrong = wrong.saturating_add(moved(now.anon, last.held.anon));
        whole = whole.saturating_add(now.anon.0);
    }
    let stale = match is_unshared {
        true => STALE_NS,
        false => SHARED_STALE_NS,
    };
    wrong = wrong.saturating_add(moved(now.unseen, last.held.unseen));
    if (at - last.at).0 >= stale {
        wrong = wrong.saturating_add(whole / 10);
    }
    if last.was_coarse {
        wrong = wrong.saturating_add(whole / COARSE_PART);
    }
    // One part in a hundred is what a ledger may be off.
    (wrong >= WORTH.max(whole / 100)).then_some(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: i64 = 1 << 20;

    fn held(anon: i64, shared: i64) -> Held {
        Held {
            anon: Bytes(anon * MIB),
            shared: Bytes(shared * MIB),
            unseen: Bytes(0),
        }
    }

    fn last(anon: i64, shared: i64) -> Last {
        Last {
            held: held(anon, shared),
            at: BootNs(0),
            was_coarse: false,
        }
    }

    #[test]
    fn a_coarse_look_is_followed_by_a_closer_one_when_all_others_were_looked_at() {
        let coarse = Last {
            was_coarse: true,
            ..last(100, 10)
        };
        let again = urgency(held(100, 10), false, Some(&coarse), BootNs(1));
        let never = urgency(held(10, 0), false, None, BootNs(1));
        assert!(again.is_some() && again < never, "{again:?} {never:?}");
    }

    #[test]
    fn a_process_of_its_own_that_has_doubled_since_it_was_read_is_looked_at_coarsely_again() {
        assert!(begins_coarsely(held(1, 1), false, None));
        let small = last(10, 10);
        let of = |anon, shared| begins_coarsely(held(anon, shared), true, Some(&small));
        assert!(!of(15, 15));
        assert!(of(20, 20));
        assert!(of(20, 0), "it is other memory");
        assert!(of(5, 5), "half of it has left");
        assert!(
            !begins_coarsely(held(20, 20), false, Some(&small)),
            "a fork"
        );
    }

    #[test]
    fn a_process_that_was_never_read_is_as_urgent_as_it_is_large() {
        assert_eq!(urgency(held(3, 4), true, None, BootNs(0)), Some(7 * MIB));
        assert_eq!(urgency(held(0, 0), true, None, BootNs(0)), Some(1));
    }

    #[test]
    fn huge_pages_and_page_tables_that_came_make_it_urgent() {
        let last = last(100, 10);
        let now = Held {
            unseen: Bytes(64 * MIB),
            ..held(100, 10)
        };
        let urgency = urgency(now, true, Some(&last), BootNs(1));
        assert_eq!(urgency, Some(64 * MIB));
    }

    #[test]
    fn growth_that_nobody_can_share_needs_no_reading() {
        let last = last(100, 10);
        assert_eq!(urgency(held(9000, 10), true, Some(&last), BootNs(1)), None);
        let grown = urgency(held(9000, 30), true, Some(&last), BootNs(1));
        assert_eq!(grown, Some(20 * MIB));
    }

    #[test]
    fn the_same_is_not_read_twice_until_it_is_stale() {
        let at = |seconds: i64| BootNs(seconds * 1_000_000_000);
        for (is_unshared, stale) in [(true, 60), (false, 20)] {
            let last = last(100, 1000);
            let urgency = |held, at| urgency(held, is_unshared, Some(&last), at);
            assert_eq!(urgency(held(100, 1002), at(stale - 1)), None);
            assert!(urgency(held(100, 1000), at(stale + 1)).is_some());
        }
    }
}
