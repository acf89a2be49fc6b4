//! Who runs what one exec made, and whose copy it is.

use crate::process::Process;
use crate::sharing::Execs;
use memtrace_model::tables::FirstSeenBy;
use memtrace_model::{BootNs, Tgid};
use std::collections::HashMap;

/// Since when a process runs what it runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stay {
    pub(super) from: BootNs,
    pub(super) family: u32,
    /// A copy that exec replaces: it is no member, only what it grew by counts.
    pub(super) is_replaced: bool,
    /// Whether exec made it, or nobody knows of whom it could be a copy.
    pub(super) is_founder: bool,
}

/// The families so far, by who founded each, and when. A family keeps its number when more become
/// known.
#[derive(Clone, Debug, Default)]
pub(super) struct Families(HashMap<(usize, BootNs), u32>);

impl Families {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    fn founded_by(&mut self, process: usize, from: BootNs) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry((process, from)).or_insert(next)
    }
}

/// Who is of which family since when.
pub(super) fn stays(
    processes: &[Process],
    execs: &Execs,
    families: &mut Families,
) -> Vec<Vec<Stay>> {
    let mut all: Vec<Vec<Stay>> = Vec::with_capacity(processes.len());
    // Workers whose parent is gone can be copies of it: the first of them stands for it.
    let mut orphans: HashMap<(&str, &str), Stay> = HashMap::new();
    for (position, process) in processes.iter().enumerate() {
        let mut founder = |from| Stay {
            from,
            family: families.founded_by(position, from),
            is_replaced: false,
            is_founder: true,
        };
        let start = process.start.boot_ns;
        let mut begins: Vec<BootNs> = execs.get(&process.upid).cloned().unwrap_or_default();
        begins.retain(|begin| *begin > start);
        begins.sort_unstable();
        let mut stays = Vec::with_capacity(begins.len() + 1);
        let of_parent = process.parent.filter(|_| is_copy(process, processes));
        let of_parent = of_parent.and_then(|parent| all.get(parent));
        let of_parent = of_parent.and_then(|stays| stay_at(stays, start));
        let relative = of_parent.or_else(|| {
            let is_orphan = begins.is_empty() && is_orphan(process, processes);
            let program = process.exe.as_deref().zip(process.cmdline.as_deref());
            let program = program.filter(|_| is_orphan)?;
            let first = orphans.get(&program).copied();
            if first.is_none() {
                orphans.insert(program, founder(start));
            }
            first
        });
        stays.push(match relative {
            Some(relative) => Stay {
                from: start,
                family: relative.family,
                is_replaced: !begins.is_empty(),
                is_founder: false,
            },
            None => founder(start),
        });
        stays.extend(begins.into_iter().map(&mut founder));
        all.push(stays);
    }
    all
}

pub(super) fn stay_at(stays: &[Stay], at: BootNs) -> Option<Stay> {
    let past = stays.partition_point(|stay| stay.from <= at);
    stays.get(past.max(1) - 1).copied()
}

/// Whether it ran before the recording, and whoever forked it is gone.
fn is_orphan(process: &Process, processes: &[Process]) -> bool {
    let parent = process.parent.and_then(|parent| processes.get(parent));
    let is_of_init = |parent: &Process| parent.tgid == Some(Tgid(1));
    process.first_seen_by == Some(FirstSeenBy::Snapshot) && parent.is_none_or(is_of_init)
}

/// Whether it is a copy of its parent, or can be: one that was not seen to begin, and runs the
/// same file.
fn is_copy(process: &Process, processes: &[Process]) -> bool {
    match process.first_seen_by {
        Some(FirstSeenBy::Fork) => true,
        Some(FirstSeenBy::Command) => false,
        _ => {
            let parent = process.parent.and_then(|parent| processes.get(parent));
            parent.is_some_and(|parent| parent.exe.is_some() && parent.exe == process.exe)
        }
    }
}
