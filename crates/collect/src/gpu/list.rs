//! The lists of processes: three calls, one entry for each process.
//!
//! nvml-wrapper asks each list twice, for its length and for its entries; here the slow call
//! is made once, into a buffer that is kept, so the C functions are called directly.

use nvml_wrapper_sys::bindings::{
    NvmlLib, nvmlDevice_t, nvmlProcessInfo_t,
    nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND as FUNCTION_NOT_FOUND,
    nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE as INSUFFICIENT_SIZE,
    nvmlReturn_enum_NVML_SUCCESS as SUCCESS, nvmlReturn_t,
};
use std::ffi::c_uint;

/// What NVML writes for "not available".
const NO_AMOUNT: u64 = u64::MAX;
/// What it writes for no MIG instance.
const NO_INSTANCE: u32 = u32::MAX;
/// Linux gives no higher ids (PID_MAX_LIMIT).
const PID_MAX: u32 = 1 << 22;
/// Room for so many at first; they can grow between two calls.
const FIRST_CAPACITY: usize = 64;
/// More is no list of processes.
const CAPACITY_MAX: usize = 1 << 16;
/// Fills the buffer before a call, so that it shows what was written.
const UNTOUCHED: u64 = 0x6d65_6d74_7261_6365;
/// An entry in words of 8 bytes: pid, used memory, two ids.
const WORDS: usize = 3;
/// Early drivers of the series 535 append a fourth word under the same name of the function
/// (XuehaiPan/nvitop#75). The buffer always has room for it.
const WORDS_MAX: usize = 4;

type Call = unsafe extern "C" fn(nvmlDevice_t, *mut c_uint, *mut nvmlProcessInfo_t) -> nvmlReturn_t;

/// One of the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    Compute,
    Graphics,
    Mps,
}

impl List {
    pub(super) const ALL: [Self; 3] = [Self::Compute, Self::Graphics, Self::Mps];

    /// The call's name, less the version.
    pub(super) fn call(self) -> &'static str {
        match self {
            Self::Compute => "nvmlDeviceGetComputeRunningProcesses",
            Self::Graphics => "nvmlDeviceGetGraphicsRunningProcesses",
            Self::Mps => "nvmlDeviceGetMPSComputeRunningProcesses",
        }
    }
}

/// A process in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) pid: u32,
    /// In bytes; `None` when not available.
    pub(super) used: Option<u64>,
    pub(super) gpu_instance: Option<u32>,
    pub(super) compute_instance: Option<u32>,
}

/// One list of a library: the newest version of the call that it has.
#[derive(Debug)]
pub(super) struct ListCall {
    newest: Option<Call>,
    older: Option<Call>,
}

impl ListCall {
    pub(super) fn of(library: &NvmlLib, list: List) -> Self {
        let (newest, older) = match list {
            List::Compute => (
                &library.nvmlDeviceGetComputeRunningProcesses_v3,
                &library.nvmlDeviceGetComputeRunningProcesses_v2,
            ),
            List::Graphics => (
                &library.nvmlDeviceGetGraphicsRunningProcesses_v3,
                &library.nvmlDeviceGetGraphicsRunningProcesses_v2,
            ),
            List::Mps => (
                &library.nvmlDeviceGetMPSComputeRunningProcesses_v3,
                &library.nvmlDeviceGetMPSComputeRunningProcesses_v2,
            ),
        };
        let found = |call: &Result<Call, _>| call.as_ref().ok().copied();
        Self {
            newest: found(newest),
            older: found(older),
        }
    }

    /// The version that is called; `None` when the library has none.
    pub(super) fn version(&self) -> Option<u32> {
        match (self.newest, self.older) {
            (Some(_), _) => Some(3),
            (None, Some(_)) => Some(2),
            (None, None) => None,
        }
    }

    /// Asks. An error is NVML's code.
    ///
    /// # Safety
    /// `device` is a handle of the library that this is of, which has not been shut down.
    pub(super) unsafe fn ask(
        &mut self,
        device: nvmlDevice_t,
        buffer: &mut Buffer,
    ) -> Result<Vec<Entry>, nvmlReturn_t> {
        loop {
            let Some(call) = self.newest.or(self.older) else {
                return Err(FUNCTION_NOT_FOUND);
            };
            // SAFETY: the caller's promise; both versions have the same layout.
            match unsafe { buffer.ask(call, device) } {
                // The name can be there without the function behind it.
                Err(FUNCTION_NOT_FOUND) if self.newest.is_some() && self.older.is_some() => {
                    self.newest = None;
                }
                answer => return answer,
            }
        }
    }
}

/// Room for the answers of all lists.
#[derive(Debug)]
pub(super) struct Buffer(Vec<u64>);

impl Default for Buffer {
    fn default() -> Self {
        Self(vec![UNTOUCHED; FIRST_CAPACITY * WORDS_MAX])
    }
}

impl Buffer {
    fn capacity(&self) -> usize {
        self.0.len() / WORDS_MAX
    }

    /// # Safety
    /// As for [`ListCall::ask`]; `call` is one of the library's.
    unsafe fn ask(&mut self, call: Call, device: nvmlDevice_t) -> Result<Vec<Entry>, nvmlReturn_t> {
        loop {
            self.0.fill(UNTOUCHED);
            let mut count = c_uint::try_from(self.capacity()).unwrap_or(c_uint::MAX);
            // SAFETY: the buffer has room for `count` entries of the largest layout known and
            // the alignment of the struct; `device` is the caller's promise.
            let code = unsafe { call(device, &raw mut count, self.0.as_mut_ptr().cast()) };
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            if code == INSUFFICIENT_SIZE && self.capacity() < CAPACITY_MAX {
                // There can be more by the next call.
                let wanted = count.saturating_add(8).max(self.capacity() * 2);
                self.0
                    .resize(wanted.min(CAPACITY_MAX) * WORDS_MAX, UNTOUCHED);
                continue;
            }
            if code != SUCCESS {
                return Err(code);
            }
            return Ok(entries(&self.0, count.min(self.capacity())));
        }
    }
}

/// Takes `count` entries out of what a call wrote.
fn entries(words: &[u64], count: usize) -> Vec<Entry> {
    let read = |stride: usize| -> Vec<Entry> {
        words.chunks_exact(stride).take(count).map(entry).collect()
    };
    let is_plausible = |entries: &[Entry]| {
        let mut pids = entries.iter().map(|entry| entry.pid);
        pids.all(|pid| (1..=PID_MAX).contains(&pid))
    };
    let found = read(WORDS);
    let behind = words.get(count * WORDS..count * WORDS_MAX);
    let is_longer = behind.is_some_and(|behind| behind.iter().any(|word| *word != UNTOUCHED));
    if is_longer && !is_plausible(&found) {
        let longer = read(WORDS_MAX);
        if is_plausible(&longer) {
            return longer;
        }
    }
    found
}

/// The fields of `nvmlProcessInfo_t`, which are at fixed places of native words.
fn entry(words: &[u64]) -> Entry {
    let word = |place: usize| words.get(place).copied().unwrap_or(0).to_ne_bytes();
    let half = |place: usize, half: usize| {
        let [a, b, c, d, e, f, g, h] = word(place);
        u32::from_ne_bytes(if half == 0 {
            [a, b, c, d]
        } else {
            [e, f, g, h]
        })
    };
    let instance = |id: u32| (id != NO_INSTANCE).then_some(id);
    let used = u64::from_ne_bytes(word(1));
    Entry {
        pid: half(0, 0),
        used: (used != NO_AMOUNT).then_some(used),
        gpu_instance: instance(half(2, 0)),
        compute_instance: instance(half(2, 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list as a driver writes it, in entries of so many words.
    fn written(entries: &[(u32, u64)], stride: usize) -> Vec<u64> {
        let mut words = vec![UNTOUCHED; FIRST_CAPACITY * WORDS_MAX];
        for ((pid, used), words) in entries.iter().zip(words.chunks_exact_mut(stride)) {
            words.fill(0);
            words[0] = u64::from(*pid);
            words[1] = *used;
            words[2] = u64::MAX;
        }
        words
    }

    #[test]
    fn the_struct_is_laid_out_as_its_header_says() {
        assert_eq!(size_of::<nvmlProcessInfo_t>(), WORDS * 8);
        assert_eq!(std::mem::offset_of!(nvmlProcessInfo_t, usedGpuMemory), 8);
        assert_eq!(std::mem::offset_of!(nvmlProcessInfo_t, gpuInstanceId), 16);
        assert_eq!(
            std::mem::offset_of!(nvmlProcessInfo_t, computeInstanceId),
            20
        );
    }

    #[test]
    fn entries_with_a_fourth_word_are_distinguished_from_those_without() {
        let list = [(4_711, 1 << 30), (22_000, NO_AMOUNT), (12, 0)];
        for stride in [WORDS, WORDS_MAX] {
            let found = entries(&written(&list, stride), list.len());
            let found: Vec<_> = found.iter().map(|entry| (entry.pid, entry.used)).collect();
            let expected = [(4_711, Some(1 << 30)), (22_000, None), (12, Some(0))];
            assert_eq!(found, expected, "{stride} words");
        }
    }

    #[test]
    fn instances_are_unknown_without_mig() {
        let mut words = written(&[(1, 2)], WORDS);
        assert_eq!(entries(&words, 1)[0].gpu_instance, None);
        words[2] = u64::from_ne_bytes([7, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(entries(&words, 1)[0].gpu_instance, Some(7));
        assert_eq!(entries(&words, 1)[0].compute_instance, Some(1));
    }

    #[test]
    fn a_count_beyond_the_buffer_reads_no_further() {
        assert_eq!(entries(&[], 5), []);
        assert_eq!(entries(&written(&[(1, 2)], WORDS), 1 << 20).len(), 85);
    }
}
