//! As whom the command runs: under sudo as the user who called it, because `vllm` in that
//! user's virtual environment is not root's, and files it writes should not be root's.

use memtrace_host::{HostFacts, SudoUser};
use std::ffi::{CStr, CString, OsStr, OsString, c_char};
use std::io;
use std::path::PathBuf;

/// The user and the environment of the command.
#[derive(Clone, Debug)]
pub struct CommandUser {
    /// `None`: whoever runs memtrace.
    sudo: Option<SudoUser>,
    home: Option<OsString>,
    /// The PATH of the shell that called sudo, which replaces it with its own.
    caller_path: Option<OsString>,
    /// Whether glibc is to give its memory names.
    has_named_maps: bool,
}

/// Where glibc looks for its tunables, and the one that has it name its memory (2.38).
const TUNABLES: &str = "GLIBC_TUNABLES";
const NAMED_MAPS: &str = "glibc.mem.decorate_maps=1";

impl CommandUser {
    /// Whoever runs memtrace.
    pub fn same() -> Self {
        Self {
            sudo: None,
            home: None,
            caller_path: None,
            has_named_maps: false,
        }
    }

    #[cfg(test)]
    pub(super) fn with_path(directory: &std::path::Path) -> Self {
        Self {
            caller_path: Some(directory.into()),
            ..Self::same()
        }
    }

    /// The user who called sudo, if memtrace runs as root under it.
    pub fn behind_sudo(facts: &HostFacts) -> Self {
        match &facts.sudo {
            Some(sudo) if facts.euid == Some(0) && sudo.uid != 0 => Self {
                home: home_of(sudo.uid),
                caller_path: caller_path(sudo.uid),
                sudo: Some(sudo.clone()),
                has_named_maps: false,
            },
            _ => Self::same(),
        }
    }

    /// The same, whose command has glibc give its memory names.
    pub fn with_named_maps(self) -> Self {
        Self {
            has_named_maps: true,
            ..self
        }
    }

    /// User and group whose files the recording should be, where that is not us.
    pub fn owner(&self) -> Option<(u32, u32)> {
        self.sudo.as_ref().map(|sudo| (sudo.uid, sudo.gid))
    }

    /// Directories to look for the command in. Behind sudo those of the calling shell come
    /// first: the command gets that PATH too, and `python` should be one and the same.
    pub(super) fn search_path(&self) -> impl Iterator<Item = PathBuf> {
        let own = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
        let paths = self.caller_path.iter().cloned().chain([own]);
        let split = |path: OsString| std::env::split_paths(&path).collect::<Vec<_>>();
        // An empty entry means the current directory, where anybody may have put anything.
        paths
            .flat_map(split)
            .filter(|directory| !directory.as_os_str().is_empty())
    }

    /// The command's environment.
    pub fn environment(&self) -> impl Iterator<Item = (OsString, OsString)> + '_ {
        let own = std::env::vars_os().filter_map(|(key, value)| {
            let value = self.replaced(&key, value)?;
            Some((key, value))
        });
        let is_named = |key: &OsString| self.has_named_maps && key == TUNABLES;
        let tunables = self
            .has_named_maps
            .then(|| (TUNABLES.into(), named_maps(std::env::var_os(TUNABLES))));
        own.filter(move |(key, _)| !is_named(key)).chain(tunables)
    }

    /// What the user has instead of root's value of a variable; `None` removes it.
    fn replaced(&self, key: &OsStr, value: OsString) -> Option<OsString> {
        let Some(sudo) = &self.sudo else {
            return Some(value);
        };
        match key.to_str() {
            // Better none than root's: the command would try to write there.
            Some("HOME") => self.home.clone(),
            Some("USER" | "LOGNAME") => sudo.name.clone().map(OsString::from),
            Some("PATH") => Some(self.caller_path.clone().unwrap_or(value)),
            Some("MAIL") => None,
            _ => Some(value),
        }
    }

    /// In the forked child: becomes that user, with the user's groups.
    pub(super) fn become_in_child(&self) -> io::Result<()> {
        let Some(sudo) = &self.sudo else {
            return Ok(());
        };
        let name = CString::new(sudo.name.clone().unwrap_or_default()).unwrap_or_default();
        let check = |result: i32| {
            if result == 0 {
                Ok(())
            } else {
                Err(io::Error::last_os_error())
            }
        };
        // SAFETY: the name is NUL-terminated; groups first, while we still may.
        unsafe {
            if name.is_empty() {
                check(libc::setgroups(1, &raw const sudo.gid))?;
            } else {
                #[cfg(target_os = "linux")]
                check(libc::initgroups(name.as_ptr(), sudo.gid))?;
                #[cfg(not(target_os = "linux"))]
                check(libc::initgroups(name.as_ptr(), sudo.gid.cast_signed()))?;
            }
            check(libc::setgid(sudo.gid))?;
            check(libc::setuid(sudo.uid))
        }
    }
}

/// The user's home directory, from wherever this machine keeps its users (files, LDAP).
fn home_of(uid: u32) -> Option<OsString> {
    use std::os::unix::ffi::OsStrExt;
    let mut buffer: Vec<c_char> = vec![0; 16 * 1024];
    // SAFETY: a passwd is pointers and integers, so zeroed is valid.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found: *mut libc::passwd = std::ptr::null_mut();
    // SAFETY: every pointer is valid for the call, and the buffer's length is reported.
    let answer = unsafe {
        libc::getpwuid_r(
            uid,
            &raw mut entry,
            buffer.as_mut_ptr(),
            buffer.len(),
            &raw mut found,
        )
    };
    if answer != 0 || found.is_null() || entry.pw_dir.is_null() {
        return None;
    }
    // SAFETY: getpwuid_r left a NUL-terminated string in `buffer`, which still lives.
    let home = unsafe { CStr::from_ptr(entry.pw_dir) };
    Some(OsStr::from_bytes(home.to_bytes()).to_owned())
}

/// The tunables that there were, and the one for names.
fn named_maps(before: Option<OsString>) -> OsString {
    match before.filter(|before| !before.is_empty()) {
        None => NAMED_MAPS.into(),
        Some(mut tunables) => {
            tunables.push(":");
            tunables.push(NAMED_MAPS);
            tunables
        }
    }
}

/// The PATH of the shell that called sudo. A process's environment in /proc is that of its
/// exec, so the shell's own shows no virtual environment that was activated since; sudo,
/// which the shell started, was given the live one.
fn caller_path(uid: u32) -> Option<OsString> {
    #[cfg(target_os = "linux")]
    {
        let mut below = procfs::process::Process::myself().ok()?;
        loop {
            // Above the first process there is none.
            let parent = procfs::process::Process::new(below.stat().ok()?.ppid).ok()?;
            if parent.uid().ok()? == uid {
                return below.environ().ok()?.remove(OsStr::new("PATH"));
            }
            below = parent;
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = uid;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn behind_sudo() -> CommandUser {
        CommandUser {
            sudo: Some(SudoUser {
                uid: 1000,
                gid: 100,
                name: Some("ada".to_owned()),
            }),
            home: Some("/home/ada".into()),
            caller_path: Some("/home/ada/venv/bin::/usr/bin".into()),
            has_named_maps: false,
        }
    }

    fn replaced(user: &CommandUser, key: &str) -> Option<OsString> {
        user.replaced(OsStr::new(key), "root's".into())
    }

    #[test]
    fn the_tunable_for_names_is_added_to_those_that_there_are() {
        assert_eq!(named_maps(None), NAMED_MAPS);
        assert_eq!(named_maps(Some("".into())), NAMED_MAPS);
        let both = named_maps(Some("glibc.malloc.check=1".into()));
        assert_eq!(both, "glibc.malloc.check=1:glibc.mem.decorate_maps=1");
        let tunables = |user: CommandUser| {
            let all: Vec<_> = user
                .environment()
                .filter(|(key, _)| key == TUNABLES)
                .collect();
            all
        };
        let named = tunables(CommandUser::same().with_named_maps());
        assert_eq!(named.len(), 1, "{named:?}");
        assert!(named[0].1.to_string_lossy().ends_with(NAMED_MAPS));
    }

    #[test]
    fn behind_sudo_the_environment_is_the_callers() {
        let user = behind_sudo();
        assert_eq!(replaced(&user, "HOME"), Some("/home/ada".into()));
        assert_eq!(replaced(&user, "USER"), Some("ada".into()));
        assert_eq!(replaced(&user, "LOGNAME"), Some("ada".into()));
        assert_eq!(replaced(&user, "PATH"), user.caller_path);
        assert_eq!(replaced(&user, "MAIL"), None);
        assert_eq!(
            replaced(&user, "CUDA_VISIBLE_DEVICES"),
            Some("root's".into())
        );
        assert_eq!(user.owner(), Some((1000, 100)));
    }

    #[test]
    fn what_is_unknown_of_the_caller_is_never_roots() {
        let user = CommandUser {
            home: None,
            caller_path: None,
            ..behind_sudo()
        };
        assert_eq!(replaced(&user, "HOME"), None);
        assert_eq!(
            replaced(&user, "PATH"),
            Some("root's".into()),
            "some path is needed"
        );
    }

    #[test]
    fn without_sudo_nothing_is_replaced() {
        let user = CommandUser::same();
        for key in ["HOME", "USER", "PATH", "MAIL"] {
            assert_eq!(replaced(&user, key), Some("root's".into()));
        }
        assert_eq!(user.owner(), None);
    }

    #[test]
    fn the_callers_directories_come_first_and_never_the_current_one() {
        let paths: Vec<PathBuf> = behind_sudo().search_path().collect();
        assert_eq!(paths[0], PathBuf::from("/home/ada/venv/bin"));
        assert_eq!(paths[1], PathBuf::from("/usr/bin"));
        assert!(paths.iter().all(|path| !path.as_os_str().is_empty()));
    }
}
