//! The wish of a person that it ends.

use crate::limits::{STACK_BYTES, TERMINATION_TIME};
use memtrace::cli::say;
use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// What a shell gives for a program that Ctrl-C ended.
pub(crate) const INTERRUPTED: u8 = 130;

/// Becomes true once.
#[derive(Clone, Debug)]
pub(crate) struct Stop(watch::Receiver<bool>);

impl Stop {
    /// At the first Ctrl-C or SIGTERM; the second ends the program at once. After SIGTERM it ends within
    /// [`TERMINATION_TIME`] in any case. A thread of its own sees to that, whatever the others wait for.
    ///
    /// # Errors
    /// When signals can't be waited for.
    pub(crate) fn by_signals() -> io::Result<Self> {
        let (wish, stop) = watch::channel(false);
        let runtime = crate::runtime()?;
        let waited = {
            let _within = runtime.enter();
            [
                signal(SignalKind::interrupt())?,
                signal(SignalKind::terminate())?,
            ]
        };
        let signals = std::thread::Builder::new().stack_size(STACK_BYTES);
        signals.spawn(move || runtime.block_on(obey(waited, &wish)))?;
        Ok(Self(stop))
    }

    /// One that nobody asks for.
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

async fn obey([mut interrupts, mut terminations]: [Signal; 2], wish: &watch::Sender<bool>) {
    loop {
        let is_termination = tokio::select! {
            _ = interrupts.recv() => false,
            _ = terminations.recv() => true,
        };
        let is_first = !wish.send_replace(true);
        if is_first && is_termination {
            tokio::time::sleep(TERMINATION_TIME).await;
            say("ended by SIGTERM, with what was under way left as it is");
        }
        if !is_first || is_termination {
            std::process::exit(INTERRUPTED.into());
        }
    }
}
