//! A pipe.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// A pipe whose ends close on exec.
pub(super) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors, which are owned from here on.
    unsafe {
        if libc::pipe(ends.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        for end in ends {
            libc::fcntl(end, libc::F_SETFD, libc::FD_CLOEXEC);
        }
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}
