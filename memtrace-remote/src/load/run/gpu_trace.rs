//! `gpu_mem_trace.csv` of a run: the recording that went on meanwhile knows the memory of GPUs, and
//! memtrace writes it into the folder.

use memtrace::cli::say;
use memtrace_analyze::{Names, gpu_files};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const NAME: &str = "gpu_mem_trace.csv";
/// What a recorder knows is on its disk by then.
const WRITTEN: Duration = Duration::from_millis(1_500);

/// Writes it into the folder of a run, from the first of these recordings that has it; without one
/// its head alone. Says what is missing.
pub(super) fn write(folder: &Path, recordings: &[PathBuf]) {
    if !recordings.is_empty() {
        std::thread::sleep(WRITTEN);
    }
    let mut has_failed = false;
    for recording in recordings {
        match export(folder, recording) {
            Ok(()) if folder.join(NAME).exists() => return,
            Ok(()) => {}
            Err(error) => {
                has_failed = true;
                say(&format!(
                    "{NAME} is not written from {}: {error}",
                    recording.display()
                ));
            }
        }
    }
    if has_failed {
        // A head alone would say that no GPU had memory in use, and `export --add` would leave it.
        return;
    }
    let head = File::create_new(folder.join(NAME));
    if let Err(error) = head.and_then(|mut file| gpu_files::gpu_head(&mut file, Names::Units)) {
        say(&format!("failed to write {NAME}: {error}"));
    }
}

/// Has memtrace add what the folder lacks.
fn export(folder: &Path, recording: &Path) -> io::Result<()> {
    let beside = std::env::current_exe()?.with_file_name("memtrace");
    let program = match beside.exists() {
        true => beside,
        false => PathBuf::from("memtrace"),
    };
    // A folder without another above it is in the current directory.
    let above = folder.parent().filter(|above| *above != Path::new(""));
    let output = Command::new(program)
        .args(["export", "--to", "load", "--add", "-o"])
        .arg(above.unwrap_or(Path::new(".")))
        .arg("--only")
        .arg(folder.file_name().unwrap_or_default())
        .arg("--")
        .arg(recording)
        .stdin(Stdio::null())
        .output()?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.lines().last().unwrap_or("it failed");
            Err(io::Error::other(last.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_recording_the_file_has_its_head_alone() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &[]);
        let text = std::fs::read_to_string(dir.path().join(NAME)).unwrap();
        assert!(text.starts_with("timestamp_iso,"), "{text}");
        assert!(text.contains("util_pct,boot_ns,wall_ns"), "{text}");
        assert_eq!(text.lines().count(), 1);
    }
}
