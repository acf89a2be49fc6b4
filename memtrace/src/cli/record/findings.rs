//! Phases and the memory of roles as tables, saved once the recording is closed.

use super::afterwards;
use crate::session::Outcome;
use memtrace_host::Person;
use std::ffi::OsStr;

/// Of more rows than this it takes too long to do it unasked.
const ROWS_MAX: i64 = 10_000_000;

/// Saves them. Answers why that was not done.
pub(super) fn save(
    outcome: &Outcome,
    person: Option<&Person>,
    is_quiet: bool,
) -> Result<(), String> {
    if outcome.row_count > ROWS_MAX {
        return Err(format!(
            "it has more than {} million rows",
            ROWS_MAX / 1_000_000
        ));
    }
    let words = ["report", "--save-findings", "--"].map(OsStr::new);
    let words = [&words[..], &[outcome.dir.as_os_str()]].concat();
    let slow = (!is_quiet).then_some("saving phases and roles as tables ...");
    afterwards::run(&words, person, slow).map(drop)
}
