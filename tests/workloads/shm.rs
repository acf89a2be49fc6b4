//! One object, in /dev/shm or a memfd, that several processes map: RSS counts it once each.

use crate::Workload;
use crate::args::{Args, bad};
use crate::sys::{self, Mapping};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "shm",
    help: "--kind posix|memfd --bytes B --processes N [--hold-ms H]: N processes map and touch one object, until stdin closes without H",
    run,
};

/// The object, its name removed however the workload ends in order.
struct Object {
    path: PathBuf,
    file: File,
    is_named: bool,
}

impl Object {
    fn posix() -> io::Result<Self> {
        let path = PathBuf::from(format!("/dev/shm/memtrace-workload-{}", std::process::id()));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)?;
        Ok(Self {
            path,
            file,
            is_named: true,
        })
    }

    fn memfd() -> io::Result<Self> {
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::memfd_create(c"workload".as_ptr(), libc::MFD_CLOEXEC) };
        let fd = sys::check(fd)?;
        Ok(Self {
            path: PathBuf::from("/memfd:workload"),
            // SAFETY: a new descriptor, which nothing else owns.
            file: unsafe { File::from_raw_fd(fd) },
            is_named: false,
        })
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        if self.is_named
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            eprintln!("{} stays behind: {error}", self.path.display());
        }
    }
}

fn run(args: &Args) -> io::Result<()> {
    let bytes = args.size("bytes", 512 << 20)?;
    let processes = args.number("processes", 9)?;
    let hold_ms = args.number("hold-ms", 0)?.cast_signed();
    let object = match args.text("kind", "posix").as_str() {
        "posix" => Object::posix()?,
        "memfd" => Object::memfd()?,
        other => return Err(bad(format!("no kind of object: {other}"))),
    };
    object.file.set_len(bytes as u64)?;
    let (mut ready_reader, ready_writer) = io::pipe()?;
    let mut children = Vec::new();
    for _ in 0..processes {
        children.push(sys::fork_child(|| {
            sys::die_with_parent()?;
            let mapping = Mapping::file(bytes, object.file.as_raw_fd())?;
            mapping.touch(bytes);
            let line = format!(
                "{{\"pid\":{},\"vmhwm_bytes\":{}}}\n",
                std::process::id(),
                sys::status().vmhwm_bytes
            );
            io::Write::write_all(&mut (&ready_writer), line.as_bytes())?;
            // SAFETY: the descriptor is this process's own copy, and not used again.
            sys::check(unsafe { libc::close(ready_writer.as_raw_fd()) })?;
            match hold_ms {
                0 => sys::until_stdin_closes()?,
                _ => sys::sleep_ns(hold_ms * 1_000_000),
            }
            drop(mapping);
            Ok(())
        })?);
    }
    drop(ready_writer);
    let mut lines = String::new();
    ready_reader.read_to_string(&mut lines)?;
    let meta = object.file.metadata()?;
    sys::say(&format!(
        "{lines}{{\"object\":{:?},\"inode\":{},\"size_bytes\":{},\"allocated_bytes\":{}}}",
        object.path,
        meta.ino(),
        meta.len(),
        meta.blocks() * 512
    ))?;
    for child in children {
        sys::wait_success(child)?;
    }
    Ok(())
}
