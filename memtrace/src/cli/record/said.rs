//! What `memtrace record` says when it begins, while it goes on, and at its end.

use super::findings;
use crate::cli::leftovers;
use crate::cli::output::say;
use crate::session::{Options, Outcome, Progress};
use memtrace_host::{Backend, Person};
use memtrace_model::{GpuInfo, RunInfo, Target, quoted};
use memtrace_report::words;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// What decides what is said when the recording begins.
pub(super) struct Beginning {
    /// Whether processes can match later.
    pub(super) can_come: bool,
    pub(super) is_gpu_only: bool,
    pub(super) has_nvidia_device: bool,
    /// What a backend that polls does not see of other users' processes.
    pub(super) hidden: Option<String>,
}

impl Beginning {
    /// Says where the recording goes, and what it is without; `found` is how many processes match.
    pub(super) fn say(&self, info: &RunInfo, dir: &Path, found: usize) {
        say(&format!(
            "recording with {} ({}) to {}",
            info.backend,
            info.backend_reason,
            dir.display()
        ));
        let is_polled = info.backend != Backend::Bpf.as_str();
        if let Some(hidden) = self
            .hidden
            .as_ref()
            .filter(|_| is_polled && !self.is_gpu_only)
        {
            say(hidden);
        }
        if found == 0 && self.can_come && !self.is_gpu_only {
            say("no process matches yet: waiting for one; Ctrl-C ends");
        }
        if !info.gpus.is_empty() {
            say(&format!("with the memory of {}", gpus(&info.gpus)));
        }
        // Without a GPU there is nothing to be missed.
        if let Some(note) = info.gpu_note.as_ref().filter(|_| self.has_nvidia_device) {
            say(&format!("without the memory of NVIDIA GPUs: {note}"));
        }
    }
}

/// The GPUs in a line: what each is, and how many of them.
fn gpus(gpus: &[GpuInfo]) -> String {
    let mut kinds: Vec<(&str, usize)> = Vec::new();
    for gpu in gpus {
        let name = gpu.name.as_deref().unwrap_or(&gpu.device);
        match kinds.iter_mut().find(|(kind, _)| *kind == name) {
            Some((_, count)) => *count += 1,
            None => kinds.push((name, 1)),
        }
    }
    let reported = kinds.iter().map(|(name, count)| match count {
        1 => (*name).to_owned(),
        count => format!("{count} × {name}"),
    });
    reported.collect::<Vec<_>>().join(", ")
}

/// Shows on a terminal how far the recording is.
pub(super) fn show_progress(progress: &Progress) {
    if !is_in_foreground() {
        return;
    }
    if progress.is_closing {
        let rows = words::count(progress.row_count);
        let _ = write!(
            std::io::stderr(),
            "\rmemtrace: closing the recording of {rows} rows\x1b[K"
        );
        return;
    }
    let seconds = progress.elapsed.0 / 1_000_000_000;
    let _ = write!(
        std::io::stderr(),
        "\rmemtrace: {:02}:{:02}:{:02}  {} processes, {} rows, {} KiB written; Ctrl-C to stop\x1b[K",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        progress.process_count,
        progress.row_count,
        progress.written_bytes.0 / 1024,
    );
}

/// Removes that line.
pub(super) fn end_progress() {
    if is_in_foreground() {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
}

/// 128 + SIGINT.
const INTERRUPTED: u8 = 130;

/// The end, reported in a line; the exit code is the command's.
pub(super) fn finish(
    outcome: &Outcome,
    is_carried: bool,
    is_quiet: bool,
    options: &Options,
) -> ExitCode {
    for log in &outcome.absent_logs {
        say(&format!(
            "{} never appeared: it gave no marks",
            log.display()
        ));
    }
    if !is_quiet || outcome.storage_failure.is_some() {
        let can_end = !matches!(options.target, Target::All);
        leftovers::words(&outcome.leftovers, can_end)
            .iter()
            .for_each(|line| say(line));
        say(&closing_words(outcome, is_carried, options.is_gpu_only));
    }
    match outcome.command_exit_code {
        Some(code) => ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)),
        None if outcome.storage_failure.is_some() => ExitCode::FAILURE,
        // As a shell reports a command that was interrupted: `&&` must not go on.
        None if outcome.is_interrupted => ExitCode::from(INTERRUPTED),
        // A script that goes on to read the recording should not find out there.
        None if outcome.process_count == 0 => ExitCode::FAILURE,
        None => ExitCode::SUCCESS,
    }
}

/// Has phases and roles saved as tables beside the recording.
pub(super) fn save_findings(outcome: &Outcome, person: Option<&Person>, is_quiet: bool) {
    let Err(mut reason) = findings::save(outcome, person, is_quiet) else {
        return;
    };
    // What is said of damage has its own way out.
    if !reason.contains("memtrace report") {
        let dir = quoted(&outcome.dir.display().to_string());
        reason.push_str(&format!(
            "; for them: memtrace report --save-findings {dir}"
        ));
    }
    if !is_quiet {
        say(&format!(
            "phases and roles are not saved as tables: {reason}"
        ));
    }
}

pub(super) fn closing_words(outcome: &Outcome, is_carried: bool, is_gpu_only: bool) -> String {
    let dir = outcome.dir.display();
    if let Some(failure) = &outcome.storage_failure {
        return format!("stopped recording: {failure}; what was written so far is in {dir}");
    }
    let counted = match outcome.process_count {
        _ if is_gpu_only => "GPUs and who held their memory".to_owned(),
        0 => return format!("no process matched: {dir} holds figures of the machine only"),
        1 => "1 process".to_owned(),
        count => format!("{count} processes"),
    };
    if is_carried {
        return format!("{counted} in {dir}");
    }
    let typed = quoted(&dir.to_string());
    format!("{counted} in {dir}; see it with: memtrace report {typed}")
}

/// Whether the terminal is ours: a shell can have put memtrace behind itself.
#[cfg(unix)]
fn is_in_foreground() -> bool {
    // SAFETY: both take and give plain numbers.
    unsafe { libc::tcgetpgrp(libc::STDERR_FILENO) == libc::getpgrp() }
}

#[cfg(not(unix))]
fn is_in_foreground() -> bool {
    true
}
