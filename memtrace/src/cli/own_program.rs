//! This program, to be started again by one of its own that runs for days.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Its file; after an upgrade the new one in its place.
///
/// # Errors
/// When the system does not say.
pub(super) fn own_program() -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let replaced = in_its_place(&own).filter(|path| path.exists());
    Ok(match replaced {
        Some(new) if !own.exists() => new,
        _ => own,
    })
}

/// The path that a program had whose file was replaced: Linux adds to it (d_path, fs/d_path.c).
fn in_its_place(own: &Path) -> Option<PathBuf> {
    let path = own.as_os_str().as_bytes().strip_suffix(b" (deleted)")?;
    Some(PathBuf::from(OsStr::from_bytes(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_was_replaced_is_found_at_its_place() {
        let replaced = in_its_place(Path::new("/usr/bin/memtrace (deleted)"));
        assert_eq!(replaced, Some(PathBuf::from("/usr/bin/memtrace")));
        assert_eq!(in_its_place(Path::new("/usr/bin/memtrace")), None);
        assert!(own_program().expect("this test").exists());
    }
}
