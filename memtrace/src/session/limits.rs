//! What the recorder changes about itself so that it survives what it records: it is the
//! last to be killed for memory, its pages stay resident, and it may keep many files open.
//! Done after the command was forked, which keeps its own settings.

use memtrace_host::release_free_memory;

/// Protects this process as far as it is permitted. What is refused is left as it was: a
/// recorder without privilege runs unprotected.
pub(super) fn protect() {
    #[cfg(target_os = "linux")]
    // CAP_SYS_RESOURCE; without it the value can only be raised.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    // Of a file that may not grow any more (RLIMIT_FSIZE) the write is to fail, so that it can be
    // reported, as with a full disk; the signal would end us.
    // SAFETY: a signal that is to be ignored.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    raise_descriptor_limit();
}

/// Locks what is resident, and what becomes so, into memory: once all that only the start needs is
/// freed, for what is locked can't be given back.
#[cfg(target_os = "linux")]
pub(super) fn lock() {
    release_free_memory();
    // ONFAULT: without it every mapping is populated, thread stacks too, which alone would be more
    // than the recorder's memory budget.
    // SAFETY: flags only.
    unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) };
}

/// Gives back what was freed: the recorder has nothing left to protect.
pub(super) fn release() {
    #[cfg(target_os = "linux")]
    // SAFETY: takes nothing. What is locked could not be given back.
    unsafe {
        libc::munlockall()
    };
    release_free_memory();
}

fn raise_descriptor_limit() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a valid rlimit in both calls; the soft limit never exceeds the hard one.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            // macOS reports no hard limit but refuses more than OPEN_MAX.
            let most = if cfg!(target_os = "macos") {
                10_240
            } else {
                limit.rlim_max
            };
            limit.rlim_cur = limit.rlim_max.min(most);
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}
