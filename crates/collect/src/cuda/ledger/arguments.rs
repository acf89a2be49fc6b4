//! Arguments of calls, and what stands behind them.

use super::Device;
use crate::cuda::functions::Does;
use memtrace_abi::CudaCall;
use memtrace_model::BootNs;

/// When a call began.
pub(super) fn entered(call: &CudaCall) -> BootNs {
    BootNs(call.entered_boot_ns.cast_signed())
}

/// When it returned.
pub(super) fn returned(call: &CudaCall) -> BootNs {
    BootNs(call.header.boot_ns.cast_signed())
}

/// CUmemAllocationProp and CUmemPoolProps: two integers, then the location, whose type 1 is a
/// device.
pub(super) fn location(call: &CudaCall) -> Device {
    let word = call.structure[1];
    (word as u32 == 1).then_some((word >> 32) as i32)
}

/// No device has more: a pebibyte. What a program says beyond that is not believed, so that sums of
/// thousands stay exact.
const SIZE_MAX: u64 = 1 << 50;

/// An argument that is a number of bytes.
pub(super) fn bytes(argument: u64) -> i64 {
    argument.min(SIZE_MAX).cast_signed()
}

pub(super) fn product(factors: &[u64]) -> i64 {
    let product = factors
        .iter()
        .try_fold(1_u64, |product, factor| product.checked_mul(*factor));
    bytes(product.unwrap_or(u64::MAX))
}

/// Flags of CUDA_ARRAY3D_DESCRIPTOR: memory is mapped later, by hand.
const ARRAY_SPARSE: u32 = 0x40;
const ARRAY_DEFERRED: u32 = 0x80;

/// Bytes of an array; `None` for a format that is not known, and for one that has no memory of its
/// own.
pub(super) fn array(does: Does, call: &CudaCall) -> Option<i64> {
    let words = call.structure;
    let is_flat = does == Does::Array(2);
    let (depth, what) = if is_flat {
        (1, words[2])
    } else {
        (words[2], words[3])
    };
    let flags = if is_flat { 0 } else { words[4] as u32 };
    if flags & (ARRAY_SPARSE | ARRAY_DEFERRED) != 0 {
        return None;
    }
    // CUarray_format
    let element = match what as u32 {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        _ => return None,
    };
    let channels = what >> 32;
    let of = |shift: u32| {
        let side = |side: u64| (side >> shift).max(1);
        product(&[
            side(words[0]),
            side(words[1]),
            side(depth),
            element * channels,
        ])
    };
    let levels = match does {
        Does::Mipmap => call.args[2].clamp(1, 32) as u32,
        _ => 1,
    };
    Some((0..levels).map(of).fold(0, i64::saturating_add))
}

/// A UUID as NVML writes it.
pub(super) fn uuid(words: [u64; 2]) -> String {
    let bytes: String = words
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let parts = [
        &bytes[..8],
        &bytes[8..12],
        &bytes[12..16],
        &bytes[16..20],
        &bytes[20..],
    ];
    format!("GPU-{}", parts.join("-"))
}
