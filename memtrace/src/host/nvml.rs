//! Whether NVIDIA's management library is there.
//!
//! Asked of the dynamic loader, which knows the places that a search of our own would
//! not: LD_LIBRARY_PATH, ld.so.cache, the folder a container runtime injects.

/// Whether the loader finds libnvidia-ml.so.1.
pub(super) fn is_present() -> bool {
    // SAFETY: the name is a NUL-terminated constant. Loading runs the library's
    // initialisers; NVML's do nothing before nvmlInit, and nothing of it is called here.
    let handle = unsafe { libc::dlopen(c"libnvidia-ml.so.1".as_ptr(), libc::RTLD_LAZY) };
    if handle.is_null() {
        return false;
    }
    // SAFETY: `handle` came from dlopen above and is closed once.
    unsafe { libc::dlclose(handle) };
    true
}
