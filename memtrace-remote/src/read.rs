//! `memtrace-remote read`: answers questions about what is at an address, for memtrace, which opens
//! no connection. The questions come on stdin and the answers go to stdout, as `store::remote` of
//! memtrace has them.

use crate::limits::PATIENCE_SECONDS;
use crate::objects::{AccessError, Objects, Way};
use crate::runtime;
use crate::seconds::parse_seconds;
use anyhow::Context;
use bytes::Bytes;
use memtrace_store::{Answer, Ask, FileThere, NEAR_BYTES, QUESTION_BYTES, asked_bytes};
use object_store::{ObjectStoreExt, coalesce_ranges};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, BufRead, Write};
use std::ops::Range;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// So often it is looked whether whoever asked is still there.
const LOOK: Duration = Duration::from_millis(250);

/// Answer what memtrace asks about what is at an address
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct Args {
    /// The address to read
    address: String,

    /// How long a question may take, in seconds
    #[arg(long, value_name = "SECONDS", env = "MEMTRACE_REMOTE_TIMEOUT",
          default_value = PATIENCE_SECONDS, value_parser = parse_seconds)]
    timeout: Duration,
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
            Ok(objects) => runtime.block_on(async {
                tokio::select! {
                    answered = within(args.timeout, objects, ask) => answered,
                    () = gone() => Err(AccessError::blocked("no one waits for it".to_owned())),
                }
            }),
            Err(error) => Err(AccessError::blocked(format!("{error:#}"))),
        };
        let (answer, bytes) = answered.unwrap_or_else(|failure| {
            let is_absent = failure.way == Way::Absent;
            let why = failure.words;
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

async fn within(
    patience: Duration,
    objects: &Objects,
    ask: Ask,
) -> Result<(Answer, Vec<Bytes>), AccessError> {
    let about = match &ask {
        Ask::Files { below: about } | Ask::Folders { of: about } => about.clone(),
        Ask::Bytes { file, .. } => file.clone(),
    };
    let answered = timeout(patience, answer(objects, ask)).await;
    answered.unwrap_or_else(|_| Err(objects.silent(&about, patience)))
}

/// Waits until nobody can ask any more: then nobody waits for an answer.
async fn gone() {
    loop {
        sleep(LOOK).await;
        let stdin = rustix::stdio::stdin();
        let mut questions = [PollFd::new(&stdin, PollFlags::empty())];
        let found = poll(&mut questions, Some(&Timespec::default()));
        if found.is_ok() && questions[0].revents().contains(PollFlags::HUP) {
            return;
        }
    }
}

async fn answer(objects: &Objects, ask: Ask) -> Result<(Answer, Vec<Bytes>), AccessError> {
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

async fn files(objects: &Objects, below: &str) -> Result<Vec<FileThere>, AccessError> {
    let prefix = objects.path(below);
    let listed = objects.files(below).await?;
    let files = listed.files.into_iter().filter_map(|meta| {
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

async fn folders(objects: &Objects, of: &str) -> Result<Vec<String>, AccessError> {
    let listed = objects.folder(of).await?;
    let names = listed.folders.iter().filter_map(|path| path.filename());
    Ok(names.map(str::to_owned).collect())
}

/// What is near to each other comes in one request, and some requests are under way at once.
async fn read(
    objects: &Objects,
    file: &str,
    ranges: &[Range<u64>],
) -> Result<Vec<Bytes>, AccessError> {
    if asked_bytes(ranges) > QUESTION_BYTES {
        let words = format!(
            "{}: more was asked for than is answered",
            objects.shown(file)
        );
        return Err(AccessError::blocked(words));
    }
    let path = objects.path(file);
    let fetch = |range| objects.store.get_range(&path, range);
    let read = coalesce_ranges(ranges, fetch, NEAR_BYTES).await;
    read.map_err(|error| objects.failure(file, &error))
}
