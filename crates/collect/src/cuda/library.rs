//! Where libcuda is, and where its functions begin.

use super::functions::FUNCTIONS;
use memtrace_model::Tgid;
use object::elf::FileHeader64;
use object::read::elf::ElfFile;
use object::{Endianness, Object, ObjectSection, ObjectSegment, ObjectSymbol, ReadCache};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The driver's library is called so, and with the driver's version behind it.
const NAME: &str = "libcuda.so";
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

/// Whether the return of a function can be probed without harm. From 6.11 on that takes a system call
/// of its own, which a seccomp filter that does not know it refuses, and the program ends by SIGSEGV,
/// until 6.12.14, 6.13.3 and 6.14 let it pass filters (x86-64).
pub fn is_harmless(release: &str) -> bool {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse::<u32>().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    let version = (next(), next(), next());
    let is_harmful = match version {
        (6, 11, _) => true,
        (6, 12, patch) => patch < 14,
        (6, 13, patch) => patch < 3,
        _ => false,
    };
    !cfg!(target_arch = "x86_64") || !is_harmful
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
    name.is_some_and(|name| name.starts_with(NAME))
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
            found.push((path, directory.join("map_files").join(name)));
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
    fn kernels_on_which_a_return_probe_can_end_a_program_are_known() {
        for release in ["6.11.0-19-generic", "6.12.13", "6.13.2-arch1"] {
            assert_eq!(is_harmless(release), cfg!(not(target_arch = "x86_64")));
        }
        for release in [
            "5.15.0-1",
            "6.8.0-51-generic",
            "6.12.14",
            "6.12.48+deb13",
            "6.18.44",
        ] {
            assert!(is_harmless(release), "{release}");
        }
    }

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
