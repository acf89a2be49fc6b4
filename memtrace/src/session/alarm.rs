//! Wakes the loop at a time on the boot clock.

use memtrace_model::BootNs;
use std::io;

/// A timer of the kernel: it wakes once, and tokio's wheel of timers up to three times on the way. It is
/// late by no suspension of the machine.
#[cfg(target_os = "linux")]
pub(super) struct Alarm(tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>);

#[cfg(target_os = "linux")]
impl Alarm {
    pub(super) fn new() -> io::Result<Self> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
        // SAFETY: an owned descriptor, which nobody closes or replaces while it is registered.
        let registered = unsafe {
            tokio::io::unix::AsyncFd::register_with_interest(timer, tokio::io::Interest::READABLE)
        };
        Ok(Self(registered?))
    }

    /// Waits until then; at once where that has passed. Cancel-safe.
    pub(super) async fn at(&self, time: BootNs) -> io::Result<()> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // Zero would switch it off.
        let time = BootNs(time.0.max(1));
        let value = Timespec {
            tv_sec: time.0 / 1_000_000_000,
            tv_nsec: time.0 % 1_000_000_000,
        };
        let setting = Itimerspec {
            it_interval: zero,
            it_value: value,
        };
        // What it had to report of an earlier time is gone with that.
        timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &setting)?;
        loop {
            let mut ready = self.0.readable().await?;
            ready.clear_ready();
            if memtrace_host::clock::boot() >= time {
                return Ok(());
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) struct Alarm;

#[cfg(not(target_os = "linux"))]
impl Alarm {
    #[expect(clippy::unnecessary_wraps, reason = "as on Linux")]
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self)
    }

    /// Waits until then; at once where that has passed. Cancel-safe.
    pub(super) async fn at(&self, time: BootNs) -> io::Result<()> {
        let left = (time - memtrace_host::clock::boot()).0.max(0);
        tokio::time::sleep(std::time::Duration::from_nanos(left.cast_unsigned())).await;
        Ok(())
    }
}
