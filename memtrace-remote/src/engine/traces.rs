//! The traces that a profiler wrote: what is in its directories before and after, and what it means
//! when nothing is.

use super::profiler_config::ProfilerConfig;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tokio::time::{Instant, sleep};

/// A directory of traces holds a few files for each worker; of more, the rest is not looked at.
const FILES_MAX: usize = 10_000;
/// SGLang makes a folder for each window.
const DEPTH_MAX: usize = 2;
/// Between two looks.
const PERIOD: Duration = Duration::from_millis(250);
/// A file that did not grow for so long is whole.
const STILL: Duration = Duration::from_secs(1);

/// What tells a file from an older one of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) length: u64,
    pub(super) modified: Option<SystemTime>,
}

/// The files in some directories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listing(BTreeMap<PathBuf, State>);

impl Listing {
    /// What is there now. A directory that is missing has nothing.
    pub(super) fn of(dirs: &[PathBuf]) -> Self {
        let mut listing = Self::default();
        for dir in dirs {
            listing.add(dir, 1);
        }
        listing
    }

    fn add(&mut self, dir: &Path, depth: usize) {
        let Ok(entries) = std::fs::read_dir(dir) else {
            return;
        };
        for entry in entries.filter_map(Result::ok) {
            if self.0.len() >= FILES_MAX {
                return;
            }
            // Not of what a link leads to.
            let Ok(found) = entry.metadata() else {
                continue;
            };
            if found.is_dir() && depth < DEPTH_MAX {
                self.add(&entry.path(), depth + 1);
            } else if found.is_file() {
                let state = State {
                    length: found.len(),
                    modified: found.modified().ok(),
                };
                self.0.insert(entry.path(), state);
            }
        }
    }

    /// What is there and was not, or was another.
    pub(super) fn since(&self, before: &Self) -> Self {
        let is_new = |(path, state): &(&PathBuf, &State)| before.0.get(*path) != Some(*state);
        let new = self.0.iter().filter(is_new);
        Self(new.map(|(path, state)| (path.clone(), *state)).collect())
    }

    pub(super) fn files(&self) -> impl Iterator<Item = (&Path, State)> {
        self.0.iter().map(|(path, state)| (path.as_path(), *state))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// For a person, before what happened to them.
    pub(super) fn in_words(&self) -> String {
        match self.len() {
            1 => "1 file was".to_owned(),
            count => format!("{count} files were"),
        }
    }

    /// When the newest of them was last written.
    fn newest(&self) -> Option<SystemTime> {
        self.0.values().filter_map(|state| state.modified).max()
    }

    fn traces(&self) -> impl Iterator<Item = &str> {
        let names = self.0.keys().filter_map(|path| path.file_name()?.to_str());
        names.filter(|name| name.contains(".trace.json"))
    }

    /// Whether there are traces, and all are of the front end, as vLLM names them.
    fn is_only_frontend(&self) -> bool {
        let mut traces = self.traces().peekable();
        traces.peek().is_some() && traces.all(|name| name.contains("async_llm"))
    }
}

/// Waits until something new is there and no file grows any more, or for `patience`.
pub(super) async fn settled(dirs: &[PathBuf], before: &Listing, patience: Duration) -> Listing {
    let begin = Instant::now();
    let mut last = Listing::of(dirs);
    let mut still_since = begin;
    loop {
        let is_still = still_since.elapsed() >= STILL;
        if is_still && last != *before || begin.elapsed() >= patience {
            return last;
        }
        sleep(PERIOD).await;
        let now = Listing::of(dirs);
        if now != last {
            still_since = Instant::now();
            last = now;
        }
    }
}

/// What the directories say of a window that was closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Traces are there.
    Written,
    /// They were there before the profiler was stopped.
    EndedByItself { max_iterations: u64 },
    /// Of the front end, and none of a worker.
    OnlyFrontend,
    /// Nothing is there.
    Nothing,
}

/// The directories at three instants.
pub(super) struct Looks<'a> {
    /// Before the window; `None` where somebody else opened it.
    pub(super) before: Option<&'a Listing>,
    /// Before it was closed.
    pub(super) at_stop: &'a Listing,
    /// When all was written.
    pub(super) after: &'a Listing,
}

impl Looks<'_> {
    /// The files of the window, as far as they can be distinguished from older ones.
    pub(super) fn of_window(&self) -> Listing {
        self.after.since(self.before.unwrap_or(self.at_stop))
    }

    /// What they say, with what is known of the profilers.
    pub(super) fn verdict(&self, configs: &[ProfilerConfig]) -> Verdict {
        let max_iterations = configs.iter().map(|config| config.max_iterations).max();
        let max_iterations = max_iterations.filter(|most| *most > 0);
        let window = self.of_window();
        let at_stop = self.after.since(self.at_stop);
        let earlier = match self.before {
            Some(before) => self.at_stop.since(before),
            None => self.at_stop.clone(),
        };
        // Front ends count no iterations, and write at the stop.
        let is_idle = at_stop.is_empty() || at_stop.is_only_frontend();
        match max_iterations {
            Some(max_iterations) if is_idle && !earlier.is_empty() => {
                Verdict::EndedByItself { max_iterations }
            }
            _ if window.is_only_frontend() => Verdict::OnlyFrontend,
            _ if window.is_empty() => Verdict::Nothing,
            _ => Verdict::Written,
        }
    }

    /// For a person: what it means.
    pub(super) fn in_words(&self, dirs: &[PathBuf], configs: &[ProfilerConfig]) -> String {
        let dirs: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
        let dirs = dirs.join(", ");
        let files = self.of_window().in_words();
        match self.verdict(configs) {
            Verdict::Written => {
                let front = match configs.iter().any(|config| config.ignore_frontend) {
                    true => "; none by front ends, as ignore_frontend asks",
                    false => "",
                };
                format!("{files} written to {dirs}{front}")
            }
            Verdict::EndedByItself { max_iterations } => {
                let newest = self.at_stop.newest();
                let age = newest.and_then(|newest| newest.elapsed().ok());
                let age = age.map_or(String::new(), |age| {
                    format!(", the last {} s ago", age.as_secs())
                });
                let ended =
                    format!("the profiler ended by itself, after max_iterations={max_iterations}");
                match self.before {
                    Some(_) => {
                        format!("{ended}: its files were in {dirs} before it was stopped{age}")
                    }
                    None => format!(
                        "no worker wrote at this stop, and {dirs} has files from before it{age}: {ended}, \
                         or no window was open"
                    ),
                }
            }
            Verdict::OnlyFrontend => format!(
                "only front ends wrote traces to {dirs}, and no worker: the workers ran no iteration \
                 within the window, or could not write there. ignore_frontend in --profiler-config \
                 leaves front ends out"
            ),
            Verdict::Nothing => {
                let delay = configs.iter().map(|config| config.delay_iterations).max();
                let delay = delay
                    .filter(|delay| *delay > 0)
                    .map_or(String::new(), |delay| {
                        format!("the profiler first lets delay_iterations={delay} pass; ")
                    });
                format!(
                    "the servers answered 200, and nothing was written to {dirs}: {delay}a window \
                     without requests has no iterations (--requests sends some); or they write to \
                     another machine's or container's directory of that name"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(names: &[&str]) -> Listing {
        let state = State {
            length: 1,
            modified: Some(SystemTime::UNIX_EPOCH),
        };
        Listing(
            names
                .iter()
                .map(|name| (PathBuf::from(name), state))
                .collect(),
        )
    }

    fn reported(
        before: Option<&[&str]>,
        at_stop: &[&str],
        after: &[&str],
        config: &ProfilerConfig,
    ) -> (Verdict, String) {
        let before = before.map(listing);
        let (at_stop, after) = (listing(at_stop), listing(after));
        let looks = Looks {
            before: before.as_ref(),
            at_stop: &at_stop,
            after: &after,
        };
        let configs = [config.clone()];
        let words = looks.in_words(&[PathBuf::from("/t")], &configs);
        (looks.verdict(&configs), words)
    }

    const RANK: &str = "/t/rank0.1.pt.trace.json.gz";
    const FRONT: &str = "/t/host_7.async_llm.1.pt.trace.json.gz";

    #[test]
    fn each_end_of_a_window_has_its_own_words() {
        let plain = ProfilerConfig::default();
        let (verdict, words) = reported(Some(&[]), &[], &[RANK, FRONT], &plain);
        assert_eq!(verdict, Verdict::Written);
        assert_eq!(words, "2 files were written to /t");
        let (verdict, words) = reported(Some(&[]), &[], &[FRONT], &plain);
        assert_eq!(verdict, Verdict::OnlyFrontend);
        assert!(words.contains("no worker"), "{words}");
        let (verdict, words) = reported(None, &["/t/old"], &["/t/old"], &plain);
        assert_eq!(verdict, Verdict::Nothing);
        assert!(words.contains("answered 200, and nothing"), "{words}");
        let quiet = ProfilerConfig {
            ignore_frontend: true,
            ..ProfilerConfig::default()
        };
        let (_, words) = reported(Some(&[]), &[], &[RANK], &quiet);
        assert!(words.contains("as ignore_frontend asks"), "{words}");
        let late = ProfilerConfig {
            delay_iterations: 5,
            ..ProfilerConfig::default()
        };
        let (_, words) = reported(Some(&[]), &[], &[], &late);
        assert!(words.contains("delay_iterations=5"), "{words}");
    }

    #[test]
    fn a_profiler_that_ended_by_itself_is_reported_by_what_was_there_before_the_stop() {
        let limited = ProfilerConfig {
            max_iterations: 3,
            ..ProfilerConfig::default()
        };
        let ended = Verdict::EndedByItself { max_iterations: 3 };
        let (verdict, words) = reported(
            Some(&["/t/old"]),
            &["/t/old", RANK],
            &["/t/old", RANK],
            &limited,
        );
        assert_eq!(verdict, ended);
        assert!(words.contains("max_iterations=3"), "{words}");
        let (verdict, words) = reported(None, &[RANK], &[RANK], &limited);
        assert_eq!(verdict, ended);
        assert!(words.contains("or no window was open"), "{words}");
        assert_eq!(reported(None, &[RANK], &[RANK, FRONT], &limited).0, ended);
        let before: &[&str] = &["/t/old"];
        assert_eq!(
            reported(Some(before), before, before, &limited).0,
            Verdict::Nothing
        );
        assert_eq!(
            reported(Some(&[]), &[], &[RANK], &limited).0,
            Verdict::Written
        );
    }

    #[test]
    fn files_are_found_in_folders_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let place = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(place("window/below/deeper")).unwrap();
        std::fs::write(place("a.pt.trace.json"), "{}").unwrap();
        std::fs::write(place("window/b.trace.json.gz"), "{}").unwrap();
        std::fs::write(place("window/below/c.trace.json.gz"), "{}").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", place("link.trace.json")).unwrap();
        let dirs = [dir.path().to_owned(), place("missing")];
        let found = Listing::of(&dirs);
        let names: Vec<PathBuf> = found.files().map(|(path, _)| path.to_owned()).collect();
        assert_eq!(
            names,
            [place("a.pt.trace.json"), place("window/b.trace.json.gz")]
        );
        std::fs::write(place("a.pt.trace.json"), "{ }").unwrap();
        assert_eq!(
            Listing::of(&dirs).since(&found).len(),
            1,
            "it was written anew"
        );
    }
}
