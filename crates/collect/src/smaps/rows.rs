//! The rows of one reading: `pss` and `mapping`.

use super::facts::Status;
use super::subject::Subject;
use super::totals::MappingTotals;
use memtrace_model::{
    BootNs, Bytes, DurationNs, MappingKind, MappingRow, PssRow, PssSource, Record, Row, Upid,
    WallNs,
};

/// Objects of a disk that a process holds less of share one row.
const SMALL: f64 = (1 << 20) as f64;

/// When and of whom.
#[derive(Clone, Copy)]
pub(super) struct Stamp {
    pub(super) ts: WallNs,
    pub(super) boot_ns: BootNs,
    pub(super) upid: Upid,
}

/// In which way, and at what cost.
#[derive(Clone, Copy)]
pub(super) struct How {
    pub(super) source: PssSource,
    pub(super) sampled_share: f64,
    pub(super) cost: DurationNs,
    pub(super) span: DurationNs,
    /// How far RSS moved meanwhile.
    pub(super) moved: Bytes,
}

impl How {
    /// An amount that only the text of smaps tells.
    fn reported(&self, amount: f64) -> Option<Bytes> {
        (self.source == PssSource::Smaps).then(|| bytes(amount))
    }
}

fn bytes(amount: f64) -> Bytes {
    Bytes(amount.round() as i64)
}

/// What was read of a process, as it was measured.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) subject: Subject,
    pss: PssRow,
    /// What the kernel counted of anonymous pages when the reading ended.
    anon_counted: Option<Bytes>,
    mappings: Vec<MappingRow>,
}

impl Reading {
    pub(super) fn new(
        moment: Stamp,
        subject: Subject,
        how: &How,
        totals: &MappingTotals,
        status: &Status,
    ) -> Self {
        Self {
            subject,
            pss: pss_row(moment, how, totals, status),
            anon_counted: status.anon,
            mappings: mapping_rows(moment, how, totals),
        }
    }

    /// What it takes in memory.
    pub(super) fn bytes(&self) -> usize {
        let texts: usize = self.mappings.iter().map(Row::heap_bytes).sum();
        size_of::<Self>() + self.mappings.capacity() * size_of::<MappingRow>() + texts
    }

    /// When it ended.
    pub(super) fn at(&self) -> BootNs {
        self.pss.boot_ns
    }

    /// Its rows. Of anonymous pages that nobody can share the kernel's counter is the amount.
    pub(super) fn into_records(self, is_anon_unshared: bool) -> impl Iterator<Item = Record> {
        let mut pss = self.pss;
        if let Some(anon) = self.anon_counted.filter(|_| is_anon_unshared) {
            let seen = pss.rss_anon_bytes.unwrap_or_default();
            let own = pss.uss_bytes.map(|uss| uss - seen + anon);
            pss.is_anon_unshared = true;
            pss.rss_anon_bytes = Some(anon);
            pss.pss_anon_bytes = Some(anon);
            pss.uss_anon_bytes = Some(anon);
            pss.pss_bytes = sum_of(&pss);
            pss.uss_bytes = own.map(|own| own.max(Bytes(0)));
        }
        let mappings = self.mappings.into_iter().map(Record::from);
        std::iter::once(Record::from(pss)).chain(mappings)
    }
}

/// The PSS of all kinds, where all are known.
fn sum_of(row: &PssRow) -> Option<Bytes> {
    Some(row.pss_anon_bytes? + row.pss_file_bytes? + row.pss_shmem_bytes?)
}

fn pss_row(moment: Stamp, how: &How, totals: &MappingTotals, status: &Status) -> PssRow {
    let [anon, file, shmem] = totals.pss_by_class();
    // Of the same walk: the counters of the process can have moved far by its end.
    let [rss_anon, rss_file, rss_shmem] = totals.rss_by_class().map(bytes).map(Some);
    let total = totals.total();
    let mut row = PssRow {
        ts: moment.ts,
        boot_ns: moment.boot_ns,
        upid: moment.upid,
        pss_bytes: None,
        pss_anon_bytes: anon.map(bytes),
        pss_file_bytes: file.map(bytes),
        pss_shmem_bytes: shmem.map(bytes),
        uss_bytes: Some(bytes(total.private)),
        uss_anon_bytes: Some(bytes(totals.private_anon())),
        rss_anon_bytes: rss_anon,
        rss_file_bytes: rss_file,
        rss_shmem_bytes: rss_shmem,
        rss_moved_bytes: Some(how.moved),
        swap_bytes: how.reported(total.swap).or(status.swap),
        huge_bytes: how.reported(total.huge),
        hugetlb_bytes: status.hugetlb,
        page_tables_bytes: status.page_tables,
        pinned_bytes: status.pinned,
        is_anon_unshared: false,
        source: Some(how.source),
        sampled_share: Some(how.sampled_share),
        cost_ns: how.cost,
        span_ns: how.span,
    };
    row.pss_bytes = sum_of(&row);
    row
}

/// The rows of a reading: one per object, but one for all small files together.
fn mapping_rows(moment: Stamp, how: &How, totals: &MappingTotals) -> Vec<MappingRow> {
    let mut rows: Vec<MappingRow> = Vec::new();
    let mut small: Option<MappingRow> = None;
    for (key, object) in totals.objects() {
        let amounts = &object.amounts;
        let row = MappingRow {
            ts: moment.ts,
            boot_ns: moment.boot_ns,
            upid: moment.upid,
            kind: Some(key.kind),
            path: object.path.clone(),
            is_deleted: object.is_deleted,
            device: key.inode.map(|(device, _)| device.to_string()),
            inode: key.inode.and_then(|(_, inode)| i64::try_from(inode).ok()),
            mapping_count: object.mapping_count,
            size_bytes: Bytes(object.size),
            rss_bytes: Some(bytes(amounts.rss)),
            pss_bytes: amounts.pss.map(bytes),
            private_bytes: Some(bytes(amounts.private)),
            anon_bytes: Some(bytes(amounts.anon)),
            swap_bytes: Some(bytes(amounts.swap)),
            huge_bytes: how.reported(amounts.huge),
        };
        if key.kind != MappingKind::File || amounts.rss >= SMALL {
            rows.push(row);
            continue;
        }
        match &mut small {
            None => {
                small = Some(MappingRow {
                    path: None,
                    is_deleted: false,
                    device: None,
                    inode: None,
                    ..row
                });
            }
            Some(all) => add(all, &row),
        }
    }
    rows.extend(small);
    rows
}

fn add(all: &mut MappingRow, row: &MappingRow) {
    let sum = |a: Option<Bytes>, b: Option<Bytes>| Some(a? + b?);
    all.mapping_count += row.mapping_count;
    all.size_bytes = all.size_bytes + row.size_bytes;
    all.rss_bytes = sum(all.rss_bytes, row.rss_bytes);
    all.pss_bytes = sum(all.pss_bytes, row.pss_bytes);
    all.private_bytes = sum(all.private_bytes, row.private_bytes);
    all.anon_bytes = sum(all.anon_bytes, row.anon_bytes);
    all.swap_bytes = sum(all.swap_bytes, row.swap_bytes);
    all.huge_bytes = sum(all.huge_bytes, row.huge_bytes);
}
