//! `memtrace-workload NAME [--option VALUE]...`: small programs whose answer is known.
//!
//! Each prints its truth as JSON lines: what the kernel accounts to a process
//! (wait4, /proc/self/status), not what it meant to use. One binary, no dependency but
//! libc, so that a process of it starts fast and is small.

// Printing the truth is what these programs are for.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod asks;
mod behind_sudo;
mod blocked;
mod bus_error;
mod changers;
mod clone_vm;
mod cow;
mod cuda;
mod daemons;
mod endings;
mod exec_from_thread;
mod execs;
mod forkstorm;
mod holdings;
mod household;
mod hwm;
mod idle;
mod inside;
mod leader_exit;
mod marks;
mod mortal;
mod now;
mod oom;
mod phases;
mod reserve;
mod scapegoat;
mod shm;
mod sites;
mod spike;
mod staged;
mod stall;
mod steps;
mod storm;
mod survivors;
mod swarm;
mod sys;
mod threads;
mod titles;
mod vforkchild;
mod vm;
mod zombie;

use args::Args;
use std::io;
use std::process::ExitCode;

/// One workload: its name, a line of help, and what it does.
struct Workload {
    name: &'static str,
    help: &'static str,
    run: fn(&Args) -> io::Result<()>,
}

/// In the order of the alphabet.
const WORKLOADS: &[Workload] = &[
    asks::WORKLOAD,
    behind_sudo::WORKLOAD,
    blocked::WORKLOAD,
    bus_error::WORKLOAD,
    changers::WORKLOAD,
    clone_vm::WORKLOAD,
    cow::WORKLOAD,
    cuda::WORKLOAD,
    daemons::WORKLOAD,
    endings::WORKLOAD,
    exec_from_thread::WORKLOAD,
    execs::WORKLOAD,
    forkstorm::WORKLOAD,
    holdings::WORKLOAD,
    household::WORKLOAD,
    hwm::WORKLOAD,
    idle::WORKLOAD,
    inside::WORKLOAD,
    leader_exit::WORKLOAD,
    marks::WORKLOAD,
    mortal::WORKLOAD,
    now::WORKLOAD,
    oom::WORKLOAD,
    phases::WORKLOAD,
    reserve::WORKLOAD,
    scapegoat::WORKLOAD,
    shm::WORKLOAD,
    sites::WORKLOAD,
    spike::WORKLOAD,
    staged::WORKLOAD,
    steps::WORKLOAD,
    stall::WORKLOAD,
    storm::WORKLOAD,
    survivors::WORKLOAD,
    swarm::WORKLOAD,
    threads::WORKLOAD,
    titles::WORKLOAD,
    vforkchild::WORKLOAD,
    vm::WORKLOAD,
    zombie::WORKLOAD,
];

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let name = words.next().unwrap_or_default();
    let Some(workload) = WORKLOADS.iter().find(|workload| name == workload.name) else {
        eprintln!("usage: memtrace-workload NAME [--option VALUE]...");
        eprintln!("with --held 1 it does nothing before a byte comes on standard input");
        for workload in WORKLOADS {
            eprintln!("  {:<17} {}", workload.name, workload.help);
        }
        return ExitCode::from(2);
    };
    let outcome = Args::parse(words).and_then(|args| {
        if args.number("held", 0)? == 1 {
            sys::until_a_byte_comes()?;
        }
        (workload.run)(&args)?;
        args.all_used()
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", workload.name);
            ExitCode::FAILURE
        }
    }
}
