//! `orphaned_shm`: shared memory that a recording left behind without an owner.

use super::mapping::MappingKind;
use super::shm_object::ShmFamily;
use crate::table::table;
use crate::{BootNs, Bytes, Tgid, WallNs};

table! {
    /// An object of shared memory that came into being during the recording and that no process had mapped or open at its end: a file in /dev/shm, or a System V segment. It takes memory until somebody removes it. Not written for a recording of the whole machine. Seen are the /dev/shm and the ipc namespace that memtrace runs in.
    pub struct OrphanedShmRow in "orphaned_shm" {
        /// Wall-clock time (UTC) when it was looked at.
        ts: WallNs,
        /// Time on CLOCK_BOOTTIME when it was looked at.
        boot_ns: BootNs,
        /// Device of its file system, as `major:minor`; null for a System V segment.
        device: Option<String>,
        /// Inode; of a System V segment its id (shmid).
        inode: i64,
        /// Tmpfs or SysV.
        kind: Option<MappingKind>,
        /// Path of the file, or the key of the segment in hexadecimal.
        name: String,
        /// Whose it is by its name; null when the name says nothing.
        family: Option<ShmFamily>,
        /// Process id of its creator: from the name, or as the kernel keeps it for a System V segment. Null when neither tells.
        creator_tgid: Option<Tgid>,
        /// User it belongs to.
        uid: Option<i64>,
        /// Apparent size; null when unknown.
        size_bytes: Option<Bytes>,
        /// Memory and swap it takes.
        allocated_bytes: Option<Bytes>,
        /// Whether every process could be asked. False: one that could not be looked into may have it.
        is_certain: bool,
    }
}
