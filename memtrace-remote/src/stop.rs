//! The wish of a person that it ends.

use std::io;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// What a shell gives for a program that Ctrl-C ended.
pub(crate) const INTERRUPTED: u8 = 130;

/// Becomes true once.
#[derive(Clone, Debug)]
pub(crate) struct Stop(watch::Receiver<bool>);

impl Stop {
    /// At the first Ctrl-C or SIGTERM; the second ends the program at once.
    ///
    /// # Errors
    /// When signals can't be waited for.
    pub(crate) fn by_signals() -> io::Result<Self> {
        let (wish, stop) = watch::channel(false);
        let mut interrupts = signal(SignalKind::interrupt())?;
        let mut terminations = signal(SignalKind::terminate())?;
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = interrupts.recv() => {}
                    _ = terminations.recv() => {}
                }
                if wish.send_replace(true) {
                    std::process::exit(INTERRUPTED.into());
                }
            }
        });
        Ok(Self(stop))
    }

    /// Nobody's wish.
    pub(crate) fn never() -> Self {
        Self(watch::channel(false).1)
    }

    /// Nobody's wish; and what wishes it.
    #[cfg(test)]
    pub(crate) fn by_hand() -> (watch::Sender<bool>, Self) {
        let (wish, stop) = watch::channel(false);
        (wish, Self(stop))
    }

    /// Whether it is wished.
    pub(crate) fn is_wished(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is; for ever where nobody can wish it any more.
    pub(crate) async fn wished(&mut self) {
        if self.0.wait_for(|wish| *wish).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
