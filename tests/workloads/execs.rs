//! Short-lived children with difficult names and long command lines.

use crate::Workload;
use crate::args::Args;
use crate::sys;
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "execs",
    help: "--count N --cmdline-bytes B: children with odd names and long command lines",
    run,
};

/// File names that break a line, a terminal, a UTF-8 decoder, a parser of /proc/PID/stat.
const NAMES: &[&[u8]] = &[
    b"new\nline",
    b"\x1b[31mred",
    b"bad\xff\xfeutf8",
    b") R 1 (",
    b"fifteen_bytes__and_more",
];

/// A directory that goes away with the value.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{} stays behind: {error}", self.0.display());
        }
    }
}

fn run(args: &Args) -> io::Result<()> {
    let count = args.size("count", 50)?;
    let cmdline_bytes = args.size("cmdline-bytes", 4_096)?;
    let name = format!("memtrace-workload-{}", std::process::id());
    let directory = Directory(std::env::temp_dir().join(name));
    std::fs::create_dir(&directory.0)?;
    let own = std::env::current_exe()?;
    let programs = NAMES
        .iter()
        .map(|name| link(&own, &directory.0.join(OsStr::from_bytes(name))))
        .collect::<io::Result<Vec<_>>>()?;
    for program in programs.iter().cycle().take(count) {
        let argv = argv(program, cmdline_bytes);
        let mut command = Command::new(program);
        command.arg0(&argv[0]).args(&argv[1..]);
        let child = sys::fork_child(|| Err(command.exec()))?;
        let ended = sys::wait_success(child)?;
        // As /proc/PID/cmdline has it: every argument with its NUL.
        let cmdline: Vec<u8> = argv
            .iter()
            .flat_map(|word| word.as_bytes().iter().copied().chain([0]))
            .collect();
        sys::say(&format!(
            "{{\"pid\":{},\"exe_hex\":\"{}\",\"cmdline_hex\":\"{}\",\"ru_maxrss_bytes\":{}}}",
            ended.pid,
            hex(program.as_os_str().as_bytes()),
            hex(&cmdline),
            ended.maxrss_bytes
        ))?;
    }
    Ok(())
}

/// `hwm` with enough ignored words behind it to fill the command line exactly.
fn argv(program: &Path, cmdline_bytes: usize) -> Vec<OsString> {
    let mut argv = vec![program.as_os_str().to_owned(), "hwm".into()];
    let used: usize = argv.iter().map(|word| word.len() + 1).sum();
    let option = "--padding";
    let rest = cmdline_bytes.saturating_sub(used + option.len() + 2);
    argv.push(option.into());
    argv.push("x".repeat(rest).into());
    argv
}

fn link(own: &Path, to: &Path) -> io::Result<PathBuf> {
    // The name of a process is that of the file as it was asked for, so a link will do.
    std::os::unix::fs::symlink(own, to)?;
    Ok(to.to_owned())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
