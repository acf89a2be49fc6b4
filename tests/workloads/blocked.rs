//! Threads that wait inside of madvise, all at once: more calls under way than a kretprobe
//! has room for.
//!
//! Each asks for a page of a range that nobody fills (userfaultfd(2)), and is let go when
//! that is given up.

use crate::Workload;
use crate::args::Args;
use crate::sys::{self, Mapping};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "blocked",
    help: "--threads N: N calls of madvise that wait at the same time",
    run,
};

/// What a thread waits for; 5.14.
const MADV_POPULATE_WRITE: i32 = 23;

fn run(args: &Args) -> io::Result<()> {
    let threads = args.size("threads", 64)?;
    sys::say(&format!("{{\"pid\":{}}}", std::process::id()))?;
    sys::until_a_byte_comes()?;
    let page = sys::page_size();
    let range = Mapping::anon(threads * page)?;
    range.advise(libc::MADV_NOHUGEPAGE)?;
    let mut faults = unfilled(range.start() as u64, (threads * page) as u64)?;
    let returned = Arc::new(AtomicU64::new(0));
    for index in 0..threads {
        let place = range.start() as usize + index * page;
        let returned = Arc::clone(&returned);
        std::thread::spawn(move || {
            // SAFETY: a page of a mapping that lives as long as this process.
            let filled = unsafe { libc::madvise(place as *mut _, page, MADV_POPULATE_WRITE) };
            if filled == 0 {
                returned.fetch_add(1, Ordering::Relaxed);
            }
            // The end of a thread gives advice about its stack.
            loop {
                sys::sleep_ns(1_000_000_000);
            }
        });
    }
    // Each fault is reported once, so then all are waiting.
    for _ in 0..threads {
        faults.read_exact(&mut [0; FAULT_BYTES])?;
    }
    drop(faults);
    while returned.load(Ordering::Relaxed) < threads as u64 {
        sys::sleep_ns(1_000_000);
    }
    sys::say(&format!("{{\"returned\":{threads}}}"))?;
    sys::until_stdin_closes()?;
    sys::exit(0)
}

/// sizeof(struct uffd_msg), in bytes.
const FAULT_BYTES: usize = 32;
/// Values of include/uapi/linux/userfaultfd.h.
const UFFD_API: u64 = 0xaa;
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_REGISTER_MODE_MISSING: u64 = 1;

/// Has faults in a range reported and not filled, until the file is closed.
fn unfilled(start: u64, length: u64) -> io::Result<File> {
    // SAFETY: takes flags only.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
    let fd = sys::check(fd as i32)?;
    // SAFETY: the descriptor was just opened, and nobody else knows it.
    let file = unsafe { File::from_raw_fd(fd) };
    // struct uffdio_api: api, features, ioctls.
    let mut api = [UFFD_API, 0, 0];
    // struct uffdio_register: start, len, mode, ioctls.
    let mut register = [start, length, UFFDIO_REGISTER_MODE_MISSING, 0];
    // SAFETY: both structures are live, writable and of the size that the request names.
    unsafe {
        sys::check(libc::ioctl(file.as_raw_fd(), UFFDIO_API, api.as_mut_ptr()))?;
        let registered = libc::ioctl(file.as_raw_fd(), UFFDIO_REGISTER, register.as_mut_ptr());
        sys::check(registered)?;
    }
    Ok(file)
}
