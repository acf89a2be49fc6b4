//! Which processes were killed by their parent as that shut down, as far as times tell.

use super::process::Process;
use crate::model::DurationNs;

/// A parent that kills a child at its own orderly end has ended by so much later: what it held takes
/// seconds to give back.
const SHUTDOWN_NS: DurationNs = DurationNs(15_000_000_000);
/// So long before the child a parent can have ended: the kernel sends the signal that the child
/// asked for (PR_SET_PDEATHSIG) after its parent is gone.
const PARENT_DEATH_NS: DurationNs = DurationNs(1_000_000_000);
/// Servers nest a few levels deep.
const MAX_LEVELS: usize = 16;

/// Whether a process was killed by its parent at shutdown, by all that was seen. SIGKILL ended it,
/// no OOM kill of it was recorded, and going up from it, over ancestors that were killed in the same
/// way, comes one that ended orderly at that time: with exit code 0, by SIGTERM or by SIGINT. Who
/// sent the signal is not recorded.
pub(super) fn is_killed_at_shutdown(processes: &[Process], place: usize) -> bool {
    let of = |place: usize| processes.get(place);
    let Some(process) = of(place).filter(|process| process.ending.is_kill_by_someone()) else {
        return false;
    };
    let Some(killed) = process.exit_boot_ns() else {
        return false;
    };
    let parent = |process: &Process| process.parent.and_then(of);
    let ancestors = std::iter::successors(parent(process), |process| parent(process));
    let orderly = ancestors
        .take(MAX_LEVELS)
        .take_while(|ancestor| {
            ancestor.exit_boot_ns().is_some_and(|ended| {
                let after = (ended - killed).0;
                (-PARENT_DEATH_NS.0..=SHUTDOWN_NS.0).contains(&after)
            })
        })
        .find(|ancestor| !ancestor.ending.is_kill_by_someone());
    orderly.is_some_and(|ancestor| ancestor.ending.is_orderly())
}
