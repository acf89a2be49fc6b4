//! A memory cgroup of the command's own: what the kernel charges it is what the command and its
//! descendants hold, and nobody else.
//!
//! It is made below the one that memtrace lives in, so that limits and accounting of the groups above go
//! on as they are. On v2 a group can have groups with a memory controller below it only where it holds no
//! process itself (but for the root); there systemd makes a scope beside that of the session. Where none
//! can be made, the command stays where it would have been.

mod systemd;

use super::record::own_cgroup;
use memtrace_host::MemoryHierarchy;
use memtrace_model::Tgid;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Whether the command gets a memory cgroup of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScopeChoice {
    /// Where it would share one with others, and one can be made.
    #[default]
    Auto,
    /// It is an error where none can be made.
    Always,
    /// It stays in that of memtrace.
    Never,
}

impl ScopeChoice {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Always, Self::Never];

    /// Its word on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        }
    }

    /// What it does, in a line.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Auto => "Where the command would share its group, and a group can be made",
            Self::Always => "An error where no group can be made",
            Self::Never => "The command stays in the group of memtrace",
        }
    }
}

/// Why the command has no group of its own.
#[derive(Debug, thiserror::Error)]
pub enum ScopeError {
    /// There is nothing to make it in.
    #[error(
        "no cgroup hierarchy with the memory controller is mounted, or it does not show memtrace's own group"
    )]
    NoHierarchy,
    /// The group has no memory controller.
    #[error("groups below {} have no memory controller (cgroup.subtree_control)", .0.display())]
    NoController(PathBuf),
    /// The groups above would not be charged.
    #[error("groups below {} are not charged to it (memory.use_hierarchy is 0)", .0.display())]
    Apart(PathBuf),
    /// systemd made none.
    #[error("systemd made no scope for the command: {why}")]
    Systemd {
        /// What it said.
        why: String,
    },
    /// The system refused it.
    #[error("failed to make the cgroup {}: {source}", dir.display())]
    Refused {
        /// The directory of the group.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// The group, which is removed with this value; whoever is left in it then goes back to the one above.
#[derive(Debug)]
pub struct Scope {
    dir: PathBuf,
    above: PathBuf,
}

impl Scope {
    /// Makes it, and puts the held command in. `None` where none is wanted, where the command has a
    /// group without others anyway, and where systemd made one, which it removes itself.
    ///
    /// # Errors
    /// When it can't be made and must be.
    pub fn start(
        choice: ScopeChoice,
        hierarchy: Option<&MemoryHierarchy>,
        command: Tgid,
    ) -> Result<Option<Self>, ScopeError> {
        let group = own_cgroup();
        let above = hierarchy.and_then(|all| all.directory(group.as_deref()?));
        let is_needed = |above: &PathBuf| match choice {
            ScopeChoice::Never => false,
            ScopeChoice::Always => true,
            ScopeChoice::Auto => !is_of_slurm(above) && has_others(above, command),
        };
        let made = match above {
            _ if choice == ScopeChoice::Never => return Ok(None),
            None => Err(ScopeError::NoHierarchy),
            Some(above) if !is_needed(&above) => return Ok(None),
            Some(above) => {
                let by_systemd = hierarchy.zip(group.as_deref());
                let by_systemd = by_systemd.and_then(|(all, group)| {
                    systemd::start(all, group, &name(std::process::id()), command)
                });
                match by_systemd {
                    Some(made) => made.map(|()| None),
                    None => Self::make(above, command).map(Some),
                }
            }
        };
        match made {
            Err(error) if choice == ScopeChoice::Auto => {
                tracing::info!("the command shares its cgroup: {error}");
                Ok(None)
            }
            made => made,
        }
    }

    fn make(above: PathBuf, command: Tgid) -> Result<Self, ScopeError> {
        remove_left_ones(&above);
        let dir = above.join(name(std::process::id()));
        let refused = |source| ScopeError::Refused {
            dir: dir.clone(),
            source,
        };
        // On v1 before 5.11 a group can be one of which those above know nothing, limits included.
        let is_apart = fs::read(above.join("memory.use_hierarchy"));
        if is_apart.is_ok_and(|text| text.starts_with(b"0")) {
            return Err(ScopeError::Apart(above));
        }
        // Of one with this process id that was killed.
        let _ = fs::remove_dir(&dir);
        fs::create_dir(&dir).map_err(refused)?;
        // From here on it is removed in every case.
        let scope = Self {
            dir: dir.clone(),
            above,
        };
        if !dir.join("memory.stat").exists() {
            return Err(ScopeError::NoController(scope.above.clone()));
        }
        let procs = dir.join("cgroup.procs");
        fs::write(procs, command.to_string()).map_err(refused)?;
        Ok(scope)
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        // One that is about to end, or forks meanwhile, is still in it for a moment.
        for _ in 0..DROP_TRIES {
            let left = fs::read_to_string(self.dir.join("cgroup.procs")).unwrap_or_default();
            for tgid in left.lines() {
                let _ = fs::write(self.above.join("cgroup.procs"), tgid);
            }
            // Groups that the command made below it keep it: they are the command's.
            if fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            std::thread::sleep(DROP_PAUSE);
        }
    }
}

/// So long it takes until a group is left as it is.
const DROP_TRIES: u32 = 20;
const DROP_PAUSE: Duration = Duration::from_millis(10);

const PREFIX: &str = "memtrace-";

fn name(tgid: u32) -> String {
    format!("{PREFIX}{tgid}")
}

/// Removes what recorders left that were killed.
fn remove_left_ones(above: &Path) {
    for entry in fs::read_dir(above).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let tgid = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let tgid = tgid.and_then(|tgid| tgid.parse::<u32>().ok());
        if tgid.is_some_and(|tgid| !Path::new(&format!("/proc/{tgid}")).exists()) {
            // Refused where somebody is in it.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Slurm removes the groups of a step itself, which one below would keep it from where memtrace is killed.
fn is_of_slurm(group: &Path) -> bool {
    let mut parts = group.iter().filter_map(|part| part.to_str());
    parts.any(|part| part.starts_with("slurm"))
}

/// Whether somebody else than memtrace and the command lives in a group, or below it.
fn has_others(group: &Path, command: Tgid) -> bool {
    let ours = [command.0, std::process::id()].map(|tgid| tgid.to_string());
    let Ok(members) = fs::read_to_string(group.join("cgroup.procs")) else {
        return true;
    };
    let mut below = fs::read_dir(group).into_iter().flatten().flatten();
    let is_group = |entry: fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    members
        .lines()
        .any(|tgid| !ours.iter().any(|ours| ours == tgid))
        || below.any(is_group)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(members: &str) -> tempfile::TempDir {
        let group = tempfile::tempdir().expect("a directory");
        fs::write(group.path().join("cgroup.procs"), members).expect("a file");
        group
    }

    #[test]
    fn a_group_with_memtrace_and_the_command_alone_has_no_others() {
        let own = std::process::id();
        let has_others = |members: &str| has_others(group(members).path(), Tgid(7));
        assert!(!has_others(&format!("{own}\n7\n")));
        assert!(has_others(&format!("{own}\n7\n8\n")));
        let with_below = group(&format!("{own}\n7\n"));
        fs::create_dir(with_below.path().join("below")).expect("a directory");
        assert!(super::has_others(with_below.path(), Tgid(7)));
    }

    #[test]
    fn a_step_of_slurm_keeps_its_groups() {
        for (path, is_its) in [
            ("/sys/fs/cgroup/memory/slurm/uid_0/job_7/step_0", true),
            ("/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7", true),
            ("/sys/fs/cgroup/user.slice/user-0.slice", false),
        ] {
            assert_eq!(is_of_slurm(Path::new(path)), is_its, "{path}");
        }
    }

    #[test]
    fn without_a_hierarchy_only_who_asks_for_a_group_is_reported() {
        let start = |choice| Scope::start(choice, None, Tgid(7));
        assert!(start(ScopeChoice::Auto).expect("no error").is_none());
        assert!(start(ScopeChoice::Never).expect("no error").is_none());
        let refused = start(ScopeChoice::Always).expect_err("no group");
        assert!(
            refused.to_string().contains("no cgroup hierarchy"),
            "{refused}"
        );
    }

    #[test]
    fn what_was_made_is_removed_where_the_group_has_no_controller() {
        let above = group("");
        let refused = Scope::make(above.path().to_owned(), Tgid(7)).expect_err("no controller");
        assert!(
            refused.to_string().contains("no memory controller"),
            "{refused}"
        );
        let left = fs::read_dir(above.path()).expect("a directory").count();
        assert_eq!(left, 1, "cgroup.procs alone");
    }

    #[test]
    fn what_a_killed_recorder_left_is_removed_and_nothing_else() {
        let above = group("");
        let gone = i32::MAX.cast_unsigned();
        for name in [
            name(gone),
            name(std::process::id()),
            "memtrace-x".to_owned(),
        ] {
            fs::create_dir(above.path().join(name)).expect("a directory");
        }
        remove_left_ones(above.path());
        let left = fs::read_dir(above.path()).expect("a directory").count();
        assert_eq!(left, 3);
        assert!(!above.path().join(name(gone)).exists());
    }
}
