//! The end of a recording that goes to a root: whether all of it arrived, what is done with the copy
//! on this host, and what is said.

use super::many_hosts::Placed;
use super::pusher::Pusher;
use crate::cli::output::say;
use crate::session::Outcome;
use memtrace_model::quoted;
use memtrace_store::remove_recording;

/// Waits until it has arrived, and removes what stands here; or says how a person carries the rest.
/// `has_more` says that files have come to the recording since it was closed.
pub(super) fn tell(
    pusher: Pusher,
    placed: &Placed,
    outcome: &Outcome,
    has_more: bool,
    is_quiet: bool,
) {
    let words = pusher.words().map(|word| quoted(&word.to_string_lossy()));
    let root = pusher.root().to_owned();
    if let Err(reason) = pusher.finish(has_more, is_quiet) {
        let [source, root] = words;
        let first = match outcome.storage_failure {
            Some(_) => format!("memtrace recover {source} && "),
            None => String::new(),
        };
        say(&format!(
            "not all of it is in {root}: {reason}; to upload the rest: {first}memtrace push \
             {source} {root}"
        ));
        return;
    }
    let removed = remove_recording(&placed.dir);
    let run = format!("{}/run={}", root.trim_end_matches('/'), placed.place.run);
    if !is_quiet {
        let typed = quoted(&run);
        say(&format!(
            "all of it is in {run}; see it with: memtrace report {typed}"
        ));
    }
    match removed {
        Ok(true) => {}
        Ok(false) => say(&format!(
            "{} holds something else too, which stays",
            placed.dir.display()
        )),
        Err(error) => say(&format!(
            "the copy in {} stays: {:#}",
            placed.dir.display(),
            anyhow::Error::from(error)
        )),
    }
}
