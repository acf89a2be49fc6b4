//! Many processes of many sleeping threads: what a walk over all tasks costs.

use crate::args::Args;
use crate::{Workload, idle};
use std::io;
use std::thread::{Builder, park};

pub(crate) const WORKLOAD: Workload = Workload {
    name: "threads",
    help: "--processes P --threads T: until standard input closes",
    run,
};

fn run(args: &Args) -> io::Result<()> {
    let processes = args.number("processes", 100)?;
    let threads = args.number("threads", 200)?;
    let children = idle::start(processes, |_| {
        // The main thread is one of them.
        (1..threads)
            .map(|_| {
                Builder::new().stack_size(64 << 10).spawn(|| {
                    loop {
                        park();
                    }
                })
            })
            .collect::<io::Result<Vec<_>>>()
    })?;
    idle::finish(&children)
}
