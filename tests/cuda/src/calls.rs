//! The C functions.

use crate::PIECE_BYTES;
use crate::current;
use crate::driver::{
    Answer, Driver, HANGING_BYTES, INVALID_CONTEXT, INVALID_VALUE, Kind, NOT_FOUND, OUT_OF_MEMORY,
    Object, Refused, hanging_bytes,
};
use crate::pointers::{
    AllocationProp, Array3dDescriptor, ArrayDescriptor, In, IpcHandle, LOCATION_DEVICE, Out,
    PoolProps,
};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_longlong, c_uint, c_ulonglong, c_void};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{FromRawFd, IntoRawFd};
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

static DRIVER: Mutex<Option<Driver>> = Mutex::new(None);

thread_local! {
    /// How long the next call of this thread waits before it returns.
    static LINGER: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Runs a call, and returns its CUresult.
fn call(name: &'static str, body: impl FnOnce(&mut Driver) -> Answer) -> c_int {
    let answer = {
        let mut guard = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
        let driver = guard.get_or_insert_with(Driver::new);
        driver.enter(name);
        let answer = match name {
            "cuInit" | "cuGetProcAddress_v2" | "cuDriverGetVersion" => body(driver),
            _ => driver.ready().and_then(|()| body(driver)),
        };
        if let Err(Refused::With(_)) = answer {
            driver.refuse(name);
        }
        answer
    };
    std::thread::sleep(LINGER.take());
    match answer {
        Ok(()) => 0,
        Err(Refused::With(code)) => code,
        Err(Refused::Never) => loop {
            std::thread::sleep(Duration::from_secs(3600));
        },
    }
}

/// Each function has its name in its body, so that no two are the same to a linker or to LLVM.
macro_rules! exports {
    ($(fn $name:ident($driver:ident $(, $argument:ident: $type:ty)* $(,)?) $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            #[allow(non_snake_case)]
            extern "C" fn $name($($argument: $type),*) -> c_int {
                call(stringify!($name), |$driver: &mut Driver| -> Answer { $body })
            }
        )*

        /// The functions of cuda.h that the library exports.
        pub const NAMES: &[&str] = &[$(stringify!($name)),*];

        /// The address of an exported function.
        fn address(name: &str) -> Option<*const c_void> {
            match name {
                $(stringify!($name) => Some($name as *const c_void),)*
                _ => None,
            }
        }
    };
}

exports! {
    fn cuInit(driver, flags: c_uint) {
        match flags {
            0 => driver.initialize(),
            _ => Err(INVALID_VALUE),
        }
    }

    fn cuDriverGetVersion(_driver, version: Out<c_int>) {
        version.put(13_000)
    }

    fn cuDeviceGetCount(driver, count: Out<c_int>) {
        count.put(driver.device_count() as c_int)
    }

    fn cuDeviceGet(driver, device: Out<c_int>, ordinal: c_int) {
        driver.device(ordinal)?;
        device.put(ordinal)
    }

    fn cuDeviceGetUuid(driver, uuid: Out<[u8; 16]>, device: c_int) {
        uuid.put(driver.uuid(driver.device(device)?))
    }

    fn cuDeviceGetUuid_v2(driver, uuid: Out<[u8; 16]>, device: c_int) {
        uuid.put(driver.uuid(driver.device(device)?))
    }

    fn cuDevicePrimaryCtxRetain(driver, context: Out<u64>, device: c_int) {
        let device = driver.device(device)?;
        context.put(driver.retain_primary(device)?)
    }

    fn cuDevicePrimaryCtxRelease_v2(driver, device: c_int) {
        let device = driver.device(device)?;
        driver.release_primary(device)
    }

    fn cuDevicePrimaryCtxReset_v2(driver, device: c_int) {
        let device = driver.device(device)?;
        driver.reset_primary(device)
    }

    fn cuCtxCreate_v2(driver, context: Out<u64>, _flags: c_uint, device: c_int) {
        create_context(driver, context, device)
    }

    fn cuCtxCreate_v3(
        driver,
        context: Out<u64>,
        _affinities: In<u64>,
        _count: c_int,
        _flags: c_uint,
        device: c_int,
    ) {
        create_context(driver, context, device)
    }

    fn cuCtxCreate_v4(
        driver,
        context: Out<u64>,
        _params: In<u64>,
        _flags: c_uint,
        device: c_int,
    ) {
        create_context(driver, context, device)
    }

    fn cuCtxDestroy_v2(driver, context: u64) {
        driver.destroy_context(context)
    }

    fn cuCtxSetCurrent(driver, context: u64) {
        if context != 0 && !driver.knows_context(context) {
            return Err(INVALID_CONTEXT);
        }
        current::pop();
        if context != 0 {
            current::push(context);
        }
        Ok(())
    }

    fn cuCtxPushCurrent_v2(driver, context: u64) {
        if !driver.knows_context(context) {
            return Err(INVALID_CONTEXT);
        }
        current::push(context);
        Ok(())
    }

    fn cuCtxPopCurrent_v2(_driver, context: Out<u64>) {
        context.put_if_wanted(current::pop().ok_or(INVALID_CONTEXT)?);
        Ok(())
    }

    fn cuCtxGetCurrent(_driver, context: Out<u64>) {
        context.put(current::top())
    }

    fn cuCtxGetDevice(driver, device: Out<c_int>) {
        device.put(driver.current()?.1 as c_int)
    }

    fn cuCtxSetLimit(driver, limit: c_int, value: usize) {
        // CU_LIMIT_STACK_SIZE
        match limit {
            0 => driver.set_stack(value as u64),
            _ => driver.current().map(drop),
        }
    }

    fn cuCtxSynchronize(driver) {
        driver.current()?;
        driver.synchronize();
        Ok(())
    }

    fn cuMemGetInfo_v2(driver, free: Out<usize>, total: Out<usize>) {
        let (left, all) = driver.info()?;
        free.put(left as usize)?;
        total.put(all as usize)
    }

    fn cuMemAlloc_v2(driver, address: Out<u64>, bytes: usize) {
        address.put(driver.direct(bytes as u64)?)
    }

    fn cuMemAllocPitch_v2(
        driver,
        address: Out<u64>,
        pitch: Out<usize>,
        width: usize,
        height: usize,
        element: c_uint,
    ) {
        if ![4, 8, 16].contains(&element) {
            return Err(INVALID_VALUE);
        }
        let row = width.next_multiple_of(512);
        let bytes = row.checked_mul(height).ok_or(OUT_OF_MEMORY)?;
        pitch.put(row)?;
        address.put(driver.direct(bytes as u64)?)
    }

    fn cuMemAllocManaged(driver, address: Out<u64>, bytes: usize, _flags: c_uint) {
        address.put(driver.managed(bytes as u64)?)
    }

    fn cuMemFree_v2(driver, address: u64) {
        driver.free(address)
    }

    fn cuMemAllocAsync(driver, address: Out<u64>, bytes: usize, _stream: u64) {
        let pool = driver.default_pool()?;
        address.put(driver.alloc_from_pool(pool, bytes as u64)?)
    }

    fn cuMemAllocAsync_ptsz(driver, address: Out<u64>, bytes: usize, _stream: u64) {
        let pool = driver.default_pool()?;
        address.put(driver.alloc_from_pool(pool, bytes as u64)?)
    }

    fn cuMemAllocFromPoolAsync(
        driver,
        address: Out<u64>,
        bytes: usize,
        pool: u64,
        _stream: u64,
    ) {
        address.put(driver.alloc_from_pool(pool, bytes as u64)?)
    }

    fn cuMemAllocFromPoolAsync_ptsz(
        driver,
        address: Out<u64>,
        bytes: usize,
        pool: u64,
        _stream: u64,
    ) {
        address.put(driver.alloc_from_pool(pool, bytes as u64)?)
    }

    fn cuMemFreeAsync(driver, address: u64, _stream: u64) {
        driver.free(address)
    }

    fn cuMemFreeAsync_ptsz(driver, address: u64, _stream: u64) {
        driver.free(address)
    }

    fn cuMemPoolCreate(driver, pool: Out<u64>, props: In<PoolProps>) {
        let props = props.get()?;
        if props.location.kind != LOCATION_DEVICE {
            return Err(INVALID_VALUE);
        }
        let device = driver.device(props.location.id)?;
        pool.put(driver.create_pool(device))
    }

    fn cuMemPoolDestroy(driver, pool: u64) {
        driver.destroy_pool(pool)
    }

    fn cuMemPoolSetAttribute(driver, pool: u64, attribute: c_int, value: In<u64>) {
        // CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        match attribute {
            4 => driver.keep_in_pool(pool, value.get()?),
            _ => Ok(()),
        }
    }

    fn cuMemPoolTrimTo(driver, pool: u64, keeps: usize) {
        driver.trim_pool(pool, keeps as u64)
    }

    fn cuMemCreate(
        driver,
        handle: Out<u64>,
        bytes: usize,
        prop: In<AllocationProp>,
        _flags: c_ulonglong,
    ) {
        let prop = prop.get()?;
        if prop.location.kind != LOCATION_DEVICE {
            return Err(INVALID_VALUE);
        }
        let device = driver.device(prop.location.id)?;
        driver.subject = Some(device);
        let bytes = bytes as u64;
        if bytes == 0 || !bytes.is_multiple_of(PIECE_BYTES) {
            return Err(INVALID_VALUE);
        }
        if bytes == hanging_bytes() {
            return Err(Refused::Never);
        }
        driver.room(device, bytes)?;
        let made = driver.handle();
        let number = u64::from(std::process::id()) << 32 | made & 0xffff_ffff;
        driver.vmm.add(made, device, bytes, number, false);
        handle.put(made)
    }

    fn cuMemRelease(driver, handle: u64) {
        driver.subject = driver.vmm.memory(handle).ok().map(|memory| memory.device);
        driver.vmm.release(handle)
    }

    fn cuMemRetainAllocationHandle(driver, handle: Out<u64>, address: u64) {
        handle.put(driver.vmm.retain_at(address)?)
    }

    fn cuMemAddressReserve(
        driver,
        address: Out<u64>,
        bytes: usize,
        _alignment: usize,
        _wish: u64,
        _flags: c_ulonglong,
    ) {
        if bytes == 0 || !(bytes as u64).is_multiple_of(PIECE_BYTES) {
            return Err(INVALID_VALUE);
        }
        let start = driver.address(bytes as u64);
        driver.vmm.reserve(start, bytes as u64);
        address.put(start)
    }

    fn cuMemAddressFree(driver, address: u64, bytes: usize) {
        driver.vmm.free_addresses(address, bytes as u64)?;
        driver.give_back(address, bytes as u64);
        Ok(())
    }

    fn cuMemMap(
        driver,
        address: u64,
        bytes: usize,
        offset: usize,
        handle: u64,
        _flags: c_ulonglong,
    ) {
        driver.subject = driver.vmm.memory(handle).ok().map(|memory| memory.device);
        driver.vmm.map(address, bytes as u64, offset as u64, handle)
    }

    fn cuMemUnmap(driver, address: u64, bytes: usize) {
        driver.subject = driver.vmm.device_at(address);
        driver.vmm.unmap(address, bytes as u64)
    }

    fn cuMemSetAccess(driver, address: u64, _bytes: usize, _access: In<u64>, _count: usize) {
        driver.vmm.device_at(address).map(drop).ok_or(INVALID_VALUE)
    }

    fn cuMemExportToShareableHandle(
        driver,
        shareable: Out<c_int>,
        handle: u64,
        kind: c_int,
        _flags: c_ulonglong,
    ) {
        // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        if kind != 1 {
            return Err(INVALID_VALUE);
        }
        let memory = driver.vmm.memory(handle)?;
        let words = [memory.device as u64, memory.bytes, memory.number];
        shareable.put(export(words).ok_or(OUT_OF_MEMORY)?)
    }

    fn cuMemImportFromShareableHandle(driver, handle: Out<u64>, shareable: u64, kind: c_int) {
        if kind != 1 {
            return Err(INVALID_VALUE);
        }
        let [device, bytes, number] = import(shareable).ok_or(INVALID_VALUE)?;
        let made = driver.handle();
        driver.vmm.add(made, device as usize, bytes, number, true);
        handle.put(made)
    }

    fn cuIpcGetMemHandle(driver, handle: Out<IpcHandle>, address: u64) {
        let object = driver.objects.get(&address).ok_or(INVALID_VALUE)?;
        if object.kind != Kind::Direct {
            return Err(INVALID_VALUE);
        }
        let pid = u64::from(std::process::id());
        let device = object.device.unwrap_or_default() as u64;
        handle.put(IpcHandle {
            words: [pid, address, object.bytes, device, 0, 0, 0, IPC_MARK],
        })
    }

    fn cuIpcOpenMemHandle_v2(driver, address: Out<u64>, handle: IpcHandle, _flags: c_uint) {
        let (context, device) = driver.current()?;
        let [pid, _, bytes, .., mark] = handle.words;
        if mark != IPC_MARK {
            return Err(INVALID_VALUE);
        }
        if pid == u64::from(std::process::id()) {
            return Err(INVALID_CONTEXT);
        }
        if let Some(opened) = driver.opened.get(&handle.words).copied()
            && let Some(object) = driver.objects.get_mut(&opened)
        {
            object.uses += 1;
            return address.put(opened);
        }
        let opened = driver.address(bytes.next_multiple_of(PIECE_BYTES));
        driver.opened.insert(handle.words, opened);
        let object = Object {
            kind: Kind::Ipc,
            device: Some(device),
            context: Some(context),
            bytes,
            taken: 0,
            uses: 1,
        };
        driver.objects.insert(opened, object);
        address.put(opened)
    }

    fn cuIpcCloseMemHandle(driver, address: u64) {
        let object = driver.objects.get_mut(&address).ok_or(INVALID_VALUE)?;
        if object.kind != Kind::Ipc {
            return Err(INVALID_VALUE);
        }
        driver.subject = object.device;
        object.uses -= 1;
        if object.uses == 0 {
            let bytes = object.bytes;
            driver.objects.remove(&address);
            driver.opened.retain(|_, opened| *opened != address);
            driver.give_back(address, bytes.next_multiple_of(PIECE_BYTES));
        }
        Ok(())
    }

    fn cuMemHostAlloc(driver, address: Out<u64>, bytes: usize, _flags: c_uint) {
        pinned(driver, address, bytes)
    }

    fn cuMemAllocHost_v2(driver, address: Out<u64>, bytes: usize) {
        pinned(driver, address, bytes)
    }

    fn cuMemFreeHost(driver, address: u64) {
        let object = driver.objects.get(&address).ok_or(INVALID_VALUE)?;
        let bytes = object.bytes as usize;
        driver.remove(address, &[Kind::Pinned])?;
        // SAFETY: the mapping was made by `pinned`, is as long, and is forgotten now.
        unsafe { libc::munmap(ptr::with_exposed_provenance_mut(address as usize), bytes) };
        Ok(())
    }

    fn cuMemHostRegister_v2(driver, address: u64, bytes: usize, _flags: c_uint) {
        driver.current()?;
        if address == 0 || bytes == 0 {
            return Err(INVALID_VALUE);
        }
        if driver.objects.contains_key(&address) {
            // CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
            return Err(Refused::With(712));
        }
        driver.insert(address, Kind::Registered, bytes as u64, 0);
        Ok(())
    }

    fn cuMemHostUnregister(driver, address: u64) {
        // CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED
        let gone = driver.remove(address, &[Kind::Registered]);
        gone.map_err(|_| Refused::With(713))
    }

    fn cuArrayCreate_v2(driver, array: Out<u64>, descriptor: In<ArrayDescriptor>) {
        let descriptor = Array3dDescriptor::from(descriptor.get()?);
        array.put(driver.array(descriptor.bytes(1)?)?)
    }

    fn cuArray3DCreate_v2(driver, array: Out<u64>, descriptor: In<Array3dDescriptor>) {
        array.put(driver.array(descriptor.get()?.bytes(1)?)?)
    }

    fn cuArrayDestroy(driver, array: u64) {
        driver.remove(array, &[Kind::Array])
    }

    fn cuMipmappedArrayCreate(
        driver,
        array: Out<u64>,
        descriptor: In<Array3dDescriptor>,
        levels: c_uint,
    ) {
        if levels == 0 {
            return Err(INVALID_VALUE);
        }
        array.put(driver.array(descriptor.get()?.bytes(levels)?)?)
    }

    fn cuMipmappedArrayDestroy(driver, array: u64) {
        driver.remove(array, &[Kind::Array])
    }

    fn cuLibraryLoadData(
        driver,
        library: Out<u64>,
        code: In<u8>,
        _jit_options: In<c_int>,
        _jit_values: In<u64>,
        _jit_count: c_uint,
        _options: In<c_int>,
        _values: In<u64>,
        _count: c_uint,
    ) {
        code.get()?;
        library.put(driver.code(Kind::Library)?)
    }

    fn cuLibraryUnload(driver, library: u64) {
        driver.remove(library, &[Kind::Library])
    }

    fn cuModuleLoadData(driver, module: Out<u64>, image: In<u8>) {
        image.get()?;
        driver.current()?;
        module.put(driver.code(Kind::Module)?)
    }

    fn cuModuleUnload(driver, module: u64) {
        driver.remove(module, &[Kind::Module])
    }

    fn cuGraphInstantiateWithFlags(
        driver,
        graph: Out<u64>,
        _from: u64,
        _flags: c_ulonglong,
    ) {
        driver.current()?;
        graph.put(driver.code(Kind::Graph)?)
    }

    fn cuGraphExecDestroy(driver, graph: u64) {
        driver.remove(graph, &[Kind::Graph])
    }

    fn cuGetProcAddress_v2(
        _driver,
        symbol: In<c_char>,
        function: Out<*const c_void>,
        version: c_int,
        flags: c_ulonglong,
        status: Out<c_int>,
    ) {
        symbol.get()?;
        // SAFETY: cuda.h asks for a text that ends in NUL; it is not null.
        let name = unsafe { CStr::from_ptr(ptr::with_exposed_provenance(symbol.address() as usize)) };
        let found = newest(&name.to_string_lossy(), version, flags);
        // CU_GET_PROC_ADDRESS_SUCCESS, or CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
        status.put_if_wanted(c_int::from(found.is_none()));
        function.put(found.unwrap_or(ptr::null()))?;
        found.map(drop).ok_or(NOT_FOUND)
    }
}

/// The last word of a handle for other processes.
const IPC_MARK: u64 = 0x6d65_6d74_7261_6365;

fn create_context(driver: &mut Driver, context: Out<u64>, device: c_int) -> Answer {
    let device = driver.device(device)?;
    let made = driver.create_context(device)?;
    current::push(made);
    context.put(made)
}

/// Host memory that the driver maps: shared, of no file, as it was seen.
fn pinned(driver: &mut Driver, address: Out<u64>, bytes: usize) -> Answer {
    driver.current()?;
    if bytes == 0 {
        return Err(INVALID_VALUE);
    }
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at a place of the kernel's choice replaces nothing.
    let start = unsafe { libc::mmap(ptr::null_mut(), bytes, rights, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(OUT_OF_MEMORY);
    }
    let start = start.expose_provenance() as u64;
    driver.insert(start, Kind::Pinned, bytes as u64, 0);
    address.put(start)
}

/// A file that stands for memory in another process.
fn export(words: [u64; 3]) -> Option<c_int> {
    // SAFETY: the name ends in NUL; the flags are the call's own.
    let fd = unsafe { libc::memfd_create(c"cuda".as_ptr(), 0) };
    if fd < 0 {
        return None;
    }
    // SAFETY: the descriptor was just opened, and nobody else knows it.
    let mut file = unsafe { File::from_raw_fd(fd) };
    for word in words {
        file.write_all(&word.to_le_bytes()).ok()?;
    }
    Some(file.into_raw_fd())
}

/// What such a file says; the descriptor stays the caller's.
fn import(fd: u64) -> Option<[u64; 3]> {
    // SAFETY: takes a number, and refuses what is no descriptor.
    let copy = unsafe { libc::dup(c_int::try_from(fd).ok()?) };
    if copy < 0 {
        return None;
    }
    // SAFETY: the descriptor was just opened, and nobody else knows it.
    let mut file = unsafe { File::from_raw_fd(copy) };
    file.rewind().ok()?;
    let mut words = [0; 3];
    for word in &mut words {
        let mut bytes = [0; 8];
        file.read_exact(&mut bytes).ok()?;
        *word = u64::from_le_bytes(bytes);
    }
    Some(words)
}

/// The newest version of a function that a version of CUDA has, as the exported symbol.
fn newest(name: &str, version: c_int, flags: c_ulonglong) -> Option<*const c_void> {
    // CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
    if flags & 2 != 0
        && let Some(found) = address(&format!("{name}_ptsz"))
    {
        return Some(found);
    }
    let newest = match (name, version) {
        // Came with CUDA 12.5.
        ("cuCtxCreate", ..12_050) => 3,
        _ => 4,
    };
    let versions = (2..=newest).rev();
    let mut names = versions.map(|version| format!("{name}_v{version}"));
    names
        .find_map(|name| address(&name))
        .or_else(|| address(name))
}

/// Writes what this process holds, as JSON, and gives its length; writes nothing where that is more
/// than there is room for.
#[unsafe(no_mangle)]
extern "C" fn memtrace_fake_cuda_held(place: *mut u8, room: usize) -> usize {
    let guard = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
    let held = guard.as_ref().map(Driver::held).unwrap_or_default();
    let text = serde_json::to_vec(&held).unwrap_or_default();
    if text.len() <= room && !place.is_null() {
        // SAFETY: the caller has so much room there.
        unsafe { place.copy_from_nonoverlapping(text.as_ptr(), text.len()) };
    }
    text.len()
}

/// From now on an allocation of exactly so many bytes never returns.
#[unsafe(no_mangle)]
extern "C" fn memtrace_fake_cuda_hang(bytes: u64) {
    HANGING_BYTES.store(bytes, Ordering::Relaxed);
}

/// The next call of this thread has done its work so many nanoseconds before it returns.
#[unsafe(no_mangle)]
extern "C" fn memtrace_fake_cuda_linger(time_ns: c_longlong) {
    LINGER.set(Duration::from_nanos(time_ns.unsigned_abs()));
}
