//! Memory that two functions touch: one keeps it, the other gives all of it back, at the same
//! addresses again and again. The program has no frame pointers and runs no Python.

use crate::Workload;
use crate::args::Args;
use crate::sys::{self, Mapping};
use std::hint::black_box;
use std::io;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "sites",
    help: "--bytes B --rounds N --in-heap M: N times B kept and B given back; M times a block of malloc \
           kept and one freed below others in use; then a moment of quiet",
    run,
};

/// What is seen of memory must not be its end.
const QUIET_NS: i64 = 1_500_000_000;
/// Heaps are searched more rarely.
const SEARCH_NS: i64 = 3_000_000_000;
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
    let mut live = Vec::new();
    let mut freed = Vec::new();
    for _ in 0..args.number("in-heap", 0)? {
        freed.push(grow_in_heap_and_free());
        live.push(grow_in_heap_and_keep());
        sys::sleep_ns(2_000_000);
    }
    drop(black_box(freed));
    sys::sleep_ns(QUIET_NS);
    if !live.is_empty() {
        sys::sleep_ns(SEARCH_NS);
    }
    drop(black_box((kept, live)));
    Ok(())
}

#[inline(never)]
fn grow_in_heap_and_keep() -> Vec<u8> {
    black_box(vec![1; BLOCK])
}

#[inline(never)]
fn grow_in_heap_and_free() -> Vec<u8> {
    black_box(vec![2; BLOCK])
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
fn touched(bytes: usize) -> io::Result<Mapping> {
    let mapping = Mapping::anon(bytes)?;
    mapping.advise(libc::MADV_NOHUGEPAGE)?;
    mapping.touch_range(0, bytes);
    Ok(black_box(mapping))
}
