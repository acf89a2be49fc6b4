//! Who belongs: finds processes that are new in /proc and decides which of them are part
//! of the recording.
//!
//! Everyone else is remembered as unrecorded, so that a poll looks at each process once
//! and then only at its number in the listing. That rests on the kernel handing out
//! process ids in turn: the id of one of them comes back as another process only after a full
//! round, and is not listed in between for at least one poll.

use super::cgroup_procs;
use super::dir::{ProcDir, is_gone};
use super::identity::own_processes;
use super::listing::{Births, Listing};
use super::refusals::{Refusal, Refusals};
use super::stat::Stat;
use crate::Targets;
use crate::kept::TextBuffer;
use memtrace_model::{BootNs, DurationNs, Order, Tgid};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

/// An unrecorded process this young is looked at again in every poll: programs set their titles soon
/// after they start.
const YOUNG: DurationNs = DurationNs(5_000_000_000);
/// Any other that could come to match is looked at again after this time.
const RECHECK: DurationNs = DurationNs(2_000_000_000);

/// A process that was found to belong.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) tgid: Tgid,
    pub(super) stat: Stat,
}

/// A process that does not belong, or not any more.
#[derive(Debug)]
struct Unrecorded {
    ppid: Tgid,
    start_ticks: i64,
    /// It can never belong: a kernel thread, a zombie, one that /proc hides.
    is_hopeless: bool,
    first_seen: BootNs,
    recheck_at: BootNs,
    listed_in: u64,
}

/// The processes that /proc lists, divided into members and the unrecorded.
#[derive(Debug)]
pub(super) struct Census {
    root: PathBuf,
    targets: Targets,
    births: Births,
    listing: Option<Listing>,
    listed: Vec<Tgid>,
    unrecorded: BTreeMap<Tgid, Unrecorded>,
    /// Processes that no pattern makes a member.
    own_processes: Vec<Tgid>,
    /// Processes that belong whatever their names, until the next census: later the number can
    /// be another's.
    adoption_requests: HashSet<Tgid>,
    round: u64,
}

/// What one census needs from its caller.
pub(super) struct CensusInput<'a> {
    pub(super) now: BootNs,
    pub(super) buffer: &'a mut TextBuffer,
    pub(super) refusals: &'a mut Refusals,
}

impl Census {
    pub(super) fn new(root: &Path, targets: Targets) -> Self {
        let own_processes = match targets {
            Targets::Match(_) => own_processes(root),
            _ => Vec::new(),
        };
        Self {
            root: root.to_owned(),
            targets,
            births: Births::watch(root),
            listing: None,
            listed: Vec::new(),
            unrecorded: BTreeMap::new(),
            own_processes,
            adoption_requests: HashSet::new(),
            round: 0,
        }
    }

    /// Has a process taken in that no pattern would choose.
    pub(super) fn request_adoption(&mut self, tgid: Tgid) {
        self.adoption_requests.insert(tgid);
    }

    /// Whether no census has been taken yet.
    pub(super) fn is_first(&self) -> bool {
        self.round == 0
    }

    /// Lists /proc and gives the processes that have come to belong, parents before
    /// their children.
    pub(super) fn take(
        &mut self,
        is_member: &dyn Fn(Tgid) -> bool,
        input: &mut CensusInput<'_>,
    ) -> io::Result<Vec<Started>> {
        let are_births_possible = self.births.are_possible(input.now, input.buffer);
        let can_grow = self.targets.can_adopt() || !self.adoption_requests.is_empty();
        if !are_births_possible && !can_grow {
            return Ok(Vec::new());
        }
        self.list()?;
        self.round += 1;
        let in_cgroup = match &self.targets {
            Targets::Cgroup(directory) => cgroup_procs::below(directory)?,
            _ => HashSet::new(),
        };
        let (mut waiting, chosen) = self.examine_listed(is_member, &in_cgroup, input);
        self.adoption_requests.clear();
        let round = self.round;
        self.unrecorded
            .retain(|_, unrecorded| unrecorded.listed_in == round);
        waiting.order_by_key(|(_, stat)| stat.start_ticks);

        let mut admitted = Admitted::default();
        loop {
            let before = admitted.list.len();
            waiting.retain_mut(|(tgid, stat)| {
                let belongs = chosen.contains(tgid)
                    || is_member(stat.ppid)
                    || admitted.starts.contains_key(&stat.ppid);
                if belongs {
                    admitted.add(*tgid, stat.clone());
                }
                !belongs
            });
            self.admit_children(&mut admitted, input);
            if admitted.list.len() == before {
                break;
            }
        }
        for (tgid, stat) in waiting {
            self.remember(tgid, &stat, false, input.now);
        }
        Ok(admitted.list)
    }

    /// Notes that a member has ended while /proc still lists it.
    pub(super) fn dismiss(&mut self, tgid: Tgid, stat: &Stat, now: BootNs) {
        self.remember(tgid, stat, true, now);
    }

    fn list(&mut self) -> io::Result<()> {
        let listing = match &mut self.listing {
            Some(listing) => listing,
            closed => closed.insert(Listing::open(&self.root)?),
        };
        listing.read(&mut self.listed)
    }

    /// Looks at those listed who are neither members nor known as unrecorded, and at
    /// unrecorded ones whose turn it is. Gives all of them, and which are asked for themselves.
    fn examine_listed(
        &mut self,
        is_member: &dyn Fn(Tgid) -> bool,
        in_cgroup: &HashSet<Tgid>,
        input: &mut CensusInput<'_>,
    ) -> (Vec<(Tgid, Stat)>, HashSet<Tgid>) {
        let mut waiting = Vec::new();
        let mut chosen = HashSet::new();
        let listed = std::mem::take(&mut self.listed);
        for &tgid in listed.iter().filter(|tgid| !is_member(**tgid)) {
            let is_known = self.unrecorded.contains_key(&tgid);
            if is_known && !self.is_due(tgid, in_cgroup, input.now) {
                continue;
            }
            let Some(stat) = self.examine(tgid, input) else {
                continue;
            };
            let is_requested = self.adoption_requests.contains(&tgid);
            let is_chosen = is_requested || self.is_asked_for(tgid, &stat, in_cgroup);
            if is_chosen {
                chosen.insert(tgid);
            }
            if is_chosen || !is_known {
                self.unrecorded.remove(&tgid);
                waiting.push((tgid, stat));
            }
        }
        self.listed = listed;
        (waiting, chosen)
    }

    /// Whether an unrecorded process, seen once more in the listing, is to be looked at again.
    fn is_due(&mut self, tgid: Tgid, in_cgroup: &HashSet<Tgid>, now: BootNs) -> bool {
        let round = self.round;
        let can_adopt = self.targets.can_adopt();
        let Some(unrecorded) = self.unrecorded.get_mut(&tgid) else {
            return true;
        };
        unrecorded.listed_in = round;
        if unrecorded.is_hopeless {
            return false;
        }
        if self.adoption_requests.contains(&tgid) {
            return true;
        }
        if !can_adopt {
            return false;
        }
        if in_cgroup.contains(&tgid) {
            return true;
        }
        let is_due = matches!(self.targets, Targets::Match(_)) && now >= unrecorded.recheck_at;
        if is_due && now - unrecorded.first_seen > YOUNG {
            unrecorded.recheck_at = now + RECHECK;
        }
        is_due
    }

    /// Reads who a process is. `None` when it can't become a member: it vanished, is
    /// hidden, is a kernel thread, or had ended before the recording started.
    fn examine(&mut self, tgid: Tgid, input: &mut CensusInput<'_>) -> Option<Stat> {
        let path = self.root.join(tgid.to_string()).join("stat");
        match input.buffer.read_once(&path) {
            Ok(text) => {
                let stat = Stat::parse(text)?;
                if stat.is_kernel_thread || (stat.has_ended() && self.round == 1) {
                    self.remember(tgid, &stat, true, input.now);
                    return None;
                }
                Some(stat)
            }
            Err(error) if is_gone(&error) => None,
            Err(error) => {
                input.refusals.count(Refusal::Process, &error);
                self.unrecorded
                    .insert(tgid, Unrecorded::hidden(self.round, input.now));
                None
            }
        }
    }

    fn is_asked_for(&self, tgid: Tgid, stat: &Stat, in_cgroup: &HashSet<Tgid>) -> bool {
        match &self.targets {
            Targets::All => true,
            Targets::Roots(_) => self.targets.is_root(tgid),
            Targets::Cgroup(_) => in_cgroup.contains(&tgid),
            Targets::Match(_) => {
                !self.own_processes.contains(&tgid)
                    && (self.targets.matches_name(&stat.comm, None) || {
                        let title = self.title(tgid);
                        self.targets.matches_name(&stat.comm, title.as_deref())
                    })
            }
        }
    }

    fn title(&self, tgid: Tgid) -> Option<String> {
        let dir = ProcDir::open(&self.root, tgid).ok()??;
        dir.command_line().ok()?
    }

    /// Strangers whose parent has just been admitted: it came to match, or was moved into
    /// the cgroup, after it had forked them.
    fn admit_children(&mut self, admitted: &mut Admitted, input: &mut CensusInput<'_>) {
        let children: Vec<Tgid> = self
            .unrecorded
            .iter()
            .filter(|(_, unrecorded)| {
                let parent_start = admitted.starts.get(&unrecorded.ppid);
                // A parent that is younger than its child only has its parent's number.
                !unrecorded.is_hopeless
                    && parent_start.is_some_and(|start| *start <= unrecorded.start_ticks)
            })
            .map(|(tgid, _)| *tgid)
            .collect();
        for tgid in children {
            self.unrecorded.remove(&tgid);
            if let Some(stat) = self.examine(tgid, input) {
                admitted.add(tgid, stat);
            }
        }
    }

    fn remember(&mut self, tgid: Tgid, stat: &Stat, is_hopeless: bool, now: BootNs) {
        let unrecorded = Unrecorded {
            ppid: stat.ppid,
            start_ticks: stat.start_ticks,
            is_hopeless: is_hopeless || stat.has_ended(),
            first_seen: now,
            recheck_at: now,
            listed_in: self.round,
        };
        self.unrecorded.insert(tgid, unrecorded);
    }
}

impl Unrecorded {
    fn hidden(round: u64, now: BootNs) -> Self {
        Self {
            ppid: Tgid(0),
            start_ticks: 0,
            is_hopeless: true,
            first_seen: now,
            recheck_at: now,
            listed_in: round,
        }
    }
}

#[derive(Default)]
struct Admitted {
    list: Vec<Started>,
    starts: HashMap<Tgid, i64>,
}

impl Admitted {
    fn add(&mut self, tgid: Tgid, stat: Stat) {
        self.starts.insert(tgid, stat.start_ticks);
        self.list.push(Started { tgid, stat });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::fake::FakeProc;

    struct Watch {
        census: Census,
        members: HashSet<Tgid>,
        seconds: i64,
    }

    impl Watch {
        fn of(proc: &FakeProc, targets: Targets) -> Self {
            Self {
                census: Census::new(proc.root(), targets),
                members: HashSet::new(),
                seconds: 0,
            }
        }

        fn poll(&mut self) -> Vec<u32> {
            self.seconds += 10;
            let mut input = CensusInput {
                now: BootNs(self.seconds * 1_000_000_000),
                buffer: &mut TextBuffer::default(),
                refusals: &mut Refusals::default(),
            };
            let members = self.members.clone();
            let is_member = |tgid: Tgid| members.contains(&tgid);
            let found = self.census.take(&is_member, &mut input).unwrap();
            self.members.extend(found.iter().map(|new| new.tgid));
            found.iter().map(|new| new.tgid.0).collect()
        }
    }

    fn roots(tgids: &[u32]) -> Targets {
        Targets::Roots(tgids.iter().copied().map(Tgid).collect())
    }

    fn pattern(regex: &str) -> Targets {
        Targets::Match(regex::Regex::new(regex).unwrap())
    }

    #[test]
    fn descendants_belong_whatever_the_order_of_their_ids() {
        let proc = FakeProc::new();
        proc.process(1, "init", 0);
        proc.process(50, "root", 1);
        proc.process(9, "child", 50);
        proc.process(70, "grandchild", 9);
        proc.process(60, "other", 1);
        let mut watch = Watch::of(&proc, roots(&[50]));
        assert_eq!(watch.poll(), [50, 9, 70]);
        proc.process(80, "later", 70);
        proc.process(81, "stranger", 60);
        assert_eq!(watch.poll(), [80]);
    }

    #[test]
    fn a_member_stays_one_after_it_is_reparented_and_so_do_its_children() {
        let proc = FakeProc::new();
        proc.process(50, "root", 1);
        proc.process(51, "worker", 50);
        let mut watch = Watch::of(&proc, roots(&[50]));
        assert_eq!(watch.poll(), [50, 51]);
        proc.end(50);
        proc.process(51, "worker", 1);
        proc.process(52, "helper", 51);
        assert_eq!(watch.poll(), [52]);
    }

    #[test]
    fn a_title_set_later_makes_a_member_and_takes_its_children_along() {
        let proc = FakeProc::new();
        proc.process(50, "python3", 1);
        proc.process(51, "python3", 50);
        proc.process(60, "python3", 1);
        let mut watch = Watch::of(&proc, pattern("VLLM::Engine"));
        assert_eq!(watch.poll(), [0_u32; 0]);
        proc.write(50, "cmdline", b"VLLM::EngineCore\0\0\0");
        assert_eq!(watch.poll(), [50, 51]);
    }

    #[test]
    fn an_invitation_is_for_the_process_that_has_the_number_now() {
        let proc = FakeProc::new();
        proc.process(50, "raylet", 1);
        proc.process(60, "python3", 1);
        let mut watch = Watch::of(&proc, pattern("^raylet$"));
        assert_eq!(watch.poll(), [50]);
        watch.census.request_adoption(Tgid(60));
        watch.census.request_adoption(Tgid(70));
        assert_eq!(watch.poll(), [60]);
        proc.process(70, "other", 1);
        assert_eq!(watch.poll(), [0_u32; 0]);
    }

    #[test]
    fn a_stranger_that_was_just_looked_at_is_taken_in_when_it_is_invited() {
        let proc = FakeProc::new();
        proc.process(60, "python3", 1);
        let mut watch = Watch::of(&proc, pattern("^raylet$"));
        watch.poll();
        if let Some(unrecorded) = watch.census.unrecorded.get_mut(&Tgid(60)) {
            unrecorded.recheck_at = BootNs(i64::MAX);
        }
        watch.census.request_adoption(Tgid(60));
        assert_eq!(watch.poll(), [60]);
    }

    #[test]
    fn the_recorder_does_not_match_its_own_pattern() {
        let proc = FakeProc::new();
        let own = std::process::id();
        proc.process(40, "sudo", 1);
        proc.write(40, "cmdline", b"sudo\0memtrace\0--match\0vllm\0");
        proc.process(own, "memtrace", 40);
        proc.write(own, "cmdline", b"memtrace\0--match\0vllm\0");
        proc.process(60, "vllm", 1);
        assert_eq!(Watch::of(&proc, pattern("vllm")).poll(), [60]);
    }

    #[test]
    fn kernel_threads_and_the_ended_are_no_part_of_all_processes() {
        let proc = FakeProc::new();
        proc.process(1, "init", 0);
        proc.zombie(5, "gone", 1, 0);
        proc.process(2, "kthreadd", 0);
        let stat = std::fs::read_to_string(proc.root().join("2/stat")).unwrap();
        proc.write(2, "stat", stat.replace("4194304", "2129984").as_bytes());
        assert_eq!(Watch::of(&proc, Targets::All).poll(), [1]);
    }

    #[test]
    fn a_child_that_ended_before_it_was_seen_is_found_as_a_zombie() {
        let proc = FakeProc::new();
        proc.process(50, "root", 1);
        let mut watch = Watch::of(&proc, roots(&[50]));
        watch.poll();
        proc.zombie(51, "short", 50, 256);
        assert_eq!(watch.poll(), [51]);
        watch.members.remove(&Tgid(51));
        let stat = Stat::parse(&std::fs::read(proc.root().join("51/stat")).unwrap()).unwrap();
        watch.census.dismiss(Tgid(51), &stat, BootNs(0));
        assert_eq!(watch.poll(), [0_u32; 0], "a zombie is not found twice");
    }

    #[test]
    fn a_stranger_s_old_parent_number_does_not_make_it_a_child_of_a_younger_process() {
        let proc = FakeProc::new();
        proc.process_started_at(60, "orphan", 50, 1000);
        let mut watch = Watch::of(&proc, pattern("^server$"));
        watch.poll();
        proc.process_started_at(50, "server", 1, 9000);
        assert_eq!(watch.poll(), [50]);
    }
}
