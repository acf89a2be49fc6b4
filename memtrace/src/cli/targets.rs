//! What to record, as `record` and `top` take it.

use super::values::parse_regex;
use memtrace_model::{Framework, Target, Tgid};
use std::ffi::{OsStr, OsString};

/// What can be the id of a process: a positive pid_t.
const PIDS: std::ops::RangeInclusive<i64> = 1..=i32::MAX as i64;

const WHAT: &str = "What to record";

/// The name of the group of which only one may be given.
pub(super) const GROUP: &str = "target";

/// What to record.
#[derive(Debug, clap::Args)]
pub(super) struct Targets {
    /// Command to start and record, with its arguments, after `--`
    #[arg(last = true, value_name = "COMMAND", group = "target", help_heading = WHAT)]
    pub(super) command: Vec<OsString>,

    /// Record a running process and its descendants, present and future; may be repeated
    #[arg(short, long = "pid", value_name = "PID", group = "target",
          value_parser = clap::value_parser!(u32).range(PIDS), help_heading = WHAT)]
    pid: Vec<u32>,

    /// Record processes whose name, title or command line matches
    ///
    /// Those that match later are recorded too, and all descendants.
    #[arg(long = "match", value_name = "REGEX", group = "target", value_parser = parse_regex, help_heading = WHAT)]
    pattern: Option<String>,

    /// Record the processes of a cgroup and of those below it
    ///
    /// Their descendants are recorded too, also in another cgroup.
    #[arg(long, value_name = "PATH", group = "target", help_heading = WHAT)]
    cgroup: Option<String>,

    /// Record the Ray cluster of this node
    ///
    /// With its drivers, jobs and actors. If there are several clusters, name the one by its session
    /// directory (/tmp/ray/session_latest).
    #[arg(long, value_name = "SESSION", group = "target", num_args = 0..=1, require_equals = true, help_heading = WHAT)]
    ray: Option<Option<String>>,

    /// Record the vLLM servers of this machine
    #[arg(long, group = "target", help_heading = WHAT)]
    vllm: bool,

    /// Record every process of the machine
    #[arg(short, long, group = "target", help_heading = WHAT)]
    all: bool,
}

impl Targets {
    /// The same for the recorder. One of them has to be given.
    pub(super) fn target(&self) -> Target {
        if !self.command.is_empty() {
            let argv = self
                .command
                .iter()
                .map(|part| part.to_string_lossy().into_owned())
                .collect();
            Target::Command { argv }
        } else if !self.pid.is_empty() {
            Target::Pids {
                tgids: self.pid.iter().copied().map(Tgid).collect(),
            }
        } else if let Some(regex) = &self.pattern {
            Target::Match {
                regex: regex.clone(),
            }
        } else if let Some(path) = &self.cgroup {
            Target::Cgroup { path: path.clone() }
        } else if let Some(session) = &self.ray {
            Target::Framework {
                framework: Framework::Ray,
                session: session.clone(),
            }
        } else if self.vllm {
            Target::Framework {
                framework: Framework::Vllm,
                session: None,
            }
        } else {
            // The group is required, so this is `-a`.
            debug_assert!(self.all);
            Target::All
        }
    }

    /// Whether one was given.
    pub(super) fn is_any(&self) -> bool {
        let is_named = self.pattern.is_some() || self.cgroup.is_some() || self.ray.is_some();
        is_named || self.vllm || self.all || !self.pid.is_empty() || !self.command.is_empty()
    }

    /// The words by which another memtrace is reported the same.
    pub(super) fn words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        let mut say = |name: &str, value: &OsStr| {
            let mut word = OsString::from(name);
            word.push("=");
            word.push(value);
            words.push(word);
        };
        for pid in &self.pid {
            say("--pid", pid.to_string().as_ref());
        }
        for (name, value) in [("--match", &self.pattern), ("--cgroup", &self.cgroup)] {
            if let Some(value) = value {
                say(name, value.as_ref());
            }
        }
        match &self.ray {
            Some(Some(session)) => say("--ray", session.as_ref()),
            Some(None) => words.push("--ray".into()),
            None => {}
        }
        words.extend(self.vllm.then(|| "--vllm".into()));
        words.extend(self.all.then(|| "--all".into()));
        if !self.command.is_empty() {
            words.push("--".into());
            words.extend(self.command.iter().cloned());
        }
        words
    }
}
