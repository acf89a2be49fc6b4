//! `layout`: the anonymous memory of a process by who laid it out.

use crate::labels;
use crate::table::table;
use crate::{BootNs, Bytes, DurationNs, Upid, WallNs};

table! {
    /// The anonymous memory of one process by who laid it out: the allocator, the interpreter, threads, the program itself. The rows of one reading have the same upid and time; a reading replaces the one before it as a whole. The parts of anonymous memory add up to the process's anonymous RSS; `pinned` and `mapped_files` stand beside it. Processes with less than 32 MiB of RSS are not read.
    pub struct LayoutRow in "layout" {
        /// Wall-clock time (UTC) at the end of the reading.
        ts: WallNs,
        /// Time on CLOCK_BOOTTIME at the end of the reading.
        boot_ns: BootNs,
        /// The process whose memory it is.
        upid: Upid,
        /// Who laid it out.
        part: Option<LayoutPart>,
        /// What names it: the name that the program gave to the region, the library of the allocator, the file that most of it is of; null without one.
        name: Option<String>,
        /// How many: heaps of arenas, blocks of malloc, stacks, pieces, mappings.
        item_count: i64,
        /// The size of each, where all have the same.
        unit_bytes: Option<Bytes>,
        /// Address space they take.
        size_bytes: Bytes,
        /// Resident pages. For all but `pinned` and `mapped_files`, anonymous ones.
        rss_bytes: Bytes,
        /// Of those, pages that no other process maps.
        private_bytes: Bytes,
        /// Resident memory in which free blocks of the allocator were looked for; null where nothing was.
        searched_bytes: Option<Bytes>,
        /// How old that search was at the end of the reading: heaps are searched more rarely than read.
        searched_age_ns: Option<DurationNs>,
        /// Of `searched_bytes`, free blocks.
        free_bytes: Option<Bytes>,
        /// Of `searched_bytes`, whole pages within free blocks: what the allocator could give back.
        free_page_bytes: Option<Bytes>,
        /// Resident pages that hold nothing but zeros, by a sample; null where none was looked at.
        zero_bytes: Option<Bytes>,
        /// Resident memory in transparent huge pages, by the same sample; null without the right to /proc/kpageflags.
        huge_bytes: Option<Bytes>,
        /// Resident memory that the program freed with MADV_FREE, by the same sample: the kernel takes it when it needs memory, unless the program writes to it first. Null without the right to /proc/kpageflags, and in recordings of older versions.
        lazy_free_bytes: Option<Bytes>,
        /// Pages of the sample.
        sample_count: i64,
        /// Time from the start of the reading to its end: parts that move faster than that are blurred.
        span_ns: DurationNs,
    }
}

labels! {
    /// Who laid out memory in an address space.
    pub enum LayoutPart {
        /// The brk heap: the main arena of glibc's malloc, or what else calls brk.
        BrkHeap = "brk_heap" | "brk heap",
        /// Heaps of the further arenas of glibc's malloc, each up to 64 MiB: threads allocate from them.
        GlibcArenas = "glibc_arenas" | "glibc arenas",
        /// Blocks of glibc's malloc that are mappings of their own (M_MMAP_THRESHOLD); they go back to the kernel when they are freed.
        GlibcMmapped = "glibc_mmapped" | "large blocks of malloc",
        /// jemalloc, by its library.
        Jemalloc = "jemalloc",
        /// mimalloc, by its library.
        Mimalloc = "mimalloc",
        /// tcmalloc, by its library.
        Tcmalloc = "tcmalloc",
        /// Pools of CPython's allocator of small objects.
        PythonPools = "python_pools" | "Python objects",
        /// Stacks of threads, that of the main thread among them.
        Stacks = "stacks" | "thread stacks",
        /// Many mappings of one size.
        EqualMappings = "equal_mappings" | "equal mappings",
        /// A region that the program gave a name (prctl PR_SET_VMA_ANON_NAME, Linux 5.17).
        Named = "named",
        /// Private pages of files that were written to: copies, which no cache has.
        FileCopies = "file_copies" | "written pages of files",
        /// Other private anonymous mappings.
        Other = "other" | "other anonymous mappings",
        /// Shared anonymous mappings (`/dev/zero`), as drivers make them for pinned host memory. Not anonymous memory to the kernel, which counts them as shared.
        Pinned = "pinned" | "pinned or shared anonymous",
        /// Pages of mapped files that are in the page cache too. Not anonymous memory.
        MappedFiles = "mapped_files" | "mapped files",
    }
}

impl LayoutPart {
    /// Whether the kernel counts it as anonymous memory.
    pub fn is_anonymous(self) -> bool {
        !matches!(self, Self::Pinned | Self::MappedFiles)
    }

    /// Whether it is made of blocks of which some can be free.
    pub fn is_heap(self) -> bool {
        matches!(self, Self::BrkHeap | Self::GlibcArenas | Self::PythonPools)
    }

    /// Whether the program gets it from an allocator.
    pub fn is_allocated(self) -> bool {
        let others = [
            Self::GlibcMmapped,
            Self::Jemalloc,
            Self::Mimalloc,
            Self::Tcmalloc,
        ];
        self.is_heap() || others.contains(&self)
    }
}
