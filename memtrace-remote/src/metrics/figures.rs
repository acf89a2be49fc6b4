//! The figures, read by a thread of their own: a file system that hangs holds up nothing else.

use crate::limits::{FIGURES_TIME, STACK_BYTES};
use anyhow::{Context, anyhow};
use memtrace::cli::Newest;
use memtrace_analyze::Family;
use memtrace_store::Recordings;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{mpsc, oneshot};

/// The figures of one instant.
#[derive(Debug)]
pub(super) struct Now {
    pub(super) families: Vec<Family>,
    /// Whether there will be no others.
    pub(super) is_over: bool,
}

/// What a reader says: the figures, or why there are none.
type Read = Result<Arc<Now>, String>;

/// The thread that reads them.
#[derive(Clone)]
pub(super) struct Figures(mpsc::Sender<oneshot::Sender<Read>>);

impl Figures {
    /// Opens a recording, or a directory of recordings.
    ///
    /// # Errors
    /// When it can't be read.
    pub(super) async fn open(dir: &Path) -> anyhow::Result<Self> {
        let (ask, asked) = mpsc::channel(1);
        let (opened, is_open) = oneshot::channel();
        let dir = dir.to_owned();
        let reader = std::thread::Builder::new().stack_size(8 * STACK_BYTES);
        let read = move || {
            let recordings = Recordings::default();
            match Newest::open(&recordings, &dir) {
                Ok(newest) => {
                    let _ = opened.send(Ok(()));
                    answer(newest, asked);
                }
                Err(error) => drop(opened.send(Err(error))),
            }
        };
        reader.spawn(read).context("failed to start a thread")?;
        is_open.await??;
        Ok(Self(ask))
    }

    /// The figures as they are now.
    ///
    /// # Errors
    /// When they can't be read.
    pub(super) async fn now(&self) -> anyhow::Result<Arc<Now>> {
        let (ask, answer) = oneshot::channel();
        let gone = "the figures are not read any more";
        self.0.send(ask).await.ok().context(gone)?;
        answer.await.context(gone)?.map_err(|error| anyhow!(error))
    }
}

/// Reads for whoever asks, but no more often than anything can be new.
fn answer(mut newest: Newest<'_>, mut asked: mpsc::Receiver<oneshot::Sender<Read>>) {
    let mut last: Option<(Instant, Read)> = None;
    while let Some(ask) = asked.blocking_recv() {
        let known = last.take().filter(|(at, _)| at.elapsed() < FIGURES_TIME);
        let read = known.unwrap_or_else(|| {
            let read = match newest.families() {
                Ok(families) => Ok(Arc::new(Now {
                    families,
                    is_over: newest.is_over(),
                })),
                Err(error) => Err(format!("{error:#}")),
            };
            (Instant::now(), read)
        });
        // Who asked may have gone.
        let _ = ask.send(read.1.clone());
        last = Some(read);
    }
}
