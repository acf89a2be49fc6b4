//! `cached_file`: what the page cache holds of the files that processes use.

use crate::labels;
use crate::table::table;
use crate::{BootNs, Bytes, Upid, WallNs};

table! {
    /// Page cache of one file of at least 1 MiB that a recorded process has mapped or open; shared memory (tmpfs, memfd, hugetlbfs) is not among them. It stays when the process is gone, until the kernel needs the memory. A row holds until the next one of the same device and inode.
    pub struct CachedFileRow in "cached_file" {
        /// Wall-clock time (UTC).
        ts: WallNs,
        /// Time on CLOCK_BOOTTIME.
        boot_ns: BootNs,
        /// Device of its file system, as `major:minor`; with the inode it names the file.
        device: String,
        /// Inode of the file.
        inode: i64,
        /// Its path as the process sees it.
        path: String,
        /// Length of the file.
        size_bytes: Bytes,
        /// Part of it that is in the page cache; null in the last row of a file that is no longer followed: nobody is left through whom to ask, or more files are in use than are followed.
        cached_bytes: Option<Bytes>,
        /// Part of the cached that is yet to be written to the disk; null where only mincore(2) tells.
        dirty_bytes: Option<Bytes>,
        /// Recorded processes that had it mapped or open when they were last looked at.
        user_count: i64,
        /// The recorded process that was first seen to use it; its cgroup most likely pays.
        first_user_upid: Option<Upid>,
        /// How it was learned.
        source: Option<CacheSource>,
    }
}

labels! {
    /// What tells which part of a file is cached.
    pub enum CacheSource {
        /// The call cachestat(2) (6.5).
        Cachestat = "cachestat",
        /// mincore(2) on a mapping of our own.
        Mincore = "mincore",
    }
}
