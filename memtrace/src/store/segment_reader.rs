//! Reads the complete batches of one spool segment, damaged or not.

use super::batch::{Binding, Projection};
use super::contain::contain;
use super::framing::{Frame, ReadAt, check_batch, frame_at};
use super::problem::{ProblemKind, Problems};
use crate::model::Bytes;
use arrow_array::RecordBatch;
use arrow_buffer::{Buffer, MutableBuffer};
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::RecordBatchDecoder;
use arrow_ipc::root_as_message;
use arrow_schema::{ArrowError, SchemaRef};
use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// The batches of a segment, in the form of a projection. What can't be read becomes a
/// problem, and iteration goes on behind it where the frame of the messages is intact.
pub(super) struct SegmentReader<F> {
    file: F,
    name: PathBuf,
    len: u64,
    at: u64,
    index: usize,
    schema: SchemaRef,
    binding: Binding,
    problems: Problems,
}

impl<F: ReadAt> SegmentReader<F> {
    /// Reads the schema of a segment of `len` bytes. `None` when there is nothing to read
    /// batches with: the file is empty, or its beginning is incomplete or damaged.
    pub(super) fn open(
        file: F,
        len: u64,
        name: PathBuf,
        projection: &Projection,
        problems: &Problems,
    ) -> Option<Self> {
        let (metadata, body) = next_message(&file, 0, len, &name, problems)?;
        let schema = contain(|| {
            let message = root_as_message(&metadata).map_err(|error| error.to_string())?;
            let schema = message
                .header_as_schema()
                .ok_or("does not start with a schema")?;
            try_fb_to_schema(schema).map_err(|error| error.to_string())
        });
        let schema = match schema {
            Ok(schema) => Arc::new(schema),
            Err(reason) => {
                problems.note(&name, ProblemKind::Damaged { at_byte: 0, reason });
                return None;
            }
        };
        match projection.bind(&schema) {
            Ok(binding) => Some(Self {
                file,
                name,
                len,
                at: body.end,
                index: 0,
                schema,
                binding,
                problems: problems.clone(),
            }),
            Err(reason) => {
                problems.note(&name, ProblemKind::WrongColumns { reason });
                None
            }
        }
    }

    fn decode(&self, metadata: &[u8], body: Range<u64>) -> Result<RecordBatch, String> {
        check_batch(metadata, body.end - body.start)?;
        // The frame was checked: the body is in the file and below the limit.
        let mut bytes = MutableBuffer::from_len_zeroed((body.end - body.start) as usize);
        self.file
            .read_exact_at(&mut bytes, body.start)
            .map_err(|error| error.to_string())?;
        let bytes = Buffer::from(bytes);
        contain(|| {
            let message = root_as_message(metadata)
                .map_err(|error| ArrowError::IpcError(error.to_string()))?;
            let header = message
                .header_as_record_batch()
                .ok_or_else(|| ArrowError::IpcError("no batch".to_owned()))?;
            let batch = RecordBatchDecoder::try_new(
                &bytes,
                header,
                Arc::clone(&self.schema),
                &HashMap::new(),
                &message.version(),
            )?
            .with_projection(Some(self.binding.read()))
            .read_record_batch()?;
            self.binding.apply(&batch)
        })
    }
}

impl<F: ReadAt> Iterator for SegmentReader<F> {
    type Item = RecordBatch;

    fn next(&mut self) -> Option<RecordBatch> {
        loop {
            let (metadata, body) =
                next_message(&self.file, self.at, self.len, &self.name, &self.problems)?;
            self.at = body.end;
            let index = self.index;
            self.index += 1;
            match self.decode(&metadata, body) {
                Ok(batch) => return Some(batch),
                Err(reason) => self
                    .problems
                    .note(&self.name, ProblemKind::DamagedBatch { index, reason }),
            }
        }
    }
}

fn next_message(
    file: &impl ReadAt,
    at: u64,
    len: u64,
    name: &std::path::Path,
    problems: &Problems,
) -> Option<(Vec<u8>, Range<u64>)> {
    let problem = match frame_at(file, at, len) {
        Ok(Frame::Message { metadata, body }) => return Some((metadata, body)),
        Ok(Frame::End) => return None,
        Ok(Frame::Truncated) => ProblemKind::TruncatedTail {
            lost_bytes: Bytes(i64::try_from(len - at).unwrap_or(i64::MAX)),
        },
        Ok(Frame::Damaged(reason)) => ProblemKind::Damaged {
            at_byte: at,
            reason,
        },
        Err(error) => ProblemKind::Unreadable {
            reason: error.to_string(),
        },
    };
    problems.note(name, problem);
    None
}
