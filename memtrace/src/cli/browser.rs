//! A page in a browser: `--open`. Behind sudo the page belongs to the person who called it, and the
//! browser is started as that person.

use super::caller::{as_caller, give_to_caller};
use super::output::say;
use anyhow::Context;
use std::ffi::{OsStr, OsString};
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
    give_to_caller(file.as_file()).context(doing)?;
    Ok(file)
}

/// Shows a page, and says where it is: the browser may be on another machine.
pub(super) fn open(page: &Path) {
    let page = page.canonicalize().unwrap_or_else(|_| page.to_path_buf());
    let own = std::env::var_os("BROWSER");
    let is_open = browsers(own).any(|browser| starts(command(&browser, &page)));
    let place = page.display();
    match is_open {
        true => say(&format!("the report is {place}")),
        false => say(&format!(
            "no browser could be started (set BROWSER to name one); the report is {place}"
        )),
    }
}

/// What can open a page: the commands that BROWSER names first.
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

/// The command line of a browser with a page, as others read BROWSER: words, of which `%s` stands
/// for the page; without it the page comes last.
fn command(browser: &OsStr, page: &Path) -> Command {
    let words = browser.to_str().map(str::split_whitespace);
    let words = words.map(|words| words.map(OsStr::new).collect());
    let words: Vec<&OsStr> = words.unwrap_or_else(|| vec![browser]);
    let has_place = |word: &OsStr| word.to_str().is_some_and(|word| word.contains("%s"));
    let mut filled = words.iter().map(|word| match word.to_str() {
        Some(text) if has_place(word) => text.replace("%s", &page.to_string_lossy()).into(),
        _ => word.to_os_string(),
    });
    let mut command = Command::new(filled.next().unwrap_or_default());
    command.args(filled);
    if !words.iter().any(|word| has_place(word)) {
        command.arg(page);
    }
    command
}

fn starts(mut command: Command) -> bool {
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

    #[test]
    fn a_browser_gets_the_page_where_its_words_want_it_and_else_last() {
        let words = |browser: &str| -> Vec<String> {
            let command = command(OsStr::new(browser), Path::new("/tmp/a b.html"));
            let words = [command.get_program()]
                .into_iter()
                .chain(command.get_args());
            words
                .map(|word| word.to_str().unwrap().to_owned())
                .collect()
        };
        assert_eq!(words("firefox"), ["firefox", "/tmp/a b.html"]);
        assert_eq!(
            words("firefox --new-window  -P memtrace"),
            ["firefox", "--new-window", "-P", "memtrace", "/tmp/a b.html"]
        );
        assert_eq!(
            words("lynx file://%s -dump"),
            ["lynx", "file:///tmp/a b.html", "-dump"]
        );
    }
}
