//! One process with one thread: host memory, every kind once, refusals, a late recorder.

use super::library::{ArrayDescriptor, Driver, Refused, Stream};
use super::{MIB, Setting};
use crate::sys::{self, Mapping};
use std::io;

/// Host memory that the driver pins.
pub(crate) fn host(driver: &Driver, _: &Setting) -> io::Result<()> {
    driver.begin(0)?;
    let allocated = driver.host_alloc(256 * MIB)?;
    let other = driver.alloc_host(16 * MIB + 4096)?;
    let own = Mapping::anon(64 * MIB)?;
    driver.register(own.start() as u64, 64 * MIB)?;
    driver.checkpoint("pinned")?;
    driver.free_host(allocated)?;
    driver.unregister(own.start() as u64)?;
    driver.checkpoint("half")?;
    driver.free_host(other)?;
    driver.checkpoint("freed")
}

/// Every kind of memory of a device, and what the driver keeps in memory of its own.
pub(crate) fn kinds(driver: &Driver, _: &Setting) -> io::Result<()> {
    driver.begin(0)?;
    let mut direct = driver.allocs(1000, 4 << 10)?;
    direct.extend(driver.allocs(11, MIB)?);
    direct.extend(driver.allocs(10, 3 * MIB)?);
    direct.push(driver.alloc(1)?);
    direct.push(driver.alloc(101 * MIB + 1)?);
    driver.checkpoint("direct")?;
    let pitched = driver.alloc_pitch(1000, 65_536)?;
    driver.checkpoint("pitch")?;
    let managed = driver.alloc_managed(1024 * MIB)?;
    driver.checkpoint("managed")?;
    // 4096 × 4096 floats, and 256³ of four half floats.
    let flat = ArrayDescriptor {
        width: 4096,
        height: 4096,
        depth: 0,
        format: 0x20,
        channels: 1,
        flags: 0,
    };
    let cube = ArrayDescriptor {
        width: 256,
        height: 256,
        depth: 256,
        format: 0x10,
        channels: 4,
        flags: 0,
    };
    let arrays = [driver.create_array(&flat)?, driver.create_array(&cube)?];
    driver.checkpoint("arrays")?;
    let mipmapped = driver.create_mipmapped(&flat, 3)?;
    driver.checkpoint("mipmapped")?;
    let libraries = [driver.load_library()?, driver.load_library()?];
    let module = driver.load_module()?;
    let graph = driver.instantiate_graph()?;
    driver.set_stack(16 << 10)?;
    driver.checkpoint("code")?;
    driver.free_all(direct)?;
    driver.free(pitched)?;
    driver.free(managed)?;
    driver.checkpoint("freed")?;
    for array in arrays {
        driver.destroy_array(array)?;
    }
    driver.destroy_mipmapped(mipmapped)?;
    driver.unload_library(libraries[0])?;
    driver.unload_module(module)?;
    driver.destroy_graph(graph)?;
    driver.checkpoint("destroyed")
}

/// Calls that fail, between others. With a capacity of 4 GiB.
pub(crate) fn refused(driver: &Driver, _: &Setting) -> io::Result<()> {
    driver.begin(0)?;
    let weights = driver.alloc(2048 * MIB)?;
    expect(driver.alloc(2048 * MIB), 2)?;
    expect(driver.create(0, 3072 * MIB), 2)?;
    expect(driver.create(0, MIB), 1)?;
    expect(driver.alloc_async(Stream::Legacy, 2560 * MIB), 2)?;
    expect(driver.alloc(usize::MAX), 2)?;
    expect(driver.alloc(0), 1)?;
    driver.checkpoint("out_of_memory")?;
    expect(driver.free(weights + 4096), 1)?;
    expect(driver.release(7), 400)?;
    expect(driver.free_host(weights), 1)?;
    let more = driver.alloc(1024 * MIB)?;
    driver.free(weights)?;
    expect(driver.free(weights), 1)?;
    driver.checkpoint("invalid")?;
    // What a pool keeps is given back when a call would fail.
    let pooled = driver.alloc_async(Stream::PerThread, 2048 * MIB)?;
    driver.free_async(Stream::PerThread, pooled)?;
    let instead = driver.alloc(2048 * MIB)?;
    driver.checkpoint("instead_of_a_pool")?;
    driver.free_all([more, instead])?;
    driver.checkpoint("freed")
}

/// Holds a little for a moment, is refused more, and is gone.
pub(crate) fn brief(driver: &Driver, _: &Setting) -> io::Result<()> {
    driver.begin(0)?;
    driver.alloc(8 * MIB)?;
    expect(driver.alloc(1 << 50), 2)?;
    driver.checkpoint("brief")
}

/// Fails unless the driver refused with this CUresult.
pub(crate) fn expect<T>(answer: Result<T, Refused>, code: i32) -> io::Result<()> {
    match answer {
        Err(refused) if refused.code == code => Ok(()),
        Err(refused) => Err(refused.into()),
        Ok(_) => Err(io::Error::other("a call was not refused")),
    }
}

/// Holds memory before it is recorded: each byte on standard input is a step.
pub(crate) fn late(driver: &Driver, _: &Setting) -> io::Result<()> {
    driver.begin(0)?;
    let before = driver.alloc(512 * MIB)?;
    let handle = driver.create(0, 64 * MIB)?;
    let start = driver.reserve(64 * MIB)?;
    driver.map(0, start, 64 * MIB, handle)?;
    driver.checkpoint("before")?;
    sys::until_a_byte_comes()?;
    let after = driver.alloc(256 * MIB)?;
    let pooled = driver.alloc_async(Stream::Legacy, 32 * MIB)?;
    driver.checkpoint("after")?;
    driver.free(before)?;
    driver.unmap(start, 64 * MIB)?;
    driver.release(handle)?;
    driver.checkpoint("unknown_is_freed")?;
    driver.free(after)?;
    driver.free_async(Stream::Legacy, pooled)?;
    driver.checkpoint("freed")?;
    sys::until_stdin_closes()
}
