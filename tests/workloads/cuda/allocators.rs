//! Allocators of large programs, in the order of their own calls.

use super::library::{Answer, Driver};
use super::{MIB, Setting};
use std::io;

/// torch's caching allocator: segments of 2 MiB, 20 MiB, and larger ones of their own size.
pub(crate) fn torch(driver: &Driver, _: &Setting) -> io::Result<()> {
    driver.begin(0)?;
    let mut libraries = vec![driver.load_library()?, driver.load_library()?];
    driver.checkpoint("context")?;
    let small = driver.allocs(10, 2 * MIB)?;
    let medium = driver.allocs(5, 20 * MIB)?;
    let weights = driver.allocs(8, 512 * MIB)?;
    let odd = driver.alloc(1234 * MIB + 512)?;
    libraries.push(driver.load_library()?);
    driver.checkpoint("loaded")?;
    driver.free(odd)?;
    driver.free_all(weights.iter().step_by(2).copied())?;
    let activations = driver.alloc(3000 * MIB)?;
    driver.checkpoint("trained")?;
    // torch.cuda.empty_cache()
    driver.free_all(medium)?;
    driver.free_all(weights.into_iter().skip(1).step_by(2))?;
    driver.free(activations)?;
    driver.checkpoint("emptied")?;
    driver.free_all(small)?;
    driver.primary_release(0)?;
    driver.checkpoint("released")
}

/// One of torch's expandable segments.
struct Segment {
    start: u64,
    piece: usize,
    reserved: usize,
    handles: Vec<u64>,
}

impl Segment {
    fn new(driver: &Driver, piece: usize, reserved: usize) -> Answer<Self> {
        Ok(Self {
            start: driver.reserve(reserved)?,
            piece,
            reserved,
            handles: Vec::new(),
        })
    }

    fn grow(&mut self, driver: &Driver, count: usize) -> Answer<()> {
        let first = self.handles.len();
        for _ in 0..count {
            self.handles.push(driver.create(0, self.piece)?);
        }
        for (index, handle) in self.handles.iter().enumerate().skip(first) {
            driver.map(0, self.at(index), self.piece, *handle)?;
        }
        Ok(())
    }

    fn shrink(&mut self, driver: &Driver, count: usize) -> Answer<()> {
        for _ in 0..count {
            if let Some(handle) = self.handles.pop() {
                driver.unmap(self.at(self.handles.len()), self.piece)?;
                driver.release(handle)?;
            }
        }
        Ok(())
    }

    fn at(&self, index: usize) -> u64 {
        self.start + (index * self.piece) as u64
    }
}

/// torch with expandable_segments:True.
pub(crate) fn expandable(driver: &Driver, _: &Setting) -> io::Result<()> {
    driver.begin(0)?;
    let mut small = Segment::new(driver, 2 * MIB, 90 << 30)?;
    let mut large = Segment::new(driver, 20 * MIB, 90 << 30)?;
    small.grow(driver, 7)?;
    large.grow(driver, 100)?;
    driver.checkpoint("grown")?;
    large.shrink(driver, 60)?;
    driver.checkpoint("shrunk")?;
    large.grow(driver, 10)?;
    driver.checkpoint("grown_again")?;
    for segment in [&mut small, &mut large] {
        segment.shrink(driver, segment.handles.len())?;
        driver.free_addresses(segment.start, segment.reserved)?;
    }
    driver.checkpoint("freed")
}

/// vLLM's cumem_allocator.cpp: one handle and one range of addresses for each allocation.
struct Sleeping {
    start: u64,
    bytes: usize,
    handle: u64,
}

impl Sleeping {
    fn create_and_map(&mut self, driver: &Driver) -> Answer<()> {
        self.handle = driver.create(0, self.bytes)?;
        driver.map(0, self.start, self.bytes, self.handle)
    }

    fn unmap_and_release(&self, driver: &Driver) -> Answer<()> {
        driver.unmap(self.start, self.bytes)?;
        driver.release(self.handle)
    }
}

/// vLLM's sleep mode: what sleeps gives its memory back and keeps its addresses.
pub(crate) fn sleep(driver: &Driver, _: &Setting) -> io::Result<()> {
    driver.begin(0)?;
    // What is no part of the pool stays while it sleeps: a workspace, and graphs.
    let workspace = driver.alloc(32 * MIB)?;
    let graphs = [driver.instantiate_graph()?, driver.instantiate_graph()?];
    let mut pool = Vec::new();
    for bytes in [vec![512 * MIB; 16], vec![8192 * MIB], vec![34 * MIB; 3]].concat() {
        let start = driver.reserve(bytes)?;
        let mut one = Sleeping {
            start,
            bytes,
            handle: 0,
        };
        one.create_and_map(driver)?;
        pool.push(one);
    }
    driver.checkpoint("awake")?;
    let backup = driver.host_alloc(64 * MIB)?;
    for one in &pool {
        one.unmap_and_release(driver)?;
    }
    driver.checkpoint("asleep")?;
    for one in &mut pool {
        one.create_and_map(driver)?;
    }
    driver.free_host(backup)?;
    driver.checkpoint("awake_again")?;
    for one in &pool {
        one.unmap_and_release(driver)?;
        driver.free_addresses(one.start, one.bytes)?;
    }
    for graph in graphs {
        driver.destroy_graph(graph)?;
    }
    driver.free(workspace)?;
    driver.checkpoint("freed")
}

/// NCCL's buffers: created, mapped and exported; the handle of each second one is released at once.
pub(crate) fn nccl(driver: &Driver, _: &Setting) -> io::Result<()> {
    const COUNT: usize = 194;
    const BYTES: usize = 2 * MIB;
    driver.begin(0)?;
    let mut buffers = Vec::new();
    for index in 0..COUNT {
        let handle = driver.create(0, BYTES)?;
        let start = driver.reserve(BYTES)?;
        driver.map(0, start, BYTES, handle)?;
        let fd = driver.export(handle)?;
        // SAFETY: the descriptor was just opened for this process, and is used nowhere else.
        unsafe { libc::close(fd) };
        let is_released = index % 2 == 1;
        if is_released {
            driver.release(handle)?;
        }
        buffers.push((start, is_released));
    }
    driver.checkpoint("communicator")?;
    let (first, second) = buffers.split_at(COUNT / 2);
    for half in [first, second] {
        for (start, is_released) in half {
            // ncclCuMemFree: the handle by its address, and back.
            let handle = driver.retain(*start)?;
            driver.release(handle)?;
            driver.unmap(*start, BYTES)?;
            if !is_released {
                driver.release(handle)?;
            }
            driver.free_addresses(*start, BYTES)?;
        }
        driver.checkpoint("destroyed")?;
    }
    Ok(())
}
