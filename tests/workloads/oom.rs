//! A child that takes memory until the kernel kills it. Run it inside a memory cgroup
//! with a limit: `--most` only ends it where there is none.

use crate::Workload;
use crate::args::Args;
use crate::sys::{self, Mapping};
use std::io;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "oom",
    help: "--step B --pause-ms M --most B: a child takes memory until it is killed",
    run,
};

fn run(args: &Args) -> io::Result<()> {
    let step = args.size("step", 256 << 10)?;
    let pause_ns = args.number("pause-ms", 0)?.cast_signed() * 1_000_000;
    let most = args.size("most", 2 << 30)?;
    // The victim writes its own readings here, since it can't say anything at its end.
    let readings = Mapping::shared(sys::page_size())?;
    readings.touch(usize::MAX);
    let slot = readings.start().cast::<i64>();
    let victim = sys::fork_child(|| {
        // The kernel takes the victim, not us or who records us.
        std::fs::write("/proc/self/oom_score_adj", "1000")?;
        let mapping = Mapping::anon(most)?;
        mapping.advise(libc::MADV_NOHUGEPAGE)?;
        let scratch = Mapping::anon(sys::page_size())?;
        scratch.touch(usize::MAX);
        for from in (0..most).step_by(step) {
            mapping.touch_range(from, from + step);
            // Before 6.2 a thread holds back what its last page faults brought; this has it
            // hand that over (add_mm_rss_vec() in zap_pte_range()).
            scratch.advise(libc::MADV_DONTNEED)?;
            // SAFETY: the slot is a live page that parent and child share; only the
            // child writes, and the parent reads after its end.
            unsafe { slot.write_volatile(sys::status().vmhwm_bytes) };
            sys::sleep_ns(pause_ns);
        }
        Err(io::Error::other("reached --most and was not killed"))
    })?;
    let ended = sys::wait(victim)?;
    // SAFETY: as above; the child is gone.
    let last_bytes = unsafe { slot.read_volatile() };
    sys::say(&format!(
        "{{\"pid\":{victim},\"killed\":{},\"ru_maxrss_bytes\":{},\
         \"last_own_vmhwm_bytes\":{last_bytes},\"step_bytes\":{step}}}",
        libc::WIFSIGNALED(ended.status) && libc::WTERMSIG(ended.status) == libc::SIGKILL,
        ended.maxrss_bytes,
    ))
}
