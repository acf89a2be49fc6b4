//! `mapping`: what the memory of a process is, by kind and object.

use crate::labels;
use crate::table::table;
use crate::{BootNs, Bytes, Upid, WallNs};

table! {
    /// The mappings of one process, added up by kind and object. The rows of one reading have the same upid and time, which is that of their row of `pss`; a reading replaces the one before it as a whole.
    pub struct MappingRow in "mapping" {
        /// Wall-clock time (UTC) at the end of the reading.
        ts: WallNs,
        /// Time on CLOCK_BOOTTIME at the end of the reading; joins with `pss`.
        boot_ns: BootNs,
        /// The process that maps it.
        upid: Upid,
        /// What kind of memory it is.
        kind: Option<MappingKind>,
        /// The mapped file or object as the kernel names it, without ` (deleted)`; null for memory without one, and for the row that adds up all small files.
        path: Option<String>,
        /// Whether the kernel says that its name was removed.
        is_deleted: bool,
        /// Device of the object, as `major:minor`; with the inode it names the object. Null without one.
        device: Option<String>,
        /// Inode of the object; null without one.
        inode: Option<i64>,
        /// How many mappings this row adds up.
        mapping_count: i64,
        /// Address space they take.
        size_bytes: Bytes,
        /// Resident pages, in bytes; null when unknown.
        rss_bytes: Option<Bytes>,
        /// Resident pages, shared ones divided by the number of their sharers.
        pss_bytes: Option<Bytes>,
        /// Resident pages that no other process maps.
        private_bytes: Option<Bytes>,
        /// Resident pages that are anonymous: in a private mapping of a file, what was written to.
        anon_bytes: Option<Bytes>,
        /// Pages swapped out.
        swap_bytes: Option<Bytes>,
        /// Memory in transparent huge pages; null where it was not read.
        huge_bytes: Option<Bytes>,
    }
}

labels! {
    /// Kinds of memory.
    pub enum MappingKind {
        /// The brk heap.
        Heap = "heap",
        /// The stack of the main thread.
        Stack = "stack",
        /// Private anonymous mappings: memory of most allocators, stacks of threads.
        Anonymous = "anonymous",
        /// A file of a disk or of the network.
        File = "file",
        /// A file of a tmpfs, such as /dev/shm.
        Tmpfs = "tmpfs",
        /// A memfd: shared memory that has a descriptor for a name.
        Memfd = "memfd",
        /// A System V segment.
        Sysv = "sysv",
        /// Shared anonymous memory, which the kernel names /dev/zero. Pinned host memory of CUDA looks like this.
        SharedAnonymous = "shared_anonymous",
        /// Pages of hugetlbfs, which no RSS counts.
        Hugetlb = "hugetlb",
        /// Memory of a device.
        Device = "device",
        /// Pages that the kernel lends to every process (vdso, vvar, vsyscall).
        Kernel = "kernel",
    }
}
