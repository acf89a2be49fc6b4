//! Trials that are tests of their own: damage, kills, and staged OOM kills.

use super::finding::{Finding, Verdict};
use crate::test;
use anyhow::Result;

/// What, what is asked for, and a part of the names of the tests that ask it.
const STAGED: &[[&str; 3]] = &[
    [
        "flipped bits",
        "none changes an answer without being reported",
        "a_flipped_bit",
    ],
    [
        "writer and recover killed",
        "readable, nothing that was flushed is missing",
        "survives_a_kill_of_the_writer",
    ],
    [
        "recorder killed",
        "readable, nothing older than a second is missing",
        "a_killed_recorder",
    ],
    [
        "staged OOM kills",
        "cause, grower and largest holder right in each",
        "needs_memcg::staged",
    ],
];

/// Runs each; what the tests say goes to the terminal.
pub(super) fn run() -> Result<Vec<Finding>> {
    let findings = STAGED.iter().map(|[what, asked, name]| {
        let [count, skipped] = test::count_named(name)?;
        let ran = count - skipped;
        let (verdict, found) = match count {
            // A name that no test has any more must not read as passed.
            0 => (Verdict::Missed, format!("no test is named {name}")),
            _ if ran == 0 => (Verdict::Unknown, "no test can run here".to_owned()),
            _ => match test::run_named(name) {
                Err(error) => (Verdict::Missed, format!("{error:#}")),
                Ok(()) if skipped > 0 => {
                    let found = format!("{ran} tests passed, {skipped} can't run here");
                    (Verdict::Unknown, found)
                }
                Ok(()) => (Verdict::Met, format!("{ran} tests passed")),
            },
        };
        Ok(Finding {
            trial: "staged".to_owned(),
            what: (*what).to_owned(),
            asked: (*asked).to_owned(),
            found,
            verdict,
        })
    });
    findings.collect()
}
