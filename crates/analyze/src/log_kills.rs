//! Kills that a log tells of: each line is held against how processes did end. What no end bears out
//! is a claim.

use super::clock::RunClock;
use super::endings::Ending;
use super::process::Process;
use super::process_table::ProcessTable;
use super::sender::Sender;
use super::surroundings::is_within;
use super::who::Who;
use memtrace_model::tables::MarkRow;
use memtrace_model::{BootNs, DurationNs, Instant, Order, Tgid};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Ray tells once a minute how many it killed.
const TOLD_AFTER: DurationNs = DurationNs(70_000_000_000);
/// Who is asked to end may take that long, where the line names it.
const ENDS_WITHIN: DurationNs = DurationNs(60_000_000_000);
/// And where it names nobody.
const ENDS_SOON: DurationNs = DurationNs(2_000_000_000);
/// The rule's word for the OOM killer.
const KERNEL: &str = "kernel";

/// A line that says that a process was killed.
#[derive(Debug)]
pub(super) struct KillLine {
    boot_ns: BootNs,
    said: Said,
}

/// The attributes that the rule gave its mark.
#[derive(Debug, Deserialize)]
struct Said {
    killer: Arc<str>,
    reason: Arc<str>,
    #[serde(default)]
    senders: Vec<String>,
    exit_code: Option<i32>,
    killed_pid: Option<u32>,
    cgroup: Option<String>,
    pod: Option<String>,
    line: Option<Arc<str>>,
}

/// A kill that a log tells of.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LogKill {
    /// When the line came.
    pub at: Instant,
    /// Who killed the process.
    pub killer: Arc<str>,
    /// Why it was killed.
    pub reason: Arc<str>,
    /// The process id that the line names.
    pub named_pid: Option<Tgid>,
    /// The line itself; `None` where its mark has none.
    pub line: Option<Arc<str>>,
    /// The recorded processes whose ends bear that out. Without one it is a claim.
    pub killed: Vec<Who>,
    /// The same as indices into [`super::Analysis::processes`].
    #[serde(skip)]
    pub members: Vec<usize>,
    /// Whether they ended by themselves, at a limit that they keep.
    #[serde(skip)]
    pub is_own_end: bool,
}

impl KillLine {
    /// `None` for a row that does not say what a kill is.
    pub(super) fn of(row: &MarkRow) -> Option<Self> {
        let said = serde_json::from_str(row.attributes.as_deref()?).ok()?;
        let boot_ns = row.boot_ns;
        Some(Self { boot_ns, said })
    }

    /// Whether the end of a process is one that the line tells of.
    fn is_of(&self, process: &Process, table: &ProcessTable) -> bool {
        let said = &self.said;
        let is_named = said.killed_pid.is_some();
        let pids = [process.tgid, process.ns_tgid];
        let is_meant = said
            .killed_pid
            .is_none_or(|pid| pids.contains(&Some(Tgid(pid))))
            && said.cgroup.as_ref().is_none_or(|cgroup| {
                let own = process.cgroup.as_deref();
                own.is_some_and(|own| is_within(own, cgroup))
            })
            && said
                .pod
                .as_deref()
                .is_none_or(|pod| process.pod.as_deref() == Some(pod));
        let until = if is_named { ENDS_WITHIN } else { ENDS_SOON };
        let is_then = process
            .exit_boot_ns()
            .is_some_and(|end| (-TOLD_AFTER.0..=until.0).contains(&(end - self.boot_ns).0));
        // What a killer ends as it shuts down is not what a line before that tells of.
        let is_later = process.exit_boot_ns().is_some_and(|end| end > self.boot_ns);
        let is_teardown = !is_named && is_later && process.sender.is_teardown();
        is_meant && is_then && !is_teardown && self.is_by_killer(process, table)
    }

    /// Whether a process ended as the killer ends it, as far as that is known.
    fn is_by_killer(&self, process: &Process, table: &ProcessTable) -> bool {
        let said = &self.said;
        let (signal, code) = (process.ending.exit_signal(), process.ending.exit_code());
        let is_named = said.killed_pid.is_some();
        if said.exit_code.is_some() {
            let end = process.exit_boot_ns();
            let is_soon = end.is_some_and(|end| (end - self.boot_ns).0.abs() <= ENDS_SOON.0);
            if !is_named || (is_soon && code == said.exit_code) {
                return is_soon && code == said.exit_code;
            }
        }
        let by_kernel = said.senders.iter().any(|sender| sender == KERNEL);
        match (&process.sender, process.ending.by_oom_killer()) {
            (_, Some(true)) => by_kernel,
            // It may end orderly where it is asked to.
            (Sender::Unknown, is_oom_kill) => match signal {
                Some(9) if by_kernel => is_oom_kill.is_none(),
                Some(_) => is_named,
                None => is_named && code.is_some_and(|code| code != 0),
            },
            (Sender::Kernel | Sender::Itself, _) => false,
            (Sender::Other { .. }, _) if said.senders.is_empty() => process.sender.is_ancestor(),
            (Sender::Other { upid, name, .. }, _) => {
                let recorded = upid.and_then(|upid| table.find(upid));
                let comm = recorded.map_or(name, |sender| &table.processes[sender].comm);
                said.senders.iter().any(|sender| **sender == **comm)
            }
        }
    }
}

/// Joins lines with the ends of processes, each end with the first line that names it, or else with
/// the first that can be of it.
pub(super) fn joined(
    mut lines: Vec<KillLine>,
    table: &mut ProcessTable,
    clock: &RunClock,
) -> Vec<LogKill> {
    lines.order_by_key(|line| (line.said.killed_pid.is_none(), line.boot_ns));
    let mut taken: BTreeSet<usize> = BTreeSet::new();
    let mut reported: Vec<LogKill> = Vec::new();
    for line in lines {
        let places = 0..table.processes.len();
        let all = places.filter(|place| line.is_of(&table.processes[*place], table));
        let (again, members): (Vec<usize>, Vec<usize>) =
            all.partition(|place| taken.contains(place));
        let said = line.said;
        let named_pid = said.killed_pid.map(Tgid);
        // Of one kill there can be several lines, and not all name the process.
        let is_again = |kill: &LogKill| {
            let is_same = match named_pid {
                Some(_) => kill.named_pid == named_pid,
                None => (kill.at.boot_ns - line.boot_ns).0.abs() <= TOLD_AFTER.0,
            };
            kill.killer == said.killer && is_same
        };
        let is_reported = reported.iter().any(is_again);
        if is_reported && (named_pid.is_none() || members.is_empty())
            || members.is_empty() && !again.is_empty()
        {
            continue;
        }
        taken.extend(&members);
        reported.push(LogKill {
            at: clock.at(line.boot_ns),
            killer: said.killer,
            reason: said.reason,
            named_pid,
            line: said.line,
            killed: members
                .iter()
                .map(|place| Who::from(&table.processes[*place]))
                .collect(),
            members,
            is_own_end: said.exit_code.is_some() && named_pid.is_none(),
        });
    }
    // A killer that logs why did not do it because it was shutting down.
    for place in taken {
        if let Sender::Other { is_teardown, .. } = &mut table.processes[place].sender {
            *is_teardown = false;
        }
    }
    reported.order_by_key(|kill| (kill.members.is_empty(), kill.is_own_end, kill.at.boot_ns));
    reported
}

impl LogKill {
    /// What is certain: who ended whom, when, and why.
    pub(super) fn in_words(&self, processes: &[Process], clock: &RunClock) -> Option<String> {
        let first = &processes[*self.members.first()?];
        let (killer, reason) = (&self.killer, &self.reason);
        let who = Who::from(first).in_words();
        let others = match self.members.len() - 1 {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        let when = first.end.map(|end| clock.when(end));
        let when = when.map_or_else(String::new, |when| format!(" at {when}"));
        let how = Ending::shown(first.ending);
        Some(format!(
            "{killer} ended {who}{others} ({how}){when}: {reason}."
        ))
    }

    /// What only the line says.
    pub(super) fn claim_in_words(&self, clock: &RunClock) -> String {
        let killer = &self.killer;
        let whom = match self.named_pid {
            Some(pid) => format!("process {pid}"),
            None => "processes".to_owned(),
        };
        format!(
            "A log line at {} claims that {killer} killed {whom}; no recorded process ended that way \
             then.",
            clock.when(self.at)
        )
    }
}
