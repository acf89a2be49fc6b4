//! The CUDA driver, loaded as libcudart does: dlopen, then each function by cuGetProcAddress.

use crate::sys;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::io;
use std::ptr::{null, null_mut};

/// CUDA_VERSION of cuda.h: 13.0.
const VERSION: c_int = 13_000;
/// CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM of cuda.h.
const PER_THREAD: c_ulonglong = 2;

type GetProcAddress =
    unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, c_ulonglong, *mut c_int) -> c_int;

/// CUmemAllocationProp of cuda.h, for memory of a device that can be exported.
#[repr(C)]
struct AllocationProp {
    kind: c_int,
    handle_types: c_int,
    location: [c_int; 2],
    metadata: usize,
    flags: [u8; 8],
}

/// CUmemPoolProps of cuda.h.
#[repr(C)]
struct PoolProps {
    kind: c_int,
    handle_types: c_int,
    location: [c_int; 2],
    security: usize,
    max_size: usize,
    usage: u16,
    reserved: [u8; 54],
}

/// CUDA_ARRAY3D_DESCRIPTOR of cuda.h.
#[repr(C)]
pub(crate) struct ArrayDescriptor {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    pub(crate) format: c_uint,
    pub(crate) channels: c_uint,
    pub(crate) flags: c_uint,
}

/// CUipcMemHandle of cuda.h, which goes by value.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct IpcHandle(pub(crate) [u8; 64]);

/// A call that the driver refused, with its CUresult.
#[derive(Debug)]
pub(crate) struct Refused {
    call: &'static str,
    pub(crate) code: c_int,
}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        io::Error::other(format!("{} answered {}", refused.call, refused.code))
    }
}

pub(crate) type Answer<T> = Result<T, Refused>;

/// The functions: the name of the field, cuGetProcAddress's name, flags, arguments.
macro_rules! functions {
    ($($field:ident = $name:literal, $flags:expr, ($($type:ty),*);)*) => {
        /// The driver's functions, each as the program calls it.
        pub(crate) struct Driver {
            library: *mut c_void,
            /// How long the recorder has to write what it saw, before something else happens.
            settle_ns: i64,
            $($field: unsafe extern "C" fn($($type),*) -> c_int,)*
        }

        impl Driver {
            /// Loads a library, and initializes nothing.
            pub(crate) fn load(path: &str, settle_ns: i64) -> io::Result<Self> {
                let library = open(path)?;
                let get = get_proc_address(library)?;
                Ok(Self {
                    library,
                    settle_ns,
                    $($field: {
                        let mut found: *mut c_void = null_mut();
                        let name = CString::new($name)?;
                        // SAFETY: the text ends in NUL, and both places are live or null.
                        let code = unsafe {
                            get(name.as_ptr(), &raw mut found, VERSION, $flags, null_mut())
                        };
                        if code != 0 || found.is_null() {
                            return Err(io::Error::other(concat!("no ", $name)));
                        }
                        // SAFETY: a function of this name has this signature in cuda.h.
                        unsafe { std::mem::transmute::<
                            *mut c_void,
                            unsafe extern "C" fn($($type),*) -> c_int,
                        >(found) }
                    },)*
                })
            }
        }
    };
}

functions! {
    init = "cuInit", 0, (c_uint);
    device_get = "cuDeviceGet", 0, (*mut c_int, c_int);
    device_get_uuid = "cuDeviceGetUuid", 0, (*mut [u8; 16], c_int);
    primary_retain = "cuDevicePrimaryCtxRetain", 0, (*mut u64, c_int);
    primary_release = "cuDevicePrimaryCtxRelease", 0, (c_int);
    primary_reset = "cuDevicePrimaryCtxReset", 0, (c_int);
    ctx_create = "cuCtxCreate", 0, (*mut u64, *mut c_void, c_uint, c_int);
    ctx_destroy = "cuCtxDestroy", 0, (u64);
    ctx_set_current = "cuCtxSetCurrent", 0, (u64);
    ctx_push_current = "cuCtxPushCurrent", 0, (u64);
    ctx_pop_current = "cuCtxPopCurrent", 0, (*mut u64);
    ctx_set_limit = "cuCtxSetLimit", 0, (c_int, usize);
    ctx_synchronize = "cuCtxSynchronize", 0, ();
    mem_alloc = "cuMemAlloc", 0, (*mut u64, usize);
    mem_alloc_pitch = "cuMemAllocPitch", 0, (*mut u64, *mut usize, usize, usize, c_uint);
    mem_alloc_managed = "cuMemAllocManaged", 0, (*mut u64, usize, c_uint);
    mem_free = "cuMemFree", 0, (u64);
    mem_alloc_async = "cuMemAllocAsync", 0, (*mut u64, usize, u64);
    mem_alloc_async_ptsz = "cuMemAllocAsync", PER_THREAD, (*mut u64, usize, u64);
    mem_alloc_from_pool_async = "cuMemAllocFromPoolAsync", 0, (*mut u64, usize, u64, u64);
    mem_alloc_from_pool_async_ptsz = "cuMemAllocFromPoolAsync", PER_THREAD, (*mut u64, usize, u64, u64);
    mem_free_async = "cuMemFreeAsync", 0, (u64, u64);
    mem_free_async_ptsz = "cuMemFreeAsync", PER_THREAD, (u64, u64);
    mem_pool_create = "cuMemPoolCreate", 0, (*mut u64, *const PoolProps);
    mem_pool_destroy = "cuMemPoolDestroy", 0, (u64);
    mem_pool_set_attribute = "cuMemPoolSetAttribute", 0, (u64, c_int, *mut u64);
    mem_pool_trim_to = "cuMemPoolTrimTo", 0, (u64, usize);
    mem_create = "cuMemCreate", 0, (*mut u64, usize, *const AllocationProp, c_ulonglong);
    mem_release = "cuMemRelease", 0, (u64);
    mem_retain = "cuMemRetainAllocationHandle", 0, (*mut u64, u64);
    mem_address_reserve = "cuMemAddressReserve", 0, (*mut u64, usize, usize, u64, c_ulonglong);
    mem_address_free = "cuMemAddressFree", 0, (u64, usize);
    mem_map = "cuMemMap", 0, (u64, usize, usize, u64, c_ulonglong);
    mem_unmap = "cuMemUnmap", 0, (u64, usize);
    mem_set_access = "cuMemSetAccess", 0, (u64, usize, *const c_int, usize);
    mem_export = "cuMemExportToShareableHandle", 0, (*mut c_int, u64, c_int, c_ulonglong);
    mem_import = "cuMemImportFromShareableHandle", 0, (*mut u64, usize, c_int);
    ipc_get = "cuIpcGetMemHandle", 0, (*mut IpcHandle, u64);
    ipc_open = "cuIpcOpenMemHandle", 0, (*mut u64, IpcHandle, c_uint);
    ipc_close = "cuIpcCloseMemHandle", 0, (u64);
    mem_host_alloc = "cuMemHostAlloc", 0, (*mut u64, usize, c_uint);
    mem_alloc_host = "cuMemAllocHost", 0, (*mut u64, usize);
    mem_free_host = "cuMemFreeHost", 0, (u64);
    mem_host_register = "cuMemHostRegister", 0, (u64, usize, c_uint);
    mem_host_unregister = "cuMemHostUnregister", 0, (u64);
    array_3d_create = "cuArray3DCreate", 0, (*mut u64, *const ArrayDescriptor);
    array_destroy = "cuArrayDestroy", 0, (u64);
    mipmapped_array_create = "cuMipmappedArrayCreate", 0, (*mut u64, *const ArrayDescriptor, c_uint);
    mipmapped_array_destroy = "cuMipmappedArrayDestroy", 0, (u64);
    library_load_data = "cuLibraryLoadData", 0, (*mut u64, *const u8, *const c_int, *const c_void, c_uint, *const c_int, *const c_void, c_uint);
    library_unload = "cuLibraryUnload", 0, (u64);
    module_load_data = "cuModuleLoadData", 0, (*mut u64, *const u8);
    module_unload = "cuModuleUnload", 0, (u64);
    graph_instantiate = "cuGraphInstantiateWithFlags", 0, (*mut u64, u64, c_ulonglong);
    graph_exec_destroy = "cuGraphExecDestroy", 0, (u64);
}

// SAFETY: functions of the driver may be called by any thread.
unsafe impl Sync for Driver {}

/// Calls a function of the driver.
macro_rules! ask {
    ($driver:ident.$field:ident($($argument:expr),*)) => {{
        // SAFETY: the pointers among the arguments are live for the call, and of the types of cuda.h.
        let code = unsafe { ($driver.$field)($($argument),*) };
        match code {
            0 => Ok(()),
            code => Err(Refused { call: stringify!($field), code }),
        }
    }};
}

/// Calls a function whose first argument is where the answer goes.
macro_rules! ask_for {
    ($driver:ident.$field:ident($($argument:expr),*)) => {{
        let mut answer = Default::default();
        ask!($driver.$field(&raw mut answer $(, $argument)*)).map(|()| answer)
    }};
}

/// Whether a call of the stream functions has the name with _ptsz.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Legacy,
    PerThread,
}

impl Driver {
    /// As libcudart begins: the driver, a device and its primary context, which becomes current.
    pub(crate) fn begin(&self, device: c_int) -> Answer<u64> {
        ask!(self.init(0))?;
        let device: c_int = ask_for!(self.device_get(device))?;
        let _: [u8; 16] = ask_for!(self.device_get_uuid(device))?;
        let context: u64 = ask_for!(self.primary_retain(device))?;
        self.set_current(context)?;
        Ok(context)
    }

    pub(crate) fn init(&self) -> Answer<()> {
        ask!(self.init(0))
    }

    pub(crate) fn primary_release(&self, device: c_int) -> Answer<()> {
        ask!(self.primary_release(device))
    }

    pub(crate) fn primary_reset(&self, device: c_int) -> Answer<()> {
        ask!(self.primary_reset(device))
    }

    pub(crate) fn create_context(&self, device: c_int) -> Answer<u64> {
        ask_for!(self.ctx_create(null_mut(), 0, device))
    }

    pub(crate) fn destroy_context(&self, context: u64) -> Answer<()> {
        ask!(self.ctx_destroy(context))
    }

    pub(crate) fn set_current(&self, context: u64) -> Answer<()> {
        ask!(self.ctx_set_current(context))
    }

    pub(crate) fn push(&self, context: u64) -> Answer<()> {
        ask!(self.ctx_push_current(context))
    }

    pub(crate) fn pop(&self) -> Answer<u64> {
        ask_for!(self.ctx_pop_current())
    }

    pub(crate) fn set_stack(&self, bytes: usize) -> Answer<()> {
        ask!(self.ctx_set_limit(0, bytes))
    }

    pub(crate) fn synchronize(&self) -> Answer<()> {
        ask!(self.ctx_synchronize())
    }

    pub(crate) fn alloc(&self, bytes: usize) -> Answer<u64> {
        ask_for!(self.mem_alloc(bytes))
    }

    /// So many allocations of one size.
    pub(crate) fn allocs(&self, count: usize, bytes: usize) -> Answer<Vec<u64>> {
        (0..count).map(|_| self.alloc(bytes)).collect()
    }

    pub(crate) fn alloc_pitch(&self, width: usize, height: usize) -> Answer<u64> {
        let mut pitch = 0;
        ask_for!(self.mem_alloc_pitch(&raw mut pitch, width, height, 4))
    }

    pub(crate) fn alloc_managed(&self, bytes: usize) -> Answer<u64> {
        // CU_MEM_ATTACH_GLOBAL
        ask_for!(self.mem_alloc_managed(bytes, 1))
    }

    pub(crate) fn free(&self, address: u64) -> Answer<()> {
        ask!(self.mem_free(address))
    }

    pub(crate) fn free_all(&self, addresses: impl IntoIterator<Item = u64>) -> Answer<()> {
        addresses
            .into_iter()
            .try_for_each(|address| self.free(address))
    }

    pub(crate) fn alloc_async(&self, stream: Stream, bytes: usize) -> Answer<u64> {
        match stream {
            Stream::Legacy => ask_for!(self.mem_alloc_async(bytes, 0)),
            Stream::PerThread => ask_for!(self.mem_alloc_async_ptsz(bytes, 0)),
        }
    }

    pub(crate) fn free_async(&self, stream: Stream, address: u64) -> Answer<()> {
        match stream {
            Stream::Legacy => ask!(self.mem_free_async(address, 0)),
            Stream::PerThread => ask!(self.mem_free_async_ptsz(address, 0)),
        }
    }

    pub(crate) fn create_pool(&self, device: c_int) -> Answer<u64> {
        let props = PoolProps {
            kind: 1,
            handle_types: 0,
            location: [1, device],
            security: 0,
            max_size: 0,
            usage: 0,
            reserved: [0; 54],
        };
        ask_for!(self.mem_pool_create(&raw const props))
    }

    pub(crate) fn destroy_pool(&self, pool: u64) -> Answer<()> {
        ask!(self.mem_pool_destroy(pool))
    }

    pub(crate) fn keep_in_pool(&self, pool: u64, mut bytes: u64) -> Answer<()> {
        // CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        ask!(self.mem_pool_set_attribute(pool, 4, &raw mut bytes))
    }

    pub(crate) fn trim_pool(&self, pool: u64) -> Answer<()> {
        ask!(self.mem_pool_trim_to(pool, 0))
    }

    pub(crate) fn alloc_from_pool(&self, stream: Stream, pool: u64, bytes: usize) -> Answer<u64> {
        match stream {
            Stream::Legacy => ask_for!(self.mem_alloc_from_pool_async(bytes, pool, 0)),
            Stream::PerThread => ask_for!(self.mem_alloc_from_pool_async_ptsz(bytes, pool, 0)),
        }
    }

    /// Physical memory of a device.
    pub(crate) fn create(&self, device: c_int, bytes: usize) -> Answer<u64> {
        let prop = AllocationProp {
            // CU_MEM_ALLOCATION_TYPE_PINNED
            kind: 1,
            // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
            handle_types: 1,
            // CU_MEM_LOCATION_TYPE_DEVICE
            location: [1, device],
            metadata: 0,
            flags: [0; 8],
        };
        ask_for!(self.mem_create(bytes, &raw const prop, 0))
    }

    pub(crate) fn release(&self, handle: u64) -> Answer<()> {
        ask!(self.mem_release(handle))
    }

    /// One more handle of what is mapped at an address.
    pub(crate) fn retain(&self, address: u64) -> Answer<u64> {
        ask_for!(self.mem_retain(address))
    }

    pub(crate) fn reserve(&self, bytes: usize) -> Answer<u64> {
        ask_for!(self.mem_address_reserve(bytes, 0, 0, 0))
    }

    pub(crate) fn free_addresses(&self, address: u64, bytes: usize) -> Answer<()> {
        ask!(self.mem_address_free(address, bytes))
    }

    /// Maps memory, and gives a device access to it.
    pub(crate) fn map(&self, device: c_int, address: u64, bytes: usize, handle: u64) -> Answer<()> {
        ask!(self.mem_map(address, bytes, 0, handle, 0))?;
        // CUmemAccessDesc: location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE.
        let access = [1, device, 3];
        ask!(self.mem_set_access(address, bytes, access.as_ptr(), 1))
    }

    pub(crate) fn unmap(&self, address: u64, bytes: usize) -> Answer<()> {
        ask!(self.mem_unmap(address, bytes))
    }

    /// A descriptor that another process can import.
    pub(crate) fn export(&self, handle: u64) -> Answer<c_int> {
        ask_for!(self.mem_export(handle, 1, 0))
    }

    pub(crate) fn import(&self, fd: c_int) -> Answer<u64> {
        ask_for!(self.mem_import(fd as usize, 1))
    }

    pub(crate) fn ipc_handle(&self, address: u64) -> Answer<IpcHandle> {
        let mut handle = IpcHandle([0; 64]);
        ask!(self.ipc_get(&raw mut handle, address)).map(|()| handle)
    }

    pub(crate) fn ipc_open(&self, handle: IpcHandle) -> Answer<u64> {
        // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
        ask_for!(self.ipc_open(handle, 1))
    }

    pub(crate) fn ipc_close(&self, address: u64) -> Answer<()> {
        ask!(self.ipc_close(address))
    }

    pub(crate) fn host_alloc(&self, bytes: usize) -> Answer<u64> {
        ask_for!(self.mem_host_alloc(bytes, 0))
    }

    pub(crate) fn alloc_host(&self, bytes: usize) -> Answer<u64> {
        ask_for!(self.mem_alloc_host(bytes))
    }

    pub(crate) fn free_host(&self, address: u64) -> Answer<()> {
        ask!(self.mem_free_host(address))
    }

    pub(crate) fn register(&self, address: u64, bytes: usize) -> Answer<()> {
        ask!(self.mem_host_register(address, bytes, 0))
    }

    pub(crate) fn unregister(&self, address: u64) -> Answer<()> {
        ask!(self.mem_host_unregister(address))
    }

    pub(crate) fn create_array(&self, descriptor: &ArrayDescriptor) -> Answer<u64> {
        ask_for!(self.array_3d_create(descriptor))
    }

    pub(crate) fn destroy_array(&self, array: u64) -> Answer<()> {
        ask!(self.array_destroy(array))
    }

    pub(crate) fn create_mipmapped(&self, of: &ArrayDescriptor, levels: u32) -> Answer<u64> {
        ask_for!(self.mipmapped_array_create(of, levels))
    }

    pub(crate) fn destroy_mipmapped(&self, array: u64) -> Answer<()> {
        ask!(self.mipmapped_array_destroy(array))
    }

    pub(crate) fn load_library(&self) -> Answer<u64> {
        let code = c"code".as_ptr().cast();
        ask_for!(self.library_load_data(code, null(), null(), 0, null(), null(), 0))
    }

    pub(crate) fn unload_library(&self, library: u64) -> Answer<()> {
        ask!(self.library_unload(library))
    }

    pub(crate) fn load_module(&self) -> Answer<u64> {
        ask_for!(self.module_load_data(c"code".as_ptr().cast()))
    }

    pub(crate) fn unload_module(&self, module: u64) -> Answer<()> {
        ask!(self.module_unload(module))
    }

    pub(crate) fn instantiate_graph(&self) -> Answer<u64> {
        ask_for!(self.graph_instantiate(0, 0))
    }

    pub(crate) fn destroy_graph(&self, graph: u64) -> Answer<()> {
        ask!(self.graph_exec_destroy(graph))
    }

    /// Prints what the library says that this process holds, and leaves the recorder time to see it.
    pub(crate) fn checkpoint(&self, name: &str) -> io::Result<()> {
        let boot_ns = sys::boot_ns();
        let held = self.held()?;
        let pid = std::process::id();
        sys::say(&format!(
            "{{\"at\":\"{name}\",\"pid\":{pid},\"boot_ns\":{boot_ns},\"held\":{held}}}"
        ))?;
        sys::sleep_ns(self.settle_ns);
        Ok(())
    }

    fn held(&self) -> io::Result<String> {
        type Held = unsafe extern "C" fn(*mut u8, usize) -> usize;
        // SAFETY: the stand-in exports it with this signature.
        let held: Held =
            unsafe { std::mem::transmute(symbol(self.library, c"memtrace_fake_cuda_held")?) };
        let mut text = vec![0; 64 << 10];
        // SAFETY: the buffer is live, and as long as said.
        let length = unsafe { held(text.as_mut_ptr(), text.len()) };
        text.truncate(length);
        String::from_utf8(text).map_err(io::Error::other)
    }

    /// An allocation of so many bytes is never going to return.
    pub(crate) fn hang(&self, bytes: u64) -> io::Result<()> {
        // SAFETY: the stand-in exports it with this signature.
        let hang: unsafe extern "C" fn(u64) =
            unsafe { std::mem::transmute(symbol(self.library, c"memtrace_fake_cuda_hang")?) };
        // SAFETY: takes a number.
        unsafe { hang(bytes) };
        Ok(())
    }

    /// The next call of this thread returns late.
    pub(crate) fn linger(&self, time_ns: i64) -> io::Result<()> {
        // SAFETY: the stand-in exports it with this signature.
        let linger: unsafe extern "C" fn(i64) =
            unsafe { std::mem::transmute(symbol(self.library, c"memtrace_fake_cuda_linger")?) };
        // SAFETY: takes a number.
        unsafe { linger(time_ns) };
        Ok(())
    }
}

fn open(path: &str) -> io::Result<*mut c_void> {
    let text = CString::new(path)?;
    // SAFETY: the text ends in NUL; what the library runs when it is loaded is the caller's choice.
    let library = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_NOW) };
    match library.is_null() {
        true => Err(io::Error::other(format!("{path} can't be loaded"))),
        false => Ok(library),
    }
}

fn get_proc_address(library: *mut c_void) -> io::Result<GetProcAddress> {
    let found = symbol(library, c"cuGetProcAddress_v2")?;
    // SAFETY: a function of this name has this signature in cuda.h.
    Ok(unsafe { std::mem::transmute::<*mut c_void, GetProcAddress>(found) })
}

fn symbol(library: *mut c_void, name: &CStr) -> io::Result<*mut c_void> {
    // SAFETY: the library stays loaded, and the text ends in NUL.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    match found.is_null() {
        true => Err(io::Error::other(format!("the library has no {name:?}"))),
        false => Ok(found),
    }
}
