//! `clock`: the clocks beside each other, so that what was recorded on several machines, or logged
//! by several programs, can be laid side by side.

use super::{CollectError, Collector, Tick, World};
use crate::host::clock;
use crate::model::{ClockOffset, ClockReading, ClockRow, DurationNs, Record};

/// Between two looks. A look is four system calls that the kernel answers without being entered.
const PERIOD: DurationNs = DurationNs(1_000_000_000);
/// Between two rows.
const ROW_NS: i64 = 60_000_000_000;
/// The kernel slews the wall clock by half a millisecond a second at most (MAXFREQ): what moves
/// it further in a second has set it.
const STEP_NS: i64 = 10_000_000;

/// Reads the clocks.
#[derive(Debug, Default)]
pub struct ClockCollector {
    last: Option<ClockReading>,
    written: Option<ClockReading>,
}

impl ClockCollector {
    /// A collector for this machine.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a reading, and writes what is due of it.
    fn take(&mut self, reading: ClockReading, is_last: bool, out: &mut Vec<Record>) {
        let last = self.last.replace(reading);
        // Where the wall clock would stand now, had nobody set it.
        let step = last.map(|last| {
            let expected = ClockOffset::at(last).to_wall(reading.boot_ns);
            DurationNs(reading.wall_ns.0 - expected.0)
        });
        let step = step.filter(|step| step.0.abs() >= STEP_NS);
        if step.is_some() {
            let before = last.filter(|_| last != self.written);
            out.extend(before.map(|before| row(before, None)));
        }
        let is_due = self
            .written
            .is_none_or(|written| (reading.boot_ns - written.boot_ns).0 >= ROW_NS);
        if is_due || is_last || step.is_some() {
            out.push(row(reading, step));
            self.written = Some(reading);
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

    fn collect(
        &mut self,
        _tick: &Tick,
        _world: &mut World,
        out: &mut Vec<Record>,
    ) -> Result<(), CollectError> {
        self.take(clock::read_together(), false, out);
        Ok(())
    }

    fn finish(
        &mut self,
        _tick: &Tick,
        _world: &mut World,
        out: &mut Vec<Record>,
    ) -> Result<(), CollectError> {
        self.take(clock::read_together(), true, out);
        Ok(())
    }
}

fn row(reading: ClockReading, step_ns: Option<DurationNs>) -> Record {
    let discipline = clock::discipline();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BootNs, WallNs};

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
            collector.take(reading, second == seconds, &mut out);
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
        // Half a millisecond a second is slewing.
        let slewed: Vec<_> = (1..20).map(|second| (second, 500_000)).collect();
        assert_eq!(rows(20, &slewed), [(0, None), (20, None)]);
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
