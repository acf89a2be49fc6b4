//! The small facts of a process that readings need.

use super::queue::Held;
use crate::fields::{kib, number, pairs};
use memtrace_model::Bytes;

/// What is used of /proc/PID/status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) anon: Option<Bytes>,
    pub(super) file: Option<Bytes>,
    pub(super) shmem: Option<Bytes>,
    pub(super) swap: Option<Bytes>,
    pub(super) hugetlb: Option<Bytes>,
    pub(super) page_tables: Option<Bytes>,
    pub(super) pinned: Option<Bytes>,
}

impl Status {
    /// What no RSS counts.
    pub(super) fn unseen(&self) -> Bytes {
        self.hugetlb.unwrap_or_default() + self.page_tables.unwrap_or_default()
    }

    pub(super) fn parse(text: &[u8]) -> Self {
        let mut status = Self::default();
        for (key, value) in pairs(text) {
            let cell = match key {
                b"RssAnon" => &mut status.anon,
                b"RssFile" => &mut status.file,
                b"RssShmem" => &mut status.shmem,
                b"VmSwap" => &mut status.swap,
                b"HugetlbPages" => &mut status.hugetlb,
                b"VmPTE" => &mut status.page_tables,
                b"VmPin" => &mut status.pinned,
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
        unseen: Bytes(0),
    })
}
