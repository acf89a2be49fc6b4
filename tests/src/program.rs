//! Where the programs under test are: beside the one that runs.

use anyhow::{Context, Result, bail, ensure};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The `memtrace` command of this build.
///
/// # Errors
/// When it was not built.
pub fn memtrace() -> Result<PathBuf> {
    sibling("memtrace")
}

/// What it starts for `memtrace load`.
///
/// # Errors
/// When it was not built.
pub fn memtrace_remote() -> Result<PathBuf> {
    sibling("memtrace-remote")
}

/// The workloads of this build.
///
/// # Errors
/// When they were not built.
pub fn workload() -> Result<PathBuf> {
    sibling("memtrace-workload")
}

/// The Python that has Ray, which `cargo xtask test` installs into target/ray.
///
/// # Errors
/// When it was not installed.
pub fn ray_python() -> Result<PathBuf> {
    let own = std::env::current_exe().context("failed to find this program")?;
    let found = own
        .ancestors()
        .skip(2)
        .take(2)
        .map(|target| target.join("ray/bin/python3"))
        .find(|python| python.is_file());
    found.context("there is no target/ray; `cargo xtask test` installs it")
}

/// What a program says that ends well.
///
/// # Errors
/// When it can't be started, or fails, with what it said.
pub fn said(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", why.trim());
    Ok(String::from_utf8(output.stdout)?)
}

/// The stand-in for NVIDIA's library, as the dependency of this crate that it is.
///
/// # Errors
/// When it was not built.
pub fn fake_nvml() -> Result<PathBuf> {
    sibling("libmemtrace_fake_nvml.so")
}

/// The stand-in for the CUDA driver, as the dependency of this crate that it is.
///
/// # Errors
/// When it was not built.
pub fn fake_cuda() -> Result<PathBuf> {
    sibling("libmemtrace_fake_cuda.so")
}

fn sibling(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("failed to find this program")?;
    // A test runs in target/<profile>/deps, other programs in target/<profile>.
    let found = own
        .ancestors()
        .skip(1)
        .take(2)
        .flat_map(|dir| [dir.join(name), dir.join("deps").join(name)])
        .find(|program| program.is_file());
    match found {
        Some(program) => Ok(program),
        None => bail!(
            "{name} is not built beside {}; run `cargo build --workspace` in the same profile, \
             or `cargo xtask test`",
            own.display()
        ),
    }
}
