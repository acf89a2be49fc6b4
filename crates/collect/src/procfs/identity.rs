//! Who a process is, read from its files in one go. The BPF backend asks here too, for
//! processes that were running before its probes were attached.

use super::dir::ProcDir;
use super::stat::Stat;
use super::status::Status;
use super::text;
use crate::container::container_id;
use crate::kept::TextBuffer;
use memtrace_model::{BootNs, ProcessRow, Tgid};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// What /proc tells about one process. A part that was refused or had already gone is
/// `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The kernel's name for it.
    pub comm: String,
    /// The file that runs. Needs the right to ptrace the process.
    pub exe: Option<String>,
    /// Its command line or title.
    pub cmdline: Option<String>,
    /// Real user id.
    pub uid: Option<i64>,
    /// Path of its memory cgroup.
    pub cgroup: Option<String>,
    /// Process id in its innermost pid namespace.
    pub ns_tgid: Option<Tgid>,
    /// Start, in steps of 10 ms.
    pub start: BootNs,
    /// Its parent now, which after reparenting is not who forked it.
    pub ppid: Tgid,
    /// Whether it is a kernel thread, which has no memory of its own.
    pub is_kernel_thread: bool,
    /// Whether it has ended, and only its exit code is left.
    pub has_ended: bool,
}

/// A process is there, but its files could not be read.
#[derive(Debug, thiserror::Error)]
#[error("reading the files of process {tgid}: {source}")]
pub struct IdentityError {
    /// The process whose files they are.
    pub tgid: Tgid,
    /// Why; EPERM or EACCES where /proc is mounted with hidepid.
    pub source: io::Error,
}

/// Reads who a process is; `Ok(None)` when there is no such process. `root` is where
/// procfs is mounted.
///
/// # Errors
/// When the process is there but its stat can't be read.
pub fn identity(root: &Path, tgid: Tgid) -> Result<Option<Identity>, IdentityError> {
    let mut buffer = TextBuffer::default();
    let failed = |source| IdentityError { tgid, source };
    let Some(dir) = ProcDir::open(root, tgid).map_err(failed)? else {
        return Ok(None);
    };
    let Some(text) = dir.read("stat", &mut buffer).map_err(failed)? else {
        return Ok(None);
    };
    let Some(stat) = Stat::parse(text) else {
        return Err(failed(io::ErrorKind::InvalidData.into()));
    };
    Ok(Some(Identity::read(&dir, &stat, &mut buffer)))
}

impl Identity {
    /// The rest of the files, for a process whose stat has been read.
    pub(super) fn read(dir: &ProcDir, stat: &Stat, buffer: &mut TextBuffer) -> Self {
        let status = match dir.read("status", buffer) {
            Ok(Some(text)) => Status::parse(text),
            _ => Status::default(),
        };
        Self {
            comm: stat.comm.clone(),
            exe: dir.exe().ok().flatten(),
            cmdline: dir.command_line().ok().flatten(),
            uid: status.uid,
            cgroup: memory_cgroup(dir, buffer),
            ns_tgid: status.ns_tgid,
            start: stat.start(),
            ppid: stat.ppid,
            is_kernel_thread: stat.is_kernel_thread,
            has_ended: stat.has_ended(),
        }
    }

    /// Writes what is known here into a row of `process`. What is unknown here becomes
    /// unknown there: a value that the row has from the parent may no longer be true. But a command
    /// line or a cgroup that is gone is that of a process on its way out, and stays.
    pub fn fill(&self, row: &mut ProcessRow) {
        row.comm.clone_from(&self.comm);
        set_text(&mut row.exe, self.exe.as_deref());
        if self.cmdline.is_some() {
            set_text(&mut row.cmdline, self.cmdline.as_deref());
        }
        row.uid = self.uid;
        row.ns_tgid = self.ns_tgid;
        if let Some(cgroup) = &self.cgroup {
            set_cgroup(row, cgroup);
        }
    }
}

/// The memory cgroup of a process; `None` when it can't be read, and where "/" may only mean
/// that the process exits (v1: proc_cgroup_show() says so from the begin of exit on).
fn memory_cgroup(dir: &ProcDir, buffer: &mut TextBuffer) -> Option<String> {
    let text = dir.read("cgroup", buffer).ok().flatten()?;
    let path = text::memory_cgroup(text)?;
    let mut lives = || {
        let text = dir.read("stat", buffer).ok().flatten();
        text.and_then(Stat::parse)
            .is_some_and(|stat| !stat.is_exiting)
    };
    (path != "/" || lives()).then_some(path)
}

/// Writes a cgroup, and the container that its path names, into a row of `process`. Another one's pod
/// is not known yet.
pub(crate) fn set_cgroup(row: &mut ProcessRow, cgroup: &str) {
    if row.cgroup.as_deref() != Some(cgroup) {
        (row.pod, row.container) = (None, None);
    }
    set_text(&mut row.container_id, container_id(cgroup));
    set_text(&mut row.cgroup, Some(cgroup));
}

/// Sets a text. Where it stays the same it stays shared with whom it came from.
pub(crate) fn set_text(text: &mut Option<Arc<str>>, new: Option<&str>) {
    if text.as_deref() != new {
        *text = new.map(Arc::from);
    }
}

/// The processes that are left out where processes are looked for by name: the recorder and its
/// ancestors, for the pattern stands in its own command line and in that of the sudo and the shell
/// that started it, and its children by now, which it started for itself.
pub fn own_processes(root: &Path) -> Vec<Tgid> {
    let own = std::process::id();
    let mut found = lineage(root, Tgid(own));
    // Of its only thread; where the kernel does not tell (CONFIG_PROC_CHILDREN), none.
    let children = root.join(format!("{own}/task/{own}/children"));
    let children = std::fs::read_to_string(children).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|id| id.parse().ok());
    found.extend(children.map(Tgid));
    found
}

/// A process and its ancestors, nearest first, as far as they can be read.
pub fn lineage(root: &Path, tgid: Tgid) -> Vec<Tgid> {
    let mut buffer = TextBuffer::default();
    let mut found = vec![tgid];
    let mut at = tgid;
    while let Ok(Some(dir)) = ProcDir::open(root, at) {
        let stat = dir.read("stat", &mut buffer).ok().flatten();
        match stat.and_then(Stat::parse) {
            // 0 is no process. An id that came before would be a reused one.
            Some(stat) if stat.ppid.0 != 0 && !found.contains(&stat.ppid) => {
                at = stat.ppid;
                found.push(at);
            }
            _ => break,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::fake::FakeProc;

    #[test]
    fn a_process_is_read_from_its_files() {
        let proc = FakeProc::new();
        proc.process(42, "python3", 7);
        proc.write(42, "cmdline", b"python3\0train.py\0");
        proc.write(
            42,
            "cgroup",
            b"0::/docker/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n",
        );
        proc.link(42, "exe", "/usr/bin/python3.11");
        let identity = identity(proc.root(), Tgid(42)).unwrap().unwrap();
        assert_eq!(identity.comm, "python3");
        assert_eq!(identity.cmdline.as_deref(), Some("python3 train.py"));
        assert_eq!(identity.exe.as_deref(), Some("/usr/bin/python3.11"));
        assert_eq!(identity.uid, Some(1000));
        assert_eq!(identity.ppid, Tgid(7));
    }

    #[test]
    fn the_group_of_a_process_that_exits_is_unknown_and_not_the_root() {
        let proc = FakeProc::new();
        proc.process(42, "python3", 7);
        proc.write(42, "cgroup", b"4:memory:/\n");
        let cgroup = || identity(proc.root(), Tgid(42)).unwrap().unwrap().cgroup;
        assert_eq!(cgroup().as_deref(), Some("/"));
        proc.start_to_exit(42);
        assert_eq!(cgroup(), None);
    }

    #[test]
    fn a_process_that_is_not_there_is_no_error() {
        assert!(matches!(
            identity(FakeProc::new().root(), Tgid(42)),
            Ok(None)
        ));
    }

    #[test]
    fn parts_that_cannot_be_read_are_unknown() {
        let proc = FakeProc::new();
        proc.process(42, "python3", 7);
        proc.remove(42, "status");
        let identity = identity(proc.root(), Tgid(42)).unwrap().unwrap();
        assert_eq!(identity.exe, None);
        assert_eq!(identity.uid, None);
        assert_eq!(identity.cgroup, None);
    }

    #[test]
    fn lineage_goes_up_to_the_first_process() {
        let proc = FakeProc::new();
        proc.process(1, "init", 0);
        proc.process(5, "bash", 1);
        proc.process(9, "memtrace", 5);
        assert_eq!(lineage(proc.root(), Tgid(9)), [Tgid(9), Tgid(5), Tgid(1)]);
        assert_eq!(lineage(proc.root(), Tgid(77)), [Tgid(77)]);
    }

    #[test]
    fn this_process_is_who_it_says_it_is() {
        let tgid = Tgid(std::process::id());
        let identity = identity(Path::new("/proc"), tgid).unwrap().unwrap();
        let exe = std::env::current_exe().unwrap();
        assert_eq!(identity.exe.as_deref(), exe.to_str());
        assert_eq!(identity.ppid, Tgid(std::os::unix::process::parent_id()));
        assert!(!identity.is_kernel_thread);
    }

    #[test]
    fn a_text_that_stays_the_same_stays_shared() {
        let parents: Arc<str> = "/usr/bin/python3".into();
        let mut text = Some(Arc::clone(&parents));
        set_text(&mut text, Some("/usr/bin/python3"));
        assert!(
            text.as_ref()
                .is_some_and(|text| Arc::ptr_eq(text, &parents))
        );
        set_text(&mut text, Some("/usr/bin/sleep"));
        assert_eq!(text.as_deref(), Some("/usr/bin/sleep"));
        set_text(&mut text, None);
        assert_eq!(text, None);
    }
}
