//! The stretches of time before a kill in which growth is reported.

use super::{MAX_KILLS_EXAMINED, examined_at};
use crate::clock::RunClock;
use crate::process::Process;
use memtrace_model::tables::OomRow;
use memtrace_model::{BootNs, DurationNs};

/// What grew in this time did so suddenly.
pub(super) const SUDDEN: DurationNs = DurationNs(1_000_000_000);
/// As far back as growth is reported.
const LENGTHS: [DurationNs; 4] = [
    SUDDEN,
    DurationNs(10_000_000_000),
    DurationNs(60_000_000_000),
    DurationNs(600_000_000_000),
];
/// Processes that ran before the recording are found within this.
const ATTACH_NS: i64 = 2_000_000_000;

/// Whether a window begins with the recording.
pub(super) fn is_cut(length: DurationNs) -> bool {
    !LENGTHS.contains(&length)
}

/// The windows of each kill that is examined.
#[derive(Clone, Debug, Default)]
pub(crate) struct Windows {
    starts: Vec<(BootNs, Vec<BootNs>)>,
}

impl Windows {
    /// The windows of every kill, the shortest first. One that reaches back further than the
    /// recording is cut at its start, and longer ones are left out.
    pub(crate) fn of(kills: &[OomRow], clock: &RunClock, processes: &[Process]) -> Self {
        let covered_from = covered_from(clock, processes);
        let of_kill = |kill: &OomRow| {
            let mut starts = Vec::new();
            for length in LENGTHS {
                let start = BootNs(kill.boot_ns.0 - length.0);
                starts.push(start.max(covered_from));
                if start <= covered_from {
                    break;
                }
            }
            // A victim that ended before its kill was reported is asked about before it ended.
            let victim = processes.iter();
            let mut victim = victim.filter(|process| Some(process.upid) == kill.victim_upid);
            let examined = examined_at(kill, victim.next());
            starts.retain(|start| *start < examined);
            (kill.boot_ns, starts)
        };
        let examined = kills.iter().take(MAX_KILLS_EXAMINED);
        Self {
            starts: examined.map(of_kill).collect(),
        }
    }

    /// Every instant at which a window starts.
    pub(crate) fn instants(&self) -> impl Iterator<Item = BootNs> + '_ {
        self.starts.iter().flat_map(|(_, starts)| starts).copied()
    }

    /// The starts of the windows before a kill, the shortest window first.
    pub(super) fn before(&self, kill: BootNs) -> &[BootNs] {
        let found = self.starts.iter().find(|(at, _)| *at == kill);
        found.map_or(&[], |(_, starts)| starts.as_slice())
    }
}

/// From when on it is known what processes held that ran before the recording.
fn covered_from(clock: &RunClock, processes: &[Process]) -> BootNs {
    let start = clock.start();
    let found = processes
        .iter()
        .filter(|process| process.start.boot_ns < start)
        .map(|process| process.first_seen.boot_ns)
        .filter(|seen| (*seen - start).0 < ATTACH_NS);
    found.max().unwrap_or(start).max(start)
}
