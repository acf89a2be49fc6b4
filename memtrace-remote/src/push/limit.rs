//! No more bytes a second than a person allows, on average.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// While it waits it tells so often.
const TELLING: Duration = Duration::from_millis(500);

/// What all uploads of one push share.
#[derive(Debug)]
pub(super) struct Limit {
    bytes_per_s: Option<u64>,
    /// When what was sent so far is paid for.
    paid: Mutex<Instant>,
}

impl Limit {
    pub(super) fn new(bytes_per_s: Option<u64>) -> Self {
        Self {
            bytes_per_s,
            paid: Mutex::new(Instant::now()),
        }
    }

    /// Waits until so many bytes may be sent, and now and then tells that it still does.
    pub(super) async fn take(&self, bytes: u64, waits: impl Fn()) {
        let Some(rate) = self.bytes_per_s else {
            return;
        };
        let begin = {
            let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
            let begin = Instant::now().max(*paid);
            *paid = begin + Duration::from_secs_f64(bytes as f64 / rate as f64);
            begin
        };
        while Instant::now() < begin {
            sleep_until(begin.min(Instant::now() + TELLING)).await;
            waits();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::sleep;

    #[tokio::test]
    async fn what_is_sent_takes_as_long_as_is_allowed() {
        let limit = Limit::new(Some(10_000));
        // What was not used is not saved up.
        sleep(Duration::from_millis(200)).await;
        let begin = Instant::now();
        for _ in 0..5 {
            limit.take(500, || {}).await;
        }
        // The last one begins when the four before it are paid for.
        assert!(begin.elapsed() >= Duration::from_millis(200));
        let without = Limit::new(None);
        let begin = Instant::now();
        without.take(u64::MAX, || {}).await;
        assert!(begin.elapsed() < Duration::from_millis(200));
    }
}
