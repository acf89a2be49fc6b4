//! Several threads, devices and contexts.

use super::library::{Driver, Stream};
use super::{MIB, Setting};
use crate::sys;
use std::io;
use std::sync::mpsc;

const STREAMS: [Stream; 2] = [Stream::Legacy, Stream::PerThread];

/// Runs one thread for each value, with a context current, and gives what they give.
fn each<T: Send, V: Copy + Send>(
    driver: &Driver,
    context: u64,
    values: &[V],
    body: impl Fn(V) -> io::Result<T> + Copy + Send,
) -> io::Result<Vec<T>> {
    std::thread::scope(|scope| {
        let threads = values.iter().map(|value| {
            let value = *value;
            scope.spawn(move || {
                driver.set_current(context)?;
                body(value)
            })
        });
        let threads: Vec<_> = threads.collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .map(|result| result.unwrap_or_else(|_| Err(io::Error::other("a thread failed"))))
            .collect()
    })
}

/// Memory of pools, by threads of which half have a default stream of their own.
pub(crate) fn pools(driver: &Driver, _: &Setting) -> io::Result<()> {
    let context = driver.begin(0)?;
    let held = each(driver, context, &[0, 1, 2, 3], |thread: usize| {
        let stream = STREAMS[thread % 2];
        let mut held = Vec::new();
        for round in 0..50 {
            held.push(driver.alloc_async(stream, (round + 1) * MIB)?);
            if round % 3 == 0
                && let Some(last) = held.pop()
            {
                driver.free_async(stream, last)?;
            }
        }
        Ok(held)
    })?;
    driver.checkpoint("threads")?;
    // Freed by another thread, under the other name, and also by cuMemFree.
    for (thread, held) in held.into_iter().enumerate() {
        for (place, address) in held.into_iter().enumerate() {
            match place % 4 {
                0 => driver.free(address)?,
                _ => driver.free_async(STREAMS[(thread + 1) % 2], address)?,
            }
        }
    }
    driver.checkpoint("freed")?;
    driver.synchronize()?;
    let pool = driver.create_pool(0)?;
    driver.keep_in_pool(pool, 1 << 30)?;
    let first = driver.alloc_from_pool(Stream::Legacy, pool, 100 * MIB)?;
    let second = driver.alloc_from_pool(Stream::PerThread, pool, 300 * MIB)?;
    driver.checkpoint("own_pool")?;
    driver.free_async(Stream::Legacy, second)?;
    driver.trim_pool(pool)?;
    driver.checkpoint("trimmed")?;
    driver.free_async(Stream::Legacy, first)?;
    driver.destroy_pool(pool)?;
    driver.checkpoint("destroyed")
}

/// Two devices: a thread for each, and one that goes to and fro.
pub(crate) fn devices(driver: &Driver, _: &Setting) -> io::Result<()> {
    let contexts = [driver.begin(0)?, driver.begin(1)?];
    // Device 1 is current in this thread; the others begin with none.
    let own = driver.alloc(100 * MIB)?;
    let on = |device: usize| {
        each(driver, contexts[device], &[device], |device| {
            let bytes = (device + 1) * 256 * MIB;
            Ok((
                driver.alloc(bytes)?,
                driver.host_alloc((device + 1) * 4 * MIB)?,
            ))
        })
    };
    let held = [on(0)?, on(1)?].concat();
    driver.checkpoint("threads")?;
    driver.push(contexts[0])?;
    let pushed = driver.alloc(10 * MIB)?;
    driver.push(contexts[1])?;
    let pushed_twice = driver.alloc(20 * MIB)?;
    driver.pop()?;
    let popped = driver.alloc(40 * MIB)?;
    driver.pop()?;
    let back = driver.alloc(80 * MIB)?;
    driver.checkpoint("pushed")?;
    // Memory of a device is created whatever is current.
    let handle = driver.create(0, 64 * MIB)?;
    driver.set_current(contexts[0])?;
    let pooled = driver.alloc_async(Stream::Legacy, 32 * MIB)?;
    driver.checkpoint("created")?;
    // And freed, too.
    driver.set_current(contexts[1])?;
    driver.free_all([own, pushed, pushed_twice, popped, back])?;
    driver.free_async(Stream::Legacy, pooled)?;
    driver.release(handle)?;
    driver.checkpoint("freed")?;
    for (address, pinned) in held {
        driver.free(address)?;
        driver.free_host(pinned)?;
    }
    driver.checkpoint("all_freed")
}

/// Contexts that are made, nested and ended with what is in them.
pub(crate) fn contexts(driver: &Driver, _: &Setting) -> io::Result<()> {
    let primary = driver.begin(0)?;
    let again = driver.begin(0)?;
    if primary != again {
        return Err(io::Error::other("there are two primary contexts"));
    }
    let kept = driver.alloc(128 * MIB)?;
    let second = driver.create_context(0)?;
    driver.alloc(256 * MIB)?;
    driver.host_alloc(8 * MIB)?;
    let vmm = driver.create(0, 32 * MIB)?;
    driver.checkpoint("two")?;
    driver.destroy_context(second)?;
    driver.checkpoint("destroyed")?;
    driver.set_current(primary)?;
    let more = driver.alloc(64 * MIB)?;
    driver.primary_release(0)?;
    driver.checkpoint("released_once")?;
    driver.free_all([kept, more])?;
    driver.alloc(512 * MIB)?;
    driver.primary_release(0)?;
    driver.checkpoint("released_twice")?;
    driver.begin(0)?;
    driver.alloc(16 * MIB)?;
    driver.checkpoint("begun_again")?;
    driver.primary_reset(0)?;
    driver.release(vmm)?;
    driver.checkpoint("reset")
}

/// Address that another thread gets while the call that freed it has not returned.
pub(crate) fn reuse(driver: &Driver, setting: &Setting) -> io::Result<()> {
    const LATE_NS: i64 = 30_000_000;
    let context = driver.begin(0)?;
    let mut address = driver.alloc(64 * MIB)?;
    driver.checkpoint("first")?;
    for _ in 0..setting.count.min(10) {
        let (say, hear) = mpsc::channel();
        let freed = address;
        address = std::thread::scope(|scope| {
            let freeing = scope.spawn(move || -> io::Result<()> {
                driver.set_current(context)?;
                driver.linger(LATE_NS)?;
                let _ = say.send(());
                driver.free(freed)?;
                Ok(())
            });
            let _ = hear.recv();
            sys::sleep_ns(LATE_NS / 3);
            let next = driver.alloc(64 * MIB)?;
            let joined = freeing.join();
            joined.unwrap_or_else(|_| Err(io::Error::other("a thread failed")))?;
            Ok::<_, io::Error>(next)
        })?;
        if address != freed {
            return Err(io::Error::other("the address was not used again"));
        }
    }
    driver.checkpoint("reused")?;
    driver.free(address)?;
    driver.checkpoint("freed")
}

/// As many calls as there is time for: small allocations from a pool that live for a moment.
pub(crate) fn storm(driver: &Driver, setting: &Setting) -> io::Result<()> {
    driver.begin(0)?;
    let kept = driver.alloc_async(Stream::Legacy, 3 * MIB)?;
    driver.checkpoint("before")?;
    let start = sys::boot_ns();
    for round in 0..setting.count {
        let address = driver.alloc_async(Stream::Legacy, 4096 + round % 7 * 512)?;
        driver.free_async(Stream::Legacy, address)?;
    }
    let took_ns = sys::boot_ns() - start;
    let calls = 2 * setting.count;
    sys::say(&format!("{{\"calls\":{calls},\"took_ns\":{took_ns}}}"))?;
    driver.checkpoint("after")?;
    driver.free_async(Stream::Legacy, kept)?;
    driver.checkpoint("freed")
}

/// More large calls than have rows of their own, by threads that all allocate and free.
pub(crate) fn many(driver: &Driver, setting: &Setting) -> io::Result<()> {
    let context = driver.begin(0)?;
    let rounds = setting.count.min(1_000);
    let held = each(driver, context, &[1, 2, 3], |thread: usize| {
        let mut held = Vec::new();
        for round in 0..rounds {
            held.push(driver.alloc((round % 5 + thread) * MIB)?);
            if round % 2 == 1 {
                driver.free(held.swap_remove(round % held.len()))?;
            }
        }
        Ok(held)
    })?;
    driver.checkpoint("threads")?;
    driver.free_all(held.into_iter().flatten())?;
    driver.checkpoint("freed")
}
