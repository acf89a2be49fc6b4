//! Says on a terminal that long work goes on: a line on stderr after a second, gone when it is done.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// What is done within this needs no line.
const PATIENCE: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(100);

/// The line, for as long as this lives.
#[derive(Debug)]
pub(super) struct Progress {
    done: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Shows what is done and for how long, if stderr is a terminal.
    pub(super) fn of(work: &'static str) -> Self {
        let (done, is_done) = channel();
        let show = move || {
            if is_done.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                let bar = ProgressBar::new_spinner()
                    .with_message(work)
                    .with_elapsed(PATIENCE);
                if let Ok(style) =
                    ProgressStyle::with_template("memtrace: {msg} {spinner} {elapsed}")
                {
                    bar.set_style(style);
                }
                bar.enable_steady_tick(TICK);
                let _ = is_done.recv();
                bar.finish_and_clear();
            }
        };
        let thread = std::thread::Builder::new().name("memtrace-progress".to_owned());
        let is_seen = io::stderr().is_terminal();
        Self {
            done: Some(done),
            // Without a line the work is done all the same.
            thread: is_seen.then(|| thread.spawn(show).ok()).flatten(),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.done.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
