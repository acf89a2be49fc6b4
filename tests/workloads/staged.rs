//! OOM kills whose cause is known: who grows until the limit is met, and three others that hold
//! more or less. Run it inside a memory cgroup with a limit.

use crate::Workload;
use crate::args::{Args, bad};
use crate::sys::{self, Mapping};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "staged",
    help: "--kind K --limit B --file PATH --beside DIR --outside DIR: an OOM kill of known cause",
    run,
};

const MIB: usize = 1 << 20;
/// The kernel takes this one. To spare one takes a right that even root can lack.
const OFFERED: i32 = 1_000;
/// So much time lies between two steps of what grows.
const GAP_NS: i64 = 80_000_000;
/// Growers begin after the others have what they hold.
const BEGIN_NS: i64 = 1_000_000_000;

/// What everybody here knows of the stage.
struct Stage {
    limit: usize,
    file: String,
    beside: String,
    outside: String,
    /// Set by who has grown as far as another waits for.
    flag: Mapping,
}

fn run(args: &Args) -> io::Result<()> {
    let kind = args.text("kind", "single");
    let stage = Stage {
        limit: args.size("limit", 256 << 20)?,
        file: args.text("file", ""),
        beside: args.text("beside", ""),
        outside: args.text("outside", ""),
        flag: Mapping::shared(sys::page_size())?,
    };
    stage.flag.touch(1);
    // SAFETY: a live page of our own, and nobody else has it yet.
    unsafe { stage.flag.start().write_volatile(0) };
    let truth = match kind.as_str() {
        "single" => stage.single()?,
        "trigger" => stage.trigger()?,
        "spike" => stage.spike()?,
        "tmpfs" => stage.tmpfs()?,
        "offered" => stage.offered()?,
        "copies" => stage.copies()?,
        "cache" => stage.cache()?,
        "groups" => stage.groups()?,
        "root" => return stage.root(),
        other => return Err(bad(format!("--kind {other:?} is not a stage"))),
    };
    sys::say(&truth)?;
    // Whoever is killed ends it for all: they die with this process.
    sys::wait(-1).map(drop)
}

impl Stage {
    /// One grows, and is the largest.
    fn single(&self) -> io::Result<String> {
        self.hold([20, 30, 40])?;
        let grower = child(0, || self.grow(4 * MIB, usize::MAX))?;
        Ok(format!(
            "{{\"grower\":{grower},\"largest\":{grower},\"victim\":{grower}}}"
        ))
    }

    /// One grows nearly to the limit, and a small one meets it. Another one holds most.
    fn trigger(&self) -> io::Result<String> {
        let [.., largest] = self.hold([20, 30, 110])?;
        // What is left for the small one is less than the other takes in a second, also where a
        // machine is slow.
        let most = self.limit - (160 + 10) * MIB;
        let grower = child(OFFERED, || {
            self.grow(6 * MIB, most)?;
            self.set_flag();
            forever()
        })?;
        let trigger = child(0, || {
            self.wait_for_flag();
            take(MIB, usize::MAX, 5_000_000)
        })?;
        Ok(format!(
            "{{\"grower\":{grower},\"largest\":{largest},\"victim\":{grower},\
             \"trigger\":{trigger}}}"
        ))
    }

    /// One leaks for seconds, and another one takes the rest at once.
    fn spike(&self) -> io::Result<String> {
        self.hold([20, 30, 40])?;
        let leaker = child(OFFERED, || {
            self.grow(2 * MIB, 92 * MIB)?;
            self.set_flag();
            take(2 * MIB, usize::MAX, GAP_NS)
        })?;
        let spiker = child(0, || {
            self.wait_for_flag();
            take(self.limit, usize::MAX, 0)
        })?;
        Ok(format!(
            "{{\"grower\":{spiker},\"leaker\":{leaker},\"largest\":{leaker},\
             \"victim\":{leaker},\"is_sudden\":true}}"
        ))
    }

    /// One writes to a file of a tmpfs, which nobody maps.
    fn tmpfs(&self) -> io::Result<String> {
        let [.., largest] = self.hold([20, 30, 40])?;
        let writer = child(0, || {
            let file = File::create(&self.file)?;
            sys::sleep_ns(BEGIN_NS);
            let step = Mapping::anon(4 * MIB)?;
            step.touch(4 * MIB);
            // SAFETY: the mapping is that long, touched, and lives as long as the slice.
            let step = unsafe { std::slice::from_raw_parts(step.start(), 4 * MIB) };
            for place in 0_u64.. {
                file.write_all_at(step, place * step.len() as u64)?;
                sys::sleep_ns(GAP_NS);
            }
            Ok(())
        })?;
        Ok(format!(
            "{{\"writer\":{writer},\"largest\":{largest},\"victim\":{largest}}}"
        ))
    }

    /// One grows, and the kernel takes another one that is offered to it.
    fn offered(&self) -> io::Result<String> {
        let [.., largest] = self.hold([20, 30, 110])?;
        let victim = self.holder(16, OFFERED)?;
        let grower = child(0, || self.grow(4 * MIB, usize::MAX))?;
        Ok(format!(
            "{{\"grower\":{grower},\"largest\":{largest},\"victim\":{victim}}}"
        ))
    }

    /// Children write to the memory that they inherited: no RSS moves.
    fn copies(&self) -> io::Result<String> {
        const INHERITED: usize = 60 * MIB;
        self.hold([16, 20, 24])?;
        let parent = child(0, || {
            let memory = Mapping::anon(INHERITED)?;
            memory.advise(libc::MADV_NOHUGEPAGE)?;
            memory.touch(INHERITED);
            for _ in 0..5 {
                child(0, || {
                    sys::sleep_ns(BEGIN_NS);
                    for from in (0..INHERITED).step_by(MIB) {
                        memory.touch_range(from, from + MIB);
                        sys::sleep_ns(GAP_NS);
                    }
                    forever()
                })?;
            }
            sys::wait(-1).map(drop)
        })?;
        Ok(format!(
            "{{\"parent\":{parent},\"largest_bytes\":{INHERITED},\"copiers\":5}}"
        ))
    }

    /// One grows in a group that is full of page cache.
    fn cache(&self) -> io::Result<String> {
        self.hold([20, 30, 40])?;
        let mut file = File::create(&self.file)?;
        let block = vec![1; MIB];
        for _ in 0..96 {
            file.write_all(&block)?;
        }
        drop(block);
        // What is not yet written could not be dropped.
        file.sync_all()?;
        let grower = child(0, || self.grow(4 * MIB, usize::MAX))?;
        Ok(format!(
            "{{\"grower\":{grower},\"largest\":{grower},\"victim\":{grower}}}"
        ))
    }

    /// One grows in a group below the one with the limit; two others live in a group beside it,
    /// and the third one outside, where it has more and takes more.
    fn groups(&self) -> io::Result<String> {
        for mib in [20, 30] {
            child(0, || {
                enter(&self.beside)?;
                take(mib * MIB, mib * MIB, 0)?;
                forever()
            })?;
        }
        let outside = child(0, || {
            enter(&self.outside)?;
            sys::sleep_ns(BEGIN_NS);
            take(8 * MIB, self.limit * 3 / 2, GAP_NS)?;
            forever()
        })?;
        let grower = child(0, || self.grow(4 * MIB, usize::MAX))?;
        Ok(format!(
            "{{\"grower\":{grower},\"largest\":{grower},\"victim\":{grower},\
             \"outside\":{outside}}}"
        ))
    }

    /// The root of the tree itself grows.
    fn root(&self) -> io::Result<()> {
        self.hold([20, 30, 40])?;
        let own = std::process::id();
        sys::say(&format!(
            "{{\"grower\":{own},\"largest\":{own},\"victim\":{own}}}"
        ))?;
        self.grow(4 * MIB, usize::MAX)
    }

    /// Says that a process has grown as far as another waits for.
    fn set_flag(&self) {
        // SAFETY: a live page that all share; only one process writes it.
        unsafe { self.flag.start().write_volatile(1) };
    }

    fn wait_for_flag(&self) {
        // SAFETY: a live page that all share.
        while unsafe { self.flag.start().read_volatile() } == 0 {
            sys::sleep_ns(1_000_000);
        }
    }

    /// Three that hold so many MiB each.
    fn hold(&self, mib: [usize; 3]) -> io::Result<[i32; 3]> {
        let [a, b, c] = mib.map(|mib| self.holder(mib, 0));
        Ok([a?, b?, c?])
    }

    fn holder(&self, mib: usize, adjustment: i32) -> io::Result<i32> {
        child(adjustment, || {
            take(mib * MIB, mib * MIB, 0)?;
            forever()
        })
    }

    /// Grows by a step and a pause, slowly enough to be seen.
    fn grow(&self, step: usize, most: usize) -> io::Result<()> {
        sys::sleep_ns(BEGIN_NS);
        take(step, most, GAP_NS)
    }
}

/// A child that dies with its parent.
fn child(adjustment: i32, body: impl FnOnce() -> io::Result<()>) -> io::Result<i32> {
    sys::fork_child(|| {
        sys::die_with_parent()?;
        std::fs::write("/proc/self/oom_score_adj", adjustment.to_string())?;
        body()
    })
}

/// Takes memory, a step and a pause at a time, and keeps it for as long as the process lives.
fn take(step: usize, most: usize, gap_ns: i64) -> io::Result<()> {
    let room = most.min(1 << 30);
    let mapping = Mapping::anon(room)?;
    mapping.advise(libc::MADV_NOHUGEPAGE)?;
    for from in (0..room).step_by(step) {
        mapping.touch_range(from, (from + step).min(room));
        sys::sleep_ns(gap_ns);
    }
    std::mem::forget(mapping);
    match most {
        usize::MAX => Err(io::Error::other("took 1 GiB and nobody was killed")),
        _ => Ok(()),
    }
}

/// Goes into a cgroup.
fn enter(group: &str) -> io::Result<()> {
    std::fs::write(
        format!("{group}/cgroup.procs"),
        std::process::id().to_string(),
    )
}

fn forever() -> io::Result<()> {
    loop {
        sys::sleep_ns(3_600_000_000_000);
    }
}
