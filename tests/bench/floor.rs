//! The least that a program on `rss_stat` can cost: one that returns at once.
//!
//! What remains is the kernel's own way from the tracepoint to a program and back, which
//! is the same for `tp_btf` as for the raw tracepoint used here.

use anyhow::{Context, Result};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// struct bpf_insn: code, registers, offset, immediate. `r0 = 0; exit`.
const RETURN: [u64; 2] = [0xb7, 0x95];
const BPF_PROG_TYPE_RAW_TRACEPOINT: u32 = 17;

/// The beginning of union bpf_attr for BPF_PROG_LOAD.
#[repr(C)]
struct Load {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
}

/// union bpf_attr for BPF_RAW_TRACEPOINT_OPEN.
#[repr(C)]
struct Open {
    name: u64,
    prog_fd: u32,
    reserved: u32,
}

/// The calls used of bpf(2).
#[repr(i64)]
#[derive(Clone, Copy)]
enum Call {
    ProgLoad = 5,
    RawTracepointOpen = 17,
}

/// An empty program on `rss_stat`, attached as long as the value lives.
pub(crate) struct EmptyProgram {
    _link: OwnedFd,
}

impl EmptyProgram {
    /// Loads and attaches it.
    pub(crate) fn attach() -> Result<Self> {
        let program = bpf(
            Call::ProgLoad,
            &Load {
                prog_type: BPF_PROG_TYPE_RAW_TRACEPOINT,
                insn_cnt: RETURN.len() as u32,
                insns: RETURN.as_ptr().addr() as u64,
                license: c"GPL".as_ptr().addr() as u64,
            },
        )
        .context("failed to load an empty program")?;
        let link = bpf(
            Call::RawTracepointOpen,
            &Open {
                name: c"rss_stat".as_ptr().addr() as u64,
                prog_fd: program.as_raw_fd().cast_unsigned(),
                reserved: 0,
            },
        )
        .context("failed to attach an empty program to rss_stat")?;
        Ok(Self { _link: link })
    }
}

/// One call of bpf(2) that gives a descriptor.
fn bpf<T>(call: Call, attr: &T) -> io::Result<OwnedFd> {
    // SAFETY: `attr` is the beginning of what the call takes, as long as is said, and what
    // it points to is static.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, call as i64, attr, size_of::<T>()) };
    match i32::try_from(fd) {
        // SAFETY: a descriptor that the kernel has just made, and nobody else's.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}
