//! Calls on its own address space, each reported as it was made and what it came to.
//!
//! Through [`libc::syscall`] and without allocating, so that no other such call comes in
//! between.

use crate::Workload;
use crate::args::Args;
use crate::sys;
use std::io;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "vm",
    help: "--small N: a few large calls, then N times mmap and munmap of one page",
    run,
};

const MIB: i64 = 1 << 20;
const ANONYMOUS: i64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as i64;
const READ_WRITE: i64 = (libc::PROT_READ | libc::PROT_WRITE) as i64;
/// More than any address space has.
const TOO_MUCH: i64 = 1 << 60;

/// One call and its answer.
#[derive(Clone, Copy, Default)]
struct Call {
    op: &'static str,
    addr: i64,
    length: i64,
    old_length: i64,
    growth: i64,
    prot: i64,
    flags: i64,
    file: &'static str,
    result: i64,
}

fn run(args: &Args) -> io::Result<()> {
    let small = args.number("small", 1_000)?;
    // What printing allocates is allocated before anything counts.
    sys::say(&format!("{{\"pid\":{}}}", std::process::id()))?;
    sys::until_a_byte_comes()?;
    let calls = large_calls()?;
    for _ in 0..small {
        let page = raw_mmap(sys::page_size() as i64, READ_WRITE, ANONYMOUS, -1);
        raw(libc::SYS_munmap, [page, sys::page_size() as i64, 0, 0]);
    }
    // One that fails: the address is no page's.
    raw(libc::SYS_munmap, [1, MIB, 0, 0]);
    for call in calls {
        sys::say(&call.json())?;
    }
    sys::until_stdin_closes()?;
    // The runtime would unmap what it has for the main thread.
    sys::exit(0)
}

fn large_calls() -> io::Result<[Call; 9]> {
    let reserved = ANONYMOUS | i64::from(libc::MAP_NORESERVE);
    // SAFETY: the name ends in NUL.
    let fd = sys::check(unsafe { libc::memfd_create(c"memtrace-vm".as_ptr(), 0) })?;
    // SAFETY: the descriptor was just opened.
    sys::check(unsafe { libc::ftruncate(fd, 4 * MIB) })?;
    let heap = raw(libc::SYS_brk, [0; 4]);
    let mmap = |length, prot, flags, fd: i32, file| Call {
        op: "mmap",
        length,
        prot,
        flags,
        file,
        result: raw_mmap(length, prot, flags, fd.into()),
        ..Call::default()
    };
    let anonymous = mmap(8 * MIB, 0, reserved, -1, "");
    let advised = Call {
        op: "madvise",
        addr: anonymous.result,
        length: 8 * MIB,
        flags: libc::MADV_DONTNEED.into(),
        ..Call::default()
    };
    let advised = advised.with(raw(
        libc::SYS_madvise,
        [advised.addr, advised.length, advised.flags, 0],
    ));
    let moved = Call {
        op: "mremap",
        addr: anonymous.result,
        old_length: 8 * MIB,
        length: 16 * MIB,
        flags: libc::MREMAP_MAYMOVE.into(),
        ..Call::default()
    };
    let moved = moved.with(raw(
        libc::SYS_mremap,
        [moved.addr, moved.old_length, moved.length, moved.flags],
    ));
    let gone = Call {
        op: "munmap",
        addr: moved.result,
        length: 16 * MIB,
        ..Call::default()
    };
    let gone = gone.with(raw(libc::SYS_munmap, [gone.addr, gone.length, 0, 0]));
    let file = mmap(
        4 * MIB,
        libc::PROT_READ.into(),
        libc::MAP_SHARED.into(),
        fd,
        "memfd:memtrace-vm",
    );
    let refused = mmap(TOO_MUCH, READ_WRITE, ANONYMOUS, -1, "");
    let brk = |growth: i64, to: i64| {
        Call {
            op: "brk",
            addr: to,
            growth,
            ..Call::default()
        }
        .with(raw(libc::SYS_brk, [to, 0, 0, 0]))
    };
    let up = brk(4 * MIB, heap + 4 * MIB);
    let down = brk(-4 * MIB, heap);
    // Half a page more than a whole number of them is rounded up.
    let odd = mmap(2 * MIB - 2048, READ_WRITE, ANONYMOUS, -1, "");
    let odd = Call {
        length: 2 * MIB,
        ..odd
    };
    Ok([
        anonymous, advised, moved, gone, file, refused, up, down, odd,
    ])
}

impl Call {
    fn with(self, result: i64) -> Self {
        Self { result, ..self }
    }

    fn json(&self) -> String {
        format!(
            "{{\"op\":\"{}\",\"addr\":{},\"length_bytes\":{},\"old_length_bytes\":{},\
             \"growth_bytes\":{},\"prot\":{},\"flags\":{},\"file\":\"{}\",\"result\":{}}}",
            self.op,
            self.addr,
            self.length,
            self.old_length,
            self.growth,
            self.prot,
            self.flags,
            self.file,
            self.result
        )
    }
}

fn raw_mmap(length: i64, prot: i64, flags: i64, fd: i64) -> i64 {
    // SAFETY: a new mapping at a place of the kernel's choice replaces nothing.
    answer(unsafe { libc::syscall(libc::SYS_mmap, 0, length, prot, flags, fd, 0) })
}

/// A call that changes only what this workload mapped, or the break back to where it was.
fn raw(number: libc::c_long, [a, b, c, d]: [i64; 4]) -> i64 {
    // SAFETY: as above; no reference into these ranges exists.
    answer(unsafe { libc::syscall(number, a, b, c, d) })
}

/// The answer as the kernel gave it: libc keeps an error apart.
fn answer(returned: libc::c_long) -> i64 {
    match io::Error::last_os_error().raw_os_error() {
        Some(errno) if returned == -1 => -i64::from(errno),
        _ => returned,
    }
}
