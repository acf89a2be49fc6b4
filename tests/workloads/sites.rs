//! Memory that two functions touch: one keeps it, the other gives all of it back, at the same
//! addresses again and again. Others keep a little beside a buffer that goes, or write to what a fork
//! shares, or shared once. The program has no frame pointers and runs no Python.

use crate::Workload;
use crate::args::Args;
use crate::sys::{self, Mapping};
use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "sites",
    help: "--bytes B --rounds N --requests R --ways W --in-heap M --inherited I --peak P: N times B kept and B \
           given back; R times 64 kB kept before and within the life of a buffer that is given back; W times \
           a huge page kept after one and a small page were given back, and 256 kB that system calls fill; M \
           times a block of malloc kept and one freed below others in use; children write to I, which they \
           inherited; P and then half of P for a moment; then a moment of quiet",
    run,
};

/// What is seen of memory must not be its end.
const QUIET_NS: i64 = 1_500_000_000;
/// Heaps are searched more rarely.
const SEARCH_NS: i64 = 3_000_000_000;
/// A small part of the time between two rows of samples.
const MOMENT_NS: i64 = 400_000_000;
/// What the kernel hands in of a counter at once, on a machine of up to 16 CPUs.
const BATCH_PAGES: usize = 32;
/// Less than that.
const REQUEST_PAGES: usize = 16;
/// More than twice as much on each machine. What is left is handed in with the free.
const BUFFER_BATCHES: usize = 5;
const HUGE_PAGE: usize = 2 << 20;
const FILLED: usize = 256 << 10;
/// Rare enough for samples that stand for half a MiB or one.
const REQUEST_NS: i64 = 30_000_000;
/// Below what malloc makes a mapping of its own for.
const BLOCK: usize = 96 << 10;

fn run(args: &Args) -> io::Result<()> {
    let bytes = args.size("bytes", 512 << 10)?;
    let rounds = args.number("rounds", 96)?;
    let mut kept = Vec::new();
    for _ in 0..rounds {
        kept.push(grow_and_keep(bytes)?);
        grow_and_give_back(bytes)?;
        sys::sleep_ns(5_000_000);
    }
    for _ in 0..args.number("requests", 0)? {
        kept.extend(serve_request()?);
        sys::sleep_ns(REQUEST_NS);
    }
    for _ in 0..args.number("ways", 0)? {
        give_back_a_huge_page_and_a_small_one()?;
        kept.push(keep_a_huge_page()?);
        kept.push(keep_what_is_read()?);
        kept.push(keep_what_is_populated()?);
        sys::sleep_ns(2 * REQUEST_NS);
    }
    let mut live = Vec::new();
    let mut freed = Vec::new();
    for _ in 0..args.number("in-heap", 0)? {
        freed.push(grow_in_heap_and_free());
        live.push(grow_in_heap_and_keep());
        sys::sleep_ns(2_000_000);
    }
    drop(black_box(freed));
    let inherited = args.size("inherited", 0)?;
    if inherited > 0 {
        write_in_children(inherited)?;
    }
    let peak = args.size("peak", 0)?;
    if peak > 0 {
        hold_for_a_moment(peak)?;
        hold_half_for_a_moment(peak)?;
    }
    sys::sleep_ns(QUIET_NS);
    if !live.is_empty() {
        sys::sleep_ns(SEARCH_NS);
    }
    drop(black_box((kept, live)));
    Ok(())
}

/// One child writes to memory that its parent has, too, and to memory that nobody has touched, and once
/// more after a child of its own has come and gone; another one to memory that a parent left it that is
/// gone by then.
fn write_in_children(bytes: usize) -> io::Result<()> {
    let mapping = touched(bytes)?;
    let empty = Mapping::anon(bytes)?;
    empty.advise(libc::MADV_NOHUGEPAGE)?;
    empty.touch(1);
    sys::wait(sys::fork_child(|| {
        write_to_shared(&mapping, bytes);
        read_and_write_to_empty(&empty, bytes);
        sys::wait(sys::fork_child(|| Ok(()))?)?;
        write_to_shared(&mapping, bytes);
        write_to_empty_again(&empty, bytes);
        sys::sleep_ns(QUIET_NS);
        Ok(())
    })?)?;
    sys::wait(sys::fork_child(|| {
        let left = touched(bytes)?;
        let itself = std::process::id();
        sys::fork_child(|| {
            // SAFETY: getppid can't fail.
            while unsafe { libc::getppid() }.cast_unsigned() == itself {
                sys::sleep_ns(1_000_000);
            }
            write_to_own(&left, bytes);
            let fresh = grow_alone(bytes)?;
            sys::sleep_ns(QUIET_NS);
            drop(black_box(fresh));
            Ok(())
        })?;
        Ok(())
    })?)?;
    drop(mapping);
    Ok(())
}

#[inline(never)]
fn write_to_shared(mapping: &Mapping, bytes: usize) {
    write_slowly(mapping, bytes);
    black_box(mapping);
}

/// What is read first has the page of zeros until it is written to.
#[inline(never)]
fn read_and_write_to_empty(mapping: &Mapping, bytes: usize) {
    for offset in (0..bytes).step_by(sys::page_size()) {
        // SAFETY: the offset is inside the mapping.
        black_box(unsafe { mapping.start().add(offset).read_volatile() });
    }
    write_slowly(mapping, bytes);
    black_box(mapping);
}

#[inline(never)]
fn write_to_empty_again(mapping: &Mapping, bytes: usize) {
    write_slowly(mapping, bytes);
    black_box(mapping);
}

#[inline(never)]
fn write_to_own(mapping: &Mapping, bytes: usize) {
    write_slowly(mapping, bytes);
    black_box(mapping);
}

/// Samples are no rarer than what a test can tell.
fn write_slowly(mapping: &Mapping, bytes: usize) {
    for offset in (0..bytes).step_by(1 << 20) {
        mapping.touch_range(offset, offset + (1 << 20));
        sys::sleep_ns(5_000_000);
    }
}

#[inline(never)]
fn grow_alone(bytes: usize) -> io::Result<Mapping> {
    let mapping = Mapping::anon(bytes)?;
    mapping.advise(libc::MADV_NOHUGEPAGE)?;
    write_slowly(&mapping, bytes);
    Ok(black_box(mapping))
}

#[inline(never)]
fn grow_in_heap_and_keep() -> Vec<u8> {
    black_box(vec![1; BLOCK])
}

#[inline(never)]
fn grow_in_heap_and_free() -> Vec<u8> {
    black_box(vec![2; BLOCK])
}

fn serve_request() -> io::Result<[Mapping; 2]> {
    let before = keep_before_buffer()?;
    // SAFETY: sysconf has no preconditions.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1) as usize;
    let batch = BATCH_PAGES.max(2 * cpus);
    let buffer = touched((BUFFER_BATCHES * batch - 10) * sys::page_size())?;
    let within = keep_within_buffer()?;
    drop(black_box(buffer));
    Ok([before, within])
}

#[inline(never)]
fn keep_before_buffer() -> io::Result<Mapping> {
    Ok(black_box(touched(REQUEST_PAGES * sys::page_size())?))
}

#[inline(never)]
fn keep_within_buffer() -> io::Result<Mapping> {
    Ok(black_box(touched(REQUEST_PAGES * sys::page_size())?))
}

#[inline(never)]
fn keep_a_huge_page() -> io::Result<Mapping> {
    Ok(black_box(huge_page()?))
}

/// The counter is then less than what was handed in of it.
#[inline(never)]
fn give_back_a_huge_page_and_a_small_one() -> io::Result<()> {
    drop(black_box(huge_page()?));
    drop(black_box(touched(sys::page_size())?));
    Ok(())
}

#[inline(never)]
fn keep_what_is_read() -> io::Result<Mapping> {
    let mapping = Mapping::anon(FILLED)?;
    mapping.advise(libc::MADV_NOHUGEPAGE)?;
    // SAFETY: the mapping is that long, and only this function has it.
    let bytes = unsafe { std::slice::from_raw_parts_mut(mapping.start(), FILLED) };
    File::open("/dev/zero")?.read_exact(bytes)?;
    Ok(black_box(mapping))
}

#[inline(never)]
fn keep_what_is_populated() -> io::Result<Mapping> {
    let mapping = Mapping::anon(FILLED)?;
    mapping.advise(libc::MADV_NOHUGEPAGE)?;
    mapping.advise(libc::MADV_POPULATE_WRITE)?;
    Ok(black_box(mapping))
}

/// So much memory, in one page where there are huge ones.
fn huge_page() -> io::Result<Mapping> {
    let mapping = Mapping::anon(2 * HUGE_PAGE)?;
    mapping.advise(libc::MADV_HUGEPAGE)?;
    let start = mapping.start().align_offset(HUGE_PAGE);
    mapping.touch_range(start, start + HUGE_PAGE);
    Ok(mapping)
}

#[inline(never)]
fn grow_and_keep(bytes: usize) -> io::Result<Mapping> {
    // Not as its last call, which would leave it out of the stack.
    Ok(black_box(touched(bytes)?))
}

#[inline(never)]
fn grow_and_give_back(bytes: usize) -> io::Result<()> {
    drop(black_box(touched(bytes)?));
    Ok(())
}

#[inline(never)]
fn hold_for_a_moment(bytes: usize) -> io::Result<()> {
    held(bytes)?;
    black_box(bytes);
    Ok(())
}

#[inline(never)]
fn hold_half_for_a_moment(bytes: usize) -> io::Result<()> {
    held(bytes / 2)?;
    black_box(bytes);
    Ok(())
}

#[inline(never)]
fn held(bytes: usize) -> io::Result<()> {
    let mapping = touched(bytes)?;
    sys::sleep_ns(MOMENT_NS);
    drop(black_box(mapping));
    Ok(())
}

#[inline(never)]
fn touched(bytes: usize) -> io::Result<Mapping> {
    let mapping = Mapping::anon(bytes)?;
    mapping.advise(libc::MADV_NOHUGEPAGE)?;
    mapping.touch_range(0, bytes);
    Ok(black_box(mapping))
}
