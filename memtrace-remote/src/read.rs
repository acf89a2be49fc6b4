//! `memtrace-remote read`: answers questions about what is at an address, for memtrace, which opens
//! no connection. The questions come on stdin and the answers go to stdout, as `store::remote` of
//! memtrace has them.

use crate::objects::{Objects, Trouble, Way};
use crate::runtime;
use anyhow::Context;
use bytes::Bytes;
use futures_util::TryStreamExt;
use memtrace::store::{Answer, Ask, FileThere};
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, coalesce_ranges};
use std::io::{self, BufRead, Write};
use std::ops::Range;
use std::process::ExitCode;

/// A question has no more bytes in its answer.
const MAX_ANSWER_BYTES: u64 = 1 << 29;

/// A gap of so much is read along: that takes no longer than a request more.
const NEAR_BYTES: u64 = 64 << 10;

/// Answer what memtrace asks about what is at an address
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct Args {
    /// The address
    address: String,
}

/// Answers until there are no more questions.
///
/// # Errors
/// When there is nobody to answer to.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let runtime = runtime()?;
    let opened = Objects::open(&args.address);
    let mut stdout = io::stdout().lock();
    for question in io::stdin().lock().lines() {
        let question = question.context("failed to read a question")?;
        let ask = serde_json::from_str(&question).context("failed to understand a question")?;
        let answered = match &opened {
            Ok(objects) => runtime.block_on(answer(objects, ask)),
            Err(error) => Err(Trouble::blocked(format!("{error:#}"))),
        };
        let (answer, bytes) = answered.unwrap_or_else(|trouble| {
            let is_absent = trouble.way == Way::Absent;
            let why = trouble.words;
            (Answer::Refused { is_absent, why }, Vec::new())
        });
        let mut line = serde_json::to_vec(&answer)?;
        line.push(b'\n');
        stdout.write_all(&line)?;
        for bytes in bytes {
            stdout.write_all(&bytes)?;
        }
        stdout.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn answer(objects: &Objects, ask: Ask) -> Result<(Answer, Vec<Bytes>), Trouble> {
    match ask {
        Ask::Files { below } => Ok((Answer::Files(files(objects, &below).await?), Vec::new())),
        Ask::Folders { of } => Ok((Answer::Folders(folders(objects, &of).await?), Vec::new())),
        Ask::Bytes { file, ranges } => {
            let bytes = read(objects, &file, &ranges).await?;
            let length = bytes.iter().map(|bytes| bytes.len() as u64).sum();
            Ok((Answer::Bytes(length), bytes))
        }
    }
}

async fn files(objects: &Objects, below: &str) -> Result<Vec<FileThere>, Trouble> {
    let prefix = objects.path(below);
    let listed = objects.store.list(Some(&prefix));
    let listed: Result<Vec<ObjectMeta>, _> = listed.try_collect().await;
    let listed = listed.map_err(|error| objects.trouble(below, &error))?;
    let files = listed.into_iter().filter_map(|meta| {
        let names: Vec<_> = meta.location.prefix_match(&prefix)?.collect();
        let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        Some(FileThere {
            path: names.join("/"),
            size: meta.size,
            modified_ns: meta.last_modified.timestamp_nanos_opt().unwrap_or(0),
        })
    });
    Ok(files.collect())
}

async fn folders(objects: &Objects, of: &str) -> Result<Vec<String>, Trouble> {
    let listed = objects
        .store
        .list_with_delimiter(Some(&objects.path(of)))
        .await;
    let listed = listed.map_err(|error| objects.trouble(of, &error))?;
    let names = listed
        .common_prefixes
        .iter()
        .filter_map(|path| path.filename());
    Ok(names.map(str::to_owned).collect())
}

/// What is near to each other comes in one request, and some requests are under way at once.
async fn read(objects: &Objects, file: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, Trouble> {
    let sum = ranges
        .iter()
        .map(|range| range.end.saturating_sub(range.start));
    if sum.fold(0, u64::saturating_add) > MAX_ANSWER_BYTES {
        let words = format!(
            "{}: more was asked for than is answered",
            objects.shown(file)
        );
        return Err(Trouble::blocked(words));
    }
    let path = objects.path(file);
    let fetch = |range| objects.store.get_range(&path, range);
    let read = coalesce_ranges(ranges, fetch, NEAR_BYTES).await;
    read.map_err(|error| objects.trouble(file, &error))
}
