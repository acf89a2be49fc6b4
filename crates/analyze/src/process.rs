//! What is known about one process.

use super::clock::RunClock;
use super::endings::Ending;
use super::growth::Growth;
use super::keys;
use super::peak::{Bound, Peak};
use super::rlimits::{RlimitKeys, Rlimits};
use super::sender::{Sender, SenderFate};
use super::termination::{Termination, TerminationKeys, end_in_short, end_in_words};
use memtrace_model::tables::FirstSeenBy;
use memtrace_model::{BootNs, Bytes, Instant, Role, Tgid, Upid};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// One process of the recording.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Process {
    /// Its identity in the recording.
    pub upid: Upid,
    /// Its process id; `None` when only its memory was recorded, and no row of `process`.
    #[serde(rename = "pid")]
    pub tgid: Option<Tgid>,
    /// Its process id in its own pid namespace.
    #[serde(rename = "ns_pid")]
    pub ns_tgid: Option<Tgid>,
    /// The process that forked it; `None` where that is not recorded.
    pub parent_upid: Option<Upid>,
    /// The same as an index into [`super::Analysis::processes`].
    #[serde(skip)]
    pub parent: Option<usize>,
    /// The root of its tree.
    pub root_upid: Option<Upid>,
    /// The same as an index into [`super::Analysis::processes`].
    #[serde(skip)]
    pub root: Option<usize>,
    /// Whether it is the root of the only tree: what the person thinks of as the program.
    #[serde(skip)]
    pub is_main: bool,
    /// What to call it: its role, else its title or command line at its peak, shortened.
    pub name: Arc<str>,
    /// The method of an actor that ran at its own peak: `.step`. It is no part of the name, since
    /// it ends before the process does.
    #[serde(skip)]
    pub method: Option<Arc<str>>,
    /// What it shares with processes that do the same thing.
    #[serde(skip)]
    pub shape: Arc<str>,
    /// What it is to its framework; `None` when no rule knew it, or the recording is older than
    /// roles.
    #[serde(flatten, with = "keys::RoleKeys")]
    pub role: Option<Box<Role>>,
    /// Those that it is counted with by role in the end: the role without the rank, else what its command
    /// line shares with others.
    #[serde(skip)]
    pub group: Arc<str>,
    /// The kernel's name for it.
    pub comm: Arc<str>,
    /// The file executed last.
    pub exe: Option<Arc<str>>,
    /// The command line of the last exec.
    pub cmdline: Option<Arc<str>>,
    /// The last title.
    #[serde(rename = "last_title")]
    pub title: Option<Arc<str>>,
    /// The id of its user; `None` when unknown.
    pub uid: Option<i64>,
    /// Its memory cgroup.
    pub cgroup: Option<Arc<str>>,
    /// The id of its container; `None` when it is in none, or that is unknown.
    pub container_id: Option<Arc<str>>,
    /// Its pod of Kubernetes, `namespace/name`.
    pub pod: Option<Arc<str>>,
    /// The name of its container in that pod.
    pub container: Option<Arc<str>>,
    /// When it started.
    pub start: Instant,
    /// When the recording first saw it.
    pub first_seen: Instant,
    /// Which observation saw it first.
    #[serde(skip)]
    pub first_seen_by: Option<FirstSeenBy>,
    /// RSS that fork gave the address space it runs in; `None` when unknown.
    pub inherited_rss_bytes: Option<Bytes>,
    /// The anonymous part of that.
    #[serde(skip)]
    pub inherited_anon_bytes: Option<Bytes>,
    /// Until when it was a copy of its parent, which fork made and exec replaced; `None` where it
    /// was none, or stays one. Of what a copy holds its own is what it grew by.
    #[serde(skip)]
    pub(super) copy_until: Option<BootNs>,
    /// When it ended.
    pub end: Option<Instant>,
    /// How it ended.
    #[serde(flatten)]
    pub ending: Ending,
    /// Who sent the signal that ended it.
    #[serde(flatten)]
    pub sender: Sender,
    /// Who had asked it to end; `None` for most.
    #[serde(flatten, with = "TerminationKeys")]
    pub asked: Option<Box<Termination>>,
    /// Its limits of memory; `None` for most, who have none.
    #[serde(flatten, with = "RlimitKeys")]
    pub rlimits: Option<Box<Rlimits>>,
    /// Its own peak.
    pub peak: Peak,
    /// ru_maxrss: with waited-for children and borrowed memory.
    pub kernel_maxrss_bytes: Option<Bytes>,
    /// How it grew; `None` when too short to tell.
    pub growth: Option<Box<Growth>>,
}

impl Process {
    /// When it ended, on CLOCK_BOOTTIME.
    pub fn exit_boot_ns(&self) -> Option<BootNs> {
        self.end.map(|end| end.boot_ns)
    }

    /// How it ended, with who sent the signal that ended it.
    pub fn ended_in_words(&self) -> String {
        end_in_words(self.ending, &self.sender, self.asked.as_deref())
    }

    /// The same for a column.
    pub(super) fn ended_in_short(&self) -> String {
        end_in_short(self.ending, &self.sender, self.asked.as_deref())
    }

    /// What to read first of how processes ended.
    pub(super) fn gravity(&self) -> u8 {
        match self.ending.gravity() {
            Ending::KILLED | Ending::CRASHED => match self.sender.fate() {
                SenderFate::ShutDown | SenderFate::EndedSoon => Ending::ORDINARY,
                _ if self.sender.is_ancestor() => Ending::STOPPED,
                _ => self.ending.gravity(),
            },
            gravity => gravity,
        }
    }

    /// Whether it was killed or crashed, and not by an ancestor that shut down.
    pub fn is_violent_end(&self) -> bool {
        self.gravity() <= Ending::STOPPED
    }

    /// Whether an ancestor that goes on ended it: what pools do with workers.
    pub fn is_stopped_end(&self) -> bool {
        self.gravity() == Ending::STOPPED
    }

    /// Whether the OOM killer is known to have killed it.
    pub fn is_oom_killed(&self) -> bool {
        self.ending.by_oom_killer() == Some(true)
    }

    /// Gives its instants their offset and wall time.
    pub(super) fn settle(&mut self, clock: &RunClock) {
        let asked = self.asked.as_mut().map(|asked| &mut asked.at);
        let ends = self.end.iter_mut().chain(&mut self.peak.at).chain(asked);
        for at in [&mut self.start, &mut self.first_seen]
            .into_iter()
            .chain(ends)
        {
            *at = clock.at(at.boot_ns);
        }
    }

    /// What it says that it held, as far as the kernel's own mark of its peak lets that be. An
    /// attribute of a program can have the name and mean something else.
    pub(super) fn can_have_held(&self, rss: Bytes) -> Option<Bytes> {
        match (self.peak.rss_bytes, self.peak.bound) {
            (None, _) | (_, Bound::AtLeast) => Some(rss),
            // The kernel's cheap counters are off by some pages for each CPU.
            (Some(Bytes(peak)), _) => {
                (rss.0 <= peak.saturating_add(peak / 8)).then(|| Bytes(rss.0.min(peak)))
            }
        }
    }

    /// Of so much anonymous memory at an instant, what fork had given it: all that a copy has
    /// which exec replaces later. `None` where nobody knows.
    pub(super) fn inherited(&self, anon: Bytes, at: BootNs) -> Option<Bytes> {
        match self.copy_until {
            Some(until) if at < until => Some(anon),
            _ => {
                let inherited = self.inherited_anon_bytes?;
                Some(inherited.min(anon).max(Bytes(0)))
            }
        }
    }
}
