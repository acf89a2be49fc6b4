//! Bytes from the ring to one event, or a counted error: exact length, known kind.

use memtrace_abi::event::{ARGS_MAX, PATH_MAX};
use memtrace_abi::{
    Comm, CudaCall, EventHeader, EventKind, Exec, Exit, Fork, FullTmpfs, Oom, Sample, VmCall,
    VmTotals,
};
use memtrace_model::BootNs;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// One event. The strings that follow some of them are slices of the ring.
#[derive(Debug, PartialEq)]
pub enum Event<'a> {
    /// A new process.
    Fork(Fork),
    /// A new program: the event, the file's name, the argument area.
    Exec(Exec, &'a [u8], &'a [u8]),
    /// The end of a process.
    Exit(Exit),
    /// A new name: the event and the argument area, which may hold a title.
    Comm(Comm, &'a [u8]),
    /// Memory of a process.
    Sample(Sample),
    /// A kill by the OOM killer.
    Oom(Oom),
    /// A page of a tmpfs could not be had.
    FullTmpfs(FullTmpfs),
    /// A call on an address space.
    VmCall(VmCall),
    /// What calls without an event add up to.
    VmTotals(VmTotals),
    /// A call of the CUDA driver.
    CudaCall(CudaCall),
}

impl Event<'_> {
    /// When it happened.
    pub(super) fn boot_ns(&self) -> u64 {
        let header = match self {
            Self::Fork(event) => &event.header,
            Self::Exec(event, ..) => &event.header,
            Self::Exit(event) => &event.header,
            Self::Comm(event, _) => &event.header,
            Self::Sample(event) => &event.header,
            Self::Oom(event) => &event.header,
            Self::FullTmpfs(event) => &event.header,
            Self::VmCall(event) => &event.header,
            Self::VmTotals(event) => &event.header,
            Self::CudaCall(event) => &event.header,
        };
        header.boot_ns
    }
}

/// The bytes are no event of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Shorter than the header that every event has.
    #[error("an event of {len} bytes is shorter than its header")]
    Short {
        /// The length of the event, in bytes.
        len: usize,
    },
    /// A kind that this version does not know.
    #[error("an event of unknown kind {kind}")]
    UnknownKind {
        /// The number of the kind.
        kind: u32,
    },
    /// The length is not that of its kind.
    #[error("an event of kind {kind} has {len} bytes")]
    Length {
        /// The number of the kind.
        kind: u32,
        /// The length of the event, in bytes.
        len: usize,
    },
}

/// Decodes exactly one event.
///
/// # Errors
/// When the bytes are too short, of an unknown kind, or not exactly as long as their kind.
pub fn decode(bytes: &[u8]) -> Result<Event<'_>, DecodeError> {
    let (header, _) = EventHeader::read_from_prefix(bytes)
        .map_err(|_| DecodeError::Short { len: bytes.len() })?;
    let kind = header.kind;
    let wrong_length = DecodeError::Length {
        kind,
        len: bytes.len(),
    };
    let event = match EventKind::from_u32(kind) {
        Some(EventKind::Fork) => Event::Fork(whole(bytes).ok_or(wrong_length)?),
        Some(EventKind::Exit) => Event::Exit(whole(bytes).ok_or(wrong_length)?),
        Some(EventKind::Sample) => Event::Sample(whole(bytes).ok_or(wrong_length)?),
        Some(EventKind::Oom) => Event::Oom(whole(bytes).ok_or(wrong_length)?),
        Some(EventKind::FullTmpfs) => Event::FullTmpfs(whole(bytes).ok_or(wrong_length)?),
        Some(EventKind::VmCall) => Event::VmCall(whole(bytes).ok_or(wrong_length)?),
        Some(EventKind::VmTotals) => Event::VmTotals(whole(bytes).ok_or(wrong_length)?),
        Some(EventKind::CudaCall) => Event::CudaCall(whole(bytes).ok_or(wrong_length)?),
        Some(EventKind::Exec) => {
            let (exec, strings) = Exec::read_from_prefix(bytes).map_err(|_| wrong_length)?;
            let (path_len, args_len) = (usize::from(exec.path_len), usize::from(exec.args_len));
            if path_len > PATH_MAX || args_len > ARGS_MAX || strings.len() != path_len + args_len {
                return Err(wrong_length);
            }
            let (path, args) = strings.split_at(path_len);
            Event::Exec(exec, path, args)
        }
        Some(EventKind::Comm) => {
            let (comm, args) = Comm::read_from_prefix(bytes).map_err(|_| wrong_length)?;
            if args.len() != comm.args_len as usize || args.len() > ARGS_MAX {
                return Err(wrong_length);
            }
            Event::Comm(comm, args)
        }
        // Samples with stacks have a ring of their own.
        Some(EventKind::StackSample | EventKind::StackCopy | EventKind::CudaStack) | None => {
            return Err(DecodeError::UnknownKind { kind });
        }
    };
    Ok(event)
}

fn whole<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8]) -> Option<T> {
    T::read_from_bytes(bytes).ok()
}

/// A time that the kernel reported.
pub(super) fn boot(ns: u64) -> BootNs {
    BootNs(ns.cast_signed())
}

/// A NUL-terminated name. What is not UTF-8 becomes U+FFFD.
pub(super) fn comm_text(bytes: &[u8]) -> String {
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use zerocopy::{FromZeros, IntoBytes};

    fn comm_event(title: &[u8]) -> Vec<u8> {
        let mut event = Comm::new_zeroed();
        event.header.kind = EventKind::Comm as u32;
        event.args_len = title.len() as u32;
        [event.as_bytes(), title].concat()
    }

    #[test]
    fn a_truncated_event_is_counted_not_decoded() {
        let mut sample = Sample::new_zeroed();
        sample.header.kind = EventKind::Sample as u32;
        let bytes = sample.as_bytes();
        assert_eq!(decode(bytes), Ok(Event::Sample(sample)));
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len]).is_err(), "{len} bytes decoded");
        }
    }

    #[test]
    fn an_event_with_bytes_to_spare_is_not_decoded() {
        let mut bytes = comm_event(b"ray::IDLE");
        assert!(decode(&bytes).is_ok());
        bytes.push(0);
        assert!(matches!(decode(&bytes), Err(DecodeError::Length { .. })));
    }

    #[test]
    fn an_unknown_kind_is_named() {
        let mut bytes = comm_event(b"");
        bytes[..4].copy_from_slice(&77_u32.to_ne_bytes());
        assert_eq!(decode(&bytes), Err(DecodeError::UnknownKind { kind: 77 }));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..9000)) {
            let _ = decode(&bytes);
        }

        #[test]
        fn damaged_events_never_panic(
            kind in 0u32..10,
            mut bytes in proptest::collection::vec(any::<u8>(), 24..600),
        ) {
            bytes[..4].copy_from_slice(&kind.to_ne_bytes());
            let _ = decode(&bytes);
        }
    }
}
