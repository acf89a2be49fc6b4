//! Ends by SIGBUS: a page of a file for which its file system has no room.

use crate::Workload;
use crate::args::Args;
use crate::sys::Mapping;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "bus-error",
    help: "--path P --bytes B: touches B of a new file, removed at once, until a page finds no room",
    run,
};

fn run(args: &Args) -> io::Result<()> {
    let path = args.text("path", "");
    let bytes = args.size("bytes", 64 << 20)?;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    std::fs::remove_file(path)?;
    file.set_len(bytes as u64)?;
    let mapping = Mapping::file(bytes, file.as_raw_fd())?;
    mapping.touch(bytes);
    Ok(())
}
