//! Names and places of the files of a recording, and finding them again.
//!
//! Segments and parts of a table carry a sequence number; the rule in the room's head
//! says what follows from it.

use super::error::StoreError;
use super::files::Files;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

/// The folder of the spool.
pub(super) const SPOOL: &str = "spool";
/// The folder for files that could not be read in full.
pub(super) const DAMAGED: &str = "damaged";

/// The numbers of a table's files in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TableFiles {
    pub(super) parts: Vec<u32>,
    pub(super) segments: Vec<u32>,
}

/// A segment's path relative to the recording.
pub(super) fn segment_path(table: &str, seq: u32) -> PathBuf {
    Path::new(SPOOL).join(format!("{table}-{seq:05}.arrows"))
}

/// A part's path relative to the recording.
pub(super) fn part_path(table: &str, seq: u32) -> PathBuf {
    Path::new(table).join(format!("part-{seq:05}.parquet"))
}

/// The table and the number of a part, or of a segment, by its path.
pub(super) fn table_and_seq(path: &Path) -> Option<(&str, u32)> {
    let folder = path.parent()?.to_str()?;
    let name = path.file_name()?;
    if folder != SPOOL {
        return Some((folder, number(name, "part-", ".parquet")?));
    }
    let (table, _) = name.to_str()?.rsplit_once('-')?;
    Some((table, number(name, &format!("{table}-"), ".arrows")?))
}

/// Where a file is written before it gets its name.
pub(super) fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    PathBuf::from(name)
}

/// Lists the files of a table that hold its rows.
///
/// Segments are listed before parts: a live recorder makes the part before it removes
/// the segment, so whichever of the two a row is in, this order meets it.
pub(super) fn list(dir: &impl Files, table: &str) -> Result<TableFiles, StoreError> {
    let segments = numbers_in(dir, SPOOL, &format!("{table}-"), ".arrows")?;
    let parts = parts_of(dir, table)?;
    Ok(TableFiles { parts, segments })
}

/// The numbers of a table's parts in ascending order.
pub(super) fn parts_of(dir: &impl Files, table: &str) -> Result<Vec<u32>, StoreError> {
    numbers_in(dir, table, "part-", ".parquet")
}

/// Lists the parts of a table that were begun and never finished.
pub(super) fn list_half_written(dir: &impl Files, table: &str) -> Result<Vec<PathBuf>, StoreError> {
    let numbers = numbers_in(dir, table, "part-", ".parquet.tmp")?;
    let paths = numbers
        .into_iter()
        .map(|seq| temporary(&part_path(table, seq)));
    Ok(paths.collect())
}

/// The files that were put aside, in the order of their names.
pub(super) fn list_damaged(dir: &impl Files) -> Result<Vec<PathBuf>, StoreError> {
    let folder = Path::new(DAMAGED);
    let mut names = names_in(dir, folder)?;
    names.sort_unstable();
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

/// The numbers of a table's segments among the names in the spool, in ascending order.
pub(super) fn segments_among(names: &[OsString], table: &str) -> Vec<u32> {
    numbers_among(names, &format!("{table}-"), ".arrows")
}

fn numbers_in(
    dir: &impl Files,
    folder: &str,
    prefix: &str,
    suffix: &str,
) -> Result<Vec<u32>, StoreError> {
    Ok(numbers_among(
        &names_in(dir, Path::new(folder))?,
        prefix,
        suffix,
    ))
}

fn numbers_among(names: &[OsString], prefix: &str, suffix: &str) -> Vec<u32> {
    let mut numbers: Vec<u32> = names
        .iter()
        .filter_map(|name| number(name, prefix, suffix))
        .collect();
    numbers.sort_unstable();
    numbers
}

/// The names in a folder; none where it is not there.
pub(super) fn names_in(dir: &impl Files, folder: &Path) -> Result<Vec<OsString>, StoreError> {
    match dir.names(folder) {
        Ok(names) => Ok(names),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(StoreError::io("list", &dir.full_path(folder), error)),
    }
}

/// Whether a path, a folder and a name, is one that a file of a recording can have, whatever tables
/// that has.
pub(super) fn is_of_recording(path: &Path) -> bool {
    let folder = path.parent().and_then(Path::to_str).unwrap_or_default();
    let Some(name) = path.file_name() else {
        return false;
    };
    let is_part = |suffix| number(name, "part-", suffix).is_some();
    match folder {
        DAMAGED => true,
        SPOOL => path.extension() == Some(OsStr::new("arrows")),
        _ => is_part(".parquet") || is_part(".parquet.tmp"),
    }
}

/// The number in a file name, when the name is exactly one that we give.
fn number(name: &OsStr, prefix: &str, suffix: &str) -> Option<u32> {
    let digits = name.to_str()?.strip_prefix(prefix)?.strip_suffix(suffix)?;
    let is_number = digits.len() >= 5 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let seq = is_number.then(|| digits.parse().ok())??;
    (format!("{seq:05}") == digits).then_some(seq)
}

#[cfg(test)]
mod tests {
    use super::super::dir::Dir;
    use super::*;

    #[test]
    fn the_files_of_a_table_are_found_by_exact_names_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let spool = dir.path().join(SPOOL);
        let table = dir.path().join("mem");
        std::fs::create_dir(&spool).unwrap();
        std::fs::create_dir(&table).unwrap();
        for name in [
            "mem-00003.arrows",
            "mem-00002.arrows",
            "mem-100000.arrows",
            "mem-0004.arrows",
            "mem-000005.arrows",
            "mem-00006.arrows.tmp",
            "node_mem-00001.arrows",
            "mem-+0007.arrows",
        ] {
            std::fs::write(spool.join(name), b"").unwrap();
        }
        for name in ["part-00001.parquet", "part-00002.parquet.tmp"] {
            std::fs::write(table.join(name), b"").unwrap();
        }
        let dir = Dir::open(dir.path()).unwrap();
        let files = list(&dir, "mem").unwrap();
        assert_eq!(files.segments, [2, 3, 100_000]);
        assert_eq!(files.parts, [1]);
        assert_eq!(list(&dir, "oom").unwrap(), TableFiles::default());
    }

    #[test]
    fn a_number_is_found_again_under_the_name_it_was_given() {
        for seq in [1, 99_999, 100_000, u32::MAX] {
            let path = part_path("mem", seq);
            let name = path.file_name().unwrap();
            assert_eq!(number(name, "part-", ".parquet"), Some(seq));
        }
    }
}
