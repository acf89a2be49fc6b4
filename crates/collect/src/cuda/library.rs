//! Where libcuda is, and where its functions begin.

use super::functions::FUNCTIONS;
use memtrace_abi::event::CUDA_LIBRARY;
use memtrace_model::Tgid;
use object::elf::FileHeader64;
use object::read::elf::ElfFile;
use object::{Endianness, Object, ObjectSection, ObjectSegment, ObjectSymbol, ReadCache};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The dynamic linker's list of libraries holds their paths as text.
const LINKER_CACHE: &str = "/etc/ld.so.cache";
/// No driver's library is larger; one of 2025 has 96 MB.
const FILE_MAX: u64 = 256 << 20;
/// Nor has one a larger table of symbols, or of their names: 24 KB.
const TABLE_MAX: u64 = 4 << 20;
/// No list of libraries and no list of mappings that is looked at is longer.
const TEXT_MAX: u64 = 16 << 20;
/// Where drivers are mounted into containers, and on WSL, without the linker's list.
const OTHER_DIRECTORIES: [&str; 3] = [
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/lib/wsl/lib",
];

/// A library whose functions can be probed.
#[derive(Debug)]
pub struct Library {
    /// The open file: the path by which it was found can be gone a moment later.
    pub file: File,
    /// Number of the function, and its offset in the file.
    pub offsets: Vec<(usize, u64)>,
}

/// Device and inode of a file.
pub type FileId = (u64, u64);

/// Why a library can't be probed.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// The file can't be opened or read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// The file is no library of this machine.
    #[error("it is no 64-bit ELF file: {0}")]
    Elf(#[from] object::Error),
    /// The file, or a table in it, is larger than of any driver.
    #[error("it, or a table in it, is of {0} bytes, and no library of the driver")]
    Size(u64),
    /// The file has none of the functions.
    #[error("it exports none of the driver's functions about memory")]
    Empty,
}

impl Library {
    /// Looks at a file. Of a library of 100 MB only the table of its symbols is read.
    ///
    /// # Errors
    /// When it can't be read, or is not the driver's library.
    pub fn open(path: &Path) -> Result<Self, LibraryError> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.len() > FILE_MAX {
            return Err(LibraryError::Size(metadata.len()));
        }
        let cache = ReadCache::new(&file);
        let elf = ElfFile::<FileHeader64<Endianness>, _>::parse(&cache)?;
        // The lengths of tables are what the file says, and are read whole.
        for name in [".dynsym", ".dynstr"] {
            let size = elf.section_by_name(name).map_or(0, |table| table.size());
            if size > TABLE_MAX {
                return Err(LibraryError::Size(size));
            }
        }
        let mut addresses = HashMap::new();
        let mut named = HashSet::new();
        for symbol in elf
            .dynamic_symbols()
            .filter(|symbol| !symbol.is_undefined())
        {
            if let Ok(name) = symbol.name()
                && let Some(number) = number_of(name)
                && named.insert(name.to_owned())
            {
                // Two names of one function are probed once.
                addresses.entry(symbol.address()).or_insert(number);
            }
        }
        let segments: Vec<_> = elf
            .segments()
            .map(|segment| (segment.address(), segment.size(), segment.file_range().0))
            .collect();
        let offset = |address: u64| {
            let within = |(start, size, _): &&(u64, u64, u64)| {
                address.checked_sub(*start).is_some_and(|at| at < *size)
            };
            let (start, _, file_start) = segments.iter().find(within)?;
            (address - start).checked_add(*file_start)
        };
        let mut offsets: Vec<_> = addresses
            .into_iter()
            .filter_map(|(address, number)| Some((number, offset(address)?)))
            .collect();
        if offsets.is_empty() {
            return Err(LibraryError::Empty);
        }
        offsets.sort_unstable();
        Ok(Self { offsets, file })
    }
}

fn number_of(symbol: &str) -> Option<usize> {
    FUNCTIONS
        .iter()
        .position(|function| function.symbols.contains(&symbol))
}

/// Device and inode of the file at a path.
///
/// # Errors
/// When there is none, or it can't be looked at.
pub fn file_id(path: &Path) -> io::Result<FileId> {
    let metadata = std::fs::metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Paths at which the dynamic linker finds libcuda for a program that is started from here.
pub fn installed() -> Vec<PathBuf> {
    let given = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let listed = read(Path::new(LINKER_CACHE)).unwrap_or_default();
    let listed = listed
        .split(|byte| *byte == 0)
        .filter_map(|text| Some(PathBuf::from(str::from_utf8(text).ok()?)))
        .filter(|path| path.is_absolute() && is_library(path));
    let mut found: Vec<PathBuf> = std::env::split_paths(&given)
        .chain(OTHER_DIRECTORIES.map(PathBuf::from))
        .map(|directory| directory.join("libcuda.so.1"))
        .chain(listed)
        .filter(|path| path.is_file())
        .collect();
    found.dedup();
    found
}

/// Whether a file is the driver's library, by its name.
pub fn is_library(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with(CUDA_LIBRARY))
}

/// The libraries that a process has mapped, each by a path that works across mount namespaces.
///
/// # Errors
/// When its mappings can't be read.
pub fn mapped(proc: &Path, tgid: Tgid) -> io::Result<Vec<PathBuf>> {
    let directory = proc.join(tgid.0.to_string());
    let maps = read(&directory.join("maps"))?;
    let mut found: Vec<(&str, PathBuf)> = Vec::new();
    for line in maps.split(|byte| *byte == b'\n') {
        let Ok(line) = str::from_utf8(line) else {
            continue;
        };
        if let Some((range, _)) = line.split_once(' ')
            && let Some(at) = line.find('/')
            && let path = &line[at..]
            && is_library(Path::new(path))
            && found.iter().all(|(known, _)| *known != path)
            && let Some(name) = file_of_range(range)
        {
            // The file itself; where that may not be looked at, what has its name by now.
            let mapped = directory.join("map_files").join(name);
            let at_path = || directory.join("root").join(path.trim_start_matches('/'));
            let is_seen = file_id(&mapped).is_ok();
            found.push((path, if is_seen { mapped } else { at_path() }));
        }
    }
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// The name under `map_files`: without the zeroes that `maps` may begin an address with.
fn file_of_range(range: &str) -> Option<String> {
    let (start, end) = range.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(format!("{:x}-{:x}", number(start)?, number(end)?))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(File::open(path)?, TEXT_MAX), &mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_library_of_the_driver_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("libcuda.so.1");
        let sparse = File::create(&path).unwrap();
        sparse.set_len(FILE_MAX + 1).unwrap();
        assert!(matches!(Library::open(&path), Err(LibraryError::Size(_))));
        sparse.set_len(10).unwrap();
        assert!(matches!(Library::open(&path), Err(LibraryError::Elf(_))));
        assert!(matches!(
            Library::open(dir.path()),
            Err(LibraryError::Size(_) | LibraryError::Read(_))
        ));
    }
}
