//! Processes as polls find them, which read the time of a start from a coarse clock.

use super::{Birth, ProcessTable};
use memtrace_model::{BootNs, Tgid, Upid};

impl ProcessTable {
    /// Gives a process that a poll found its identity, or finds the one that it already has: the
    /// session enters the command that it starts. Two readings of one start differ by no more than
    /// the tolerance. Its parent now is taken for who forked it: one that is younger than the process
    /// only adopted it.
    pub(crate) fn enter_polled(
        &mut self,
        mut birth: Birth,
        ppid: Option<Tgid>,
        tolerance_ns: i64,
        now: BootNs,
    ) -> Upid {
        let living = |tgid| {
            let upid = self.upid(tgid)?;
            Some((upid, self.process(upid)?.row().start_boot_ns))
        };
        if let Some((known, start)) = living(birth.tgid)
            && (start - birth.start).0.abs() <= tolerance_ns
        {
            return known;
        }
        let latest = birth.start.0 + tolerance_ns;
        let parent = ppid.and_then(living).filter(|(_, start)| start.0 <= latest);
        birth.parent = parent.map(|(upid, _)| upid);
        self.enter(birth, now)
    }
}
