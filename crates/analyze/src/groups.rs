//! Which processes are counted together by role, and since when: what a process held while it was
//! something else belongs to what it was then.

use super::process::Process;
use memtrace_model::tables::{TitleRow, TitleSource};
use memtrace_model::{BootNs, Order, Role, says_little};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

/// So many programs without a role are distinguished; a build can run tens of thousands.
const PROGRAMS_MAX: usize = 1024;
/// So many changes of one process are followed; a worker can run millions of tasks.
const STEPS_MAX: usize = 4096;

/// The processes that are counted together.
#[derive(Clone, Debug)]
pub(super) struct RoleGroup {
    pub(super) name: Arc<str>,
    /// Without a rank; `None` for those that no rule knew.
    pub(super) role: Option<Role>,
}

/// Every group, and who belongs to which when.
#[derive(Debug, Default)]
pub(super) struct Groups {
    pub(super) list: Vec<RoleGroup>,
    /// By process: where it begins.
    pub(super) first: Vec<u32>,
    /// Of those that change: from when on they belong where, in the order of time.
    steps: HashMap<usize, Vec<(BootNs, u32)>>,
    by_name: HashMap<Arc<str>, u32>,
}

/// The roles of one process by its titles. `None` stands for what comes next, or for what it is
/// in the end.
#[derive(Debug, Default)]
struct Track(Vec<(BootNs, Option<Arc<str>>)>);

/// Those of every process. A recording older than roles has none: its processes are what they
/// are in the end.
#[derive(Debug, Default)]
pub(super) struct RoleTracks(HashMap<usize, Track>);

impl RoleTracks {
    /// Takes the next title of a process.
    pub(super) fn take(&mut self, process: usize, row: &TitleRow) {
        // After a role that said more, an idle worker is no longer what it was.
        let is_known = self.0.contains_key(&process);
        let word = row
            .role
            .as_deref()
            .filter(|role| is_known || !says_little(role));
        if word.is_some() || is_known {
            self.0.entry(process).or_default().take(row, word);
        }
    }
}

impl Groups {
    /// Those of processes with these roles.
    pub(super) fn of(processes: &[Process], mut tracks: RoleTracks) -> Self {
        let mut groups = Self::default();
        let others = beyond(processes, PROGRAMS_MAX);
        for (position, process) in processes.iter().enumerate() {
            let last = match others.contains_key(process.group.as_ref()) && process.role.is_none() {
                true => groups.place("others", None),
                false => groups.place(&process.group, process.role.as_deref()),
            };
            let mut steps = Vec::new();
            let mut next = last;
            let track = tracks.0.remove(&position).unwrap_or_default();
            for (at, word) in track.0.into_iter().rev() {
                if let Some(word) = word {
                    next = groups.of_word(&word, process, last);
                }
                steps.push((at, next));
            }
            steps.reverse();
            steps.dedup_by_key(|(_, group)| *group);
            // Before anything was known of it, it was what it became.
            let first = steps.first().map_or(last, |&(_, group)| group);
            groups.first.push(first);
            if steps.len() > 1 {
                steps.remove(0);
                groups.steps.insert(position, steps);
            }
        }
        groups
    }

    /// Takes in those who were met only by their memory.
    pub(super) fn complete(&mut self, processes: &[Process]) {
        for process in processes.iter().skip(self.first.len()) {
            let place = self.place(&process.group, None);
            self.first.push(place);
        }
    }

    fn of_word(&mut self, word: &str, process: &Process, last: u32) -> u32 {
        match &process.role {
            Some(role) if role.role == word => last,
            role => {
                let then = Role {
                    framework: role.as_ref().and_then(|role| role.framework.clone()),
                    role: word.to_owned(),
                    rank: None,
                };
                self.place(&then.kind(), Some(&then))
            }
        }
    }

    fn place(&mut self, name: &str, role: Option<&Role>) -> u32 {
        if let Some(&place) = self.by_name.get(name) {
            return place;
        }
        let place = self.list.len() as u32;
        let name: Arc<str> = Arc::from(name);
        self.by_name.insert(Arc::clone(&name), place);
        let role = role.cloned().map(|role| Role { rank: None, ..role });
        self.list.push(RoleGroup { name, role });
        place
    }

    /// Where a process belongs at an instant; `None` for one without a row of its own.
    pub(super) fn at(&self, process: usize, time: BootNs) -> Option<usize> {
        let first = *self.first.get(process)?;
        let steps = self.steps(process);
        let past = steps.partition_point(|&(at, _)| at <= time);
        let step = past.checked_sub(1).and_then(|step| steps.get(step));
        Some(step.map_or(first, |&(_, group)| group) as usize)
    }

    /// Of a process that changes: from when on it belongs where, in the order of time.
    pub(super) fn steps(&self, process: usize) -> &[(BootNs, u32)] {
        self.steps.get(&process).map_or(&[], Vec::as_slice)
    }

    /// Whether a process was never in another group.
    pub(super) fn is_always_one(&self, process: usize) -> bool {
        !self.steps.contains_key(&process)
    }

    /// The group of a process at an instant where it was in several.
    pub(super) fn then(&self, process: usize, time: BootNs) -> Option<&RoleGroup> {
        self.steps.get(&process)?;
        self.list.get(self.at(process, time)?)
    }

    /// Every change as time, process and group, the latest first.
    pub(super) fn role_changes(&self) -> Vec<(BootNs, usize, u32)> {
        let steps = self.steps.iter();
        let mut role_changes: Vec<_> = steps
            .flat_map(|(&process, steps)| {
                steps.iter().map(move |&(at, group)| (at, process, group))
            })
            .collect();
        role_changes.order_by_key(|&(at, process, _)| Reverse((at, process)));
        role_changes
    }

    /// Since when somebody was in each group; `None` for one that nobody was ever in.
    pub(super) fn since(&self, processes: &[Process]) -> Vec<Option<BootNs>> {
        let mut since: Vec<Option<BootNs>> = vec![None; self.list.len()];
        let mut note = |group: u32, at: BootNs| {
            let first = &mut since[group as usize];
            *first = Some(first.map_or(at, |first| first.min(at)));
        };
        for (place, (&first, process)) in self.first.iter().zip(processes).enumerate() {
            note(first, process.start.boot_ns);
            for &(at, group) in self.steps.get(&place).into_iter().flatten() {
                note(group, at);
            }
        }
        since
    }

    /// Everyone who was ever in each group, in the order in which they started.
    pub(super) fn members(&self) -> Vec<Vec<usize>> {
        let mut members = vec![Vec::new(); self.list.len()];
        for (process, &first) in self.first.iter().enumerate() {
            let steps = self.steps.get(&process).into_iter().flatten();
            let mut all: Vec<u32> = steps.map(|&(_, group)| group).chain([first]).collect();
            all.sort_unstable();
            all.dedup();
            for group in all {
                members[group as usize].push(process);
            }
        }
        members
    }
}

impl Track {
    fn take(&mut self, row: &TitleRow, word: Option<&str>) {
        let last = self.0.last().and_then(|(_, word)| word.as_deref());
        let is_new = match word {
            Some(word) => last != Some(word),
            // A new program is nothing yet; another name of the old one takes nothing away.
            None => last.is_some() && row.source == Some(TitleSource::Exec),
        };
        if is_new {
            let word = word.filter(|_| self.0.len() < STEPS_MAX);
            if word.is_some() || last.is_some() {
                self.0.push((row.boot_ns, word.map(Arc::from)));
            }
        }
    }
}

/// The programs without a role beyond so many, those of the highest peaks left out.
fn beyond(processes: &[Process], most: usize) -> HashMap<&str, i64> {
    let mut programs: HashMap<&str, i64> = HashMap::new();
    for process in processes.iter().filter(|process| process.role.is_none()) {
        let peak = process.peak.rss_bytes.map_or(0, |bytes| bytes.0);
        let highest = programs.entry(&process.group).or_default();
        *highest = peak.max(*highest);
    }
    let mut order: Vec<(i64, &str)> = programs.iter().map(|(&name, &peak)| (peak, name)).collect();
    order.order_by_key(|&(peak, name)| (Reverse(peak), name));
    for (_, name) in order.iter().take(most) {
        programs.remove(name);
    }
    programs
}
