//! The findings of a whole recording.

use super::allocations::{HeldByLine, ProcessAllocations};
use super::clock::RunClock;
use super::composition::Composition;
use super::conditions::Conditions;
use super::cost::RecorderCost;
use super::curves::Drawings;
use super::endings::Ending;
use super::gpu::Gpus;
use super::growth::Growth;
use super::held::Held;
use super::host_clock::HostSeen;
use super::keys::{self, PeakAt};
use super::layout::Layout;
use super::leftovers::Leftovers;
use super::limits::LimitUse;
use super::log_kills::LogKill;
use super::losses::Loss;
use super::mappings::Mappings;
use super::oom::OomFinding;
use super::phases::{PhaseFocus, Phases};
use super::process::Process;
use super::process_tree::{ProcessTree, bundle_similar};
use super::roles::{RoleFinding, RoleHolding};
use super::torch::TorchSnapshot;
use super::who::{Who, common_name};
use memtrace_model::{
    BootNs, Bytes, DurationNs, Instant, Kind, Order, RunInfo, Target, Tgid, Upid,
};
use memtrace_report::{Cell, words};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// So many lines of each list at an OOM kill are reported, however many were asked for.
const KILL_LINES_MAX: usize = 20;

/// What the sections of a report look at. Its JSON is a part of the object of the report for
/// programs, but for what that says of the recording, its losses and its processes.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Analysis {
    /// What the recording says about itself.
    #[serde(skip)]
    pub info: RunInfo,
    /// When it was.
    #[serde(skip)]
    pub clock: RunClock,
    /// The recording's place; `None` when unknown.
    #[serde(skip)]
    pub path: Option<String>,
    /// Whether a recorder was still writing to it.
    #[serde(skip)]
    pub is_live: bool,
    /// Whether it was not closed where it comes from when its parts were carried here.
    #[serde(skip)]
    pub is_open: bool,
    /// What is wrong with the recording's files, one sentence each. Known only after reading,
    /// so whoever reads them fills it in.
    #[serde(skip)]
    pub problems: Vec<String>,
    /// What was lost or not visible.
    #[serde(skip)]
    pub losses: Vec<Loss>,
    /// What the recording cost; `None` when that was not measured.
    pub cost: Option<RecorderCost>,
    /// Every process, in the order in which they started.
    #[serde(skip)]
    pub processes: Vec<Process>,
    /// Who descends from whom.
    #[serde(skip)]
    pub process_tree: ProcessTree,
    /// The instant at which all processes together held most, every page once; `None` without a row
    /// of memory.
    pub peak: Option<Composition>,
    /// The most that was held, every page once, and the highest that its bounds ever were; `None`
    /// where kinds of memory are unknown.
    pub held_peak: Option<Held>,
    /// The highest sum of RSS, and when: a page that several map counts in each.
    #[serde(flatten, with = "keys::SumOfRssKeys")]
    pub rss_peak: Option<PeakAt>,
    /// The instant that `--at` gave; else `None`.
    pub at: Option<Composition>,
    /// What each role held at the other instants that were asked for.
    #[serde(skip)]
    pub roles_at: Vec<(BootNs, Vec<RoleHolding>)>,
    /// The trees, one entry for each root, the one with the highest peak first.
    pub trees: Vec<TreeFinding>,
    /// The processes by role, the one that held most at the peak first.
    pub roles: Vec<RoleFinding>,
    /// What named phases cost; `None` when nothing was named.
    pub phases: Option<Phases>,
    /// The phases of the name that `--phase` gave; else `None`.
    pub phase: Option<PhaseFocus>,
    /// The process that `--process` gave, as an index into [`Analysis::processes`].
    #[serde(skip)]
    pub process: Option<usize>,
    /// What load experiments took; `None` where there was none.
    pub conditions: Option<Conditions>,
    /// The growth of all processes together; `None` when too short to tell.
    pub growth: Option<Growth>,
    /// What the recording is drawn from, where that was asked for.
    #[serde(skip)]
    pub drawings: Option<Box<Drawings>>,
    /// What is seen of it as one of many hosts, where that was asked for.
    #[serde(skip)]
    pub(super) host_seen: Option<Box<HostSeen>>,
    /// What all processes together held over the recording, every page once, in at most 128 slices
    /// of equal length.
    pub curve: Vec<CurvePoint>,
    /// What processes did to their address spaces; `None` where nothing saw that, or they did
    /// nothing.
    #[serde(rename = "address_space")]
    pub mappings: Option<Mappings>,
    /// What is known of GPUs; `None` without any.
    #[serde(rename = "gpu")]
    pub gpus: Option<Gpus>,
    /// When the command that was recorded began to run, its exec done; `None` for other targets,
    /// and with a polling backend, which does not see it.
    #[serde(skip)]
    pub command_begin: Option<BootNs>,
    /// What memory is inside of processes that hold much, and why it came; who gained most first.
    pub layouts: Vec<Layout>,
    /// Who allocated what is still resident, by process, the one with most first; empty without
    /// `record --stacks`.
    pub allocations: Vec<ProcessAllocations>,
    /// What lines of code held in all processes together at the instant of `at`, else at the peak; `None`
    /// where that was nothing, and without `record --stacks`.
    pub held_by_line: Option<HeldByLine>,
    /// What torch held of GPU memory, by its own snapshots, in the order of time; empty without
    /// `memtrace import torch`.
    #[serde(rename = "torch")]
    pub torch_snapshots: Vec<TorchSnapshot>,
    /// Kills by the OOM killer.
    #[serde(rename = "oom_kills")]
    pub ooms: Vec<OomFinding>,
    /// Limits and how near each came over the recording, of each kind the nearest first: of cgroups, of
    /// what processes may map, and of each tmpfs.
    pub limits: Vec<LimitUse>,
    /// Kills that a log tells of, those that ends of processes bear out first.
    pub log_kills: Vec<LogKill>,
    /// How many more log lines tell of kills: only the first 256 are compared with how processes ended.
    pub unread_kill_count: usize,
    /// What was left of the tree when the recording ended.
    #[serde(flatten)]
    pub leftovers: Leftovers,
}

/// One slice of the curve.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct CurvePoint {
    /// Its middle, since the start of the recording.
    pub offset_ns: DurationNs,
    /// The mean over its time.
    pub mean_bytes: Bytes,
    /// The highest over its time.
    pub max_bytes: Bytes,
}

/// The main process of a tree against all that descends from it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TreeFinding {
    /// The main process, as an index into [`Analysis::processes`].
    #[serde(skip)]
    pub root: usize,
    /// Its process id; `None` when only its memory was recorded.
    pub root_pid: Option<Tgid>,
    /// Its identity in the recording.
    pub root_upid: Upid,
    /// What it is called.
    pub root_name: Arc<str>,
    /// How many processes descended from it.
    pub descendant_count: usize,
    /// What it held at the peak of everything; `None` when unknown.
    pub root_at_peak_bytes: Option<Bytes>,
    /// What its descendants held then; `None` when there is no peak.
    pub descendants_at_peak_bytes: Option<Bytes>,
    /// The highest it held at any time.
    pub root_peak_bytes: Option<Bytes>,
    /// The highest its descendants held together, at one instant.
    pub descendants_peak_bytes: Option<Bytes>,
    /// When that was.
    pub descendants_peak_at: Option<Instant>,
    /// The highest it held together with its descendants.
    pub tree_peak_bytes: Option<Bytes>,
    /// When that was.
    pub tree_peak_at: Option<Instant>,
}

impl Analysis {
    /// Leaves at most so many in lists of findings; how many there were is reported beside them.
    pub fn cut(&mut self, top: usize) {
        self.roles.truncate(top);
        self.allocations.truncate(top);
        self.torch_snapshots.truncate(top);
        self.leftovers.outlived.truncate(top);
        self.leftovers.objects.truncate(top);
        if let Some(gpus) = &mut self.gpus {
            gpus.processes.truncate(top);
            for device in &mut gpus.devices {
                let ledgers = [&mut device.peak, &mut device.at_end];
                for ledger in ledgers.into_iter().flatten() {
                    ledger.lines.truncate(top);
                }
            }
        }
        for state in [&mut self.peak, &mut self.at].into_iter().flatten() {
            state.cut(top);
        }
        for kill in &mut self.ooms {
            if let Some(held) = &mut kill.holders {
                held.cut(KILL_LINES_MAX);
            }
            if let Some(found) = &mut kill.post_mortem {
                found.cut(KILL_LINES_MAX);
            }
        }
        if let Some(mappings) = &mut self.mappings {
            mappings.processes.truncate(top);
        }
        if let Some(phases) = &mut self.phases {
            phases.lines.truncate(top);
        }
        if let Some(phase) = &mut self.phase {
            phase.phases.truncate(top);
            phase.holders.truncate(top);
        }
    }

    /// The processes by their own peak, the highest first, those of unknown peak last.
    pub fn by_peak(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.processes.len()).collect();
        order.order_by_key(|&position| {
            let peak = self.processes[position].peak.rss_bytes;
            (std::cmp::Reverse(peak), position)
        });
        order
    }

    /// The processes by their own peak as lines of a table: each line a process, or several
    /// that do the same thing and matter little, the largest first in each.
    pub fn lines_by_peak(&self) -> Vec<Vec<usize>> {
        let peak_of = |position: usize| self.processes[position].peak.rss_bytes;
        let whole = self
            .peak
            .as_ref()
            .and_then(|peak| peak.totals[Kind::Rss].bytes());
        let order = self.by_peak().into_iter();
        let (main, others): (Vec<usize>, Vec<usize>) =
            order.partition(|&position| self.processes[position].is_main);
        let (single, bundles) = bundle_similar(
            &others,
            |&position| &self.processes[position].shape,
            |&position| peak_of(position).map_or(0, |bytes| bytes.0),
            whole,
        );
        let single = main
            .into_iter()
            .chain(single)
            .map(|position| vec![position]);
        let mut lines: Vec<Vec<usize>> = single.chain(bundles).collect();
        lines.order_by_key(|members| std::cmp::Reverse(members.first().copied().and_then(peak_of)));
        lines
    }

    /// What to call the processes of a line: the name of all, or what they have in common.
    pub fn common_name(&self, members: &[usize]) -> Arc<str> {
        common_name(&self.processes, members)
    }

    /// `vLLM worker, 700 python3 x.py`: with its role, where that is not its name anyway.
    pub(super) fn with_role(&self, who: &Who) -> String {
        let is_of = |role: &&RoleFinding| who.upid.is_some_and(|upid| role.upids.contains(&upid));
        let mut roles = self.roles.iter();
        let role = roles.find(|role| role.role.is_some() && is_of(role));
        let name = who.name.as_deref().unwrap_or_default();
        match role.filter(|role| !name.starts_with(&*role.name)) {
            Some(role) => format!("{}, {}", role.name, who.in_words()),
            None => who.in_words(),
        }
    }

    /// The process id, or how many processes stand in one line.
    pub(super) fn pids(&self, members: &[usize]) -> Cell {
        match members {
            [only] => Cell::known(self.processes[*only].tgid),
            many => Cell::shown_only(&words::times(many.len())),
        }
    }

    /// How several processes ended, if in one way.
    pub(super) fn common_ending(&self, members: &[usize]) -> String {
        let mut endings = members.iter().map(|&place| self.processes[place].ending);
        match endings.next() {
            Some(first) if endings.all(|ending| ending == first) => first.shown(),
            Some(_) => "various".to_owned(),
            None => String::new(),
        }
    }

    /// The main process of the only tree.
    pub(super) fn command(&self) -> Option<&Process> {
        self.processes.iter().find(|process| process.is_main)
    }

    /// How the command that was recorded ended; `None` for other targets, and when unknown.
    pub fn command_ending(&self) -> Option<Ending> {
        let Target::Command { .. } = self.info.target else {
            return None;
        };
        let killed = self.command().map(|process| process.ending);
        let killed = killed.filter(|ending| matches!(ending, Ending::Killed { .. }));
        killed.or_else(|| self.info.command_exit_code.map(Ending::Exited))
    }

    /// The same in words, with who sent a signal.
    pub(super) fn command_ended_in_words(&self) -> Option<String> {
        let ending = self.command_ending()?;
        let main = self.command().filter(|main| main.ending == ending);
        Some(main.map_or_else(|| ending.shown_in_full(), Process::ended_in_words))
    }

    /// Whether the command that was recorded did not end well; `None` when unknown.
    pub fn has_command_failed(&self) -> Option<bool> {
        self.command_ending()
            .map(|ending| ending != Ending::Exited(0))
    }

    /// Whether a recorded process was killed by the OOM killer, the command did not end well, or a main
    /// process of another target crashed, was killed or exited with an error.
    pub fn has_failed(&self) -> bool {
        let is_killed = self.ooms.iter().any(|kill| kill.victim.is_some());
        is_killed || self.has_command_failed() == Some(true) || self.failed_root().is_some()
    }

    /// The main process of another target than a command that crashed, was killed or exited with an
    /// error: of several the gravest.
    pub(super) fn failed_root(&self) -> Option<&Process> {
        let roots = match self.info.target {
            Target::Command { .. } | Target::All => &[],
            _ => &*self.trees,
        };
        let roots = roots.iter().map(|tree| &self.processes[tree.root]);
        roots
            .filter(|root| root.ending.is_notable() && root.gravity() < Ending::ORDINARY)
            .min_by_key(|root| root.gravity())
    }

    /// How long the command that was recorded ran; `None` for other targets, and when unknown.
    pub fn command_duration(&self) -> Option<DurationNs> {
        self.command_ending()?;
        let mut processes = self.processes.iter();
        let main = processes.find(|process| process.is_main)?;
        Some(main.exit_boot_ns()? - self.begin_of(main).min(main.exit_boot_ns()?))
    }

    /// When the recorded command was let go, since the start of the recording; `None` where its end reads
    /// the same since then and since that start.
    pub fn command_start(&self) -> Option<DurationNs> {
        let ran = words::duration(self.command_duration()?);
        let mut processes = self.processes.iter();
        let main = processes.find(|process| process.is_main)?;
        let start = self.clock.offset(self.begin_of(main));
        let end = self.clock.offset(main.exit_boot_ns()?);
        (start.0 > 0 && words::duration(end) != ran).then_some(start)
    }

    /// When a process began to be what it is: the recorded command only when it was let go.
    pub fn begin_of(&self, process: &Process) -> BootNs {
        let command = self.command_begin.filter(|_| process.is_main);
        command.unwrap_or(process.start.boot_ns)
    }

    /// The GPUs by the name of the product, how many of each; those without a name are "GPU".
    pub fn gpu_models(&self) -> Vec<(&str, usize)> {
        let mut models = std::collections::BTreeMap::new();
        for device in self.gpus.iter().flat_map(|gpus| &gpus.devices) {
            let name = device.name.as_deref().unwrap_or("GPU");
            *models.entry(name).or_insert(0) += 1;
        }
        models.into_iter().collect()
    }
}
