//! The newest figures of a recording, or of the newest one in a directory for as long as one follows
//! another, as a monitoring system gets them; and for events, those of the one before to its end.

use super::follower::{Follower, Kept};
use super::once::Once;
use super::output::say;
use super::recorded::listed;
use anyhow::{Context, bail};
use memtrace_analyze::{Family, Live, OOM_KILLS, RECORDER_UP};
use memtrace_model::Tgid;
use memtrace_report::visible;
use memtrace_store::{Outgoing, RUN_FILE, Recordings};
use memtrace_top::{Feed, Recorder};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// While one is recorded, it is looked so often whether there is a newer one.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// What is followed.
pub struct Newest<'a> {
    recordings: &'a Recordings,
    dir: PathBuf,
    kept: Kept,
    /// Whether the directory is a recording, and not one of recordings.
    is_single: bool,
    followed: Option<(PathBuf, Follower<'a>)>,
    /// Those that were followed before, the older first: a recorder goes on until the next one
    /// observes, and has its last rows written after that.
    before: Vec<(PathBuf, Follower<'a>)>,
    /// The kills of all recordings: their number never goes down.
    kills: Once<Tgid>,
    looked: Instant,
    /// A recording that can't be followed, of which that was said, and when it was tried.
    refused: Option<(PathBuf, Instant)>,
}

impl<'a> Newest<'a> {
    /// Follows a recording, or a directory of recordings, which may have none yet.
    ///
    /// # Errors
    /// When it can't be read, or is one that is closed.
    pub fn open(recordings: &'a Recordings, dir: &Path) -> anyhow::Result<Self> {
        Self::open_with(recordings, dir, Kept::Present)
    }

    /// The same, with what is to be kept of it.
    pub(super) fn open_with(
        recordings: &'a Recordings,
        dir: &Path,
        kept: Kept,
    ) -> anyhow::Result<Self> {
        let mut newest = Self {
            recordings,
            dir: dir.to_owned(),
            kept,
            is_single: dir.join(RUN_FILE).exists(),
            followed: None,
            before: Vec::new(),
            kills: Once::default(),
            looked: Instant::now(),
            refused: None,
        };
        match newest.is_single {
            true => {
                let follower = Follower::open(recordings, dir, kept)?;
                if follower.is_closed() {
                    bail!(
                        "this recording is closed, so it has no current figures; `memtrace report` \
                         shows it"
                    );
                }
                newest.followed = Some((dir.to_owned(), follower));
            }
            false => newest.look()?,
        }
        Ok(newest)
    }

    /// Whether there is no recorder, and the next look finds none: nothing more will come.
    pub fn is_over(&self) -> bool {
        self.is_single && !self.is_recording()
    }

    /// What the recorder does of what is followed; `None` where nothing is.
    pub(super) fn recorder(&self) -> Option<Recorder> {
        let followed = self.followed.as_ref();
        followed.map(|(_, follower)| follower.recorder())
    }

    fn is_recording(&self) -> bool {
        self.recorder() == Some(Recorder::Recording)
    }

    /// The figures as they are now. Where nobody records, those that are no longer so are left out.
    ///
    /// # Errors
    /// When what is followed can't be read.
    pub fn families(&mut self) -> anyhow::Result<Vec<Family>> {
        self.follow()?;
        let mut families = vec![Family::single(
            &RECORDER_UP,
            f64::from(u8::from(self.is_recording())),
        )];
        if let Some((_, follower)) = self.followed.as_ref().filter(|_| self.is_recording()) {
            let others = follower.live().series().into_iter();
            families.extend(others.filter(|family| family.metric != &OOM_KILLS));
        }
        families.push(Family::single(&OOM_KILLS, self.kills.count() as f64));
        Ok(families)
    }

    /// The recording that is followed, and what is known of it.
    pub(super) fn followed(&self) -> Option<(&Path, &Live)> {
        let followed = self.followed.as_ref();
        followed.map(|(path, follower)| (path.as_path(), follower.live()))
    }

    /// The same with those before it that were not over when it was last looked, the older first.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Path, &Live)> {
        let all = self.before.iter().chain(&self.followed);
        all.map(|(path, follower)| (path.as_path(), follower.live()))
    }

    /// Takes what came, and turns to a recording that is newer. The one before it is kept until all
    /// of it was taken, and until the next call, so that whoever looks in between sees its end.
    ///
    /// # Errors
    /// When what is followed can't be read.
    pub(super) fn follow(&mut self) -> anyhow::Result<()> {
        self.before.retain(|(_, follower)| !follower.is_over());
        self.refresh_before();
        self.refresh()?;
        if !self.is_single && (!self.is_recording() || self.looked.elapsed() >= LOOK_EVERY) {
            // A directory that can't be listed now may be later.
            if let Err(error) = self.look() {
                self.refuse(self.dir.clone(), &error);
            }
            self.refresh()?;
        }
        Ok(())
    }

    /// Takes what came to those before it.
    fn refresh_before(&mut self) {
        let Self { before, kills, .. } = self;
        before.retain_mut(|(path, follower)| {
            let refreshed = refresh(path, follower, kills);
            if let Err(error) = &refreshed {
                say(&format!("{error:#}"));
            }
            refreshed.is_ok()
        });
    }

    /// Takes what came to it.
    fn refresh(&mut self) -> anyhow::Result<()> {
        let Some((path, follower)) = &mut self.followed else {
            return Ok(());
        };
        match refresh(path, follower, &mut self.kills) {
            // It may have been removed; there will be another.
            Err(error) if !self.is_single => {
                if let Some((path, _)) = self.followed.take() {
                    self.refuse(path, &error);
                }
                Ok(())
            }
            refreshed => refreshed,
        }
    }

    /// Follows the newest recording of the directory to which a recorder writes; where there is none,
    /// the newest.
    fn look(&mut self) -> anyhow::Result<()> {
        self.looked = Instant::now();
        let mut found = listed(&self.dir)?;
        let is_live = |dir: &PathBuf| Outgoing::open(dir).is_ok_and(|opened| opened.is_live());
        let live = found.iter().position(is_live).unwrap_or(0);
        if found.is_empty() {
            return Ok(());
        }
        let newest = found.swap_remove(live);
        let is_followed = self
            .followed
            .as_ref()
            .is_some_and(|(path, _)| *path == newest);
        let refused = self.refused.as_ref();
        let is_refused =
            refused.is_some_and(|(path, tried)| *path == newest && tried.elapsed() < LOOK_EVERY);
        if is_followed || is_refused {
            return Ok(());
        }
        // One that was left for a newer one, which is gone by now.
        let known = self.before.iter().position(|(path, _)| *path == newest);
        let opened = match known {
            Some(known) => Ok(self.before.remove(known).1),
            None => Follower::open(self.recordings, &newest, self.kept),
        };
        match opened {
            Ok(follower) => self
                .before
                .extend(self.followed.replace((newest, follower))),
            Err(error) => self.refuse(newest, &error),
        }
        Ok(())
    }

    /// Has the next call look for a newer one.
    #[cfg(test)]
    pub(super) fn look_soon(&mut self) {
        self.looked -= LOOK_EVERY;
    }

    /// Says once why a recording is not followed.
    fn refuse(&mut self, recording: PathBuf, error: &anyhow::Error) {
        let refused = self.refused.take();
        if refused.is_none_or(|(path, _)| path != recording) {
            say(&format!("{error:#}"));
        }
        self.refused = Some((recording, Instant::now()));
    }
}

/// Takes what came to a recording, and notes its kills.
fn refresh(path: &Path, follower: &mut Follower<'_>, kills: &mut Once<Tgid>) -> anyhow::Result<()> {
    let refreshed = follower.refresh();
    for kill in follower.live().kills() {
        kills.note(kill.victim_tgid, kill.boot_ns);
    }
    let shown = path.display().to_string();
    refreshed
        .map(drop)
        .with_context(|| format!("failed to read the recording {}", visible(&shown)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::analyzed::tests::store;
    use memtrace_golden::{RUNS, Script};

    fn run(name: &str) -> fn() -> Script {
        let script = RUNS.iter().find(|(run, ..)| *run == name);
        script.expect("a run").1
    }

    fn reported(newest: &mut Newest<'_>) -> Vec<(&'static str, f64)> {
        let families = newest.families().expect("figures");
        let singles = families.iter().filter(|family| family.samples.len() == 1);
        singles
            .map(|family| (family.metric.name, family.samples[0].1))
            .collect()
    }

    #[test]
    fn kills_of_one_recording_come_to_those_of_the_ones_before() {
        let root = tempfile::tempdir().expect("a directory");
        let recordings = Recordings::default();
        let mut newest = Newest::open(&recordings, root.path()).expect("an empty directory");
        let mut kills = |after: &[(&str, &str)]| {
            for (name, of) in after {
                store(&root.path().join(name), run(of));
            }
            let reported = reported(&mut newest);
            // Nobody writes to any of them.
            assert_eq!(reported.len(), 2, "{reported:?}");
            assert_eq!(reported[0], ("memtrace_recorder_up", 0.0));
            reported[1]
        };
        let total = |count| ("memtrace_oom_kills_total", count);
        assert_eq!(kills(&[]), total(0.0));
        let (_, first) = kills(&[("memtrace-a", "oom_kill")]);
        assert!(first >= 1.0, "{first}");
        assert_eq!(kills(&[]), total(first));
        // Of recordings of one start the last by name is the newest.
        assert_eq!(kills(&[("memtrace-b", "nothing")]), total(first));
        // Two recorders of one machine see the same kill.
        assert_eq!(kills(&[("memtrace-c", "oom_kill")]), total(first));
        let (_, second) = kills(&[("memtrace-c1", "node_out_of_memory")]);
        assert!(second > first, "{second}");
        // One that can't be read is left out, and those after it are not.
        store(&root.path().join("memtrace-d"), run("oom_kill"));
        let mem = root.path().join("memtrace-d/run.json");
        let info = std::fs::read_to_string(&mem).expect("a recording");
        std::fs::write(&mem, info.replace("\"schema_version\"", "\"other\"")).expect("a file");
        assert_eq!(kills(&[("memtrace-e", "nothing")]), total(second));
        // One that is removed takes nothing with it.
        for name in ["memtrace-d", "memtrace-e"] {
            std::fs::remove_dir_all(root.path().join(name)).expect("a recording");
        }
        assert_eq!(kills(&[]), total(second));
    }
}
