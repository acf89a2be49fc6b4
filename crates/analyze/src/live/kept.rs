//! What is kept of the rows of a recording that goes on, but for those of `mem`: of readings the
//! newest of each kind, of what happened all. It is a small recording itself, which the analysis of
//! a report reads.

use memtrace_model::tables::{
    CachedFileRow, CgroupMemRow, CudaMemoryRow, DiagRow, GpuDeviceRow, GpuProcessRow,
    GrowthSiteRow, MappingRow, MarkRow, MemRow, NodeMemRow, OomRow, ProcessRow, PssRow,
    SelfCostRow, ShmObjectRow, StackRow, TitleRow,
};
use memtrace_model::{BootNs, DurationNs, FreshRows, Row, RowSource, Upid};
use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};

/// So many rows of one table are kept of what happened; those before are forgotten.
const EVENTS_MAX: usize = 100_000;

/// Of a cgroup that is still read there is a row every 30 s, also where nothing changed. One that
/// had none while others had for this long is gone.
const CGROUP_SILENCE: DurationNs = DurationNs(60_000_000_000);

/// So many rows come to a table of readings before it is looked at again what of it is needed.
const SLACK: usize = 1_000;

/// A row of a table without a key.
trait Timed: Row {
    fn at(&self) -> BootNs;

    /// Of whom it tells: rows of one time come in this order.
    fn upid(&self) -> Option<Upid> {
        None
    }

    /// What it is a reading of; `None` for what happened once.
    fn subject(&self, _hasher: &RandomState) -> Option<u64> {
        None
    }
}

/// Rows in the order of time.
#[derive(Debug)]
struct Rows<R> {
    rows: Vec<R>,
    /// How many there were when it was last looked at which are needed.
    needed: usize,
}

impl<R> Default for Rows<R> {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            needed: 0,
        }
    }
}

impl<R: Timed> Rows<R> {
    /// Takes what came. Answers whether there was anything.
    fn take<S: FreshRows>(&mut self, source: &mut S) -> Result<bool, S::Error> {
        let mut is_new = false;
        source.fresh(&[], |row: R| {
            is_new = true;
            self.rows.push(row);
            // Of a recording that is long already not all fits.
            if self.rows.len() >= 2 * EVENTS_MAX {
                self.sort();
                self.rows.drain(..EVENTS_MAX);
            }
        })?;
        self.sort();
        Ok(is_new)
    }

    fn sort(&mut self) {
        // The common case: all came in order.
        let order = |row: &R| (row.at(), row.upid());
        if !self.rows.is_sorted_by_key(order) {
            self.rows.sort_by_key(order);
        }
    }

    /// Forgets readings that a later one replaced before that time.
    fn forget(&mut self, settled: BootNs, hasher: &RandomState) {
        if self.rows.len() < 2 * self.needed + SLACK {
            return;
        }
        let mut last: HashMap<u64, BootNs> = HashMap::new();
        for row in self.rows.iter().take_while(|row| row.at() <= settled) {
            if let Some(subject) = row.subject(hasher) {
                last.insert(subject, row.at());
            }
        }
        self.rows.retain(|row| {
            let subject = row.subject(hasher);
            let last = subject.and_then(|subject| last.get(&subject));
            last.is_none_or(|last| row.at() >= *last)
        });
        let excess = self.rows.len().saturating_sub(EVENTS_MAX);
        self.rows.drain(..excess);
        self.needed = self.rows.len();
    }
}

/// Declares what is kept: the name of the rows, their type, and what each is a reading of.
macro_rules! kept {
    ($($field:ident: $row:ident $(of $upid:ident)? $(=> |$reading:ident| $subject:expr)?,)+) => {
        $(impl Timed for $row {
            fn at(&self) -> BootNs {
                self.boot_ns
            }
            $(fn upid(&self) -> Option<Upid> {
                Some(self.$upid)
            })?
            $(fn subject(&self, hasher: &RandomState) -> Option<u64> {
                let $reading = self;
                Some(hasher.hash_one($subject))
            })?
        })+

        #[derive(Debug, Default)]
        pub(super) struct Kept {
            processes: Vec<ProcessRow>,
            places: HashMap<Upid, usize>,
            /// Whoever had ended by then is left out of what is read first.
            ended_before: Option<BootNs>,
            /// Whether lines that allocated are kept: not for who follows a recording for days.
            is_without_lines: bool,
            /// The processes that were left out.
            left_out: HashSet<Upid>,
            /// Of `mem`, what whoever asks has put there.
            pub(super) mem: Vec<MemRow>,
            hasher: RandomState,
            $($field: Rows<$row>,)+
        }

        impl Kept {
            /// Takes what came to the tables without a key. Answers to which.
            fn take_timed<S: FreshRows>(&mut self, source: &mut S) -> Result<News, S::Error> {
                let mut news = News::default();
                $(if self.$field.take(source)? {
                    news.0.push(<$row as Row>::TABLE.name);
                })+
                Ok(news)
            }

            /// Forgets readings that are not needed for what comes after that time.
            pub(super) fn forget(&mut self, settled: BootNs) {
                $(self.$field.forget(settled, &self.hasher);)+
            }

            /// Drops what was read of those that are left out.
            fn leave_out(&mut self) {
                let left_out = &self.left_out;
                let stays = |upid: Option<Upid>| upid.is_none_or(|upid| !left_out.contains(&upid));
                $(self.$field.rows.retain(|row| stays(row.upid()));)+
            }

            fn tables(&self) -> impl Iterator<Item = &dyn Any> {
                let all: Vec<&dyn Any> =
                    vec![&self.processes, &self.mem, $(&self.$field.rows),+];
                all.into_iter()
            }
        }
    };
}

kept! {
    pss: PssRow of upid => |row| row.upid,
    mappings: MappingRow of upid => |row| row.upid,
    objects: ShmObjectRow => |row| (&row.device, row.inode),
    files: CachedFileRow => |row| (&row.device, row.inode),
    cgroups: CgroupMemRow => |row| &row.cgroup,
    nodes: NodeMemRow => |_row| (),
    devices: GpuDeviceRow => |row| &row.device,
    on_devices: GpuProcessRow => |row| (
        &row.device, row.tgid, row.gpu_instance_id, row.compute_instance_id, row.client_id
    ),
    calls: CudaMemoryRow of upid => |row| (row.upid, row.cuda_device),
    sites: GrowthSiteRow of upid => |row| (row.upid, row.stack_id),
    frames: StackRow => |row| (row.stack_id, row.depth),
    costs: SelfCostRow => |_row| (),
    diags: DiagRow,
    kills: OomRow,
    marks: MarkRow,
    titles: TitleRow of upid,
}

/// The tables to which rows came.
#[derive(Debug, Default)]
pub(super) struct News(Vec<&'static str>);

impl News {
    /// Whether rows came to a table.
    pub(super) fn has<R: Row>(&self) -> bool {
        self.0.contains(&R::TABLE.name)
    }

    /// Whether any came.
    pub(super) fn is_any(&self) -> bool {
        !self.0.is_empty()
    }
}

impl Kept {
    /// The same without those that had ended before that time, as far as the first look shows it.
    pub(super) fn without_ended_before(ended_before: BootNs) -> Self {
        Self {
            ended_before: Some(ended_before),
            is_without_lines: true,
            ..Self::default()
        }
    }

    /// Whether a process is left out.
    pub(super) fn is_left_out(&self, upid: Upid) -> bool {
        self.left_out.contains(&upid)
    }

    /// Takes what came. Who there is comes last: then it has everyone of whom the rest tells.
    pub(super) fn take<S: FreshRows>(&mut self, source: &mut S) -> Result<News, S::Error> {
        let mut news = self.take_timed(source)?;
        if self.is_without_lines {
            self.sites.rows.clear();
            self.frames.rows.clear();
        }
        // Later they have places that others count on.
        let ended_before = self.ended_before.take();
        let (processes, places) = (&mut self.processes, &mut self.places);
        let left_out = &mut self.left_out;
        let mut is_new = false;
        source.fresh(&[], |row: ProcessRow| {
            is_new = true;
            let ended = row.exit_boot_ns.zip(ended_before);
            if ended.is_some_and(|(exit, before)| exit < before) {
                left_out.insert(row.upid);
                if let Some(place) = places.remove(&row.upid) {
                    processes.swap_remove(place);
                    if let Some(moved) = processes.get(place) {
                        places.insert(moved.upid, place);
                    }
                }
                return;
            }
            match places
                .get(&row.upid)
                .and_then(|place| processes.get_mut(*place))
            {
                Some(known) => *known = row,
                None => {
                    places.insert(row.upid, processes.len());
                    processes.push(row);
                }
            }
        })?;
        if is_new {
            news.0.push(ProcessRow::TABLE.name);
        }
        if ended_before.is_some() && !self.left_out.is_empty() {
            self.processes.sort_by_key(|row| row.upid);
            let order = self.processes.iter().enumerate();
            self.places = order.map(|(place, row)| (row.upid, place)).collect();
            self.leave_out();
        }
        Ok(news)
    }

    /// The newest reading of each cgroup that is still read: not of one that was removed.
    pub(super) fn cgroups(&self) -> impl Iterator<Item = &CgroupMemRow> {
        let rows = &self.cgroups.rows;
        let newest: HashMap<&str, &CgroupMemRow> =
            rows.iter().map(|row| (row.cgroup.as_str(), row)).collect();
        let last = rows.last().map_or(BootNs(0), |row| row.boot_ns);
        let newest = newest.into_values();
        newest.filter(move |row| last - row.boot_ns <= CGROUP_SILENCE)
    }

    /// The newest reading of each GPU, without the instances whose GPU is among them.
    pub(super) fn devices(&self) -> Vec<&GpuDeviceRow> {
        let rows = &self.devices.rows;
        let newest: HashMap<&str, &GpuDeviceRow> =
            rows.iter().map(|row| (row.device.as_str(), row)).collect();
        let is_part = |row: &&GpuDeviceRow| {
            let parent = row.parent_device.as_deref();
            parent.is_some_and(|parent| newest.contains_key(parent))
        };
        newest
            .values()
            .copied()
            .filter(|row| !is_part(row))
            .collect()
    }

    /// What the recorder took so far.
    pub(super) fn newest_cost(&self) -> Option<&SelfCostRow> {
        self.costs.rows.last()
    }

    /// The kills by the OOM killer.
    pub(super) fn kills(&self) -> &[OomRow] {
        &self.kills.rows
    }

    /// The newest reading of the node.
    pub(super) fn node(&self) -> Option<&NodeMemRow> {
        self.nodes.rows.last()
    }

    /// The newest row of any table but `mem`.
    pub(super) fn last(&self) -> Option<BootNs> {
        let times = [
            self.costs.rows.last().map(Timed::at),
            self.nodes.rows.last().map(Timed::at),
            self.cgroups.rows.last().map(Timed::at),
            self.marks.rows.last().map(Timed::at),
            self.devices.rows.last().map(Timed::at),
        ];
        times.into_iter().flatten().max()
    }
}

impl RowSource for Kept {
    type Error = Infallible;

    fn scan<R: Row>(&self, _columns: &[&str], each: impl FnMut(R)) -> Result<(), Infallible> {
        let rows = self.tables().find_map(|rows| rows.downcast_ref::<Vec<R>>());
        rows.into_iter().flatten().cloned().for_each(each);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::any::Any;

    /// So many marks at one instant.
    struct Storm(usize);

    impl FreshRows for Storm {
        type Error = Infallible;

        fn fresh<R: Row>(&mut self, _: &[&str], mut each: impl FnMut(R)) -> Result<(), Infallible> {
            for place in 0..self.0 {
                let mark = MarkRow {
                    name: place.to_string(),
                    ..MarkRow::default()
                };
                match (Box::new(mark) as Box<dyn Any>).downcast::<R>() {
                    Ok(row) => each(*row),
                    Err(_) => break,
                }
            }
            Ok(())
        }
    }

    #[test]
    fn of_a_storm_of_rows_the_newest_are_kept() {
        let count = 2 * EVENTS_MAX + 7;
        let mut kept = Kept::default();
        let Ok(news) = kept.take(&mut Storm(count));
        assert!(news.has::<MarkRow>() && !news.has::<TitleRow>());
        let mut names = Vec::new();
        let Ok(()) = kept.scan(&[], |mark: MarkRow| names.push(mark.name));
        assert!((EVENTS_MAX..2 * EVENTS_MAX).contains(&names.len()));
        assert_eq!(names.last(), Some(&(count - 1).to_string()));
    }
}
