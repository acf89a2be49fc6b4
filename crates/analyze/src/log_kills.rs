//! Kills that a log tells of: each line is held against how processes did end. What no end bears out
//! is a claim. Ends whose killer logs nothing are in `recycled.rs`.

use super::clock::RunClock;
use super::endings::Ending;
use super::process::Process;
use super::process_table::ProcessTable;
use super::sender::{Sender, SenderFate};
use super::surroundings::is_within;
use super::who::Who;
use memtrace_model::tables::MarkRow;
use memtrace_model::{BootNs, DurationNs, Instant, Order, Tgid};
use memtrace_report::words::{count, processes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// So many lines are compared with ends of processes; the others are counted.
pub(super) const LINES_MAX: usize = 256;

const SECOND_NS: i64 = 1_000_000_000;
/// A line can be read so long after the kill, where its rule does not allow more.
const LOOK_BACK_SECONDS: u32 = 1;
/// Who is asked to end may take that long, where the line names it.
const ENDS_WITHIN: DurationNs = DurationNs(60 * SECOND_NS);
/// And where it names nobody, or the process ends by itself.
const ENDS_SOON: DurationNs = DurationNs(2 * SECOND_NS);
/// Lines of one killer that name nobody tell of the same kills within that time.
const SAME_KILL: DurationNs = DurationNs(70 * SECOND_NS);
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
/// The rule's word for the OOM killer.
const KERNEL: &str = "kernel";
/// How Ray says in front of a line that another host wrote it.
const ADDRESS: &str = ", ip=";

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
    #[serde(default)]
    exit_codes: Vec<i32>,
    look_back_seconds: Option<u32>,
    killed_pid: Option<u32>,
    writer_pid: Option<u32>,
    workers: Option<Value>,
    cgroup: Option<String>,
    pod: Option<String>,
    line: Option<Arc<str>>,
}

/// A kill that a log tells of, or the way in which the killed ended.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LogKill {
    /// When the line came; without one when the first of the killed ended.
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
    /// Whether they ended by themselves, as the killer lets them.
    #[serde(skip)]
    pub is_own_end: bool,
    /// How many the line tells of; `None` where it names a cgroup or a pod.
    #[serde(skip)]
    stated: Option<usize>,
    /// What speaks against it, where it is a claim.
    #[serde(skip)]
    doubt: Doubt,
}

/// Why the ends of processes do not bear a line out.
#[derive(Clone, Copy, Debug)]
enum Doubt {
    /// No process ended that way then.
    NoneFits,
    /// So many did, and that is not as many as the line tells of.
    Fit(usize),
    /// How processes ended was not observed.
    Unobserved,
    /// It can be of another host.
    Elsewhere,
}

impl KillLine {
    /// `None` for a row that does not say what a kill is.
    pub(super) fn of(row: &MarkRow) -> Option<Self> {
        let said: Said = serde_json::from_str(row.attributes.as_deref()?).ok()?;
        let boot_ns = row.boot_ns;
        let line = Self { boot_ns, said };
        (line.stated() != Some(0)).then_some(line)
    }

    fn names_many(&self) -> bool {
        self.said.killed_pid.is_none() && (self.said.cgroup.is_some() || self.said.pod.is_some())
    }

    /// How many processes it tells of; `None` where it names a cgroup or a pod.
    fn stated(&self) -> Option<usize> {
        let stated = self.said.workers.as_ref().and_then(Value::as_u64);
        let stated = stated.filter(|_| self.said.killed_pid.is_none());
        let stated = stated.map_or(1, |stated| usize::try_from(stated).unwrap_or(usize::MAX));
        (!self.names_many()).then_some(stated)
    }

    /// Whether it says that it comes from another address. Which ones this host has is not recorded.
    fn is_elsewhere(&self) -> bool {
        let line = self.said.line.as_deref();
        line.is_some_and(|line| line.contains(ADDRESS))
    }

    /// From when to when those that it tells of ended.
    fn window(&self) -> (BootNs, BootNs) {
        let back = self.said.look_back_seconds.unwrap_or(LOOK_BACK_SECONDS);
        let until = match self.said.killed_pid {
            Some(_) => ENDS_WITHIN,
            None => ENDS_SOON,
        };
        (
            BootNs(self.boot_ns.0.saturating_sub(i64::from(back) * SECOND_NS)),
            BootNs(self.boot_ns.0.saturating_add(until.0)),
        )
    }

    /// Whether it can be about a process: one that lived then, where the line says.
    fn is_about(&self, process: &Process) -> bool {
        let (from, to) = self.window();
        let end = process.exit_boot_ns();
        let is_then = end.is_some_and(|end| (from..=to).contains(&end));
        let said = &self.said;
        let is_where = said.cgroup.as_ref().is_none_or(|cgroup| {
            let own = process.cgroup.as_deref();
            own.is_some_and(|own| is_within(own, cgroup))
        }) && said
            .pod
            .as_deref()
            .is_none_or(|pod| process.pod.as_deref() == Some(pod));
        is_then && is_where && process.start.boot_ns <= self.boot_ns
    }

    /// Whether a process ended as the killer ends it, as far as that is known.
    fn is_by_killer(&self, process: &Process, table: &ProcessTable) -> bool {
        let said = &self.said;
        let is_named = said.killed_pid.is_some();
        let Some(signal) = process.ending.exit_signal() else {
            return self.has_let_end(process, table);
        };
        // An ancestor asks first.
        let is_asked = signal == SIGTERM && said.senders.is_empty();
        let is_of_one = is_named || self.names_many() || signal == SIGKILL || is_asked;
        // What a killer ends as it shuts down is not what a line before that tells of.
        let is_later = process.exit_boot_ns().is_some_and(|end| end > self.boot_ns);
        let has_ended_too = process.sender.fate() != SenderFate::Other;
        let is_teardown = !is_named && is_later && has_ended_too;
        if !is_of_one || is_teardown || (!said.exit_codes.is_empty() && !is_named) {
            return false;
        }
        let by_kernel = said.senders.iter().any(|sender| sender == KERNEL);
        match (&process.sender, process.ending.by_oom_killer()) {
            (_, Some(true)) => by_kernel,
            (Sender::Unknown, None) if by_kernel && signal == SIGKILL => true,
            (Sender::Unknown, _) => is_named && !by_kernel,
            (Sender::Kernel | Sender::Itself, _) => false,
            (Sender::Other(_), _) if said.senders.is_empty() => process.sender.is_ancestor(),
            (Sender::Other(other), _) => {
                let recorded = other.upid.and_then(|upid| table.find(upid));
                let comm = recorded.map_or(&other.name, |sender| &table.processes[sender].comm);
                said.senders.iter().any(|sender| **sender == **comm)
            }
        }
    }

    /// Whether a process ended by itself as the rule says that it does. Anybody can write a line: one
    /// that names a process must be written by an ancestor of it.
    fn has_let_end(&self, process: &Process, table: &ProcessTable) -> bool {
        let said = &self.said;
        let code = process.ending.exit_code();
        let end = process.exit_boot_ns();
        let is_soon = end.is_some_and(|end| (end - self.boot_ns).0 <= ENDS_SOON.0);
        let is_ancestor = |pid: u32| {
            let above = |place: &usize| table.processes[*place].parent;
            let mut ancestors = std::iter::successors(process.parent, above).take(ANCESTORS_MAX);
            ancestors.any(|place| has_id(&table.processes[place], Tgid(pid)))
        };
        let is_written_above =
            said.killed_pid.is_none() || said.writer_pid.is_some_and(is_ancestor);
        let is_so = code.is_some_and(|code| said.exit_codes.contains(&code));
        is_so && is_soon && is_written_above && !self.is_elsewhere()
    }
}

/// A tree that is deeper was made up.
const ANCESTORS_MAX: usize = 1_024;

/// Whether a process has that id, here or in its own pid namespace.
fn has_id(process: &Process, pid: Tgid) -> bool {
    [process.tgid, process.ns_tgid].contains(&Some(pid))
}

/// The processes that ended: by their ids, and in the order of their ends.
struct Ended {
    by_id: HashMap<Tgid, Vec<usize>>,
    by_end: Vec<(BootNs, usize)>,
}

impl Ended {
    fn of(processes: &[Process]) -> Self {
        let mut by_id: HashMap<Tgid, Vec<usize>> = HashMap::new();
        let mut by_end = Vec::new();
        for (place, process) in processes.iter().enumerate() {
            let Some(end) = process.exit_boot_ns() else {
                continue;
            };
            by_end.push((end, place));
            let inside = process.ns_tgid.filter(|_| process.ns_tgid != process.tgid);
            for id in process.tgid.into_iter().chain(inside) {
                by_id.entry(id).or_default().push(place);
            }
        }
        by_end.order_by_key(|one| *one);
        Self { by_id, by_end }
    }

    /// Whom a line can be about, however they ended. Of those that had its pid here one after
    /// another it is the one whose end is nearest.
    fn meant(&self, line: &KillLine, processes: &[Process]) -> Vec<usize> {
        let is_about = |place: &usize| line.is_about(&processes[*place]);
        let Some(pid) = line.said.killed_pid.map(Tgid) else {
            if line.is_elsewhere() {
                return Vec::new();
            }
            let (from, to) = line.window();
            let first = self.by_end.partition_point(|(end, _)| *end < from);
            let ends = self.by_end[first..]
                .iter()
                .take_while(|(end, _)| *end <= to);
            return ends.map(|(_, place)| *place).filter(is_about).collect();
        };
        let all = self.by_id.get(&pid).into_iter().flatten().copied();
        let (here, inside): (Vec<usize>, Vec<usize>) = all
            .filter(is_about)
            .partition(|place| processes[*place].tgid == Some(pid));
        let distance = |place: &usize| {
            let end = processes[*place].exit_boot_ns();
            end.map(|end| (end - line.boot_ns).0.abs())
        };
        let nearest = here.into_iter().min_by_key(distance);
        let inside = inside.into_iter().filter(|_| !line.is_elsewhere());
        nearest.into_iter().chain(inside).collect()
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
    let ended = Ended::of(&table.processes);
    let mut taken: BTreeSet<usize> = BTreeSet::new();
    let mut reported: Vec<LogKill> = Vec::new();
    for line in lines {
        let meant = ended.meant(&line, &table.processes);
        let is_unobserved = |place: &usize| table.processes[*place].ending == Ending::Unknown;
        let mut doubt = match meant.iter().any(is_unobserved) {
            true => Doubt::Unobserved,
            false if line.is_elsewhere() => Doubt::Elsewhere,
            false => Doubt::NoneFits,
        };
        let mut fitting = meant;
        fitting.retain(|place| line.is_by_killer(&table.processes[*place], table));
        let is_again = fitting.iter().any(|place| taken.contains(place));
        let stated = line.stated();
        if !fitting.is_empty() && stated.is_some_and(|stated| stated != fitting.len()) {
            doubt = Doubt::Fit(fitting.len());
            fitting.clear();
        }
        let mut members = fitting;
        members.retain(|place| !taken.contains(place));
        let said = line.said;
        let named_pid = said.killed_pid.map(Tgid);
        // Of one kill there can be several lines, and not all name the process.
        let is_same = |kill: &LogKill| {
            let is_same = match named_pid {
                Some(_) => kill.named_pid == named_pid,
                None => (kill.at.boot_ns - line.boot_ns).0.abs() <= SAME_KILL.0,
            };
            kill.killer == said.killer && is_same
        };
        if members.is_empty() && (is_again || reported.iter().any(is_same)) {
            continue;
        }
        taken.extend(&members);
        let mut killed = members.iter().map(|place| &table.processes[*place]);
        reported.push(LogKill {
            at: clock.at(line.boot_ns),
            killer: said.killer,
            reason: said.reason,
            named_pid,
            line: said.line,
            killed: killed.clone().map(Who::from).collect(),
            is_own_end: killed.any(|process| process.ending.exit_signal().is_none()),
            members,
            stated,
            doubt,
        });
    }
    // A killer that logs why did not do it because it was shutting down.
    for place in taken {
        if let Sender::Other(other) = &mut table.processes[place].sender {
            other.fate = SenderFate::Other;
        }
    }
    reported.order_by_key(|kill| (kill.members.is_empty(), kill.is_own_end, kill.at.boot_ns));
    reported
}

impl LogKill {
    /// Ends of processes by themselves that say who had them end.
    pub(super) fn without_line(
        at: Instant,
        killer: &str,
        reason: &str,
        processes: &[Process],
        members: Vec<usize>,
    ) -> Self {
        Self {
            at,
            killer: killer.into(),
            reason: reason.into(),
            named_pid: None,
            line: None,
            killed: members
                .iter()
                .map(|place| Who::from(&processes[*place]))
                .collect(),
            stated: Some(members.len()),
            members,
            is_own_end: true,
            doubt: Doubt::NoneFits,
        }
    }

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
            "{killer} ended {who} ({how}){others}{when}: {reason}."
        ))
    }

    /// What only the line says.
    pub(super) fn claim_in_words(&self, clock: &RunClock) -> String {
        let killer = &self.killer;
        let whom = match (self.named_pid, self.stated) {
            (Some(pid), _) => format!("process {pid}"),
            (None, Some(stated)) => processes(stated),
            (None, None) => "processes".to_owned(),
        };
        let doubt = match self.doubt {
            Doubt::NoneFits => "no recorded process ended that way then".to_owned(),
            Doubt::Fit(fitting) => format!("{} ended that way then", processes(fitting)),
            Doubt::Unobserved => "how processes ended then was not observed".to_owned(),
            Doubt::Elsewhere => "the line can be of another host".to_owned(),
        };
        format!(
            "A log line at {} claims that {killer} killed {whom}; {doubt}.",
            clock.when(self.at)
        )
    }
}

/// What is said of the lines that were not compared.
pub(super) fn unread_in_words(unread: usize) -> Option<String> {
    (unread > 0).then(|| {
        format!(
            "{} more lines tell of kills; only the first {LINES_MAX} were compared with how \
             processes ended.",
            count(unread)
        )
    })
}
