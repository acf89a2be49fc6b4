//! The list of processes, read from `process` and named from `title`.

use super::clock::RunClock;
use super::endings::Ending;
use super::groups::Groups;
use super::losses::Loss;
use super::name::{self, Interner, NameTrack};
use super::peak::Peak;
use super::process::Process;
use super::rlimits::Rlimits;
use super::sender::Sender;
use super::teardown;
use super::termination::Termination;
use memtrace_model::tables::{
    DiagKind, FirstSeenBy, MemRow, OomRow, ProcessRow, Severity, TitleRow,
};
use memtrace_model::{BootNs, Bytes, Instant, Order, Role, RowSource, RunInfo, Target, Upid};
use memtrace_timeline::{Amounts, Track};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Every process of the recording, in the order in which they started.
#[derive(Clone, Debug)]
pub(super) struct ProcessTable {
    pub(super) processes: Vec<Process>,
    /// The command that memtrace started and held until the probes were attached.
    pub(super) command: Option<Upid>,
    is_of_command: bool,
    index: Places,
    texts: Interner,
    /// How many have a row of their own.
    listed: usize,
    has_overflown: bool,
}

/// So many without a row of their own are distinguished. A recording that was cut off has some,
/// of the last second; one that was made up could have as many as it has rows.
const MAX_UNLISTED: usize = 32_768;

impl ProcessTable {
    /// Reads the table `process`.
    pub(super) fn read<S: RowSource>(source: &S, info: &RunInfo) -> Result<Self, S::Error> {
        let mut texts = Interner::default();
        let mut processes: Vec<Process> = Vec::new();
        let mut command = None;
        source.scan(&[], |row: ProcessRow| {
            if row.first_seen_by == Some(FirstSeenBy::Command) {
                command = Some(row.upid);
            }
            processes.push(process_of(&row, &mut texts));
        })?;
        processes.order_by_key(|process| (process.start, process.upid));
        let mut table = Self {
            index: Places::of(&processes),
            listed: processes.len(),
            has_overflown: false,
            processes,
            command,
            is_of_command: matches!(info.target, Target::Command { .. }),
            texts,
        };
        table.link(info);
        Ok(table)
    }

    /// Finds the parents and roots that rows name.
    fn link(&mut self, info: &RunInfo) {
        let main = main_process(&self.processes, info);
        for position in 0..self.processes.len() {
            let find = |upid: Option<Upid>| self.find(upid?);
            let process = &self.processes[position];
            let parent = find(process.parent_upid).filter(|&parent| parent != position);
            let root = find(process.root_upid).or(main);
            let upid_of = |place: Option<usize>| Some(self.processes[place?].upid);
            let (parent_upid, root_upid) = (upid_of(parent), upid_of(root));
            let process = &mut self.processes[position];
            (process.parent, process.parent_upid) = (parent, parent_upid);
            (process.root, process.root_upid) = (root, root_upid);
        }
        for position in 0..self.processes.len() {
            if self.is_named_by_comm(position) {
                let shape = name::mask_numbers(&self.processes[position].comm);
                self.processes[position].group = self.texts.intern(&shape);
            }
        }
        let mut roots = self.processes.iter().filter_map(|process| process.root);
        if let Some(root) = roots.next()
            && roots.all(|other| other == root)
        {
            self.processes[root].is_main = true;
        }
    }

    /// Whether a process is a fork that named itself with prctl, which its command line does not show:
    /// another fork of a process with a role has one too.
    fn is_named_by_comm(&self, position: usize) -> bool {
        let process = &self.processes[position];
        let parent = process.parent.map(|parent| &self.processes[parent]);
        parent.is_some_and(|parent| {
            let is_copy = process.cmdline.is_some() && process.cmdline == parent.cmdline;
            let lost_role = parent.role.is_some() && process.role.is_none();
            lost_role && is_copy && process.comm != parent.comm
        })
    }

    /// The position of a process. One that has memory but no row of its own (a recording cut
    /// off between the two) gets a place too, so that nobody is missing from the sums; those of
    /// which there can't be as many share the last.
    pub(super) fn position(&mut self, upid: Upid, boot_ns: BootNs) -> usize {
        if let Some(position) = self.index.get(upid) {
            return position;
        }
        let position = self.processes.len();
        if position - self.listed >= MAX_UNLISTED {
            self.has_overflown = true;
            return position - 1;
        }
        let unknown = self.texts.intern("[unknown]");
        let row = ProcessRow {
            upid,
            start_boot_ns: boot_ns,
            first_seen_boot_ns: boot_ns,
            ..ProcessRow::default()
        };
        self.processes.push(Process {
            tgid: None,
            name: Arc::clone(&unknown),
            shape: Arc::clone(&unknown),
            group: unknown,
            ending: Ending::Unknown,
            ..process_of(&row, &mut self.texts)
        });
        self.index.others.insert(upid, position);
        position
    }

    /// Of a row that a process made by measuring itself: who that is, RSS and anonymous memory, as
    /// far as they can be; `None` where they can't.
    pub(super) fn self_reported(&self, row: &MemRow) -> Option<(usize, Bytes, Option<Bytes>)> {
        let position = self.find(row.upid)?;
        let said = Amounts::of(row);
        let rss = self.processes[position].can_have_held(said.rss()?)?;
        Some((position, rss, said.anon().map(|anon| anon.min(rss))))
    }

    /// That there were more processes without a row of their own than are distinguished.
    pub(super) fn overflow(&self) -> Option<Loss> {
        self.has_overflown.then(|| Loss {
            severity: Severity::Loss,
            kind: Some(DiagKind::Limit),
            subject: "mem".to_owned(),
            count: None,
            detail: format!(
                "more than {MAX_UNLISTED} processes have memory and no row in process; the others \
                 are reported as one"
            ),
            first: None,
            last: None,
        })
    }

    /// The position of a process that is known.
    pub(super) fn find(&self, upid: Upid) -> Option<usize> {
        self.index.get(upid)
    }

    /// Whether it is the command that was recorded.
    pub(super) fn is_command(&self, position: usize) -> bool {
        self.is_of_command && self.processes[position].is_main
    }

    /// When the command that was recorded ended; `None` for other targets, and while it runs.
    pub(super) fn command_end(&self) -> Option<BootNs> {
        let command = (0..self.processes.len()).find(|&position| self.is_command(position))?;
        self.processes[command].exit_boot_ns()
    }

    /// Takes what the pass over memory measured of each process into its peak.
    pub(super) fn take_peaks(&mut self, tracks: &[Track], clock: &RunClock) {
        for (process, track) in self.processes.iter_mut().zip(tracks) {
            if track.row_count > 0 {
                // The command is forked just before its recording begins.
                let is_command = self.command == Some(process.upid);
                let ran_before = process.start.boot_ns < clock.start() && !is_command;
                let (highest, at) = (track.highest, track.highest_boot_ns);
                process.peak = process.peak.with_series(highest, at, ran_before);
            }
        }
    }

    /// Takes that the OOM killer chose some.
    pub(super) fn note_kills(&mut self, kills: &[OomRow]) {
        for kill in kills {
            if let Some(victim) = kill.victim_upid.and_then(|upid| self.find(upid)) {
                self.processes[victim].ending.note_oom_kill();
            }
        }
    }

    /// Reads `title` and gives every process its name, also as the sender of a signal. The peaks must
    /// be known by now.
    pub(super) fn name<S: RowSource>(
        &mut self,
        source: &S,
        groups: &Groups,
    ) -> Result<(), S::Error> {
        let mut tracks: HashMap<usize, NameTrack> = HashMap::new();
        let named_by_comm: HashSet<usize> = (0..self.processes.len())
            .filter(|&position| self.is_named_by_comm(position))
            .collect();
        let (processes, index, texts) = (&self.processes, &self.index, &mut self.texts);
        source.scan(&[], |row: TitleRow| {
            if let Some(position) = index.get(row.upid) {
                let peak = processes[position].peak.at.map(|at| at.boot_ns);
                tracks.entry(position).or_default().take(&row, peak, texts);
            }
        })?;
        let mut copies = Vec::new();
        for (position, process) in self.processes.iter_mut().enumerate() {
            if process.tgid.is_none() {
                continue;
            }
            let track = tracks.remove(&position).unwrap_or_default();
            let title = track.at_peak().or(process.cmdline.as_ref());
            let then = process.peak.at;
            let then = then.and_then(|peak| groups.then(position, peak.boot_ns));
            let label = match then {
                Some(then) => then.role.as_ref().map(|role| {
                    let rank = process.role.as_ref().filter(|last| last.role == role.role);
                    let rank = rank.and_then(|last| last.rank.clone());
                    let role = Role {
                        rank,
                        ..role.clone()
                    };
                    track.label_then(&role)
                }),
                None => process.role.as_ref().and_then(|role| track.label(role)),
            };
            let is_unnamed = label.is_none() && !track.has_own_title();
            let name = match label {
                Some((label, method)) => {
                    process.method = method.map(|method| self.texts.intern(method));
                    process.shape = Arc::clone(then.map_or(&process.group, |then| &then.name));
                    label
                }
                None => {
                    let is_inherited = title == process.cmdline.as_ref();
                    let name = match named_by_comm.contains(&position) && is_inherited {
                        true => process.comm.to_string(),
                        false => name::display(title.map(AsRef::as_ref), &process.comm),
                    };
                    process.shape = self.texts.intern(&name::shape(&name));
                    name
                }
            };
            if is_unnamed && was_copy(process) {
                copies.push(position);
            }
            process.name = self.texts.intern(&name);
            process.title = track.last().cloned();
        }
        self.name_copies(&copies);
        let index = &self.index;
        teardown::settle(&mut self.processes, |upid| index.get(upid));
        Ok(())
    }

    /// Calls those that were copies of their parents at their peaks so: the program that they executed
    /// later did not run then.
    fn name_copies(&mut self, copies: &[usize]) {
        for &position in copies {
            let parent = self.processes[position].parent;
            let Some(parent) = parent.map(|parent| &self.processes[parent].name) else {
                continue;
            };
            let name = format!("fork of {}", parent.trim_start_matches("fork of "));
            let process = &mut self.processes[position];
            process.shape = self.texts.intern(&name::shape(&name));
            process.name = self.texts.intern(&name);
        }
    }
}

/// Whether it had about all that it ever had while it was a copy of its parent.
fn was_copy(process: &Process) -> bool {
    let peak = &process.peak;
    let at = peak.at.map(|at| at.boot_ns);
    let is_before = at
        .zip(process.copy_until)
        .is_some_and(|(at, until)| at < until);
    let seen = peak.amounts.rss().zip(peak.rss_bytes);
    is_before && seen.is_some_and(|(seen, peak)| seen.0 >= peak.0 - peak.0 / 8)
}

/// The position of every process by its identity. Every row asks for one, and a recorder counts
/// its processes from one on: those are found by counting.
#[derive(Clone, Debug)]
struct Places {
    lowest: i64,
    counted: Vec<Option<u32>>,
    others: HashMap<Upid, usize>,
}

impl Places {
    fn of(processes: &[Process]) -> Self {
        let lowest = processes.iter().map(|process| process.upid.0).min();
        let mut places = Self {
            lowest: lowest.unwrap_or_default(),
            counted: vec![None; 2 * processes.len()],
            others: HashMap::new(),
        };
        for (position, process) in processes.iter().enumerate() {
            match places.count(process.upid) {
                Some(count) if count < places.counted.len() => {
                    places.counted[count] = Some(position as u32);
                }
                _ => {
                    places.others.insert(process.upid, position);
                }
            }
        }
        places
    }

    #[inline]
    fn count(&self, upid: Upid) -> Option<usize> {
        usize::try_from(upid.0.checked_sub(self.lowest)?).ok()
    }

    #[inline]
    fn get(&self, upid: Upid) -> Option<usize> {
        let counted = self.count(upid).and_then(|count| *self.counted.get(count)?);
        let other = || self.others.get(&upid).copied();
        counted.map(|place| place as usize).or_else(other)
    }
}

/// The one root that the recording is about, where there is one: its pid can have been reused,
/// so a process that is its own root goes first.
fn main_process(processes: &[Process], info: &RunInfo) -> Option<usize> {
    let tgid = match info.target {
        Target::All => return None,
        _ => info.root_tgid?,
    };
    let candidates = || {
        let positions = 0..processes.len();
        positions.filter(|&position| processes[position].tgid == Some(tgid))
    };
    candidates()
        .find(|&position| processes[position].root_upid == Some(processes[position].upid))
        .or_else(|| candidates().next())
}

fn process_of(row: &ProcessRow, texts: &mut Interner) -> Process {
    let mut keep = |text: &Option<Arc<str>>| -> Option<Arc<str>> {
        text.as_deref().map(|text| texts.intern(text))
    };
    let (exe, cmdline) = (keep(&row.exe), keep(&row.cmdline));
    let (cgroup, container_id) = (keep(&row.cgroup), keep(&row.container_id));
    let (pod, container) = (keep(&row.pod), keep(&row.container));
    let comm = texts.intern(&row.comm);
    let role = row.role.clone().map(|role| {
        Box::new(Role {
            framework: row.framework.clone(),
            role,
            rank: row.rank.clone(),
        })
    });
    let group = match &role {
        Some(role) => role.kind(),
        None => name::shape(&name::display(row.cmdline.as_deref(), &row.comm)),
    };
    let group = texts.intern(&group);
    Process {
        upid: row.upid,
        tgid: Some(row.tgid),
        ns_tgid: row.ns_tgid,
        parent_upid: row.parent_upid,
        parent: None,
        root_upid: row.root_upid,
        root: None,
        is_main: false,
        name: Arc::clone(&comm),
        method: None,
        shape: Arc::clone(&comm),
        role,
        group,
        comm,
        exe,
        cmdline,
        title: None,
        uid: row.uid,
        cgroup,
        container_id,
        pod,
        container,
        start: Instant::unsettled(row.start_boot_ns),
        first_seen: Instant::unsettled(row.first_seen_boot_ns),
        first_seen_by: row.first_seen_by,
        rlimits: Rlimits::of(row),
        inherited_rss_bytes: row.inherited_rss_bytes,
        inherited_anon_bytes: row.inherited_anon_bytes.map(|bytes| bytes.max(Bytes(0))),
        copy_until: None,
        end: row.exit_boot_ns.map(Instant::unsettled),
        ending: Ending::of(row),
        sender: Sender::of(row, texts),
        asked: Termination::of(row, texts),
        peak: Peak::of(row),
        kernel_maxrss_bytes: row.kernel_maxrss_bytes,
        growth: None,
    }
}
