//! The machine's file system: the programs, the shared libraries they need, and busybox
//! for a shell. An uncompressed cpio archive in the "newc" format, which the kernel unpacks
//! (Documentation/driver-api/early-userspace/buffer-format.rst).

use super::package;
use super::programs::Programs;
use crate::sh;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the programs are in the machine.
pub(super) const PROGRAMS: &str = "/memtrace";

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;

/// Writes the archive.
pub(super) fn write(to: &Path, programs: &Programs) -> Result<()> {
    let file = File::create(to).with_context(|| format!("failed to make {}", to.display()))?;
    let mut archive = Archive {
        out: BufWriter::new(file),
        directories: BTreeSet::new(),
    };
    let files = files_below(&programs.dir)?;
    for file in &files {
        archive.file(
            &Path::new(PROGRAMS).join(file.strip_prefix(&programs.dir)?),
            file,
        )?;
    }
    for library in libraries(&files)? {
        archive.file(&library, &library)?;
    }
    let busybox = package::directory("busybox-static", "bin")?.join("busybox");
    archive.file(Path::new("/bin/busybox"), &busybox)?;
    for applet in sh::capture(Command::new(&busybox).arg("--list"))?.lines() {
        if applet != "busybox" {
            archive.link(&Path::new("/bin").join(applet), "busybox")?;
        }
    }
    archive.finish()
}

/// All files in a directory and below.
pub(super) fn files_below(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(files_below(&path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

/// The shared libraries that programs need, and the loader, by their paths here.
fn libraries(programs: &[PathBuf]) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for program in programs {
        // A file that is no program has no libraries, and ldd says so by failing.
        let Ok(text) = sh::capture(Command::new("ldd").arg(program)) else {
            continue;
        };
        // `libc.so.6 => /lib/…/libc.so.6 (0x…)`, or the loader's path alone.
        for word in text.split_whitespace() {
            if word.starts_with('/') {
                found.insert(PathBuf::from(word));
            }
        }
    }
    if found.is_empty() {
        bail!("ldd names no library of {programs:?}");
    }
    Ok(found)
}

struct Archive {
    out: BufWriter<File>,
    directories: BTreeSet<PathBuf>,
}

impl Archive {
    fn file(&mut self, path: &Path, from: &Path) -> Result<()> {
        self.parents(path)?;
        let bytes =
            std::fs::read(from).with_context(|| format!("failed to read {}", from.display()))?;
        self.entry(path, PROGRAM, &bytes)
    }

    fn link(&mut self, path: &Path, target: &str) -> Result<()> {
        self.parents(path)?;
        self.entry(path, LINK, target.as_bytes())
    }

    /// The directories above a path, outermost first.
    fn parents(&mut self, path: &Path) -> Result<()> {
        let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
        above.reverse();
        for dir in above {
            if dir != Path::new("/") && self.directories.insert(dir.to_owned()) {
                self.entry(dir, DIRECTORY, &[])?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, path: &Path, mode: u32, bytes: &[u8]) -> Result<()> {
        let name = path.strip_prefix("/").unwrap_or(path).as_os_str();
        self.raw(name.as_bytes(), mode, bytes)
            .with_context(|| format!("failed to write {}", path.display()))
    }

    fn raw(&mut self, name: &[u8], mode: u32, bytes: &[u8]) -> io::Result<()> {
        let size = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        let name_size = u32::try_from(name.len() + 1).map_err(io::Error::other)?;
        // Inode, mode, owner, group, links, time, size, two devices in two parts each,
        // length of the name, checksum. The kernel links files of one inode only where
        // they have more than one link.
        let fields = [0, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        let mut header = b"070701".to_vec();
        for field in fields {
            write!(header, "{field:08x}")?;
        }
        header.extend_from_slice(name);
        header.push(0);
        self.padded(&header)?;
        self.padded(bytes)
    }

    fn padded(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        let padding = bytes.len().next_multiple_of(4) - bytes.len();
        self.out.write_all(&[0; 3][..padding])
    }

    fn finish(mut self) -> Result<()> {
        self.raw(b"TRAILER!!!", 0, &[])?;
        self.out.flush().context("failed to write the archive")
    }
}
