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
