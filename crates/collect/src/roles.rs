//! What every process is, followed through its names: fills the roles of `title` and
//! `process` in the rows that the backends wrote, whichever backend that was.
//!
//! A role holds until the next exec, or until a name says another one of at least the same
//! weight: an actor of Ray is one between two calls too. One that only stood for not knowing also
//! ends with a name that no rule knows: the process is called by that.

use super::{ProcessTable, RoleDeclaration};
use memtrace_model::{
    Environments, MAIN, ProcessRow, ProcessTraits, Record, Role, Rules, Tgid, TitleRow,
    TitleSource, Upid, trim_title,
};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Ended processes are remembered for late news of them, and for the children they left.
const ENDED_MAX: usize = 1024;
/// Ancestors that are asked for a framework.
const ANCESTORS_MAX: usize = 32;
/// What others tell of a process says less than its own names, and more than that it was asked
/// for.
const WEIGHT_REPORTED: u8 = 9;

/// Follows the processes of a recording.
#[derive(Debug)]
pub struct Roles {
    rules: Rules,
    /// Whether the roots of the recording are processes that the person named.
    are_roots_main: bool,
    known: HashMap<Upid, Box<Known>>,
    ended: VecDeque<Upid>,
    /// Reported what they are before their own rows came.
    declared: HashMap<Tgid, RoleDeclaration>,
    environments: Box<dyn Environments>,
    #[cfg(test)]
    looks: usize,
}

/// A name, once for all processes that came to it by fork.
type Name = Arc<str>;

/// What is known of one process.
#[derive(Debug)]
struct Known {
    tgid: Tgid,
    parent: Option<Upid>,
    is_root: bool,
    comm: Name,
    title: Option<Name>,
    cmdline: Option<Name>,
    exe: Option<Name>,
    /// While it runs in the program it was forked in: the names it came with.
    inherited: Option<Names>,
    /// Whether it took another name since, in that program.
    is_renamed: bool,
    role: Option<Arc<Role>>,
    weight: u8,
    /// The nearest role above, and whether that is the parent's; kept for when those are gone.
    above: Option<(Arc<Role>, bool)>,
    has_asked_environment: bool,
    /// Whether the rules were asked since its names changed.
    is_judged: bool,
    has_ended: bool,
}

#[derive(Debug)]
struct Names {
    comm: Name,
    titles: [Option<Name>; 2],
}

impl Roles {
    /// Nobody is known yet. `are_roots_main`: the recording starts from a command, or from
    /// processes that were given by id.
    pub fn new(rules: Rules, are_roots_main: bool) -> Self {
        Self {
            rules,
            are_roots_main,
            known: HashMap::new(),
            ended: VecDeque::new(),
            declared: HashMap::new(),
            environments: Box::new(ProcEnvironments),
            #[cfg(test)]
            looks: 0,
        }
    }

    /// Fills in the roles of new rows.
    pub fn fill(&mut self, rows: &mut [Record], table: &mut ProcessTable) {
        for declaration in std::mem::take(&mut table.news.roles) {
            match table.upid(declaration.tgid) {
                Some(upid) => self.reported(upid, declaration.role, table),
                None => {
                    self.declared.insert(declaration.tgid, declaration);
                }
            }
        }
        // A process's names come before its own row, which is written at the end.
        for row in rows.iter() {
            if let Record::Process(row) = row {
                self.meet(row);
            }
        }
        for row in rows.iter_mut() {
            match row {
                Record::Title(row) => self.rename(row, table),
                Record::Process(row) => self.complete(row),
                _ => {}
            }
        }
        let too_many = self.ended.len().saturating_sub(ENDED_MAX);
        for upid in self.ended.drain(..too_many) {
            self.known.remove(&upid);
        }
    }

    /// Takes over who a process is, and judges it by that until its first title comes.
    fn meet(&mut self, row: &ProcessRow) {
        let has_ended = row.exit_boot_ns.is_some();
        if let Some(known) = self.known.get_mut(&row.upid) {
            let names = [known.exe.as_deref(), known.cmdline.as_deref()];
            if names != [row.exe.as_deref(), row.cmdline.as_deref()] {
                known.exe.clone_from(&row.exe);
                known.cmdline.clone_from(&row.cmdline);
                known.is_judged = false;
            }
            if has_ended && !std::mem::replace(&mut known.has_ended, true) {
                self.ended.push_back(row.upid);
            }
            return;
        }
        let parent = row.parent_upid.and_then(|parent| self.known.get(&parent));
        let parent = parent.map(Box::as_ref);
        let is_like = |parent: &&Known| {
            let titles = [parent.cmdline.as_deref(), parent.title.as_deref()];
            parent.exe.as_deref() == row.exe.as_deref() && titles.contains(&row.cmdline.as_deref())
        };
        let comm = match parent.filter(|parent| *parent.comm == *row.comm) {
            Some(parent) => Arc::clone(&parent.comm),
            None => row.comm.as_str().into(),
        };
        let inherited = parent.filter(is_like).map(|parent| Names {
            comm: parent.comm.clone(),
            titles: [parent.cmdline.clone(), parent.title.clone()],
        });
        let mut known = Known {
            tgid: row.tgid,
            parent: row.parent_upid,
            is_root: row.root_upid == Some(row.upid),
            comm,
            title: row.cmdline.clone(),
            cmdline: row.cmdline.clone(),
            exe: row.exe.clone(),
            inherited,
            is_renamed: false,
            role: None,
            weight: 0,
            above: None,
            has_asked_environment: false,
            is_judged: false,
            has_ended,
        };
        // One that started later only has its number.
        if let Some(declaration) = self.declared.remove(&row.tgid)
            && row.start_boot_ns <= declaration.at
        {
            known.take(declaration.role, WEIGHT_REPORTED);
        }
        self.known.insert(row.upid, Box::new(known));
        if has_ended {
            self.ended.push_back(row.upid);
        }
    }

    fn rename(&mut self, row: &mut TitleRow, table: &mut ProcessTable) {
        let parent = self.known.get(&row.upid).and_then(|known| known.parent);
        let parent = parent.and_then(|parent| self.known.get(&parent));
        // The parent may have been renamed before it forked, with that reported only now.
        let is_comm_parents = parent.is_some_and(|parent| *parent.comm == *row.comm);
        let is_title_parents = parent.is_some_and(|parent| parent.title == row.title);
        let Some(known) = self.known.get_mut(&row.upid) else {
            return;
        };
        if let Some(names) = &known.inherited {
            let is_own_comm = !is_comm_parents && *names.comm != *row.comm;
            let is_own_title =
                row.title.is_some() && !is_title_parents && !names.titles.contains(&row.title);
            known.is_renamed |= is_own_comm || is_own_title;
        }
        let had_role = known.role.is_some();
        if *known.comm != *row.comm {
            known.comm = row.comm.as_str().into();
        }
        if row.title.is_some() {
            known.title.clone_from(&row.title);
        }
        if row.source == Some(TitleSource::Exec) {
            known.inherited = None;
            known.is_renamed = false;
            known.role = None;
            known.weight = 0;
            known.has_asked_environment = false;
        }
        self.judge(row.upid, table);
        row.role = self
            .known
            .get(&row.upid)
            .and_then(|known| known.role_word());
        if had_role
            && row.role.is_none()
            && let Some(process) = table.process_mut(row.upid)
        {
            // Written again, without the role it had.
            process.row_mut();
        }
    }

    fn complete(&mut self, row: &mut ProcessRow) {
        if self.is_news(row.upid) {
            self.judge_alone(row.upid);
        }
        if let Some(role) = self
            .known
            .get(&row.upid)
            .and_then(|known| known.role.as_ref())
        {
            row.role = Some(role.role.clone());
            row.framework.clone_from(&role.framework);
            row.rank.clone_from(&role.rank);
        }
    }

    fn judge(&mut self, upid: Upid, table: &mut ProcessTable) {
        if let Some((parent, role)) = self.judge_alone(upid) {
            self.reported(parent, role, table);
        }
    }

    /// Something other than its names tells what a process is.
    fn reported(&mut self, upid: Upid, role: Role, table: &mut ProcessTable) {
        if let Some(known) = self.known.get_mut(&upid)
            && known.take(role, WEIGHT_REPORTED)
            && let Some(process) = table.process_mut(upid)
        {
            // Written again, and completed here then.
            process.row_mut();
        }
    }

    /// Asks the rules what a process is. Answers what that makes of its parent.
    fn judge_alone(&mut self, upid: Upid) -> Option<(Upid, Role)> {
        let above = self.above(upid);
        let above = above.map(|(role, is_near)| (Arc::clone(role), is_near));
        #[cfg(test)]
        {
            self.looks += 1;
        }
        let parent = self.known.get(&upid)?.parent;
        let parent = parent.and_then(|parent| self.known.get(&parent));
        let parent_cmdline = parent.and_then(|parent| parent.cmdline.clone());
        let parent_exe = parent.map(|parent| parent.exe.clone());
        let known = self.known.get_mut(&upid)?;
        known.above = above.or(known.above.take());
        known.is_judged = true;
        // A fork runs what its parent ran then, which exec may have replaced in the parent.
        let is_parent_another = known.inherited.is_some()
            && parent_exe.is_some_and(|parent_exe| parent_exe != known.exe);
        let traits = known.looks();
        let looks = ProcessTraits {
            is_parent_near: traits.is_parent_near && !is_parent_another,
            parent_cmdline: parent_cmdline.as_deref(),
            environment: Some((self.environments.as_ref(), known.tgid)),
            ..traits
        };
        let found = self.rules.find(&looks);
        let Some(mut found) = found else {
            // It has a name that no rule knows, and that says more than this did.
            if (1..WEIGHT_REPORTED).contains(&known.weight) {
                known.role = None;
                known.weight = 0;
            }
            if self.are_roots_main && known.is_root && known.role.is_none() {
                known.role = Some(Arc::new(Role {
                    role: MAIN.to_owned(),
                    ..Role::default()
                }));
            }
            return None;
        };
        if let (Some(variable), None) = (found.rank_variable, &found.role.rank)
            && !std::mem::replace(&mut known.has_asked_environment, true)
        {
            found.role.rank = self.environments.variable(known.tgid, variable);
        }
        let of_parent = known.parent.zip(found.role_of_parent);
        known.take(found.role, found.weight);
        of_parent
    }

    /// Whether the rules could say more of a process that has no role than when they were last
    /// asked: its row comes with every change of its peak.
    fn is_news(&self, upid: Upid) -> bool {
        let known = self.known.get(&upid).filter(|known| known.role.is_none());
        known.is_some_and(|known| {
            let above = self.above(upid);
            let had = known.above.as_ref();
            let had = had.map(|(role, is_near)| (role, *is_near));
            !known.is_judged || (above.is_some() && above != had)
        })
    }

    /// The role of the parent or, where it has none, of the nearest ancestor that has one.
    fn above(&self, upid: Upid) -> Option<(&Arc<Role>, bool)> {
        let mut at = self.known.get(&upid)?.parent;
        for distance in 0..ANCESTORS_MAX {
            let known = self.known.get(&at?)?;
            if let Some(role) = &known.role {
                return Some((role, distance == 0));
            }
            at = known.parent;
        }
        None
    }
}

impl Known {
    fn looks(&self) -> ProcessTraits<'_> {
        let own = |title: &Option<Name>| match &self.inherited {
            Some(names) => !names.titles.contains(title),
            None => true,
        };
        let is_comm_own = match &self.inherited {
            Some(names) => names.comm != self.comm,
            None => true,
        };
        let title = Some(&self.title).filter(|title| own(title));
        let cmdline = Some(&self.cmdline).filter(|cmdline| own(cmdline));
        ProcessTraits {
            comm: if is_comm_own { &self.comm } else { "" },
            title: title.and_then(|title| title.as_deref()).map(trim_title),
            cmdline: cmdline.and_then(|cmdline| cmdline.as_deref()),
            exe: self.exe.as_deref(),
            parent: self.above.as_ref().map(|(role, _)| role.as_ref()),
            is_parent_near: self.above.as_ref().is_some_and(|(_, is_near)| *is_near),
            is_forked: self.inherited.is_some(),
            is_renamed: self.is_renamed,
            ..ProcessTraits::default()
        }
    }

    /// Takes a role that says no less than the one it has. Whether it took it.
    fn take(&mut self, mut role: Role, weight: u8) -> bool {
        if self.role.is_some() && weight < self.weight {
            return false;
        }
        if let Some(had) = &self.role
            && had.role == role.role
            && role.rank.is_none()
        {
            role.rank.clone_from(&had.rank);
        }
        self.role = Some(Arc::new(role));
        self.weight = weight;
        true
    }

    fn role_word(&self) -> Option<String> {
        self.role.as_ref().map(|role| role.role.clone())
    }
}

/// Those of the processes of this machine.
#[derive(Debug)]
struct ProcEnvironments;

impl Environments for ProcEnvironments {
    #[cfg(target_os = "linux")]
    fn variable(&self, tgid: Tgid, variable: &str) -> Option<String> {
        let environment = std::fs::read(format!("/proc/{tgid}/environ")).ok()?;
        let value = environment
            .split(|byte| *byte == 0)
            .find_map(|entry| entry.strip_prefix(variable.as_bytes())?.strip_prefix(b"="))?;
        String::from_utf8(value.to_vec()).ok()
    }

    /// Another process's environment can't be had.
    #[cfg(not(target_os = "linux"))]
    fn variable(&self, _tgid: Tgid, _variable: &str) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod trees;
