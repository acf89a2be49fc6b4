//! Who touched the memory that is still resident: `growth_site` and `stack`, from `record --stacks`.

mod exports;
mod flame;
mod frame;
mod functions;
mod held;
mod line;
mod moments;
mod on_gpus;
mod pprof;
mod resident;
mod source;

pub use exports::{StackFile, export_stacks};
pub use flame::Flame;
pub(super) use flame::flames;
pub use frame::StackFrame;
#[cfg(test)]
pub(super) use frame::tests::frame;
pub(super) use functions::Functions;
pub(super) use held::held_by_line;
pub use held::{HeldByLine, LineHolding};
pub use line::CodeLine;
pub(super) use line::by_line;
pub(super) use moments::Moments;
pub(super) use on_gpus::Taken;
pub use on_gpus::{CudaLine, CudaLines};

use super::process::Process;
use super::process_table::ProcessTable;
use super::who::Who;
use memtrace_model::tables::GrowthSiteRow;
use memtrace_model::{BootNs, Bytes, Order, RowSource};
pub use resident::RssThen;
pub(super) use resident::frames_of;
use resident::{
    Fullest, Growing, LAST, LATE, Stacks, read_growing, read_sites, read_sites_twice, read_stacks,
    there,
};
use schemars::JsonSchema;
use serde::Serialize;
pub(super) use source::SourceLines;
use std::cmp::Reverse;

/// Lines of one process.
const SITES_MAX: usize = 50;

/// What one process touched anew, by the line that did it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ProcessAllocations {
    /// The process that touched the memory.
    #[serde(flatten)]
    pub who: Who,
    /// Whether it ended during the recording: then the figures are those of the moment in its last three
    /// seconds at which most was resident.
    pub has_ended: bool,
    /// What its lines add up to, also those that are not listed.
    #[serde(flatten)]
    pub sum: Sampled,
    /// Of its resident bytes, those of samples without a stack.
    pub unnamed_bytes: Bytes,
    /// The lines, the one with most resident memory first; at most 50.
    pub sites: Vec<AllocationSite>,
    /// What came to its resident bytes in the later half of its life, as far as that was recorded: a
    /// start-up is over by then. 0 where that is not known.
    #[serde(skip)]
    pub(crate) later_bytes: Bytes,
    /// The line that most of that came by.
    #[serde(skip)]
    pub(crate) later: Option<AllocationSite>,
    /// What it held in its last moments by function, whatever the line: for comparisons.
    #[serde(skip)]
    pub(crate) functions: Functions,
}

/// One line of Python, or a native function where no Python runs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AllocationSite {
    /// Which line it is.
    #[serde(flatten)]
    pub line: CodeLine,
    /// What was sampled there.
    #[serde(flatten)]
    pub sum: Sampled,
    /// What came there since an earlier instant, shared or not; negative where some went.
    #[serde(skip)]
    pub(crate) gained_bytes: Bytes,
}

impl AllocationSite {
    /// What of its resident bytes came since then.
    pub(crate) fn later(&self) -> Bytes {
        self.gained_bytes.min(self.sum.resident_bytes)
    }
}

/// What one line of a process came to hold in a time.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AllocationGain {
    /// The process that touched the memory.
    #[serde(flatten)]
    pub who: Who,
    /// Which line it is.
    #[serde(flatten)]
    pub line: CodeLine,
    /// What it held more at the end than at the begin, by samples; what it touched in a second before and
    /// after can count, too.
    pub gained_bytes: Bytes,
}

/// Memory by samples.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct Sampled {
    /// The number of samples.
    pub sample_count: i64,
    /// Memory that was touched anew, whatever became of it.
    pub grown_bytes: Bytes,
    /// Standard error of that; of a line it allows for one sample more.
    pub grown_error_bytes: Bytes,
    /// Of all of it, what was resident or swapped when it was last looked at, without what is shared.
    pub resident_bytes: Bytes,
    /// Of that, what lay in a block of malloc that was in use; `None` where no heap was searched for it.
    pub live_bytes: Option<Bytes>,
    /// Of that, what the program had freed and malloc kept. What is in neither is not known.
    pub kept_bytes: Option<Bytes>,
    /// Of the resident bytes, what the process copied because it shared it since a fork: RSS does not grow by
    /// that. `None` where copies were not sampled.
    pub copied_bytes: Option<Bytes>,
    /// What was resident then in shared memory that is mapped more than once, as by other processes; `None`
    /// where shared memory was not sampled.
    pub shared_bytes: Option<Bytes>,
    /// What was seen to be given back.
    pub returned_bytes: Bytes,
    /// Of which none of these is known: it has no address, or its process ended before it was looked at.
    pub unknown_bytes: Bytes,
}

impl From<&GrowthSiteRow> for Sampled {
    fn from(row: &GrowthSiteRow) -> Self {
        Self {
            sample_count: row.sample_count,
            grown_bytes: row.grown_bytes,
            grown_error_bytes: row.grown_error_bytes,
            resident_bytes: row.resident_bytes,
            live_bytes: row.live_bytes,
            kept_bytes: row.kept_bytes,
            copied_bytes: row.copied_bytes,
            shared_bytes: row.shared_bytes,
            returned_bytes: row.returned_bytes,
            unknown_bytes: Bytes(0),
        }
    }
}

impl Sampled {
    pub(crate) fn add(&mut self, row: &Self) {
        self.sample_count = self.sample_count.saturating_add(row.sample_count);
        self.grown_bytes = self.grown_bytes + row.grown_bytes;
        // Independent of each other.
        let [one, other] = [self.grown_error_bytes, row.grown_error_bytes].map(|one| one.0 as f64);
        self.grown_error_bytes = Bytes(one.hypot(other) as i64);
        self.resident_bytes = self.resident_bytes + row.resident_bytes;
        for (sum, part) in [
            (&mut self.live_bytes, row.live_bytes),
            (&mut self.kept_bytes, row.kept_bytes),
            (&mut self.copied_bytes, row.copied_bytes),
            (&mut self.shared_bytes, row.shared_bytes),
        ] {
            *sum = part.map(|part| part + sum.unwrap_or_default()).or(*sum);
        }
        self.returned_bytes = self.returned_bytes + row.returned_bytes;
        let known = self.resident_bytes + self.shared() + self.returned_bytes;
        self.unknown_bytes = (self.grown_bytes - known).max(Bytes(0));
    }

    /// Allows for a sample of the process that by chance none of these is: of a line with few, how they
    /// change from one stack to another says little.
    fn allow_one_more_of(&mut self, process: &Self) {
        let error = (self.grown_error_bytes.0 as f64).hypot(process.weight());
        self.grown_error_bytes = Bytes(error as i64);
    }

    /// What a sample stands for in the mean, in bytes.
    pub(crate) fn weight(&self) -> f64 {
        self.grown_bytes.0.max(0) as f64 / self.sample_count.max(1) as f64
    }

    /// What is known to be resident; `None` where nothing was looked at.
    pub(crate) fn resident(&self) -> Option<Bytes> {
        Some(self.resident_bytes).filter(|_| self.unknown_bytes < self.grown_bytes)
    }

    /// Standard error of what is known to be resident.
    pub(crate) fn resident_error(&self) -> f64 {
        self.error_of(self.resident_bytes)
    }

    /// Standard error of a part: that of all, and that by chance as many of its samples are of the part.
    pub(crate) fn error_of(&self, part: Bytes) -> f64 {
        let all = self.grown_bytes.0.max(1) as f64;
        let part = (part.0 as f64 / all).clamp(0.0, 1.0);
        let by_chance = self.weight() * all * part * (1.0 - part);
        (self.grown_error_bytes.0 as f64 * part).hypot(by_chance.sqrt())
    }

    /// What is known to be shared with other processes.
    pub(crate) fn shared(&self) -> Bytes {
        self.shared_bytes.unwrap_or_default()
    }

    /// What is not known to be given back.
    pub(crate) fn not_returned(&self) -> Bytes {
        (self.grown_bytes - self.returned_bytes).max(Bytes(0))
    }
}

/// Reads both tables; what came in the later half of each process's life where sums of before are there.
pub(super) fn read<S: RowSource>(
    source: &S,
    table: &ProcessTable,
    end: BootNs,
    has_earlier: bool,
    lines: &mut SourceLines,
) -> Result<Vec<ProcessAllocations>, S::Error> {
    let place = |upid| table.find(upid);
    let process = |upid| place(upid).map(|place| &table.processes[place]);
    let exit = |upid| process(upid)?.exit_boot_ns();
    let ended = |upid| exit(upid).unwrap_or(end);
    let middle = |upid| {
        let first = process(upid).map_or(end, |process| process.first_seen.boot_ns);
        BootNs(first.0 + (ended(upid).0 - first.0).max(0) / 2)
    };
    let last = |upid| BootNs(ended(upid).0.saturating_sub(LAST.0));
    // What was held as long before can be missed by chance, see `Moments`.
    let since = |upid| BootNs(last(upid).0.saturating_sub(LAST.0));
    let (growing, mut earlier) = read_growing(source, BootNs(i64::MAX), since, middle)?;
    if growing.is_empty() {
        return Ok(Vec::new());
    }
    let wanted = growing.values().flat_map(Growing::stack_ids);
    let stacks = frames_of(source, &wanted.collect(), lines)?;
    let mut all: Vec<ProcessAllocations> = growing
        .into_iter()
        .filter_map(|(upid, growing)| {
            let exit = exit(upid);
            let rows = growing.rows(exit.map(Fullest::before));
            let earlier = has_earlier.then(|| earlier.remove(&upid).unwrap_or_default());
            let who = Who::from(process(upid)?);
            let mut one = of_process(who, exit.is_some(), rows, earlier, &stacks);
            one.functions = Functions::of(growing.moments(last(upid)), &stacks);
            Some(one)
        })
        .collect();
    all.order_by_key(|one| (Reverse(one.sum.resident_bytes), one.who.upid));
    Ok(all)
}

/// Which lines touched what a process held at an instant, or before its end where it ended by then;
/// `None` where no stacks were recorded of it.
pub(super) fn at<S: RowSource>(
    source: &S,
    process: &Process,
    at: BootNs,
    lines: &mut SourceLines,
) -> Result<Option<ProcessAllocations>, S::Error> {
    let until = at + LATE;
    let exit = process.exit_boot_ns().filter(|exit| *exit <= until);
    let fullest = exit.map(Fullest::before);
    let mut sites = read_sites(source, until, |upid| {
        fullest.filter(|_| upid == process.upid)
    })?;
    sites.retain(|upid, _| *upid == process.upid);
    let stacks = read_stacks(source, &sites, lines)?;
    let rows = sites.remove(&process.upid);
    Ok(rows.map(|rows| of_process(Who::from(process), exit.is_some(), rows, None, &stacks)))
}

/// Which lines came to hold most from one instant to another, those first; at most 50.
pub(super) fn gained<S: RowSource>(
    source: &S,
    table: &ProcessTable,
    [begin, end]: [BootNs; 2],
    lines: &mut SourceLines,
) -> Result<Vec<AllocationGain>, S::Error> {
    let until = end + LATE;
    let process = |upid| Some(&table.processes[table.find(upid)?]);
    let exit = |upid| process(upid)?.exit_boot_ns().filter(|exit| *exit <= until);
    let fullest = |upid| exit(upid).map(Fullest::before);
    let (sites, mut earlier) = read_sites_twice(source, until, fullest, |_| begin)?;
    let stacks = read_stacks(source, &sites, lines)?;
    let mut all = Vec::new();
    for (upid, rows) in sites {
        let is_there = |one: &&Process| one.exit_boot_ns().is_none_or(|exit| exit > begin);
        let Some(process) = process(upid).filter(is_there) else {
            continue;
        };
        let (who, before) = (
            Who::from(process),
            earlier.remove(&upid).unwrap_or_default(),
        );
        let found = of_process(who, exit(upid).is_some(), rows, Some(before), &stacks);
        let gained = found
            .sites
            .into_iter()
            .filter(|site| site.gained_bytes.0 > 0);
        all.extend(gained.map(|site| AllocationGain {
            who: found.who.clone(),
            line: site.line,
            gained_bytes: site.gained_bytes,
        }));
    }
    all.order_by_key(|one| (Reverse(one.gained_bytes), one.who.upid));
    all.truncate(SITES_MAX);
    Ok(all)
}

fn of_process(
    who: Who,
    has_ended: bool,
    mut rows: Vec<GrowthSiteRow>,
    earlier: Option<Vec<GrowthSiteRow>>,
    stacks: &Stacks,
) -> ProcessAllocations {
    // The first stack of a line is the one that is shown of it.
    rows.order_by_key(|row| {
        (
            Reverse(row.resident_bytes),
            Reverse(row.grown_bytes),
            row.stack_id,
        )
    });
    let mut sum = Sampled::default();
    for row in &rows {
        sum.add(&Sampled::from(row));
    }
    let later_of = |row: &GrowthSiteRow| earlier.as_ref().map_or(Bytes(0), |_| there(row));
    let at_end = rows.iter();
    let at_end = at_end.map(|row| (row.stack_id, (Some(Sampled::from(row)), later_of(row))));
    let before = earlier.iter().flatten();
    let before = before.map(|row| (row.stack_id, (None, Bytes(0) - there(row))));
    let sites = by_line(
        at_end.chain(before),
        stacks,
        |sum: &mut (Sampled, Bytes), row| {
            let (sampled, gained_bytes): (Option<Sampled>, Bytes) = row;
            if let Some(sampled) = sampled {
                sum.0.add(&sampled);
            }
            sum.1 = sum.1 + gained_bytes;
        },
    );
    let sites = sites
        .into_iter()
        .map(|(line, (mut of_line, gained_bytes))| {
            of_line.allow_one_more_of(&sum);
            AllocationSite {
                line,
                sum: of_line,
                gained_bytes,
            }
        });
    let mut sites: Vec<AllocationSite> = sites.collect();
    let later_bytes = sites.iter().map(AllocationSite::later).sum();
    let named = sites.iter().filter(|site| site.line.frame.is_some());
    let later = named.max_by_key(|site| site.later()).cloned();
    let unnamed = sites.iter().filter(|site| site.line.frame.is_none());
    let unnamed_bytes = unnamed.map(|site| site.sum.resident_bytes).sum();
    sites.order_by_key(|site| {
        (
            Reverse(site.sum.resident_bytes),
            Reverse(site.sum.shared_bytes),
            Reverse(site.sum.grown_bytes),
        )
    });
    sites.truncate(SITES_MAX);
    ProcessAllocations {
        who,
        has_ended,
        sum,
        unnamed_bytes,
        sites,
        later_bytes,
        later,
        functions: Functions::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::frame::tests::frame;
    use super::*;
    use memtrace_model::FrameKind;
    use std::collections::HashMap;

    #[test]
    fn lines_of_one_function_are_one_and_errors_add_up_as_independent() {
        let site = |stack_id, mib: i64| GrowthSiteRow {
            stack_id,
            sample_count: 1,
            grown_bytes: Bytes(mib << 20),
            grown_error_bytes: Bytes(mib << 20),
            resident_bytes: Bytes(mib << 20),
            ..GrowthSiteRow::default()
        };
        let grow = |address| {
            let mut frame = frame(FrameKind::Native, Some("grow"), "/x/libfoo.so", None);
            frame.row.address = Some(address);
            vec![frame]
        };
        let mut called = grow(1);
        called.push(frame(FrameKind::Native, Some("f(int)"), "/x/prog", None));
        let stacks = HashMap::from([(1, grow(1)), (2, grow(2)), (3, called)]);
        let rows = vec![site(1, 3), site(2, 4), site(3, 2), site(0, 1)];
        let text = of_process(Who::default(), false, rows, None, &stacks);
        assert_eq!(text.sites.len(), 3);
        assert_eq!(text.sites[1].line.callers[0].short(), Some("f".to_owned()));
        // sqrt(3² + 4²) MiB, and a sample of 2.5 MiB that can have been missed.
        assert_eq!(text.sites[0].sum.grown_error_bytes.0 >> 10, 5_724);
        assert_eq!(text.sites[0].sum.resident_bytes, Bytes(7 << 20));
        assert_eq!(text.unnamed_bytes, Bytes(1 << 20));
        assert_eq!(text.later_bytes, Bytes(0));
    }

    #[test]
    fn what_was_shared_before_did_not_come_when_others_went() {
        let site = |resident: i64, shared: i64| GrowthSiteRow {
            stack_id: 1,
            grown_bytes: Bytes(90 << 20),
            resident_bytes: Bytes(resident << 20),
            shared_bytes: Some(Bytes(shared << 20)),
            ..GrowthSiteRow::default()
        };
        let load = frame(FrameKind::Native, Some("load"), "/x/prog", None);
        let stacks = HashMap::from([(1, vec![load])]);
        let came = |now, before| {
            let all = of_process(
                Who::default(),
                false,
                vec![now],
                Some(vec![before]),
                &stacks,
            );
            [all.later_bytes, all.sites[0].gained_bytes].map(|bytes| bytes.0 >> 20)
        };
        assert_eq!(came(site(60, 0), site(0, 60)), [0, 0]);
        assert_eq!(came(site(0, 90), site(0, 60)), [0, 30]);
        assert_eq!(came(site(90, 0), site(60, 0)), [30, 30]);
    }

    #[test]
    fn what_came_after_the_start_up_has_a_line_of_its_own() {
        let site = |stack_id, mib: i64| GrowthSiteRow {
            stack_id,
            grown_bytes: Bytes(mib << 20),
            resident_bytes: Bytes(mib << 20),
            ..GrowthSiteRow::default()
        };
        let stack = |function| vec![frame(FrameKind::Native, Some(function), "/x/prog", None)];
        let stacks = HashMap::from([(1, stack("load")), (2, stack("leak"))]);
        let earlier = vec![site(1, 310), site(2, 40)];
        let rows = vec![site(1, 300), site(2, 100)];
        let text = of_process(Who::default(), false, rows, Some(earlier), &stacks);
        assert_eq!(text.sites[0].line.place(), "load (prog)");
        assert_eq!(text.later_bytes, Bytes(50 << 20));
        let later = text.later.unwrap();
        assert_eq!(later.line.place(), "leak (prog)");
        assert_eq!(later.later(), Bytes(60 << 20));
    }
}
