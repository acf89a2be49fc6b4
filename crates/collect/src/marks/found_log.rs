//! The log of a recorded program that says whom it kills, which nobody named.

use super::inbox::Inbox;
use super::lines::{Followed, Follower, Lines, Rules};
use memtrace_model::{MarkSource, Upid, builtin_mark_rules};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

/// One that is followed from its end as of now, for its lines about kills.
pub(super) struct FoundLog {
    /// The program whose log it is.
    pub(super) upid: Upid,
    /// A file system may take its time to open it.
    opening: Option<JoinHandle<Option<Follower>>>,
    /// The path of the file leads over it.
    _log: OwnedFd,
}

impl FoundLog {
    /// Begins to follow it, unless it is one of the files that somebody named.
    pub(super) fn start(
        upid: Upid,
        log: OwnedFd,
        named: &Arc<[PathBuf]>,
        inbox: &Arc<Inbox>,
    ) -> Result<Self, String> {
        let rules = builtin_mark_rules().map_err(|error| error.to_string())?;
        let of_kills = rules.into_iter().filter(|rule| rule.kill.is_some());
        let rules = Rules::new(of_kills.collect()).map_err(|error| error.to_string())?;
        let lines = Lines::new(Arc::new(rules), MarkSource::File, None, Arc::clone(inbox));
        let path = PathBuf::from(format!("/proc/self/fd/{}", log.as_raw_fd()));
        let named = Arc::clone(named);
        let opening = std::thread::Builder::new()
            .name("memtrace-found".to_owned())
            .stack_size(256 << 10)
            .spawn(move || {
                let is_named = named.iter().any(|named| is_same(named, &path));
                let files = (!is_named).then(|| vec![(path, lines)])?;
                Follower::start(files, Followed::default(), None).ok()
            });
        Ok(Self {
            upid,
            opening: Some(opening.map_err(|error| error.to_string())?),
            _log: log,
        })
    }

    /// Takes what it has by now, then nothing more. One that is still to be opened is left alone.
    pub(super) fn stop(&mut self) {
        let opened = self.opening.take_if(|opening| opening.is_finished());
        if let Some(Ok(Some(mut follower))) = opened.map(JoinHandle::join) {
            follower.stop();
        }
    }
}

/// Whether two paths lead to one file.
fn is_same(one: &Path, other: &Path) -> bool {
    let [one, other] =
        [one, other].map(|path| path.metadata().map(|file| (file.dev(), file.ino())));
    one.is_ok() && one.ok() == other.ok()
}
