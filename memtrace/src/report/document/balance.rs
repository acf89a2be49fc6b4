//! The ledger: what is in use by line, the residual one of them.

use super::holders::aged;
use super::{Section, Tone, figures, flexible, pid_and_name, words_in};
use crate::analyze::{
    Analysis, AnonLine, Balance, Basis, Composition, KernelPart, Scope, in_memory,
};
use crate::model::tables::{CachedFileRow, ShmObjectRow};
use crate::model::{Bytes, DurationNs, Label};
use crate::report::visible::visible;
use crate::report::words;
use crate::report::words::{bytes, bytes_or_unknown};

/// Processes, objects and files that get a line of their own in each group of lines.
const MAX_LINES: usize = 5;
/// A smaller part of what is in use gets no line of its own.
const SMALL_PART: i64 = 200;

/// The ledger of the cgroup that holds most of the tree; of the node where there is none.
pub(super) fn ledger(analysis: &Analysis, state: &Composition, top: usize) -> Option<Section> {
    let told = |balance: &&Balance| balance.current_bytes.is_some();
    let balance = state.balances.iter().find(told)?;
    let mut section = Section::new(format!(
        "{} at {}: {} in use{}",
        scope(&balance.scope),
        words::offset(&analysis.clock, state.boot_ns),
        bytes_or_unknown(balance.current_bytes),
        aged(balance.age_ns, analysis.info.interval_ns),
    ));
    let columns = vec![
        words_in("", 0),
        flexible("WHAT"),
        figures("BYTES", 0),
        figures("SHARE", 1),
        words_in("KNOWN", 2),
    ];
    let mut lines = Lines {
        whole: balance.current_bytes,
        max: top.min(MAX_LINES),
        rows: Vec::new(),
    };
    lines.anon(analysis, balance);
    lines.objects(balance);
    lines.files(balance);
    lines.kernel(balance);
    let interval = analysis.info.interval_ns;
    let what = two_instants(balance, interval).to_owned();
    lines.push("residual", what, balance.residual_bytes, "");
    section.table(columns, lines.rows);
    section.say(Tone::Plain, around(balance));
    if let Some(line) = huge(balance) {
        section.say(Tone::Plain, line);
    }
    if let Some(line) = doubts(balance) {
        section.say(Tone::Quiet, line);
    }
    if balance.unknown_object_count > 0 {
        section.say(
            Tone::Quiet,
            "A deleted shared object is asked for its size through a process that has it, which takes \
             CAP_CHECKPOINT_RESTORE (memtrace doctor).",
        );
    }
    for other in state
        .balances
        .iter()
        .filter(|other| other.scope != balance.scope)
    {
        section.say(Tone::Plain, in_short(other, interval));
    }
    Some(section)
}

/// Whose books, as the first word of a line.
fn scope(scope: &Scope) -> String {
    match scope {
        Scope::Cgroup(path) => format!("Ledger of cgroup {}", visible(path)),
        Scope::Node => "Ledger of the node".to_owned(),
    }
}

struct Lines {
    whole: Option<Bytes>,
    max: usize,
    rows: Vec<Vec<String>>,
}

impl Lines {
    fn push(&mut self, group: &str, what: String, amount: Option<Bytes>, known: &str) {
        self.rows.push(vec![
            group.to_owned(),
            what,
            bytes_or_unknown(amount),
            words::share(amount, self.whole),
            known.to_owned(),
        ]);
    }

    /// A group of lines: the sum, then the largest ones.
    fn group<T>(
        &mut self,
        (name, unknown_count): (&str, usize),
        all: &[T],
        amount: impl Fn(&T) -> Bytes,
        line: impl Fn(&T) -> (String, &'static str),
    ) {
        let sum: Bytes = all.iter().map(&amount).sum();
        let told = Some(sum).filter(|sum| unknown_count == 0 || sum.0 > 0);
        self.push(name, String::new(), told, "");
        if let (true, Some(row)) = (unknown_count > 0, self.rows.last_mut()) {
            row[2] = words::bytes_at_least(told);
        }
        let least = self.whole.map_or(0, |whole| whole.0 / SMALL_PART);
        let told: Vec<&T> = all
            .iter()
            .take_while(|one| amount(one).0 >= least.max(1))
            .take(self.max)
            .collect();
        for one in &told {
            let (what, known) = line(one);
            self.push("", what, Some(amount(one)), known);
        }
        let rest = all.get(told.len()..).unwrap_or_default();
        if !rest.is_empty() && !told.is_empty() {
            let count = words::count(rest.len());
            let amount = rest.iter().map(&amount).sum();
            self.push("", format!("{count} more"), Some(amount), "");
        }
    }

    fn anon(&mut self, analysis: &Analysis, balance: &Balance) {
        let line = |line: &AnonLine| (pid_and_name(analysis, line.process), basis(line.basis));
        let name = ("anonymous", balance.unknown_process_count);
        self.group(name, &balance.anon, |line| line.bytes, line);
        // That there are none is worth no line.
        let others = balance.other_processes_bytes;
        if let Some(others) = others.filter(|_| balance.other_process_count != Some(0)) {
            let (what, known) = match balance.other_process_count {
                Some(count) => (format!("{} not recorded", processes(count)), "at most"),
                None => ("processes not recorded".to_owned(), "kernel's sum"),
            };
            self.push(&what, String::new(), Some(others), known);
        }
        if balance.recorder_bytes.is_some() {
            let what = String::new();
            self.push("memtrace itself", what, balance.recorder_bytes, "measured");
        }
    }

    fn objects(&mut self, balance: &Balance) {
        let amount = |row: &ShmObjectRow| in_memory(row).unwrap_or(Bytes(0));
        let unknown_count = balance.unknown_object_count;
        let name = ("shared memory, once", unknown_count);
        self.group(name, &balance.objects, amount, |row| (object(row), ""));
        if unknown_count > 0 {
            let what = format!("{} of unknown amount", words::objects(unknown_count));
            self.push("", what, None, "");
        }
        if balance.other_shared_bytes == Some(Bytes(0)) {
            return;
        }
        let title = match balance.other_shared_bytes {
            Some(Bytes(..0)) => "of these, swapped out or elsewhere",
            _ => "shared memory, other",
        };
        self.push(
            title,
            String::new(),
            balance.other_shared_bytes,
            "kernel's sum",
        );
    }

    fn files(&mut self, balance: &Balance) {
        let amount = |row: &CachedFileRow| row.cached_bytes.unwrap_or(Bytes(0));
        let name = ("page cache, files in use", 0);
        self.group(name, &balance.files, amount, |row| {
            (visible(&row.path).into_owned(), "")
        });
        let others = balance.other_files_bytes;
        // A file's pages are charged to whoever read it first, often another group.
        let title = match others {
            Some(Bytes(..0)) => "of these files, charged elsewhere",
            _ => "page cache, other files",
        };
        self.push(title, String::new(), others, "kernel's sum");
    }

    fn kernel(&mut self, balance: &Balance) {
        self.push(
            "kernel",
            String::new(),
            Some(balance.kernel_bytes()),
            "kernel's sum",
        );
        for (part, amount) in &balance.kernel {
            if *part != KernelPart::All && amount.0 > 0 {
                self.push("", kernel_part(*part).to_owned(), Some(*amount), "");
            }
        }
    }
}

/// Names of the kernel's parts.
fn kernel_part(part: KernelPart) -> &'static str {
    match part {
        KernelPart::All => "all",
        KernelPart::Slab => "slab",
        KernelPart::PageTables => "page tables",
        KernelPart::Stacks => "stacks",
        KernelPart::PerCpu => "per-CPU",
        KernelPart::Sockets => "sockets",
        KernelPart::Hugetlb => "hugetlb pool",
        KernelPart::Other => "other",
    }
}

/// How well an amount is known, in a word.
fn basis(basis: Basis) -> &'static str {
    match basis {
        Basis::Exact => "exact",
        Basis::Measured => "measured",
        Basis::Estimated => "estimated",
        Basis::UpperBound => "at most",
    }
}

fn processes(count: i64) -> String {
    words::processes(usize::try_from(count).unwrap_or(0))
}

fn object(row: &ShmObjectRow) -> String {
    let name = row.name.as_deref().map(visible);
    let name = name.as_deref().unwrap_or("without a name");
    let mappers = match row.mapper_count {
        0 => "mapped by none".to_owned(),
        1 => "1 process".to_owned(),
        count => format!("{count} processes"),
    };
    match row.family {
        Some(family) => format!("{name} ({}, {mappers})", family.as_str()),
        None => format!("{name} ({mappers})"),
    }
}

/// What stands beside the books: the limit, and what could be taken back.
fn around(balance: &Balance) -> String {
    let limit = match (balance.limit_bytes, &balance.scope) {
        (Some(limit), Scope::Cgroup(_)) => format!("Limit {}", bytes(limit)),
        (Some(total), Scope::Node) => format!("Of {}", bytes(total)),
        (None, _) => "No limit".to_owned(),
    };
    match balance.reclaimable_bytes {
        Some(amount) => format!(
            "{limit}; of what is in use, up to {} can be reclaimed without swap.",
            bytes(amount)
        ),
        None => format!("{limit}."),
    }
}

/// Shared objects of huge pages, which stand beside the books.
fn huge(balance: &Balance) -> Option<String> {
    let all = &balance.huge_objects;
    let largest: Vec<String> = all
        .iter()
        .take(MAX_LINES)
        .map(|row| format!("{} in {}", bytes_or_unknown(in_memory(row)), object(row)))
        .collect();
    let more = match all.len().saturating_sub(MAX_LINES) {
        0 => String::new(),
        more => format!(" and {} more", words::count(more)),
    };
    let place = match balance.scope {
        Scope::Cgroup(_) => "Hugetlb pages, in none of these lines",
        Scope::Node => "Of the hugetlb pool",
    };
    (!all.is_empty()).then(|| format!("{place}: {}{more}.", largest.join(", ")))
}

/// What is less than exact.
fn doubts(balance: &Balance) -> Option<String> {
    let sum = |wanted: Basis| -> Bytes {
        let lines = balance.anon.iter().filter(|line| line.basis == wanted);
        lines.map(|line| line.bytes).sum()
    };
    let mut parts = Vec::new();
    let (estimated, at_most) = (sum(Basis::Estimated), sum(Basis::UpperBound));
    if estimated.0 > 0 {
        parts.push(format!("{} is an estimate", bytes(estimated)));
    }
    if at_most.0 > 0 {
        parts.push(format!(
            "{} was never measured and can count shared pages twice",
            bytes(at_most)
        ));
    }
    if let Some(oldest) = balance.oldest() {
        let age = words::duration(DurationNs(oldest.0.saturating_abs()));
        let side = if oldest.0 < 0 { "later" } else { "earlier" };
        parts.push(format!("the oldest measurement was {age} {side}"));
    }
    if balance.unknown_process_count > 0 {
        parts.push(format!(
            "of {} nothing is known",
            words::processes(balance.unknown_process_count)
        ));
    }
    (!parts.is_empty()).then(|| format!("Of anonymous memory, {}.", parts.join("; ")))
}

/// What stands beside a residual that is more of time than of memory.
fn two_instants(balance: &Balance, interval: DurationNs) -> &'static str {
    match balance.is_of_two_instants(interval) {
        true => "not of the same instant",
        false => "",
    }
}

/// Books that get one line.
fn in_short(balance: &Balance, interval: DurationNs) -> String {
    let mut parts = vec![
        format!("anonymous {}", bytes(balance.anon_bytes())),
        format!(
            "shared {}",
            bytes(balance.objects_bytes() + balance.other_shared_bytes.unwrap_or(Bytes(0)))
        ),
    ];
    if let Some(own) = balance.recorder_bytes {
        parts.insert(1, format!("memtrace itself {}", bytes(own)));
    }
    if let Some(others) = balance.other_processes_bytes.filter(|others| others.0 != 0) {
        parts.insert(1, format!("processes not recorded {}", bytes(others)));
    }
    let cache = balance.other_files_bytes;
    let cache = cache.map(|others| others + balance.files_bytes());
    parts.push(format!("page cache {}", bytes_or_unknown(cache)));
    parts.push(format!("kernel {}", bytes(balance.kernel_bytes())));
    let doubt = match two_instants(balance, interval) {
        "" => String::new(),
        doubt => format!(" ({doubt})"),
    };
    parts.push(format!(
        "residual {}{doubt}",
        bytes_or_unknown(balance.residual_bytes)
    ));
    format!(
        "{}: {} in use: {}.",
        scope(&balance.scope),
        bytes_or_unknown(balance.current_bytes),
        parts.join(", ")
    )
}
