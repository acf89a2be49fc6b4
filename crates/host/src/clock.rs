//! Reading the clocks.

use memtrace_model::{BootNs, ClockReading, DurationNs, WallNs};
use std::sync::OnceLock;

/// The clocks now, read close together.
pub fn read() -> ClockReading {
    ClockReading {
        boot_ns: boot(),
        monotonic_ns: nanoseconds(libc::CLOCK_MONOTONIC),
        wall_ns: WallNs(nanoseconds(libc::CLOCK_REALTIME)),
    }
}

/// The same, again where this thread was interrupted between them: of a few attempts the one that
/// took least.
pub fn read_together() -> ClockReading {
    const ATTEMPTS: usize = 5;
    let attempts = (0..ATTEMPTS).map(|_| {
        let reading = read();
        ((boot() - reading.boot_ns).0, reading)
    });
    let best = attempts.min_by_key(|(took, _)| *took);
    best.map_or_else(read, |(_, reading)| reading)
}

/// How well the wall clock is kept, as the kernel tells.
#[derive(Clone, Copy, Debug)]
pub struct Discipline {
    /// Whether it takes the clock to be synchronized.
    pub is_synchronized: bool,
    /// The bound that it assumes for the error.
    pub max_error: DurationNs,
    /// What whoever synchronizes takes the error to be.
    pub estimated_error: DurationNs,
}

/// How well the wall clock is kept (adjtimex(2), which needs no right to be asked). `None` where
/// the platform has no such call, or it is refused.
pub fn discipline() -> Option<Discipline> {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: all zeroes is a valid timex, and asks for nothing to be set.
        let mut timex: libc::timex = unsafe { std::mem::zeroed() };
        // SAFETY: `timex` is a valid timex.
        if unsafe { libc::adjtimex(&raw mut timex) } < 0 {
            return None;
        }
        // 32 bits wide on some platforms.
        #[allow(clippy::useless_conversion)]
        let microseconds = |count: libc::c_long| DurationNs(i64::from(count).saturating_mul(1_000));
        Some(Discipline {
            is_synchronized: timex.status & libc::STA_UNSYNC == 0,
            max_error: microseconds(timex.maxerror),
            estimated_error: microseconds(timex.esterror),
        })
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// Now, on the clock of the recording: the machine's own, as the kernel's events have it, also where
/// this process lives in a time namespace, whose clock is another.
pub fn boot() -> BootNs {
    // macOS has no CLOCK_BOOTTIME; its CLOCK_MONOTONIC goes on during sleep, as that does.
    #[cfg(target_os = "linux")]
    const BOOT: libc::clockid_t = libc::CLOCK_BOOTTIME;
    #[cfg(not(target_os = "linux"))]
    const BOOT: libc::clockid_t = libc::CLOCK_MONOTONIC;
    BootNs(nanoseconds(BOOT).saturating_sub(boot_offset().0))
}

/// By how much this process's CLOCK_BOOTTIME, and what /proc shows it of that, is ahead of the machine's
/// (time_namespaces(7)). Nothing but for programs that were put into a time namespace.
pub fn boot_offset() -> DurationNs {
    static OFFSET: OnceLock<DurationNs> = OnceLock::new();
    *OFFSET.get_or_init(|| {
        // The file tells of the namespace of children, which a process that unshared is not in itself.
        let namespace = |name: &str| std::fs::read_link(format!("/proc/self/ns/{name}")).ok();
        if namespace("time") != namespace("time_for_children") {
            return DurationNs(0);
        }
        let text = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        boot_offset_in(&text).unwrap_or_default()
    })
}

/// Its line: `boottime`, seconds, and nanoseconds, which are added to them.
fn boot_offset_in(text: &str) -> Option<DurationNs> {
    let mut words = text
        .lines()
        .find_map(|line| line.strip_prefix("boottime"))?
        .split_ascii_whitespace();
    let mut number = || words.next()?.parse::<i64>().ok();
    let (seconds, nanoseconds) = (number()?, number()?);
    Some(DurationNs(
        seconds
            .checked_mul(1_000_000_000)?
            .checked_add(nanoseconds)?,
    ))
}

/// CPU time of this thread so far.
pub fn thread_cpu() -> DurationNs {
    DurationNs(nanoseconds(libc::CLOCK_THREAD_CPUTIME_ID))
}

/// Time between two ticks of the kernel (1/HZ): the resolution of its coarse clocks.
#[cfg(target_os = "linux")]
pub fn tick() -> DurationNs {
    let mut tick = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `tick` is a valid timespec, and the clock exists since 2.6.32.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut tick) };
    DurationNs(tick.tv_nsec)
}

fn nanoseconds(clock: libc::clockid_t) -> i64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid timespec; the clocks asked for exist on every supported
    // platform, and where one did not, `now` stays zero.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec
        .saturating_mul(1_000_000_000)
        .saturating_add(now.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_of_a_time_namespace_is_in_its_line() {
        let text = "monotonic          17         0\nboottime      -100000 500000000\n";
        assert_eq!(boot_offset_in(text), Some(DurationNs(-99_999_500_000_000)));
        assert_eq!(boot_offset_in("monotonic 1 0\n"), None);
        assert_eq!(boot_offset_in("boottime 99999999999999 0\n"), None);
    }
}
