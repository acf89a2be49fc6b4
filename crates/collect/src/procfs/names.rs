//! The names of a process over time: when they are read again, and what a change means.

use memtrace_model::{BootNs, DurationNs, Tgid};

/// The longest time for which a change goes unnoticed.
pub(super) const PERIOD: DurationNs = DurationNs(1_000_000_000);
/// The same while names are changing: Ray's workers retitle themselves with every call.
const BUSY_PERIOD: DurationNs = DurationNs(100_000_000);
/// How long after a change, or after its start, a process is taken to be changing names.
const BUSY_FOR: DurationNs = DurationNs(10_000_000_000);

/// The names last seen, and when to look again.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) comm: String,
    pub(super) title: Option<String>,
    /// Where the arguments lie; another place means another program image.
    pub(super) arg_start: Option<u64>,
    changed_at: BootNs,
    due_at: BootNs,
}

impl Names {
    /// Names as first seen. The first second is spread by process id, so that processes
    /// found together are not all read again together.
    pub(super) fn new(
        comm: String,
        title: Option<String>,
        arg_start: Option<u64>,
        start: BootNs,
        now: BootNs,
        tgid: Tgid,
    ) -> Self {
        let slot = i64::from(tgid.0 % 10);
        Self {
            comm,
            title,
            arg_start,
            changed_at: start,
            due_at: now + DurationNs(slot * (PERIOD.0 / 10)),
        }
    }

    /// Whether it is time to look again.
    pub(super) fn is_due(&self, now: BootNs) -> bool {
        now >= self.due_at
    }

    /// Asks for a look at the next occasion.
    pub(super) fn hasten(&mut self) {
        self.due_at = BootNs(0);
    }

    /// Notes what was seen; whether it differs. A title that could not be read, or that a
    /// process at its end no longer has, is not a change.
    pub(super) fn update(&mut self, comm: String, title: Option<String>, now: BootNs) -> bool {
        let is_changed = comm != self.comm || (title.is_some() && title != self.title);
        if is_changed {
            self.comm = comm;
            self.title = title.or(self.title.take());
            self.changed_at = now;
        }
        let is_busy = now - self.changed_at <= BUSY_FOR;
        self.due_at = now + if is_busy { BUSY_PERIOD } else { PERIOD };
        is_changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn names(now: i64) -> Names {
        Names::new(
            "python3".into(),
            Some("a".into()),
            None,
            BootNs(0),
            BootNs(now),
            Tgid(10),
        )
    }

    #[test]
    fn a_quiet_process_is_read_once_a_second_and_a_busy_one_ten_times() {
        let mut names = names(100 * SECOND);
        assert!(!names.update("python3".into(), Some("a".into()), BootNs(100 * SECOND)));
        assert!(!names.is_due(BootNs(100 * SECOND + SECOND / 2)));
        assert!(names.is_due(BootNs(101 * SECOND)));
        assert!(names.update("python3".into(), Some("b".into()), BootNs(101 * SECOND)));
        assert!(names.is_due(BootNs(101 * SECOND + SECOND / 10)));
    }

    #[test]
    fn a_title_that_went_away_is_not_a_change() {
        let mut names = names(0);
        assert!(!names.update("python3".into(), None, BootNs(1)));
        assert_eq!(names.title.as_deref(), Some("a"));
        assert!(names.update("other".into(), None, BootNs(2)));
        assert_eq!(names.title.as_deref(), Some("a"));
    }
}
