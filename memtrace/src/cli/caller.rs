//! For the person who called sudo: programs are started as that person, and files are theirs.

use crate::session::CommandUser;
use memtrace_host::{HostFacts, Person};
use std::fs::File;
use std::io;
use std::os::unix::fs::fchown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Behind sudo a program gets no right of root's, and finds the session of its user.
pub(super) fn as_caller(command: &mut Command) {
    let facts = HostFacts::read();
    let user = CommandUser::behind_sudo(&facts);
    let Some((uid, _)) = user.owner() else {
        return;
    };
    command.env_clear().envs(user.environment());
    let session = format!("/run/user/{uid}");
    if Path::new(&session).exists() {
        let bus = format!("unix:path={session}/bus");
        command.env("XDG_RUNTIME_DIR", &session);
        command.env("DBUS_SESSION_BUS_ADDRESS", bus);
    }
    let person = Person::behind(&facts, false);
    let become_person = move || person.as_ref().map_or(Ok(()), Person::become_in_child);
    // SAFETY: between fork and exec only system calls are made, and nothing is allocated.
    unsafe { command.pre_exec(become_person) };
}

/// Behind sudo a file that was just made is to belong to the person who called it.
///
/// # Errors
/// When it can't be given away.
pub(super) fn give_to_caller(file: &File) -> io::Result<()> {
    match CommandUser::behind_sudo(&HostFacts::read()).owner() {
        Some((uid, gid)) => fchown(file, Some(uid), Some(gid)),
        None => Ok(()),
    }
}
