//! The file of a part, read by position: from a directory, or from an address.

use super::dir::Dir;
use super::page_guard::MAX_ROW_GROUP_BYTES;
use super::remote::Remote;
use bytes::Bytes;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::Arc;

/// A part's file, read by position.
#[derive(Clone, Debug)]
pub(super) struct PartFile {
    bytes: PartBytes,
    len: u64,
}

#[derive(Clone, Debug)]
enum PartBytes {
    File(Arc<File>),
    Memory(Bytes),
    Remote { remote: Arc<Remote>, path: PathBuf },
}

impl PartFile {
    /// Opens a part in a directory.
    pub(super) fn open(dir: &Dir, path: &Path) -> io::Result<Self> {
        let file = dir.open_file(path)?;
        Ok(Self {
            len: file.metadata()?.len(),
            bytes: PartBytes::File(Arc::new(file)),
        })
    }

    /// A part at an address; nothing is read yet.
    pub(super) fn open_remote(remote: &Arc<Remote>, path: &Path) -> io::Result<Self> {
        let bytes = PartBytes::Remote {
            remote: Arc::clone(remote),
            path: path.to_path_buf(),
        };
        Ok(Self {
            len: remote.len(path)?,
            bytes,
        })
    }

    /// The same for whoever needs it also when it is gone: an open file is enough, of an address all
    /// bytes are read, where it has no more than allowed.
    pub(super) fn held(self, max_bytes: u64) -> io::Result<Option<Self>> {
        if !matches!(self.bytes, PartBytes::Remote { .. }) {
            return Ok(Some(self));
        }
        if self.len > max_bytes {
            return Ok(None);
        }
        let mut read = self.bytes.read(slice::from_ref(&(0..self.len)))?;
        Ok(Some(Self {
            bytes: PartBytes::Memory(read.pop().unwrap_or_default()),
            len: self.len,
        }))
    }

    /// Bytes of it in memory.
    pub(super) fn kept_bytes(&self) -> u64 {
        match self.bytes {
            PartBytes::Memory(_) => self.len,
            PartBytes::File(_) | PartBytes::Remote { .. } => 0,
        }
    }

    /// How long it is.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Reads what begins somewhere and is so long.
    pub(super) fn read(&self, start: u64, length: u64) -> Result<Bytes, String> {
        let end = start.saturating_add(length);
        let mut read = self.read_all(slice::from_ref(&(start..end)))?;
        Ok(read.pop().unwrap_or_default())
    }

    /// Reads ranges; from an address all in one request.
    pub(super) fn read_all(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, String> {
        let is_inside = |range: &Range<u64>| range.start <= range.end && range.end <= self.len;
        let lengths = ranges
            .iter()
            .map(|range| range.end.saturating_sub(range.start));
        let sum = lengths.fold(0, u64::saturating_add);
        if !ranges.iter().all(is_inside) || sum > MAX_ROW_GROUP_BYTES {
            return Err("a column beyond the end of the file".to_owned());
        }
        self.bytes.read(ranges).map_err(|error| error.to_string())
    }
}

impl PartBytes {
    /// Reads ranges that are within it.
    fn read(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Bytes>> {
        let ranges_of = |bytes: &Bytes| {
            let slice = |range: &Range<u64>| bytes.slice(range.start as usize..range.end as usize);
            ranges.iter().map(slice).collect()
        };
        match self {
            Self::File(file) => ranges.iter().map(|range| read_range(file, range)).collect(),
            Self::Memory(bytes) => Ok(ranges_of(bytes)),
            Self::Remote { remote, path } => remote.read(path, ranges),
        }
    }
}

fn read_range(file: &File, range: &Range<u64>) -> io::Result<Bytes> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    file.read_exact_at(&mut bytes, range.start)?;
    Ok(bytes.into())
}
