//! A stand-in for libcuda.so.1: the functions of the CUDA driver about memory, with the names
//! and signatures of CUDA 13's cuda.h, and no GPU behind them. It behaves as a driver 580 was
//! seen to on an H200: sizes, packing, what is given back when, what is refused.
//!
//! It keeps its own account of what each process holds, and [`held::Held`] hands that out, so
//! that a test of memtrace need not trust memtrace.

#[cfg(target_os = "linux")]
mod account;
#[cfg(target_os = "linux")]
mod addresses;
#[cfg(target_os = "linux")]
mod calls;
#[cfg(target_os = "linux")]
mod current;
#[cfg(target_os = "linux")]
mod driver;
pub mod held;
#[cfg(target_os = "linux")]
mod packed;
#[cfg(target_os = "linux")]
mod pointers;
#[cfg(target_os = "linux")]
mod vmm;

#[cfg(target_os = "linux")]
pub use calls::NAMES;

/// Names the number of devices; one without it.
pub const DEVICES_VARIABLE: &str = "MEMTRACE_FAKE_CUDA_DEVICES";
/// Names the bytes that each device has; 80 GiB without it.
pub const CAPACITY_VARIABLE: &str = "MEMTRACE_FAKE_CUDA_CAPACITY";

/// What a context takes of its device: 518 MiB.
pub const CONTEXT_BYTES: u64 = 518 << 20;
/// The driver hands out memory in pieces of 2 MiB.
pub const PIECE_BYTES: u64 = 2 << 20;

/// Id of a device, as cuDeviceGetUuid gives it.
pub fn uuid(physical: usize) -> [u8; 16] {
    let mut id = *b"\x6f\x3c\x01\x02\x03\x04\x45\x06\x87\x08stand\0";
    id[15] = physical as u8;
    id
}

/// The same as NVML and nvidia-smi write it.
pub fn uuid_text(physical: usize) -> String {
    let mut text = "GPU-".to_owned();
    for (place, byte) in uuid(physical).iter().enumerate() {
        if [4, 6, 8, 10].contains(&place) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}
