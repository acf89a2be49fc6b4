//! What the rows of a recording can be, for whoever asks what they say.
//!
//! A recording may come from anywhere, and what reads it holds processes, marks and names in
//! memory and walks its time step by step. So rows of another time, and of more memory than any
//! machine has, are left out, and no more rows are taken than a recorder can have written in the
//! time that the recording says it took.

use super::batch::slice_bytes;
use super::gather::filter;
use super::schema::TIME_COLUMN;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use memtrace_model::{ClockOffset, DurationNs, Kind, Label, RunInfo, RunState, Table, WallNs};
use std::ops::Range;

/// Collectors stamp what they read, and a kept maximum is written later than it was reached:
/// rows are not exactly between the first and the last reading of the clock.
const SLACK_NS: i64 = 60_000_000_000;
/// The end of a recording that was not closed is known from the times of its files only, on a
/// clock that can be stepped.
const UNCLOSED_SLACK_NS: i64 = 86_400_000_000_000;

/// Rows that a table with a key can have: who runs when the recording starts, and 16,384 more a
/// second and CPU, of which each process has some until the recording is closed. What reads them
/// holds each.
const KEYED: Rate = Rate {
    base_rows: 81_920,
    rows_per_s: 16_384,
    base_bytes: 64 << 20,
    bytes_per_s: 2 << 20,
};
/// Rows of any other table but `mem`. Programs send up to some 100,000 marks a second and CPU.
const OTHER: Rate = Rate {
    base_rows: 196_608,
    rows_per_s: 131_072,
    base_bytes: 64 << 20,
    bytes_per_s: 8 << 20,
};
/// `mem` is read as a stream; what is held of it goes by the processes.
const STREAM: Rate = Rate {
    base_rows: 16 << 20,
    rows_per_s: 1 << 20,
    base_bytes: 4 << 30,
    bytes_per_s: 256 << 20,
};

/// What a machine can have of CPUs; rates are those of one.
const CPUS_MAX: u64 = 1024;

/// What a process can have of memory and swap, by far: that of a thousand processes can be
/// summed up.
const MAX_RESIDENT_BYTES: i64 = 1 << 53;
/// The columns that say so beside those of the kinds of memory, of processes and of what they share.
const RESIDENT: [&str; 4] = [
    "footprint_bytes",
    "peak_rss_bytes",
    "allocated_bytes",
    "resident_bytes",
];

/// How many rows a table can have by the length of the recording.
#[derive(Clone, Copy, Debug)]
struct Rate {
    base_rows: u64,
    rows_per_s: u64,
    base_bytes: u64,
    bytes_per_s: u64,
}

/// The time and the length of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    first_ns: i64,
    last_ns: i64,
    /// How long the recording says that it is.
    length_ns: i64,
    cpus: u64,
}

/// How much of a table may still be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    rows: u64,
    bytes: u64,
}

impl Bounds {
    /// Those of a recording; `written_at_ns` is when its newest file was written, on the wall
    /// clock. `None` where it has no clock reading, so that nothing is known of its time.
    pub(super) fn of(info: &RunInfo, written_at_ns: Option<i64>) -> Option<Self> {
        let (first, last) = (info.clocks.first()?, info.clocks.last()?);
        let boot_ns = first.boot_ns.0.min(last.boot_ns.0);
        let is_ended = info.state == RunState::Closed && info.clocks.len() > 1;
        let (end_ns, slack_ns) = match is_ended {
            true => (last.boot_ns.0, SLACK_NS),
            false => {
                let written = written_at_ns.filter(|&wall| wall >= first.wall_ns.0);
                let written = written.map(|wall| ClockOffset::at(*first).to_boot(WallNs(wall)).0);
                (last.boot_ns.0.max(written.unwrap_or(0)), UNCLOSED_SLACK_NS)
            }
        };
        Some(Self {
            first_ns: boot_ns.saturating_sub(SLACK_NS),
            last_ns: end_ns.saturating_add(slack_ns),
            length_ns: end_ns.saturating_sub(boot_ns),
            cpus: u64::from(info.cpu_count).clamp(1, CPUS_MAX),
        })
    }

    /// How much may be read of a table.
    pub(super) fn allowance(&self, table: &Table) -> Allowance {
        Allowance::of(table, self.length_ns, self.cpus)
    }

    /// The rows of a batch that can be the recording's, and how many were left out.
    pub(super) fn within(&self, batch: RecordBatch) -> (RecordBatch, u64) {
        let mut kept: Option<Vec<bool>> = None;
        for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
            let range = self.range_of(field.name());
            let Some((column, range)) = column.as_primitive_opt::<Int64Type>().zip(range) else {
                continue;
            };
            // Nulls hold anything; where all fits there is no need to look at them. Without
            // branches, because all rows of `mem` come by here.
            let values = column.values().iter();
            let outside = values.fold(false, |outside, &value| {
                outside | (value < range.start) | (value >= range.end)
            });
            if !outside {
                continue;
            }
            let kept = kept.get_or_insert_with(|| vec![true; batch.num_rows()]);
            for (row, kept) in kept.iter_mut().enumerate() {
                *kept &= column.is_null(row) || range.contains(&column.value(row));
            }
        }
        let Some(kept) = kept else {
            return (batch, 0);
        };
        let left_out = kept.iter().filter(|&&kept| !kept).count() as u64;
        // The mask has one value per row, which is all that filtering asks for.
        (filter(batch.clone(), &kept).unwrap_or(batch), left_out)
    }

    /// What a column can hold, where that is known by its name.
    fn range_of(&self, column: &str) -> Option<Range<i64>> {
        if column == TIME_COLUMN {
            return Some(self.first_ns..self.last_ns);
        }
        // A process may have started at any time before.
        if column.ends_with(TIME_COLUMN) {
            return Some(-SLACK_NS..self.last_ns);
        }
        let is_kind = Kind::ALL.iter().any(|kind| kind.column() == column);
        let is_resident = is_kind || RESIDENT.contains(&column);
        is_resident.then_some(-MAX_RESIDENT_BYTES..MAX_RESIDENT_BYTES)
    }
}

impl Allowance {
    /// That of a table of a recording of this length, on so many CPUs.
    fn of(table: &Table, length_ns: i64, cpus: u64) -> Self {
        let rate = match (table.key, table.name) {
            (Some(_), _) => KEYED,
            (None, "mem") => STREAM,
            (None, _) => OTHER,
        };
        let seconds = (length_ns / 1_000_000_000).max(0).unsigned_abs();
        let seconds = seconds.saturating_mul(cpus);
        let of = |base: u64, per_s: u64| base.saturating_add(per_s.saturating_mul(seconds));
        Self {
            rows: of(rate.base_rows, rate.rows_per_s),
            bytes: of(rate.base_bytes, rate.bytes_per_s),
        }
    }

    /// Takes a batch off; gives how many of its rows there was room for.
    pub(super) fn take(&mut self, batch: &RecordBatch) -> usize {
        let rows = batch.num_rows() as u64;
        let bytes = slice_bytes(batch) as u64;
        let fitting = match bytes > self.bytes {
            true => 0,
            false => rows.min(self.rows),
        };
        self.rows -= fitting;
        self.bytes = self.bytes.saturating_sub(bytes);
        fitting as usize
    }
}

/// What was taken of a table that programs can fill: marks and the like. How many rows there are of
/// `mem`, and of processes, goes by what there is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Taken {
    rows: u64,
    bytes: u64,
}

impl Taken {
    /// Adds a batch to a recording that is so long by now; gives how many of its rows a reader will take.
    pub(super) fn add(
        &mut self,
        batch: &RecordBatch,
        table: &Table,
        length: DurationNs,
        cpus: u32,
    ) -> usize {
        if table.key.is_some() || table.name == "mem" {
            return batch.num_rows();
        }
        let cpus = u64::from(cpus).clamp(1, CPUS_MAX);
        let allowed = Allowance::of(table, length.0, cpus);
        // Read in other batches, rows take a little more or less.
        let bytes = allowed.bytes - allowed.bytes / 16;
        let mut left = Allowance {
            rows: allowed.rows.saturating_sub(self.rows),
            bytes: bytes.saturating_sub(self.bytes),
        };
        let before = left.bytes;
        let fitting = left.take(batch);
        if fitting > 0 {
            self.rows += fitting as u64;
            self.bytes += before - left.bytes;
        }
        fitting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::Int64Array;
    use memtrace_model::Row;
    use memtrace_model::tables::{MemRow, ProcessRow};
    use std::sync::Arc;

    const BOUNDS: Bounds = Bounds {
        first_ns: 1_000,
        last_ns: 2_000,
        length_ns: 1_000,
        cpus: 1,
    };

    fn batch(name: &str, values: Vec<Option<i64>>) -> RecordBatch {
        let column = Int64Array::from(values);
        RecordBatch::try_from_iter_with_nullable([(name, Arc::new(column) as _, true)]).unwrap()
    }

    #[test]
    fn rows_of_another_time_or_of_absurd_amounts_are_left_out_and_nulls_are_not() {
        for (name, values, left_out) in [
            (
                "boot_ns",
                [Some(999), Some(1_000), Some(1_999), Some(2_000)],
                2,
            ),
            (
                "exit_boot_ns",
                [Some(0), None, Some(i64::MAX), Some(i64::MIN)],
                2,
            ),
            ("rss_bytes", [Some(0), None, Some(1 << 62), Some(-5)], 1),
            ("vm_size_bytes", [Some(i64::MAX); 4], 0),
        ] {
            let (kept, count) = BOUNDS.within(batch(name, values.to_vec()));
            assert_eq!(count, left_out, "{name}");
            assert_eq!(kept.num_rows() as u64, 4 - left_out, "{name}");
        }
    }

    #[test]
    fn what_is_allowed_grows_with_the_length_and_is_used_up() {
        let hour = Bounds {
            length_ns: 3_600_000_000_000,
            ..BOUNDS
        };
        let (short, long) = (
            BOUNDS.allowance(ProcessRow::TABLE),
            hour.allowance(ProcessRow::TABLE),
        );
        assert_eq!(short.rows, KEYED.base_rows);
        assert_eq!(long.rows, KEYED.base_rows + 3_600 * KEYED.rows_per_s);
        assert!(BOUNDS.allowance(MemRow::TABLE).rows > 10_000_000);
        let mut left = Allowance { rows: 3, ..short };
        let two = batch("upid", vec![Some(1), Some(2)]);
        assert_eq!(
            [left.take(&two), left.take(&two), left.take(&two)],
            [2, 1, 0]
        );
        let mut left = Allowance { bytes: 1, ..short };
        assert_eq!(left.take(&two), 0);
    }
}
