//! The map that keeps ends of processes while the ring is full, taken many at a time.

use super::error::LoadError;
use aya::maps::{Map, MapData};
use memtrace_abi::{Ended, EndedKey, names};
use memtrace_host::bpf;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use zerocopy::FromZeros;

const BPF_MAP_LOOKUP_AND_DELETE_BATCH: libc::c_long = 25;

/// Taken with one call. No bucket of the hash is nearly as long.
const BATCH: usize = 512;

pub(super) struct EndedMap(MapData);

impl EndedMap {
    pub(super) fn new(map: Option<Map>) -> Result<Self, LoadError> {
        match map {
            Some(Map::HashMap(data)) => Ok(Self(data)),
            _ => Err(LoadError::Absent(names::ENDED)),
        }
    }

    /// Moves everything out into `taken`, also what was moved before an error. What comes in
    /// meanwhile may stay.
    pub(super) fn take(&mut self, taken: &mut Vec<(EndedKey, Ended)>) -> io::Result<()> {
        let mut keys = vec![EndedKey::default(); BATCH];
        let mut values = vec![Ended::new_zeroed(); BATCH];
        let mut position = 0_u32;
        let mut is_first = true;
        loop {
            let here = (&raw mut position) as u64;
            let mut request = Batch {
                in_batch: if is_first { 0 } else { here },
                out_batch: here,
                keys: keys.as_mut_ptr() as u64,
                values: values.as_mut_ptr() as u64,
                count: BATCH as u32,
                map_fd: self.0.fd().as_fd().as_raw_fd().cast_unsigned(),
                element_flags: 0,
                flags: 0,
            };
            let outcome = bpf(BPF_MAP_LOOKUP_AND_DELETE_BATCH, &mut request);
            let is_last = match outcome {
                Ok(_) => false,
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => true,
                Err(error) => return Err(error),
            };
            let both = keys.iter().zip(&values).take(request.count as usize);
            taken.extend(both.map(|(key, value)| (*key, *value)));
            if is_last {
                return Ok(());
            }
            is_first = false;
        }
    }
}

/// The part of union bpf_attr that the batch commands take (5.6).
#[repr(C)]
struct Batch {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    element_flags: u64,
    flags: u64,
}
