//! The second stage: the one pass over memory.

use super::facts::Facts;
use super::{Options, hull, is_closed, mem_columns, span_of};
use crate::bins::Bins;
use crate::clock::RunClock;
use crate::conditions;
use crate::curves::{Choice, Drawing};
use crate::held::{HeldSum, Whole};
use crate::host_clock::HostClock;
use crate::mappings::Sizes;
use crate::pass::{Asked, Pass, Passed};
use memtrace_model::tables::{MemRow, MemSource};
use memtrace_model::{RowSource, RunInfo};
use std::collections::HashSet;

/// What the pass found.
pub(super) struct Swept {
    pub(super) seen: Passed,
    pub(super) sizes: Sizes,
    /// Its span is the whole recording.
    pub(super) clock: RunClock,
    /// Where what is held in each second of the wall clock is wanted.
    pub(super) host_clock: Option<HostClock>,
}

impl Swept {
    pub(super) fn of<S: RowSource>(
        info: &RunInfo,
        source: &S,
        facts: &mut Facts,
        options: &Options,
        has_tables: bool,
    ) -> Result<Self, S::Error> {
        let host_clock = match options.has_bins {
            true => Some(HostClock::read(source, info)?),
            false => None,
        };
        let bins = host_clock.as_ref();
        let bins = bins.map(|clock| Bins::new(clock.wall_clock(), facts.groups.list.len()));
        let asked = asked(info, source, facts, (options, has_tables, bins))?;
        let mut sizes = Sizes::default();
        let end = facts.end();
        let mut pass = Pass::new(&mut facts.table, &facts.groups, asked);
        source.scan(&mem_columns(), |row: MemRow| {
            if row.source == Some(MemSource::SelfReported) {
                return pass.take_report(&row);
            }
            sizes.note(pass.take(&row), row.vm_size_bytes);
        })?;
        let seen = pass.finish(end);
        let span = hull(span_of(&facts.clock), seen.span);
        let clock = RunClock::new(info.clocks.clone(), span, is_closed(info));
        Ok(Self {
            seen,
            sizes,
            clock: clock.in_zone(options.zone.clone()),
            host_clock,
        })
    }
}

fn asked<S: RowSource>(
    info: &RunInfo,
    source: &S,
    facts: &Facts,
    (options, has_tables, bins): (&Options, bool, Option<Bins>),
) -> Result<Asked, S::Error> {
    let table = &facts.table;
    let mut held = HeldSum::default();
    let whole = Whole::of(info, facts.clock.start());
    held.prepare(source, table, &facts.execs, whole, None)?;
    let drawing = match options.has_curves {
        true => {
            let choice = Choice::of(source, table, &facts.groups)?;
            let foci = facts.foci.clone();
            let drawing = Drawing::new(choice, table, &facts.groups, &facts.clock, foci);
            Some(drawing)
        }
        false => None,
    };
    let victims = facts.kills.iter();
    let victims = victims.filter_map(|kill| table.find(kill.victim_upid?));
    let victims: HashSet<usize> = victims.collect();
    let instants = facts.instants.iter().copied();
    let held_at = conditions::instants(&facts.load, &facts.requests, facts.end());
    Ok(Asked {
        instants: instants.chain(facts.windows.instants()).collect(),
        boundaries: facts.phases.to_note(info.interval_ns),
        held,
        victims,
        has_tables,
        held_at: held_at.collect(),
        bins,
        drawing,
    })
}
