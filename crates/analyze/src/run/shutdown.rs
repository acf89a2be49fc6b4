//! How a recording ended that ended with its main processes: from when on their tree only ended, and what
//! it had before it gave everything back.
//!
//! No row says that a tree shuts down. What the rows do say is when it last worked: a process started, a
//! phase began, a moment was marked, or memory grew. The shutdown begins with the first process that ends
//! after that and gives back memory, at most ten seconds before the last.

use crate::clock::RunClock;
use crate::moment::SECOND_NS;
use crate::process::Process;
use crate::process_table::ProcessTable;
use memtrace_model::tables::{MemRow, MemSource};
use memtrace_model::{BootNs, Bytes, DurationNs, Kind, Order, RowSource};
use std::cmp::Reverse;
use std::collections::VecDeque;

/// What ends longer before the command, or after it, is no part of its end.
const LONGEST_END_NS: i64 = 10 * SECOND_NS;

/// Who ends lets go of some of its memory by itself before that, for no longer than this.
const LAST: DurationNs = DurationNs(SECOND_NS);

/// Changes up to this part, and up to this amount, are none. A process has a row when it moved by 1/128,
/// so two rows can be off by twice that; and who tells of a phase, such as `memtrace mark`, has a few MiB
/// and is gone at once.
const ABOUT_PART: i64 = 64;
const ABOUT_BYTES: Bytes = Bytes(8 << 20);

/// What a process gives back as it ends it gives back faster than that.
const GIVEN_BACK: DurationNs = DurationNs(50_000_000);

fn about(amount: Bytes) -> Bytes {
    ABOUT_BYTES.max(Bytes(amount.0 / ABOUT_PART))
}

/// When main processes ended, and who ended before them.
pub(super) struct Tail {
    /// When the last of them ended.
    end: BootNs,
    /// When their last second began.
    last: BootNs,
    /// When the last process started, the last phase began, or the last moment was marked; the earliest that
    /// a shutdown can begin where that was longer ago.
    worked_until: BootNs,
    /// When which process ended before that end, the last first.
    exits: Vec<(BootNs, usize)>,
}

impl Tail {
    /// `None` where the recording did not end with its main processes. `begins` are those of phases, and moments.
    pub(super) fn of(
        table: &ProcessTable,
        clock: &RunClock,
        begins: impl Iterator<Item = BootNs>,
    ) -> Option<Self> {
        let mains = table.processes.iter().filter(|process| process.is_main);
        let ends: Option<Vec<BootNs>> = mains.map(Process::exit_boot_ns).collect();
        let end = ends?.into_iter().max()?;
        if (clock.end() - end).0 > LONGEST_END_NS {
            return None;
        }
        let starts = table.processes.iter().map(|process| process.start.boot_ns);
        let work = begins.chain(starts).filter(|at| *at <= end);
        let exits = table.processes.iter().enumerate();
        let exits = exits.filter_map(|(place, process)| Some((process.exit_boot_ns()?, place)));
        let mut exits: Vec<_> = exits.filter(|(exit, _)| *exit < end).collect();
        exits.order_by_key(|exit| Reverse(*exit));
        Some(Self {
            end,
            last: clock.start().max(end + DurationNs(-LAST.0)),
            worked_until: work.fold(end + DurationNs(-LONGEST_END_NS), BootNs::max),
            exits,
        })
    }

    /// Before that no shutdown begins.
    pub(super) fn earliest(&self) -> BootNs {
        let exits = self.exits.iter().rev().map(|(exit, _)| *exit);
        let mut late = exits.filter(|exit| *exit > self.worked_until);
        late.next().unwrap_or(self.end)
    }

    pub(super) fn read<S: RowSource>(
        mut self,
        source: &S,
        table: &ProcessTable,
    ) -> Result<Shutdown, S::Error> {
        let mut tree = Tree::of(table.processes.len(), self.last);
        let columns = [
            "boot_ns",
            "upid",
            Kind::Rss.column(),
            Kind::File.column(),
            "source",
        ];
        source.scan(&columns, |row: MemRow| {
            while let Some((exit, place)) = self.exits.pop_if(|(exit, _)| *exit <= row.boot_ns) {
                tree.exit(exit, place, exit > self.worked_until);
            }
            let (Some(place), Some(now)) = (table.find(row.upid), Sums::of(&row)) else {
                return;
            };
            let process = &table.processes[place];
            let ended = process.exit_boot_ns();
            let is_over =
                row.boot_ns >= self.end || ended.is_some_and(|ended| ended <= row.boot_ns);
            if !is_over && row.source != Some(MemSource::SelfReported) {
                let is_copy = process.copy_until.is_some_and(|until| row.boot_ns < until);
                tree.change(row.boot_ns, place, now, is_copy);
            }
        })?;
        while let Some((exit, place)) = self.exits.pop() {
            tree.exit(exit, place, exit > self.worked_until);
        }
        Ok(tree.finish(self.end))
    }
}

/// When a tree began to end, and what it had before.
pub(super) struct Shutdown {
    /// When the first process ended; the end of the main processes where no other gave back memory.
    begin: BootNs,
    /// What was held in the second before, each less than the one before it: a higher one that follows
    /// hides a lower one.
    levels: VecDeque<Level>,
    /// When the tree had most in RSS in the last second of the main processes; where it had as much
    /// several times, the last.
    highest: BootNs,
}

impl Shutdown {
    pub(super) fn begin(&self) -> BootNs {
        self.begin
    }

    pub(super) fn highest(&self) -> BootNs {
        self.highest
    }

    /// Until when, from an instant on, the tree had about the most of what it had before it began to end.
    /// `None` after that.
    pub(super) fn highest_since(&self, from: BootNs) -> Option<BootNs> {
        let past = self.levels.partition_point(|level| level.until <= from);
        let most = self.levels.get(past)?.lasting;
        let enough = most - about(most);
        let mut last = self
            .levels
            .partition_point(|level| level.lasting >= enough)
            .checked_sub(1)?;
        // Who ends gives back a part at a time.
        while last > past && self.levels[last].follows_soon(self.levels[last - 1]) {
            last -= 1;
        }
        let until = self.levels[last].until;
        (from < self.begin).then(|| from.max(BootNs(until.0 - 1)))
    }
}

/// What a tree held for some time, but for files, which the kernel can take back; RSS where no kinds are
/// known.
#[derive(Clone, Copy)]
struct Level {
    at: BootNs,
    /// When that changed.
    until: BootNs,
    lasting: Bytes,
}

impl Level {
    /// Whether it is a part of what is given back from another one on.
    fn follows_soon(self, before: Self) -> bool {
        before.until == self.at && self.until - self.at < GIVEN_BACK
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    rss: Bytes,
    lasting: Bytes,
}

impl Sums {
    fn of(row: &MemRow) -> Option<Self> {
        let rss = row.rss_bytes?;
        let files = row.rss_file_bytes.unwrap_or_default();
        let lasting = rss - files;
        Some(Self { rss, lasting })
    }

    fn replace(&mut self, before: Self, now: Self) {
        self.rss = self.rss + now.rss - before.rss;
        self.lasting = self.lasting + now.lasting - before.lasting;
    }
}

/// What the processes of a tree hold while its rows are read.
struct Tree {
    /// When the last second of the main processes began.
    last: BootNs,
    sums: Sums,
    /// What each holds, and the most that it held itself.
    each: Vec<(Sums, Bytes)>,
    /// The most RSS in the last second, and when.
    highest: (Bytes, BootNs),
    /// What was held in the second until now.
    levels: VecDeque<Level>,
    ends: Option<Ends>,
}

/// Processes that end one after the other, without any work between.
struct Ends {
    begin: BootNs,
    /// What was held in the second before.
    levels: VecDeque<Level>,
    /// The least that was held since.
    lowest: Bytes,
}

impl Tree {
    fn of(process_count: usize, last: BootNs) -> Self {
        let nothing = Level {
            at: BootNs(i64::MIN),
            until: BootNs(i64::MAX),
            lasting: Bytes(0),
        };
        Self {
            last,
            sums: Sums::default(),
            each: vec![Default::default(); process_count],
            highest: (Bytes(0), last),
            levels: VecDeque::from([nothing]),
            ends: None,
        }
    }

    fn change(&mut self, at: BootNs, place: usize, now: Sums, is_copy: bool) {
        let (before, most) = &mut self.each[place];
        if !is_copy {
            *most = now.lasting.max(*most);
        }
        self.sums.replace(std::mem::replace(before, now), now);
        let rss = self.sums.rss;
        if at <= self.last || rss >= self.highest.0 {
            self.highest = (rss, at.max(self.last));
        }
        self.note(at);
    }

    fn exit(&mut self, at: BootNs, place: usize, is_after_work: bool) {
        let (_, most) = self.each[place];
        let can_begin = is_after_work && most >= ABOUT_BYTES && self.ends.is_none();
        if can_begin {
            self.close(at);
            self.ends = Some(Ends {
                begin: at,
                levels: self.levels.clone(),
                lowest: self.sums.lasting,
            });
        }
        self.change(at, place, Sums::default(), true);
    }

    /// What was held until now was held until then.
    fn close(&mut self, at: BootNs) {
        if let Some(level) = self.levels.back_mut() {
            level.until = at;
        }
        let from = at + DurationNs(-LAST.0);
        while self.levels.len() > 1 && self.levels[0].until <= from {
            self.levels.pop_front();
        }
    }

    fn note(&mut self, at: BootNs) {
        self.close(at);
        let lasting = self.sums.lasting;
        while self
            .levels
            .back()
            .is_some_and(|level| level.lasting <= lasting)
        {
            self.levels.pop_back();
        }
        self.levels.push_back(Level {
            at,
            until: BootNs(i64::MAX),
            lasting,
        });
        if let Some(ends) = &mut self.ends {
            ends.lowest = lasting.min(ends.lowest);
            if lasting > ends.lowest + about(ends.lowest) {
                self.ends = None;
            }
        }
    }

    fn finish(mut self, end: BootNs) -> Shutdown {
        self.close(end);
        let (begin, levels) = match self.ends {
            Some(ends) => (ends.begin, ends.levels),
            None => (end, self.levels),
        };
        Shutdown {
            begin,
            levels,
            highest: self.highest.1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: i64 = 1_000_000;
    const END: BootNs = BootNs(1_000 * MS);

    fn change(tree: &mut Tree, place: usize, at: i64, mib: i64) {
        let lasting = Bytes(mib << 20);
        let rss = lasting;
        tree.change(BootNs(at * MS), place, Sums { rss, lasting }, false);
    }

    /// What one process held that ended after a second.
    fn held(steps: &[(i64, i64)]) -> Shutdown {
        let mut tree = Tree::of(1, BootNs(0));
        for &(at, mib) in steps {
            change(&mut tree, 0, at, mib);
        }
        tree.finish(END)
    }

    fn since(shutdown: &Shutdown, from: i64) -> Option<i64> {
        let until = shutdown.highest_since(BootNs(from * MS))?;
        Some((until.0 + 1) / MS)
    }

    #[test]
    fn what_was_open_ends_when_the_tree_has_about_the_most_for_the_last_time() {
        let steps = [(100, 50), (200, 93), (250, 88), (300, 70), (500, 1)];
        let last = held(&steps);
        assert_eq!(last.highest(), BootNs(200 * MS));
        assert_eq!(since(&last, 20), Some(300), "it began before");
        assert_eq!(since(&last, 290), Some(300));
        assert_eq!(since(&last, 310), Some(500));
        assert_eq!(since(&last, 600), Some(1_000), "nothing moved");
        assert_eq!(since(&last, 1_000), None);
    }

    #[test]
    fn what_is_given_back_a_part_at_a_time_is_no_part_of_it() {
        let last = held(&[(100, 200), (500, 198), (502, 196), (504, 90), (505, 1)]);
        assert_eq!(since(&last, 20), Some(500));
    }

    #[test]
    fn a_second_in_which_nothing_moved_has_most_at_its_start() {
        let last = held(&[(-10, 50)]);
        assert_eq!(last.highest(), BootNs(0));
        assert_eq!(since(&last, 3), Some(1_000));
    }

    /// Two workers end 20 ms and 40 ms after the start, and the main process has `after` then.
    fn ends(after: &[(i64, i64)], is_after_work: bool) -> Option<i64> {
        let mut tree = Tree::of(3, BootNs(0));
        for (place, mib) in [(0, 300), (1, 200), (2, 100)] {
            change(&mut tree, place, 1, mib);
        }
        tree.exit(BootNs(20 * MS), 1, is_after_work);
        tree.exit(BootNs(40 * MS), 2, is_after_work);
        for &(at, mib) in after {
            change(&mut tree, 0, at, mib);
        }
        let shutdown = tree.finish(END);
        (shutdown.begin() < END).then_some(shutdown.begin().0 / MS)
    }

    #[test]
    fn a_tree_shuts_down_from_the_first_end_after_which_it_only_ends() {
        assert_eq!(ends(&[], true), Some(20));
        assert_eq!(ends(&[(60, 303)], true), Some(20), "no work");
        assert_eq!(ends(&[(60, 400)], true), None, "it grew");
        assert_eq!(ends(&[(60, 100), (70, 150)], true), None, "it grew again");
        assert_eq!(ends(&[], false), None);
    }

    #[test]
    fn the_end_of_a_small_process_does_not_begin_a_shutdown() {
        let mut tree = Tree::of(2, BootNs(0));
        change(&mut tree, 0, 1, 300);
        change(&mut tree, 1, 2, 6);
        tree.exit(BootNs(20 * MS), 1, true);
        assert_eq!(tree.finish(END).begin(), END);
    }

    /// The same by looking at every step from an instant on.
    fn naive(steps: &[(i64, i64)], from: i64) -> i64 {
        let past = steps.iter().rposition(|(at, _)| *at <= from).unwrap_or(0);
        let steps = &steps[past..];
        let most = steps.iter().map(|(_, mib)| Bytes(*mib << 20)).max();
        let most = most.unwrap_or_default();
        let is_enough = |mib: i64| Bytes(mib << 20) >= most - about(most);
        let last = steps.iter().rposition(|(_, mib)| is_enough(*mib));
        let mut last = last.unwrap_or(0);
        let until = |place: usize| steps.get(place + 1).map_or(END.0 / MS, |(at, _)| *at);
        let is_part = |last: usize| {
            let is_soon = (until(last) - steps[last].0) * MS < GIVEN_BACK.0;
            is_soon && steps[last - 1].1 > steps[last].1
        };
        while last > 0 && is_part(last) {
            last -= 1;
        }
        until(last)
    }

    proptest! {
        #[test]
        fn the_levels_that_are_kept_find_what_looking_at_all_finds(
            steps in prop::collection::btree_map(1..1_000_i64, 0..100_i64, 1..300),
            from in 0..1_000_i64,
        ) {
            let steps: Vec<_> = [(0, 0)].into_iter().chain(steps).collect();
            prop_assert_eq!(since(&held(&steps), from), Some(naive(&steps, from)));
        }
    }

    #[test]
    fn no_more_levels_are_kept_than_of_the_second_before() {
        let mut tree = Tree::of(1, BootNs(0));
        for at in 0..20_000 {
            change(&mut tree, 0, at - 19_000, 40_000 - at);
        }
        assert_eq!(tree.finish(END).levels.len(), 1_000);
        let mut tree = Tree::of(1, BootNs(0));
        for at in 0..20_000 {
            change(&mut tree, 0, at - 19_000, at);
        }
        assert_eq!(tree.finish(END).levels.len(), 1);
    }
}
