//! The ledger: what is in use by line, the residual one of them.

use super::peak::{aged, aside};
use crate::name::path_in_words;
use crate::{
    Analysis, AnonLine, Attribution, CachedFile, Composition, HeldBasis, KernelPart, Report, Scope,
    SharedObject,
};
use memtrace_model::{Bytes, Label};
use memtrace_report::words::{bytes, bytes_or_unknown};
use memtrace_report::{Cell, Chapter, Section, Table, TableOf, Tone, one_part, visible, words};

/// Processes, objects and files that get a line of their own in each group of lines.
pub(crate) const MAX_LINES: usize = 5;
/// Objects and files that a sentence names.
const NAMES_MAX: usize = 3;
/// How well a sum is known that the kernel keeps.
const KERNELS_SUM: &str = "kernel's sum";
/// A smaller part of what is in use gets no line of its own.
const SMALL_PART: i64 = 200;

pub(super) const SECTION: Section<Report> = Section {
    name: "ledger",
    doc: "what was in use at the peak, line by line, with what nothing explains",
    keys: &["peak"],
    tables: Some(|analysis, top| {
        let attribution = analysis.peak.as_ref().and_then(reported);
        one_part(table(attribution, top))
    }),
    tell: |analysis, view| {
        let peak = analysis.peak.as_ref();
        let reported =
            peak.and_then(|peak| ledger(analysis, peak, view.top.min(view.most(MAX_LINES))));
        reported.into_iter().collect()
    },
    ..Section::EMPTY
};

/// The ledger of the cgroup that holds most of the tree; of the node where there is none.
pub(crate) fn ledger(analysis: &Analysis, state: &Composition, max: usize) -> Option<Chapter> {
    let attribution = reported(state)?;
    let mut section = Chapter::new(format!(
        "{} at {}: {} in use{}",
        scope(analysis, &attribution.scope),
        words::after(state.at.offset_ns),
        bytes_or_unknown(attribution.current_bytes),
        aged(attribution.age_ns, analysis.info.interval_ns),
    ));
    section.table(table(Some(attribution), max));
    section.say(around(attribution));
    let beside = [
        huge(attribution),
        kernel_beside(state, attribution),
        elsewhere(attribution),
    ];
    section.tell(Tone::Plain, beside.into_iter().flatten());
    let unsure = [
        ending(attribution),
        doubts(attribution),
        objects_of_another_time(attribution),
        unknown_objects(analysis, attribution),
    ];
    section.tell(Tone::Quiet, unsure.into_iter().flatten());
    section.explain(
        "Ledger: all that is in use in the group, or on the machine, every page once. The kernel counts the \
         total and the lines with \"kernel's sum\" under KNOWN. memtrace read the others of processes and \
         objects: \"at most\" where that is a bound, \"measured\" of its own memory, \
         \"estimate\" where it was not read how much a fork copied of what it shared. Residual is the total less \
         all lines: what nothing explains, below zero where they explain too much.",
    );
    let others = state.attributions.iter();
    let others = others.filter(|other| other.scope != attribution.scope);
    section.tell(Tone::Plain, others.map(|other| in_short(analysis, other)));
    Some(section)
}

/// The ledger that is reported line by line.
fn reported(state: &Composition) -> Option<&Attribution> {
    let mut attributions = state.attributions.iter();
    attributions.find(|attribution| attribution.current_bytes.is_some())
}

/// The lines, with at most so many in each group.
fn table(attribution: Option<&Attribution>, max: usize) -> Table {
    let whole = attribution.and_then(|attribution| attribution.current_bytes);
    let mut lines = Lines {
        whole,
        max,
        rows: Vec::new(),
    };
    if let Some(attribution) = attribution {
        lines.anon(attribution);
        lines.objects(attribution);
        lines.files(attribution);
        lines.kernel(attribution);
        let what = doubt(attribution).unwrap_or_default();
        lines.push("residual", what, attribution.residual_bytes, "");
    }
    TableOf::of(lines.rows)
        .words(("group", ""), 0, |line| line.group.clone())
        .flexible("what", |line| line.what.clone())
        .figures("bytes", 0, |line| {
            Cell::bounded(line.bytes, line.is_lower_bound)
        })
        .figures("share", 1, |line| Cell::Share(line.bytes, whole))
        .words("known", 2, |line| line.known)
        .done()
}

/// Whose ledger, as the first word of a line.
fn scope(analysis: &Analysis, scope: &Scope) -> String {
    match scope {
        Scope::Cgroup(path) => format!("Ledger of {}", analysis.cgroup_in_words(path)),
        Scope::Node => "Ledger of the node".to_owned(),
    }
}

/// A line of a ledger.
struct Line {
    group: String,
    what: Cell,
    bytes: Option<Bytes>,
    is_lower_bound: bool,
    /// How well it is known.
    known: &'static str,
}

struct Lines {
    whole: Option<Bytes>,
    max: usize,
    rows: Vec<Line>,
}

impl Lines {
    fn push(
        &mut self,
        group: impl Into<String>,
        what: impl Into<Cell>,
        bytes: Option<Bytes>,
        known: &'static str,
    ) {
        self.rows.push(Line {
            group: group.into(),
            what: what.into(),
            bytes,
            is_lower_bound: false,
            known,
        });
    }

    /// A group of lines: the sum, then the largest ones.
    fn group<T>(
        &mut self,
        (name, unknown_count): (&str, usize),
        all: &[T],
        amount: impl Fn(&T) -> Bytes,
        line: impl Fn(&T) -> (Cell, &'static str),
    ) {
        let sum: Bytes = all.iter().map(&amount).sum();
        let reported = Some(sum).filter(|sum| unknown_count == 0 || sum.0 > 0);
        self.push(name, "", reported, "");
        if let Some(row) = self.rows.last_mut() {
            row.is_lower_bound = unknown_count > 0;
        }
        let least = self.whole.map_or(0, |whole| whole.0 / SMALL_PART);
        let reported: Vec<&T> = all
            .iter()
            .take_while(|one| amount(one).0 >= least.max(1))
            .take(self.max)
            .collect();
        for one in &reported {
            let (what, known) = line(one);
            self.push("", what, Some(amount(one)), known);
        }
        let rest = all.get(reported.len()..).unwrap_or_default();
        if !rest.is_empty() && !reported.is_empty() {
            let count = words::count(rest.len());
            let amount = rest.iter().map(&amount).sum();
            self.push("", format!("{count} more"), Some(amount), "");
        }
    }

    fn anon(&mut self, attribution: &Attribution) {
        let line = |line: &AnonLine| {
            let known = if line.is_estimate { "estimate" } else { "" };
            (line.who.in_words().into(), known)
        };
        let name = ("anonymous", attribution.unknown_process_count);
        self.group(name, &attribution.anon, |line| line.bytes, line);
        let others = attribution.other_processes_bytes;
        let line = match attribution.other_process_count {
            // That there are none is worth no line.
            Some(0) => None,
            Some(count) => {
                let known = others.map_or("", |_| "at most");
                Some((format!("{} not recorded", processes(count)), known))
            }
            None => others.map(|_| ("processes not recorded".to_owned(), KERNELS_SUM)),
        };
        if let Some((what, known)) = line {
            self.push(what, "", others, known);
        }
        if attribution.recorder_bytes.is_some() {
            self.push(
                "memtrace itself",
                "",
                attribution.recorder_bytes,
                "measured",
            );
        }
    }

    fn objects(&mut self, attribution: &Attribution) {
        let amount = |one: &SharedObject| one.in_memory().unwrap_or(Bytes(0));
        let unknown_count = attribution.unknown_object_count;
        let name = ("shared memory, once", unknown_count);
        // Where others pay for them, or none is known, there is but the kernel's sum.
        let is_none_known = attribution.objects.is_empty() && unknown_count == 0;
        if is_none_known || !attribution.elsewhere.objects.is_empty() {
            self.push(
                "shared memory",
                "",
                attribution.other_shared_bytes,
                KERNELS_SUM,
            );
            return;
        }
        self.group(name, &attribution.objects, amount, |one| {
            (object(one).into(), "")
        });
        if unknown_count > 0 {
            let what = format!("{} of unknown amount", words::objects(unknown_count));
            self.push("", what, None, "");
        }
        if attribution.other_shared_bytes == Some(Bytes(0)) {
            return;
        }
        let title = match attribution.other_shared_bytes {
            Some(Bytes(..0)) => "of these, not charged here",
            _ => "shared memory, other",
        };
        self.push(title, "", attribution.other_shared_bytes, KERNELS_SUM);
    }

    fn files(&mut self, attribution: &Attribution) {
        let amount = |file: &CachedFile| file.cached_bytes.unwrap_or(Bytes(0));
        let name = ("page cache, files in use", 0);
        // Here too.
        if attribution.files.is_empty() || !attribution.elsewhere.files.is_empty() {
            self.push("page cache", "", attribution.other_files_bytes, KERNELS_SUM);
            return;
        }
        self.group(name, &attribution.files, amount, |file| {
            let path = Cell::from(visible(&file.path).into_owned());
            (path.shown_as(path_in_words(&file.path)), "")
        });
        let others = attribution.other_files_bytes;
        let title = match others {
            Some(Bytes(..0)) => "of these files, not charged here",
            _ => "page cache, other files",
        };
        self.push(title, "", others, KERNELS_SUM);
    }

    fn kernel(&mut self, attribution: &Attribution) {
        if attribution.kernel_outside_bytes.is_some() {
            return;
        }
        self.push("kernel", "", attribution.kernel_bytes, KERNELS_SUM);
        for line in &attribution.kernel {
            if line.part != KernelPart::All && line.bytes.0 > 0 {
                self.push("", line.part.shown(), Some(line.bytes), "");
            }
        }
    }
}

fn processes(count: i64) -> String {
    words::processes(usize::try_from(count).unwrap_or(0))
}

fn object(object: &SharedObject) -> String {
    let name = object.name.as_deref().map(visible);
    let name = name.as_deref().unwrap_or("without a name");
    let mappers = match object.mapper_count {
        0 => "mapped by none".to_owned(),
        1 => "1 process".to_owned(),
        count => format!("{count} processes"),
    };
    match object.family {
        Some(family) => format!("{name} ({}, {mappers})", family.as_str()),
        None => format!("{name} ({mappers})"),
    }
}

/// An object with what it has in memory.
fn sized_object(one: &SharedObject) -> String {
    format!("{} in {}", bytes_or_unknown(one.in_memory()), object(one))
}

/// The first few, and how many more there are.
fn some<T>(all: &[T], name: impl Fn(&T) -> String) -> String {
    let names: Vec<String> = all.iter().take(NAMES_MAX).map(name).collect();
    match all.len() - names.len() {
        0 => names.join(", "),
        more => format!("{} and {} more", names.join(", "), words::count(more)),
    }
}

/// What stands beside the ledger: the limit, and what could be taken back.
fn around(attribution: &Attribution) -> String {
    let limit = match (attribution.limit_bytes, &attribution.scope) {
        (Some(limit), Scope::Cgroup(_)) => format!("Limit {}", bytes(limit)),
        (Some(total), Scope::Node) => format!("Machine total {}", bytes(total)),
        (None, _) => "No limit".to_owned(),
    };
    match attribution.reclaimable_bytes {
        Some(amount) => format!(
            "{limit}; up to {} of what is in use can be reclaimed without swap.",
            bytes(amount)
        ),
        None => format!("{limit}."),
    }
}

/// Shared objects of huge pages, which stand beside the ledger.
fn huge(attribution: &Attribution) -> Option<String> {
    let all = &attribution.huge_objects;
    let largest = some(all, sized_object);
    let place = match attribution.scope {
        Scope::Cgroup(_) => "Hugetlb pages, in none of these lines",
        Scope::Node => "In the hugetlb pool",
    };
    (!all.is_empty()).then(|| format!("{place}: {largest}."))
}

/// Kernel memory that is not in the total; or, from 1 % of what is held, that is not in the figure: where
/// others live there, or can, nobody knows whose it is.
fn kernel_beside(state: &Composition, attribution: &Attribution) -> Option<String> {
    if let Some(outside) = attribution.kernel_outside_bytes {
        return Some(format!(
            "Kernel memory of the groups below, {}, is in none of these lines: cgroup v1 does not count it here.",
            bytes(outside)
        ));
    }
    let held = state.held?;
    let is_shared = attribution.other_process_count != Some(0)
        && attribution.scope != Scope::Node
        && held.basis != HeldBasis::Cgroup;
    let kernel = attribution.kernel_bytes.filter(|_| is_shared)?;
    (kernel.0 > held.all().bytes.0 / 100).then(|| {
        format!(
            "Of the kernel memory, {}, only page tables of recorded processes count as held: others can have \
             the rest.",
            bytes(kernel)
        )
    })
}

/// What is not known of it.
fn doubts(attribution: &Attribution) -> Option<String> {
    let unknown = attribution.unknown_process_count;
    let who = || words::processes(unknown);
    (unknown > 0).then(|| format!("Anonymous memory: nothing is known about {}.", who()))
}

/// What stands beside a residual that is more of time than of memory.
fn doubt(attribution: &Attribution) -> Option<String> {
    if attribution.is_of_two_instants() {
        return Some(match attribution.age_ns.0 {
            0 => format!("read over {}", words::duration(attribution.span_ns)),
            _ => format!("in use was read {}", aside(attribution.age_ns)),
        });
    }
    let is_ending = !attribution.may_be_ending().is_empty();
    is_ending.then(|| "not given back yet".to_owned())
}

/// Who ended shortly before, and can be what is left over.
fn ending(attribution: &Attribution) -> Option<String> {
    let reported: Vec<String> = attribution
        .may_be_ending()
        .iter()
        .take(MAX_LINES)
        .map(|line| {
            format!(
                "{} with {} {} before",
                line.who.in_words(),
                bytes(line.bytes),
                words::duration(line.ago_ns)
            )
        })
        .collect();
    (!reported.is_empty()).then(|| {
        format!(
            "The residual may include what these processes held, which ended shortly before it \
             was read: {}.",
            reported.join(", ")
        )
    })
}

/// What is used here and paid for by others.
fn elsewhere(attribution: &Attribution) -> Option<String> {
    let beside = &attribution.elsewhere;
    let objects = beside.objects.iter();
    let objects: Bytes = objects.filter_map(SharedObject::in_memory).sum();
    let files: Bytes = beside.files.iter().filter_map(|row| row.cached_bytes).sum();
    let mut reported = Vec::new();
    if objects.0 > 0 {
        let names = some(&beside.objects, sized_object);
        reported.push(format!("shared objects of {} ({names})", bytes(objects)));
    }
    if files.0 > 0 {
        let names = some(&beside.files, |row| {
            let cached = bytes_or_unknown(row.cached_bytes);
            format!("{cached} of {}", path_in_words(&row.path))
        });
        reported.push(format!("{} of cached files ({names})", bytes(files)));
    }
    let why = match attribution.scope {
        Scope::Cgroup(_) => "charged to other groups or swapped out",
        Scope::Node => "swapped out or read at another time",
    };
    (!reported.is_empty()).then(|| {
        format!(
            "Used here, but in no line above because part of it is {why}: {}.",
            reported.join(", and ")
        )
    })
}

/// Objects that could not be asked at the time.
fn objects_of_another_time(attribution: &Attribution) -> Option<String> {
    let age = attribution.objects_age_ns?;
    Some(format!(
        "The size of a shared object is from a reading {}: the processes that mapped it had since \
         ended or moved it.",
        aside(age)
    ))
}

/// Why the size of some objects is unknown.
fn unknown_objects(analysis: &Analysis, attribution: &Attribution) -> Option<String> {
    if attribution.unknown_object_count == 0 {
        return None;
    }
    let held = analysis.info.host["capabilities"].as_array();
    let may_ask = held.is_some_and(|held| {
        let names = ["CAP_CHECKPOINT_RESTORE", "CAP_SYS_ADMIN"];
        held.iter()
            .any(|one| one.as_str().is_some_and(|one| names.contains(&one)))
    });
    Some(match may_ask {
        true => "Whenever the unknown objects were to be read, the processes that mapped them had \
             ended or moved them."
            .to_owned(),
        false => "The size of a deleted shared object is read through a process that has it, \
             which takes CAP_CHECKPOINT_RESTORE (memtrace doctor)."
            .to_owned(),
    })
}

/// Books that get one line.
fn in_short(analysis: &Analysis, attribution: &Attribution) -> String {
    let anon = match attribution.unknown_process_count {
        0 => bytes_or_unknown(attribution.anonymous_bytes),
        _ => words::bytes_at_least(attribution.anonymous_bytes),
    };
    let named = attribution.shared_bytes.unwrap_or_default();
    let shared = match attribution.other_shared_bytes {
        Some(others) => bytes(named + others),
        None => words::bytes_at_least(Some(named)),
    };
    let mut parts = vec![format!("anonymous {anon}"), format!("shared {shared}")];
    if let Some(own) = attribution.recorder_bytes {
        parts.insert(1, format!("memtrace itself {}", bytes(own)));
    }
    if let Some(others) = attribution
        .other_processes_bytes
        .filter(|others| others.0 != 0)
    {
        // The kernel's sum has those of unknown amount too.
        let who = match (attribution.unknown_process_count, &attribution.scope) {
            (1.., Scope::Node) => "other processes, including those of unknown amount,",
            _ => "processes not recorded",
        };
        parts.insert(1, format!("{who} {}", bytes(others)));
    }
    let cache = attribution.other_files_bytes;
    let cache = cache.map(|others| others + attribution.files_bytes.unwrap_or_default());
    parts.push(format!("page cache {}", bytes_or_unknown(cache)));
    if attribution.kernel_outside_bytes.is_none() {
        parts.push(format!(
            "kernel {}",
            bytes_or_unknown(attribution.kernel_bytes)
        ));
    }
    let doubt = doubt(attribution).map_or_else(String::new, |doubt| format!(" ({doubt})"));
    parts.push(format!(
        "residual {}{doubt}",
        bytes_or_unknown(attribution.residual_bytes)
    ));
    format!(
        "{}: {} in use: {}.",
        scope(analysis, &attribution.scope),
        bytes_or_unknown(attribution.current_bytes),
        parts.join(", ")
    )
}
