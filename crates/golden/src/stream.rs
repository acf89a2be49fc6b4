//! A run that comes by and by, as a recorder writes it.

use super::{Rows, Script};
use memtrace_model::tables::{
    CachedFileRow, CgroupMemRow, DiagRow, GpuDeviceRow, GpuProcessRow, GrowthSiteRow, MappingRow,
    MarkRow, MemRow, NodeMemRow, OomRow, ProcessRow, PssRow, SelfCostRow, ShmObjectRow, StackRow,
    TitleRow, VmEventRow, VmSummaryRow,
};
use memtrace_model::{BootNs, FreshRows, Record, Row, RowSource, RunInfo};
use std::collections::HashSet;
use std::convert::Infallible;

/// A recording that comes by and by: rows by the time at which they are written.
pub struct Stream {
    /// What `run.json` says.
    pub info: RunInfo,
    /// Each row, and when it is written.
    pub rows: Vec<(BootNs, Record)>,
    next: usize,
    until: BootNs,
    fresh: Rows,
    /// The tables of which that was given.
    given: HashSet<&'static str>,
}

impl Stream {
    /// As a recorder writes a run: a process when it starts, and once more when it has ended.
    pub fn of(run: Script) -> Self {
        let (info, rows, _) = run.recorded();
        let mut written: Vec<(BootNs, Record)> = Vec::new();
        let end = info.clocks.last().map_or(BootNs(0), |clock| clock.boot_ns);
        for record in rows.0 {
            let Record::Process(row) = &record else {
                let at = time_of(&record).unwrap_or(end);
                written.push((at, record));
                continue;
            };
            let begin = row.first_seen_boot_ns;
            let running = ProcessRow {
                exit_boot_ns: None,
                exit_code: None,
                exit_signal: None,
                exit_signal_code: None,
                exit_signal_sender_upid: None,
                exit_signal_sender_tgid: None,
                exit_signal_sender_comm: None,
                termination_signal: None,
                termination_signal_boot_ns: None,
                termination_signal_sender_upid: None,
                termination_signal_sender_tgid: None,
                termination_signal_sender_comm: None,
                peak_rss_bytes: None,
                peak_rss_source: None,
                peak_error_bytes: None,
                kernel_maxrss_bytes: None,
                ..(**row).clone()
            };
            written.push((begin, running.into()));
            written.push((row.exit_boot_ns.unwrap_or(end), record));
        }
        written.sort_by_key(|(at, _)| *at);
        Self {
            info,
            rows: written,
            next: 0,
            until: BootNs(i64::MIN),
            fresh: Rows::default(),
            given: HashSet::new(),
        }
    }

    /// Has what is written until then ready.
    pub fn go_to(&mut self, until: BootNs) {
        self.until = until;
        let rest = &self.rows[self.next..];
        let count = rest.partition_point(|(at, _)| *at <= until);
        let fresh = rest[..count].iter().map(|(_, record)| record.clone());
        self.fresh = Rows(fresh.collect());
        self.given.clear();
        self.next += count;
    }

    /// Has all ready that was so far, once more.
    pub fn begin_again(&mut self) {
        self.next = 0;
        self.go_to(self.until);
    }

    /// When the last row is written.
    pub fn end(&self) -> BootNs {
        self.rows.last().map_or(BootNs(0), |(at, _)| *at)
    }
}

impl FreshRows for Stream {
    type Error = Infallible;

    fn fresh<R: Row>(&mut self, columns: &[&str], each: impl FnMut(R)) -> Result<(), Infallible> {
        match self.given.insert(R::TABLE.name) {
            true => self.fresh.scan(columns, each),
            false => Ok(()),
        }
    }
}

/// When a row was written: with its time.
fn time_of(record: &Record) -> Option<BootNs> {
    let rows = Rows(vec![record.clone()]);
    let mut found = None;
    macro_rules! look {
        ($($row:ty),+) => {
            $(let Ok(()) = rows.scan(&[], |row: $row| found = Some(row.boot_ns));)+
        };
    }
    look!(
        TitleRow,
        MemRow,
        PssRow,
        MappingRow,
        ShmObjectRow,
        CachedFileRow,
        MarkRow,
        OomRow,
        CgroupMemRow,
        NodeMemRow,
        GpuDeviceRow,
        GpuProcessRow,
        SelfCostRow,
        DiagRow,
        VmEventRow,
        VmSummaryRow,
        StackRow,
        GrowthSiteRow
    );
    found
}
