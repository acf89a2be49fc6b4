//! What is kept of a recording of GPUs alone: their rows, and the processes that hold their memory.

use memtrace_model::{Record, Upid};
use std::collections::{HashMap, HashSet};

/// Who holds memory of a GPU, and the rows of those who may yet.
#[derive(Debug, Default)]
pub(super) struct GpuOnly {
    holders: HashSet<Upid>,
    /// The last row of each other process that is alive.
    others: HashMap<Upid, Record>,
}

impl GpuOnly {
    /// Takes out of a batch what is not about GPUs, and adds the row of a process that turns out
    /// to hold their memory.
    pub(super) fn keep(&mut self, batch: &mut Vec<Record>) {
        let new: Vec<Upid> = batch
            .iter()
            .filter_map(|record| match record {
                Record::GpuProcess(row) => row.upid,
                _ => None,
            })
            .filter(|upid| self.holders.insert(*upid))
            .collect();
        batch.retain(|record| match record {
            Record::Process(row) if self.holders.contains(&row.upid) => true,
            Record::Process(row) => {
                match row.exit_boot_ns {
                    Some(_) => self.others.remove(&row.upid),
                    None => self.others.insert(row.upid, Record::Process(row.clone())),
                };
                false
            }
            Record::Title(row) => self.holders.contains(&row.upid),
            Record::GpuDevice(_) | Record::GpuProcess(_) => true,
            Record::Diag(_) | Record::Clock(_) | Record::SelfCost(_) => true,
            _ => false,
        });
        let rows = new.iter().filter_map(|upid| self.others.remove(upid));
        // One that is in this batch is newer.
        batch.splice(0..0, rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrace_model::tables::GpuProcessRow;
    use memtrace_model::{BootNs, MemRow, ProcessRow};

    fn process(upid: i64, exit: Option<i64>) -> Record {
        Record::from(ProcessRow {
            upid: Upid(upid),
            exit_boot_ns: exit.map(BootNs),
            ..ProcessRow::default()
        })
    }

    fn holds(upid: i64) -> Record {
        Record::from(GpuProcessRow {
            upid: Some(Upid(upid)),
            ..GpuProcessRow::default()
        })
    }

    #[test]
    fn only_who_holds_memory_of_a_gpu_is_kept_from_when_that_is_known() {
        let mut kept = GpuOnly::default();
        let mut batch = vec![process(1, None), process(2, None), MemRow::default().into()];
        kept.keep(&mut batch);
        assert_eq!(batch, []);
        let mut batch = vec![holds(1), process(2, Some(5))];
        kept.keep(&mut batch);
        assert_eq!(batch, [process(1, None), holds(1)]);
        let mut batch = vec![process(1, Some(9)), holds(1)];
        kept.keep(&mut batch);
        assert_eq!(batch, [process(1, Some(9)), holds(1)]);
        assert!(kept.others.is_empty());
    }
}
