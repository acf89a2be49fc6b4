//! A folder above recordings: a directory held open, or one at an address.

use super::dir::Dir;
use super::error::StoreError;
use super::recording::Recording;
use super::remote::RemoteReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One of both.
#[derive(Clone, Debug)]
pub(super) enum Folder {
    Dir(Arc<Dir>),
    Remote {
        reader: Arc<RemoteReader>,
        /// Its path below the reader's address.
        below: String,
    },
}

impl Folder {
    /// Its path, for messages.
    pub(super) fn path(&self) -> PathBuf {
        match self {
            Self::Dir(dir) => dir.path().to_path_buf(),
            Self::Remote { reader, below } if below.is_empty() => reader.address().into(),
            Self::Remote { reader, below } => Path::new(reader.address()).join(below),
        }
    }

    /// The names of what is in it that are text, in order; at an address those of folders.
    pub(super) fn names(&self) -> Result<Vec<String>, StoreError> {
        let names = match self {
            Self::Dir(dir) => dir.names(Path::new("")).map(|names| {
                let names = names.into_iter();
                names.filter_map(|name| name.into_string().ok()).collect()
            }),
            Self::Remote { reader, below } => reader.folders(below),
        };
        let mut names: Vec<String> =
            names.map_err(|error| StoreError::io("list", &self.path(), error))?;
        names.sort_unstable();
        Ok(names)
    }

    /// A folder in it, which must not be a link.
    pub(super) fn below(&self, name: &str) -> Result<Self, StoreError> {
        match self {
            Self::Dir(dir) => {
                let below = dir.below(name);
                let below = below.map_err(|error| {
                    StoreError::io("open", &dir.full_path(Path::new(name)), error)
                })?;
                Ok(Self::Dir(Arc::new(below)))
            }
            Self::Remote { reader, below } => Ok(Self::Remote {
                reader: Arc::clone(reader),
                below: match below.is_empty() {
                    true => name.to_owned(),
                    false => format!("{below}/{name}"),
                },
            }),
        }
    }

    /// The recording that it is.
    pub(super) fn recording(&self) -> Result<Recording, StoreError> {
        match self {
            Self::Dir(dir) => Recording::of(Arc::clone(dir)),
            Self::Remote { reader, below } => Recording::open_remote(Arc::clone(reader), below),
        }
    }
}
