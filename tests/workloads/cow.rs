//! Memory that children inherit and only read: RSS counts it once in each.

use crate::args::Args;
use crate::sys::Mapping;
use crate::{Workload, idle, sys};
use std::io;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "cow",
    help: "--bytes B --processes N: N children read what they inherited, until standard input closes",
    run,
};

fn run(args: &Args) -> io::Result<()> {
    let bytes = args.size("bytes", 1 << 30)?;
    let processes = args.number("processes", 8)?;
    let memory = Mapping::anon(bytes)?;
    memory.touch(bytes);
    let children = idle::start(processes, |_| {
        for offset in (0..bytes).step_by(sys::page_size()) {
            // SAFETY: inside of the mapping, which lives as long as this process.
            unsafe { memory.start().add(offset).read_volatile() };
        }
        Ok(())
    })?;
    idle::finish(&children)
}
