//! Why memory came: from its parts, and what was read in them.

use super::LayoutLine;
use memtrace_model::Bytes;
use memtrace_model::labels;
use memtrace_model::tables::LayoutPart;
use std::collections::BTreeMap;

labels! {
    /// Why the memory of a process grew, or why it holds it.
    pub enum Cause {
        /// The program uses it: allocated, and not given back.
        LiveData = "live_data" | "live data",
        /// The program gave it back, and its allocator keeps it.
        Retained = "retained" | "kept by the allocator",
        /// The program gave it back with MADV_FREE, and the kernel has not needed it yet.
        LazilyFreed = "lazily_freed" | "freed with MADV_FREE",
        /// Huge pages most of which hold only zeros: more than the program wrote to.
        HugePages = "huge_pages" | "huge pages",
        /// Shared anonymous memory, as drivers pin it.
        Pinned = "pinned" | "pinned or shared anonymous memory",
        /// Ever more mappings of one size.
        EqualMappings = "equal_mappings" | "equal mappings",
        /// Private pages of files that were written to.
        FileCopies = "file_copies" | "written pages of files",
        /// Pages of mapped files, which the kernel takes back when it needs them.
        MappedFiles = "mapped_files" | "mapped files",
        /// Stacks of threads.
        Stacks = "stacks" | "thread stacks",
        /// A region that has a name of the program's.
        NamedRegion = "named_region" | "a region with a name",
        /// What was read does not tell.
        Unknown = "unknown" | "unknown",
    }
}

labels! {
    /// How sure a cause is.
    pub enum Confidence {
        /// Read from the headers of the memory itself.
        Measured = "measured",
        /// It follows from how such memory usually behaves.
        Likely = "likely",
        /// Not at all.
        None = "none",
    }
}

/// What was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) cause: Cause,
    pub(super) confidence: Confidence,
    pub(super) bytes: Bytes,
    pub(super) gained: Bytes,
}

/// The main cause has to explain this part of what was gained.
const MOST: f64 = 0.5;
/// What is free in less than this part of the brk heap says nothing of the rest.
const SEARCHED: f64 = 0.25;
/// Huge pages are the cause where this part of them holds only zeros.
const UNTOUCHED: f64 = 0.5;

/// The cause of most of what was gained since `before`. `net` is by how much all together grew:
/// memory can go from one part to another.
pub(super) fn of<'a>(
    parts: &[LayoutLine],
    net: Bytes,
    before: impl Fn(&LayoutLine) -> Option<&'a LayoutLine>,
) -> Found {
    let mut causes: BTreeMap<Cause, (f64, f64)> = BTreeMap::new();
    let mut add = |cause, bytes: f64, is_measured: bool| {
        let (sum, measured) = causes.entry(cause).or_default();
        *sum += bytes.max(0.0);
        if is_measured {
            *measured += bytes.max(0.0);
        }
    };
    for line in parts.iter().filter(|line| line.gained_bytes.0 > 0) {
        of_part(line, before(line), &mut add);
    }
    let all: f64 = causes.values().map(|(bytes, _)| bytes).sum();
    let scale = (net.0.max(0) as f64 / all.max(1.0)).min(1.0);
    for (bytes, measured) in causes.values_mut() {
        *bytes *= scale;
        *measured *= scale;
    }
    let gained = all * scale;
    let most = causes
        .into_iter()
        .max_by(|(_, (a, _)), (_, (b, _))| a.total_cmp(b))
        .filter(|(_, (bytes, _))| *bytes >= gained * MOST && *bytes > 0.0);
    let gained = Bytes(gained as i64);
    let Some((cause, (bytes, measured))) = most else {
        return Found {
            cause: Cause::Unknown,
            confidence: Confidence::None,
            bytes: Bytes(0),
            gained,
        };
    };
    let confidence = match cause {
        Cause::Unknown => Confidence::None,
        _ if measured >= bytes * MOST => Confidence::Measured,
        _ => Confidence::Likely,
    };
    Found {
        cause,
        confidence,
        bytes: Bytes(bytes as i64),
        gained,
    }
}

/// Divides what one part gained among causes.
fn of_part(line: &LayoutLine, before: Option<&LayoutLine>, add: &mut impl FnMut(Cause, f64, bool)) {
    let gained = line.gained_bytes.0 as f64;
    let lazy_free = |bytes: Option<Bytes>| bytes.unwrap_or_default().0 as f64;
    let lazily_before = lazy_free(before.and_then(|before| before.lazy_free_bytes));
    let lazily = (lazy_free(line.lazy_free_bytes) - lazily_before).clamp(0.0, gained);
    add(Cause::LazilyFreed, lazily, true);
    let gained = gained - lazily;
    if let Some(untouched) = line.untouched() {
        // Zeros can have been written, too; and nothing is known of the rest.
        add(Cause::HugePages, gained * untouched, false);
        return add(Cause::Unknown, gained * (1.0 - untouched), false);
    }
    let (cause, is_measured) = match line.part {
        LayoutPart::BrkHeap | LayoutPart::GlibcArenas | LayoutPart::PythonPools => {
            return of_heap(line, gained, before, add);
        }
        // What is freed of these goes back to the kernel at once.
        LayoutPart::GlibcMmapped => (Cause::LiveData, true),
        // These give pages back that were free for a while, seconds as they come.
        LayoutPart::Jemalloc | LayoutPart::Mimalloc | LayoutPart::Tcmalloc => {
            (Cause::LiveData, false)
        }
        LayoutPart::Stacks => (Cause::Stacks, true),
        LayoutPart::EqualMappings => (Cause::EqualMappings, true),
        LayoutPart::Named => (Cause::NamedRegion, true),
        LayoutPart::FileCopies => (Cause::FileCopies, true),
        // Programs share such memory with their forks, too.
        LayoutPart::Pinned => (Cause::Pinned, false),
        LayoutPart::MappedFiles => (Cause::MappedFiles, true),
        LayoutPart::Other => (Cause::Unknown, false),
    };
    add(cause, gained, is_measured);
}

/// What a heap gained is in use, or free: the free part of it then and now.
fn of_heap(
    line: &LayoutLine,
    gained: f64,
    before: Option<&LayoutLine>,
    add: &mut impl FnMut(Cause, f64, bool),
) {
    let Some(searched) = line.searched_bytes.map(|bytes| bytes.0 as f64) else {
        return add(Cause::Unknown, gained, false);
    };
    let covered = match line.part {
        // From its begin on, where the oldest blocks are.
        LayoutPart::BrkHeap => (searched / (line.rss_bytes.0.max(1) as f64)).min(1.0),
        // Pools and heaps here and there.
        _ => 1.0,
    };
    let Some(free) = line.free_of_all().filter(|_| covered >= SEARCHED) else {
        return add(Cause::Unknown, gained, false);
    };
    let freed = free - before.and_then(LayoutLine::free_of_all).unwrap_or(0.0);
    let freed = freed.clamp(0.0, gained);
    for (cause, bytes) in [(Cause::Retained, freed), (Cause::LiveData, gained - freed)] {
        // What was not searched is taken to be like the rest.
        add(cause, bytes * covered, true);
        add(cause, bytes * (1.0 - covered), false);
    }
}

impl LayoutLine {
    /// The part of it that holds only zeros, where it is in huge pages; `None` where that is not most
    /// of it.
    pub(crate) fn untouched(&self) -> Option<f64> {
        let rss = self.rss_bytes.0 as f64;
        let (zero, huge) = (self.zero_bytes?.0 as f64, self.huge_bytes?.0 as f64);
        let is_case = self.part.is_anonymous() && huge >= rss * MOST && zero >= rss * UNTOUCHED;
        is_case.then_some(zero / rss)
    }
}
