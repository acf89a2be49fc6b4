//! What can be asked of a server.

use std::time::Duration;

/// The option of the server that makes its profiler.
pub(super) const OPTION: &str =
    r#"--profiler-config '{"profiler": "torch", "torch_profiler_dir": "/DIR"}'"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    StartProfile,
    /// Which answers when the traces are written, so it may wait so long.
    StopProfile(Duration),
    /// Weights go to the host's memory at level 1, and nowhere at level 2.
    Sleep {
        level: u8,
    },
    Wake,
    ResetPrefixCache,
}

/// All but the writing of traces is done within this.
const PATIENCE: Duration = Duration::from_secs(300);

impl Action {
    pub(super) fn path(self) -> String {
        match self {
            Self::StartProfile => "/start_profile".to_owned(),
            Self::StopProfile(_) => "/stop_profile".to_owned(),
            Self::Sleep { level } => format!("/sleep?level={level}"),
            Self::Wake => "/wake_up".to_owned(),
            Self::ResetPrefixCache => "/reset_prefix_cache".to_owned(),
        }
    }

    pub(super) fn patience(self) -> Duration {
        match self {
            Self::StopProfile(patience) => patience,
            _ => PATIENCE,
        }
    }

    /// What a server has done that answered.
    pub(super) fn done(self) -> &'static str {
        match self {
            Self::StartProfile => "its profiler is started",
            Self::StopProfile(_) => "its profiler is stopped",
            Self::Sleep { .. } => "it went to sleep",
            Self::Wake => "it woke up",
            Self::ResetPrefixCache => "its prefix cache was reset",
        }
    }

    /// Why it has no such path, and how it gets one.
    pub(super) fn missing(self) -> String {
        match self {
            Self::StartProfile | Self::StopProfile(_) => format!(
                "the server was started without a profiler. Start it with {} (vllm serve; trainers \
                 pass it on, as --vllm-profiler-config)",
                OPTION
            ),
            Self::Sleep { .. } | Self::Wake => "the server has no sleep mode: start it with \
                --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1 in its environment (vllm serve)"
                .to_owned(),
            Self::ResetPrefixCache => "the server does not offer it: start it with \
                VLLM_SERVER_DEV_MODE=1 in its environment (vllm serve)"
                .to_owned(),
        }
    }
}
