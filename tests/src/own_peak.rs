//! The peak RSS of this process, which its children take over.

/// Lets children have a peak of their own: until its exec a child counts as its own what this
/// process had resident at most, which wait4 tells as `ru_maxrss`. Gives free memory back, and has
/// the kernel forget the peak (clear_refs 5, since 4.0).
pub fn forget() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it gives free memory back to the kernel, and takes no pointer.
    unsafe {
        libc::malloc_trim(0)
    };
    // Where it is refused the figures are higher, never lower.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}
