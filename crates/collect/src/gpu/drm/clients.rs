//! The clients of a process: which of its descriptors are a DRM device's, and their fdinfo.

use super::fdinfo::{Client, parse};
use memtrace_model::Tgid;
use std::collections::HashMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// DRM's major number (Documentation/admin-guide/devices.txt).
const DRM_MAJOR: u32 = 226;

/// How a descriptor is known to be a DRM device's: in tests there is no such device.
pub(super) type IsDrm = fn(&Path) -> bool;

/// Whether a path leads to a character device of DRM's. Opens nothing, and asks nothing of a
/// file that is no device's: one of a network file system could keep the answer.
pub(super) fn is_drm(descriptor: &Path) -> bool {
    let target = std::fs::read_link(descriptor);
    target.is_ok_and(|target| target.starts_with("/dev"))
        && std::fs::metadata(descriptor).is_ok_and(|file| {
            file.file_type().is_char_device() && libc::major(file.rdev()) == DRM_MAJOR
        })
}

/// The descriptors of DRM devices that a process has open, at most `limit` looked at.
pub(super) fn descriptors(proc: &Path, tgid: Tgid, limit: usize, is_drm: IsDrm) -> Vec<PathBuf> {
    let dir = proc.join(tgid.to_string());
    let entries = std::fs::read_dir(dir.join("fd"))
        .into_iter()
        .flatten()
        .flatten();
    let found = entries.take(limit).filter(|entry| is_drm(&entry.path()));
    found
        .map(|entry| dir.join("fdinfo").join(entry.file_name()))
        .collect()
}

/// What the clients behind these files hold. A descriptor that was duplicated or inherited
/// leads to the same client again, which counts once.
pub(super) fn clients(files: &[PathBuf]) -> HashMap<(String, i64), Client> {
    let texts = files.iter().filter_map(|file| std::fs::read(file).ok());
    let clients = texts.filter_map(|text| parse(&text));
    clients
        .map(|client| ((client.pdev.clone(), client.id), client))
        .collect()
}
