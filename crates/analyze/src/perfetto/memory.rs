//! Memory over time: what each process holds, and what the processes of each role hold together. The
//! one pass over `mem`.

use super::counter::KindCounters;
use super::processes::ProcessTracks;
use crate::groups::Groups;
use crate::process_table::ProcessTable;
use crate::run::mem_columns;
use memtrace_model::tables::{MemRow, MemSource};
use memtrace_model::{BootNs, Bytes, Kind, Label, RowSource};
use memtrace_perfetto::{Trace, Track};
use memtrace_timeline::{Amounts, Change, Lane, LaneId, Member, Observe, Planned, State, Sweep};
use std::sync::Arc;

/// What a sum says of itself, wherever it is shown.
const SUM: &str = "The RSS of its processes added up, as psutil would: a page that several of them \
                   map counts in each.";

/// Writes every change, and answers what was measured of each process.
pub(super) fn write<S: RowSource>(
    trace: &mut Trace<'_>,
    source: &S,
    (table, groups, tracks): (&mut ProcessTable, &Groups, &mut ProcessTracks),
    end: BootNs,
) -> Result<Vec<memtrace_timeline::Track>, S::Error> {
    let counters = Counters {
        trace,
        tracks,
        changed: Vec::new(),
        processes: Vec::new(),
        roles: Roles::of(groups),
    };
    let mut sweep = Sweep::new(counters, Lane::of_rss());
    let none = Arc::default();
    let lanes = groups.list.iter().map(|_| {
        let lane = Lane::of_kinds(&none).with_course(None);
        sweep.state.lanes.add(lane)
    });
    let lanes: Vec<LaneId> = lanes.collect();
    let mut ends = Vec::new();
    for (position, process) in table.processes.iter().enumerate() {
        let group = groups.first.get(position);
        sweep.enter(Member {
            own: group.map(|group| lanes[*group as usize]),
            copy_until: process.copy_until,
            ..Member::default()
        });
        let exit = process.exit_boot_ns();
        ends.extend(exit.map(|exit| (exit, Planned::End(position))));
    }
    let role_changes = groups.role_changes().into_iter();
    let role_changes = role_changes
        .map(|(at, process, group)| (at, Planned::Move(process, lanes[group as usize])));
    sweep.plan(role_changes.chain(ends));
    source.scan(&mem_columns(), |row: MemRow| {
        if row.source == Some(MemSource::SelfReported) {
            if let Some((position, rss, anon)) = table.self_reported(&row) {
                sweep.measured(row.boot_ns, position, rss, anon);
            }
            return;
        }
        let position = table.position(row.upid, row.boot_ns);
        if position == sweep.state.processes.len() {
            sweep.enter(Member::default());
        }
        sweep.row(row.boot_ns, position, Amounts::of(&row));
    })?;
    let end = sweep.time_of(end);
    sweep.finish(end);
    Ok(sweep.state.processes)
}

/// Writes while the sweep goes on.
struct Counters<'t, 'o> {
    trace: &'t mut Trace<'o>,
    tracks: &'t mut ProcessTracks,
    /// Whose memory changed at the time whose rows come in.
    changed: Vec<usize>,
    /// By position in the process table.
    processes: Vec<KindCounters>,
    roles: Roles,
}

impl Observe for Counters<'_, '_> {
    fn changed(&mut self, change: Change<'_>) {
        self.changed.push(change.process);
    }

    fn holds(&mut self, from: BootNs, _until: BootNs, state: &State) -> bool {
        for position in self.changed.drain(..) {
            // What has ended holds nothing.
            let own = state.processes[position].own_now();
            let own = own.unwrap_or(&Amounts::NONE);
            if position >= self.processes.len() {
                self.processes.resize(position + 1, KindCounters::default());
            }
            let counters = &mut self.processes[position];
            let tracks = &mut self.tracks;
            counters.note(
                self.trace,
                from,
                |kind| own.get(kind),
                |trace, kind| {
                    let parent = tracks.of(trace, position);
                    trace.counter(Some(parent), kind.as_str(), None)
                },
            );
        }
        for &lane in state.lanes.changed() {
            let held = |kind| state.lanes[lane].now.known(kind);
            self.roles.note(self.trace, from, lane.place(), held);
        }
        false
    }
}

/// The roles, each with its counters. Roles have the first places among the sums.
#[derive(Debug)]
struct Roles {
    /// Under which they stand.
    all: Option<Track>,
    list: Vec<Role>,
}

#[derive(Debug)]
struct Role {
    name: Arc<str>,
    track: Option<Track>,
    counters: KindCounters,
}

impl Roles {
    fn of(groups: &Groups) -> Self {
        let roles = groups.list.iter().map(|group| Role {
            name: Arc::clone(&group.name),
            track: None,
            counters: KindCounters::default(),
        });
        Self {
            all: None,
            list: roles.collect(),
        }
    }

    fn note(
        &mut self,
        trace: &mut Trace<'_>,
        at: BootNs,
        place: usize,
        held: impl Fn(Kind) -> Option<Bytes>,
    ) {
        let Some(role) = self.list.get_mut(place) else {
            return;
        };
        let (all, track, name) = (&mut self.all, &mut role.track, &role.name);
        role.counters.note(trace, at, held, |trace, kind| {
            let all = *all.get_or_insert_with(|| trace.track(None, "roles"));
            let parent = *track.get_or_insert_with(|| trace.track(Some(all), name));
            let name = format!("sum of {}", kind.as_str());
            trace.counter(Some(parent), &name, Some(SUM).filter(|_| kind == Kind::Rss))
        });
    }
}
