//! Memory that grows inside one process for one known cause.
//!
//! Each cause lays out `--bytes` over `--seconds` in steps, and then holds still for `--hold`
//! seconds: what an observer sees of it in counters is the same rising line each time.

use crate::args::{Args, bad};
use crate::sys::{self, Mapping};
use crate::{Workload, sys::check};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "inside",
    help: "--cause live|freed|fragmented|arenas|mmapped|equal|pinned|copies|huge|bounded|lazy --bytes B --seconds S --hold S: memory grows for one cause",
    run,
};

const THREADS: usize = 64;
/// Of two CPUs glibc makes so many arenas (8 for each), which threads share.
const ARENAS: usize = 16;
/// Each step of growth.
const STEPS: usize = 40;

/// Grows by the `step`-th part of all.
type Grow = Box<dyn FnMut(usize, usize) -> io::Result<()>>;

fn run(args: &Args) -> io::Result<()> {
    let cause = args.text("cause", "live");
    let bytes = args.size("bytes", 192 << 20)?;
    let (seconds, hold) = (args.number("seconds", 8)?, args.number("hold", 7)?);
    args.all_used()?;
    let mut grow: Grow = match cause.as_str() {
        "live" => Box::new(live),
        "freed" => Box::new(freed()),
        "fragmented" => Box::new(fragmented()),
        "arenas" => return arenas(bytes, seconds, hold),
        "mmapped" => Box::new(mmapped),
        "equal" => Box::new(equal),
        "pinned" => Box::new(pinned),
        "copies" => Box::new(copies(bytes)?),
        "huge" => Box::new(huge(bytes)?),
        "bounded" => Box::new(bounded()),
        "lazy" => Box::new(lazy),
        other => return Err(bad(format!("there is no cause {other:?}"))),
    };
    for step in 0..STEPS {
        grow(step, bytes / STEPS)?;
        sys::sleep_ns(seconds.cast_signed() * 1_000_000_000 / STEPS as i64);
    }
    say_grown()?;
    sys::sleep_ns(hold.cast_signed() * 1_000_000_000);
    Ok(())
}

fn say_grown() -> io::Result<()> {
    sys::say(&format!("{{\"grown\":{}}}", std::process::id()))
}

/// A block of malloc, every byte written.
fn block(length: usize, fill: u8) -> *mut u8 {
    // SAFETY: the block is written within its length, and only where there is one.
    unsafe {
        let block: *mut u8 = libc::malloc(length).cast();
        if !block.is_null() {
            ptr::write_bytes(block, fill, length);
        }
        // Else a compiler leaves out a block that nobody reads.
        std::hint::black_box(block)
    }
}

fn free(block: *mut u8) {
    // SAFETY: each block is from `block` and given back once.
    unsafe { libc::free(block.cast()) }
}

/// Lengths of small blocks, as a program has them: 24 to 1,000 bytes.
fn lengths(step: usize) -> impl Iterator<Item = usize> {
    (0..).map(move |place| 24 + (place * 7_919 + step * 31) % 976)
}

/// Small blocks that nobody gives back.
fn live(step: usize, bytes: usize) -> io::Result<()> {
    let mut left = bytes;
    for length in lengths(step) {
        if left < length {
            return Ok(());
        }
        block(length, 0x5a);
        left -= length;
    }
    Ok(())
}

/// Small blocks of which all but a few are given back: the few, at the end of each step, keep the
/// heap from shrinking.
fn freed() -> impl FnMut(usize, usize) -> io::Result<()> {
    |step, bytes| {
        // What was free is taken again first, so that the heap grows each time.
        let mut blocks = Vec::new();
        let mut left = bytes * (step + 1);
        for length in lengths(step) {
            if left < length {
                break;
            }
            blocks.push(block(length, 0x5a));
            left -= length;
        }
        block(64, 0x5a);
        blocks.into_iter().for_each(free);
        Ok(())
    }
}

/// Small blocks of which each fifth stays in the end: what is free lies between them, in pieces.
fn fragmented() -> impl FnMut(usize, usize) -> io::Result<()> {
    let mut blocks = Vec::new();
    move |step, bytes| {
        let mut left = bytes;
        for length in lengths(step) {
            if left < length {
                break;
            }
            blocks.push(block(length, 0x5a));
            left -= length;
        }
        if step + 1 == STEPS {
            let last = blocks.len() - 1;
            let places = blocks.drain(..).enumerate();
            let freed = places.filter(|(place, _)| place % 5 != 0 && *place != last);
            freed.for_each(|(_, block)| free(block));
        }
        Ok(())
    }
}

/// Many threads allocate one after the other, each from an arena of its own as far as glibc makes
/// them, and give everything back but the last block: with few arenas the next one takes it again.
fn arenas(bytes: usize, seconds: u64, hold: u64) -> io::Result<()> {
    let each = bytes / ARENAS;
    let turn = seconds.cast_signed() * 1_000_000_000 / THREADS as i64;
    let all = THREADS as i64 * turn + hold.cast_signed() * 1_000_000_000;
    let (has_grown, grown) = std::sync::mpsc::channel();
    let threads = (0..THREADS).map(|thread| {
        let has_grown = has_grown.clone();
        // A larger stack can be a huge page.
        let small = std::thread::Builder::new().stack_size(256 << 10);
        small.spawn(move || {
            // It has its arena from here on.
            let first = block(64, 0x5a);
            sys::sleep_ns(thread as i64 * turn);
            let mut blocks = Vec::new();
            let mut left = each;
            for length in lengths(thread) {
                if left < length {
                    break;
                }
                blocks.push(block(length, 0x5a));
                left -= length;
            }
            let kept = block(64, 0x5a);
            blocks.into_iter().for_each(free);
            drop(has_grown);
            sys::sleep_ns(all - thread as i64 * turn);
            free(kept);
            free(first);
        })
    });
    let threads = threads.collect::<io::Result<Vec<_>>>()?;
    drop(has_grown);
    // No thread says anything: they have all grown when the last one holds it no more.
    let _: Result<(), _> = grown.recv();
    say_grown()?;
    for thread in threads {
        thread
            .join()
            .map_err(|_| io::Error::other("a thread panicked"))?;
    }
    Ok(())
}

/// Blocks that malloc maps one by one.
fn mmapped(_: usize, bytes: usize) -> io::Result<()> {
    block(bytes / 2, 0x5a);
    block(bytes - bytes / 2 - 8192, 0x5a);
    Ok(())
}

/// Mappings of 4,160 KiB, each with a page that nobody may touch, as a driver's buffers have it.
fn equal(_: usize, bytes: usize) -> io::Result<()> {
    const LENGTH: usize = 4_160 << 10;
    for _ in 0..bytes.div_ceil(LENGTH) {
        let memory = Mapping::anon(LENGTH + sys::page_size())?;
        fill(&memory, LENGTH);
        // SAFETY: the last page of the mapping, to which nothing refers.
        let last = unsafe { memory.start().add(LENGTH) };
        // SAFETY: the same page.
        check(unsafe { libc::mprotect(last.cast(), sys::page_size(), libc::PROT_NONE) })?;
        std::mem::forget(memory);
    }
    Ok(())
}

/// Writes each byte.
fn fill(memory: &Mapping, length: usize) {
    // SAFETY: inside of the mapping.
    unsafe { ptr::write_bytes(memory.start(), 0x5a, length) }
}

/// Shared anonymous memory, resident throughout as a driver pins it, of which a part is used: the
/// rest is what was added to come to a power of two.
fn pinned(_: usize, bytes: usize) -> io::Result<()> {
    let length = bytes.next_power_of_two();
    let memory = Mapping::shared(length)?;
    memory.touch(length);
    // SAFETY: inside of the mapping: what `touch` wrote is no data.
    unsafe { ptr::write_bytes(memory.start(), 0, length) };
    fill(&memory, length * 9 / 16);
    std::mem::forget(memory);
    Ok(())
}

/// Private pages of a file, each of which is written to.
fn copies(bytes: usize) -> io::Result<impl FnMut(usize, usize) -> io::Result<()>> {
    // SAFETY: the name is a C string.
    let fd = check(unsafe { libc::open(c"/tmp".as_ptr(), libc::O_TMPFILE | libc::O_RDWR, 0o600) })?;
    // SAFETY: the descriptor was opened above and is nobody else's.
    let mut file = unsafe { File::from_raw_fd(fd) };
    let part = vec![0x11u8; 1 << 20];
    for _ in 0..bytes.div_ceil(part.len()) {
        file.write_all(&part)?;
    }
    let memory = Mapping::private_file(bytes, file.as_raw_fd())?;
    Ok(move |step: usize, part: usize| {
        memory.touch_range(step * part, (step + 1) * part);
        Ok(())
    })
}

/// Huge pages of which each third is written to at one place.
fn huge(bytes: usize) -> io::Result<impl FnMut(usize, usize) -> io::Result<()>> {
    const HUGE: usize = 2 << 20;
    let memory = Mapping::anon(bytes + HUGE)?;
    memory.advise(libc::MADV_HUGEPAGE)?;
    let first = memory.start().align_offset(HUGE);
    Ok(move |step: usize, part: usize| {
        let (from, to) = ((step * part).div_ceil(HUGE) * HUGE, (step + 1) * part);
        for page in (from..to).step_by(HUGE) {
            let used = first + page;
            // SAFETY: a third of a huge page inside of the mapping.
            unsafe { ptr::write_bytes(memory.start().add(used), 0x5a, HUGE / 3) };
        }
        Ok(())
    })
}

/// Memory that is written and then freed with MADV_FREE, as jemalloc and Go do.
fn lazy(_: usize, bytes: usize) -> io::Result<()> {
    let memory = Mapping::anon(bytes)?;
    // The kernel splits huge pages when it likes.
    memory.advise(libc::MADV_NOHUGEPAGE)?;
    fill(&memory, bytes);
    memory.advise(libc::MADV_FREE)?;
    std::mem::forget(memory);
    Ok(())
}

/// A cache that is full halfway: for each block that comes one goes.
fn bounded() -> impl FnMut(usize, usize) -> io::Result<()> {
    let mut steps: std::collections::VecDeque<Vec<*mut u8>> = std::collections::VecDeque::new();
    move |step, bytes| {
        if steps.len() == STEPS / 2
            && let Some(oldest) = steps.pop_front()
        {
            oldest.into_iter().for_each(free);
        }
        let mut left = bytes * 2;
        let mut blocks = Vec::new();
        // The same lengths each time: what was freed fits.
        for length in lengths(step % (STEPS / 2)) {
            if left < length {
                break;
            }
            blocks.push(block(length, 0x5a));
            left -= length;
        }
        steps.push_back(blocks);
        Ok(())
    }
}
