//! What is known of the recorded beside what they hold: who there is, what they are called together,
//! and when phases begin and end.

use super::kept::Kept;
use crate::groups::Groups;
use crate::held::Whole;
use crate::peak::Peak;
use crate::phases::{Marks, Timeline};
use crate::process_table::ProcessTable;
use crate::sharing::{self, Execs};
use crate::titles::Titles;
use memtrace_model::{BootNs, RunInfo};
use std::convert::Infallible;
use std::sync::Arc;

/// What is known beside memory.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) table: ProcessTable,
    pub(super) groups: Groups,
    pub(super) execs: Execs,
    /// What the process table alone says of peaks.
    pub(super) peaks: Vec<Peak>,
    /// Begins and ends of phases, in order.
    pub(super) boundaries: Arc<[BootNs]>,
    pub(super) whole: Whole,
}

impl Known {
    /// What the rows say that are kept.
    pub(super) fn of(kept: &Kept, info: &RunInfo) -> Self {
        let Ok(known) = Self::read(kept, info);
        known
    }

    fn read(kept: &Kept, info: &RunInfo) -> Result<Self, Infallible> {
        let mut table = ProcessTable::read(kept, info)?;
        let Titles {
            roles,
            calls,
            execs,
        } = Titles::read(kept, &table)?;
        let groups = Groups::of(&table.processes, roles);
        for process in &mut table.processes {
            process.copy_until = sharing::copy_until(process, &execs);
        }
        // Who is met only by a mark has no memory: the table of the sweep is without.
        let mut named = table.clone();
        let marks = Marks::read(kept, &mut named)?;
        let boundaries = Timeline::of(marks, calls, &named.processes).to_note(info.interval_ns);
        Ok(Self {
            peaks: table.processes.iter().map(|process| process.peak).collect(),
            table,
            groups,
            execs,
            boundaries: boundaries.all,
            whole: Whole::of(
                info,
                info.clocks.first().map_or(BootNs(0), |clock| clock.boot_ns),
            ),
        })
    }

    /// The group that a process begins in.
    pub(super) fn first_group(&self, process: usize) -> Arc<str> {
        let first = self.groups.first.get(process).copied().unwrap_or_default();
        self.group(first)
    }

    /// From when on it belongs to which others.
    pub(super) fn steps(&self, process: usize) -> Vec<(BootNs, Arc<str>)> {
        let steps = self.groups.steps(process).iter();
        steps.map(|&(at, group)| (at, self.group(group))).collect()
    }

    fn group(&self, place: u32) -> Arc<str> {
        let group = self.groups.list.get(place as usize);
        group.map_or_else(|| Arc::from(""), |group| Arc::clone(&group.name))
    }
}
