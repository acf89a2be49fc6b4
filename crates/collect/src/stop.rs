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

/// The order to stop, and that to make haste, which wake whoever rests.
#[derive(Debug, Default)]
pub(super) struct Stop {
    orders: Mutex<Orders>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Orders {
    is_set: bool,
    is_urgent: bool,
}

/// How a rest ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// It took its time.
    Whole,
    /// Somebody wants to know at once.
    Short,
}

impl Stop {
    pub(super) fn set(&self) {
        lock(&self.orders).is_set = true;
        self.wake.notify_all();
    }

    /// Ends the rest that is being taken, or the next one.
    pub(super) fn hurry(&self) {
        lock(&self.orders).is_urgent = true;
        self.wake.notify_all();
    }

    /// Whether it has not come yet.
    pub(super) fn check(&self) -> Result<(), Stopped> {
        if lock(&self.orders).is_set {
            Err(Stopped)
        } else {
            Ok(())
        }
    }

    /// Rests, whoever hurries: that waits for the next rest.
    pub(super) fn rest_well(&self, time: DurationNs) -> Result<(), Stopped> {
        let time = Duration::from_nanos(time.0.max(0).cast_unsigned());
        let orders = lock(&self.orders);
        let waited = self
            .wake
            .wait_timeout_while(orders, time, |orders| !orders.is_set);
        let (orders, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if orders.is_set { Err(Stopped) } else { Ok(()) }
    }

    /// Rests, or less when an order comes.
    pub(super) fn rest(&self, time: DurationNs) -> Result<Rest, Stopped> {
        let time = Duration::from_nanos(time.0.max(0).cast_unsigned());
        let orders = lock(&self.orders);
        let waited = self
            .wake
            .wait_timeout_while(orders, time, |orders| !orders.is_set && !orders.is_urgent);
        let (mut orders, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if orders.is_set {
            return Err(Stopped);
        }
        Ok(match std::mem::take(&mut orders.is_urgent) {
            true => Rest::Short,
            false => Rest::Whole,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn haste_ends_one_rest() {
        let stop = Stop::default();
        stop.hurry();
        let rest = |time| stop.rest(DurationNs(time)).expect("no order to stop");
        assert_eq!(rest(3_600_000_000_000), Rest::Short);
        assert_eq!(rest(1_000_000), Rest::Whole);
    }

    #[test]
    fn an_order_to_stop_ends_a_rest() {
        let stop = Stop::default();
        assert!(stop.rest(DurationNs(1_000_000)).is_ok());
        stop.set();
        assert!(stop.rest(DurationNs(3_600_000_000_000)).is_err());
    }
}
