//! What is known about one process.

use super::endings::Ending;
use super::growth::Growth;
use super::peak::Peak;
use crate::model::tables::FirstSeenBy;
use crate::model::{BootNs, Bytes, Role, Tgid, Upid};
use std::sync::Arc;

/// One process of the recording. Indices point into [`super::Analysis::processes`].
#[derive(Clone, Debug)]
pub struct Process {
    /// Its identity.
    pub upid: Upid,
    /// Its process id; `None` when only its memory was recorded, and no row of `process`.
    pub tgid: Option<Tgid>,
    /// Its process id in its own pid namespace.
    pub ns_tgid: Option<Tgid>,
    /// The process that forked it.
    pub parent: Option<usize>,
    /// The root of its tree.
    pub root: Option<usize>,
    /// Whether it is the root of the only tree: what the person thinks of as the program.
    pub is_main: bool,
    /// What to call it: its role, else its title or command line at its peak, shortened.
    pub name: Arc<str>,
    /// The method of an actor that ran at its own peak: `.step`. It is no part of the name, since
    /// it ends before the process does.
    pub method: Option<Arc<str>>,
    /// What it shares with processes that do the same thing.
    pub shape: Arc<str>,
    /// What it is to its framework; `None` when no rule knew it, or the recording is older than
    /// roles.
    pub role: Option<Role>,
    /// Those that it is counted with by role in the end: the role without the rank, else what its command
    /// line shares with others.
    pub group: Arc<str>,
    /// The kernel's name for it.
    pub comm: Arc<str>,
    /// The file executed last.
    pub exe: Option<Arc<str>>,
    /// The command line of the last exec.
    pub cmdline: Option<Arc<str>>,
    /// The last title.
    pub title: Option<Arc<str>>,
    /// Its user.
    pub uid: Option<i64>,
    /// Its memory cgroup.
    pub cgroup: Option<Arc<str>>,
    /// Its container.
    pub container_id: Option<Arc<str>>,
    /// When it started.
    pub start_boot_ns: BootNs,
    /// When the recording first saw it.
    pub first_seen_boot_ns: BootNs,
    /// Which observation saw it first.
    pub first_seen_by: Option<FirstSeenBy>,
    /// RSS that fork gave the address space it runs in; `None` when unknown.
    pub inherited_rss_bytes: Option<Bytes>,
    /// The anonymous part of that.
    pub inherited_anon_bytes: Option<Bytes>,
    /// Until when it was a copy of its parent, which fork made and exec replaced; `None` where it
    /// was none, or stays one. Of what a copy holds its own is what it grew by.
    pub(super) copy_until: Option<BootNs>,
    /// When it ended.
    pub exit_boot_ns: Option<BootNs>,
    /// How it ended.
    pub ending: Ending,
    /// Its own peak.
    pub peak: Peak,
    /// ru_maxrss.
    pub kernel_maxrss_bytes: Option<Bytes>,
    /// How it grew; `None` when too short to tell.
    pub growth: Option<Growth>,
}

impl Process {
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
