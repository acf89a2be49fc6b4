//! Every kind of memory at once: what a ledger has to take apart.

use crate::args::Args;
use crate::sys::{self, Mapping};
use crate::{Workload, idle};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "household",
    help: "--processes N --heap B --inherited B --shared B --file B: all kinds, until standard input closes",
    run,
};

/// A file, removed however the workload ends in order.
struct Removed {
    path: PathBuf,
    file: File,
}

impl Removed {
    fn new(directory: PathBuf) -> io::Result<Self> {
        let path = directory.join(format!("memtrace-household-{}", std::process::id()));
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)?;
        Ok(Self { path, file })
    }
}

impl Drop for Removed {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            eprintln!("{} stays behind: {error}", self.path.display());
        }
    }
}

fn run(args: &Args) -> io::Result<()> {
    let processes = args.number("processes", 60)?;
    let heap = args.size("heap", 8 << 20)?;
    let inherited_bytes = args.size("inherited", 64 << 20)?;
    let shared_bytes = args.size("shared", 64 << 20)?;
    let file_bytes = args.size("file", 64 << 20)?;
    let inherited = Mapping::anon(inherited_bytes)?;
    inherited.touch(inherited_bytes);
    let shared = Removed::new(PathBuf::from("/dev/shm"))?;
    shared.file.set_len(shared_bytes as u64)?;
    let mut file = Removed::new(std::env::temp_dir())?;
    let block = vec![1; 1 << 20];
    for _ in 0..file_bytes.div_ceil(block.len()) {
        file.file.write_all(&block)?;
    }
    drop(block);
    let children = idle::start(processes, |index| {
        let own = Mapping::anon(heap)?;
        own.touch(heap);
        let object = Mapping::file(shared_bytes, shared.file.as_raw_fd())?;
        object.touch(shared_bytes);
        for offset in (0..inherited_bytes).step_by(sys::page_size()) {
            // SAFETY: inside of the mapping, which lives as long as this process.
            unsafe { inherited.start().add(offset).read_volatile() };
        }
        // Every fourth writes a quarter of what it inherited, and has it alone then.
        if index % 4 == 0 {
            inherited.touch(inherited_bytes / 4);
        }
        let file = Mapping::file(file_bytes, file.file.as_raw_fd())?;
        Ok((own, object, file))
    })?;
    idle::finish(&children)
}
