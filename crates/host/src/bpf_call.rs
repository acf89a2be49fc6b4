//! bpf(2), for what aya keeps to itself.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Calls with the part of union bpf_attr (include/uapi/linux/bpf.h) that the command takes.
/// Addresses in it must be of live values, writable where the command writes to them.
pub fn bpf<A>(command: libc::c_long, attributes: &mut A) -> io::Result<i32> {
    // SAFETY: the attributes are plain numbers of the given size; what their addresses
    // point to is as the caller promises.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attributes),
            size_of::<A>(),
        )
    };
    match i32::try_from(answer) {
        Ok(answer) if answer >= 0 => Ok(answer),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The same, for commands that answer with a descriptor.
pub fn bpf_fd<A>(command: libc::c_long, attributes: &mut A) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    // SAFETY: the kernel just opened it for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The command that loads a program.
pub const BPF_PROG_LOAD: libc::c_long = 5;

/// The part of union bpf_attr that [`BPF_PROG_LOAD`] takes here, named as there.
#[expect(missing_docs, reason = "include/uapi/linux/bpf.h has them")]
#[repr(C)]
#[derive(Default)]
pub struct ProgramLoad {
    pub prog_type: u32,
    pub insn_cnt: u32,
    pub insns: u64,
    pub license: u64,
    pub log_level: u32,
    pub log_size: u32,
    pub log_buf: u64,
    pub kern_version: u32,
    pub prog_flags: u32,
    pub prog_name: [u8; 16],
    pub prog_ifindex: u32,
    pub expected_attach_type: u32,
    pub prog_btf_fd: u32,
    pub func_info_rec_size: u32,
    pub func_info: u64,
    pub func_info_cnt: u32,
    pub line_info_rec_size: u32,
    pub line_info: u64,
    pub line_info_cnt: u32,
    pub attach_btf_id: u32,
}
