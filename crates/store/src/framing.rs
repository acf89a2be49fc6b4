//! The frames of a spool segment: their checksums, and finding whole ones before arrow sees a
//! byte of them.
//!
//! A segment is an Arrow IPC stream that any reader takes. arrow's own trusts the lengths it
//! meets: a damaged one makes it allocate what it says, and an incomplete last message is the
//! same error to it as damage. So a frame is checked here first, and where one is damaged the
//! next intact one is looked for.
//!
//! The frame: `FF FF FF FF`, i32 length of the metadata, the metadata (a flatbuffer that
//! holds the length of the body), the body. A length of zero ends the stream. Readers find
//! their way in the flatbuffer from its start, so there is room behind it: the last 16 bytes
//! of the metadata are a mark, the CRC-32 of the body, and that of all before itself.

use super::checksum::crc32;
use arrow_buffer::{Buffer, MutableBuffer};
use arrow_ipc::root_as_message;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// The metadata of our messages takes some KiB: the docs of a table's columns.
const MAX_METADATA_BYTES: u64 = 1 << 17;
/// Batches are flushed at 512 KiB; the last row can make one larger.
const MAX_BODY_BYTES: u64 = 1 << 24;
const PREFIX_BYTES: u64 = 8;
const CONTINUATION: [u8; 4] = [0xFF; 4];
/// Begins the seal of a frame.
const MARK: [u8; 8] = *b"mtcrc32\n";
const SEAL_BYTES: usize = 16;
/// Frames start on multiples of this.
const ALIGNMENT: u64 = 8;

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
    Message(Message),
    /// The end of the stream, marked or not.
    End,
    /// The beginning of a message of which the rest is not in the file.
    Truncated,
    /// Something that is no message.
    Damaged(String),
}

/// A message of which all is in the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Where it starts in the file.
    pub(super) start: u64,
    /// The checked flatbuffer.
    pub(super) metadata: Vec<u8>,
    /// Where its body is in the file.
    pub(super) body: Range<u64>,
    /// The checksum of the body; `None` where the frame has no seal. That of the metadata was
    /// checked.
    pub(super) body_crc32: Option<u32>,
}

/// Looks at the message that starts at byte `at` of a stream of `len` bytes.
///
/// # Errors
/// When the file can't be read.
pub(super) fn frame_at(file: &impl ReadAt, at: u64, len: u64) -> io::Result<Frame> {
    let damaged = |reason: &str| Ok(Frame::Damaged(reason.to_owned()));
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
        return damaged("no message starts here");
    }
    let metadata_len = u64::from(u32::from_le_bytes([l0, l1, l2, l3]));
    if metadata_len == 0 {
        return match remaining == PREFIX_BYTES {
            true => Ok(Frame::End),
            false => damaged("the stream goes on behind its end"),
        };
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
    let Ok(seal) = Seal::of(&prefix, &metadata) else {
        return damaged("the beginning of a message does not match its checksum");
    };
    let body_len = match root_as_message(&metadata) {
        Ok(message) => message.bodyLength(),
        Err(error) => return Ok(Frame::Damaged(format!("bad metadata: {error}"))),
    };
    let body_start = at + PREFIX_BYTES + metadata_len;
    match u64::try_from(body_len) {
        Ok(body_len) if body_len > len - body_start && body_len <= MAX_BODY_BYTES => {
            Ok(Frame::Truncated)
        }
        Ok(body_len) if body_len <= MAX_BODY_BYTES => Ok(Frame::Message(Message {
            start: at,
            metadata,
            body: body_start..body_start + body_len,
            body_crc32: seal.map(|seal| seal.body_crc32),
        })),
        _ => Ok(Frame::Damaged(format!(
            "a message with a body of {body_len} bytes"
        ))),
    }
}

/// The checksums at the end of a message's metadata.
struct Seal {
    body_crc32: u32,
}

/// The metadata is not what was written.
struct Changed;

impl Seal {
    /// The seal of a frame; `None` where it has none.
    fn of(prefix: &[u8], metadata: &[u8]) -> Result<Option<Self>, Changed> {
        let Some((head, seal)) = metadata.split_last_chunk::<SEAL_BYTES>() else {
            return Ok(None);
        };
        let [mark @ .., b0, b1, b2, b3, h0, h1, h2, h3] = *seal;
        if mark != MARK {
            return Ok(None);
        }
        let body = [b0, b1, b2, b3];
        if crc32_of_head(prefix, head, body) != u32::from_le_bytes([h0, h1, h2, h3]) {
            return Err(Changed);
        }
        Ok(Some(Self {
            body_crc32: u32::from_le_bytes(body),
        }))
    }
}

fn crc32_of_head(prefix: &[u8], metadata: &[u8], body_crc32: [u8; 4]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for bytes in [prefix, metadata, &MARK, &body_crc32] {
        hasher.update(bytes);
    }
    hasher.finalize()
}

/// Gives a seal to every message that arrow has written to `stream` from byte `from` on.
///
/// # Errors
/// When they are no whole messages.
pub(super) fn seal(stream: &mut Vec<u8>, from: usize) -> io::Result<()> {
    let mut at = from;
    loop {
        let frame = frame_at(&stream.as_slice(), at as u64, stream.len() as u64)?;
        let Message { metadata, body, .. } = match frame {
            Frame::Message(message) => message,
            Frame::End => return Ok(()),
            Frame::Truncated => return Err(io::ErrorKind::UnexpectedEof.into()),
            Frame::Damaged(reason) => return Err(io::Error::other(reason)),
        };
        let body = body.start as usize..body.end as usize;
        let length = metadata.len() + SEAL_BYTES;
        let length = u32::try_from(length).map_err(io::Error::other)?;
        let mut prefix = [0xFF; PREFIX_BYTES as usize];
        prefix[CONTINUATION.len()..].copy_from_slice(&length.to_le_bytes());
        let body_crc32 = crc32(stream.get(body.clone()).unwrap_or(&[])).to_le_bytes();
        let head_crc32 = crc32_of_head(&prefix, &metadata, body_crc32).to_le_bytes();
        if let Some(room) = stream.get_mut(at..at + prefix.len()) {
            room.copy_from_slice(&prefix);
        }
        let seal = MARK.into_iter().chain(body_crc32).chain(head_crc32);
        stream.splice(body.start..body.start, seal);
        at = body.end + SEAL_BYTES;
    }
}

/// Bytes that a search reads at once.
const SEARCH_BYTES: u64 = 1 << 16;
/// What a search of one segment spends on places that look like a frame: bytes that it reads
/// of each, and as many again as a read costs. Rows hold no more such places than by chance; a
/// segment made to have them would be searched for ever.
const SEARCH_EFFORT: u64 = 1 << 26;
const READ_EFFORT: u64 = 512;

/// Finds the next frame with an intact seal, behind damage.
///
/// # Errors
/// When the file can't be read.
pub(super) fn next_sealed(
    file: &impl ReadAt,
    after: u64,
    len: u64,
    effort: &mut u64,
) -> io::Result<Option<u64>> {
    let mut at = after.next_multiple_of(ALIGNMENT);
    let mut buffer = Vec::new();
    while at + PREFIX_BYTES <= len {
        let count = SEARCH_BYTES.min((len - at) / ALIGNMENT * ALIGNMENT);
        buffer.resize(count as usize, 0);
        file.read_exact_at(&mut buffer, at)?;
        for (place, prefix) in (at..)
            .step_by(ALIGNMENT as usize)
            .zip(buffer.as_chunks::<8>().0)
        {
            let [c0, c1, c2, c3, l0, l1, l2, l3] = *prefix;
            let metadata_len = u64::from(u32::from_le_bytes([l0, l1, l2, l3]));
            let can_be = [c0, c1, c2, c3] == CONTINUATION
                && (SEAL_BYTES as u64..=MAX_METADATA_BYTES).contains(&metadata_len)
                && metadata_len <= len - place - PREFIX_BYTES;
            if !can_be {
                continue;
            }
            *effort += READ_EFFORT;
            let mut mark = [0; MARK.len()];
            let seal = place + PREFIX_BYTES + metadata_len - SEAL_BYTES as u64;
            file.read_exact_at(&mut mark, seal)?;
            if mark == MARK {
                *effort += metadata_len;
                let mut metadata = vec![0; metadata_len as usize];
                file.read_exact_at(&mut metadata, place + PREFIX_BYTES)?;
                if matches!(Seal::of(prefix, &metadata), Ok(Some(_))) {
                    return Ok(Some(place));
                }
            }
            if *effort > SEARCH_EFFORT {
                return Ok(None);
            }
        }
        at += count;
    }
    Ok(None)
}

impl Message {
    /// Reads the body of a batch of so many columns, for arrow: all that arrow trusts is checked.
    ///
    /// # Errors
    /// One line about what can't be read or does not fit.
    pub(super) fn batch_body(&self, file: &impl ReadAt, columns: usize) -> Result<Buffer, String> {
        // The frame was checked: the body is in the file and below the limit.
        let length = self.body.end - self.body.start;
        check_batch(&self.metadata, length, columns)?;
        let mut body = MutableBuffer::from_len_zeroed(length as usize);
        let read = file.read_exact_at(&mut body, self.body.start);
        read.map_err(|error| error.to_string())?;
        match self.body_crc32.is_none_or(|stated| crc32(&body) == stated) {
            true => Ok(body.into()),
            false => Err("it does not match its checksum".to_owned()),
        }
    }
}

/// Whether a message carries what a segment of ours may hold after its schema: a batch
/// of so many columns whose buffers are in its body and not compressed. (A compressed buffer
/// states the size it unpacks to, and arrow allocates that.)
fn check_batch(metadata: &[u8], body_len: u64, columns: usize) -> Result<(), String> {
    let message = root_as_message(metadata).map_err(|error| error.to_string())?;
    let Some(batch) = message.header_as_record_batch() else {
        return Err(format!("a message of type {:?}", message.header_type()));
    };
    if batch.compression().is_some() {
        return Err("a compressed batch, which memtrace does not write".to_owned());
    }
    let nodes = batch.nodes().map_or(0, |nodes| nodes.len());
    if nodes != columns {
        return Err(format!("a batch of {nodes} columns, not {columns}"));
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
    use arrow_array::{Int64Array, RecordBatch};
    use arrow_ipc::writer::StreamWriter;
    use std::sync::Arc;

    fn frame(bytes: &[u8]) -> Frame {
        frame_at(&bytes, 0, bytes.len() as u64).unwrap()
    }

    /// A sealed stream: a schema, three batches, and the end.
    fn stream() -> Vec<u8> {
        let batch = |value: i64| {
            let values: Int64Array = (0..100).map(|row| row * value).collect();
            RecordBatch::try_from_iter([("value", Arc::new(values) as _)]).unwrap()
        };
        let mut writer = StreamWriter::try_new(Vec::new(), &batch(0).schema()).unwrap();
        for value in [-1, 2, 3] {
            writer.write(&batch(value)).unwrap();
        }
        writer.finish().unwrap();
        let mut stream = writer.into_inner().unwrap();
        seal(&mut stream, 0).unwrap();
        stream
    }

    /// Where the messages of a stream start, by their frames alone.
    fn starts(stream: &[u8]) -> Vec<u64> {
        let mut at = 0;
        let mut starts = Vec::new();
        while let Frame::Message(message) = frame_at(&stream, at, stream.len() as u64).unwrap() {
            starts.push(at);
            assert!(message.body_crc32.is_some());
            at = message.body.end;
        }
        starts
    }

    #[test]
    fn an_end_mark_and_the_end_of_the_file_end_the_stream() {
        let end = [0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0];
        assert_eq!(frame(&[]), Frame::End);
        assert_eq!(frame(&end), Frame::End);
        assert!(matches!(frame(&end.repeat(2)), Frame::Damaged(_)));
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

    #[test]
    fn a_sealed_stream_is_an_arrow_stream() {
        let stream = stream();
        let reader = arrow_ipc::reader::StreamReader::try_new(&stream[..], None).unwrap();
        assert_eq!(
            reader.map(|batch| batch.unwrap().num_rows()).sum::<usize>(),
            300
        );
    }

    #[test]
    fn any_flipped_bit_in_the_head_of_a_frame_is_noticed_and_the_next_frame_is_found() {
        let mut stream = stream();
        let len = stream.len() as u64;
        let starts = starts(&stream);
        let [_, first, second, _] = starts[..] else {
            panic!("{starts:?}")
        };
        let Frame::Message(message) = frame_at(&&stream[..], first, len).unwrap() else {
            panic!("no message")
        };
        for bit in first * 8..message.body.start * 8 {
            let byte = (bit / 8) as usize;
            stream[byte] ^= 1 << (bit % 8);
            let damaged = match frame_at(&&stream[..], first, len).unwrap() {
                // The mark itself: the frame passes for one of an older memtrace.
                Frame::Message(message) => message.body_crc32.is_none(),
                Frame::Damaged(_) | Frame::Truncated => true,
                Frame::End => false,
            };
            assert!(damaged, "bit {bit}");
            let next = next_sealed(&&stream[..], first + 1, len, &mut 0).unwrap();
            assert_eq!(next, Some(second), "bit {bit}");
            stream[byte] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_search_among_places_that_look_like_frames_comes_to_an_end() {
        let place = [0xFF, 0xFF, 0xFF, 0xFF, 32, 0, 0, 0];
        let bytes = place.repeat(1 << 18);
        let mut effort = 0;
        let found = next_sealed(&&bytes[..], 0, bytes.len() as u64, &mut effort).unwrap();
        assert_eq!(found, None);
        assert!(effort < SEARCH_EFFORT + 2 * MAX_METADATA_BYTES);
    }
}
