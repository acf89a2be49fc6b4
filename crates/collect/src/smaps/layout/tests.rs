//! The reader on this process, whose memory is known.

use super::super::budget::Stop;
use super::super::tests::subject;
use super::blocks::Blocks;
use super::glibc::{ArenaHeap, HEAP_MAX, Walk, Walked, mapped_block};
use super::heaps::Heaps;
use super::reading::{self, Files};
use super::target::Target;
use memtrace_model::{LayoutPart, LayoutRow, Record};
use proptest::prelude::*;
use std::fs::File;
use std::path::Path;

const MIB: usize = 1 << 20;

fn page() -> usize {
    rustix::param::page_size()
}

fn target() -> Target {
    let open = |name: &str| File::open(format!("/proc/self/{name}")).unwrap();
    Target::new(open("mem"), open("pagemap"), page() as u64)
}

/// What is read of this process.
fn own() -> Vec<LayoutRow> {
    let stop = Stop::default();
    let files = Files {
        root: Path::new("/proc"),
        flags: None,
        page_size: page() as u64,
    };
    let mut heaps = Heaps::default();
    let read = reading::read(
        subject(std::process::id()),
        &files,
        (&mut heaps, true),
        &stop,
    );
    let rows = read.unwrap().into_records();
    let rows = rows.map(|row| match row {
        Record::Layout(row) => *row,
        other => panic!("{other:?}"),
    });
    rows.collect()
}

fn part(rows: &[LayoutRow], part: LayoutPart) -> Option<&LayoutRow> {
    rows.iter().find(|row| row.part == Some(part))
}

fn status(key: &str) -> i64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with(key)).unwrap();
    let kib = line.split_whitespace().nth(1).unwrap();
    kib.parse::<i64>().unwrap() * 1024
}

/// Anonymous memory of the kernel's making, with its address.
fn mapped(length: usize) -> *mut u8 {
    // SAFETY: a new mapping at a place of the kernel's choice.
    let start = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            length,
            rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
            rustix::mm::MapFlags::PRIVATE,
        )
    };
    start.unwrap().cast()
}

fn write(at: *mut u8, words: &[u64]) {
    for (place, word) in words.iter().enumerate() {
        // SAFETY: callers stay within memory that they mapped.
        unsafe { at.cast::<u64>().add(place).write(*word) };
    }
}

#[test]
fn the_parts_add_up_to_what_the_kernel_counts() {
    let block = std::hint::black_box(vec![7u8; 40 * MIB]);
    let rows = own();
    let anonymous = rows.iter().filter(|row| row.part.unwrap().is_anonymous());
    let sum: i64 = anonymous.map(|row| row.rss_bytes.0).sum();
    let counted = status("RssAnon");
    assert!((sum - counted).abs() <= counted / 100, "{sum} of {counted}");
    let mapped = part(&rows, LayoutPart::GlibcMmapped).unwrap();
    assert!(mapped.rss_bytes.0 >= 40 * MIB as i64, "{mapped:?}");
    drop(block);
}

#[test]
fn each_part_is_reported_by_what_stands_in_it() {
    let (done, ready) = std::sync::mpsc::channel::<()>();
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let done = done.clone();
            let (tell, wait) = std::sync::mpsc::channel::<()>();
            let thread = std::thread::spawn(move || {
                let block = vec![vec![7u8; 100]; 20_000];
                done.send(()).unwrap();
                let _ = wait.recv();
                drop(block);
            });
            (thread, tell)
        })
        .collect();
    // A page that nobody may touch is before each, so that neither they nor others are one mapping.
    const EQUAL: usize = 12;
    const LENGTH: usize = 256 << 10;
    let start = mapped(EQUAL * LENGTH);
    for place in 0..EQUAL {
        // SAFETY: a page and the rest of a part of the mapping that was made above.
        unsafe {
            let guard = start.add(place * LENGTH);
            rustix::mm::mprotect(guard.cast(), page(), rustix::mm::MprotectFlags::empty()).unwrap();
            std::ptr::write_bytes(guard.add(page()), 7, LENGTH - page());
        }
    }
    for _ in &threads {
        ready.recv().unwrap();
    }
    let rows = own();
    let arenas = part(&rows, LayoutPart::GlibcArenas).unwrap();
    assert!(arenas.item_count >= 2, "{arenas:?}");
    assert!(
        arenas.searched_bytes.unwrap().0 * 10 >= arenas.rss_bytes.0 * 9,
        "{arenas:?}"
    );
    assert!(
        arenas.free_bytes.unwrap().0 * 4 < arenas.searched_bytes.unwrap().0,
        "{arenas:?}"
    );
    let stacks = part(&rows, LayoutPart::Stacks).unwrap();
    assert!(stacks.item_count >= 4, "{stacks:?}");
    let group = part(&rows, LayoutPart::EqualMappings).unwrap();
    // The last one can be one with what lies above it.
    let count = EQUAL as i64;
    assert!((count - 1..=count).contains(&group.item_count), "{group:?}");
    assert_eq!(group.unit_bytes.unwrap().0, (LENGTH - page()) as i64);
    for (thread, tell) in threads {
        drop(tell);
        thread.join().unwrap();
    }
}

#[test]
fn what_is_freed_in_an_arena_shows_as_free() {
    let (tell, wait) = std::sync::mpsc::channel::<()>();
    let (done, freed) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let blocks = vec![vec![7u8; 700]; 30_000];
        let last = std::hint::black_box(vec![7u8; 700]);
        drop(blocks);
        done.send(()).unwrap();
        let _ = wait.recv();
        drop(last);
    });
    freed.recv().unwrap();
    let rows = own();
    let arenas = part(&rows, LayoutPart::GlibcArenas).unwrap();
    let [searched, free, pages] = [
        arenas.searched_bytes,
        arenas.free_bytes,
        arenas.free_page_bytes,
    ]
    .map(|bytes| bytes.unwrap().0);
    assert!(searched > 15 * MIB as i64, "{arenas:?}");
    assert!(
        free * 10 > searched * 9 && pages * 10 > searched * 9,
        "{arenas:?}"
    );
    drop(tell);
    thread.join().unwrap();
}

/// What lies behind the first blocks of that heap.
const BLOCK: u64 = 0x2000;

/// A heap that is written by hand: a block in use, one free, and others in use; then the top, as long
/// as those.
fn heap() -> (*mut u8, u64) {
    let length = 64 * page();
    let start = mapped(length);
    // SAFETY: inside of the mapping.
    unsafe { std::ptr::write_bytes(start, 0, length) };
    let at = |place: usize| {
        // SAFETY: inside of the mapping.
        unsafe { start.add(place) }
    };
    write(at(0), &[0, 0x1000 | 1]);
    write(at(0x1000), &[0, 0x4000 | 1]);
    write(at(0x5000), &[0x4000, 0x1000]);
    for place in (0x6000..length).step_by(BLOCK as usize) {
        write(at(place), &[0, BLOCK | 1]);
    }
    (start, start as u64 + length as u64)
}

#[test]
fn a_chain_of_blocks_tells_what_is_free() {
    let (start, end) = heap();
    let mut walk = Walk::new(start as u64, end, true);
    let mut left = u64::MAX;
    assert_eq!(walk.go_on(&mut target(), &mut left), Walked::Whole);
    assert_eq!(walk.found.searched, end - start as u64);
    assert_eq!(walk.found.free, 0x4000 + BLOCK);
    assert_eq!(walk.found.pages, 0x3000 + BLOCK - page() as u64);
}

#[test]
fn a_walk_that_was_cut_short_is_taken_up_again() {
    let (start, end) = heap();
    let mut whole = Walk::new(start as u64, end, true);
    whole.go_on(&mut target(), &mut u64::MAX.clone());
    let mut walk = Walk::new(start as u64, end, true);
    let mut turns = 0;
    loop {
        turns += 1;
        let mut left = 1;
        match walk.go_on(&mut target(), &mut left) {
            Walked::Whole => break,
            Walked::Partly => assert!(walk.is_of(start as u64, end)),
            Walked::Broken => panic!("{walk:?}"),
        }
    }
    assert!(turns > 1);
    assert_eq!(walk.found, whole.found);
}

#[test]
fn headers_that_contradict_each_other_break_the_chain() {
    let bad: [(usize, [u64; 2]); 6] = [
        // No multiple of 16, a mapping of its own, beyond the end, of another arena, nothing.
        (0x1000, [0, 0x4008 | 1]),
        (0x1000, [0, 0x4000 | 3]),
        (0x1000, [0, 0x4000_0000 | 1]),
        (0x1000, [0, 0x4000 | 5]),
        (0x1000, [0, 0]),
        // The length of the free block before, which it repeats, is another.
        (0x5000, [0x3000, 0x1000]),
    ];
    for (place, words) in bad {
        let (start, end) = heap();
        // SAFETY: inside of the mapping.
        write(unsafe { start.add(place) }, &words);
        let mut walk = Walk::new(start as u64, end, true);
        let walked = walk.go_on(&mut target(), &mut u64::MAX.clone());
        assert_eq!(walked, Walked::Broken, "{place:x} {words:x?}");
    }
}

#[test]
fn memory_that_is_not_there_is_not_made() {
    let length = 64 * page();
    let start = mapped(length);
    let mut target = target();
    let mut bytes = [1; 16];
    assert!(!target.read(start as u64, &mut bytes));
    assert!(!target.page(start as u64 / page() as u64).is_present());
    assert_eq!(bytes, [1; 16]);
    assert_eq!(target.peek::<8>(8), None, "an address of nobody");
}

#[test]
fn a_block_that_is_a_mapping_of_its_own_has_whole_pages() {
    let of = |before: u64, size: u64, room: u64| {
        let words = [before.to_ne_bytes(), size.to_ne_bytes()].concat();
        mapped_block(&words, room, 4096)
    };
    assert_eq!(of(0, 0x21000 | 2, 0x30000), Some(0x21000));
    assert_eq!(of(0, 0x21000 | 2, 0x20000), None, "longer than the mapping");
    assert_eq!(of(0, 0x21010 | 2, 0x30000), None);
    assert_eq!(of(0, 0x21000 | 3, 0x30000), None);
    assert_eq!(of(16, 0x21000 | 2, 0x30000), None);
    assert_eq!(of(0, 2, 0x30000), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_memory_ends_every_walk(bytes in proptest::collection::vec(any::<u8>(), 4096)) {
        let length = 4 * page();
        let start = mapped(length);
        for piece in 0..length / bytes.len() {
            // SAFETY: inside of the mapping.
            unsafe {
                start
                    .add(piece * bytes.len())
                    .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            }
        }
        let end = start as u64 + length as u64;
        for is_main in [true, false] {
            let mut walk = Walk::new(start as u64, end, is_main);
            let mut left = u64::MAX;
            let walked = walk.go_on(&mut target(), &mut left);
            prop_assert!(walked == Walked::Broken || walk.found.searched <= length as u64);
        }
        let _ = ArenaHeap::at(start as u64 / HEAP_MAX * HEAP_MAX, end, &mut target());
        // SAFETY: the mapping that was made above.
        unsafe { rustix::mm::munmap(start.cast(), length) }.unwrap();
    }
}

#[test]
fn an_address_in_a_block_that_was_freed_is_free_and_those_beside_it_are_not() {
    // A thread of its own has a heap of its own, in which looking at it changes nothing.
    let (send, addresses) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let blocks: Vec<Vec<u8>> = (0..64).map(|number| vec![number; 96 << 10]).collect();
        let address = |block: &Vec<u8>| block.as_ptr() as u64 + 5_000;
        let all: Vec<u64> = blocks.iter().map(address).collect();
        let kept: Vec<Vec<u8>> = blocks.into_iter().skip(1).step_by(2).collect();
        let live: Vec<u64> = kept.iter().map(address).collect();
        send.send((all, live)).unwrap();
        ended.recv().unwrap();
        drop(kept);
    });
    let (mut asked, live) = addresses.recv().unwrap();
    asked.sort_unstable();
    let open = |name: &str| File::open(format!("/proc/self/{name}")).unwrap();
    let mut blocks = Blocks::default();
    let mut found = Vec::new();
    // In several pieces.
    loop {
        let (mut left, page_size) = (1_024, page() as u64);
        let files = (open("mem"), open("pagemap"));
        let (some, is_done) = blocks.search(files, page_size, None, &asked, &mut left);
        found.extend(some);
        if is_done {
            break;
        }
    }
    let expected = asked.iter().map(|one| (*one, !live.contains(one)));
    assert_eq!(found, expected.collect::<Vec<_>>());
    end.send(()).unwrap();
    thread.join().unwrap();
}
