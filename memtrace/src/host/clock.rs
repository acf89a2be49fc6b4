//! Reading the clocks.

use crate::model::{BootNs, ClockReading, DurationNs, WallNs};

/// The clocks now, read close together.
pub fn read() -> ClockReading {
    ClockReading {
        boot_ns: boot(),
        monotonic_ns: nanoseconds(libc::CLOCK_MONOTONIC),
        wall_ns: WallNs(nanoseconds(libc::CLOCK_REALTIME)),
    }
}

/// Now, on the clock of the recording.
pub fn boot() -> BootNs {
    // macOS has no CLOCK_BOOTTIME; its CLOCK_MONOTONIC goes on during sleep, as that does.
    #[cfg(target_os = "linux")]
    const BOOT: libc::clockid_t = libc::CLOCK_BOOTTIME;
    #[cfg(not(target_os = "linux"))]
    const BOOT: libc::clockid_t = libc::CLOCK_MONOTONIC;
    BootNs(nanoseconds(BOOT))
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
