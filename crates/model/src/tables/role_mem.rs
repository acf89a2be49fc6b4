//! `role_mem`: the memory of each role over time.

use crate::table::table;
use crate::{BootNs, Bytes, WallNs};

table! {
    /// Memory of all processes of one role together; those without a role are distinguished by their program. A row holds from its time until the next row of the same `name` (a step function), and before its first row a role holds nothing. The recording is cut into at most 512 stretches of one length, and of each the first instant, the last, that at which all roles held least, that at which they held most, and that of the highest sum of RSS stand here: the same for all roles, so that they add up, and so that the peak of the report keeps its height. A role's own peak can lie between two of them, and peaks on GPUs are not kept: the exact ones are in the report's `roles` (`memtrace report --section roles`). In the amounts of RSS shared pages count in every process that maps them; in `held_bytes` once. A process that has memory and no row in `process`, as a recording that was cut off can have, is in none.
    pub struct RoleMemRow in "role_mem" {
        /// Wall-clock time (UTC).
        ts: Option<WallNs>,
        /// Time on CLOCK_BOOTTIME.
        boot_ns: BootNs,
        /// What they are called, as the report does: "vLLM worker"; the program of those without a role.
        name: String,
        /// The role, as in `process`; null for those that no rule knows.
        role: Option<String>,
        /// The framework, as in `process`.
        framework: Option<String>,
        /// How many processes had the role.
        process_count: i64,
        /// What they held of all, every page once: anonymous memory that is their own, their part of shared memory, in proportion to what stands of it in RSS, and their huge pages and page tables. Pages that a fork shares with its parent are its parent's, and what forks have copied is theirs, in proportion to what they inherited; other memory of the kernel is in no role. Null in findings of older versions.
        held_bytes: Option<Bytes>,
        /// Resident memory in all: the sum of what is known.
        rss_bytes: Option<Bytes>,
        /// Resident anonymous pages. Of a copy that fork made and exec replaced only what it grew by counts, here and in the other amounts.
        rss_anon_bytes: Option<Bytes>,
        /// Resident pages of mapped files.
        rss_file_bytes: Option<Bytes>,
        /// Resident shared memory.
        rss_shmem_bytes: Option<Bytes>,
        /// Pages swapped out.
        swap_bytes: Option<Bytes>,
        /// What they held on all GPUs by the driver's last lists until then; null where that is not known, or there is no GPU.
        gpu_bytes: Option<Bytes>,
    }
}
