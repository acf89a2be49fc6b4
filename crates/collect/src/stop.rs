//! What a collector and a thread of its own share: above all the order to stop.

use memtrace_model::DurationNs;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What threads share, also where one of them has panicked.
pub(super) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The recording ends: what is being read is no longer wanted.
#[derive(Debug, thiserror::Error)]
#[error("the recording ends")]
pub(super) struct Stopped;

/// The order to stop, which wakes whoever rests.
#[derive(Debug, Default)]
pub(super) struct Stop {
    is_set: Mutex<bool>,
    wake: Condvar,
}

impl Stop {
    pub(super) fn set(&self) {
        *lock(&self.is_set) = true;
        self.wake.notify_all();
    }

    /// Whether it has not come yet.
    pub(super) fn check(&self) -> Result<(), Stopped> {
        if *lock(&self.is_set) {
            Err(Stopped)
        } else {
            Ok(())
        }
    }

    /// Rests, or less when the order comes.
    pub(super) fn rest(&self, time: DurationNs) -> Result<(), Stopped> {
        let time = Duration::from_nanos(time.0.max(0).cast_unsigned());
        let is_set = lock(&self.is_set);
        let waited = self
            .wake
            .wait_timeout_while(is_set, time, |is_set| !*is_set);
        let (is_set, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *is_set { Err(Stopped) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_to_stop_ends_a_rest() {
        let stop = Stop::default();
        assert!(stop.rest(DurationNs(1_000_000)).is_ok());
        stop.set();
        assert!(stop.rest(DurationNs(3_600_000_000_000)).is_err());
    }
}
