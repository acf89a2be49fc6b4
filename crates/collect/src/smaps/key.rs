//! What names an object of shared memory, or a file.

use super::mappings::Device;
use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Names an object.
pub(crate) type Key = (Device, u64);

/// Descriptors of shared memory: the ways to it.
pub(super) type Open = HashMap<Key, PathBuf>;

/// What names the object of a file.
pub(crate) fn key_of(metadata: &Metadata) -> Key {
    (Device::of(metadata.dev()), metadata.ino())
}
