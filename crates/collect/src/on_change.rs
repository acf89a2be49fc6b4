//! Which readings of a group, or of the machine, become rows: those that say something new. A row
//! holds until the next one, so a reading like the last row need not be written.

use memtrace_model::{CellSink, ColumnType, Row};

/// An amount is new where it has moved by this, and by one part in so many of itself.
const LEAST_BYTES: i64 = 256 << 10;
const PART: i64 = 1_024;
/// A time spent waiting for memory is new where it grew by this.
const LEAST_NS: i64 = 10_000_000;
/// When a reading was made, and how long that took, say nothing of what was read.
const OWN_TIMES: [&str; 3] = ["ts", "boot_ns", "span_ns"];

/// The last row, and what was read since.
#[derive(Debug)]
pub(crate) struct OnChange<R> {
    written: Option<R>,
    /// The last reading, where it was not written.
    unwritten: Option<R>,
}

impl<R> Default for OnChange<R> {
    fn default() -> Self {
        Self {
            written: None,
            unwritten: None,
        }
    }
}

impl<R: Row> OnChange<R> {
    /// The rows that a reading makes: none, it alone, or the one before too, which says until when
    /// what held before did.
    pub(crate) fn rows(
        &mut self,
        reading: R,
        is_keyframe: bool,
    ) -> impl Iterator<Item = R> + use<R> {
        let last = self.written.as_ref();
        let has_moved = last.is_none_or(|last| has_moved(last, &reading));
        let before = self.unwritten.take().filter(|_| has_moved);
        let new = (has_moved || is_keyframe).then(|| reading.clone());
        match &new {
            Some(_) => self.written = Some(reading),
            None => self.unwritten = Some(reading),
        }
        before.into_iter().chain(new)
    }
}

fn has_moved<R: Row>(last: &R, now: &R) -> bool {
    let cells = |row: &R| {
        let mut cells = Cells::default();
        row.put(&mut cells);
        cells.0
    };
    let columns = R::TABLE.columns.iter().zip(cells(last)).zip(cells(now));
    columns.into_iter().any(|((column, last), now)| {
        let (Cell::Number(Some(last)), Cell::Number(Some(now))) = (&last, &now) else {
            return last != now;
        };
        let moved = now.saturating_sub(*last).saturating_abs();
        match column.unit {
            _ if OWN_TIMES.contains(&column.name) => false,
            Some("bytes") => moved >= LEAST_BYTES.max(last.saturating_abs() / PART),
            Some("ns") if column.column_type == ColumnType::Int64 => moved >= LEAST_NS,
            _ => moved != 0,
        }
    })
}

/// The cells of a row.
#[derive(Default)]
struct Cells(Vec<Cell>);

#[derive(PartialEq)]
enum Cell {
    Number(Option<i64>),
    Float(Option<f64>),
    Text(Option<String>),
}

impl CellSink for Cells {
    fn int64(&mut self, value: Option<i64>) {
        self.0.push(Cell::Number(value));
    }
    fn int32(&mut self, value: Option<i32>) {
        self.0.push(Cell::Number(value.map(i64::from)));
    }
    fn float64(&mut self, value: Option<f64>) {
        self.0.push(Cell::Float(value));
    }
    fn boolean(&mut self, value: Option<bool>) {
        self.0.push(Cell::Number(value.map(i64::from)));
    }
    fn utf8(&mut self, value: Option<&str>) {
        self.0.push(Cell::Text(value.map(str::to_owned)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrace_model::tables::NodeMemRow;
    use memtrace_model::{BootNs, Bytes, DurationNs};

    const MIB: i64 = 1 << 20;

    fn row(second: i64, anon: i64) -> NodeMemRow {
        NodeMemRow {
            boot_ns: BootNs(second * 1_000_000_000),
            anon_bytes: Some(Bytes(anon)),
            psi_some_ns: Some(DurationNs(0)),
            ..NodeMemRow::default()
        }
    }

    /// The seconds of the rows that readings make, by their amounts of anonymous memory.
    fn seconds(amounts: &[i64]) -> Vec<i64> {
        let mut on_change = OnChange::default();
        let readings = (0..).zip(amounts);
        let rows = readings.flat_map(|(second, &anon)| on_change.rows(row(second, anon), false));
        rows.map(|row| row.boot_ns.0 / 1_000_000_000).collect()
    }

    #[test]
    fn a_reading_like_the_last_row_is_written_when_the_next_one_differs() {
        assert_eq!(
            seconds(&[MIB, MIB, MIB + 4_096, 2 * MIB, 2 * MIB]),
            [0, 2, 3]
        );
        assert_eq!(seconds(&[MIB, 2 * MIB, 3 * MIB]), [0, 1, 2]);
    }

    #[test]
    fn what_creeps_is_written_when_it_is_far_enough_from_the_last_row() {
        let creeping: Vec<i64> = (0..10).map(|step| MIB + step * (100 << 10)).collect();
        assert_eq!(seconds(&creeping), [0, 2, 3, 5, 6, 8, 9]);
        let large: Vec<i64> = (0..4).map(|step| (8 << 30) + step * 4 * MIB).collect();
        assert_eq!(seconds(&large), [0, 1, 2]);
    }

    #[test]
    fn what_becomes_unknown_and_a_count_that_rises_are_new() {
        let mut on_change = OnChange::default();
        let mut count = |row, is_keyframe| on_change.rows(row, is_keyframe).count();
        assert_eq!(count(row(0, MIB), false), 1);
        let unknown = NodeMemRow {
            anon_bytes: None,
            ..row(1, MIB)
        };
        assert_eq!(count(unknown.clone(), false), 1);
        let waited = NodeMemRow {
            psi_some_ns: Some(DurationNs(LEAST_NS)),
            ..unknown
        };
        assert_eq!(count(waited.clone(), false), 1);
        assert_eq!(count(waited.clone(), false), 0);
        assert_eq!(count(waited, true), 1, "a keyframe comes alone");
    }
}
