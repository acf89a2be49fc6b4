//! Who grew before a kill: processes, and kinds of processes that grew together.

use crate::analyze::Amounts;
use crate::analyze::composition::Composition;
use crate::analyze::endings::common_name;
use crate::analyze::process::Process;
use crate::model::{BootNs, Bytes};
use std::collections::HashMap;
use std::sync::Arc;

/// A process, or several that do the same thing.
#[derive(Clone, Debug)]
pub struct Grower {
    /// What they are called.
    pub label: Arc<str>,
    /// Who, the one that grew most first.
    pub members: Vec<usize>,
    /// What they held at the kill that the kernel could not simply drop: anonymous memory of
    /// all, and the largest shared part of any one.
    pub bytes: Bytes,
    /// By how much that grew in each window, the shortest first; `None` where it is not known
    /// what they held before.
    pub grown_bytes: Vec<Option<Bytes>>,
}

/// What one process held at the kill, and before.
struct One {
    process: usize,
    now: Own,
    before: Vec<Option<Own>>,
}

/// What of a process's memory the kernel can't simply drop: mapped files it can.
#[derive(Clone, Copy, Default)]
struct Own {
    anon: i64,
    shared: i64,
}

impl Own {
    fn of(amounts: &Amounts) -> Option<Self> {
        match (amounts.anon(), amounts.shmem()) {
            (Some(anon), Some(shared)) => Some(Self {
                anon: anon.0,
                shared: shared.0,
            }),
            // Where kinds are unknown.
            _ => amounts.rss().map(|rss| Self {
                anon: rss.0,
                shared: 0,
            }),
        }
    }

    fn all(self) -> i64 {
        self.anon + self.shared
    }
}

/// Everyone that held memory at the kill and lived under the limit that was hit, by what they
/// grew in the longest window. `earlier` are the states at the starts of the windows.
pub(super) fn growers(
    processes: &[Process],
    at_kill: &Composition,
    earlier: &[&Composition],
    starts: &[BootNs],
    is_concerned: impl Fn(&Process) -> bool,
) -> Vec<Grower> {
    let held = |state: &Composition| -> HashMap<usize, Amounts> {
        let holders = state.holders.iter();
        holders
            .map(|holder| (holder.process, holder.amounts))
            .collect()
    };
    let earlier: Vec<HashMap<usize, Amounts>> = earlier.iter().map(|state| held(state)).collect();
    let mut alike: HashMap<(&str, bool), Vec<One>> = HashMap::new();
    for holder in &at_kill.holders {
        let process = &processes[holder.process];
        let Some(now) = Own::of(&holder.amounts).filter(|_| is_concerned(process)) else {
            continue;
        };
        let before = earlier.iter().zip(starts).map(|(held, start)| {
            match held.get(&holder.process) {
                Some(amounts) => Own::of(amounts),
                // It was there, and nobody had looked yet.
                None if process.start_boot_ns < *start && process.first_seen_boot_ns > *start => {
                    None
                }
                None => Some(Own::default()),
            }
        });
        let one = One {
            process: holder.process,
            now,
            before: before.collect(),
        };
        let kind = (process.shape.as_ref(), process.is_main);
        alike.entry(kind).or_default().push(one);
    }
    let mut growers: Vec<Grower> = alike
        .into_values()
        .flat_map(|group| split(group, starts.len()))
        .map(|group| together(processes, &group, starts.len()))
        .collect();
    growers.sort_by_key(|grower| {
        let grown = grower.grown_bytes.last().copied().flatten();
        (
            std::cmp::Reverse((grown, grower.bytes)),
            grower.members.first().copied(),
        )
    });
    growers
}

/// Those who grew together stay together. Where one of them grew by more than all the others,
/// it is the one to look at.
fn split(mut group: Vec<One>, windows: usize) -> Vec<Vec<One>> {
    let grown = |one: &One| -> i64 {
        let before = one.before.get(windows.wrapping_sub(1)).copied().flatten();
        before.map_or(0, |before| one.now.all() - before.all())
    };
    group.sort_by_key(|one| (std::cmp::Reverse(grown(one)), one.process));
    let rest: i64 = group.iter().skip(1).map(|one| grown(one).max(0)).sum();
    if group.len() > 1 && group.first().is_some_and(|one| grown(one) > rest) {
        let others = group.split_off(1);
        return vec![group, others];
    }
    vec![group]
}

fn together(processes: &[Process], group: &[One], windows: usize) -> Grower {
    let sum = |of: &dyn Fn(&One) -> Option<Own>| -> Option<i64> {
        let mut anon = 0;
        let mut shared = 0;
        for one in group {
            let own = of(one)?;
            anon += own.anon;
            shared = own.shared.max(shared);
        }
        Some(anon + shared)
    };
    let now = sum(&|one| Some(one.now)).unwrap_or(0);
    let members: Vec<usize> = group.iter().map(|one| one.process).collect();
    Grower {
        label: common_name(processes, &members),
        members,
        bytes: Bytes(now),
        grown_bytes: (0..windows)
            .map(|window| {
                let before = sum(&|one| one.before.get(window).copied().flatten())?;
                Some(Bytes(now - before))
            })
            .collect(),
    }
}
