//! How long a recorder has to learn what there is.

use crate::recorder::Recorder;
use anyhow::{Result, bail};
use memtrace_model::tables::PssRow;
use memtrace_store::{Recording, Recordings};
use std::collections::HashSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a recorder has to learn what there is.
#[derive(Clone, Copy, Debug)]
pub enum Settle {
    /// This long: its pace is measured.
    For(Duration),
    /// As long as it takes, within patience: its result is tested, and an emulated machine is
    /// slow.
    UntilRead,
}

const PATIENCE: Duration = Duration::from_secs(120);

impl Settle {
    /// Waits; `is_read` looks into the recording as it stands.
    pub(super) fn wait(
        self,
        recorder: &Recorder,
        is_read: impl Fn(&Recording) -> Result<bool>,
    ) -> Result<()> {
        let start = Instant::now();
        match self {
            Self::For(time) => sleep(time),
            Self::UntilRead => {
                while !is_read(&Recordings::default().open(&recorder.path())?)? {
                    if start.elapsed() > PATIENCE {
                        bail!("not everything was read after {PATIENCE:?}");
                    }
                    sleep(Duration::from_millis(200));
                }
            }
        }
        Ok(())
    }
}

/// How many processes a recording has a reading of.
pub(super) fn read_processes(recording: &Recording) -> Result<usize> {
    let rows: Vec<PssRow> = recording.rows()?;
    let read: HashSet<_> = rows.iter().map(|row| row.upid).collect();
    Ok(read.len())
}
