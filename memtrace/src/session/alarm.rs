//! Wakes the loop at a time on the boot clock.

use memtrace_host::clock::boot;
use memtrace_model::BootNs;
use std::io;

/// A timer of the kernel: it wakes once, where tokio's timer wheel wakes up to three times. A suspension of
/// the machine does not delay it.
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
        let timespec = |nanoseconds: i64| Timespec {
            tv_sec: nanoseconds / 1_000_000_000,
            tv_nsec: nanoseconds % 1_000_000_000,
        };
        // A time span, since in a time namespace the kernel's clock is another; of zero would switch it off.
        let left = (time - boot()).0.max(1);
        let setting = Itimerspec {
            it_interval: timespec(0),
            it_value: timespec(left),
        };
        // What it had to report of an earlier time is gone with that.
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &setting)?;
        loop {
            self.0.readable().await?.clear_ready();
            // It can have been ready since that earlier time.
            if boot() >= time {
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
        let left = (time - boot()).0.max(0);
        tokio::time::sleep(std::time::Duration::from_nanos(left.cast_unsigned())).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrace_model::DurationNs;

    #[test]
    fn it_rings_at_its_time_and_at_once_where_that_has_passed() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let alarm = Alarm::new().expect("a timer");
            let begin = boot();
            for time in [BootNs(0), begin] {
                alarm.at(time).await.expect("it rings");
            }
            // One that is not waited for leaves nothing behind.
            let soon = begin + DurationNs(1_000_000);
            let late = begin + DurationNs(60_000_000);
            tokio::select! {
                biased;
                rung = alarm.at(late) => rung.expect("a timer"),
                () = std::future::ready(()) => {}
            }
            alarm.at(soon).await.expect("it rings");
            alarm.at(late).await.expect("it rings");
            assert!(boot() >= late);
        });
    }
}
