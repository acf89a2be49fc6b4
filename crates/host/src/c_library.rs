//! The C library of this build. What it can observe depends on it: a static program loads no NVML.

/// Whether the program can load other libraries at run time. One linked statically with musl can't.
pub const LOADS_LIBRARIES: bool =
    cfg!(not(all(target_env = "musl", target_feature = "crt-static")));

/// Its name, with its version where that is known.
pub fn c_library() -> String {
    #[cfg(target_env = "gnu")]
    // SAFETY: gives a string that lives as long as the program.
    let name = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    #[cfg(target_env = "gnu")]
    return format!("glibc {}", name.to_string_lossy());
    #[cfg(not(target_env = "gnu"))]
    if LOADS_LIBRARIES {
        "the system's C library".to_owned()
    } else {
        "static musl (no memory of NVIDIA GPUs: a static program can't load NVML)".to_owned()
    }
}
