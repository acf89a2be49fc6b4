//! Whether a process can share anonymous pages with one that it forked.
//!
//! A reading says that nobody shares them; that is true until the next fork. The child shares
//! all of them until it executes another program or ends, and so do those that it forked
//! before that.

use super::process::Process;
use memtrace_model::{BootNs, FirstSeenBy, Upid};
use std::collections::HashMap;

/// When each process executed programs under observation.
pub(super) type Execs = HashMap<Upid, Vec<BootNs>>;

/// Until when a process that fork made was a copy, by its first exec.
pub(super) fn copy_until(process: &Process, execs: &Execs) -> Option<BootNs> {
    let first = execs.get(&process.upid)?.iter().copied().min();
    let is_copy = process.first_seen_by == Some(FirstSeenBy::Fork);
    first.filter(|first| is_copy && *first > process.start.boot_ns)
}

/// Who was forked by whom, and for how long it shared its parent's pages.
#[derive(Debug)]
pub(super) struct Forks {
    children: HashMap<usize, Vec<Sharer>>,
    /// By process: its start, and when it executed programs, in order.
    images: Vec<Vec<BootNs>>,
}

#[derive(Clone, Copy, Debug)]
struct Sharer {
    process: usize,
    from: BootNs,
    /// `None` while it does.
    until: Option<BootNs>,
}

impl Forks {
    pub(super) fn of(processes: &[Process], execs: &Execs) -> Self {
        let images: Vec<Vec<BootNs>> = processes
            .iter()
            .map(|process| {
                let own = execs.get(&process.upid).into_iter().flatten().copied();
                let mut begins: Vec<BootNs> = own.collect();
                begins.sort_unstable();
                begins.insert(0, process.start.boot_ns);
                begins
            })
            .collect();
        let mut children: HashMap<usize, Vec<Sharer>> = HashMap::new();
        for (position, process) in processes.iter().enumerate() {
            let Some(parent) = process.parent else {
                continue;
            };
            let exec = images
                .get(position)
                .and_then(|begins| begins.get(1).copied());
            let ends = [exec, process.exit_boot_ns()].into_iter().flatten();
            children.entry(parent).or_default().push(Sharer {
                process: position,
                from: process.start.boot_ns,
                until: ends.min(),
            });
        }
        Self { children, images }
    }

    /// Whether at an instant some process can share pages of the program that `process` then
    /// ran, because it forked it since it executed that.
    pub(super) fn may_share_image(&self, process: usize, at: BootNs) -> bool {
        let begins = self.images.get(process).into_iter().flatten().copied();
        let begin = begins.take_while(|begin| *begin <= at).last();
        begin.is_some_and(|begin| self.may_share(process, begin, at))
    }

    /// Whether at an instant some process can share what `process` had for itself earlier.
    pub(super) fn may_share(&self, process: usize, alone_at: BootNs, at: BootNs) -> bool {
        let of = |parent: usize| self.children.get(&parent).into_iter().flatten().copied();
        let mut open: Vec<Sharer> = of(process).filter(|child| child.from > alone_at).collect();
        while let Some(child) = open.pop() {
            if child.from > at {
                continue;
            }
            let Some(until) = child.until.filter(|until| *until <= at) else {
                return true;
            };
            open.extend(of(child.process).filter(|below| below.from < until));
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{Reported, Script, boot, upid};
    use memtrace_model::Tgid;

    /// `(pid, parent, start, exec, exit)`, in seconds.
    type Life = (u32, Option<u32>, f64, Option<f64>, Option<f64>);

    fn forks(lives: &[Life]) -> (Forks, usize) {
        let mut run = Script::command(&["x"], 100.0);
        let mut execs = Execs::new();
        for &(tgid, parent, start, exec, exit) in lives {
            run.process(tgid, parent, start, "x");
            execs.extend(exec.map(|exec| (upid(Tgid(tgid)), vec![boot(exec)])));
            if let Some(exit) = exit {
                run.exit(tgid, exit, 0);
            }
        }
        let analysis = run.analyzed(None);
        let forks = Forks::of(&analysis.processes, &execs);
        let first = analysis
            .processes
            .iter()
            .position(|process| process.tgid == Some(Tgid(1)));
        (forks, first.expect("the first"))
    }

    fn may_share(lives: &[Life], alone_at: f64, at: f64) -> bool {
        let (forks, first) = forks(lives);
        forks.may_share(first, boot(alone_at), boot(at))
    }

    #[test]
    fn forks_count_from_the_exec_of_the_program_that_runs() {
        let (forks, first) = forks(&[
            (1, None, 0.0, Some(20.0), None),
            (2, Some(1), 10.0, None, None),
            (3, Some(1), 30.0, None, Some(40.0)),
        ]);
        let may_share = |at| forks.may_share_image(first, boot(at));
        assert!(!may_share(5.0));
        assert!(may_share(15.0), "with the child of the first program");
        assert!(!may_share(25.0), "of another program");
        assert!(may_share(35.0));
        assert!(!may_share(45.0), "the child has gone");
    }

    #[test]
    fn a_child_shares_from_its_fork_to_its_exec_or_end() {
        let lives = |exec, exit| [(1, None, 0.0, None, None), (2, Some(1), 10.0, exec, exit)];
        assert!(!may_share(&lives(None, None), 5.0, 9.0), "not yet forked");
        assert!(may_share(&lives(None, None), 5.0, 11.0));
        assert!(may_share(&lives(Some(12.0), None), 5.0, 11.0));
        assert!(!may_share(&lives(Some(12.0), None), 5.0, 13.0));
        assert!(!may_share(&lives(None, Some(12.0)), 5.0, 13.0));
        assert!(
            !may_share(&lives(None, None), 11.0, 13.0),
            "the reading knew it"
        );
    }

    #[test]
    fn a_grandchild_goes_on_sharing_when_the_child_has_gone() {
        let lives = |start| {
            [
                (1, None, 0.0, None, None),
                (2, Some(1), 10.0, Some(20.0), Some(30.0)),
                (3, Some(2), start, None, None),
            ]
        };
        assert!(may_share(&lives(15.0), 5.0, 40.0));
        assert!(!may_share(&lives(25.0), 5.0, 40.0), "of another program");
    }
}
