//! A page in a browser: `--open`. Behind sudo the page belongs to the person who called it, and the
//! browser is started as that person.

use super::caller::as_caller;
use super::output::say;
use crate::host::HostFacts;
use crate::session::CommandUser;
use anyhow::Context;
use std::ffi::OsString;
use std::os::unix::fs::fchown;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;

/// A program that can't open the page says so within this time; one that can may run on.
const PATIENCE: Duration = Duration::from_secs(3);

/// A new file for a page, which nobody but the person can read; gone again where it is not kept.
///
/// # Errors
/// When it can't be made.
pub(super) fn private_file() -> anyhow::Result<NamedTempFile> {
    let mut named = tempfile::Builder::new();
    let named = named.prefix("memtrace-").suffix(".html");
    let doing = "failed to make a temporary file for the page";
    let file = named.tempfile().context(doing)?;
    if let Some((uid, gid)) = CommandUser::behind_sudo(&HostFacts::read()).owner() {
        fchown(file.as_file(), Some(uid), Some(gid)).context(doing)?;
    }
    Ok(file)
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
    as_caller(&mut command);
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

#[cfg(test)]
mod tests {
    use super::*;

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
