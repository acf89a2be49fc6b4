//! What the programs cost where they run: in the context of the traced processes.

use super::load::Programs;
use crate::ProcessTable;
use aya::sys::Stats;
use memtrace_model::DurationNs;
use std::os::fd::OwnedFd;

/// Statistics are on for one tick of a stretch: they cost themselves, two clock reads for every run of
/// every BPF program of the machine, and two rounds of patching kernel text. Stretches become longer,
/// so that a short recording has several and a long one pays little.
const SHORTEST: u64 = 8;
const LONGEST: u64 = 256;

/// Measures the run time of one tick in each stretch, and takes it for that of all ticks until the next
/// one is measured.
#[derive(Default)]
pub(super) struct RunTime {
    /// The stretch that is being measured, in ticks, and the tick in it.
    stretch: u64,
    tick: u64,
    /// Open while statistics are on.
    measuring: Option<OwnedFd>,
    begin: Option<(u64, u64)>,
    /// What was measured last, in nanoseconds and runs.
    measured: Option<(u64, u64)>,
    total_ns: u64,
    total_count: u64,
}

impl RunTime {
    /// Called once a tick.
    pub(super) fn tick(&mut self, programs: &Programs, table: &mut ProcessTable) {
        if self.measuring.take().is_some() {
            if let (Some((ns, count)), Some(begin)) = (programs.run_stats(), self.begin) {
                self.measured = Some((ns.saturating_sub(begin.0), count.saturating_sub(begin.1)));
            }
        } else if self.tick == self.stretch {
            self.stretch = (2 * self.stretch).clamp(SHORTEST, LONGEST);
            self.tick = 0;
            self.begin = programs.run_stats();
            // Refused without CAP_SYS_ADMIN (5.8): then the cost stays unknown.
            self.measuring = aya::sys::enable_stats(Stats::RunTime).ok();
        }
        self.tick += 1;
        if let Some((ns, count)) = self.measured {
            self.total_ns += ns;
            self.total_count += count;
            table.set_bpf_run_time(
                DurationNs(self.total_ns.cast_signed()),
                self.total_count.cast_signed(),
            );
        }
    }
}
