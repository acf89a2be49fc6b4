//! The form most kernel files share: one `key value` pair a line.
//!
//! status, meminfo, memory.stat and memory.events are read here rather than with the
//! procfs crate, which takes 34 µs and more for a status (every field, as an owned
//! string) and refuses a whole meminfo when one of its fields is missing, as it is inside
//! some containers.

use memtrace_model::{Bytes, DurationNs};

/// The pairs of a text, in order. A colon after the key belongs to neither side; lines
/// without a value are left out.
pub(super) fn pairs(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    text.split(|byte| *byte == b'\n').filter_map(|line| {
        let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t'))?;
        let (key, value) = line.split_at(end);
        Some((key.strip_suffix(b":").unwrap_or(key), value.trim_ascii()))
    })
}

/// The number at the start of a value; what follows a blank is ignored.
pub(super) fn number<N: std::str::FromStr>(value: &[u8]) -> Option<N> {
    let word = value.split(u8::is_ascii_whitespace).next()?;
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// An amount in bytes; a number that does not fit is no amount.
pub(super) fn bytes(value: &[u8]) -> Option<Bytes> {
    number(value).map(Bytes)
}

/// An amount that the kernel writes as `N kB`, by which it means KiB.
pub(super) fn kib(value: &[u8]) -> Option<Bytes> {
    let kib: i64 = number(value)?;
    kib.checked_mul(1024).map(Bytes)
}

/// The stall times of a pressure file: `some` and `full`, as running totals. The file
/// counts in µs (psi_show() in kernel/sched/psi.c).
pub(super) fn pressure(text: &[u8]) -> (Option<DurationNs>, Option<DurationNs>) {
    let total = |kind: &[u8]| {
        let (_, averages) = pairs(text).find(|(key, _)| *key == kind)?;
        let mut words = averages.split(|byte| *byte == b' ');
        let micros: i64 = number(words.find_map(|word| word.strip_prefix(b"total="))?)?;
        micros.checked_mul(1000).map(DurationNs)
    };
    (total(b"some"), total(b"full"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_spellings_of_a_pair_are_understood() {
        let text = b"VmRSS:\t   1234 kB\nanon 4096\nempty:\n";
        let found: Vec<_> = pairs(text).collect();
        assert_eq!(
            found,
            [
                (b"VmRSS".as_slice(), b"1234 kB".as_slice()),
                (b"anon".as_slice(), b"4096".as_slice()),
            ]
        );
        assert_eq!(kib(b"1234 kB"), Some(Bytes(1234 * 1024)));
        assert_eq!(bytes(b"4096"), Some(Bytes(4096)));
    }

    #[test]
    fn what_is_no_number_or_does_not_fit_is_unknown() {
        assert_eq!(bytes(b"max"), None);
        assert_eq!(bytes(b"18446744073709551615"), None);
        assert_eq!(kib(b"9223372036854775807 kB"), None);
        assert_eq!(bytes(b""), None);
    }

    #[test]
    fn pressure_is_read_in_nanoseconds_and_full_may_be_missing() {
        let both = b"some avg10=0.00 avg60=0.12 avg300=0.00 total=2500\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(
            pressure(both),
            (Some(DurationNs(2_500_000)), Some(DurationNs(7_000)))
        );
        assert_eq!(
            pressure(b"some avg10=0.00 total=1\n"),
            (Some(DurationNs(1000)), None)
        );
        assert_eq!(pressure(b""), (None, None));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            for (_, value) in pairs(&text) {
                let _ = (bytes(value), kib(value));
            }
            let _ = pressure(&text);
        }
    }
}
