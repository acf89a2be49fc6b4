//! An OOM kill whose victim is not the one to blame: one process grows, another is offered to
//! the kernel. Run it inside a memory cgroup with a limit.

use crate::Workload;
use crate::args::Args;
use crate::sys::{self, Mapping};
use std::io;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "scapegoat",
    help: "--held B --step B --gap-ms G --most B: one grows until another one is killed",
    run,
};

fn run(args: &Args) -> io::Result<()> {
    let held = args.size("held", 64 << 20)?;
    let step = args.size("step", 4 << 20)?;
    let gap_ns = args.number("gap-ms", 20)?.cast_signed() * 1_000_000;
    let most = args.size("most", 2 << 30)?;
    // The culprit writes how much it has here, since it is killed without a word.
    let progress = Mapping::shared(sys::page_size())?;
    progress.touch(usize::MAX);
    let slot = progress.start().cast::<i64>();
    let victim = sys::fork_child(|| {
        sys::die_with_parent()?;
        std::fs::write("/proc/self/oom_score_adj", "1000")?;
        let mapping = Mapping::anon(held)?;
        mapping.touch(held);
        loop {
            sys::sleep_ns(3_600_000_000_000);
        }
    })?;
    let culprit = sys::fork_child(|| {
        sys::die_with_parent()?;
        let mapping = Mapping::anon(most)?;
        mapping.advise(libc::MADV_NOHUGEPAGE)?;
        for from in (0..most).step_by(step) {
            mapping.touch_range(from, from + step);
            // SAFETY: the slot is a live page that parent and child share; only the child
            // writes, and the parent reads after its end.
            unsafe { slot.write_volatile((from + step) as i64) };
            sys::sleep_ns(gap_ns);
        }
        Err(io::Error::other("reached --most and nobody was killed"))
    })?;
    let ended = sys::wait(victim)?;
    // SAFETY: the child is ours and not yet waited for, so its id is not reused.
    sys::check(unsafe { libc::kill(culprit, libc::SIGKILL) })?;
    sys::wait(culprit)?;
    // SAFETY: as above; the child is gone.
    let grown = unsafe { slot.read_volatile() };
    sys::say(&format!(
        "{{\"victim\":{victim},\"culprit\":{culprit},\"killed\":{},\"held_bytes\":{held},\
         \"grown_bytes\":{grown},\"step_bytes\":{step}}}",
        libc::WIFSIGNALED(ended.status) && libc::WTERMSIG(ended.status) == libc::SIGKILL,
    ))
}
