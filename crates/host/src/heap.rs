//! Memory that was freed and that the allocator keeps.

/// Returns it to the kernel, but for what is locked into memory.
pub fn release_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim only returns free memory to the kernel.
    unsafe {
        libc::malloc_trim(0);
    }
}
