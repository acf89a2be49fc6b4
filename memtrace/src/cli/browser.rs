//! A page in a browser: `--open`. Behind sudo the page belongs to the person who called it, and the
//! browser is started as that person.

use super::output::say;
use anyhow::Context;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A program that can't open the page says so within this time; one that can may run on.
const PATIENCE: Duration = Duration::from_secs(3);

/// The user behind sudo: id, group, name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Caller {
    uid: u32,
    gid: u32,
    name: OsString,
}

impl Caller {
    /// `None` where memtrace is not root behind sudo.
    fn behind_sudo(is_root: bool, env: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let number = |name: &str| env(name)?.to_str()?.parse::<u32>().ok();
        let uid = number("SUDO_UID").filter(|uid| is_root && *uid != 0)?;
        Some(Self {
            uid,
            gid: number("SUDO_GID")?,
            name: env("SUDO_USER")?,
        })
    }

    fn here() -> Option<Self> {
        let is_root = rustix::process::geteuid().is_root();
        Self::behind_sudo(is_root, |name| std::env::var_os(name))
    }
}

/// A new file for a page, which nobody but the person can read.
///
/// # Errors
/// When it can't be made.
pub(super) fn private_file() -> anyhow::Result<(File, PathBuf)> {
    let mut named = tempfile::Builder::new();
    let named = named.prefix("memtrace-").suffix(".html");
    let doing = "failed to make a temporary file for the page";
    let file = named.tempfile().context(doing)?;
    if let Some(caller) = Caller::here() {
        let owner = (Some(caller.uid), Some(caller.gid));
        std::os::unix::fs::fchown(file.as_file(), owner.0, owner.1).context(doing)?;
    }
    file.keep().context(doing)
}

/// Shows a page, and says where it is: the browser may be on another machine.
pub(super) fn open(page: &Path) {
    let page = page.canonicalize().unwrap_or_else(|_| page.to_path_buf());
    let own = std::env::var_os("BROWSER");
    let is_open = browsers(own).any(|browser| starts(&browser, &page));
    let place = page.display();
    match is_open {
        true => say(&format!("the report is {place}")),
        false => say(&format!(
            "no browser could be started (set BROWSER to name one); the report is {place}"
        )),
    }
}

/// What can open a page: those that BROWSER names first.
fn browsers(own: Option<OsString>) -> impl Iterator<Item = OsString> {
    let own: Vec<OsString> = own
        .iter()
        .flat_map(std::env::split_paths)
        .map(Into::into)
        .collect();
    let usual = match cfg!(target_os = "macos") {
        true => "open",
        false => "xdg-open",
    };
    let named = own.into_iter().filter(|name| !name.is_empty());
    named.chain([usual.into()])
}

fn starts(browser: &OsString, page: &Path) -> bool {
    let mut command = Command::new(browser);
    command.arg(page);
    for stream in [Command::stdin, Command::stdout, Command::stderr] {
        stream(&mut command, Stdio::null());
    }
    if let Some(caller) = Caller::here() {
        become_caller(&mut command, &caller);
    }
    let Ok(mut started) = command.spawn() else {
        return false;
    };
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        match started.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => sleep(Duration::from_millis(20)),
            Err(_) => return false,
        }
    }
    true
}

/// The browser gets no right of root's, and finds the session of its user.
fn become_caller(command: &mut Command, caller: &Caller) {
    use std::os::unix::process::CommandExt;
    let session = format!("/run/user/{}", caller.uid);
    command
        .uid(caller.uid)
        .gid(caller.gid)
        .env("USER", &caller.name)
        .env("LOGNAME", &caller.name)
        .env_remove("HOME");
    if let Some(home) = home_of(caller.uid) {
        command.env("HOME", home);
    }
    if Path::new(&session).exists() {
        let bus = format!("unix:path={session}/bus");
        command.env("XDG_RUNTIME_DIR", &session);
        command.env("DBUS_SESSION_BUS_ADDRESS", bus);
    }
}

/// As /etc/passwd has it; users of a directory service have none there.
fn home_of(uid: u32) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_own = fields.nth(2)?.parse() == Ok(uid);
        fields.nth(2).filter(|_| is_own).map(str::to_owned)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_is_known_only_behind_sudo() {
        let env = |name: &str| match name {
            "SUDO_UID" => Some("1000".into()),
            "SUDO_GID" => Some("100".into()),
            "SUDO_USER" => Some("ada".into()),
            _ => None,
        };
        let ada = Caller {
            uid: 1_000,
            gid: 100,
            name: "ada".into(),
        };
        assert_eq!(Caller::behind_sudo(true, env), Some(ada));
        assert_eq!(Caller::behind_sudo(false, env), None);
        let root = |name: &str| Some(if name == "SUDO_USER" { "root" } else { "0" }.into());
        assert_eq!(Caller::behind_sudo(true, root), None);
        assert_eq!(Caller::behind_sudo(true, |_| None), None);
    }

    #[test]
    fn what_browser_names_comes_first() {
        let named = |own: Option<&str>| -> Vec<String> {
            let browsers = browsers(own.map(OsString::from));
            browsers.map(|name| name.into_string().unwrap()).collect()
        };
        let usual = if cfg!(target_os = "macos") {
            "open"
        } else {
            "xdg-open"
        };
        assert_eq!(named(None), [usual]);
        assert_eq!(named(Some("")), [usual]);
        assert_eq!(named(Some("firefox:w3m")), ["firefox", "w3m", usual]);
    }
}
