//! `cargo xtask TASK`: what the project does for itself. One file per task.

// A task's output is for the person who ran it; there is no library below this that
// could be made to print by accident.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod book;
mod ci;
mod circles;
mod compiler;
mod debian;
mod deny;
mod dist;
mod ebpf;
mod fuzz;
mod hex;
mod hosts;
mod lab;
mod lines;
mod macos;
mod page;
mod python;
mod quick;
mod schema;
mod sh;
mod test;
mod venv;
mod vm;
mod words;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The project's own tasks.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Rebuild the committed BPF object, or check that it is the one its sources give.
    Ebpf(ebpf::Args),
    /// Check that no files of a crate import each other in a circle.
    Circles,
    /// Check that no refused word stands in code or pages.
    Words,
    /// Count code and tests by crate, and the functions that are too long.
    Lines,
    /// Build and run every test that can run here; say which can't.
    Test(test::Args),
    /// Check what was edited: format, clippy, and the tests of the packages that changed.
    Quick(quick::Args),
    /// Everything that must hold before a change lands; leaves out what has nothing new to check.
    Ci(ci::Args),
    /// Write docs/tables.md from the declared tables, or check it.
    Schema(schema::Args),
    /// Measure what memtrace promises.
    Bench(bench::Args),
    /// Hold memtrace against an independent tracer; print what was asked for and found.
    Lab(lab::Args),
    /// Try arbitrary bytes on all that reads what others wrote.
    Fuzz(fuzz::Args),
    /// Make the packages that are given to people: tarballs, wheels, a Debian package, an image.
    Dist(dist::Args),
    /// Make a site of docs/, and look its links up.
    Book(book::Args),
    /// Check licences and origins of dependencies.
    Deny,
    /// Type-check memtrace for macOS.
    Macos(macos::Args),
    /// Test the Python package.
    Python(python::Args),
    /// Try launchers and readers of many hosts: Ray, Slurm, Spark.
    Hosts(hosts::Args),
    /// Check the script of the HTML page, and try it in a browser.
    Page(page::Args),
    /// Run the kernel tests on Debian's kernels, in an emulated machine.
    Vm(vm::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().task {
        Task::Ebpf(args) => ebpf::run(&args),
        Task::Circles => circles::run(),
        Task::Words => words::run(),
        Task::Lines => lines::run(),
        Task::Test(args) => test::run(&args),
        Task::Quick(args) => quick::run(&args),
        Task::Ci(args) => ci::run(&args),
        Task::Schema(args) => schema::run(&args),
        Task::Bench(args) => bench::run(&args),
        Task::Lab(args) => lab::run(&args),
        Task::Book(args) => book::run(&args),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::Dist(args) => dist::run(&args),
        Task::Deny => deny::run(),
        Task::Macos(args) => macos::run(&args),
        Task::Python(args) => python::run(&args),
        Task::Hosts(args) => hosts::run(&args),
        Task::Page(args) => page::run(&args),
        Task::Vm(args) => vm::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
