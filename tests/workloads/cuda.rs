//! A program that uses the CUDA driver, in the ways in which programs do.
//!
//! It runs on the stand-in of `tests/cuda`, whose own account it prints at every checkpoint, and then
//! waits, so that a recorder that writes every 100 ms has written that state.

mod allocators;
mod library;
mod processes;
mod small;
mod threads;

use crate::Workload;
use crate::args::{Args, bad};
use crate::sys;
use library::Driver;
use std::io;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "cuda",
    help: "--library PATH --scenario NAME --devices N --capacity B: calls of the CUDA driver",
    run,
};

/// A MiB in bytes.
pub(crate) const MIB: usize = 1 << 20;

/// A way to use the driver, by name.
type Scenario = (&'static str, fn(&Driver, &Setting) -> io::Result<()>);

const SCENARIOS: &[Scenario] = &[
    ("torch", allocators::torch),
    ("expandable", allocators::expandable),
    ("sleep", allocators::sleep),
    ("nccl", allocators::nccl),
    ("host", small::host),
    ("kinds", small::kinds),
    ("refused", small::refused),
    ("brief", small::brief),
    ("late", small::late),
    ("pools", threads::pools),
    ("devices", threads::devices),
    ("contexts", threads::contexts),
    ("reuse", threads::reuse),
    ("storm", threads::storm),
    ("many", threads::many),
    ("ipc", processes::ipc),
    ("share", processes::share),
    ("fork_server", processes::fork_server),
    ("after_exec", processes::after_exec),
    ("hang", processes::hang),
    ("killed", processes::killed),
];

/// What a scenario may need to know.
pub(crate) struct Setting {
    /// Where the library is.
    pub(crate) library: String,
    /// How often, for what repeats.
    pub(crate) count: usize,
}

fn run(args: &Args) -> io::Result<()> {
    let library = args.text("library", "libcuda.so.1");
    let name = args.text("scenario", "torch");
    let count = args.size("count", 50_000)?;
    let variables = [
        ("MEMTRACE_FAKE_CUDA_DEVICES", args.number("devices", 1)?),
        (
            "MEMTRACE_FAKE_CUDA_CAPACITY",
            args.number("capacity", 80 << 30)?,
        ),
    ];
    for (variable, value) in variables {
        // SAFETY: this process has one thread.
        unsafe { std::env::set_var(variable, value.to_string()) };
    }
    let scenario = SCENARIOS.iter().find(|(own, _)| *own == name);
    let (_, scenario) = scenario.ok_or_else(|| bad(format!("there is no scenario {name:?}")))?;
    let pause_ms = args.number("pause-ms", 0)?;
    let settle_ms = args.number("settle-ms", 600)?;
    let driver = Driver::load(&library, settle_ms.cast_signed() * 1_000_000)?;
    // Time to find the library in the mappings of this process.
    sys::sleep_ns(pause_ms.cast_signed() * 1_000_000);
    scenario(&driver, &Setting { library, count })?;
    // As a program that is killed while it ends: nothing is given back by hand.
    sys::exit(0)
}
