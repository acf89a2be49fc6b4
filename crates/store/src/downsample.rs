//! Reduces what a closed recording has of memory over time to some instants.
//!
//! What processes hold is a step function of time, and what is kept of it are its values at instants
//! that all processes have in common, with these times: sums over processes then are sums that were
//! there, and between two instants the earlier one holds. The instants are the end of each period,
//! that of the highest sum within it, and those that are asked for. Of readings, of cgroups for
//! example, the last one before each of them and the first one after it are kept, with their own
//! times; and since a reading goes with what processes held when it was made, these are instants too.

use super::error::StoreError;
use super::recording::Recording;
use super::revision::Revision;
use memtrace_model::tables::{
    CachedFileRow, CgroupMemRow, LayoutRow, MappingRow, MemRow, MemSource, NodeMemRow, PssRow,
    SelfCostRow, ShmObjectRow, TmpfsRow,
};
use memtrace_model::{BootNs, Bytes, DurationNs, Order, Row, Upid, WallNs};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::ops::Range;

/// What is kept of such rows.
#[derive(Clone, Debug)]
pub struct Sampling {
    period: DurationNs,
    asked: BTreeSet<BootNs>,
    /// In order, and apart.
    whole: Vec<Range<BootNs>>,
}

impl Sampling {
    /// Of each period the last value of a process is kept, and that at the highest sum; beside them the
    /// values at these instants, and just before, and all rows of these times.
    pub fn new(period: DurationNs, asked: BTreeSet<BootNs>, mut whole: Vec<Range<BootNs>>) -> Self {
        whole.order_by_key(|whole| whole.start);
        whole.dedup_by(|next, whole| {
            let is_one = next.start <= whole.end;
            if is_one {
                whole.end = whole.end.max(next.end);
            }
            is_one
        });
        Self {
            period,
            asked,
            whole,
        }
    }

    /// The instants at which values are kept, but for those of readings.
    fn instants(&self, recording: &Recording) -> Result<Vec<BootNs>, StoreError> {
        let mut periods = Periods::new(self.period);
        recording.scan(&["rss_bytes", "source"], |row: MemRow| periods.take(&row))?;
        let mut instants = periods.finish();
        for &at in &self.asked {
            instants.extend([just_before(at), at]);
        }
        instants.extend(self.whole.iter().map(|whole| just_before(whole.start)));
        Ok(in_order(instants))
    }

    fn is_whole(&self, at: BootNs) -> bool {
        let after = self.whole.partition_point(|whole| whole.start <= at);
        let last = after.checked_sub(1).and_then(|last| self.whole.get(last));
        last.is_some_and(|whole| at < whole.end)
    }
}

fn just_before(at: BootNs) -> BootNs {
    BootNs(at.0.saturating_sub(1))
}

fn in_order(mut instants: Vec<BootNs>) -> Vec<BootNs> {
    instants.order_by_key(|&at| at);
    instants.dedup();
    instants
}

/// Rows of `mem`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// How many there were.
    pub before: u64,
    /// How many are left.
    pub after: u64,
}

impl Revision {
    /// Keeps that of the recording, and ends. Interrupted at any point, it is one that reads the same, in
    /// part with fewer rows, and the same can be asked for again. A longer period that was begun is
    /// ended.
    ///
    /// # Errors
    /// When any table is damaged, or the system refuses.
    pub fn downsample(
        mut self,
        recording: &Recording,
        sampling: &Sampling,
    ) -> Result<Counted, StoreError> {
        let noted = self.info().downsampled.map(|noted| noted.period_ns);
        let sampling = &Sampling {
            period: sampling.period.max(noted.unwrap_or_default()),
            ..sampling.clone()
        };
        let mut thinning = Thinning {
            recording,
            sampling,
            instants: &sampling.instants(recording)?,
            readings: Vec::new(),
        };
        thinning.thin(&mut self, |row: &CgroupMemRow| {
            (row.boot_ns, row.cgroup.clone())
        })?;
        thinning.thin(&mut self, |row: &NodeMemRow| (row.boot_ns, ()))?;
        thinning.thin(&mut self, |row: &LayoutRow| (row.boot_ns, row.upid))?;
        let pss = thinning.thin(&mut self, |row: &PssRow| (row.boot_ns, row.upid))?;
        // They have the times of those.
        self.retain(|row: &MappingRow| thinning.is_kept(&pss, row.boot_ns))?;
        thinning.note(|row: &TmpfsRow| row.boot_ns)?;
        thinning.note(|row: &ShmObjectRow| row.boot_ns)?;
        thinning.note(|row: &CachedFileRow| row.boot_ns)?;
        thinning.note(|row: &SelfCostRow| row.boot_ns)?;
        let readings = thinning.readings.into_iter();
        let instants = readings.chain(thinning.instants.iter().copied());
        let mut sampler = Sampler::new(sampling, in_order(instants.collect()));
        let mut counted = Counted::default();
        self.rewrite(|row, rows| {
            let before = rows.len();
            match row {
                Some(row) => {
                    counted.before += 1;
                    sampler.take(row, rows);
                }
                None => sampler.end_part(rows),
            }
            counted.after += (rows.len() - before) as u64;
        })?;
        // Whoever said which instants stay did not see what is damaged.
        recording.check_whole()?;
        self.finish_downsampled(sampling.period)?;
        Ok(counted)
    }
}

/// Finds the end of each period in which something changed, and the instant of the highest sum of RSS
/// in it, where it rose.
struct Periods {
    length: i64,
    rss: HashMap<Upid, Bytes>,
    sum: Bytes,
    /// When the last row was.
    last: Option<BootNs>,
    highest: Bytes,
    highest_at: Option<BootNs>,
    found: Vec<BootNs>,
}

impl Periods {
    fn new(period: DurationNs) -> Self {
        Self {
            length: period.0.max(1),
            rss: HashMap::new(),
            sum: Bytes(0),
            last: None,
            highest: Bytes(0),
            highest_at: None,
            found: Vec::new(),
        }
    }

    fn take(&mut self, row: &MemRow) {
        if let Some(last) = self.last.filter(|&last| last < row.boot_ns) {
            self.end_instant(last);
            let number = last.0.div_euclid(self.length);
            if number != row.boot_ns.0.div_euclid(self.length) {
                let next = (number + 1).saturating_mul(self.length);
                self.end_period(just_before(BootNs(next)));
            }
        }
        // A row can come late.
        self.last = self.last.max(Some(row.boot_ns));
        let before = match is_end(row) {
            true => self.rss.remove(&row.upid),
            false => self.rss.get(&row.upid).copied(),
        };
        let before = before.unwrap_or(Bytes(0));
        // What is unknown is as it was.
        let now = row.rss_bytes.unwrap_or(before);
        if is_end(row) {
            self.sum = self.sum - before;
        } else {
            self.sum = self.sum + now - before;
            self.rss.insert(row.upid, now);
        }
    }

    /// All rows of that time have come.
    fn end_instant(&mut self, at: BootNs) {
        if self.sum > self.highest {
            self.highest = self.sum;
            self.highest_at = Some(at);
        }
    }

    fn end_period(&mut self, end: BootNs) {
        self.found.extend(self.highest_at.take());
        self.found.push(end);
        self.highest = self.sum;
    }

    fn finish(mut self) -> Vec<BootNs> {
        if let Some(last) = self.last {
            self.end_instant(last);
            self.end_period(last);
        }
        self.found
    }
}

/// Which readings are kept.
struct Thinning<'a> {
    recording: &'a Recording,
    sampling: &'a Sampling,
    /// Those at which values are kept, in order.
    instants: &'a [BootNs],
    /// Just before the readings that are kept: whoever sweeps over time takes them first.
    readings: Vec<BootNs>,
}

impl Thinning<'_> {
    /// Keeps some of the rows of a table, and answers when these are, in order.
    fn thin<R: Row, K: Hash + Eq>(
        &mut self,
        revision: &mut Revision,
        of: impl Fn(&R) -> (BootNs, K),
    ) -> Result<Vec<BootNs>, StoreError> {
        let kept = self.kept(&of)?;
        revision.retain(|row: &R| self.is_kept(&kept, of(row).0))?;
        Ok(kept)
    }

    /// When the rows of a table are that are kept: of each key the first, the last, and those on both
    /// sides of an instant.
    fn kept<R: Row, K: Hash + Eq>(
        &mut self,
        of: impl Fn(&R) -> (BootNs, K),
    ) -> Result<Vec<BootNs>, StoreError> {
        let mut last_of: HashMap<K, BootNs> = HashMap::new();
        let mut kept = Vec::new();
        self.recording.scan(&[], |row: R| {
            let (at, key) = of(&row);
            match last_of.insert(key, at) {
                None => kept.push(at),
                Some(last) => {
                    let next = self.instants.partition_point(|&instant| instant < last);
                    if self.instants.get(next).is_some_and(|&instant| instant < at) {
                        kept.extend([last, at]);
                    }
                }
            }
        })?;
        kept.extend(last_of.into_values());
        let kept = in_order(kept);
        self.readings.extend(kept.iter().copied().map(just_before));
        Ok(kept)
    }

    /// Notes when the rows are of a table that stays whole: on change, or every some seconds.
    fn note<R: Row>(&mut self, at: impl Fn(&R) -> BootNs) -> Result<(), StoreError> {
        self.recording
            .scan(&[], |row: R| self.readings.push(just_before(at(&row))))
    }

    fn is_kept(&self, kept: &[BootNs], at: BootNs) -> bool {
        kept.binary_search(&at).is_ok() || self.sampling.is_whole(at)
    }
}

/// Takes rows of `mem` in the order of time, and gives those that are kept.
struct Sampler<'a> {
    sampling: &'a Sampling,
    /// The instants that are to come.
    instants: std::iter::Peekable<std::vec::IntoIter<BootNs>>,
    last: Option<BootNs>,
    /// What each process that changed since the last instant holds by now: a row, and behind it one
    /// that the process reported itself, whose unknown amounts are those of the row before.
    changed: BTreeMap<Upid, [Option<MemRow>; 2]>,
}

impl<'a> Sampler<'a> {
    fn new(sampling: &'a Sampling, instants: Vec<BootNs>) -> Self {
        Self {
            sampling,
            instants: instants.into_iter().peekable(),
            last: None,
            changed: BTreeMap::new(),
        }
    }

    fn take(&mut self, row: MemRow, out: &mut Vec<MemRow>) {
        while let Some(instant) = self.instants.next_if(|&instant| instant < row.boot_ns) {
            self.keep_changed(instant, out);
        }
        // A row can come late.
        self.last = self.last.max(Some(row.boot_ns));
        let upid = row.upid;
        if is_end(&row) {
            self.changed.remove(&upid);
            out.push(row);
        } else if self.sampling.is_whole(row.boot_ns) {
            // Nothing has changed since the instant before.
            out.push(row);
        } else if row.source == Some(MemSource::SelfReported) {
            self.changed.entry(upid).or_default()[1] = Some(row);
        } else {
            self.changed.insert(upid, [Some(row), None]);
        }
    }

    /// No row of a part stands in the next one, so that each can be replaced by itself.
    fn end_part(&mut self, out: &mut Vec<MemRow>) {
        if let Some(last) = self.last {
            self.keep_changed(last, out);
        }
    }

    /// Keeps what processes hold at an instant that have changed since the last one.
    fn keep_changed(&mut self, instant: BootNs, out: &mut Vec<MemRow>) {
        let changed = std::mem::take(&mut self.changed).into_values();
        out.extend(changed.flatten().flatten().map(|row| {
            MemRow {
                ts: WallNs((row.ts.0).saturating_add(instant.0.saturating_sub(row.boot_ns.0)))
                    .whole_ms(),
                boot_ns: instant,
                ..row
            }
        }));
    }
}

fn is_end(row: &MemRow) -> bool {
    row.source == Some(MemSource::Exit)
}
