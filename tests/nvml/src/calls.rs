//! The C functions.
//!
//! Handles are numbers: 1 + the index of a device, and 1,000 × that + 1 + the index of a MIG
//! instance. They are never followed.

use crate::SCRIPT_VARIABLE;
use crate::script::{Device, NOT_SUPPORTED, Process, Script};
use nvml_wrapper_sys::bindings::{
    nvmlAccountingStats_t, nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlProcessInfo_t,
    nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE as INSUFFICIENT_SIZE,
    nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT as INVALID_ARGUMENT,
    nvmlReturn_enum_NVML_ERROR_NOT_FOUND as NOT_FOUND, nvmlReturn_enum_NVML_SUCCESS as SUCCESS,
    nvmlReturn_t, nvmlUtilization_t,
};
use std::ffi::{c_char, c_int, c_uint};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

const INSTANCES: usize = 1_000;
/// The version that memtrace must ask for: the struct's size and the number 2.
const MEMORY_V2: u32 = (size_of::<nvmlMemory_v2_t>() | 2 << 24) as u32;

#[derive(Default)]
struct State {
    script: Script,
    read_at: Option<SystemTime>,
    sudden_reported: Vec<usize>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

/// Runs a call of that name on the script as it is now, or fails as the script says.
fn call(name: &str, answer: impl FnOnce(&mut State) -> Result<(), nvmlReturn_t>) -> nvmlReturn_t {
    let mut guard = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    let state = guard.get_or_insert_default();
    refresh(state);
    if let Some(micros) = state.script.slow_us.get(name) {
        take(Duration::from_micros(*micros));
    }
    if let Some(code) = state.script.fail.get(name) {
        return *code;
    }
    answer(state).err().unwrap_or(SUCCESS)
}

/// Takes a time: a short one without giving up the CPU, for that would take longer.
fn take(time: Duration) {
    if time >= Duration::from_millis(1) {
        return std::thread::sleep(time);
    }
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn refresh(state: &mut State) {
    let Some(path) = std::env::var_os(SCRIPT_VARIABLE) else {
        return;
    };
    let changed = std::fs::metadata(&path)
        .and_then(|file| file.modified())
        .ok();
    if changed.is_none() || changed == state.read_at {
        return;
    }
    let text = std::fs::read(&path).ok();
    if let Some(script) = text.and_then(|text| serde_json::from_slice(&text).ok()) {
        state.script = script;
        state.read_at = changed;
    }
}

fn index(handle: nvmlDevice_t) -> usize {
    handle.addr()
}

fn device(state: &State, handle: nvmlDevice_t) -> Result<&Device, nvmlReturn_t> {
    let number = index(handle);
    let found = match number.checked_div(INSTANCES) {
        Some(0) | None => state.script.devices.get(number.wrapping_sub(1)),
        Some(parent) => state
            .script
            .devices
            .get(parent - 1)
            .and_then(|parent| parent.instances.get((number % INSTANCES).wrapping_sub(1))),
    };
    found.ok_or(INVALID_ARGUMENT)
}

/// Runs a call on a device.
fn on_device(
    name: &str,
    handle: nvmlDevice_t,
    answer: impl FnOnce(&Device) -> Result<(), nvmlReturn_t>,
) -> nvmlReturn_t {
    call(name, |state| {
        let device = device(state, handle)?;
        match device.fail.get(name) {
            Some(code) => Err(*code),
            None => answer(device),
        }
    })
}

/// Writes through a pointer of the caller's.
///
/// # Safety
/// `place` is null, or may be written to.
unsafe fn put<T>(place: *mut T, value: T) -> Result<(), nvmlReturn_t> {
    if place.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: the caller's promise.
    unsafe { place.write(value) };
    Ok(())
}

/// Writes a text with its NUL.
///
/// # Safety
/// `place` has room for `length` bytes.
unsafe fn put_text(text: &str, place: *mut c_char, length: c_uint) -> Result<(), nvmlReturn_t> {
    if text.len() >= length as usize {
        return Err(INSUFFICIENT_SIZE);
    }
    // SAFETY: there is room for the text and the NUL, by the check above.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), place, text.len());
        place.add(text.len()).write(0);
    }
    Ok(())
}

/// Writes a list of processes.
///
/// # Safety
/// `entries` has room for `*count` entries, of 32 bytes where the script has long ones.
unsafe fn put_list(
    name: &str,
    handle: nvmlDevice_t,
    of: fn(&Device) -> &Vec<Process>,
    count: *mut c_uint,
    entries: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    call(name, |state| {
        let sudden = device(state, handle)?.sudden_processes;
        if sudden > 0 && !state.sudden_reported.contains(&index(handle)) {
            state.sudden_reported.push(index(handle));
            // SAFETY: the caller's count can be read and written.
            unsafe { *count += sudden };
            return Err(INSUFFICIENT_SIZE);
        }
        let device = device(state, handle)?;
        if let Some(code) = device.fail.get(name) {
            return Err(*code);
        }
        let list = of(device);
        // SAFETY: the caller's count can be read.
        let room = unsafe { count.read() } as usize;
        // SAFETY: and written.
        unsafe { put(count, c_uint::try_from(list.len()).unwrap_or(c_uint::MAX))? };
        if list.len() > room || (entries.is_null() && !list.is_empty()) {
            return Err(INSUFFICIENT_SIZE);
        }
        let stride = if device.has_long_entries { 4 } else { 3 };
        for (place, process) in list.iter().enumerate() {
            let (gpu, compute) = process.instance.unwrap_or((u32::MAX, u32::MAX));
            // SAFETY: within the room that the caller has promised.
            unsafe {
                let entry = entries.cast::<u64>().add(place * stride);
                put(
                    entry.cast(),
                    nvmlProcessInfo_t {
                        pid: process.pid,
                        usedGpuMemory: process.used.unwrap_or(u64::MAX),
                        gpuInstanceId: gpu,
                        computeInstanceId: compute,
                    },
                )?;
                if stride == 4 {
                    put(entry.add(3), 0)?;
                }
            }
        }
        Ok(())
    })
}

/// Declares C functions: they hand over to safe code what their caller promises.
macro_rules! functions {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $body:block)+) => {
        $(
            #[doc = concat!("As in nvml.h.\n\n# Safety\nPointers are valid for what nvml.h says of `", stringify!($name), "`.")]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> nvmlReturn_t $body
        )+
    };
}

functions! {
    fn nvmlInit_v2() {
        call("nvmlInit_v2", |_| Ok(()))
    }
    fn nvmlShutdown() {
        call("nvmlShutdown", |_| Ok(()))
    }
    fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) {
        // SAFETY: the caller's promise.
        call("nvmlSystemGetDriverVersion", |_| unsafe { put_text("999.01", version, length) })
    }
    fn nvmlDeviceGetCount_v2(count: *mut c_uint) {
        call("nvmlDeviceGetCount_v2", |state| {
            // SAFETY: the caller's promise.
            unsafe { put(count, c_uint::try_from(state.script.devices.len()).unwrap_or(0)) }
        })
    }
    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, handle: *mut nvmlDevice_t) {
        call("nvmlDeviceGetHandleByIndex_v2", |state| {
            if index as usize >= state.script.devices.len() {
                return Err(INVALID_ARGUMENT);
            }
            // SAFETY: the caller's promise.
            unsafe { put(handle, std::ptr::without_provenance_mut(index as usize + 1)) }
        })
    }
    fn nvmlDeviceGetUUID(handle: nvmlDevice_t, uuid: *mut c_char, length: c_uint) {
        on_device("nvmlDeviceGetUUID", handle, |device| {
            // SAFETY: the caller's promise.
            unsafe { put_text(&device.uuid, uuid, length) }
        })
    }
    fn nvmlDeviceGetName(handle: nvmlDevice_t, name: *mut c_char, length: c_uint) {
        on_device("nvmlDeviceGetName", handle, |device| {
            // SAFETY: the caller's promise.
            unsafe { put_text(&device.name, name, length) }
        })
    }
    fn nvmlDeviceGetMinorNumber(handle: nvmlDevice_t, minor: *mut c_uint) {
        on_device("nvmlDeviceGetMinorNumber", handle, |device| {
            // SAFETY: the caller's promise.
            unsafe { put(minor, device.minor) }
        })
    }
    fn nvmlDeviceGetNumaNodeId(handle: nvmlDevice_t, node: *mut c_uint) {
        on_device("nvmlDeviceGetNumaNodeId", handle, |device| {
            // SAFETY: the caller's promise.
            unsafe { put(node, device.numa_node.ok_or(NOT_SUPPORTED)?) }
        })
    }
    fn nvmlDeviceGetMemoryInfo(handle: nvmlDevice_t, info: *mut nvmlMemory_t) {
        on_device("nvmlDeviceGetMemoryInfo", handle, |device| {
            let memory = device.memory.ok_or(NOT_SUPPORTED)?;
            let (total, free) = (memory.total, memory.free());
            // SAFETY: the caller's promise.
            unsafe { put(info, nvmlMemory_t { total, free, used: total - free }) }
        })
    }
    fn nvmlDeviceGetMemoryInfo_v2(handle: nvmlDevice_t, info: *mut nvmlMemory_v2_t) {
        on_device("nvmlDeviceGetMemoryInfo_v2", handle, |device| {
            let memory = device.memory.filter(|memory| memory.has_v2).ok_or(NOT_SUPPORTED)?;
            // SAFETY: the caller's promise.
            if unsafe { (*info).version } != MEMORY_V2 {
                return Err(INVALID_ARGUMENT);
            }
            let reserved = if memory.is_reserved_in_used { memory.reserved } else { 0 };
            let shown = nvmlMemory_v2_t {
                version: MEMORY_V2,
                total: memory.total,
                reserved: memory.reserved,
                free: memory.free(),
                used: memory.used + reserved,
            };
            // SAFETY: the caller's promise.
            unsafe { put(info, shown) }
        })
    }
    fn nvmlDeviceGetUtilizationRates(handle: nvmlDevice_t, rates: *mut nvmlUtilization_t) {
        on_device("nvmlDeviceGetUtilizationRates", handle, |device| {
            let gpu = device.utilization.ok_or(NOT_SUPPORTED)?;
            // SAFETY: the caller's promise.
            unsafe { put(rates, nvmlUtilization_t { gpu, memory: 0 }) }
        })
    }
    fn nvmlDeviceGetComputeRunningProcesses_v2(handle: nvmlDevice_t, count: *mut c_uint, infos: *mut nvmlProcessInfo_t) {
        // SAFETY: the caller's promise.
        unsafe { put_list("nvmlDeviceGetComputeRunningProcesses_v2", handle, |device| &device.compute, count, infos) }
    }
    fn nvmlDeviceGetComputeRunningProcesses_v3(handle: nvmlDevice_t, count: *mut c_uint, infos: *mut nvmlProcessInfo_t) {
        // SAFETY: the caller's promise.
        unsafe { put_list("nvmlDeviceGetComputeRunningProcesses_v3", handle, |device| &device.compute, count, infos) }
    }
    fn nvmlDeviceGetGraphicsRunningProcesses_v2(handle: nvmlDevice_t, count: *mut c_uint, infos: *mut nvmlProcessInfo_t) {
        // SAFETY: the caller's promise.
        unsafe { put_list("nvmlDeviceGetGraphicsRunningProcesses_v2", handle, |device| &device.graphics, count, infos) }
    }
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(handle: nvmlDevice_t, count: *mut c_uint, infos: *mut nvmlProcessInfo_t) {
        // SAFETY: the caller's promise.
        unsafe { put_list("nvmlDeviceGetGraphicsRunningProcesses_v3", handle, |device| &device.graphics, count, infos) }
    }
    fn nvmlDeviceGetMPSComputeRunningProcesses_v2(handle: nvmlDevice_t, count: *mut c_uint, infos: *mut nvmlProcessInfo_t) {
        // SAFETY: the caller's promise.
        unsafe { put_list("nvmlDeviceGetMPSComputeRunningProcesses_v2", handle, |device| &device.mps, count, infos) }
    }
    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(handle: nvmlDevice_t, count: *mut c_uint, infos: *mut nvmlProcessInfo_t) {
        // SAFETY: the caller's promise.
        unsafe { put_list("nvmlDeviceGetMPSComputeRunningProcesses_v3", handle, |device| &device.mps, count, infos) }
    }
    fn nvmlDeviceGetMigMode(handle: nvmlDevice_t, current: *mut c_uint, pending: *mut c_uint) {
        on_device("nvmlDeviceGetMigMode", handle, |device| {
            let mode = c_uint::from(!device.instances.is_empty());
            // SAFETY: the caller's promise.
            unsafe {
                put(current, mode)?;
                put(pending, mode)
            }
        })
    }
    fn nvmlDeviceGetMaxMigDeviceCount(handle: nvmlDevice_t, count: *mut c_uint) {
        // One place more than there are instances.
        on_device("nvmlDeviceGetMaxMigDeviceCount", handle, |device| {
            // SAFETY: the caller's promise.
            unsafe { put(count, c_uint::try_from(device.instances.len()).unwrap_or(0) + 1) }
        })
    }
    fn nvmlDeviceGetMigDeviceHandleByIndex(handle: nvmlDevice_t, place: c_uint, instance: *mut nvmlDevice_t) {
        on_device("nvmlDeviceGetMigDeviceHandleByIndex", handle, |device| {
            if place as usize >= device.instances.len() {
                return Err(NOT_FOUND);
            }
            let number = index(handle) * INSTANCES + place as usize + 1;
            // SAFETY: the caller's promise.
            unsafe { put(instance, std::ptr::without_provenance_mut(number)) }
        })
    }
    fn nvmlDeviceGetAccountingMode(handle: nvmlDevice_t, mode: *mut c_uint) {
        on_device("nvmlDeviceGetAccountingMode", handle, |device| {
            // SAFETY: the caller's promise.
            unsafe { put(mode, c_uint::from(device.accounting.is_some())) }
        })
    }
    fn nvmlDeviceGetAccountingPids(handle: nvmlDevice_t, count: *mut c_uint, pids: *mut c_uint) {
        on_device("nvmlDeviceGetAccountingPids", handle, |device| {
            let accounted = device.accounting.as_deref().ok_or(NOT_SUPPORTED)?;
            // SAFETY: the caller's promise.
            let room = unsafe { count.read() } as usize;
            // SAFETY: the same.
            unsafe { put(count, c_uint::try_from(accounted.len()).unwrap_or(0))? };
            if accounted.len() > room || pids.is_null() {
                return Err(INSUFFICIENT_SIZE);
            }
            for (place, process) in accounted.iter().enumerate() {
                // SAFETY: there is room, by the check above.
                unsafe { put(pids.add(place), process.pid)? };
            }
            Ok(())
        })
    }
    fn nvmlDeviceGetAccountingStats(handle: nvmlDevice_t, pid: c_uint, stats: *mut nvmlAccountingStats_t) {
        on_device("nvmlDeviceGetAccountingStats", handle, |device| {
            let accounted = device.accounting.as_deref().ok_or(NOT_SUPPORTED)?;
            let process = accounted.iter().find(|process| process.pid == pid);
            let process = process.ok_or(NOT_FOUND)?;
            // SAFETY: the caller's promise.
            unsafe {
                put(stats, nvmlAccountingStats_t {
                    gpuUtilization: 0,
                    memoryUtilization: 0,
                    maxMemoryUsage: process.peak,
                    time: u64::from(!process.is_running),
                    startTime: process.start_us,
                    isRunning: c_uint::from(process.is_running),
                    reserved: [0; 5],
                })
            }
        })
    }
}

/// As in nvml.h; nobody here asks for words.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(_code: c_int) -> *const c_char {
    c"a scripted error".as_ptr()
}
