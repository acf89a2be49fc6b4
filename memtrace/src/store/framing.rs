//! Finds the complete messages of an Arrow IPC stream before arrow sees a byte of it.
//!
//! arrow's stream reader trusts the lengths it meets: a damaged one makes it allocate
//! what it says, and an incomplete last message is the same error to it as damage. So the
//! frame around each message is checked here against the size of the file, and only a
//! message that is wholly there is decoded.
//!
//! The frame: `FF FF FF FF`, i32 length of the metadata, the metadata (a flatbuffer that
//! holds the length of the body), the body. A length of zero ends the stream.

use arrow_ipc::root_as_message;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// The metadata of our messages takes some KiB: the docs of a table's columns.
const MAX_METADATA_BYTES: u64 = 1 << 20;
/// Batches are flushed well below 1 MiB; one row alone can make a larger one.
const MAX_BODY_BYTES: u64 = 1 << 28;
const PREFIX_BYTES: u64 = 8;
const CONTINUATION: [u8; 4] = [0xFF; 4];

/// Bytes that can be read from any position.
pub(super) trait ReadAt {
    /// Fills `buffer` from the bytes that start `at` bytes from the beginning.
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()>;
}

impl ReadAt for File {
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, buffer, at)
    }
}

impl ReadAt for [u8] {
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let start = usize::try_from(at).unwrap_or(usize::MAX);
        let wanted = start..start.saturating_add(buffer.len());
        match self.get(wanted) {
            Some(bytes) => {
                buffer.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl<T: ReadAt + ?Sized> ReadAt for &T {
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        (**self).read_exact_at(buffer, at)
    }
}

/// What stands at a position of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// A complete message.
    Message {
        /// The checked flatbuffer.
        metadata: Vec<u8>,
        /// Where its body is in the file.
        body: Range<u64>,
    },
    /// The end of the stream, marked or not.
    End,
    /// The beginning of a message of which the rest is not in the file.
    Truncated,
    /// Something that is no message.
    Damaged(String),
}

/// Looks at the message that starts at byte `at` of a stream of `len` bytes.
///
/// # Errors
/// When the file can't be read.
pub(super) fn frame_at(file: &impl ReadAt, at: u64, len: u64) -> io::Result<Frame> {
    let remaining = len.saturating_sub(at);
    if remaining == 0 {
        return Ok(Frame::End);
    }
    if remaining < PREFIX_BYTES {
        return Ok(Frame::Truncated);
    }
    let mut prefix = [0; PREFIX_BYTES as usize];
    file.read_exact_at(&mut prefix, at)?;
    let [c0, c1, c2, c3, l0, l1, l2, l3] = prefix;
    if [c0, c1, c2, c3] != CONTINUATION {
        return Ok(Frame::Damaged("no message starts here".to_owned()));
    }
    let metadata_len = u64::from(u32::from_le_bytes([l0, l1, l2, l3]));
    if metadata_len == 0 {
        return Ok(Frame::End);
    }
    if metadata_len > MAX_METADATA_BYTES {
        return Ok(Frame::Damaged(format!(
            "a message with {metadata_len} bytes of metadata"
        )));
    }
    if remaining - PREFIX_BYTES < metadata_len {
        return Ok(Frame::Truncated);
    }
    let mut metadata = vec![0; metadata_len as usize];
    file.read_exact_at(&mut metadata, at + PREFIX_BYTES)?;
    let body_len = match root_as_message(&metadata) {
        Ok(message) => message.bodyLength(),
        Err(error) => return Ok(Frame::Damaged(format!("bad metadata: {error}"))),
    };
    let body_start = at + PREFIX_BYTES + metadata_len;
    match u64::try_from(body_len) {
        Ok(body_len) if body_len > len - body_start && body_len <= MAX_BODY_BYTES => {
            Ok(Frame::Truncated)
        }
        Ok(body_len) if body_len <= MAX_BODY_BYTES => Ok(Frame::Message {
            metadata,
            body: body_start..body_start + body_len,
        }),
        _ => Ok(Frame::Damaged(format!(
            "a message with a body of {body_len} bytes"
        ))),
    }
}

/// Whether a message carries what a segment of ours may hold after its schema: a batch
/// whose buffers are in its body and not compressed. (A compressed buffer states the size
/// it unpacks to, and arrow allocates that.)
pub(super) fn check_batch(metadata: &[u8], body_len: u64) -> Result<(), String> {
    let message = root_as_message(metadata).map_err(|error| error.to_string())?;
    let Some(batch) = message.header_as_record_batch() else {
        return Err(format!("a message of type {:?}", message.header_type()));
    };
    if batch.compression().is_some() {
        return Err("a compressed batch, which memtrace does not write".to_owned());
    }
    for buffer in batch.buffers().into_iter().flatten() {
        let end = u64::try_from(buffer.offset())
            .ok()
            .zip(u64::try_from(buffer.length()).ok())
            .and_then(|(offset, length)| offset.checked_add(length));
        if end.is_none_or(|end| end > body_len) {
            return Err("a buffer outside of its message".to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(bytes: &[u8]) -> Frame {
        frame_at(&bytes, 0, bytes.len() as u64).unwrap()
    }

    #[test]
    fn an_end_mark_and_the_end_of_the_file_end_the_stream() {
        assert_eq!(frame(&[]), Frame::End);
        assert_eq!(frame(&[0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0]), Frame::End);
    }

    #[test]
    fn a_length_beyond_the_file_is_a_cut_message_and_an_absurd_one_is_damage() {
        assert_eq!(frame(&[0xFF; 4]), Frame::Truncated);
        assert_eq!(
            frame(&[0xFF, 0xFF, 0xFF, 0xFF, 16, 0, 0, 0]),
            Frame::Truncated
        );
        assert!(matches!(frame(&[0xFF; 8]), Frame::Damaged(_)));
        assert!(matches!(frame(&[0; 8]), Frame::Damaged(_)));
    }
}
