//! Reads the complete batches of one spool segment, damaged or not.

use super::batch::{Binding, Projection, arrow_columns};
use super::contain::contain;
use super::framing::{Frame, Message, ReadAt, frame_at, next_sealed};
use super::problem::ProblemKind;
use super::reading::Reading;
use super::schema::{RECORDING_KEY, SEQ_KEY, TABLE_KEY, table_schema};
use arrow_array::RecordBatch;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::RecordBatchDecoder;
use arrow_ipc::root_as_message;
use arrow_schema::{ArrowError, SchemaRef};
use memtrace_model::Bytes;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// How far a segment was read.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    pub(super) at: u64,
    /// `None` before its beginning was read.
    schema: Option<SchemaRef>,
}

/// The batches of a segment, in the form of a projection. What can't be read becomes a
/// problem, and iteration goes on behind it where an intact frame is found.
pub(super) struct SegmentReader<F> {
    frames: Frames<F>,
    index: usize,
    schema: SchemaRef,
    binding: Binding,
}

impl<F: ReadAt> SegmentReader<F> {
    /// Reads the schema of a segment of `len` bytes. `None` when there is nothing to read
    /// batches with: the file is empty, or its beginning is incomplete or damaged.
    pub(super) fn open(
        file: F,
        len: u64,
        name: PathBuf,
        projection: &Projection,
        reading: &Reading,
    ) -> Option<Self> {
        let frames = Frames {
            file,
            name,
            len,
            at: 0,
            search_effort: 0,
            is_growing: false,
            reading: reading.clone(),
        };
        Self::of(frames, None, projection)
    }

    /// Goes on where another reader of the same segment stopped. Where its recorder is adding to it, a
    /// message that is cut off is one that is being written.
    pub(super) fn resume(
        file: F,
        len: u64,
        name: PathBuf,
        projection: &Projection,
        reading: &Reading,
        place: &Place,
        is_growing: bool,
    ) -> Option<Self> {
        let frames = Frames {
            file,
            name,
            len,
            at: place.at,
            search_effort: 0,
            is_growing,
            reading: reading.clone(),
        };
        Self::of(frames, place.schema.clone(), projection)
    }

    fn of(
        mut frames: Frames<F>,
        schema: Option<SchemaRef>,
        projection: &Projection,
    ) -> Option<Self> {
        let schema = match schema {
            Some(schema) => schema,
            None => match frames.schema(projection) {
                Ok(schema) => schema?,
                Err(reason) => {
                    frames.note_damage(0, frames.len, reason);
                    return None;
                }
            },
        };
        match projection.bind(&arrow_columns(&schema)) {
            Ok(binding) => Some(Self {
                frames,
                index: 0,
                schema,
                binding,
            }),
            Err(reason) => {
                frames.note(ProblemKind::WrongColumns { reason });
                None
            }
        }
    }

    /// Where it stands.
    pub(super) fn place(&self) -> Place {
        Place {
            at: self.frames.at,
            schema: Some(Arc::clone(&self.schema)),
        }
    }

    fn decode(&self, message: &Message) -> Result<RecordBatch, String> {
        let body = message.batch_body(&self.frames.file, self.schema.fields().len())?;
        contain(|| {
            let message = root_as_message(&message.metadata)
                .map_err(|error| ArrowError::IpcError(error.to_string()))?;
            let header = message
                .header_as_record_batch()
                .ok_or_else(|| ArrowError::IpcError("no batch".to_owned()))?;
            let batch = RecordBatchDecoder::try_new(
                &body,
                header,
                Arc::clone(&self.schema),
                &HashMap::new(),
                &message.version(),
            )?
            .with_projection(Some(&self.binding.read_places()))
            .read_record_batch()?;
            self.binding.apply(batch.num_rows(), batch.columns())
        })
    }
}

impl<F: ReadAt> Iterator for SegmentReader<F> {
    type Item = RecordBatch;

    fn next(&mut self) -> Option<RecordBatch> {
        loop {
            let message = self.frames.next()?;
            let index = self.index;
            self.index += 1;
            match self.decode(&message) {
                Ok(batch) => return Some(batch),
                Err(reason) => self
                    .frames
                    .note(ProblemKind::DamagedBatch { index, reason }),
            }
        }
    }
}

/// The messages of a segment, one after the other.
struct Frames<F> {
    file: F,
    name: PathBuf,
    len: u64,
    at: u64,
    search_effort: u64,
    /// Whether more is going to be written behind its end.
    is_growing: bool,
    reading: Reading,
}

impl<F: ReadAt> Frames<F> {
    /// Reads the schema, which comes first. Where it is damaged and the batches behind it are
    /// not, it is that of this version's tables, if the recording is of this version too.
    fn schema(&mut self, projection: &Projection) -> Result<Option<SchemaRef>, String> {
        let Some(message) = self.next() else {
            return Ok(None);
        };
        let schema = contain(|| {
            let message = root_as_message(&message.metadata).map_err(|error| error.to_string())?;
            let schema = message.header_as_schema().map(try_fb_to_schema);
            schema.transpose().map_err(|error| error.to_string())
        })?;
        if let Some(schema) = schema {
            let text = |key| schema.metadata.get(key).map(String::as_str);
            let stated = [RECORDING_KEY, TABLE_KEY, SEQ_KEY].map(text);
            self.reading.check_file(&self.name, stated, None)?;
            return Ok(Some(Arc::new(schema)));
        }
        if message.start == 0 || !self.reading.is_of_this_version {
            return Err("no schema comes before its batches".to_owned());
        }
        self.at = message.start;
        Ok(Some(table_schema(projection.table())))
    }

    fn next(&mut self) -> Option<Message> {
        loop {
            let at = self.at;
            let reason = match frame_at(&self.file, at, self.len) {
                Ok(Frame::Message(message)) => {
                    if message.body_crc32.is_some() || !self.reading.has_checksums {
                        self.at = message.body.end;
                        return Some(message);
                    }
                    Some("a batch without a checksum".to_owned())
                }
                Ok(Frame::End) => return None,
                Ok(Frame::Truncated) if self.is_growing => return None,
                Ok(Frame::Truncated) => None,
                Ok(Frame::Damaged(reason)) => Some(reason),
                Err(error) => return self.fail(&error),
            };
            let next = next_sealed(&self.file, at + 1, self.len, &mut self.search_effort);
            let next = match next {
                Ok(next) => next,
                Err(error) => return self.fail(&error),
            };
            match (next, reason) {
                (None, None) => self.note(ProblemKind::TruncatedTail {
                    lost_bytes: bytes(self.len - at),
                }),
                (next, reason) => {
                    let reason = reason.unwrap_or_else(|| "a message is cut off".to_owned());
                    self.note_damage(at, next.unwrap_or(self.len), reason);
                }
            }
            self.at = next?;
        }
    }

    fn fail(&self, error: &std::io::Error) -> Option<Message> {
        let reason = error.to_string();
        self.note(ProblemKind::Unreadable { reason });
        None
    }

    fn note_damage(&self, from: u64, to: u64, reason: String) {
        self.note(ProblemKind::Damaged {
            at_byte: from,
            lost_bytes: bytes(to - from),
            reason,
        });
    }

    fn note(&self, kind: ProblemKind) {
        self.reading.note(&self.name, kind);
    }
}

fn bytes(count: u64) -> Bytes {
    Bytes(i64::try_from(count).unwrap_or(i64::MAX))
}
