//! A tmpfs that is full for moments only.

use super::book::{Book, Score, no_loss};
use crate::program;
use crate::recorder::record;
use anyhow::Result;
use memtrace_model::tables::TmpfsRow;
use std::path::Path;
use std::process::Command;

const SIZE: i64 = 32 << 20;
/// Before 6.2 a kernel's counter of pages in use is read without what each CPU holds back.
const HELD_BACK: i64 = 1 << 20;

/// A program fills a removed file of a small tmpfs until SIGBUS ends it, and the file goes with it.
///
/// # Errors
/// When the run itself fails.
pub fn full_tmpfs(words: &[&str]) -> Result<Vec<Score>> {
    let dir = tempfile::tempdir()?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c"]);
    command.arg(
        r#"ulimit -c 0; mount -t tmpfs -o size="$2" none "$1" && { "$0" bus-error --path "$1/file"; sleep 3; }"#,
    );
    command.arg(program::workload()?);
    command.arg(dir.path()).arg(SIZE.to_string());
    let recorded = record(words, &command)?;
    let book = Book::open(&recorded)?;
    let ended = book
        .processes()
        .find(|row| row.exit_signal == Some(libc::SIGBUS));
    let rows: Vec<TmpfsRow> = recorded.recording.rows()?;
    let is_so = |row: &&TmpfsRow| {
        row.size_bytes.0 == SIZE
            && SIZE - row.used_bytes.0 <= HELD_BACK
            && Some(row.seen_by_upid) == ended.map(|row| row.upid)
    };
    let full = rows.iter().find(is_so);
    let place = full.is_some_and(|row| dir.path() == Path::new(&row.mount_point));
    Ok(vec![
        Score::of("it is recorded while it is full", full.is_some(), || {
            format!("{ended:?} {rows:?}")
        }),
        Score::of("where it is mounted is known", place, || {
            format!("{full:?}")
        }),
        no_loss(&recorded)?,
    ])
}
