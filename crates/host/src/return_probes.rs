//! Whether the return of a user function can be probed without harm: asked by doing what it takes.
//!
//! On x86-64, from Linux 6.11 on, a probed function returns by a system call of its own. A seccomp
//! filter that does not know it, as those of containers, refused it at first, and the program ended by
//! SIGSEGV; later kernels let it pass all filters. No file tells.

/// The number of `uretprobe(2)` on x86-64.
const CALL: u32 = 335;
/// What the filter of the trial answers with.
const REFUSED: i32 = libc::EPERM;
/// How the child ends that could not set up its trial.
const NO_TRIAL: i32 = 255;

/// Whether a program behind a seccomp filter survives a probe at a return.
pub fn are_return_probes_harmless() -> bool {
    if !cfg!(target_arch = "x86_64") {
        return true;
    }
    // Where there is no such call, a breakpoint takes its place.
    call(true) != Some(REFUSED) || call(false) == Some(libc::ENOSYS)
}

/// What a child's call answers, behind a filter that refuses it or without; `None` where the kernel
/// ended the child, as it does where the call comes from nowhere, or where there was no trial.
fn call(has_filter: bool) -> Option<i32> {
    // SAFETY: the child makes system calls alone, on memory of its own, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above.
        unsafe {
            libc::_exit(if has_filter && !refuse() {
                NO_TRIAL
            } else {
                try_call()
            })
        };
    }
    let mut status = 0;
    // SAFETY: the child is ours and waited for nowhere else; the pointer is to a live value.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } == -1 {
        if std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return None;
        }
    }
    libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status))
}

/// The error number of the call, 0 where it succeeds.
fn try_call() -> i32 {
    // SAFETY: the call takes no arguments. No core is left of who ends by it.
    let answer = unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
        libc::syscall(CALL.into())
    };
    match answer {
        // SAFETY: the error number of this thread.
        -1 => unsafe { *libc::__errno_location() },
        _ => 0,
    }
}

/// Has the call refused from here on.
fn refuse() -> bool {
    let step = |code: u32, if_not: u8, value: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: if_not,
        k: value,
    };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let is_equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let end = libc::BPF_RET | libc::BPF_K;
    let mut steps = [
        // The number of the call is the first field of struct seccomp_data.
        step(load, 0, 0),
        step(is_equal, 1, CALL),
        step(end, 0, libc::SECCOMP_RET_ERRNO | REFUSED.cast_unsigned()),
        step(end, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the program is a live value, and the kernel copies it.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_of_the_trial_refuses_the_call_or_the_kernel_lets_it_pass() {
        // Without a filter there is either no such call, or whoever makes it from nowhere is ended.
        let (filtered, free) = (call(true), call(false));
        assert!(matches!(free, None | Some(libc::ENOSYS)), "{free:?}");
        assert!(matches!(filtered, None | Some(REFUSED)), "{filtered:?}");
        let is_harmless = filtered.is_none() || free == Some(libc::ENOSYS);
        assert_eq!(are_return_probes_harmless(), is_harmless);
    }
}
