//! Small programs started by a large process: through vfork they run in its address
//! space until they exec, and through fork they start as a copy of it.

use crate::Workload;
use crate::args::Args;
use crate::sys::{self, Mapping};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "vforkchild",
    help: "--bytes B: a parent of B starts `hwm` and /bin/true by vfork and by fork",
    run,
};

fn run(args: &Args) -> io::Result<()> {
    let bytes = args.size("bytes", 300 << 20)?;
    let mapping = Mapping::anon(bytes)?;
    mapping.touch(bytes);
    let own = std::env::current_exe()?;
    let own = CString::new(own.as_os_str().as_bytes())?;
    for (how, start) in [("vfork", vfork as fn(&[CString]) -> _), ("fork", fork)] {
        for argv in [vec![own.clone(), c"hwm".into()], vec![c"/bin/true".into()]] {
            let ended = sys::wait_success(start(&argv)?)?;
            sys::say(&format!(
                "{{\"how\":\"{how}\",\"program\":{:?},\"pid\":{},\"ru_maxrss_bytes\":{}}}",
                argv[0].to_string_lossy(),
                ended.pid,
                ended.maxrss_bytes
            ))?;
        }
    }
    sys::say(&format!(
        "{{\"how\":\"parent\",\"pid\":{},\"vmhwm_bytes\":{}}}",
        std::process::id(),
        sys::status().vmhwm_bytes
    ))
}

/// glibc's posix_spawn is clone(CLONE_VM | CLONE_VFORK).
fn vfork(argv: &[CString]) -> io::Result<i32> {
    let mut pointers: Vec<*mut libc::c_char> =
        argv.iter().map(|word| word.as_ptr().cast_mut()).collect();
    pointers.push(ptr::null_mut());
    let environment = [ptr::null_mut::<libc::c_char>()];
    let mut child = 0;
    // SAFETY: path, arguments and environment are NUL-ended, live through the call and
    // are only read; no file actions or attributes are given.
    let error = unsafe {
        libc::posix_spawn(
            &raw mut child,
            argv[0].as_ptr(),
            ptr::null(),
            ptr::null(),
            pointers.as_ptr(),
            environment.as_ptr(),
        )
    };
    match error {
        0 => Ok(child),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

fn fork(argv: &[CString]) -> io::Result<i32> {
    sys::fork_child(|| {
        let word = |word: &CString| std::ffi::OsStr::from_bytes(word.as_bytes()).to_owned();
        let mut command = Command::new(word(&argv[0]));
        command.args(argv[1..].iter().map(word)).env_clear();
        Err(command.exec())
    })
}
