//! Lengths of time in words.

use memtrace_model::DurationNs;
use memtrace_report::words;

/// Whether a part is a tenth of the whole or more: from there on it is worth a word.
pub(super) fn is_tenth(part: DurationNs, whole: DurationNs) -> bool {
    part.0 > 0 && part.0.saturating_mul(10) >= whole.0
}

/// A part of a length.
pub(super) fn percent(part: DurationNs, whole: DurationNs) -> String {
    match whole.0 {
        0 => "0.0 %".to_owned(),
        whole => format!("{:.1} %", part.0 as f64 * 100.0 / whole as f64),
    }
}

/// A length of time as profilers tell it: `812 µs`, `3.41 ms`.
pub(super) fn took(length: DurationNs) -> String {
    match length.0 {
        0 => "0".to_owned(),
        ns if ns.abs() < 1_000 => format!("{ns} ns"),
        ns if ns.abs() < 1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        ns if ns.abs() < 1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        ns if ns.abs() < 100_000_000_000 => format!("{:.2} s", ns as f64 / 1e9),
        _ => words::duration(length),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_a_short_time_is_a_tenth_too() {
        let is_tenth = |part, whole| is_tenth(DurationNs(part), DurationNs(whole));
        assert_eq!(
            [0, 8, 9].map(|part| is_tenth(part, 90)),
            [false, false, true]
        );
        assert!(!is_tenth(0, 0));
        assert!(is_tenth(i64::MAX / 2, i64::MAX));
    }
}
