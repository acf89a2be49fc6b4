//! How a recording ended that ended with its main processes: what their tree had before it gave
//! everything back.

use crate::clock::RunClock;
use crate::moment::SECOND_NS;
use crate::process::Process;
use crate::process_table::ProcessTable;
use memtrace_model::tables::{MemRow, MemSource};
use memtrace_model::{BootNs, Bytes, DurationNs, Kind, Order, RowSource};
use std::cmp::Reverse;

/// What a command leaves ends this much later; what runs for longer is no longer its end.
const LONGEST_END_NS: i64 = 10 * SECOND_NS;

/// What is open goes on while there is no less than the most by more than this part, and this amount: who
/// tells of it can have that, and is gone at once.
const LESS_PART: i64 = 16;
const LESS_BYTES: i64 = 4 << 20;
/// What a process gives back as it ends it gives back faster than that.
const GIVEN_BACK: DurationNs = DurationNs(50_000_000);

/// What the tree had in the last second of its main processes.
pub(super) struct LastSecond {
    /// When the last of them ended.
    end: BootNs,
    /// What was held when the second began, then each change in it.
    steps: Vec<(BootNs, Sums)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    rss: Bytes,
    /// All but files, which the kernel can take back; RSS where no kinds are known.
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

impl LastSecond {
    /// `None` where the recording did not end with its main processes.
    pub(super) fn read<S: RowSource>(
        source: &S,
        table: &ProcessTable,
        clock: &RunClock,
    ) -> Result<Option<Self>, S::Error> {
        let mains = table.processes.iter().filter(|process| process.is_main);
        let ends: Option<Vec<BootNs>> = mains.map(Process::exit_boot_ns).collect();
        let end = ends.and_then(|ends| ends.into_iter().max());
        let Some(end) = end.filter(|end| (clock.end() - *end).0 <= LONGEST_END_NS) else {
            return Ok(None);
        };
        let begin = clock.start().max(end + DurationNs(-SECOND_NS));
        let exits = table.processes.iter().enumerate();
        let exits = exits.filter_map(|(place, process)| Some((process.exit_boot_ns()?, place)));
        let mut exits: Vec<_> = exits.filter(|(exit, _)| *exit < end).collect();
        exits.order_by_key(|exit| Reverse(*exit));
        let mut each = vec![Sums::default(); table.processes.len()];
        let mut sums = Sums::default();
        let mut steps = vec![(begin, sums)];
        let mut change = |at: BootNs, place: usize, now: Sums| {
            sums.replace(std::mem::replace(&mut each[place], now), now);
            match at > begin {
                true => steps.push((at, sums)),
                false => steps[0].1 = sums,
            }
        };
        let columns = [
            "boot_ns",
            "upid",
            Kind::Rss.column(),
            Kind::File.column(),
            "source",
        ];
        source.scan(&columns, |row: MemRow| {
            while let Some((exit, place)) = exits.pop_if(|(exit, _)| *exit <= row.boot_ns) {
                change(exit, place, Sums::default());
            }
            let (Some(place), Some(now)) = (table.find(row.upid), Sums::of(&row)) else {
                return;
            };
            let ended = table.processes[place].exit_boot_ns();
            let is_over = row.boot_ns >= end || ended.is_some_and(|ended| ended <= row.boot_ns);
            if !is_over && row.source != Some(MemSource::SelfReported) {
                change(row.boot_ns, place, now);
            }
        })?;
        while let Some((exit, place)) = exits.pop() {
            change(exit, place, Sums::default());
        }
        Ok(Some(Self { end, steps }))
    }

    /// When it had most in RSS; where it had as much several times, the last.
    pub(super) fn highest(&self) -> BootNs {
        let steps = self.steps.iter();
        let highest = steps.max_by_key(|(at, sums)| (sums.rss, *at));
        highest.map_or(self.end, |(at, _)| *at)
    }

    /// Until when it had about the most of what it had from an instant on. `None` after the end.
    pub(super) fn highest_since(&self, from: BootNs) -> Option<BootNs> {
        let past = self.steps.partition_point(|(at, _)| *at <= from);
        let steps = &self.steps[past.saturating_sub(1)..];
        let most = steps.iter().map(|(_, sums)| sums.lasting).max()?;
        let enough = most.0 - LESS_BYTES.max(most.0 / LESS_PART);
        let mut last = steps
            .iter()
            .rposition(|(_, sums)| sums.lasting.0 >= enough)?;
        let until = |place: usize| steps.get(place + 1).map_or(self.end, |(next, _)| *next);
        // Who ends gives back a part at a time.
        while last > 0
            && steps[last - 1].1.lasting > steps[last].1.lasting
            && until(last) - steps[last].0 < GIVEN_BACK
        {
            last -= 1;
        }
        (from < self.end).then(|| from.max(BootNs(until(last).0 - 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn last_second(steps: &[(i64, i64)]) -> LastSecond {
        let steps = steps.iter().map(|&(at, mib)| {
            let lasting = Bytes(mib << 20);
            let rss = lasting;
            (BootNs(at * MS), Sums { rss, lasting })
        });
        LastSecond {
            end: BootNs(1_000 * MS),
            steps: steps.collect(),
        }
    }

    fn since(last: &LastSecond, from: i64) -> Option<i64> {
        let until = last.highest_since(BootNs(from * MS))?;
        Some((until.0 + 1) / MS)
    }

    #[test]
    fn what_was_open_ends_when_the_tree_has_about_the_most_for_the_last_time() {
        let steps = [(100, 50), (200, 93), (250, 90), (300, 70), (500, 1)];
        let last = last_second(&steps);
        assert_eq!(last.highest(), BootNs(200 * MS));
        assert_eq!(since(&last, 20), Some(300), "it began before");
        assert_eq!(since(&last, 290), Some(300));
        assert_eq!(since(&last, 310), Some(500));
        assert_eq!(since(&last, 600), Some(1_000), "nothing moved");
        assert_eq!(since(&last, 1_000), None);
    }

    #[test]
    fn what_is_given_back_a_part_at_a_time_is_no_part_of_it() {
        let last = last_second(&[(100, 200), (500, 198), (502, 196), (504, 90), (505, 1)]);
        assert_eq!(since(&last, 20), Some(500));
    }

    #[test]
    fn a_second_in_which_nothing_moved_has_most_at_its_start() {
        let last = last_second(&[(10, 50)]);
        assert_eq!(last.highest(), BootNs(10 * MS));
        assert_eq!(since(&last, 3), Some(1_000));
    }
}
