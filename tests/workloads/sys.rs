//! The few system calls that workloads are made of.
//!
//! What a child calls between its last reading of its own peak and its exit must touch
//! no page for the first time, or the reading is not the peak. Those functions therefore
//! go through [`libc::syscall`] alone, allocate nothing, and are called once for
//! rehearsal.

use std::ffi::CStr;
use std::io::{self, Write};
use std::ptr;

/// Memory mapped for the lifetime of the value.
pub(crate) struct Mapping {
    start: *mut u8,
    len: usize,
}

impl Mapping {
    /// Private anonymous memory, not touched.
    pub(crate) fn anon(len: usize) -> io::Result<Self> {
        Self::with_flags(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
    }

    /// Anonymous memory that forks share, not touched.
    pub(crate) fn shared(len: usize) -> io::Result<Self> {
        Self::with_flags(len, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1)
    }

    /// A file, shared, not touched.
    pub(crate) fn file(len: usize, fd: i32) -> io::Result<Self> {
        Self::with_flags(len, libc::MAP_SHARED, fd)
    }

    /// The same, private: what is written stays here.
    pub(crate) fn private_file(len: usize, fd: i32) -> io::Result<Self> {
        Self::with_flags(len, libc::MAP_PRIVATE, fd)
    }

    fn with_flags(len: usize, flags: i32, fd: i32) -> io::Result<Self> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice replaces nothing.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, prot, flags, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            start: start.cast(),
            len,
        })
    }

    /// Gives advice about the whole mapping.
    pub(crate) fn advise(&self, advice: i32) -> io::Result<()> {
        // SAFETY: the range is this mapping's own, and no reference into it exists.
        check(unsafe { libc::madvise(self.start.cast(), self.len, advice) }).map(drop)
    }

    /// Writes one byte into each page of the first `len` bytes.
    pub(crate) fn touch(&self, len: usize) {
        self.touch_range(0, len);
    }

    /// Writes one byte into each page of a range.
    pub(crate) fn touch_range(&self, from: usize, to: usize) {
        for offset in (from..to.min(self.len)).step_by(page_size()) {
            // SAFETY: the offset is inside the mapping, which is writable.
            unsafe { self.start.add(offset).write_volatile(1) };
        }
    }

    /// Gives the pages of a range back to the kernel.
    pub(crate) fn drop_range(&self, from: usize, to: usize) -> io::Result<()> {
        let to = to.min(self.len);
        if from >= to {
            return Ok(());
        }
        // SAFETY: the range is inside the mapping, and no reference into it exists.
        let done =
            unsafe { libc::madvise(self.start.add(from).cast(), to - from, libc::MADV_DONTNEED) };
        check(done).map(drop)
    }

    /// The first byte, for the few who write a value and not only touch.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }
}

// SAFETY: a mapping belongs to the process, and any thread may touch or unmap it. Moving
// the value moves the only handle.
unsafe impl Send for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping's own, and nothing refers to it any more.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

/// What `fork` gave.
pub(crate) enum Forked {
    /// This is the child.
    Child,
    /// This is the parent of the process with this id.
    Parent(i32),
}

/// Forks. The caller has one thread only, so the child may do anything.
pub(crate) fn fork() -> io::Result<Forked> {
    // SAFETY: no other thread exists whose locks the child could inherit.
    match check(unsafe { libc::fork() })? {
        0 => Ok(Forked::Child),
        child => Ok(Forked::Parent(child)),
    }
}

/// Forks a child that runs `body` and ends; its exit code tells whether that failed.
pub(crate) fn fork_child(body: impl FnOnce() -> io::Result<()>) -> io::Result<i32> {
    match fork()? {
        Forked::Parent(child) => Ok(child),
        Forked::Child => {
            let code = match body() {
                Ok(()) => 0,
                Err(error) => {
                    eprintln!("child {}: {error}", std::process::id());
                    1
                }
            };
            exit(code)
        }
    }
}

/// How a child ended, and the kernel's figure for its peak.
pub(crate) struct Ended {
    /// Its process id.
    pub(crate) pid: i32,
    /// Its wait status.
    pub(crate) status: i32,
    /// `ru_maxrss`, in bytes.
    pub(crate) maxrss_bytes: i64,
}

/// Waits for a child; -1 waits for any.
pub(crate) fn wait(child: i32) -> io::Result<Ended> {
    let mut status = 0;
    // SAFETY: all zeroes is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live, writable values of the right type.
    let pid = check(unsafe { libc::wait4(child, &raw mut status, 0, &raw mut usage) })?;
    Ok(Ended {
        pid,
        status,
        maxrss_bytes: usage.ru_maxrss * 1024,
    })
}

/// Waits for a child that is meant to succeed.
pub(crate) fn wait_success(child: i32) -> io::Result<Ended> {
    let ended = wait(child)?;
    if ended.status != 0 {
        let text = format!("child {} ended with status {:#x}", ended.pid, ended.status);
        return Err(io::Error::other(text));
    }
    Ok(ended)
}

/// Waits until a child has ended, and leaves it a zombie.
pub(crate) fn wait_until_zombie(child: i32) -> io::Result<()> {
    // SAFETY: all zeroes is a valid siginfo_t, and the kernel fills it in.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOWAIT;
    // SAFETY: the siginfo_t is live and writable.
    let waited =
        unsafe { libc::waitid(libc::P_PID, child.cast_unsigned(), &raw mut info, options) };
    check(waited).map(drop)
}

/// Ends the process without any clean-up that could touch new pages.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: exit_group takes a number and does not return.
    unsafe { libc::syscall(libc::SYS_exit_group, code) };
    unreachable!("exit_group came back")
}

/// Ends the process where `is_final`; else takes the same way through the code, so that no
/// instruction page is left for the end. Fault-around does not map all of them at once: it
/// skips a page that is locked at that moment, as those of a program just built are.
pub(crate) fn exit_or_rehearse(is_final: bool) {
    let number = if is_final {
        libc::SYS_exit_group
    } else {
        libc::SYS_getpid
    };
    // SAFETY: exit_group takes a number and does not return; getpid takes nothing.
    unsafe { libc::syscall(number, 0) };
}

/// This process gets SIGKILL when its parent dies.
pub(crate) fn die_with_parent() -> io::Result<()> {
    // SAFETY: this option takes a signal number and changes this process only.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) }).map(drop)
}

pub(crate) fn sleep_ns(duration_ns: i64) {
    if duration_ns <= 0 {
        return;
    }
    let time = libc::timespec {
        tv_sec: duration_ns / 1_000_000_000,
        tv_nsec: duration_ns % 1_000_000_000,
    };
    // SAFETY: the timespec lives through the call; the remainder is not asked for.
    unsafe {
        libc::syscall(
            libc::SYS_nanosleep,
            &raw const time,
            ptr::null_mut::<libc::timespec>(),
        )
    };
}

/// A clock, in nanoseconds.
pub(crate) fn clock_ns(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the timespec is live and writable. A clock id of libc's is always valid.
    unsafe { libc::syscall(libc::SYS_clock_gettime, clock, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// CLOCK_BOOTTIME, the clock of a recording.
pub(crate) fn boot_ns() -> i64 {
    clock_ns(libc::CLOCK_BOOTTIME)
}

/// The size of a page.
pub(crate) fn page_size() -> usize {
    // SAFETY: sysconf takes a constant.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// The lines of /proc/self/status that tell memory, in bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Status {
    /// The highest RSS of this address space.
    pub(crate) vmhwm_bytes: i64,
    pub(crate) vmrss_bytes: i64,
    /// Address space now.
    pub(crate) vm_size_bytes: i64,
}

/// Reads the file /proc/self/status.
pub(crate) fn status() -> Status {
    let mut buffer = [0_u8; 4096];
    let text = read_at_once(c"/proc/self/status", &mut buffer);
    Status {
        vmhwm_bytes: field_bytes(text, b"VmHWM:"),
        vmrss_bytes: field_bytes(text, b"VmRSS:"),
        vm_size_bytes: field_bytes(text, b"VmSize:"),
    }
}

/// RSS now, by a walk of this process's page tables: the truth on every kernel, where the
/// counters behind [`status`] lag (before 6.2 by what each thread's last 64 page faults
/// brought, then by what CPUs hold back; only since 6.16 does /proc add those up).
pub(crate) fn walked_rss_bytes() -> i64 {
    let mut buffer = [0_u8; 4096];
    field_bytes(
        read_at_once(c"/proc/self/smaps_rollup", &mut buffer),
        b"Rss:",
    )
}

/// Reads a short file with nothing but system calls into a buffer on the stack.
fn read_at_once<'a>(path: &CStr, buffer: &'a mut [u8]) -> &'a [u8] {
    // SAFETY: the path ends in NUL, the buffer is live and writable for its length, and
    // the descriptor is ours alone.
    let read = unsafe {
        let fd = libc::syscall(
            libc::SYS_openat,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::O_RDONLY,
        );
        let read = libc::syscall(libc::SYS_read, fd, buffer.as_mut_ptr(), buffer.len());
        libc::syscall(libc::SYS_close, fd);
        read
    };
    &buffer[..usize::try_from(read).unwrap_or(0)]
}

/// The number after a name, given in kB; -1 where the name is absent, which no check of
/// the truth accepts.
fn field_bytes(text: &[u8], name: &[u8]) -> i64 {
    let Some(at) = text.windows(name.len()).position(|window| window == name) else {
        return -1;
    };
    let mut kib = 0_i64;
    for byte in &text[at + name.len()..] {
        match byte {
            b'0'..=b'9' => kib = kib * 10 + i64::from(byte - b'0'),
            b'\n' => break,
            _ => {}
        }
    }
    kib * 1024
}

/// Prints one line of truth at once, also into a pipe.
pub(crate) fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// Reads standard input to its end: the caller ends a workload by closing it.
pub(crate) fn until_stdin_closes() -> io::Result<()> {
    io::copy(&mut io::stdin().lock(), &mut io::sink()).map(drop)
}

/// Waits for one byte on standard input, and leaves what follows it there.
pub(crate) fn until_a_byte_comes() -> io::Result<()> {
    if comes_a_byte()? {
        Ok(())
    } else {
        Err(io::Error::other("standard input closed before a byte came"))
    }
}

/// The same; false where standard input closes instead.
pub(crate) fn comes_a_byte() -> io::Result<bool> {
    let mut byte = 0_u8;
    // SAFETY: the byte is live and writable.
    match unsafe { libc::read(libc::STDIN_FILENO, (&raw mut byte).cast(), 1) } {
        1 => Ok(true),
        0 => Ok(false),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Turns libc's -1 into an error.
pub(crate) fn check(result: i32) -> io::Result<i32> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// A small generator of numbers that look random and repeat with the seed (xorshift64*).
pub(crate) struct Random(u64);

impl Random {
    /// Starts at a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `end`; 0 where `end` is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
        number.checked_rem(end).unwrap_or(0)
    }
}
