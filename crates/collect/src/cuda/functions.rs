//! The functions of the CUDA driver that are probed, and what each does with memory.
//!
//! Signatures from cuda.h of CUDA 13. A program gets them by linking, by dlsym or from
//! cuGetProcAddress, which hands out the exported functions: all three enter here.

use memtrace_abi::{CudaCookie, CudaPlace};
use memtrace_model::CudaKind;

/// A function of the driver.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// Its name, without the suffix of its version.
    pub name: &'static str,
    /// Its names in the library's table of symbols.
    pub symbols: &'static [&'static str],
    /// What it does.
    pub(super) does: Does,
}

/// What a function does. Numbers are those of arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    /// Whatever a program does with the driver comes after it.
    Init,
    /// Allocates as many bytes as the second argument says, at the address in the first.
    Alloc(CudaKind),
    /// The same of the pool in the third.
    PoolAlloc,
    /// Allocates rows: width and height are the third and the fourth, the pitch comes back in the
    /// second.
    Pitch,
    /// Allocates an array of a descriptor with so many dimensions.
    Array(u8),
    /// Allocates an array with smaller copies of itself.
    Mipmap,
    /// Gives back what the first argument names.
    Free,
    /// Makes physical memory and a handle of it.
    Create,
    /// Gives back the handle in its first argument.
    Release,
    /// Another reference to the handle behind an address.
    Retain,
    /// Maps a handle.
    Map,
    /// Ends the mappings of a range.
    Unmap,
    /// A handle of another process's memory.
    Import,
    /// Makes a handle, by which other processes can open the memory at an address.
    IpcGet,
    /// Opens the memory behind such a handle.
    IpcOpen,
    /// Pins memory of the program.
    Register,
    /// Retains the primary context of the device in the second argument.
    RetainPrimary,
    /// Gives the primary context of a device back.
    ReleasePrimary,
    /// Ends the primary context of a device.
    ResetPrimary,
    /// Makes a context on the device in this argument, which becomes current.
    CreateContext(usize),
    /// Ends a context.
    DestroyContext,
    /// Makes a context current.
    SetCurrent,
    /// The same, and keeps the one before.
    PushCurrent,
    /// Goes back to the one before.
    PopCurrent,
    /// Makes a pool on the device in its properties.
    CreatePool,
    /// A pool of the device in the second argument.
    PoolOf,
    /// The UUID of the device in the second argument.
    Uuid,
    /// Loads GPU code.
    Load,
    /// Unloads GPU code.
    Unload,
    /// Makes a graph that can run.
    Instantiate,
    /// Ends such a graph.
    DestroyGraph,
    /// Nothing that is counted, but worth a row; its second argument may be a number of bytes.
    Other(bool),
}

impl Function {
    const fn new(name: &'static str, symbols: &'static [&'static str], does: Does) -> Self {
        Self {
            name,
            symbols,
            does,
        }
    }

    /// What the probes are to read.
    pub fn cookie(&self, number: usize) -> CudaCookie {
        let mut cookie = CudaCookie {
            call: number as u8,
            ..CudaCookie::default()
        };
        cookie.takes_second = matches!(self.does, Does::Alloc(_) | Does::PoolAlloc | Does::Create);
        match self.does {
            Does::Alloc(_)
            | Does::PoolAlloc
            | Does::Retain
            | Does::Import
            | Does::PoolOf
            | Does::Load
            | Does::Instantiate => cookie.out_words = 1,
            Does::RetainPrimary | Does::CreateContext(_) => {
                cookie.out_words = 1;
                cookie.wakes = true;
            }
            Does::Pitch => {
                cookie.out_words = 1;
                cookie.reads_second = true;
            }
            Does::Uuid => cookie.out_words = 2,
            // CUmemAllocationProp, and CUmemPoolProps: the location follows two integers.
            Does::Create => reads(&mut cookie, CudaPlace::Third, 16),
            Does::CreatePool => reads(&mut cookie, CudaPlace::Second, 16),
            // CUDA_ARRAY_DESCRIPTOR and CUDA_ARRAY3D_DESCRIPTOR
            Does::Array(2) => reads(&mut cookie, CudaPlace::Second, 24),
            Does::Array(_) | Does::Mipmap => reads(&mut cookie, CudaPlace::Second, 40),
            // CUipcMemHandle, which is passed by value.
            Does::IpcGet => reads(&mut cookie, CudaPlace::FirstAtReturn, 64),
            Does::IpcOpen if cfg!(target_arch = "x86_64") => {
                reads(&mut cookie, CudaPlace::Stack, 64);
            }
            Does::IpcOpen => reads(&mut cookie, CudaPlace::Second, 64),
            Does::Init
            | Does::Free
            | Does::Release
            | Does::Map
            | Does::Unmap
            | Does::Register
            | Does::ReleasePrimary
            | Does::ResetPrimary
            | Does::DestroyContext
            | Does::SetCurrent
            | Does::PushCurrent
            | Does::PopCurrent
            | Does::Unload
            | Does::DestroyGraph
            | Does::Other(_) => {}
        }
        cookie
    }
}

fn reads(cookie: &mut CudaCookie, place: CudaPlace, bytes: u8) {
    cookie.out_words = 1;
    cookie.place = place as u8;
    cookie.bytes = bytes;
}

macro_rules! functions {
    ($($name:ident $([$($symbol:ident)+])? => $does:expr,)+) => {
        /// Every one. Its place is the number in the cookie of its probes.
        pub const FUNCTIONS: &[Function] = &[$(
            Function::new(
                stringify!($name),
                functions!(@symbols $name $([$($symbol)+])?),
                $does,
            ),
        )+];
    };
    (@symbols $name:ident) => { &[stringify!($name)] };
    (@symbols $name:ident [$($symbol:ident)+]) => { &[$(stringify!($symbol)),+] };
}

functions! {
    cuInit => Does::Init,
    cuMemAlloc [cuMemAlloc_v2] => Does::Alloc(CudaKind::Direct),
    cuMemAllocPitch [cuMemAllocPitch_v2] => Does::Pitch,
    cuMemAllocManaged => Does::Alloc(CudaKind::Managed),
    cuMemAllocAsync [cuMemAllocAsync cuMemAllocAsync_ptsz] => Does::Alloc(CudaKind::Pool),
    cuMemAllocFromPoolAsync [cuMemAllocFromPoolAsync cuMemAllocFromPoolAsync_ptsz] => Does::PoolAlloc,
    cuMemFree [cuMemFree_v2] => Does::Free,
    cuMemFreeAsync [cuMemFreeAsync cuMemFreeAsync_ptsz] => Does::Free,
    cuArrayCreate [cuArrayCreate_v2] => Does::Array(2),
    cuArray3DCreate [cuArray3DCreate_v2] => Does::Array(3),
    cuMipmappedArrayCreate => Does::Mipmap,
    cuArrayDestroy => Does::Free,
    cuMipmappedArrayDestroy => Does::Free,
    cuMemCreate => Does::Create,
    cuMemRelease => Does::Release,
    cuMemRetainAllocationHandle => Does::Retain,
    cuMemMap => Does::Map,
    cuMemUnmap => Does::Unmap,
    cuMemAddressReserve => Does::Other(true),
    cuMemExportToShareableHandle => Does::Other(false),
    cuMemImportFromShareableHandle => Does::Import,
    cuIpcGetMemHandle => Does::IpcGet,
    cuIpcOpenMemHandle [cuIpcOpenMemHandle_v2] => Does::IpcOpen,
    cuIpcCloseMemHandle => Does::Free,
    cuMemHostAlloc => Does::Alloc(CudaKind::Pinned),
    cuMemAllocHost [cuMemAllocHost_v2] => Does::Alloc(CudaKind::Pinned),
    cuMemFreeHost => Does::Free,
    cuMemHostRegister [cuMemHostRegister_v2] => Does::Register,
    cuMemHostUnregister => Does::Free,
    cuMemPoolCreate => Does::CreatePool,
    cuDeviceGetDefaultMemPool => Does::PoolOf,
    cuDeviceGetMemPool => Does::PoolOf,
    cuMemPoolTrimTo => Does::Other(true),
    cuMemPoolSetAttribute => Does::Other(false),
    cuDeviceGraphMemTrim => Does::Other(false),
    cuCtxSetLimit => Does::Other(true),
    cuDevicePrimaryCtxRetain => Does::RetainPrimary,
    cuDevicePrimaryCtxRelease [cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxRelease] => Does::ReleasePrimary,
    cuDevicePrimaryCtxReset [cuDevicePrimaryCtxReset_v2 cuDevicePrimaryCtxReset] => Does::ResetPrimary,
    cuCtxCreate [cuCtxCreate_v2] => Does::CreateContext(2),
    cuCtxCreate_v3 => Does::CreateContext(4),
    cuCtxCreate_v4 => Does::CreateContext(3),
    cuCtxDestroy [cuCtxDestroy_v2] => Does::DestroyContext,
    cuCtxSetCurrent => Does::SetCurrent,
    cuCtxPushCurrent [cuCtxPushCurrent_v2] => Does::PushCurrent,
    cuCtxPopCurrent [cuCtxPopCurrent_v2] => Does::PopCurrent,
    cuDeviceGetUuid [cuDeviceGetUuid cuDeviceGetUuid_v2] => Does::Uuid,
    cuLibraryLoadData => Does::Load,
    cuLibraryLoadFromFile => Does::Load,
    cuLibraryUnload => Does::Unload,
    cuModuleLoad => Does::Load,
    cuModuleLoadData => Does::Load,
    cuModuleLoadDataEx => Does::Load,
    cuModuleLoadFatBinary => Does::Load,
    cuModuleUnload => Does::Unload,
    cuGraphInstantiate [cuGraphInstantiateWithFlags cuGraphInstantiateWithParams cuGraphInstantiateWithParams_ptsz] => Does::Instantiate,
    cuGraphExecDestroy => Does::DestroyGraph,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_function_has_a_cookie_of_its_own_that_is_read_as_it_was_written() {
        let mut symbols = HashSet::new();
        for (number, function) in FUNCTIONS.iter().enumerate() {
            let cookie = function.cookie(number);
            assert_eq!(usize::from(cookie.call), number, "{}", function.name);
            assert_eq!(CudaCookie::unpack(cookie.pack()), cookie);
            for symbol in function.symbols {
                assert!(symbols.insert(*symbol), "{symbol} stands twice");
                assert!(symbol.starts_with(function.name), "{symbol}");
            }
        }
    }
}
