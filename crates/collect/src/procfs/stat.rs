//! /proc/PID/stat: who a process is, whether it lives, and how it ended.

use crate::fields::number;
use memtrace_host::clock;
use memtrace_model::{BootNs, Tgid};

/// In task->flags (include/linux/sched.h).
const PF_KTHREAD: u32 = 0x0020_0000;
const PF_EXITING: u32 = 0x0000_0004;

/// What is used of /proc/PID/stat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// The kernel's name for it.
    pub(super) comm: String,
    /// One letter; see proc_pid_stat(5).
    pub(super) state: u8,
    /// Its parent now, which after reparenting is not who forked it.
    pub(super) ppid: Tgid,
    /// Whether it is a kernel thread: no memory of its own, ever.
    pub(super) is_kernel_thread: bool,
    /// Whether its main thread is on its way out: set at the begin of do_exit(), long before a
    /// large address space is torn down and the state becomes that of a zombie.
    pub(crate) is_exiting: bool,
    /// Page faults that took no I/O, of all its threads so far.
    pub(crate) minor_faults: u64,
    /// Threads that have not been released; at least one while the process is a zombie.
    pub(super) thread_count: u32,
    /// Its start in clock ticks since boot.
    pub(super) start_ticks: i64,
    /// Address space in bytes and resident pages: together they tell that memory moved.
    pub(crate) size: (u64, i64),
    /// Where the arguments lie. Placed at random by exec, so another place is another
    /// program image. `None` when the kernel does not tell: no right to ptrace it, or no
    /// memory left.
    pub(super) arg_start: Option<u64>,
    /// Wait status of a zombie. Reads as 0 where we may not ptrace it.
    pub(super) wait_status: i32,
}

impl Stat {
    /// Parses the file. The name stands in parentheses, raw (proc_task_name() without
    /// escapes): it can hold blanks, newlines and parentheses, so its end is the last one.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let open = text.iter().position(|byte| *byte == b'(')?;
        let close = text.iter().rposition(|byte| *byte == b')')?;
        let comm = super::text::comm(text.get(open + 1..close)?);
        let mut fields = text
            .get(close + 1..)?
            .split(u8::is_ascii_whitespace)
            .filter(|field| !field.is_empty());
        // Numbered as in proc_pid_stat(5); `nth` skips what lies between.
        let state = *fields.next()?.first()?; // 3
        let ppid = number(fields.next()?)?; // 4
        let flags: u32 = number(fields.nth(4)?)?; // 9
        let minor_faults = number(fields.next()?)?; // 10
        let thread_count = number(fields.nth(9)?)?; // 20
        let start_ticks = number(fields.nth(1)?)?; // 22
        let vsize = number(fields.next()?)?; // 23
        let rss = number(fields.next()?)?; // 24
        let arg_start = fields.nth(23).and_then(number).filter(|at| *at != 0); // 48
        let wait_status = fields.nth(3).and_then(number).unwrap_or(0); // 52
        Some(Self {
            comm,
            state,
            ppid: Tgid(ppid),
            is_kernel_thread: flags & PF_KTHREAD != 0,
            is_exiting: flags & PF_EXITING != 0,
            minor_faults,
            thread_count,
            start_ticks,
            size: (vsize, rss),
            arg_start,
            wait_status,
        })
    }

    /// Whether its main thread has not ended.
    fn has_main_thread(&self) -> bool {
        !matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// Whether all of it has ended. Its memory went with the last thread, before anyone
    /// waits for it. A leader that ended before its other threads shows as a zombie too,
    /// but then the process goes on.
    pub(crate) fn has_ended(&self) -> bool {
        !self.has_main_thread() && self.thread_count <= 1
    }

    /// Whether the leader has ended and other threads go on.
    pub(super) fn has_lost_its_leader(&self) -> bool {
        !self.has_main_thread() && self.thread_count > 1
    }

    /// When it started.
    pub(crate) fn start(&self) -> BootNs {
        start_of(self.start_ticks)
    }
}

/// A start in clock ticks on the clock of the recording. /proc counts it on CLOCK_BOOTTIME of the
/// reader's time namespace (task->start_boottime in do_task_stat(); real_start_time before 5.5) and
/// rounds down to the tick, which is 10 ms on every architecture that is in use.
fn start_of(ticks: i64) -> BootNs {
    let per_second = i64::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100);
    let tick_ns = 1_000_000_000 / per_second.max(1);
    let shown = ticks.saturating_mul(tick_ns);
    BootNs(shown.saturating_sub(clock::boot_offset().0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: &str = "4242 (NAME) S 17 4242 4242 0 -1 4194304 120 0 0 0 1 2 0 0 20 0 3 0 123456 9000000 250 18446744073709551615 1 2 140730000000000 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 5 6 7 140730000000100 9 10 11 2304\n";

    fn named(name: &str) -> Stat {
        Stat::parse(LINE.replace("NAME", name).as_bytes()).unwrap()
    }

    #[test]
    fn the_fields_that_are_used_stand_where_proc_5_says() {
        assert_eq!(
            named("cat"),
            Stat {
                comm: "cat".to_owned(),
                state: b'S',
                ppid: Tgid(17),
                is_kernel_thread: false,
                is_exiting: false,
                minor_faults: 120,
                thread_count: 3,
                start_ticks: 123_456,
                size: (9_000_000, 250),
                arg_start: Some(140_730_000_000_100),
                wait_status: 2304,
            }
        );
    }

    #[test]
    fn a_name_may_hold_parentheses_blanks_and_newlines() {
        for name in ["a) R 1 (b", "two words", "new\nline", ")", ""] {
            let stat = named(name);
            assert_eq!(stat.comm, name);
            assert_eq!(stat.ppid, Tgid(17));
        }
    }

    #[test]
    fn a_zombie_leader_with_living_threads_has_not_ended() {
        let mut stat = named("cat");
        stat.state = b'Z';
        assert!(!stat.has_ended() && stat.has_lost_its_leader());
        stat.thread_count = 1;
        assert!(stat.has_ended() && !stat.has_lost_its_leader());
    }

    #[test]
    fn the_start_of_this_process_lies_between_boot_and_now() {
        let stat = Stat::parse(&std::fs::read("/proc/self/stat").unwrap()).unwrap();
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let start = stat.start();
        assert!(start.0 > 0 && start.0 <= now.tv_sec * 1_000_000_000 + now.tv_nsec);
        assert!(stat.arg_start.is_some() && !stat.is_kernel_thread);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Stat::parse(&text);
        }

        #[test]
        fn any_name_the_kernel_can_hold_leaves_the_numbers_alone(name in proptest::collection::vec(1_u8.., 0..15)) {
            let mut line = b"1 (".to_vec();
            line.extend(&name);
            line.extend(LINE.split_once("NAME").unwrap().1.bytes());
            let stat = Stat::parse(&line).unwrap();
            prop_assert_eq!(stat.ppid, Tgid(17));
            prop_assert_eq!(stat.start_ticks, 123_456);
        }
    }
}
