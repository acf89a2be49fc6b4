//! Who touched the memory that is still resident: `growth_site` and `stack`, from `record --stacks`.

use super::process_table::ProcessTable;
use super::who::Who;
use memtrace_model::tables::{GrowthSiteRow, ProcessRow, StackRow};
use memtrace_model::{BootNs, Bytes, FrameKind, Order, RowSource, Upid, keys};
use schemars::JsonSchema;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::io;
use std::iter;

/// The last moments of a process that has ended.
const LAST_NS: i64 = 3_000_000_000;
/// Lines of one process.
const SITES_MAX: usize = 50;
/// Functions that a native one is reported with.
const CALLERS_MAX: usize = 2;
/// So much of the name of a native function is reported.
const SHORT_MAX: usize = 60;
/// Frames of the stack that is shown of a line.
const FRAMES_MAX: usize = 64;

/// Libraries that hand out memory or run whatever is called: not who asked for it.
const NOT_WHO_ASKED: [&str; 10] = [
    "libc.so",
    "libc-2.",
    "ld-linux",
    "ld-2.",
    "libstdc++",
    "libgcc_s",
    "libpthread",
    "libjemalloc",
    "libtcmalloc",
    "libmimalloc",
];

/// Packages that hand out memory, as allocators do.
const PACKAGES_NOT_WHO_ASKED: [&str; 8] = [
    "numpy",
    "scipy",
    "pandas",
    "pyarrow",
    "torch",
    "jax",
    "jaxlib",
    "tensorflow",
];

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
}

/// One line of Python, or a native function where no Python runs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AllocationSite {
    /// The frame that the line is named after; null for samples without a stack.
    pub frame: Option<StackFrame>,
    /// Of a native function, the two that called it: another caller is another line.
    pub callers: Vec<StackFrame>,
    /// What was sampled there.
    #[serde(flatten)]
    pub sum: Sampled,
    /// The stack that most of its resident memory came by, innermost frame first; at most 64 frames.
    pub stack: Vec<StackFrame>,
}

/// Memory by samples.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct Sampled {
    /// The number of samples.
    pub sample_count: i64,
    /// Memory that was touched anew, whatever became of it.
    pub grown_bytes: Bytes,
    /// Standard error of that.
    pub grown_error_bytes: Bytes,
    /// Of that memory, what was resident or swapped when it was last looked at.
    pub resident_bytes: Bytes,
    /// What was seen to be given back.
    pub returned_bytes: Bytes,
    /// Of which neither is known: it has no address, or its process ended before it was looked at.
    pub unknown_bytes: Bytes,
}

/// A frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StackFrame {
    row: StackRow,
}

keys! { as
    /// A frame of a stack.
    FrameKeys of frame: StackFrame {
        /// What it is of.
        kind: Option<FrameKind> = frame.row.kind,
        /// The function; null where no symbol is known.
        function: Option<String> = frame.row.function.clone(),
        /// The source file of Python, or the library or program.
        file: Option<String> = frame.row.file.clone(),
        /// The line, of Python.
        line: Option<i64> = frame.row.line,
        /// Build id of the library or program.
        build_id: Option<String> = frame.row.build_id.clone(),
        /// Of a native frame the address as the library or program counts.
        address: Option<i64> = frame.row.address,
    }
}

impl Sampled {
    fn add(&mut self, row: &GrowthSiteRow) {
        self.sample_count += row.sample_count;
        self.grown_bytes = self.grown_bytes + row.grown_bytes;
        // Independent of each other.
        let [one, other] = [self.grown_error_bytes, row.grown_error_bytes].map(|one| one.0 as f64);
        self.grown_error_bytes = Bytes(one.hypot(other) as i64);
        self.resident_bytes = self.resident_bytes + row.resident_bytes;
        self.returned_bytes = self.returned_bytes + row.returned_bytes;
        let known = self.resident_bytes + self.returned_bytes;
        self.unknown_bytes = (self.grown_bytes - known).max(Bytes(0));
    }

    /// What is known to be resident; `None` where nothing was looked at.
    pub(crate) fn resident(&self) -> Option<Bytes> {
        Some(self.resident_bytes).filter(|_| self.unknown_bytes < self.grown_bytes)
    }
}

impl StackFrame {
    /// The name of a native function without its parameters.
    pub(crate) fn short(&self) -> Option<String> {
        let name = self.row.function.as_deref()?;
        let end = name.find('(').filter(|end| *end > 0);
        let name = &name[..end.unwrap_or(name.len())];
        Some(match name.char_indices().nth(SHORT_MAX) {
            Some((end, _)) => format!("{}…", &name[..end]),
            None => name.to_owned(),
        })
    }

    /// `sched/output.py:118 update_from_output`, or `grow (libfoo.so)`.
    pub(crate) fn in_words(&self) -> String {
        let row = &self.row;
        let file = row.file.as_deref().unwrap_or_default();
        match row.kind {
            Some(FrameKind::Python) => {
                let function = row.function.as_deref();
                let line = row.line.map_or_else(String::new, |line| format!(":{line}"));
                let function = function.unwrap_or_default();
                format!("{}{line} {function}", importable(file))
            }
            _ => {
                let file = base(file);
                match (self.short(), row.address) {
                    (Some(function), _) => format!("{function} ({file})"),
                    (None, Some(address)) if !file.is_empty() => format!("{file}+{address:#x}"),
                    _ => "code of no file".to_owned(),
                }
            }
        }
    }

    fn is_python(&self) -> bool {
        self.row.kind == Some(FrameKind::Python)
    }

    fn asked_for_it(&self) -> bool {
        let file = self.row.file.as_deref().unwrap_or_default();
        if !self.is_python() {
            let file = base(file);
            return !NOT_WHO_ASKED
                .iter()
                .any(|library| file.starts_with(library));
        }
        match packaged(file) {
            Some(path) => {
                let package = path.split('/').next().unwrap_or(path);
                !PACKAGES_NOT_WHO_ASKED.contains(&package)
            }
            // The standard library, and what is frozen into the interpreter.
            None => !file.contains("/lib/python3.") && !file.starts_with('<'),
        }
    }

    /// What makes two frames one line: call sites within a native function are not distinguished.
    fn key(&self) -> Self {
        let mut row = self.row.clone();
        (row.ts, row.boot_ns, row.stack_id, row.depth) = Default::default();
        if row.function.is_some() {
            row.address = None;
        }
        Self { row }
    }
}

fn base(path: &str) -> &str {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    path.rsplit('/').next().unwrap_or(path)
}

/// A path as an import names it: below the directory of packages; of others the file alone.
fn importable(path: &str) -> &str {
    packaged(path).unwrap_or_else(|| match path.starts_with('<') {
        true => path,
        false => base(path),
    })
}

/// The path below the directory of packages.
fn packaged(path: &str) -> Option<&str> {
    let packages = ["/site-packages/", "/dist-packages/"];
    let place = packages.map(|packages| Some(path.rfind(packages)? + packages.len()));
    place
        .into_iter()
        .flatten()
        .max()
        .map(|place| &path[place..])
}

/// The frame that a stack is named after: the innermost line of Python that asked for memory, else the
/// innermost function that did, with who called that.
fn named_after(frames: &[StackFrame]) -> Option<(&StackFrame, &[StackFrame])> {
    let mut python = frames.iter().filter(|frame| frame.is_python());
    let first = python.clone().next();
    if let Some(python) = python.find(|frame| frame.asked_for_it()).or(first) {
        return Some((python, &[]));
    }
    let place = frames
        .iter()
        .position(StackFrame::asked_for_it)
        .unwrap_or(0);
    let (named, callers) = frames.get(place..)?.split_first()?;
    let count = callers.len().min(CALLERS_MAX);
    Some((named, callers.get(..count)?))
}

/// Reads both tables.
pub(super) fn read<S: RowSource>(
    source: &S,
    table: &ProcessTable,
) -> Result<Vec<ProcessAllocations>, S::Error> {
    let place = |upid| table.find(upid);
    let sites = read_sites(source, |upid| table.processes[place(upid)?].exit_boot_ns())?;
    if sites.is_empty() {
        return Ok(Vec::new());
    }
    let stacks = read_stacks(source, &sites)?;
    let mut all: Vec<ProcessAllocations> = sites
        .into_iter()
        .filter_map(|(upid, rows)| {
            let process = &table.processes[place(upid)?];
            let has_ended = process.exit_boot_ns().is_some();
            Some(of_process(Who::from(process), has_ended, rows, &stacks))
        })
        .collect();
    all.order_by_key(|one| (Reverse(one.sum.resident_bytes), one.who.upid));
    Ok(all)
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
            if exit.is_some_and(|exit| row.boot_ns.0 >= exit.0 - LAST_NS) {
                self.note_most();
            }
            self.now_boot_ns = row.boot_ns;
        }
        self.now.insert(row.stack_id, row);
    }

    /// A program that ends often frees all it has: what it held is what it held before that.
    fn note_most(&mut self) {
        let resident: Bytes = self.now.values().map(|row| row.resident_bytes).sum();
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

/// The sums by process and stack: at the end of the recording, or before that of the process, whose
/// time `exit` gives.
fn read_sites<S: RowSource>(
    source: &S,
    exit: impl Fn(Upid) -> Option<BootNs>,
) -> Result<HashMap<Upid, Vec<GrowthSiteRow>>, S::Error> {
    let mut growing: HashMap<Upid, Growing> = HashMap::new();
    source.scan(&[], |row: GrowthSiteRow| {
        let exit = exit(row.upid);
        growing.entry(row.upid).or_default().add(row, exit);
    })?;
    let rows = growing
        .into_iter()
        .map(|(upid, growing)| (upid, growing.rows(exit(upid))));
    Ok(rows.collect())
}

/// Resident memory by stack as folded text, for flame graphs: a line for each process and stack, its
/// frames from the outermost on with semicolons between, and bytes. Answers how many lines there are.
///
/// # Errors
/// When the recording can't be read. What it answers within is how writing went.
pub fn folded<S: RowSource>(
    source: &S,
    to: &mut impl io::Write,
) -> Result<io::Result<usize>, S::Error> {
    let mut processes: HashMap<Upid, (String, Option<BootNs>)> = HashMap::new();
    source.scan(&[], |row: ProcessRow| {
        let name = format!("{} {}", row.comm, row.tgid);
        processes.insert(row.upid, (name, row.exit_boot_ns));
    })?;
    let sites = read_sites(source, |upid| processes.get(&upid)?.1)?;
    let stacks = read_stacks(source, &sites)?;
    let mut rows: Vec<GrowthSiteRow> = sites.into_values().flatten().collect();
    rows.retain(|row| row.resident_bytes.0 > 0);
    rows.order_by_key(|row| (row.upid, row.stack_id));
    let write = |row: &GrowthSiteRow, to: &mut dyn io::Write| {
        let name = processes.get(&row.upid).map_or("", |(name, _)| name);
        write!(to, "{}", plain(name))?;
        let frames = stacks.get(&row.stack_id).map_or(&[][..], Vec::as_slice);
        for frame in frames.iter().rev() {
            write!(to, ";{}", plain(&frame.in_words()))?;
        }
        if frames.is_empty() {
            write!(to, ";unknown")?;
        }
        writeln!(to, " {}", row.resident_bytes.0)
    };
    let outcome = rows.iter().try_for_each(|row| write(row, to));
    Ok(outcome.map(|()| rows.len()))
}

/// Without what has a meaning in folded text, or in a terminal.
fn plain(name: &str) -> String {
    let replaced = |one: char| match one {
        ';' => ':',
        one if one.is_control() => '?',
        one => one,
    };
    name.chars().map(replaced).collect()
}

fn read_stacks<S: RowSource>(
    source: &S,
    sites: &HashMap<Upid, Vec<GrowthSiteRow>>,
) -> Result<HashMap<i64, Vec<StackFrame>>, S::Error> {
    let rows = sites.values().flatten();
    let wanted: HashSet<i64> = rows.map(|row| row.stack_id).collect();
    let mut stacks: HashMap<i64, Vec<StackFrame>> = HashMap::new();
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

fn of_process(
    who: Who,
    has_ended: bool,
    mut rows: Vec<GrowthSiteRow>,
    stacks: &HashMap<i64, Vec<StackFrame>>,
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
    let mut unnamed_bytes = Bytes(0);
    let mut sites: Vec<AllocationSite> = Vec::new();
    let mut places: HashMap<Vec<StackFrame>, usize> = HashMap::new();
    for row in &rows {
        sum.add(row);
        let frames = stacks.get(&row.stack_id).map_or(&[][..], Vec::as_slice);
        let named = named_after(frames);
        if named.is_none() {
            unnamed_bytes = unnamed_bytes + row.resident_bytes;
        }
        let named = named.into_iter();
        let named = named.flat_map(|(frame, callers)| iter::once(frame).chain(callers));
        let named: Vec<StackFrame> = named.map(StackFrame::key).collect();
        let place = *places.entry(named).or_insert_with_key(|named| {
            sites.push(AllocationSite {
                frame: named.first().cloned(),
                callers: named.iter().skip(1).cloned().collect(),
                sum: Sampled::default(),
                stack: frames.iter().take(FRAMES_MAX).cloned().collect(),
            });
            sites.len() - 1
        });
        sites[place].sum.add(row);
    }
    sites.order_by_key(|site| {
        (
            Reverse(site.sum.resident_bytes),
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: FrameKind, function: Option<&str>, file: &str, line: Option<i64>) -> StackFrame {
        StackFrame {
            row: StackRow {
                kind: Some(kind),
                function: function.map(str::to_owned),
                file: Some(file.to_owned()),
                line,
                address: (kind == FrameKind::Native).then_some(0x10),
                ..StackRow::default()
            },
        }
    }

    #[test]
    fn a_stack_is_named_after_its_innermost_python_else_after_who_asked_the_allocator() {
        let malloc = frame(FrameKind::Native, Some("malloc"), "/lib/libc.so.6", None);
        let grow = frame(FrameKind::Native, Some("grow"), "/x/libfoo.so", None);
        let python = frame(
            FrameKind::Python,
            Some("f"),
            "/v/site-packages/a/b.py",
            Some(3),
        );
        let text = |frames: &[&StackFrame]| {
            let frames: Vec<StackFrame> = frames.iter().map(|one| (*one).clone()).collect();
            named_after(&frames).map(|(frame, _)| frame.in_words())
        };
        let python_line = Some("a/b.py:3 f".to_owned());
        assert_eq!(text(&[&malloc, &grow, &python]), python_line);
        let of = |function, file, line| frame(FrameKind::Python, Some(function), file, Some(line));
        let ones = of("ones", "/v/site-packages/numpy/n.py", 9);
        let queue = of("put", "/usr/lib/python3.12/queue.py", 1);
        assert_eq!(text(&[&malloc, &ones, &queue, &python]), python_line);
        let ones_line = Some("numpy/n.py:9 ones".to_owned());
        assert_eq!(text(&[&malloc, &ones, &queue]), ones_line);
        assert_eq!(text(&[&malloc, &grow]), Some("grow (libfoo.so)".to_owned()));
        assert_eq!(text(&[&malloc]), Some("malloc (libc.so.6)".to_owned()));
        assert_eq!(text(&[]), None);
        let stripped = frame(FrameKind::Native, None, "/x/prog (deleted)", None);
        assert_eq!(text(&[&stripped]), Some("prog+0x10".to_owned()));
    }

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
        let text = of_process(Who::default(), false, rows, &stacks);
        assert_eq!(text.sites.len(), 3);
        assert_eq!(text.sites[1].callers[0].short(), Some("f".to_owned()));
        assert_eq!(text.sites[0].sum.grown_error_bytes, Bytes(5 << 20));
        assert_eq!(text.sites[0].sum.resident_bytes, Bytes(7 << 20));
        assert_eq!(text.unnamed_bytes, Bytes(1 << 20));
    }
}
