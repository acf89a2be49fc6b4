//! Tables with a key: of all rows of one key, only the last counts.
//!
//! Two passes over the same batches, so that only the keys need memory: the first notes
//! at which row each key was written last, the second keeps just those rows.

use super::batch::int64_values;
use super::gather::filter;
use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use std::collections::HashMap;

/// Which rows are the last of their key, by their position in the sequence of batches.
#[derive(Debug, Default)]
pub(super) struct LastRows {
    last: HashMap<i64, u64>,
    rows: u64,
}

impl LastRows {
    /// First pass: looks at all batches.
    pub(super) fn find(key: &str, batches: impl Iterator<Item = RecordBatch>) -> Self {
        let mut found = Self::default();
        for batch in batches {
            for &key in int64_values(&batch, key).unwrap_or(&[]) {
                found.last.insert(key, found.rows);
                found.rows += 1;
            }
        }
        found
    }

    /// Second pass: keeps the last row of each key. The batches must be the same again.
    pub(super) fn keep(
        self,
        key: &str,
        batches: impl Iterator<Item = RecordBatch>,
    ) -> impl Iterator<Item = Result<RecordBatch, ArrowError>> {
        let mut at = 0..self.rows;
        batches.map(move |batch| {
            let keys = int64_values(&batch, key).unwrap_or(&[]);
            let is_last: Vec<bool> = keys
                .iter()
                .map(|key| self.last.get(key).copied() == at.next())
                .collect();
            filter(batch, &is_last)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::Int64Array;
    use std::sync::Arc;

    fn batch(keys: &[i64], values: &[i64]) -> RecordBatch {
        let column = |values: &[i64]| Arc::new(Int64Array::from(values.to_vec())) as _;
        RecordBatch::try_from_iter([("upid", column(keys)), ("value", column(values))]).unwrap()
    }

    #[test]
    fn only_the_last_row_of_each_key_is_kept() {
        let batches = [batch(&[1, 2, 1], &[10, 20, 11]), batch(&[3, 2], &[30, 21])];
        let last = LastRows::find("upid", batches.clone().into_iter());
        let kept: Vec<i64> = last
            .keep("upid", batches.into_iter())
            .flat_map(|batch| int64_values(&batch.unwrap(), "value").unwrap().to_vec())
            .collect();
        assert_eq!(kept, [11, 30, 21]);
    }
}
