//! What was resident by process and stack: the sums of `growth_site` as they stood at the end, or at an
//! instant, and the frames of their stacks.

use super::frame::StackFrame;
use memtrace_model::tables::{GrowthSiteRow, ProcessRow, StackRow};
use memtrace_model::{BootNs, Bytes, Order, RowSource, Tgid, Upid};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The last moments of a process that has ended.
const LAST_NS: i64 = 3_000_000_000;

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
    pub(super) tgid: Tgid,
    /// Its short name and its process id.
    pub(super) name: String,
    /// In the order of stacks, none without resident memory.
    pub(super) rows: Vec<GrowthSiteRow>,
}

impl Resident {
    /// As it stood at the end, or before the end of a process.
    pub(super) fn read<S: RowSource>(source: &S) -> Result<Self, S::Error> {
        let mut known: HashMap<Upid, (Tgid, String, Option<BootNs>)> = HashMap::new();
        source.scan(&[], |row: ProcessRow| {
            let name = format!("{} {}", row.comm, row.tgid);
            known.insert(row.upid, (row.tgid, name, row.exit_boot_ns));
        })?;
        let sites = read_sites(source, BootNs(i64::MAX), |upid| known.get(&upid)?.2)?;
        let stacks = read_stacks(source, &sites)?;
        let processes = sites.into_iter().filter_map(|(upid, mut rows)| {
            rows.retain(|row| row.resident_bytes.0 > 0);
            rows.order_by_key(|row| row.stack_id);
            let (tgid, name, _) = known.remove(&upid)?;
            (!rows.is_empty()).then_some(ResidentProcess { tgid, name, rows })
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

/// The sums of one process by stack, as they come.
#[derive(Default)]
struct Growing {
    now: HashMap<i64, GrowthSiteRow>,
    now_boot_ns: BootNs,
    /// Where the process has ended: the most that was resident in its last moments.
    most: Option<(Bytes, HashMap<i64, GrowthSiteRow>)>,
}

impl Growing {
    fn add(&mut self, row: GrowthSiteRow, exit: Option<BootNs>) {
        if row.boot_ns != self.now_boot_ns {
            // Of what stands before its last moments the last counts.
            if exit.is_some_and(|exit| row.boot_ns.0 >= exit.0.saturating_sub(LAST_NS)) {
                self.note_most();
            }
            self.now_boot_ns = row.boot_ns;
        }
        self.now.insert(row.stack_id, row);
    }

    /// A program that ends often frees all it has: what it held is what it held before that.
    fn note_most(&mut self) {
        let resident: Bytes = self.now.values().map(there).sum();
        if self.most.as_ref().is_none_or(|(most, _)| resident >= *most) {
            self.most = Some((resident, self.now.clone()));
        }
    }

    fn rows(mut self, exit: Option<BootNs>) -> Vec<GrowthSiteRow> {
        if exit.is_some() {
            self.note_most();
        }
        let rows = self.most.map_or(self.now, |(_, rows)| rows);
        rows.into_values().collect()
    }
}

/// What was there of what was touched, shared or not: whether others map it changes as they come and go.
pub(super) fn there(row: &GrowthSiteRow) -> Bytes {
    row.resident_bytes + row.shared_bytes.unwrap_or_default()
}

/// The sums by process and stack.
pub(super) type Sites = BTreeMap<Upid, Vec<GrowthSiteRow>>;

/// The sums at `until`, or before the end of the process, whose time `exit` gives.
pub(super) fn read_sites<S: RowSource>(
    source: &S,
    until: BootNs,
    exit: impl Fn(Upid) -> Option<BootNs>,
) -> Result<Sites, S::Error> {
    Ok(read_sites_twice(source, until, exit, |_| BootNs(i64::MIN))?.0)
}

/// The same, and the sums at an earlier instant of each process.
pub(super) fn read_sites_twice<S: RowSource>(
    source: &S,
    until: BootNs,
    exit: impl Fn(Upid) -> Option<BootNs>,
    earlier: impl Fn(Upid) -> BootNs,
) -> Result<(Sites, Sites), S::Error> {
    let mut growing: HashMap<Upid, (Growing, Growing)> = HashMap::new();
    source.scan(&[], |row: GrowthSiteRow| {
        if row.boot_ns > until {
            return;
        }
        let (last, before) = growing.entry(row.upid).or_default();
        if row.boot_ns <= earlier(row.upid) {
            before.add(row.clone(), None);
        }
        let exit = exit(row.upid);
        last.add(row, exit);
    })?;
    let rows = growing.into_iter().map(|(upid, (last, before))| {
        let last = last.rows(exit(upid));
        ((upid, last), (upid, before.rows(None)))
    });
    Ok(rows.unzip())
}

/// The frames of the stacks of these sums.
pub(super) fn read_stacks<S: RowSource>(source: &S, sites: &Sites) -> Result<Stacks, S::Error> {
    let rows = sites.values().flatten();
    frames_of(source, &rows.map(|row| row.stack_id).collect())
}

/// The frames of these stacks.
pub(crate) fn frames_of<S: RowSource>(
    source: &S,
    wanted: &HashSet<i64>,
) -> Result<Stacks, S::Error> {
    let mut stacks = Stacks::new();
    source.scan(&[], |row: StackRow| {
        if wanted.contains(&row.stack_id) {
            let frames = stacks.entry(row.stack_id).or_default();
            frames.push(StackFrame { row });
        }
    })?;
    for frames in stacks.values_mut() {
        frames.order_by_key(|frame| frame.row.depth);
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
            resident_bytes: Bytes(mib << 20),
            ..GrowthSiteRow::default()
        };
        let text = |exit: Option<i64>| {
            let exit = exit.map(|at| BootNs(at * 1_000_000_000));
            let mut growing = Growing::default();
            // Freed in the middle of its life, and as it ends.
            for row in [
                row(1, 1, 90),
                row(2, 1, 10),
                row(8, 2, 50),
                row(9, 2, 0),
                row(9, 1, 0),
            ] {
                growing.add(row, exit);
            }
            let mut rows = growing.rows(exit);
            rows.sort_by_key(|row| row.stack_id);
            let resident = rows.iter().map(|row| row.resident_bytes.0 >> 20);
            resident.collect::<Vec<_>>()
        };
        assert_eq!(text(None), [0, 0]);
        assert_eq!(text(Some(9)), [10, 50]);
        assert_eq!(text(Some(30)), [0, 0]);
    }
}
