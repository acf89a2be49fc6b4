//! Leaves out what the recorded command held before its exec.
//!
//! memtrace forks the command and holds it until the probes are attached. Until its exec that
//! child is a copy of memtrace itself, whose memory is no part of what the person asked about.

use super::reorder::Sample;
use crate::model::tables::MemSource;
use crate::model::{BootNs, Upid};

/// The command is held for a moment only: a recording without its exec in this many rows lacks
/// the row, and then everything counts.
const MAX_ROWS: usize = 4_096;

/// Holds the command's rows back until its exec shows which of them are memtrace's own.
#[derive(Debug)]
pub(super) struct HeldCommand {
    command: Option<Upid>,
    exec_boot_ns: Option<BootNs>,
    held: Vec<Sample>,
    row_count: usize,
}

impl HeldCommand {
    /// Nothing is held back when there is no command.
    pub(super) fn new(command: Option<Upid>) -> Self {
        Self {
            command,
            exec_boot_ns: None,
            held: Vec::new(),
            row_count: 0,
        }
    }

    /// Takes the next row and gives on what counts.
    pub(super) fn push(
        &mut self,
        sample: Sample,
        source: Option<MemSource>,
        give: &mut impl FnMut(Sample),
    ) {
        if self.command != Some(sample.upid) {
            self.row_count += 1;
            if self.row_count > MAX_ROWS {
                self.finish(give);
            }
            return give(sample);
        }
        if let Some(exec) = self.exec_boot_ns {
            // A local maximum of the copy can arrive after the exec.
            if sample.boot_ns >= exec {
                give(sample);
            }
            return;
        }
        self.row_count += 1;
        self.held.push(sample);
        if source == Some(MemSource::Exec) {
            self.exec_boot_ns = Some(sample.boot_ns);
            let held = std::mem::take(&mut self.held);
            let later = held.into_iter().filter(|row| row.boot_ns >= sample.boot_ns);
            later.for_each(give);
        } else if self.row_count > MAX_ROWS {
            self.finish(give);
        }
    }

    /// Without an exec, everything counts.
    pub(super) fn finish(&mut self, give: &mut impl FnMut(Sample)) {
        if self.exec_boot_ns.is_none() {
            self.command = None;
            self.held.drain(..).for_each(give);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::Amounts;

    fn given(command: Option<i64>, rows: &[(i64, i64, MemSource)]) -> Vec<i64> {
        let mut given = Vec::new();
        let mut held = HeldCommand::new(command.map(Upid));
        for &(upid, boot_ns, source) in rows {
            let sample = Sample {
                boot_ns: BootNs(boot_ns),
                upid: Upid(upid),
                amounts: Amounts::NONE,
                vm_size: None,
            };
            held.push(sample, Some(source), &mut |row| given.push(row.boot_ns.0));
        }
        held.finish(&mut |row| given.push(row.boot_ns.0));
        given
    }

    const ROWS: [(i64, i64, MemSource); 5] = [
        (7, 1, MemSource::First),
        (8, 2, MemSource::First),
        (7, 5, MemSource::Exec),
        (7, 3, MemSource::Peak),
        (7, 6, MemSource::RssStat),
    ];

    #[test]
    fn what_the_command_held_before_its_exec_is_left_out() {
        assert_eq!(given(Some(7), &ROWS), [2, 5, 6]);
    }

    #[test]
    fn without_an_exec_or_a_command_everything_counts() {
        assert_eq!(given(Some(7), &ROWS[..2]), [2, 1]);
        assert_eq!(given(None, &ROWS), [1, 2, 5, 3, 6]);
    }
}
