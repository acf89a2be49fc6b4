//! Requests of a load experiment that have arrived and are not written yet.

use crate::{Ceiling, Part, Pass, Share};
use memtrace_model::{BootNs, DurationNs, RequestMessage};
use std::sync::Arc;

/// A sender tells of a request as soon as it has ended. What ended longer ago is no news.
const DELAY_MAX: DurationNs = DurationNs(60_000_000_000);

/// Those that wait, each with the room that it takes.
#[derive(Debug, Default)]
pub(super) struct Requests(Vec<(RequestMessage, Share)>);

/// Why a request is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeftOut {
    /// It did not end when it came.
    Impossible,
    /// There is no room.
    Overflow,
}

impl Requests {
    /// Puts one in.
    pub(super) fn put(
        &mut self,
        request: RequestMessage,
        arrival: BootNs,
        ceiling: &Arc<Ceiling>,
    ) -> Result<(), LeftOut> {
        let age = arrival.0.saturating_sub(request.boot_ns);
        if !(0..=DELAY_MAX.0).contains(&age) {
            return Err(LeftOut::Impossible);
        }
        let bytes = size_of::<(RequestMessage, Share)>() + request.heap_bytes();
        let room = ceiling.take(Part::Marks, bytes);
        self.0.push((request, room.ok_or(LeftOut::Overflow)?));
        Ok(())
    }

    pub(super) fn write(&mut self, pass: &mut Pass<'_>) {
        for (request, _) in self.0.drain(..) {
            let ended = BootNs(request.boot_ns);
            pass.write(request.row(pass.tick.clock.to_wall(ended)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(end: i64, error_bytes: usize) -> RequestMessage {
        RequestMessage {
            boot_ns: end,
            error: Some("x".repeat(error_bytes)),
            ..RequestMessage::default()
        }
    }

    #[test]
    fn a_request_of_another_time_is_refused() {
        let (mut requests, ceiling) = (Requests::default(), Arc::default());
        let now = 2 * DELAY_MAX.0;
        let mut put = |end| requests.put(request(end, 0), BootNs(now), &ceiling);
        for end in [now, now - DELAY_MAX.0] {
            assert_eq!(put(end), Ok(()));
        }
        for end in [now + 1, now - DELAY_MAX.0 - 1, i64::MIN, i64::MAX] {
            assert_eq!(put(end), Err(LeftOut::Impossible), "{end}");
        }
    }

    #[test]
    fn requests_that_wait_take_no_more_than_their_part() {
        let (mut requests, ceiling) = (Requests::default(), Arc::<Ceiling>::default());
        let more = 2 * Part::Marks.limit() / 1_000;
        let put = (0..more).map(|_| requests.put(request(1, 1_000), BootNs(1), &ceiling));
        let kept = put.filter(Result::is_ok).count();
        assert!(kept > 0 && kept < more && kept == requests.0.len());
        assert!(ceiling.taken(Part::Marks) <= Part::Marks.limit());
        drop(requests);
        assert_eq!(ceiling.taken(Part::Marks), 0);
    }
}
