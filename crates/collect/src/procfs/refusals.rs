//! What /proc refused to show, counted and reported by cause.

use crate::Pass;
use memtrace_model::{DiagKind, Severity};
use std::io;

/// What was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// All of a process.
    Process,
    /// The link to the file it runs, which needs the right to ptrace it.
    Exe,
}

const CAUSES: [(Refusal, Severity, &str, &str); 2] = [
    (
        Refusal::Process,
        Severity::Loss,
        "/proc/PID",
        "processes could not be read and are missing where they belong to the recording: \
         they are hidden by the hidepid option of /proc; CAP_SYS_PTRACE shows them",
    ),
    (
        Refusal::Exe,
        Severity::Degraded,
        "/proc/PID/exe",
        "the executed file of processes of other users is unknown; CAP_SYS_PTRACE shows it",
    ),
];

/// Refusals since they were last reported.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    pending: [i64; CAUSES.len()],
    is_reported: [bool; CAUSES.len()],
}

impl Refusals {
    /// Counts an error if it is a refusal; says whether it was.
    pub(super) fn count(&mut self, refusal: Refusal, error: &io::Error) -> bool {
        let is_refusal = error.kind() == io::ErrorKind::PermissionDenied;
        if is_refusal && let Some(pending) = self.pending.get_mut(refusal as usize) {
            *pending += 1;
        }
        is_refusal
    }

    /// Writes what is new: a cause at once when it first shows, then with each keyframe.
    pub(super) fn write(&mut self, pass: &mut Pass<'_>) {
        let counters = self.pending.iter_mut().zip(&mut self.is_reported);
        for ((pending, is_reported), (_, severity, subject, detail)) in counters.zip(CAUSES) {
            if *pending == 0 || (*is_reported && !pass.tick.is_keyframe) {
                continue;
            }
            let count = Some(std::mem::take(pending));
            pass.tell(severity, DiagKind::Permission, subject, count, detail);
            *is_reported = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ProcessTable, Tick};
    use memtrace_model::{BootNs, Record};

    fn tick(is_keyframe: bool) -> Tick {
        Tick {
            is_keyframe,
            ..Tick::at(BootNs(1))
        }
    }

    fn counts(refusals: &mut Refusals, is_keyframe: bool) -> Vec<Option<i64>> {
        let mut out = Vec::new();
        refusals.write(&mut Pass::new(
            &tick(is_keyframe),
            &mut ProcessTable::default(),
            &mut out,
        ));
        out.iter()
            .map(|record| match record {
                Record::Diag(row) => row.count,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn a_cause_stands_where_its_number_says() {
        for (position, (refusal, ..)) in CAUSES.iter().enumerate() {
            assert_eq!(*refusal as usize, position);
        }
    }

    #[test]
    fn a_cause_is_reported_at_once_and_its_growth_with_the_keyframes() {
        let mut refusals = Refusals::default();
        let denied = io::ErrorKind::PermissionDenied.into();
        assert!(refusals.count(Refusal::Process, &denied));
        assert!(refusals.count(Refusal::Process, &denied));
        assert_eq!(counts(&mut refusals, false), [Some(2)]);
        assert!(refusals.count(Refusal::Process, &denied));
        assert_eq!(counts(&mut refusals, false), []);
        assert_eq!(counts(&mut refusals, true), [Some(1)]);
        assert_eq!(counts(&mut refusals, true), []);
    }

    #[test]
    fn another_error_is_not_a_refusal() {
        let mut refusals = Refusals::default();
        assert!(!refusals.count(Refusal::Exe, &io::ErrorKind::NotFound.into()));
        assert_eq!(counts(&mut refusals, true), []);
    }
}
