//! What the rows of `title` say before the pass over memory: roles, calls, programs that were
//! executed. Names come after it, with the peaks: see [`ProcessTable::name`].

use super::groups::RoleTracks;
use super::phases::Calls;
use super::process_table::ProcessTable;
use super::sharing::Execs;
use memtrace_model::RowSource;
use memtrace_model::tables::{TitleRow, TitleSource};

/// What is kept of the titles.
#[derive(Debug, Default)]
pub(super) struct Titles {
    pub(super) roles: RoleTracks,
    pub(super) calls: Calls,
    pub(super) execs: Execs,
}

impl Titles {
    /// Reads the table `title`.
    pub(super) fn read<S: RowSource>(source: &S, table: &ProcessTable) -> Result<Self, S::Error> {
        let mut titles = Self::default();
        source.scan(&[], |row: TitleRow| {
            let Some(position) = table.find(row.upid) else {
                return;
            };
            titles.roles.take(position, &row);
            titles.calls.take(position, &row);
            if row.source == Some(TitleSource::Exec) {
                let execs = titles.execs.entry(row.upid).or_default();
                execs.push(row.boot_ns);
            }
        })?;
        Ok(titles)
    }
}
