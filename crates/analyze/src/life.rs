//! The life of one process: what `--process` asks for.

use super::analysis::Analysis;
use super::layout::{LayoutLine, parts_of};
use super::process::Process;
use super::who::Who;
use memtrace_model::tables::{LayoutRow, MappingKind, MappingRow, MemRow, MemSource};
use memtrace_model::{BootNs, Bytes, Instant, Kind, Label, Order, RowSource, Upid};
use memtrace_timeline::Amounts;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Instants at which its memory is reported, beside its peak.
const INSTANTS_MAX: i128 = 12;
/// Mappings that are reported.
const MAPPINGS_MAX: usize = 200;
/// Other holders of an object that are named.
const OTHERS_MAX: usize = 8;

/// There is no such process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the recording has no process {wanted:?}; the largest are {}", .known.join(", "))]
pub struct ProcessError {
    /// What was asked for.
    pub wanted: String,
    /// Some that there are.
    pub known: Vec<String>,
}

/// Which process is meant: by its id, else the one that held most of those whose name or role has
/// these words.
pub(super) fn find(processes: &[Process], wanted: &str) -> Result<usize, ProcessError> {
    /// So many are named where none is meant.
    const NAMED_MAX: usize = 5;
    let peak = |place: &usize| processes[*place].peak.rss_bytes;
    let places = || 0..processes.len();
    let by_pid = wanted.parse::<u32>().ok();
    let by_pid = by_pid.and_then(|pid| {
        let same =
            places().filter(|place| processes[*place].tgid.is_some_and(|tgid| tgid.0 == pid));
        same.max_by_key(peak)
    });
    let words = wanted.to_lowercase();
    let is_meant = |place: &usize| {
        let process = &processes[*place];
        let names = [&process.name, &process.group, &process.comm];
        names
            .iter()
            .any(|name| name.to_lowercase().contains(&words))
    };
    let by_name = || places().filter(is_meant).max_by_key(peak);
    by_pid.or_else(by_name).ok_or_else(|| {
        let mut largest: Vec<usize> = places().collect();
        largest.order_by_key(|place| std::cmp::Reverse(peak(place)));
        let known = largest.into_iter().take(NAMED_MAX);
        ProcessError {
            wanted: wanted.to_owned(),
            known: known
                .map(|place| Who::from(&processes[place]).in_words())
                .collect(),
        }
    })
}

/// The life of one process.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Life {
    /// The process whose life it is.
    #[serde(flatten)]
    pub who: Who,
    /// The same as an index into [`Analysis::processes`].
    #[serde(skip)]
    pub process: usize,
    /// What it held by kind, evenly over its life, and at its peak.
    pub course: Vec<KindsAt>,
    /// Its memory by who laid it out, as it was read nearest to its peak, and nearest to `--at`.
    pub layouts: Vec<LayoutAt>,
    /// When its mappings were read: nearest to its peak, or to `--at`. `None` where they never were.
    pub mappings_at: Option<Instant>,
    /// Its mappings by kind and object, the one that holds most first, at most 200.
    pub mappings: Vec<MappingLine>,
    /// Shared memory that it maps, with who else does.
    pub shared: Vec<SharedWith>,
    /// Those that it forked, with what they inherited, the one that inherited most first.
    pub children: Vec<Child>,
}

/// What it held at an instant.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct KindsAt {
    /// When it held that.
    pub at: Instant,
    /// Whether that is its peak.
    pub is_peak: bool,
    /// How much, by kind.
    pub held: Amounts,
}

/// Its memory by who laid it out at one reading.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LayoutAt {
    /// When it was read.
    pub at: Instant,
    /// Whether it is the reading nearest to `--at`; else that nearest to its peak.
    pub is_asked: bool,
    /// The parts, the largest first. They gained what they hold: since its start.
    pub parts: Vec<LayoutLine>,
}

/// Mappings of one kind and object.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MappingLine {
    /// What memory it is.
    pub kind: Option<MappingKind>,
    /// The file or object; `None` for memory without one, and for all small files together.
    pub path: Option<Arc<str>>,
    /// How many mappings.
    pub mapping_count: i64,
    /// Address space that they take.
    pub size_bytes: Bytes,
    /// Resident pages; `None` when unknown.
    pub rss_bytes: Option<Bytes>,
    /// The same, shared pages divided by their sharers.
    pub pss_bytes: Option<Bytes>,
    /// Pages swapped out.
    pub swap_bytes: Option<Bytes>,
}

/// A shared object and who else maps it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SharedWith {
    /// What it is called.
    pub path: Option<Arc<str>>,
    /// What memory it is.
    pub kind: Option<MappingKind>,
    /// Resident pages of it in this process.
    pub rss_bytes: Option<Bytes>,
    /// How many other recorded processes were seen to map it.
    pub other_count: usize,
    /// Eight of them at most.
    pub others: Vec<Who>,
}

/// A process that it forked.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Child {
    /// The process that was forked.
    #[serde(flatten)]
    pub who: Who,
    /// RSS that the fork gave it.
    pub inherited_rss_bytes: Option<Bytes>,
    /// Its own peak.
    pub peak_rss_bytes: Option<Bytes>,
}

/// The rows of the time that is nearest to an instant.
struct Nearest<R> {
    wanted: BootNs,
    at: Option<BootNs>,
    rows: Vec<R>,
}

impl<R> Nearest<R> {
    fn to(wanted: BootNs) -> Self {
        Self {
            wanted,
            at: None,
            rows: Vec::new(),
        }
    }

    /// Takes a row; they come in the order of time.
    fn take(&mut self, at: BootNs, row: R) {
        let far = |at: BootNs| (at - self.wanted).0.abs();
        match self.at {
            Some(kept) if kept == at => self.rows.push(row),
            Some(kept) if far(kept) < far(at) => {}
            _ => {
                self.at = Some(at);
                self.rows = vec![row];
            }
        }
    }
}

/// Reads the life of a process.
pub(super) fn read<S: RowSource>(
    source: &S,
    analysis: &Analysis,
    place: usize,
) -> Result<Life, S::Error> {
    let process = &analysis.processes[place];
    let upid = process.upid;
    let course = course(source, analysis, process)?;
    let peak = course.iter().find(|point| point.is_peak);
    let peak = peak.map_or(process.start.boot_ns, |point| point.at.boot_ns);
    let asked = analysis.at.as_ref().map(|at| at.at.boot_ns);
    let (mappings_at, rows) = mappings(source, upid, asked.unwrap_or(peak))?;
    let shared = shared(source, analysis, upid, &rows)?;
    Ok(Life {
        who: Who::from(process),
        process: place,
        course,
        layouts: layouts(source, analysis, upid, (peak, asked))?,
        mappings_at: mappings_at.map(|at| analysis.clock.at(at)),
        mappings: rows
            .into_iter()
            .take(MAPPINGS_MAX)
            .map(MappingLine::from)
            .collect(),
        shared,
        children: children(analysis, place),
    })
}

/// What it held at a few instants, evenly over its life, and at its peak.
fn course<S: RowSource>(
    source: &S,
    analysis: &Analysis,
    process: &Process,
) -> Result<Vec<KindsAt>, S::Error> {
    let columns = ["boot_ns", "upid", "source"];
    let kinds = Kind::ALL.iter().map(|kind| kind.column());
    let columns: Vec<&str> = columns.into_iter().chain(kinds).collect();
    let begin = process.start.boot_ns.max(analysis.clock.start());
    let end = process.exit_boot_ns().unwrap_or(analysis.clock.end());
    let length = (end - begin).0.max(1);
    let mut reported: BTreeMap<BootNs, Amounts> = BTreeMap::new();
    let mut highest: Option<(BootNs, Amounts)> = None;
    let mut next = 0;
    source.scan(&columns, |row: MemRow| {
        let is_of_life = !matches!(row.source, Some(MemSource::SelfReported | MemSource::Exit));
        if row.upid != process.upid || !is_of_life {
            return;
        }
        let held = Amounts::of(&row);
        if highest.is_none_or(|(_, high)| held.rss() > high.rss()) {
            highest = Some((row.boot_ns, held));
        }
        // The first row of each part: what is given back at the very end is no news.
        let part = i128::from((row.boot_ns - begin).0) * INSTANTS_MAX / i128::from(length);
        if part >= next {
            reported.insert(row.boot_ns, held);
            next = part + 1;
        }
    })?;
    reported.extend(highest);
    let is_peak = |at: BootNs| highest.is_some_and(|(high, _)| high == at);
    let points = reported.into_iter().map(|(at, held)| KindsAt {
        at: analysis.clock.at(at),
        is_peak: is_peak(at),
        held,
    });
    Ok(points.collect())
}

fn layouts<S: RowSource>(
    source: &S,
    analysis: &Analysis,
    upid: Upid,
    (peak, asked): (BootNs, Option<BootNs>),
) -> Result<Vec<LayoutAt>, S::Error> {
    let (mut at_peak, mut at_asked) = (Nearest::to(peak), asked.map(Nearest::to));
    source.scan(&[], |row: LayoutRow| {
        if row.upid == upid {
            let at = row.boot_ns;
            at_asked
                .iter_mut()
                .for_each(|nearest| nearest.take(at, row.clone()));
            at_peak.take(at, row);
        }
    })?;
    let reported = |nearest: Nearest<LayoutRow>, is_asked| {
        Some(LayoutAt {
            at: analysis.clock.at(nearest.at?),
            is_asked,
            parts: parts_of(nearest.rows)?,
        })
    };
    let both = [
        reported(at_peak, false),
        at_asked.and_then(|nearest| reported(nearest, true)),
    ];
    Ok(both.into_iter().flatten().collect())
}

/// The rows of the reading that is nearest to an instant, the one that holds most first.
fn mappings<S: RowSource>(
    source: &S,
    upid: Upid,
    wanted: BootNs,
) -> Result<(Option<BootNs>, Vec<MappingRow>), S::Error> {
    let mut near = Nearest::to(wanted);
    source.scan(&[], |row: MappingRow| {
        if row.upid == upid {
            near.take(row.boot_ns, row);
        }
    })?;
    near.rows
        .order_by_key(|row| std::cmp::Reverse(row.rss_bytes));
    Ok((near.at, near.rows))
}

/// What names a shared object.
type Object = (String, i64);

fn object(row: &MappingRow) -> Option<Object> {
    let is_shared = matches!(
        row.kind?,
        MappingKind::Tmpfs | MappingKind::Memfd | MappingKind::Sysv | MappingKind::SharedAnonymous
    );
    is_shared.then_some((row.device.clone()?, row.inode?))
}

fn shared<S: RowSource>(
    source: &S,
    analysis: &Analysis,
    upid: Upid,
    rows: &[MappingRow],
) -> Result<Vec<SharedWith>, S::Error> {
    let own: BTreeSet<Object> = rows.iter().filter_map(object).collect();
    if own.is_empty() {
        return Ok(Vec::new());
    }
    let mut holders: BTreeMap<Object, BTreeSet<Upid>> = BTreeMap::new();
    source.scan(&["upid", "kind", "device", "inode"], |row: MappingRow| {
        if row.upid == upid {
            return;
        }
        if let Some(object) = object(&row).filter(|object| own.contains(object)) {
            holders.entry(object).or_default().insert(row.upid);
        }
    })?;
    let by_upid: BTreeMap<Upid, &Process> = analysis
        .processes
        .iter()
        .map(|process| (process.upid, process))
        .collect();
    let reported = rows.iter().filter_map(|row| {
        let others = holders.remove(&object(row)?).unwrap_or_default();
        let known = others.iter().filter_map(|upid| by_upid.get(upid).copied());
        Some(SharedWith {
            path: row.path.as_deref().map(Arc::from),
            kind: row.kind,
            rss_bytes: row.rss_bytes,
            other_count: others.len(),
            others: known.take(OTHERS_MAX).map(Who::from).collect(),
        })
    });
    Ok(reported.collect())
}

fn children(analysis: &Analysis, place: usize) -> Vec<Child> {
    let processes = analysis.processes.iter();
    let own = processes.filter(|process| process.parent == Some(place));
    let mut children: Vec<Child> = own
        .map(|process| Child {
            who: Who::from(process),
            inherited_rss_bytes: process.inherited_rss_bytes,
            peak_rss_bytes: process.peak.rss_bytes,
        })
        .collect();
    children.order_by_key(|child| std::cmp::Reverse(child.inherited_rss_bytes));
    children
}

impl From<MappingRow> for MappingLine {
    fn from(row: MappingRow) -> Self {
        Self {
            kind: row.kind,
            path: row.path.map(Arc::from),
            mapping_count: row.mapping_count,
            size_bytes: row.size_bytes,
            rss_bytes: row.rss_bytes,
            pss_bytes: row.pss_bytes,
            swap_bytes: row.swap_bytes,
        }
    }
}
