//! /proc/PID/status: the amounts of memory, the user, the ids in nested namespaces.

use crate::fields::{kib, number, pairs};
use memtrace_model::{Bytes, Tgid};

/// What is used of /proc/PID/status. A process without memory of its own (a zombie, a
/// kernel thread) has no amounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Status {
    /// Real user id.
    pub(super) uid: Option<i64>,
    /// Process id in its innermost pid namespace.
    pub(super) ns_tgid: Option<Tgid>,
    /// VmHWM: the highest RSS of the present program image.
    pub(super) peak_rss: Option<Bytes>,
    pub(super) amounts: StatusBytes,
}

/// The memory of a process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StatusBytes {
    /// The line VmRSS.
    pub(super) rss: Option<Bytes>,
    /// The line RssAnon (4.5).
    pub(super) rss_anon: Option<Bytes>,
    /// The line RssFile (4.5).
    pub(super) rss_file: Option<Bytes>,
    /// The line RssShmem (4.5).
    pub(super) rss_shmem: Option<Bytes>,
    /// The line VmSwap.
    pub(super) swap: Option<Bytes>,
    /// The line VmSize.
    pub(super) vm_size: Option<Bytes>,
}

impl Status {
    /// Parses the file; what is not there stays unknown.
    pub(super) fn parse(text: &[u8]) -> Self {
        let mut status = Self::default();
        let amounts = &mut status.amounts;
        for (key, value) in pairs(text) {
            match key {
                b"Uid" => status.uid = number(value),
                b"NSpid" => {
                    let innermost = value.rsplit(u8::is_ascii_whitespace).next();
                    status.ns_tgid = innermost.and_then(number).map(Tgid);
                }
                b"VmSize" => amounts.vm_size = kib(value),
                b"VmHWM" => status.peak_rss = kib(value),
                b"VmRSS" => amounts.rss = kib(value),
                b"RssAnon" => amounts.rss_anon = kib(value),
                b"RssFile" => amounts.rss_file = kib(value),
                b"RssShmem" => amounts.rss_shmem = kib(value),
                b"VmSwap" => {
                    amounts.swap = kib(value);
                    // The last one of interest; two thirds of the file come after it.
                    break;
                }
                _ => {}
            }
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &[u8] = b"Name:\tpython3\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t4242\nUid:\t1000\t0\t0\t0\nNSpid:\t4242\t17\t1\nVmPeak:\t   20000 kB\nVmSize:\t   19000 kB\nVmHWM:\t    9000 kB\nVmRSS:\t    8000 kB\nRssAnon:\t    5000 kB\nRssFile:\t    2500 kB\nRssShmem:\t     500 kB\nVmSwap:\t      12 kB\nThreads:\t1\n";

    #[test]
    fn amounts_are_bytes_and_ids_are_the_innermost() {
        let status = Status::parse(TEXT);
        assert_eq!(status.uid, Some(1000));
        assert_eq!(status.ns_tgid, Some(Tgid(1)));
        assert_eq!(status.peak_rss, Some(Bytes(9000 * 1024)));
        assert_eq!(status.amounts.rss, Some(Bytes(8000 * 1024)));
        assert_eq!(status.amounts.rss_shmem, Some(Bytes(500 * 1024)));
        assert_eq!(status.amounts.swap, Some(Bytes(12 * 1024)));
    }

    #[test]
    fn a_process_without_memory_has_unknown_amounts_and_not_zero() {
        let status = Status::parse(b"Name:\tz\nState:\tZ (zombie)\nUid:\t0\t0\t0\t0\n");
        assert_eq!(status.amounts, StatusBytes::default());
        assert_eq!(status.amounts.rss, None);
        assert_eq!(status.uid, Some(0));
    }

    #[test]
    fn the_kinds_of_this_process_add_up_to_its_rss() {
        let amounts = Status::parse(&std::fs::read("/proc/self/status").unwrap()).amounts;
        let kinds = [amounts.rss_anon, amounts.rss_file, amounts.rss_shmem];
        let sum: Bytes = kinds.into_iter().flatten().sum();
        assert_eq!(Some(sum), amounts.rss);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Status::parse(&text);
        }
    }
}
