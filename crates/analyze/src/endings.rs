//! How processes ended.

use super::signal::signal_name;
use memtrace_model::keys;
use memtrace_model::tables::ProcessRow;

/// How one process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// No end was observed: it was running when the recording stopped.
    Running,
    /// It exited with this code.
    Exited(i32),
    /// A signal ended it.
    Killed {
        /// The signal's number.
        signal: i32,
        /// Whether it was the kernel's OOM killer; `None` when that could not be observed.
        by_oom_killer: Option<bool>,
    },
    /// It ended, and how is unknown; or no row of `process` tells about it.
    Unknown,
}

keys! {
    as
    /// How a process ended.
    EndingKeys of ending: Ending {
        /// `running` when no end was seen, `exited`, `killed`, `unknown`.
        ended: &'static str = ending.as_str(),
        /// Where it exited by itself.
        exit_code: Option<i32> = ending.exit_code(),
        /// The number of the signal that ended it.
        exit_signal: Option<i32> = ending.exit_signal(),
        /// Whether that was the OOM killer's; null where it is unknown or does not apply.
        oom_killed: Option<bool> = match ending {
            Ending::Exited(_) => Some(false),
            other => other.by_oom_killer(),
        },
    }
}

const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
/// Signals that end programs. An exit code of 128 and another number is a program's own (billiard's
/// 155 is no SIGPROF).
const SHELL_SIGNALS: [i32; 12] = [1, 2, 3, 4, 5, 6, 7, 8, SIGKILL, 11, 13, SIGTERM];

impl Ending {
    /// The word for it.
    fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Exited(_) => "exited",
            Self::Killed { .. } => "killed",
            Self::Unknown => "unknown",
        }
    }

    pub(super) fn of(row: &ProcessRow) -> Self {
        match (row.exit_signal, row.exit_code, row.oom_killed) {
            (Some(signal), _, by_oom_killer) => Self::Killed {
                signal,
                by_oom_killer,
            },
            // The OOM killer's SIGKILL is certain even where the wait status was not seen.
            (None, None, Some(true)) => Self::Killed {
                signal: SIGKILL,
                by_oom_killer: Some(true),
            },
            (None, Some(code), _) => Self::Exited(code),
            (None, None, _) if row.exit_boot_ns.is_some() => Self::Unknown,
            (None, None, _) => Self::Running,
        }
    }

    /// The OOM killer says that it chose this process, whatever else was or was not seen.
    pub(super) fn note_oom_kill(&mut self) {
        match self {
            Self::Killed { by_oom_killer, .. } => *by_oom_killer = Some(true),
            Self::Running | Self::Unknown => {
                *self = Self::Killed {
                    signal: SIGKILL,
                    by_oom_killer: Some(true),
                };
            }
            // It was chosen, and had already called exit.
            Self::Exited(_) => {}
        }
    }

    /// Whether a person should read about it: anything but running on, or exit code 0.
    pub fn is_notable(self) -> bool {
        !matches!(self, Self::Running | Self::Exited(0) | Self::Unknown)
    }

    /// Of itself, also with an error, or because it was asked to.
    pub(super) fn is_orderly(self) -> bool {
        match self {
            Self::Exited(_) => true,
            Self::Killed { signal, .. } => matches!(signal, SIGINT | SIGTERM),
            Self::Running | Self::Unknown => false,
        }
    }

    /// How it ended, for a column: `exit 0`, `SIGKILL`, `OOM kill`.
    pub fn shown(self) -> String {
        match self {
            Self::Running => "running".to_owned(),
            Self::Exited(code) => format!("exit {code}"),
            Self::Killed {
                by_oom_killer: Some(true),
                ..
            } => "OOM kill".to_owned(),
            Self::Killed { signal, .. } => {
                signal_name(signal).map_or_else(|| format!("signal {signal}"), str::to_owned)
            }
            Self::Unknown => "?".to_owned(),
        }
    }

    /// The same with what a person should know about it, where nothing says who sent a signal.
    pub fn shown_in_full(self) -> String {
        let shown = self.shown();
        match self {
            Self::Killed {
                signal: SIGKILL,
                by_oom_killer: Some(false),
            } => format!("{shown} (no OOM kill recorded; sender not known)"),
            Self::Killed {
                signal: SIGKILL,
                by_oom_killer: None,
            } => format!("{shown} (OOM kill or not: unknown)"),
            Self::Killed {
                by_oom_killer: Some(false) | None,
                ..
            } => format!("{shown} (sender not known)"),
            Self::Exited(code) if SHELL_SIGNALS.contains(&(code - 128)) => {
                let signal = signal_name(code - 128).unwrap_or_default();
                format!("{shown} (as a shell reports {signal})")
            }
            _ => shown,
        }
    }

    /// The exit code, where it exited by itself.
    pub fn exit_code(self) -> Option<i32> {
        match self {
            Self::Exited(code) => Some(code),
            _ => None,
        }
    }

    /// The number of the signal that ended it.
    pub fn exit_signal(self) -> Option<i32> {
        match self {
            Self::Killed { signal, .. } => Some(signal),
            _ => None,
        }
    }

    /// Whether the OOM killer sent that signal; `None` where none did, or that is unknown.
    pub fn by_oom_killer(self) -> Option<bool> {
        match self {
            Self::Killed { by_oom_killer, .. } => by_oom_killer,
            _ => None,
        }
    }

    /// The gravity of an end by SIGKILL,
    pub(super) const KILLED: u8 = 1;
    /// by another signal that says that something failed,
    pub(super) const CRASHED: u8 = 2;
    /// by one of these that an ancestor sent,
    pub(super) const STOPPED: u8 = 3;
    /// and of one that somebody asked for.
    pub(super) const ORDINARY: u8 = 5;

    /// What to read first.
    pub(super) fn gravity(self) -> u8 {
        match self {
            Self::Killed {
                by_oom_killer: Some(true),
                ..
            } => 0,
            Self::Killed {
                signal: SIGKILL, ..
            } => Self::KILLED,
            // SIGHUP, SIGINT, SIGPIPE, SIGTERM: how processes are asked to end.
            Self::Killed {
                signal: 1 | SIGINT | 13 | SIGTERM,
                ..
            } => Self::ORDINARY,
            Self::Killed { .. } => Self::CRASHED,
            Self::Exited(_) => 4,
            Self::Unknown => 6,
            Self::Running => 7,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_code_names_a_signal_only_where_a_shell_would_mean_one() {
        assert_eq!(
            Ending::Exited(137).shown_in_full(),
            "exit 137 (as a shell reports SIGKILL)"
        );
        for code in [1, 128, 155, 168, 255] {
            assert_eq!(Ending::Exited(code).shown_in_full(), format!("exit {code}"));
        }
    }
}
