//! As whom the command runs: under sudo as the user who called it, because `vllm` in that
//! user's virtual environment is not root's, and files it writes should not be root's.

use crate::host::{HostFacts, SudoUser};
use std::ffi::{CString, OsStr, OsString};
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
}

impl CommandUser {
    /// Whoever runs memtrace.
    pub fn same() -> Self {
        Self {
            sudo: None,
            home: None,
            caller_path: None,
        }
    }

    /// The user who called sudo, if memtrace runs as root under it.
    pub fn behind_sudo(facts: &HostFacts) -> Self {
        match &facts.sudo {
            Some(sudo) if facts.euid == Some(0) && sudo.uid != 0 => Self {
                home: home_of(sudo.uid),
                caller_path: caller_path(sudo.uid),
                sudo: Some(sudo.clone()),
            },
            _ => Self::same(),
        }
    }

    /// User and group whose files the recording should be, where that is not us.
    pub fn owner(&self) -> Option<(u32, u32)> {
        self.sudo.as_ref().map(|sudo| (sudo.uid, sudo.gid))
    }

    /// Directories to look for the command: ours, then those of the shell behind sudo.
    pub(super) fn search_path(&self) -> impl Iterator<Item = PathBuf> {
        let own = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
        let callers = self.caller_path.clone().unwrap_or_default();
        let split = |path: &OsStr| std::env::split_paths(path).collect::<Vec<_>>();
        split(&own).into_iter().chain(split(&callers))
    }

    /// The command's environment.
    pub(super) fn environment(&self) -> impl Iterator<Item = (OsString, OsString)> + '_ {
        let replaced = |key: &OsStr| -> Option<OsString> {
            let sudo = self.sudo.as_ref()?;
            match key.to_str()? {
                "HOME" => self.home.clone(),
                "USER" | "LOGNAME" => sudo.name.clone().map(OsString::from),
                "PATH" => self.caller_path.clone(),
                _ => None,
            }
        };
        std::env::vars_os().map(move |(key, value)| {
            let value = replaced(&key).unwrap_or(value);
            (key, value)
        })
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

fn home_of(uid: u32) -> Option<OsString> {
    let passwd = std::fs::read_to_string("/etc/passwd").ok()?;
    let home = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_user = fields.nth(2)? == uid.to_string();
        is_user.then(|| fields.nth(2)).flatten()
    })?;
    Some(home.into())
}

/// The PATH of the nearest ancestor that runs as the user: the shell that called sudo.
fn caller_path(uid: u32) -> Option<OsString> {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::ffi::OsStringExt;
        use std::os::unix::fs::MetadataExt;
        let mut tgid = std::process::id();
        while tgid > 1 {
            let status = std::fs::read_to_string(format!("/proc/{tgid}/status")).ok()?;
            tgid = status
                .lines()
                .find_map(|line| line.strip_prefix("PPid:"))?
                .trim()
                .parse()
                .ok()?;
            let is_users = std::fs::metadata(format!("/proc/{tgid}")).ok()?.uid() == uid;
            if !is_users {
                continue;
            }
            let environment = std::fs::read(format!("/proc/{tgid}/environ")).ok()?;
            return environment
                .split(|byte| *byte == 0)
                .find_map(|entry| entry.strip_prefix(b"PATH="))
                .map(|path| OsString::from_vec(path.to_vec()));
        }
        None
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = uid;
        None
    }
}
