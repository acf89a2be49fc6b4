//! The third stage: what each process is called, and who held what at the instants that the pass found.

use super::facts::Facts;
use super::swept::Swept;
use crate::composition::{self, Composition};
use crate::gpu::OnGpus;
use crate::layout::{self, Layout};
use crate::mappings::{self, Mappings};
use crate::memory_tables::RoleOnGpusStep;
use crate::pass::Snapshot;
use crate::{Gpus, attributor, surroundings};
use memtrace_model::{BootNs, Bytes, RowSource, RunInfo, Target};

/// What everybody held, attributed.
pub(super) struct Holdings {
    pub(super) peak: Option<Composition>,
    /// At the instants that were asked for.
    pub(super) states: Vec<Composition>,
    /// At the starts of windows before kills, of which only the holders are known.
    pub(super) earlier: Vec<Composition>,
    pub(super) gpus: Option<Gpus>,
    pub(super) on_gpus: Vec<RoleOnGpusStep>,
    pub(super) mappings: Option<Mappings>,
    pub(super) layouts: Vec<Layout>,
}

impl Holdings {
    /// Who held what at an instant that was asked for.
    pub(super) fn at(&self, instant: BootNs) -> Option<&Composition> {
        let mut states = self.states.iter();
        states.find(|state| state.at.boot_ns == instant)
    }

    pub(super) fn read<S: RowSource>(
        info: &RunInfo,
        source: &S,
        facts: &mut Facts,
        swept: &mut Swept,
    ) -> Result<Self, S::Error> {
        let tracks = swept.seen.state.processes.iter();
        let at_end = tracks.map(|track| track.at_end.anon().filter(|_| track.row_count > 0));
        let at_end: Vec<Option<Bytes>> = at_end.collect();
        let mappings = settle(source, facts, swept)?;
        let Facts { table, groups, .. } = facts;
        let (seen, clock) = (&mut swept.seen, &swept.clock);
        let layouts = layout::read(source, table, clock)?;

        // Of the starts of windows nothing but the holders is asked.
        let (states, earlier): (Vec<Snapshot>, Vec<Snapshot>) =
            (seen.asked.drain(..)).partition(|state| facts.instants.contains(&state.boot_ns));
        let all: Vec<&Snapshot> = seen.peak.iter().chain(&states).collect();
        let is_everyone_recorded = matches!(info.target, Target::All);
        let (processes, kills) = (&table.processes, &facts.kills);
        let uses = surroundings::read(source, processes, kills, &all, is_everyone_recorded)?;
        let known = attributor::Known {
            processes: &table.processes,
            at_end: &at_end,
            is_everyone_recorded,
        };
        let mut attributed = attributor::read(source, known, &all, &uses)?.into_iter();
        groups.complete(&table.processes);
        let by_role: Vec<BootNs> = seen.role_mem.iter().map(|(at, _)| *at).collect();
        let of_roles = (&*table, &*groups, by_role.as_slice());
        let timeline = std::mem::take(&mut facts.gpus);
        let marks = facts.phases.marks();
        let on_gpus = timeline.reported(source, of_roles, marks, clock, &all)?;
        let OnGpus {
            gpus,
            ledgers,
            by_role: on_gpus,
        } = on_gpus;

        let mut ledgers = ledgers.into_iter();
        let mut known = uses.into_iter().map(|uses| composition::Known {
            uses,
            attributed: attributed.next(),
            gpus: ledgers.next().unwrap_or_default(),
        });
        let mut state = |snapshot| {
            let known = known.next().unwrap_or_default();
            Composition::of(snapshot, known, &table.processes, clock, info.is_polled())
        };
        Ok(Self {
            peak: seen.peak.take().map(&mut state),
            states: states.into_iter().map(&mut state).collect(),
            earlier: earlier.into_iter().map(&mut state).collect(),
            gpus,
            on_gpus,
            mappings,
            layouts,
        })
    }
}

/// Completes what is known of each process: its peak, its growth, its end, its name.
fn settle<S: RowSource>(
    source: &S,
    facts: &mut Facts,
    swept: &Swept,
) -> Result<Option<Mappings>, S::Error> {
    let (table, clock) = (&mut facts.table, &swept.clock);
    table.take_peaks(&swept.seen.state.processes, clock);
    for process in &mut table.processes {
        if let Some(growth) = &mut process.growth {
            **growth = growth.settled(clock);
        }
    }
    table.note_kills(&facts.kills);
    table.name(source, &facts.groups)?;
    let mappings = mappings::read(source, &swept.sizes, table, clock)?;
    for process in &mut table.processes {
        process.settle(clock);
    }
    Ok(mappings)
}
