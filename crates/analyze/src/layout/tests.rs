use super::cause::of;
use super::*;
use memtrace_model::tables::{LayoutPart as Part, LayoutRow};
use memtrace_model::{BootNs, Upid};

const MIB: i64 = 1 << 20;

fn line(part: Part, gained_mib: i64) -> LayoutLine {
    LayoutLine {
        part,
        name: None,
        item_count: 1,
        items_gained: 1,
        unit_bytes: None,
        size_bytes: Bytes(gained_mib * MIB),
        rss_bytes: Bytes(gained_mib * MIB),
        private_bytes: Bytes(gained_mib * MIB),
        gained_bytes: Bytes(gained_mib * MIB),
        searched_bytes: None,
        searched_age_ns: None,
        free_bytes: None,
        free_page_bytes: None,
        zero_bytes: None,
        huge_bytes: None,
        lazy_free_bytes: None,
    }
}

/// A heap of which so many parts in a hundred are free, of so many that were searched.
fn heap(part: Part, gained_mib: i64, free: i64, searched: i64) -> LayoutLine {
    let searched = Bytes(gained_mib * MIB * searched / 100);
    LayoutLine {
        searched_bytes: Some(searched),
        free_bytes: Some(Bytes(searched.0 * free / 100)),
        ..line(part, gained_mib)
    }
}

fn cause(parts: &[LayoutLine]) -> (Cause, Confidence) {
    let found = of(parts, Bytes(i64::MAX), |_| None);
    (found.cause, found.confidence)
}

#[test]
fn a_heap_in_use_is_live_data_and_one_that_was_freed_is_retained() {
    let live = [heap(Part::BrkHeap, 200, 3, 100), line(Part::Other, 20)];
    assert_eq!(cause(&live), (Cause::LiveData, Confidence::Measured));
    let freed = [heap(Part::GlibcArenas, 200, 71, 60), line(Part::Other, 20)];
    assert_eq!(cause(&freed), (Cause::Retained, Confidence::Measured));
}

#[test]
fn of_what_was_hardly_searched_nothing_is_said() {
    let heap = [heap(Part::BrkHeap, 200, 99, 10)];
    assert_eq!(cause(&heap), (Cause::Unknown, Confidence::None));
}

#[test]
fn of_a_heap_that_could_not_be_searched_nothing_is_said() {
    assert_eq!(
        cause(&[line(Part::BrkHeap, 200)]),
        (Cause::Unknown, Confidence::None)
    );
}

#[test]
fn what_was_free_before_does_not_count_as_freed() {
    let parts = [LayoutLine {
        rss_bytes: Bytes(1_000 * MIB),
        searched_bytes: Some(Bytes(1_000 * MIB)),
        free_bytes: Some(Bytes(510 * MIB)),
        ..line(Part::BrkHeap, 500)
    }];
    let before = LayoutLine {
        searched_bytes: Some(Bytes(500 * MIB)),
        free_bytes: Some(Bytes(500 * MIB)),
        ..line(Part::BrkHeap, 500)
    };
    let found = of(&parts, Bytes(500 * MIB), |_| Some(&before));
    assert_eq!(found.cause, Cause::LiveData);
    assert_eq!(found.bytes, Bytes(490 * MIB));
}

#[test]
fn what_goes_from_one_part_to_another_is_no_gain() {
    // Seven mappings of one size were others; the eighth makes all of them equal.
    let parts = [line(Part::EqualMappings, 800)];
    let found = of(&parts, Bytes(100 * MIB), |_| None);
    assert_eq!(
        (found.cause, found.bytes),
        (Cause::EqualMappings, Bytes(100 * MIB))
    );
    assert_eq!(found.gained, Bytes(100 * MIB));
    let fell = of(&parts, Bytes(-5), |_| None);
    assert_eq!((fell.cause, fell.gained), (Cause::Unknown, Bytes(0)));
}

#[test]
fn what_was_searched_in_part_is_likely_and_in_full_measured() {
    let of = |part, searched| cause(&[heap(part, 200, 80, searched)]);
    assert_eq!(of(Part::BrkHeap, 30), (Cause::Retained, Confidence::Likely));
    assert_eq!(
        of(Part::BrkHeap, 90),
        (Cause::Retained, Confidence::Measured)
    );
    // Of arenas and pools some are searched, from all over.
    assert_eq!(
        of(Part::GlibcArenas, 10),
        (Cause::Retained, Confidence::Measured)
    );
}

#[test]
fn each_part_has_its_cause() {
    let cases = [
        (Part::GlibcMmapped, Cause::LiveData, Confidence::Measured),
        (Part::Jemalloc, Cause::LiveData, Confidence::Likely),
        (Part::Stacks, Cause::Stacks, Confidence::Measured),
        (
            Part::EqualMappings,
            Cause::EqualMappings,
            Confidence::Measured,
        ),
        (Part::FileCopies, Cause::FileCopies, Confidence::Measured),
        (Part::MappedFiles, Cause::MappedFiles, Confidence::Measured),
        (Part::Pinned, Cause::Pinned, Confidence::Likely),
        (Part::Other, Cause::Unknown, Confidence::None),
    ];
    for (part, expected, confidence) in cases {
        assert_eq!(
            cause(&[line(part, 100)]),
            (expected, confidence),
            "{part:?}"
        );
    }
}

#[test]
fn huge_pages_are_the_cause_where_most_of_them_was_never_written() {
    let of_zero = |zero: i64, huge: i64| {
        [LayoutLine {
            zero_bytes: Some(Bytes(zero * MIB)),
            huge_bytes: Some(Bytes(huge * MIB)),
            ..line(Part::Other, 100)
        }]
    };
    assert_eq!(cause(&of_zero(66, 100)).0, Cause::HugePages);
    let found = of(&of_zero(66, 100), Bytes(100 * MIB), |_| None);
    assert_eq!(
        (found.bytes, found.gained),
        (Bytes(66 * MIB), Bytes(100 * MIB))
    );
    assert_eq!(cause(&of_zero(20, 100)).0, Cause::Unknown);
    assert_eq!(
        cause(&of_zero(66, 0)).0,
        Cause::Unknown,
        "zeros that were written"
    );
}

#[test]
fn what_was_freed_lazily_is_neither_live_nor_unknown() {
    let of_lazy = |lazy: i64, part: Part| {
        [LayoutLine {
            lazy_free_bytes: Some(Bytes(lazy * MIB)),
            ..line(part, 100)
        }]
    };
    for part in [Part::Jemalloc, Part::Other] {
        let found = of(&of_lazy(90, part), Bytes(100 * MIB), |_| None);
        let cause = (found.cause, found.confidence, found.bytes);
        let expected = (Cause::LazilyFreed, Confidence::Measured, Bytes(90 * MIB));
        assert_eq!(cause, expected, "{part:?}");
    }
    assert_eq!(cause(&of_lazy(20, Part::Jemalloc)).0, Cause::LiveData);
}

#[test]
fn what_has_many_causes_has_none() {
    let parts = [
        line(Part::Stacks, 40),
        line(Part::FileCopies, 40),
        line(Part::Pinned, 40),
    ];
    assert_eq!(cause(&parts), (Cause::Unknown, Confidence::None));
    assert_eq!(cause(&[]), (Cause::Unknown, Confidence::None));
}

fn row(at: i64, part: Part, mib: i64) -> LayoutRow {
    LayoutRow {
        boot_ns: BootNs(at),
        upid: Upid(1),
        part: Some(part),
        rss_bytes: Bytes(mib * MIB),
        ..LayoutRow::default()
    }
}

#[test]
fn of_many_readings_a_few_are_kept_with_the_highest_and_the_last() {
    let mut readings = Readings::default();
    for at in 0..10_000 {
        let mib = if at == 4_711 { 500 } else { 100 };
        readings.take(row(at, Part::BrkHeap, mib));
        readings.take(row(at, Part::Other, 1));
    }
    let (count, kept) = readings.finish();
    assert_eq!(count, 10_000);
    assert!(kept.len() <= 34, "{}", kept.len());
    assert_eq!(kept.last().unwrap().at, BootNs(9_999));
    assert!(kept.is_sorted_by_key(|one| one.at));
    let highest = kept.iter().max_by_key(|one| one.sum()).unwrap();
    assert_eq!(
        (highest.at, highest.sum()),
        (BootNs(4_711), Bytes(501 * MIB))
    );
}

#[test]
fn a_plateau_is_distinguished_from_a_rise() {
    let of = |amounts: &[i64]| {
        let mut readings = Readings::default();
        for (at, mib) in amounts.iter().enumerate() {
            readings.take(row(at as i64, Part::BrkHeap, *mib));
        }
        has_levelled_off(&readings.finish().1)
    };
    assert!(of(&[10, 50, 100, 101, 100, 100]));
    assert!(!of(&[10, 50, 100, 110, 120, 130]));
    assert!(!of(&[100]));
    assert!(!of(&[]));
}
