//! As whom a path is opened that a person named.
//!
//! memtrace runs with rights that its caller may not have: root's behind sudo, or capabilities
//! of its file. They are for observing processes. A log, a file of rules or a directory that the
//! caller names is opened with the caller's own rights: what they may not read they must not
//! read through memtrace. Links need no care then: they lead where that person may go.

use super::HostFacts;
use std::fmt;
use std::io;

/// The one who started memtrace, where memtrace has more rights than they do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    name: Option<String>,
    is_behind_sudo: bool,
}

impl Person {
    /// `None` where memtrace may do what its caller may and no more. `keeps_root` is the
    /// caller's word that root is meant; it means nothing to capabilities of a file.
    pub fn behind(facts: &HostFacts, keeps_root: bool) -> Option<Self> {
        match &facts.sudo {
            Some(_) if facts.euid == Some(0) && keeps_root => None,
            Some(sudo) if facts.euid == Some(0) && sudo.uid != 0 => Some(Self {
                uid: sudo.uid,
                gid: sudo.gid,
                groups: groups_of(sudo.name.as_deref(), sudo.gid),
                name: sudo.name.clone(),
                is_behind_sudo: true,
            }),
            _ => Self::with_capabilities(facts),
        }
    }

    #[cfg(target_os = "linux")]
    fn with_capabilities(facts: &HostFacts) -> Option<Self> {
        use rustix::process::{getgid, getgroups, getuid};
        let uid = getuid();
        let is_more = facts.capabilities.unwrap_or_default().names().count() > 0;
        if uid.is_root() || !is_more {
            return None;
        }
        let groups = getgroups().unwrap_or_default();
        Some(Self {
            uid: uid.as_raw(),
            gid: getgid().as_raw(),
            groups: groups.into_iter().map(rustix::fs::Gid::as_raw).collect(),
            name: None,
            is_behind_sudo: false,
        })
    }

    #[cfg(not(target_os = "linux"))]
    fn with_capabilities(_: &HostFacts) -> Option<Self> {
        None
    }

    /// Whoever has these ids, with no group beside: for whom root does something.
    pub fn with_ids(uid: u32, gid: u32) -> Self {
        Self {
            uid,
            gid,
            groups: vec![gid],
            name: None,
            is_behind_sudo: false,
        }
    }

    /// The ids of user and group.
    pub fn ids(&self) -> (u32, u32) {
        (self.uid, self.gid)
    }

    /// Does that with the person's rights: user, groups, and no capability. Of this thread
    /// alone; what is opened stays open afterwards. Elsewhere than on Linux a thread has no
    /// rights of its own, and it is done with those of the process.
    ///
    /// # Errors
    /// When the system refuses to change the rights; then nothing was done.
    pub fn act<T>(&self, action: impl FnOnce() -> T) -> io::Result<T> {
        #[cfg(target_os = "linux")]
        let _back = thread::Rights::take(self)?;
        Ok(action())
    }

    /// In a forked child: becomes that person, for good.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn become_in_child(&self) -> io::Result<()> {
        let check = |result: libc::c_int| match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        // SAFETY: plain numbers, and a list with its length. Groups first, while we still may;
        // who has capabilities of a file is that person already.
        unsafe {
            if libc::getuid() != self.uid {
                check(libc::setgroups(
                    self.groups.len() as _,
                    self.groups.as_ptr(),
                ))?;
                check(libc::setgid(self.gid))?;
                check(libc::setuid(self.uid))?;
            }
        }
        Ok(())
    }

    /// Gives the person's rights to this thread for as long as it runs.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn become_for_good(&self) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        std::mem::forget(thread::Rights::take(self)?);
        Ok(())
    }
}

/// Does that as the person, where there is one, and else as it is.
///
/// # Errors
/// As [`Person::act`], and what the action itself answers.
pub fn as_person<T>(
    person: Option<&Person>,
    action: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    match person {
        Some(person) => person.act(action)?,
        None => action(),
    }
}

/// Whose rights were not enough, and the way out.
impl fmt::Display for Person {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "opened as {name}")?,
            None => write!(f, "opened as user {}", self.uid)?,
        }
        match self.is_behind_sudo {
            true => f.write_str(", who called sudo; --as-root opens it as root"),
            false => f.write_str(", not with the capabilities of memtrace"),
        }
    }
}

/// Gives up every capability of this process, which runs as a user that is not root: for
/// commands that need none. Its file may have them for `record`.
pub fn give_up_capabilities() {
    #[cfg(target_os = "linux")]
    {
        if !rustix::process::geteuid().is_root()
            && let Err(error) = give_up_all()
        {
            tracing::warn!("capabilities stay: {error}");
        }
    }
}

/// In a forked child: gives up every capability, also those that exec would give to root or by the
/// program's file.
///
/// # Errors
/// When the system refuses.
pub fn give_up_rights_in_child() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        rustix::thread::set_no_new_privs(true)?;
        give_up_all()?;
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn give_up_all() -> rustix::io::Result<()> {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    let none = CapabilitySet::empty();
    let sets = CapabilitySets {
        effective: none,
        permitted: none,
        inheritable: none,
    };
    set_capabilities(None, sets)
}

/// The groups of a user, from wherever this machine keeps them.
fn groups_of(name: Option<&str>, gid: u32) -> Vec<u32> {
    #[cfg(target_os = "linux")]
    if let Some(name) = name.and_then(|name| std::ffi::CString::new(name).ok()) {
        let mut groups: Vec<libc::gid_t> = vec![0; 256];
        while let Ok(mut count) = libc::c_int::try_from(groups.len()) {
            // SAFETY: a name that ends in NUL, and room for `count` groups.
            let answer = unsafe {
                libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count)
            };
            let needed = usize::try_from(count).unwrap_or(0);
            if answer >= 0 {
                groups.truncate(needed);
                return groups;
            }
            if needed <= groups.len() {
                break;
            }
            groups.resize(needed, 0);
        }
    }
    let _ = name;
    vec![gid]
}

#[cfg(target_os = "linux")]
mod thread {
    //! The rights of one thread. The C library sets those of all threads at once; the kernel
    //! keeps them for each, so this uses its own calls.

    use super::Person;
    use rustix::fs::Gid;
    use rustix::process::getgroups;
    use rustix::thread::{
        CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_thread_groups,
    };
    use std::io;

    /// What the thread had before; given back when this is dropped.
    pub(super) struct Rights {
        uid: u32,
        gid: u32,
        groups: Vec<Gid>,
        capabilities: CapabilitySets,
    }

    impl Rights {
        pub(super) fn take(person: &Person) -> io::Result<Self> {
            let before = Self {
                uid: file_uid(None),
                gid: file_gid(None),
                groups: getgroups()?,
                capabilities: capabilities(None)?,
            };
            // From here on dropping it mends what a refusal leaves half done.
            let groups: Vec<Gid> = person.groups.iter().copied().map(Gid::from_raw).collect();
            before.set(person.uid, person.gid, &groups)?;
            // Root that becomes a user here loses those for files by that; not the others, and
            // a user with capabilities of the program's file loses none.
            set_capabilities(
                None,
                CapabilitySets {
                    effective: CapabilitySet::empty(),
                    ..before.capabilities
                },
            )?;
            Ok(before)
        }

        fn set(&self, uid: u32, gid: u32, groups: &[Gid]) -> io::Result<()> {
            // Without CAP_SETGID only what differs may be asked for.
            if getgroups()? != groups {
                set_thread_groups(groups)?;
            }
            let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
            file_gid(Some(gid));
            if file_gid(None) != gid {
                return Err(refused());
            }
            file_uid(Some(uid));
            if file_uid(None) != uid {
                return Err(refused());
            }
            Ok(())
        }
    }

    impl Drop for Rights {
        fn drop(&mut self) {
            // Changing the user takes capabilities, and gives and takes some itself.
            let is_back = set_capabilities(None, self.capabilities).is_ok()
                && self.set(self.uid, self.gid, &self.groups).is_ok()
                && set_capabilities(None, self.capabilities).is_ok();
            if !is_back {
                // Nothing that this thread does from here on would be done as believed.
                std::process::abort();
            }
        }
    }

    /// setfsuid(2), of this thread: sets it, and gives what it was. It does not tell of a
    /// refusal. No user has the id -1, which changes nothing.
    fn file_uid(uid: Option<u32>) -> u32 {
        // SAFETY: a plain number.
        unsafe { libc::setfsuid(uid.unwrap_or(u32::MAX)) }.cast_unsigned()
    }

    fn file_gid(gid: Option<u32>) -> u32 {
        // SAFETY: a plain number.
        unsafe { libc::setfsgid(gid.unwrap_or(u32::MAX)) }.cast_unsigned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SudoUser;

    fn facts(euid: u32, sudo: Option<u32>) -> HostFacts {
        HostFacts {
            euid: Some(euid),
            sudo: sudo.map(|uid| SudoUser {
                uid,
                gid: uid,
                name: None,
            }),
            ..HostFacts::unknown()
        }
    }

    #[test]
    fn behind_sudo_the_person_is_the_caller_unless_root_is_meant() {
        let person = Person::behind(&facts(0, Some(1000)), false).expect("the caller");
        assert_eq!(
            (person.uid, person.gid, person.groups.as_slice()),
            (1000, 1000, &[1000][..])
        );
        assert!(person.to_string().contains("--as-root"), "{person}");
        assert_eq!(Person::behind(&facts(0, Some(1000)), true), None);
    }

    #[cfg(target_os = "linux")]
    mod needs_root {
        use super::*;
        use std::os::unix::fs::{MetadataExt, PermissionsExt};

        #[test]
        fn what_the_person_may_not_read_is_not_read_and_other_threads_keep_their_rights() {
            let dir = tempfile::tempdir().expect("a directory");
            let everybody = std::fs::Permissions::from_mode(0o777);
            std::fs::set_permissions(dir.path(), everybody).expect("open to all");
            let secret = dir.path().join("secret");
            std::fs::write(&secret, "x").expect("a file");
            std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600))
                .expect("root's alone");
            let link = dir.path().join("link");
            std::os::unix::fs::symlink(&secret, &link).expect("a link");
            let person = Person::behind(&facts(0, Some(65_534)), false).expect("nobody");
            let made = dir.path().join("made");
            let (by_name, by_link, elsewhere) = person
                .act(|| {
                    std::fs::write(&made, "").expect("it may write here");
                    let elsewhere = std::thread::scope(|scope| {
                        // A thread has the rights of the one that started it.
                        scope.spawn(|| std::fs::read(&secret).is_ok()).join()
                    });
                    (std::fs::read(&secret), std::fs::read(&link), elsewhere)
                })
                .expect("root may");
            for refused in [by_name, by_link] {
                let kind = refused.expect_err("refused").kind();
                assert_eq!(kind, io::ErrorKind::PermissionDenied);
            }
            assert!(matches!(elsewhere, Ok(false)));
            assert_eq!(std::fs::metadata(&made).expect("it is there").uid(), 65_534);
            assert!(std::fs::read(&secret).is_ok(), "and root again afterwards");
        }
    }
}
