//! `tmpfs`: how full the file systems in memory are that recorded processes see.

use crate::table::table;
use crate::{BootNs, Bytes, Upid, WallNs};

table! {
    /// How full a tmpfs is that a recorded process sees, `/dev/shm` for example, also that of a container. A page that no longer fits ends whoever touches it with SIGBUS. A row holds until the next one of the same device.
    pub struct TmpfsRow in "tmpfs" {
        /// Wall-clock time (UTC).
        ts: WallNs,
        /// Time on CLOCK_BOOTTIME.
        boot_ns: BootNs,
        /// Its device, as `major:minor`.
        device: String,
        /// Where it is mounted, as `seen_by_upid` sees it.
        mount_point: String,
        /// A recorded process that sees it there.
        seen_by_upid: Upid,
        /// What it may hold at most.
        size_bytes: Bytes,
        /// What it holds, swapped out pages included.
        used_bytes: Bytes,
    }
}
