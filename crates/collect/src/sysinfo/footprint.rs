//! The physical footprint of a process, by which macOS accounts memory: it includes what
//! is compressed and leaves out what could be read again from files.

use memtrace_model::{Bytes, Tgid};

/// The footprint now, and the highest of the process's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footprint {
    pub(super) now: Bytes,
    pub(super) highest: Bytes,
}

/// Reads the footprint; `None` for a process of another user, one that is gone, and where
/// the platform does not account it.
///
/// Through libc and not the libproc crate, which generates its bindings with libclang
/// when it is built.
#[cfg(target_os = "macos")]
pub(super) fn footprint(tgid: Tgid) -> Option<Footprint> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage_info_v4>::zeroed();
    // SAFETY: flavor V4 makes the kernel write one rusage_info_v4, for which there is
    // room; the pointer type of the declaration stands for that structure.
    let answer = unsafe {
        libc::proc_pid_rusage(
            tgid.0.cast_signed(),
            libc::RUSAGE_INFO_V4,
            usage.as_mut_ptr().cast::<libc::rusage_info_t>(),
        )
    };
    if answer != 0 {
        return None;
    }
    // SAFETY: zeroed at first, which is valid for a structure of integers, and filled by
    // the call above.
    let usage = unsafe { usage.assume_init() };
    Some(Footprint {
        now: Bytes(i64::try_from(usage.ri_phys_footprint).ok()?),
        highest: Bytes(i64::try_from(usage.ri_lifetime_max_phys_footprint).ok()?),
    })
}

/// Other platforms do not account it.
#[cfg(not(target_os = "macos"))]
pub(super) fn footprint(_tgid: Tgid) -> Option<Footprint> {
    None
}
