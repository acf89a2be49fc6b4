//! How well the wall clock of a host was known while it was recorded, by the table `clock`.

use super::bins::{Binned, WallClock};
use memtrace_model::{ClockReading, ClockRow, DurationNs, Order, RowSource, RunInfo};
use std::sync::Arc;

/// The wall clock of a recorded host.
#[derive(Clone, Debug, Default)]
pub(super) struct HostClock {
    readings: Vec<ClockReading>,
    /// Whether the kernel took it to be synchronized all the time; `None` when nothing tells.
    pub(super) is_synchronized: Option<bool>,
    /// By how much it was off at most, as the kernel assumes; `None` when nothing tells.
    pub(super) max_error: Option<DurationNs>,
    /// How often it was set.
    pub(super) step_count: usize,
}

/// What is seen of a recording that is one of many hosts.
#[derive(Clone, Debug)]
pub struct HostSeen {
    pub(super) clock: HostClock,
    pub(super) binned: Option<Binned>,
    /// What the roles of `binned` are called.
    pub(super) role_names: Vec<Arc<str>>,
}

impl HostClock {
    /// Reads `clock`, beside what `run.json` says.
    pub(super) fn read<S: RowSource>(source: &S, info: &RunInfo) -> Result<Self, S::Error> {
        let mut clock = Self {
            readings: info.clocks.clone(),
            ..Self::default()
        };
        source.scan(&[], |row: ClockRow| {
            clock.readings.push(ClockReading {
                boot_ns: row.boot_ns,
                monotonic_ns: row.monotonic_ns.0,
                wall_ns: row.ts,
            });
            let so_far = clock.is_synchronized.or(row.is_synchronized);
            clock.is_synchronized =
                so_far.map(|so_far| so_far && row.is_synchronized == Some(true));
            clock.max_error = clock.max_error.max(row.max_error_ns);
            clock.step_count += usize::from(row.step_ns.is_some());
        })?;
        clock.readings.order_by_key(|reading| reading.boot_ns);
        Ok(clock)
    }

    /// How often it was read.
    pub(super) fn reading_count(&self) -> usize {
        self.readings.len()
    }

    /// By how much it may be off; `None` where nobody knows, as when nobody synchronizes it.
    pub(super) fn error(&self) -> Option<DurationNs> {
        self.max_error
            .filter(|_| self.is_synchronized == Some(true))
    }

    /// The readings with the error, for what is kept by the wall clock.
    pub(super) fn wall_clock(&self) -> WallClock {
        WallClock::new(self.readings.clone(), self.error())
    }
}
