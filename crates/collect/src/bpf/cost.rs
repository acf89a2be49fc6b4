//! What the programs cost where they run: in the context of the traced processes.

use super::load::Programs;
use crate::ProcessTable;
use aya::sys::Stats;
use memtrace_model::DurationNs;
use std::os::fd::OwnedFd;

/// Statistics are on for one tick in this many: they cost themselves, two clock reads for
/// every run of every BPF program of the machine, and two rounds of patching kernel text.
const SHARE: u64 = 32;

/// Measures a share of the run time and scales it up.
#[derive(Default)]
pub(super) struct RunTime {
    ticks: u64,
    /// Open while statistics are on.
    measuring: Option<OwnedFd>,
    last: Option<(u64, u64)>,
    total_ns: u64,
    total_count: u64,
}

impl RunTime {
    /// Called once a tick.
    pub(super) fn tick(&mut self, programs: &Programs, table: &mut ProcessTable) {
        if self.measuring.take().is_some() {
            if let (Some((ns, count)), Some(last)) = (programs.run_stats(), self.last) {
                self.total_ns += ns.saturating_sub(last.0) * SHARE;
                self.total_count += count.saturating_sub(last.1) * SHARE;
                table.set_bpf_run_time(
                    DurationNs(self.total_ns.cast_signed()),
                    self.total_count.cast_signed(),
                );
            }
        } else if self.ticks.is_multiple_of(SHARE) {
            self.last = programs.run_stats();
            // Refused without CAP_SYS_ADMIN (5.8): then the cost stays unknown.
            self.measuring = aya::sys::enable_stats(Stats::RunTime).ok();
        }
        self.ticks += 1;
    }
}
