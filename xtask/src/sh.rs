//! Running other programs, and where the repository is.

use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

/// The root of the checkout.
pub(crate) fn root() -> PathBuf {
    // At run time, so that a binary that was built before the checkout moved is not
    // pointed at the old place; cargo sets it for `cargo run`.
    let manifest_dir = std::env::var_os("CARGO_MANIFEST_DIR")
        .unwrap_or_else(|| OsString::from(env!("CARGO_MANIFEST_DIR")));
    let manifest_dir = PathBuf::from(manifest_dir);
    manifest_dir
        .parent()
        .map_or(manifest_dir.clone(), Path::to_path_buf)
}

/// The directory of build output that tasks share; one per checkout.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The cargo that runs this task.
pub(crate) fn cargo() -> Command {
    let mut command =
        Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    // `cargo run` sets these of xtask. Build scripts that look at them (ring's does) would run once
    // more each time that cargo is called from a task after it was called without.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Builds the programs of all packages, as tests of the whole workspace have them built: of one
/// package alone the same crates have other features, and would be built once more. Answers where
/// they are. `more` are words for cargo.
pub(crate) fn build_programs(more: &[&str]) -> Result<PathBuf> {
    let words = ["build", "--locked", "--workspace", "--bins"];
    run(cargo().current_dir(root()).args(words).args(more))?;
    Ok(target_dir().join("debug"))
}

/// All packages, as cargo knows them; `words` choose features and systems.
pub(crate) fn metadata(words: &[&str]) -> Result<cargo_metadata::Metadata> {
    let mut ask = cargo_metadata::MetadataCommand::new();
    let words = ["--locked"].iter().chain(words);
    ask.current_dir(root())
        .other_options(words.map(|word| (*word).to_owned()).collect::<Vec<_>>());
    Ok(ask.exec()?)
}

/// Runs a command to its end with its output on the terminal; any failure is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = shown(command);
    eprintln!("$ {line}");
    let status = command
        .status()
        .with_context(|| format!("failed to start `{line}`"))?;
    succeeded(&line, status)
}

/// Runs a command that writes to a file, and shows on the terminal what it writes there. A process
/// that it leaves behind can hold the file open: a pipe would then never end.
pub(crate) fn run_shown(command: &mut Command, log: &Path) -> Result<()> {
    let line = shown(command);
    let mut said = std::fs::File::open(log)?;
    let mut child = command
        .spawn()
        .with_context(|| format!("failed to start `{line}`"))?;
    let status = loop {
        let ended = child.try_wait()?;
        std::io::copy(&mut said, &mut std::io::stdout())?;
        match ended {
            Some(status) => break status,
            None => std::thread::sleep(SHOWN_EVERY),
        }
    };
    succeeded(&line, status)
}

fn succeeded(line: &str, status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("`{line}` ended with {status}");
    }
    Ok(())
}

/// How often what a command has written is looked for.
const SHOWN_EVERY: Duration = Duration::from_millis(100);

/// Runs a command and gives its standard output; any failure is an error that carries
/// what the command said.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let line = shown(command);
    let output = command
        .output()
        .with_context(|| format!("failed to start `{line}`"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{line}` ended with {}: {}", output.status, said.trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{line}` printed invalid UTF-8"))
}

/// The first file of this name in `PATH`.
pub(crate) fn find_in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

fn shown(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    line
}
