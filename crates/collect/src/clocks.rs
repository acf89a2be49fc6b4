//! `clock`: the clocks beside each other, so that what was recorded on several machines, or logged
//! by several programs, can be laid side by side.

use super::{CollectError, Collector, Pass};
use memtrace_host::clock::{self, Discipline};
use memtrace_model::{BootNs, ClockOffset, ClockReading, ClockRow, DurationNs, Record};

/// Between two looks.
const PERIOD: DurationNs = DurationNs(1_000_000_000);
/// Between two rows.
const ROW_NS: i64 = 60_000_000_000;
/// Slewing moves both clocks alike; what moves one against the other by more than it takes to read
/// them has set the wall clock.
const STEP_NS: i64 = 1_000_000;

/// What one look sees.
#[derive(Clone, Copy, Debug)]
struct Look {
    reading: ClockReading,
    discipline: Option<Discipline>,
}

impl Look {
    fn now() -> Self {
        Self {
            reading: clock::read_together(),
            discipline: clock::discipline(),
        }
    }

    fn row(self, step_ns: Option<DurationNs>) -> Record {
        let (reading, discipline) = (self.reading, self.discipline);
        Record::Clock(ClockRow {
            ts: reading.wall_ns,
            boot_ns: reading.boot_ns,
            monotonic_ns: DurationNs(reading.monotonic_ns),
            step_ns,
            is_synchronized: discipline.map(|found| found.is_synchronized),
            max_error_ns: discipline.map(|found| found.max_error),
            estimated_error_ns: discipline.map(|found| found.estimated_error),
        })
    }
}

/// Reads the clocks.
#[derive(Debug, Default)]
pub struct ClockCollector {
    last: Option<Look>,
    written: Option<BootNs>,
}

impl ClockCollector {
    /// A collector for this machine.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a look, and writes what is due of it.
    fn take(&mut self, look: Look, is_last: bool, out: &mut Vec<Record>) {
        let reading = look.reading;
        let last = self.last.replace(look);
        // Where the wall clock would stand now, had nobody set it.
        let step = last.map(|last| {
            let expected = ClockOffset::at(last.reading).to_wall(reading.boot_ns);
            DurationNs(reading.wall_ns.0 - expected.0)
        });
        let step = step.filter(|step| step.0.abs() >= STEP_NS);
        if step.is_some() {
            let before = last.filter(|last| self.written != Some(last.reading.boot_ns));
            out.extend(before.map(|before| before.row(None)));
        }
        let is_due = self
            .written
            .is_none_or(|written| (reading.boot_ns - written).0 >= ROW_NS);
        if is_due || is_last || step.is_some() {
            out.push(look.row(step));
            self.written = Some(reading.boot_ns);
        }
    }
}

impl Collector for ClockCollector {
    fn name(&self) -> &'static str {
        "clock"
    }

    fn period(&self) -> DurationNs {
        PERIOD
    }

    fn collect(&mut self, pass: &mut Pass<'_>) -> Result<(), CollectError> {
        self.take(Look::now(), false, pass.out);
        Ok(())
    }

    fn finish(&mut self, pass: &mut Pass<'_>) -> Result<(), CollectError> {
        self.take(Look::now(), true, pass.out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrace_model::WallNs;

    const SECOND: i64 = 1_000_000_000;

    /// Readings once a second of a wall clock that is set at some of them.
    fn rows(seconds: i64, set: &[(i64, i64)]) -> Vec<(i64, Option<i64>)> {
        let mut collector = ClockCollector::new();
        let mut out = Vec::new();
        for second in 0..=seconds {
            let moved: i64 = set
                .iter()
                .filter(|(at, _)| *at <= second)
                .map(|(_, by)| by)
                .sum();
            let reading = ClockReading {
                boot_ns: BootNs(second * SECOND),
                monotonic_ns: second * SECOND,
                wall_ns: WallNs(1_000 * SECOND + second * SECOND + moved),
            };
            let look = Look {
                reading,
                discipline: None,
            };
            collector.take(look, second == seconds, &mut out);
        }
        let of = |record| match record {
            Record::Clock(row) => (row.boot_ns.0 / SECOND, row.step_ns.map(|step| step.0)),
            other => panic!("{other:?}"),
        };
        out.into_iter().map(of).collect()
    }

    #[test]
    fn a_row_a_minute_and_one_at_the_end() {
        assert_eq!(
            rows(130, &[]),
            [(0, None), (60, None), (120, None), (130, None)]
        );
        // A look takes a while.
        let jitter: Vec<_> = (1..20).map(|second| (second, 20_000)).collect();
        assert_eq!(rows(20, &jitter), [(0, None), (20, None)]);
    }

    #[test]
    fn a_step_has_a_row_on_both_sides() {
        let back = -3_600 * SECOND;
        let expected = [(0, None), (9, None), (10, Some(back)), (20, None)];
        assert_eq!(rows(20, &[(10, back)]), expected);
        let twice = [(0, None), (1, Some(SECOND)), (2, Some(SECOND)), (5, None)];
        assert_eq!(rows(5, &[(1, SECOND), (2, SECOND)]), twice);
    }
}
