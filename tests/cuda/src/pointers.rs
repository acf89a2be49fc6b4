//! Pointers of the caller, and structures of cuda.h.

use crate::driver::{Answer, INVALID_VALUE, Refused};
use std::ffi::{c_int, c_uint};

/// Where a caller wants an answer.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes the answer, and refuses null.
    pub(crate) fn put(self, value: T) -> Answer {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: cuda.h asks the caller for a place of this type, or null.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Writes the answer where the caller wants one.
    pub(crate) fn put_if_wanted(self, value: T) {
        let _ = self.put(value);
    }
}

/// What a caller hands in by its address.
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// Reads it, and refuses null.
    pub(crate) fn get(&self) -> Result<T, Refused> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: cuda.h asks the caller for the address of such a value, or null.
        Ok(unsafe { self.0.read() })
    }

    /// The address itself.
    pub(crate) fn address(&self) -> u64 {
        self.0 as u64
    }
}

/// CUmemLocation of cuda.h.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Location {
    pub(crate) kind: c_int,
    pub(crate) id: c_int,
}

/// CU_MEM_LOCATION_TYPE_DEVICE of cuda.h.
pub(crate) const LOCATION_DEVICE: c_int = 1;

/// CUmemAllocationProp of cuda.h.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct AllocationProp {
    pub(crate) kind: c_int,
    pub(crate) handle_types: c_int,
    pub(crate) location: Location,
    pub(crate) metadata: u64,
    pub(crate) flags: [u8; 8],
}

/// CUmemPoolProps of cuda.h.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct PoolProps {
    pub(crate) kind: c_int,
    pub(crate) handle_types: c_int,
    pub(crate) location: Location,
    pub(crate) security: u64,
    pub(crate) max_size: usize,
    pub(crate) usage: u16,
    pub(crate) reserved: [u8; 54],
}

/// CUDA_ARRAY_DESCRIPTOR of cuda.h.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ArrayDescriptor {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) format: c_uint,
    pub(crate) channels: c_uint,
}

/// CUDA_ARRAY3D_DESCRIPTOR of cuda.h.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Array3dDescriptor {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    pub(crate) format: c_uint,
    pub(crate) channels: c_uint,
    pub(crate) flags: c_uint,
}

impl Array3dDescriptor {
    /// The bytes of the elements, of so many levels of which each is half as wide, high and deep.
    pub(crate) fn bytes(&self, levels: u32) -> Result<u64, Refused> {
        let element = match self.format {
            0x01 | 0x08 => 1,
            0x02 | 0x09 | 0x10 => 2,
            0x03 | 0x0a | 0x20 => 4,
            _ => return Err(INVALID_VALUE),
        } * u64::from(self.channels);
        let side = |length: usize, level: u32| (length as u64 >> level).max(1);
        let of_level = |level: u32| {
            side(self.width, level) * side(self.height, level) * side(self.depth, level) * element
        };
        match self.width {
            0 => Err(INVALID_VALUE),
            _ => Ok((0..levels.min(63)).map(of_level).sum()),
        }
    }
}

impl From<ArrayDescriptor> for Array3dDescriptor {
    fn from(flat: ArrayDescriptor) -> Self {
        Self {
            width: flat.width,
            height: flat.height,
            depth: 0,
            format: flat.format,
            channels: flat.channels,
            flags: 0,
        }
    }
}

/// CUipcMemHandle of cuda.h; it is passed by value.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct IpcHandle {
    pub(crate) words: [u64; 8],
}
