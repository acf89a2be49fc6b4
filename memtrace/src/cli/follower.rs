//! The figures of a recording, kept up with what its recorder writes.

use crate::cli::mark::mark_now;
use crate::cli::running::Running;
use anyhow::Context;
use jiff::tz::TimeZone;
use memtrace_analyze::Live;
use memtrace_host::{clock, release_free_memory};
use memtrace_model::{BootNs, FreshRows, Row, RunState};
use memtrace_report::visible;
use memtrace_store::{Recordings, StoreError, Tail, TailState};
use memtrace_top::{Feed, Recorder};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What would have been needed earlier is taken in by reading anew, when so many times as long has
/// passed as that took.
const REST: u32 = 100;
/// And no sooner than this.
const ANEW_EVERY: Duration = Duration::from_secs(2);
/// Whoever ended so long ago is left out where only what is so now is asked for, and the recording is
/// read anew once so many have ended.
const KEPT_NS: i64 = 600_000_000_000;
const ENDED_MAX: usize = 5_000;
/// Where nobody is seen to write, as also on a file system without locks, more may still come so
/// long after the last.
const SILENCE: Duration = Duration::from_secs(10);

/// A recording that is followed.
pub(super) struct Follower<'a> {
    recordings: &'a Recordings,
    dir: PathBuf,
    kept: Kept,
    tail: Tail,
    live: Live,
    recorder: Recorder,
    /// Whether there is nothing more to come.
    is_over: bool,
    /// When it may be read anew.
    anew_due: Instant,
    /// When something came last.
    heard: Instant,
}

/// What of a recording is kept while it is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// Everyone, from the beginning on.
    Everyone,
    /// Of a recording that goes on, whoever had not ended long before it was read.
    Present,
    /// The same, with how each of them has grown.
    PresentWithGrowth,
}

/// What came to a recording.
struct Fresh<'a>(&'a mut Tail);

impl FreshRows for Fresh<'_> {
    type Error = StoreError;

    fn fresh<R: Row>(&mut self, columns: &[&str], each: impl FnMut(R)) -> Result<(), StoreError> {
        self.0.read(columns, each)
    }
}

impl<'a> Follower<'a> {
    /// Opens a recording.
    ///
    /// # Errors
    /// When there is none, or it can't be read.
    pub(super) fn open(recordings: &'a Recordings, dir: &Path, kept: Kept) -> anyhow::Result<Self> {
        let shown = dir.display().to_string();
        let tail = recordings
            .follow(dir)
            .with_context(|| format!("failed to read the recording {}", visible(&shown)))?;
        Ok(Self {
            recordings,
            dir: dir.to_path_buf(),
            kept,
            live: live(&tail, kept),
            tail,
            recorder: Recorder::Recording,
            is_over: false,
            anew_due: Instant::now(),
            heard: Instant::now(),
        })
    }

    /// Whether it was closed, in order or by `memtrace recover`.
    pub(super) fn is_closed(&self) -> bool {
        self.tail.info().state != RunState::Recording
    }

    /// Whether nothing more comes to it, and all there is was taken.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether many would be left out if it were read anew.
    fn has_too_many_ended(&self) -> bool {
        let ended_before = BootNs(clock::boot().0 - KEPT_NS);
        let processes = self.live.processes().iter();
        let ended = processes.filter_map(|process| process.exit_boot_ns());
        ended.filter(|&exit| exit < ended_before).count() > ENDED_MAX
    }

    /// Begins again with the first row, for what can't be known from the rows that came.
    fn read_anew(&mut self) -> Result<TailState, StoreError> {
        let begin = Instant::now();
        self.tail = self.recordings.follow(&self.dir)?;
        self.live = live(&self.tail, self.kept);
        let state = self.tail.look()?;
        self.live.take(&mut Fresh(&mut self.tail))?;
        let rest = ANEW_EVERY.max(begin.elapsed() * REST);
        self.anew_due = Instant::now() + rest;
        Ok(state)
    }
}

/// What is known of a recording before its first row.
fn live(tail: &Tail, kept: Kept) -> Live {
    let info = tail.info().clone();
    let live = match kept == Kept::Everyone || info.state != RunState::Recording {
        true => Live::new(info, zone()),
        false => {
            let ended_before = BootNs(clock::boot().0 - KEPT_NS);
            Live::without_ended_before(info, zone(), ended_before)
        }
    };
    match kept {
        Kept::PresentWithGrowth => live.with_curves(),
        Kept::Everyone | Kept::Present => live,
    }
}

/// The reader's time zone is not asked for: times are in UTC, as in a report.
fn zone() -> Option<TimeZone> {
    None
}

impl Feed for Follower<'_> {
    type Error = StoreError;

    fn refresh(&mut self) -> Result<bool, StoreError> {
        if self.is_over {
            return Ok(false);
        }
        let before = self.recorder;
        let was_closed = self.is_closed() && self.live.now().at == BootNs::default();
        let mut state = self.tail.look()?;
        let mut has_news = self.live.take(&mut Fresh(&mut self.tail))?;
        let may_begin_anew = Instant::now() >= self.anew_due;
        let is_wrong = self.live.is_contradicted() && may_begin_anew;
        let has_too_many =
            self.kept != Kept::Everyone && may_begin_anew && self.has_too_many_ended();
        // What was closed has all there is in its parts, in order.
        let is_to_order = state == TailState::Closed && !was_closed;
        if is_wrong || has_too_many || is_to_order || state == TailState::Lost {
            state = self.read_anew()?;
            has_news = true;
            if has_too_many {
                release_free_memory();
            }
        }
        self.recorder = match state {
            TailState::Live | TailState::Lost => Recorder::Recording,
            TailState::Left => Recorder::Gone,
            TailState::Closed => Recorder::Closed,
        };
        if has_news {
            self.heard = Instant::now();
        }
        self.is_over = match self.recorder {
            Recorder::Recording => false,
            Recorder::Closed => true,
            Recorder::Gone => self.heard.elapsed() >= SILENCE,
        };
        if self.is_over {
            self.live.finish();
            has_news = true;
        }
        Ok(has_news || self.recorder != before)
    }

    fn live(&self) -> &Live {
        &self.live
    }

    fn live_mut(&mut self) -> &mut Live {
        &mut self.live
    }

    fn recorder(&self) -> Recorder {
        self.recorder
    }

    fn boot(&self) -> BootNs {
        clock::boot()
    }

    fn mark(&mut self, name: &str) -> Result<(), String> {
        let running = Running::named(&self.dir).map_err(|error| format!("{error:#}"))?;
        mark_now(&running, name).map_err(|error| format!("{error:#}"))
    }
}
