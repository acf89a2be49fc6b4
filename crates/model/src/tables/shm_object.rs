//! `shm_object`: shared memory, one object at a time.

use super::mapping::MappingKind;
use crate::labels;
use crate::table::table;
use crate::{BootNs, Bytes, Tgid, Upid, WallNs};

table! {
    /// One object of shared memory that a recorded process maps, or a file in /dev/shm that none does. What it has allocated exists once, however many processes count it in their RSS. A row holds until the next one of the same device and inode.
    pub struct ShmObjectRow in "shm_object" {
        /// Wall-clock time (UTC).
        ts: WallNs,
        /// Time on CLOCK_BOOTTIME.
        boot_ns: BootNs,
        /// Device of its file system, as `major:minor`; with the inode it names the object.
        device: String,
        /// Inode; of a System V segment also its id (shmid).
        inode: i64,
        /// What kind of object it is.
        kind: Option<MappingKind>,
        /// Its name as the kernel tells it, without ` (deleted)`.
        name: Option<String>,
        /// Whether it has no name any more, or never had one: it is gone when the last mapping and descriptor are.
        is_deleted: bool,
        /// Whose it is by its name; null when the name says nothing.
        family: Option<ShmFamily>,
        /// Process id that its name contains as that of its creator; null when it has none. Ids are reused, and count in the creator's pid namespace.
        creator_tgid: Option<Tgid>,
        /// Apparent size; what was never touched is not allocated. Zero once it is gone.
        size_bytes: Option<Bytes>,
        /// Memory and swap it takes, asked through a mapping, a descriptor or its name. Zero once it is gone; null when nobody is left through whom to ask.
        allocated_bytes: Option<Bytes>,
        /// Part of that which is in memory; null where only the sum with what is swapped out is known (all but System V).
        resident_bytes: Option<Bytes>,
        /// Recorded processes that map it.
        mapper_count: i64,
        /// Their upids in ascending order, separated by blanks; cut after 1,000.
        mappers: String,
        /// The recorded process that was first seen to map it; its cgroup most likely pays.
        first_mapper_upid: Option<Upid>,
        /// The recorded process that was first seen to have it open without mapping it: who writes to a file of a tmpfs. Null when none was.
        first_opener_upid: Option<Upid>,
        /// When it was last looked at before: until then the row before this one held, and before its first row it took nothing. Null where nobody had looked.
        unchanged_until_boot_ns: Option<BootNs>,
        /// Whether a process outside of the recording maps it; null when that was not looked up, which is done only for files in /dev/shm.
        has_other_mapper: Option<bool>,
    }
}

impl ShmObjectRow {
    /// The recorded process whose cgroup most likely pays for it: who was first seen to map it,
    /// or else to have it open.
    pub fn first_user(&self) -> Option<Upid> {
        self.first_mapper_upid.or(self.first_opener_upid)
    }
}

impl ShmObjectRow {
    /// What it takes of memory, what is swapped out aside where that is known apart.
    pub fn in_memory_bytes(&self) -> Option<Bytes> {
        self.resident_bytes.or(self.allocated_bytes)
    }
}

labels! {
    /// Programs that are known by the names of their shared memory.
    pub enum ShmFamily {
        /// The object store of Ray.
        RayPlasma = "ray_plasma",
        /// multiprocessing.shared_memory of Python, and its semaphores.
        Python = "python",
        /// Tensors that processes of PyTorch share.
        Torch = "torch",
        /// Shared memory of vLLM.
        Vllm = "vllm",
        /// Shared memory of SGLang.
        Sglang = "sglang",
        /// NCCL's channels within a machine.
        Nccl = "nccl",
        /// The CUDA driver.
        Cuda = "cuda",
        /// UCX and the MPI libraries.
        Mpi = "mpi",
    }
}
