//! A process as sysinfo lists it, in our terms.

use ::sysinfo::{Pid, Process, ProcessRefreshKind, ProcessStatus, UpdateKind};
use memtrace_model::Tgid;

/// Longest command line that is kept.
const CMDLINE_LIMIT: usize = 4096;

/// What is read besides memory, for those whose names are due.
pub(super) fn names() -> ProcessRefreshKind {
    ProcessRefreshKind::nothing()
        .with_memory()
        .with_cmd(UpdateKind::Always)
        .with_exe(UpdateKind::Always)
        .with_user(UpdateKind::Always)
        .without_tasks()
}

pub(super) fn pid(tgid: Tgid) -> Pid {
    Pid::from_u32(tgid.0)
}

pub(super) fn tgid_of(pid: Pid) -> Tgid {
    Tgid(pid.as_u32())
}

pub(super) fn is_alive(process: &Process) -> bool {
    !matches!(
        process.status(),
        ProcessStatus::Zombie | ProcessStatus::Dead
    )
}

pub(super) fn comm(process: &Process) -> String {
    process.name().to_string_lossy().into_owned()
}

pub(super) fn title(process: &Process) -> Option<String> {
    let arguments: Vec<_> = process
        .cmd()
        .iter()
        .map(|argument| argument.to_string_lossy())
        .collect();
    let mut line = arguments.join(" ");
    let mut end = line.len().min(CMDLINE_LIMIT);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    line.truncate(end);
    // What setproctitle leaves behind when the title is shorter than the arguments.
    line.truncate(line.trim_end_matches(['\0', ' ']).len());
    (!line.is_empty()).then_some(line)
}
