//! The small facts of a process and of the machine that readings need.

use super::mappings::{Backing, Device, Header};
use super::queue::Held;
use crate::collect::fields::{kib, number, pairs};
use crate::model::{Bytes, Tgid};
use std::collections::HashMap;
use std::path::Path;

/// What is used of /proc/PID/status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) anon: Option<Bytes>,
    pub(super) file: Option<Bytes>,
    pub(super) shmem: Option<Bytes>,
    pub(super) swap: Option<Bytes>,
    pub(super) hugetlb: Option<Bytes>,
}

impl Status {
    pub(super) fn parse(text: &[u8]) -> Self {
        let mut status = Self::default();
        for (key, value) in pairs(text) {
            let cell = match key {
                b"RssAnon" => &mut status.anon,
                b"RssFile" => &mut status.file,
                b"RssShmem" => &mut status.shmem,
                b"VmSwap" => &mut status.swap,
                b"HugetlbPages" => &mut status.hugetlb,
                _ => continue,
            };
            *cell = kib(value);
        }
        status
    }
}

/// `size resident shared ...` in pages; shared counts files and shared memory.
pub(super) fn statm(text: &[u8], page_size: u64) -> Option<Held> {
    let mut words = text.split(|byte| *byte == b' ').skip(1);
    let resident: i64 = number(words.next()?)?;
    let shared: i64 = number(words.next()?)?;
    let amount = |pages: i64| Bytes(pages.saturating_mul(page_size.cast_signed()));
    Some(Held {
        anon: amount(resident - shared),
        shared: amount(shared),
    })
}

/// The device of the tmpfs that the kernel mounts for itself, from a memfd of our own.
pub(super) fn kernel_tmpfs() -> Option<(Device, Backing)> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let own = rustix::fs::memfd_create("memtrace", flags).ok()?;
    let device = rustix::fs::fstat(own).ok()?.st_dev;
    let device = Device {
        major: rustix::fs::major(device),
        minor: rustix::fs::minor(device),
    };
    Some((device, Backing::KernelTmpfs))
}

/// What lies on the device of a mapping. Asked once per device, through the mapping itself:
/// a container has mounts that no path of ours leads to.
pub(super) fn backing(
    known: &mut HashMap<Device, Backing>,
    root: &Path,
    tgid: Tgid,
    header: &Header<'_>,
) -> Backing {
    // File systems without a block device have major 0.
    if header.inode == 0 || header.device.major != 0 {
        return Backing::Files;
    }
    if let Some(backing) = known.get(&header.device) {
        return *backing;
    }
    let link = root.join(format!(
        "{tgid}/map_files/{:x}-{:x}",
        header.start, header.end
    ));
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    let opened = rustix::fs::open(link, flags, rustix::fs::Mode::empty());
    let Ok(kind) = opened.and_then(rustix::fs::fstatfs).map(|fs| fs.f_type) else {
        // Without the right to follow the link. The name is a fair guess, and kept for
        // this mapping only.
        let is_shm = header.path.starts_with(b"/dev/shm/");
        return if is_shm {
            Backing::Tmpfs
        } else {
            Backing::Files
        };
    };
    const TMPFS: i64 = 0x0102_1994;
    const HUGETLBFS: i64 = 0x9584_58f6;
    #[allow(clippy::unnecessary_cast)]
    let backing = match kind as i64 {
        // Device nodes lie on a tmpfs too.
        TMPFS if header.path.starts_with(b"/dev/") && !header.path.starts_with(b"/dev/shm/") => {
            Backing::Devtmpfs
        }
        TMPFS => Backing::Tmpfs,
        HUGETLBFS => Backing::Hugetlbfs,
        // To the kernel the pages of a ramfs are page cache, and no shared memory.
        _ => Backing::Files,
    };
    known.insert(header.device, backing);
    backing
}
