//! What was resident by process and stack: the sums of `growth_site` as they stood at the end, or at an
//! instant, and the frames of their stacks.

use super::Sampled;
use super::frame::StackFrame;
use super::moments::Moments;
use super::source::SourceLines;
use memtrace_model::tables::{GrowthSiteRow, ProcessRow, StackRow};
use memtrace_model::{BootNs, Bytes, DurationNs, Instant, Order, RowSource, Tgid, Upid};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Rows come this much later than what they say.
pub(super) const LATE: DurationNs = DurationNs(1_000_000_000);
/// The last moments of a process.
pub(super) const LAST: DurationNs = DurationNs(3_000_000_000);

/// Frames by stack, innermost first.
pub(crate) type Stacks = HashMap<i64, Vec<StackFrame>>;

/// What was resident of every process by stack, as exports and drawings take it.
pub(super) struct Resident {
    /// In the order of their identities.
    pub(super) processes: Vec<ResidentProcess>,
    stacks: Stacks,
}

/// What was resident of one process.
pub(super) struct ResidentProcess {
    pub(super) upid: Upid,
    pub(super) tgid: Tgid,
    /// Its short name and its process id.
    pub(super) name: String,
    /// Amounts by stack, in the order of stacks, none without resident memory.
    pub(super) stacks: Vec<(i64, Bytes)>,
}

impl Resident {
    /// As it stood at the end, or before the end of a process; at an instant what [`read_held_at`] says.
    pub(super) fn read<S: RowSource>(source: &S, at: Option<&RssThen>) -> Result<Self, S::Error> {
        let mut known: HashMap<Upid, (Tgid, String, Option<BootNs>)> = HashMap::new();
        source.scan(&[], |row: ProcessRow| {
            let name = format!("{} {}", row.comm, row.tgid);
            known.insert(row.upid, (row.tgid, name, row.exit_boot_ns));
        })?;
        let amounts: BTreeMap<Upid, Vec<StackHeld>> = match at {
            Some(at) => read_held_at(source, at)?,
            None => {
                let fullest = |upid| known.get(&upid)?.2.map(Fullest::before);
                let sites = read_sites(source, BootNs(i64::MAX), fullest)?.into_iter();
                let held = |row: &GrowthSiteRow| StackHeld::of(row, row.resident_bytes);
                let amounts = sites.map(|(upid, rows)| (upid, rows.iter().map(held).collect()));
                amounts.collect()
            }
        };
        let wanted = amounts.values().flatten().map(|one| one.stack_id);
        let stacks = frames_of(source, &wanted.collect(), &mut SourceLines::new())?;
        let processes = amounts.into_iter().filter_map(|(upid, mut amounts)| {
            amounts.retain(|one| one.bytes.0 > 0);
            amounts.sort_unstable_by_key(|one| one.stack_id);
            let amounts = amounts.into_iter().map(|one| (one.stack_id, one.bytes));
            let stacks: Vec<_> = amounts.collect();
            let (tgid, name, _) = known.remove(&upid)?;
            (!stacks.is_empty()).then_some(ResidentProcess {
                upid,
                tgid,
                name,
                stacks,
            })
        });
        Ok(Self {
            processes: processes.collect(),
            stacks,
        })
    }

    /// The frames of a stack, innermost first; none for samples without a stack.
    pub(super) fn frames(&self, stack_id: i64) -> &[StackFrame] {
        self.stacks.get(&stack_id).map_or(&[], Vec::as_slice)
    }
}

/// The sums of one process by stack, in the order in which they came.
#[derive(Default)]
pub(super) struct Growing {
    /// As they stood before the moments that count.
    first: BTreeMap<i64, GrowthSiteRow>,
    /// Those that came since.
    later: Vec<GrowthSiteRow>,
}

impl Growing {
    fn add(&mut self, row: GrowthSiteRow, since: BootNs) {
        if row.boot_ns < since {
            self.first.insert(row.stack_id, row);
        } else {
            self.later.push(row);
        }
    }

    /// The stacks of all moments.
    pub(super) fn stack_ids(&self) -> impl Iterator<Item = i64> {
        let later = self.later.iter().map(|row| row.stack_id);
        self.first.keys().copied().chain(later)
    }

    /// The sums at the end, or at the moment at which most was there.
    pub(super) fn rows(&self, fullest: Option<Fullest>) -> Vec<GrowthSiteRow> {
        let mut now = self.first.clone();
        let mut most: Option<(Bytes, BTreeMap<i64, GrowthSiteRow>)> = None;
        let mut note_most = |now: &BTreeMap<i64, GrowthSiteRow>, fullest: Fullest| {
            let held: Bytes = now.values().map(fullest.amount).sum();
            if most.as_ref().is_none_or(|(most, _)| held >= *most) {
                most = Some((held, now.clone()));
            }
        };
        for rows in self.changes() {
            // Of what stands before the first moment the last counts.
            if let Some(fullest) = fullest.filter(|fullest| rows[0].boot_ns >= fullest.since) {
                note_most(&now, fullest);
            }
            now.extend(rows.iter().map(|row| (row.stack_id, row.clone())));
        }
        if let Some(fullest) = fullest {
            note_most(&now, fullest);
        }
        let rows = most.map_or(now, |(_, rows)| rows);
        rows.into_values().collect()
    }

    /// The sums of each stack moment by moment, as [`Moments`] has them.
    pub(super) fn moments(&self, last: BootNs) -> BTreeMap<i64, Moments> {
        let count = 1 + self.changes().count();
        let before = self.changes().filter(|rows| rows[0].boot_ns < last);
        let none = Moments::none(count, before.count());
        let mut all = BTreeMap::new();
        let first = self.first.values().map(|row| (0, row));
        let changes = (1..).zip(self.changes());
        let later = changes.flat_map(|(from, rows)| rows.iter().map(move |row| (from, row)));
        for (from, row) in first.chain(later) {
            let moments = all.entry(row.stack_id).or_insert_with(|| none.clone());
            moments.stand_from(from, Sampled::from(row));
        }
        all
    }

    /// What came at one time.
    fn changes(&self) -> impl Iterator<Item = &[GrowthSiteRow]> {
        self.later.chunk_by(|one, next| one.boot_ns == next.boot_ns)
    }
}

/// What was there of what was touched, shared or not: whether others map it changes as they come and go.
pub(super) fn there(row: &GrowthSiteRow) -> Bytes {
    row.resident_bytes + row.shared_bytes.unwrap_or_default()
}

/// What is not known to be given back of what was touched, without what several map.
fn not_returned(row: &GrowthSiteRow) -> Bytes {
    row.grown_bytes - row.returned_bytes - row.shared_bytes.unwrap_or_default()
}

/// From when on the moment counts at which most was there, and what of a row says that.
#[derive(Clone, Copy)]
pub(super) struct Fullest {
    since: BootNs,
    amount: fn(&GrowthSiteRow) -> Bytes,
}

impl Fullest {
    /// A program that ends often frees all it has: what it held is what was there in its last moments.
    pub(super) fn before(exit: BootNs) -> Self {
        Self {
            since: BootNs(exit.0.saturating_sub(LAST.0)),
            amount: there,
        }
    }

    /// What is given back is noted late, and what is touched may not have been looked at.
    fn at(at: BootNs) -> Self {
        Self {
            since: at,
            amount: not_returned,
        }
    }
}

/// The sums by process and stack.
pub(super) type Sites = BTreeMap<Upid, Vec<GrowthSiteRow>>;

/// The sums at `until`, or where `fullest` says so at the moment at which most was there.
pub(super) fn read_sites<S: RowSource>(
    source: &S,
    until: BootNs,
    fullest: impl Fn(Upid) -> Option<Fullest>,
) -> Result<Sites, S::Error> {
    Ok(read_sites_twice(source, until, fullest, |_| BootNs(i64::MIN))?.0)
}

/// What each process had at an instant in RSS and swap, without mapped files where these are known; nobody who
/// was not there.
#[derive(Debug)]
pub struct RssThen {
    pub(crate) at: Instant,
    pub(crate) bytes: HashMap<Upid, Bytes>,
}

/// What a process held at an instant that it had touched at one stack.
pub(super) struct StackHeld {
    pub(super) stack_id: i64,
    pub(super) bytes: Bytes,
    /// Standard error of that.
    pub(super) error: f64,
    /// All that it had touched there by then.
    pub(super) grown: Bytes,
}

impl StackHeld {
    fn of(row: &GrowthSiteRow, bytes: Bytes) -> Self {
        Self {
            stack_id: row.stack_id,
            bytes,
            error: Sampled::from(row).error_of(bytes),
            grown: row.grown_bytes,
        }
    }
}

/// What those who were there at an instant had touched and was not known to be given back, by stack, without
/// memory that several processes map. Rows come late: what they say is no more than the process had then.
pub(super) fn read_held_at<S: RowSource>(
    source: &S,
    at: &RssThen,
) -> Result<BTreeMap<Upid, Vec<StackHeld>>, S::Error> {
    let instant = at.at.boot_ns;
    let sites = read_sites(source, instant + LATE, |_| Some(Fullest::at(instant)))?;
    let held = sites.into_iter().filter_map(|(upid, rows)| {
        let rss = at.bytes.get(&upid)?.0;
        let held = rows.iter().map(|row| StackHeld::of(row, not_returned(row)));
        let mut held: Vec<StackHeld> = held.filter(|one| one.bytes.0 > 0).collect();
        let sum: Bytes = held.iter().map(|one| one.bytes).sum();
        if sum.0 > rss {
            let part = rss as f64 / sum.0 as f64;
            for one in &mut held {
                one.bytes = Bytes((one.bytes.0 as f64 * part) as i64);
                one.error *= part;
            }
        }
        Some((upid, held))
    });
    Ok(held.collect())
}

/// The same, and the sums at an earlier instant of each process.
pub(super) fn read_sites_twice<S: RowSource>(
    source: &S,
    until: BootNs,
    fullest: impl Fn(Upid) -> Option<Fullest>,
    earlier: impl Fn(Upid) -> BootNs,
) -> Result<(Sites, Sites), S::Error> {
    let since = |upid| fullest(upid).map_or(BootNs(i64::MAX), |fullest| fullest.since);
    let (growing, earlier) = read_growing(source, until, since, earlier)?;
    let sites = growing.into_iter();
    let sites = sites.map(|(upid, growing)| (upid, growing.rows(fullest(upid))));
    Ok((sites.collect(), earlier))
}

/// The sums until then with the moments since another instant, and the sums at an earlier one.
pub(super) fn read_growing<S: RowSource>(
    source: &S,
    until: BootNs,
    since: impl Fn(Upid) -> BootNs,
    earlier: impl Fn(Upid) -> BootNs,
) -> Result<(BTreeMap<Upid, Growing>, Sites), S::Error> {
    let mut growing: HashMap<Upid, (Growing, Growing)> = HashMap::new();
    source.scan(&[], |row: GrowthSiteRow| {
        if row.boot_ns > until {
            return;
        }
        let (last, before) = growing.entry(row.upid).or_default();
        if row.boot_ns <= earlier(row.upid) {
            before.add(row.clone(), BootNs(i64::MAX));
        }
        let since = since(row.upid);
        last.add(row, since);
    })?;
    let growing = growing.into_iter();
    let growing = growing.map(|(upid, (last, before))| ((upid, last), (upid, before.rows(None))));
    Ok(growing.unzip())
}

/// The frames of the stacks of these sums.
pub(super) fn read_stacks<S: RowSource>(
    source: &S,
    sites: &Sites,
    lines: &mut SourceLines,
) -> Result<Stacks, S::Error> {
    let rows = sites.values().flatten();
    frames_of(source, &rows.map(|row| row.stack_id).collect(), lines)
}

/// The frames of these stacks.
pub(crate) fn frames_of<S: RowSource>(
    source: &S,
    wanted: &HashSet<i64>,
    lines: &mut SourceLines,
) -> Result<Stacks, S::Error> {
    let mut stacks = Stacks::new();
    source.scan(&[], |row: StackRow| {
        if wanted.contains(&row.stack_id) {
            let frames = stacks.entry(row.stack_id).or_default();
            frames.push(StackFrame::from(row));
        }
    })?;
    for frames in stacks.values_mut() {
        frames.order_by_key(|frame| frame.row.depth);
        for frame in frames {
            lines.name(frame);
        }
    }
    Ok(stacks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_frees_as_it_ends_was_resident() {
        let row = |at: i64, stack_id, mib: i64| GrowthSiteRow {
            boot_ns: BootNs(at * 1_000_000_000),
            stack_id,
            grown_bytes: Bytes(90 << 20),
            resident_bytes: Bytes(mib << 20),
            returned_bytes: Bytes((90 - mib) << 20),
            ..GrowthSiteRow::default()
        };
        let text = |exit: Option<i64>| {
            let fullest = exit.map(|at| Fullest::before(BootNs(at * 1_000_000_000)));
            let mut growing = Growing::default();
            // Freed in the middle of its life, and as it ends.
            for row in [
                row(1, 1, 90),
                row(2, 1, 10),
                row(8, 2, 50),
                row(9, 2, 0),
                row(9, 1, 0),
            ] {
                growing.add(row, BootNs(0));
            }
            let mut rows = growing.rows(fullest);
            rows.sort_by_key(|row| row.stack_id);
            let resident = rows.iter().map(|row| row.resident_bytes.0 >> 20);
            resident.collect::<Vec<_>>()
        };
        assert_eq!(text(None), [0, 0]);
        assert_eq!(text(Some(9)), [10, 50]);
        assert_eq!(text(Some(30)), [0, 0]);
    }
}
