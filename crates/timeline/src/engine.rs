//! The sweep: what each process holds at every instant, and the sums of it.
//!
//! `mem` is a step function per process, so a sum changes by the difference that a row makes, and
//! a row costs the same whatever the number of processes.

use super::amounts::Turn;
use super::track::Member;
use super::{Amounts, Lane, LaneId, Lanes, Totals, Track};
use memtrace_model::{BootNs, Bytes};

/// What is known to happen at a time. At one time they come in this order, and before its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Planned {
    /// What a process holds for itself is part of another sum from then on.
    Move(usize, LaneId),
    /// A process ends.
    End(usize),
}

/// A process holds something else from a time on. `None` stands for nobody: before the first row
/// and after the end.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The time of the row.
    pub boot_ns: BootNs,
    /// The process, by its place in the table.
    pub process: usize,
    /// What it held until then.
    pub before: Option<&'a Amounts>,
    /// What it holds from then on.
    pub after: Option<&'a Amounts>,
    /// The time of the row before this one.
    pub since: BootNs,
}

/// Looks on, for what is no sum over processes.
pub trait Observe {
    /// When something of its own happens next, if that is before a time.
    fn next_change(&self, _until: BootNs) -> Option<BootNs> {
        None
    }

    /// Takes what is its own until and with a time.
    fn pass(&mut self, _until: BootNs) {}

    /// Somebody holds something else.
    fn changed(&mut self, change: Change<'_>);

    /// All rows of a time are in, and this holds from then on until another. Answers whether it
    /// is a maximum, of which [`State::at_maximum`] tells later who held what.
    fn holds(&mut self, from: BootNs, until: BootNs, state: &State) -> bool;

    /// A process has ended. Its curve is for the observer alone.
    fn ended(&mut self, _process: usize, _at: BootNs, _track: &Track) {}
}

/// What everybody holds.
#[derive(Clone, Debug)]
pub struct State {
    /// The sum over all processes.
    pub all: Lane,
    /// The sums over some of them.
    pub lanes: Lanes,
    /// Each process, by its place in the table.
    pub processes: Vec<Track>,
    maximum: u32,
}

impl State {
    /// The sum over all processes.
    pub fn totals(&self) -> &Totals {
        &self.all.now
    }

    /// Who holds anything, or may.
    pub fn now(&self) -> Vec<(usize, Amounts)> {
        self.those(|track| track.held.now())
    }

    /// Who held anything at the newest maximum, or may have.
    pub fn at_maximum(&self) -> Vec<(usize, Amounts)> {
        self.those(|track| track.held.at(self.maximum))
    }

    fn those(&self, amounts: impl Fn(&Track) -> &Amounts) -> Vec<(usize, Amounts)> {
        let all = self.processes.iter().map(|track| *amounts(track));
        all.enumerate()
            .filter(|(_, held)| held.rss() != Some(Bytes(0)))
            .collect()
    }
}

/// Goes over rows in the order of time.
#[derive(Clone, Debug)]
pub struct Sweep<O> {
    /// Sees each change.
    pub observer: O,
    /// What everybody holds now.
    pub state: State,
    /// The latest first.
    planned: Vec<(BootNs, Planned)>,
    /// The time of the rows that are being taken; `None` before the first one.
    now: Option<BootNs>,
}

impl<O: Clone> Sweep<O> {
    /// A copy that has no curves, and keeps none: they take most of the memory.
    pub fn without_curves(&mut self) -> Self {
        let tracks = self.state.processes.iter_mut();
        let curves: Vec<_> = tracks.map(|track| track.curve.take()).collect();
        let mut copy = self.clone();
        for (track, curve) in self.state.processes.iter_mut().zip(curves) {
            track.curve = curve;
        }
        for track in &mut copy.state.processes {
            track.member.has_curve = false;
        }
        copy
    }
}

impl<O: Observe> Sweep<O> {
    /// Nobody is there yet.
    pub fn new(observer: O, all: Lane) -> Self {
        let state = State {
            all,
            lanes: Lanes::default(),
            processes: Vec::new(),
            maximum: 0,
        };
        Self {
            observer,
            state,
            planned: Vec::new(),
            now: None,
        }
    }

    /// Adds a process; its place is how many there were.
    pub fn enter(&mut self, member: Member) {
        self.state.processes.push(Track::new(member));
    }

    /// Says what is going to happen.
    pub fn plan(&mut self, planned: impl Iterator<Item = (BootNs, Planned)>) {
        self.planned.extend(planned);
        self.planned.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// The time of the last row.
    pub fn last(&self) -> Option<BootNs> {
        self.now
    }

    /// From when on a row counts. In a storm of rows one can come too late for its place: it
    /// counts from now on.
    pub fn time_of(&self, boot_ns: BootNs) -> BootNs {
        self.now.map_or(boot_ns, |now| now.max(boot_ns))
    }

    /// A process holds this from a time on.
    pub fn row(&mut self, boot_ns: BootNs, process: usize, held: Amounts) {
        let time = self.time_of(boot_ns);
        self.carry_out(time);
        self.move_to(time);
        self.now = Some(time);
        let track = &mut self.state.processes[process];
        track.saw(&held, boot_ns);
        if !track.has_ended {
            self.change(process, Some(&held), time);
        }
    }

    /// A process measured itself. Before its first row it is not there: until its exec, a command
    /// is not even itself.
    pub fn measured(&mut self, at: BootNs, process: usize, rss: Bytes, anon: Option<Bytes>) {
        self.carry_out(at);
        let held = self.state.processes.get(process).and_then(Track::held);
        if let Some(held) = held {
            let held = held.measured(rss, anon);
            self.row(at, process, held);
        }
    }

    /// Takes what is planned until and with a time.
    fn carry_out(&mut self, time: BootNs) {
        while let Some((at, planned)) = self.planned.pop_if(|(at, _)| *at <= time) {
            let at = self.time_of(at);
            self.move_to(at);
            match planned {
                Planned::Move(process, lane) => self.move_between(process, lane, at),
                Planned::End(process) => self.end(process, at),
            }
        }
    }

    /// The recording is over, and this is all.
    pub fn finish(&mut self, end: BootNs) {
        self.carry_out(end);
        self.move_to(end);
        self.settle(end);
        self.state.all.finish(end);
        self.state.lanes.finish(end);
        for track in &mut self.state.processes {
            track.finish(end);
        }
    }

    fn move_to(&mut self, time: BootNs) {
        while let Some(at) = self.observer.next_change(time) {
            self.step_to(at);
            self.observer.pass(at);
        }
        self.step_to(time);
        self.observer.pass(time);
    }

    fn step_to(&mut self, time: BootNs) {
        if self.now.is_some_and(|now| now < time) {
            self.settle(time);
        }
    }

    /// All rows of one time are in, and what they say holds until another.
    fn settle(&mut self, until: BootNs) {
        let Some(now) = self.now else { return };
        self.now = Some(until);
        let state = &mut self.state;
        state.maximum += u32::from(self.observer.holds(now, until, state));
        state.lanes.pass();
    }

    fn end(&mut self, process: usize, at: BootNs) {
        let track = &mut self.state.processes[process];
        track.has_ended = true;
        track.at_end = *track.held.now();
        if track.is_present {
            self.change(process, None, at);
        }
        let track = &mut self.state.processes[process];
        self.observer.ended(process, at, track);
        // Its memory is for the next one.
        track.curve = None;
    }

    fn move_between(&mut self, process: usize, lane: LaneId, at: BootNs) {
        let track = &mut self.state.processes[process];
        let before = track.member.own.replace(lane);
        if track.is_present {
            let lanes = &mut self.state.lanes;
            let own = track.own_now();
            if let Some(before) = before {
                lanes.change(before, &Turn::new(own, None), at);
            }
            lanes.change(lane, &Turn::new(None, own), at);
        }
    }

    /// A process holds something else from `time` on; `None` when it has ended.
    fn change(&mut self, process: usize, after: Option<&Amounts>, time: BootNs) {
        let State {
            all,
            lanes,
            processes,
            maximum,
        } = &mut self.state;
        let track = &mut processes[process];
        let since = track.since;
        track.hold_until(time);
        let before = track.held();
        self.observer.changed(Change {
            boot_ns: time,
            process,
            before,
            after,
            since,
        });
        let turn = Turn::new(before, after);
        all.change(&turn, time);
        for &lane in track.member.whole.iter() {
            lanes.change(lane, &turn, time);
        }
        let own = after.and_then(|after| track.own_of(after));
        if let Some(lane) = track.member.own {
            match (track.own.as_deref(), own.as_ref()) {
                (None, None) => lanes.change(lane, &turn, time),
                (was, is) => lanes.change(lane, &Turn::new(was.or(before), is.or(after)), time),
            }
        }
        track.own = own.map(Box::new);
        track.held.set(*after.unwrap_or(&Amounts::NONE), *maximum);
        track.is_present = after.is_some();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrace_model::Kind;
    use memtrace_model::tables::MemRow;
    use std::sync::Arc;

    /// What was held, from when until when.
    #[derive(Debug, Default)]
    struct Seen(Vec<(i64, i64, i64)>);

    impl Observe for Seen {
        fn changed(&mut self, _change: Change<'_>) {}

        fn holds(&mut self, from: BootNs, until: BootNs, state: &State) -> bool {
            let held = state.totals().rss_or_zero();
            let is_maximum = self.0.iter().all(|(.., before)| *before < held);
            self.0.push((from.0, until.0, held));
            is_maximum
        }
    }

    fn holds(bytes: i64) -> Amounts {
        Amounts::of(&MemRow {
            rss_bytes: Some(Bytes(bytes)),
            ..MemRow::default()
        })
    }

    /// Two processes, each in a sum of its own, until `planned` says otherwise.
    fn swept(
        planned: impl FnOnce([LaneId; 2]) -> Vec<(i64, Planned)>,
        rows: &[(i64, usize, i64)],
    ) -> (Sweep<Seen>, [LaneId; 2]) {
        let none = Arc::default();
        let mut sweep = Sweep::new(Seen::default(), Lane::of_kinds(&none));
        let lanes = [0; 2].map(|_| {
            let lane = Lane::of_kinds(&none).with_course(Some(BootNs(50)));
            sweep.state.lanes.add(lane)
        });
        for lane in lanes {
            sweep.enter(Member {
                own: Some(lane),
                ..Member::default()
            });
        }
        let planned = planned(lanes).into_iter();
        sweep.plan(planned.map(|(at, planned)| (BootNs(at), planned)));
        for &(at, process, bytes) in rows {
            sweep.row(BootNs(at), process, holds(bytes));
        }
        sweep.finish(BootNs(100));
        (sweep, lanes)
    }

    fn highest(sweep: &Sweep<Seen>, lane: LaneId) -> Option<(i64, i64)> {
        let high = sweep.state.lanes[lane].highest[Kind::Rss]?;
        Some((high.bytes.0, high.boot_ns.0))
    }

    #[test]
    fn rows_of_one_time_belong_together_and_late_ones_count_from_then_on() {
        let rows = [(10, 0, 5), (10, 1, 7), (20, 0, 1), (20, 1, 9), (15, 0, 2)];
        let (sweep, _) = swept(|_| Vec::new(), &rows);
        let held = [(10, 20, 12), (20, 100, 11), (100, 100, 11)];
        assert_eq!(sweep.observer.0, held);
        assert_eq!(sweep.state.at_maximum(), [(0, holds(5)), (1, holds(7))]);
        assert_eq!(sweep.state.now(), [(0, holds(2)), (1, holds(9))]);
    }

    #[test]
    fn who_ends_is_gone_before_the_rows_of_that_time_and_does_not_come_back() {
        let ends = |_| vec![(20, Planned::End(0))];
        let rows = [(10, 0, 5), (20, 0, 6), (20, 1, 7), (30, 0, 8)];
        let (sweep, [first, second]) = swept(ends, &rows);
        let held: Vec<i64> = sweep.observer.0.iter().map(|(.., held)| *held).collect();
        assert_eq!(held, [5, 7, 7, 7]);
        assert_eq!(highest(&sweep, first), Some((5, 10)));
        assert_eq!(highest(&sweep, second), Some((7, 20)));
        let track = &sweep.state.processes[0];
        assert_eq!((track.at_end, track.row_count), (holds(5), 3));
        assert_eq!(
            track.highest,
            holds(8),
            "a row tells of its process also then"
        );
    }

    #[test]
    fn what_a_process_holds_goes_along_to_another_sum_and_means_end_where_they_shall() {
        let moves = |[_, second]: [LaneId; 2]| vec![(30, Planned::Move(0, second))];
        let (sweep, lanes) = swept(moves, &[(10, 0, 5), (20, 1, 2)]);
        assert_eq!(highest(&sweep, lanes[0]), Some((5, 10)));
        assert_eq!(highest(&sweep, lanes[1]), Some((7, 30)));
        let byte_ns = lanes.map(|lane| {
            let course = sweep.state.lanes[lane].course.as_ref().expect("a course");
            course.kinds[Kind::Rss].byte_ns
        });
        assert_eq!(byte_ns, [5 * 20, 2 * 10 + 7 * 20]);
    }

    #[test]
    fn what_a_process_measured_counts_once_it_has_a_row() {
        let (mut sweep, _) = swept(|_| Vec::new(), &[(10, 0, 5)]);
        sweep.measured(BootNs(110), 1, Bytes(9), None);
        sweep.measured(BootNs(120), 0, Bytes(6), None);
        assert_eq!(sweep.state.now(), [(0, holds(6))]);
    }

    #[test]
    fn of_a_copy_that_exec_replaces_only_what_it_grew_by_is_its_own() {
        let mut sweep = Sweep::new(Seen::default(), Lane::of_rss());
        let lane = sweep.state.lanes.add(Lane::of_rss());
        sweep.enter(Member {
            own: Some(lane),
            copy_until: Some(BootNs(30)),
            ..Member::default()
        });
        for (at, bytes) in [(10, 600), (20, 607), (30, 1), (40, 5)] {
            sweep.row(BootNs(at), 0, holds(bytes));
        }
        sweep.finish(BootNs(100));
        assert_eq!(highest(&sweep, lane), Some((7, 20)));
        assert_eq!(
            sweep.state.all.highest[Kind::Rss].map(|high| high.bytes.0),
            Some(607)
        );
    }
}
