//! `cargo memtrace`: builds memtrace and runs it, to try it from a checkout.
//!
//! Only `record` gains from privileges, so only for `record`, and only when the caller is
//! not root, sudo is asked; memtrace itself gives the command and the recording back to
//! the caller.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

/// Becomes `cargo run`, and so memtrace: its exit code and its signals are those of the program.
fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let is_record = words.first().is_some_and(|word| word == "record");
    let asks_sudo = is_record && !is_root() && has_sudo();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let error = command(cargo, &words, asks_sudo).exec();
    // The one thing that it says itself.
    #[allow(clippy::print_stderr)]
    {
        eprintln!("error: failed to run cargo: {error}");
    }
    ExitCode::FAILURE
}

fn command(cargo: OsString, words: &[OsString], asks_sudo: bool) -> Command {
    let mut command = Command::new(cargo);
    command.args(["run", "--locked", "--profile", "quick"]);
    // As cargo says at run time: a checkout can have moved since it was built.
    let here = std::env::var_os("CARGO_MANIFEST_DIR");
    let here = here.unwrap_or_else(|| OsString::from(env!("CARGO_MANIFEST_DIR")));
    let root = PathBuf::from(here).join("../..");
    // The first build takes minutes, in which something should be seen to go on.
    if root.join("target/quick/memtrace").exists() {
        command.arg("--quiet");
    }
    command
        .arg("--manifest-path")
        .arg(root.join("memtrace/Cargo.toml"));
    if asks_sudo {
        command.args(["--config", "target.'cfg(unix)'.runner = 'sudo'"]);
    }
    command.arg("--").args(words);
    command
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|id| id.stdout.trim_ascii() == b"0")
}

fn has_sudo() -> bool {
    let mut sudo = Command::new("sudo");
    sudo.arg("-V").stdout(Stdio::null()).stderr(Stdio::null());
    sudo.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_passed_on_and_sudo_runs_the_program_where_it_is_asked() {
        let words = ["record", "-a"].map(OsString::from);
        for asks_sudo in [false, true] {
            let command = command("cargo".into(), &words, asks_sudo);
            let all: Vec<_> = command.get_args().collect();
            assert_eq!(all[all.len() - 3..], ["--", "record", "-a"]);
            let is_asked = all
                .iter()
                .any(|word| word.to_string_lossy().contains("sudo"));
            assert_eq!(is_asked, asks_sudo);
        }
    }
}
