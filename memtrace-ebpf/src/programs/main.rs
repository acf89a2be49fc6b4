//! The BPF object of memtrace.
//!
//! The programs do the least they can: filter, fill, submit. What a number means is decided
//! in user space. One family a file: [`lifecycle`] keeps the members of the recording,
//! [`rss`] watches their resident pages, [`sweep`] samples those that moved at every tick,
//! [`snapshot`] finds who runs already, [`oom`] reports kills, [`signal`] keeps who sent
//! them signals, [`tmpfs`] how full a file system in memory was where one was sent for a page of
//! it, [`stacks`] samples who touches new memory, [`cuda`] sees calls of the CUDA driver, [`vm`]
//! accounts calls on address spaces, which [`vm_ways`] sees by whatever way the kernel offers.
//! [`kernel`] knows how to read kernel memory, [`space`] what is kept about an address space, [`ring`] how
//! events leave, [`maps`] where state is kept.
#![no_std]
#![no_main]
// For one instruction: an atomic addition.
#![feature(asm_experimental_arch)]

mod copies;
mod cuda;
mod faults;
mod kernel;
mod lifecycle;
mod maps;
mod oom;
mod ring;
mod rss;
mod signal;
mod snapshot;
mod space;
mod stacks;
mod sweep;
mod tmpfs;
mod touched;
mod vm;
mod vm_ways;

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// bpf_probe_read_kernel and friends need no GPL, but tp_btf programs that call
/// GPL-only helpers do; the kernel reads the license from this section. These programs,
/// unlike the rest of the project, are dual-licensed for that reason.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
