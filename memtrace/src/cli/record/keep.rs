//! `record --keep`: recordings on this host that are too old, or too much, go while a new one is
//! made: when it begins, and each hour.

use crate::cli::output::say;
use crate::cli::values::{parse_age, parse_size};
use memtrace_host::clock;
use memtrace_model::{Bytes, DurationNs, WallNs};
use memtrace_report::words;
use memtrace_store::{Kept, kept, remove_empty_folders, remove_recording};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

const PERIOD: Duration = Duration::from_secs(3600);

/// Which recordings stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    /// What ended longer ago goes.
    age: Option<DurationNs>,
    /// What is beyond this, all together, goes, the oldest first.
    bytes: Option<Bytes>,
}

/// Days or hours, or a size, or both with a comma between: `7d,20GiB`.
pub(super) fn parse_bounds(text: &str) -> Result<Bounds, String> {
    let mut bounds = Bounds::default();
    for bound in text.split(',') {
        let bound = bound.trim();
        let refused = || {
            format!(
                "'{bound}' is neither an age nor a size: write it like 7d, 36h or 20GiB, or 7d,20GiB"
            )
        };
        let is_new = match bound.ends_with(['d', 'h']) {
            true => {
                let age = parse_age(bound).map_err(|_| refused())?;
                bounds.age.replace(age).is_none()
            }
            // 5m would be minutes to one reader and MiB to another.
            false => {
                let size = bound.ends_with(['B', 'b']).then(|| parse_size(bound).ok());
                bounds
                    .bytes
                    .replace(size.flatten().ok_or_else(refused)?)
                    .is_none()
            }
        };
        if !is_new {
            return Err("no more than one age and one size can be given".to_owned());
        }
    }
    Ok(bounds)
}

/// Whose recordings, and which of them.
#[derive(Clone, Debug)]
pub(super) struct Range {
    /// Where they are.
    pub(super) dir: PathBuf,
    /// Who owns them.
    pub(super) uid: u32,
    /// Where they go to when they are closed: what is still here has not arrived.
    pub(super) root: Option<String>,
    pub(super) is_quiet: bool,
}

/// Sees to it; ends with this value.
#[derive(Debug)]
pub(super) struct Keeper {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts it: a thread of its own, which waits for the disk so that nobody else has to.
    pub(super) fn start(bounds: Bounds, range: Range) -> Self {
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name("memtrace-keep".to_owned());
        let thread = thread.spawn(move || {
            loop {
                range.look(bounds, &stopped);
                if stopped.recv_timeout(PERIOD) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        });
        if let Err(error) = &thread {
            say(&format!("nothing is removed (--keep): {error}"));
        }
        Self {
            stop: Some(stop),
            thread: thread.ok(),
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Range {
    fn look(&self, bounds: Bounds, stopped: &Receiver<()>) {
        let mut there = match kept(&self.dir) {
            Ok(there) => there,
            Err(error) => {
                let error = anyhow::Error::from(error);
                return say(&format!("nothing is removed (--keep): {error:#}"));
            }
        };
        there.retain(|kept| kept.uid == self.uid);
        let bounds = match &self.root {
            // That it is old is no reason to lose what nobody else has.
            Some(_) => Bounds {
                age: None,
                ..bounds
            },
            None => bounds,
        };
        let (mut count, mut bytes) = (0, Bytes(0));
        for kept in surplus(&there, bounds, clock::read().wall_ns) {
            if stopped.try_recv() == Err(TryRecvError::Disconnected) {
                return;
            }
            match remove_recording(&kept.dir) {
                Ok(_) => {
                    remove_empty_folders(&kept.dir);
                    count += 1;
                    bytes = bytes + kept.bytes;
                    if let Some(root) = &self.root {
                        let dir = kept.dir.display();
                        say(&format!(
                            "removed {dir} to stay under the size, though not all of it is in \
                             {root} (--keep)"
                        ));
                    }
                }
                Err(error) => say(&format!(
                    "{} stays (--keep): {:#}",
                    kept.dir.display(),
                    anyhow::Error::from(error)
                )),
            }
        }
        if count > 0 && self.root.is_none() && !self.is_quiet {
            let (count, bytes) = (words::count(count), words::bytes(bytes));
            say(&format!(
                "removed {count} older recordings of {bytes} (--keep)"
            ));
        }
    }
}

/// What goes; `there` has the oldest first.
fn surplus(there: &[Kept], bounds: Bounds, now: WallNs) -> Vec<&Kept> {
    let mut left: i64 = there.iter().map(|kept| kept.bytes.0).sum();
    let goes = there.iter().filter(|kept| {
        let is_old = bounds.age.is_some_and(|age| now.0 - kept.ended.0 > age.0);
        let is_much = bounds.bytes.is_some_and(|most| left > most.0);
        if is_old || is_much {
            left -= kept.bytes.0;
        }
        is_old || is_much
    });
    goes.collect()
}

/// Where recordings are kept beside one.
pub(super) fn beside(recording: &Path) -> PathBuf {
    match recording.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_NS: i64 = 3_600_000_000_000;
    const DAY_NS: i64 = 24 * HOUR_NS;

    #[test]
    fn an_age_a_size_or_both_can_be_said() {
        let both = parse_bounds("7d, 20GiB").unwrap();
        assert_eq!(both.age, Some(DurationNs(7 * DAY_NS)));
        assert_eq!(both.bytes, Some(Bytes(20 << 30)));
        assert_eq!(
            parse_bounds("36h").unwrap().age,
            Some(DurationNs(36 * HOUR_NS))
        );
        assert_eq!(parse_bounds("0B").unwrap().bytes, Some(Bytes(0)));
        for text in [
            "",
            "7",
            "5m",
            "0d",
            "-1d",
            "1d,2d",
            "1GiB,2GiB",
            "7d,",
            "9999999999999999d",
            "GiB",
        ] {
            assert!(parse_bounds(text).is_err(), "{text}");
        }
    }

    fn surplus_of(bounds: &str) -> Vec<usize> {
        // Of 9 to 1 days ago, with 10 bytes each.
        let there: Vec<Kept> = (1..10)
            .map(|day| Kept {
                dir: PathBuf::from(day.to_string()),
                ended: WallNs(day * DAY_NS),
                bytes: Bytes(10),
                uid: 0,
                is_closed: true,
                is_placed: false,
                downsampled: None,
            })
            .collect();
        let now = WallNs(10 * DAY_NS);
        let goes = surplus(&there, parse_bounds(bounds).unwrap(), now);
        goes.iter()
            .map(|kept| kept.dir.to_str().unwrap().parse().unwrap())
            .collect()
    }

    #[test]
    fn the_oldest_go_until_what_is_left_is_within_both_bounds() {
        assert_eq!(surplus_of("7d"), [1, 2]);
        assert_eq!(surplus_of("30d"), [0; 0]);
        assert_eq!(surplus_of("71B"), [1, 2]);
        assert_eq!(surplus_of("70B"), [1, 2]);
        assert_eq!(surplus_of("7d,50B"), [1, 2, 3, 4]);
        assert_eq!(surplus_of("6d,80B"), [1, 2, 3]);
        assert_eq!(surplus_of("0B").len(), 9);
    }
}
