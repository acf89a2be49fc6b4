//! One recording on its way: looks at what it has now, and sends what is not yet there.
//!
//! `run.json` is put there first, and says that the recording is not closed for as long as not all
//! of it is there. Small parts become one: that is put there before they go.

use super::place::{Given, is_there_itself, path_below};
use super::progress::{Progress, Sent};
use super::upload::{NotPut, Put, Uploads};
use crate::limits::RUN_FILE_BYTES;
use crate::objects::{AccessError, Listing, Objects, Way};
use futures_util::stream::{self, StreamExt};
use memtrace_model::{ClockReading, RunInfo, RunState, WallNs};
use memtrace_store::{Looked, MANIFEST, Outgoing, OutgoingPart, RUN_FILE, ReplacedParts, as_open};
use object_store::ObjectStoreExt;
use serde::Deserialize;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// Of a name that somebody else wrote no more is reported.
const HOSTNAME_CHARS: usize = 255;
/// While a recording goes on, what it says of itself is put there no more often.
const PACE: Duration = Duration::from_secs(10);
/// A part goes so long after another has its rows: who began to read before has read it by then.
const GRACE: Duration = Duration::from_secs(30);
/// So many files are sent at once. Each takes the memory of one piece.
const AT_ONCE: usize = 4;

/// How far a recording is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// What there is is there, and more will come.
    Growing,
    /// What there is is there; nobody writes to it any more, and it was not closed.
    Unclosed,
    /// It is closed, and all of it is there.
    Complete,
}

/// Why it is not as far.
#[derive(Debug)]
pub(super) enum Hindrance {
    AccessError(AccessError),
    Stopped,
}

impl Hindrance {
    fn is_blocked(&self) -> bool {
        matches!(self, Self::AccessError(failure) if failure.way == Way::Blocked)
    }
}

impl From<AccessError> for Hindrance {
    fn from(failure: AccessError) -> Self {
        Self::AccessError(failure)
    }
}

pub(super) struct Carry {
    pub(super) source: PathBuf,
    outgoing: Outgoing,
    looked: Looked,
    /// Its path below the root.
    below: String,
    /// What is there, by its path in the recording, with its size; unknown before the first look.
    there: Option<HashMap<String, u64>>,
    /// What was put there as `run.json` and as `manifest.jsonl`, and when.
    put: HashMap<&'static str, (Hash, Instant)>,
    /// Since when it is known of parts there that another has their rows.
    replaced_since: HashMap<String, Instant>,
    /// Its `run.json` and its parts, where all of them are there.
    arrived: Option<(Vec<u8>, Vec<OutgoingPart>)>,
    /// Whether it was complete there before it was downsampled here.
    is_there_with_more_rows: bool,
    sent: Sent,
}

/// Whether the recording of this `run.json` is closed, and has rows that the one here has no more.
fn has_more_rows(there: &[u8], here: &RunInfo) -> bool {
    let there: Option<RunInfo> = serde_json::from_slice(there).ok();
    there.is_some_and(|there| {
        let periods = [&there, here].map(|info| info.downsampled.map(|done| done.period_ns));
        there.state != RunState::Recording && periods[0] < periods[1]
    })
}

impl Carry {
    /// A recording that is to be carried.
    ///
    /// # Errors
    /// When it is none, or lies where it would go to.
    pub(super) fn of(source: &Path, objects: &Objects, given: &Given) -> anyhow::Result<Self> {
        let outgoing = Outgoing::open(source)?;
        let (_, info) = outgoing.run_file()?;
        let below = path_below(source, &info, given)?;
        let is_itself = |root: &Path| is_there_itself(source, root, &below);
        if objects.dir().is_some_and(is_itself) {
            let shown = source.display();
            anyhow::bail!("{shown} lies where it would be uploaded to: name another root");
        }
        Ok(Self {
            source: source.to_path_buf(),
            outgoing,
            looked: Looked::default(),
            below,
            there: None,
            put: HashMap::new(),
            replaced_since: HashMap::new(),
            arrived: None,
            is_there_with_more_rows: false,
            sent: Sent::default(),
        })
    }

    /// Where it goes, as a person names it.
    pub(super) fn destination(&self, objects: &Objects) -> String {
        objects.shown(&self.below)
    }

    /// The same below the root.
    pub(super) fn below(&self) -> &str {
        &self.below
    }

    /// What was sent of it so far.
    pub(super) fn sent(&self) -> Sent {
        self.sent
    }

    /// What was complete there: its `run.json` and its parts.
    pub(super) fn take_arrived(&mut self) -> Option<(Vec<u8>, Vec<OutgoingPart>)> {
        self.arrived.take()
    }

    /// Whether a recorder writes to it now.
    pub(super) fn is_live(&self) -> bool {
        self.outgoing.is_live()
    }

    /// Looks, and sends what is new.
    pub(super) async fn look(
        &mut self,
        uploads: Uploads<'_>,
        progress: &Progress,
    ) -> Result<State, Hindrance> {
        let is_live = self.outgoing.is_live();
        let (json, info) = self
            .outgoing
            .run_file()
            .map_err(|error| self.unreadable(&error))?;
        let is_closed = info.state != RunState::Recording;
        let is_growing = is_live || self.outgoing.is_open(&info);
        self.begin(uploads, &json, &info).await?;
        if self.is_there_with_more_rows {
            return Ok(State::Complete);
        }
        // Read before the parts are looked for: what it names is there, or was.
        let manifest = match is_closed || !is_growing || self.is_due(MANIFEST) {
            true => self.outgoing.manifest(),
            false => Ok(Vec::new()),
        };
        let manifest = manifest.map_err(|error| self.unreadable(&error))?;
        let parts = match is_closed {
            true => self.outgoing.parts(),
            false => self.outgoing.parts_again(&mut self.looked),
        };
        let parts = parts.map_err(|error| self.unreadable(&error))?;
        self.send_parts(uploads, progress, &parts).await?;
        let replaced = ReplacedParts::of(&manifest, info.id.as_deref());
        if !is_closed {
            self.put(uploads, MANIFEST, manifest, !is_growing).await?;
            self.put(uploads, RUN_FILE, json, !is_growing).await?;
            self.remove_replaced(uploads.objects, &replaced, GRACE)
                .await?;
            return Ok(match is_growing {
                true => State::Growing,
                false => State::Unclosed,
            });
        }
        self.restore(uploads, progress, &parts).await?;
        // It says which parts go.
        self.put(uploads, MANIFEST, manifest, true).await?;
        self.remove_replaced(uploads.objects, &replaced, Duration::ZERO)
            .await?;
        self.put(uploads, RUN_FILE, json.clone(), true).await?;
        self.arrived = Some((json, parts));
        Ok(State::Complete)
    }

    /// Removes the recording here, where all of it is there as it is here. Says whether it is gone.
    pub(super) async fn remove(self, uploads: Uploads<'_>) -> Result<bool, Hindrance> {
        let (json, _) = self
            .outgoing
            .run_file()
            .map_err(|error| self.unreadable(&error))?;
        let parts = self
            .outgoing
            .parts()
            .map_err(|error| self.unreadable(&error))?;
        let there = self.list(uploads.objects).await?;
        let is_there = |part: &OutgoingPart| there.get(&name(part)) == Some(&part.size);
        let run_file = self.read_run_file(uploads.objects).await?;
        if !parts.iter().all(is_there) || run_file != json {
            let words = format!(
                "{} changed at the root in the meantime, and is kept here",
                self.source.display()
            );
            return Err(AccessError::blocked(words).into());
        }
        let source = self.source;
        self.outgoing.remove(&parts).map_err(|error| {
            let words = format!("failed to remove {}: {error}", source.display());
            AccessError::blocked(words).into()
        })
    }

    /// Learns what is there, and sees that `run.json` is, before anything else.
    async fn begin(
        &mut self,
        uploads: Uploads<'_>,
        json: &[u8],
        info: &RunInfo,
    ) -> Result<(), Hindrance> {
        if self.there.is_some() {
            return Ok(());
        }
        let there = self.list(uploads.objects).await?;
        if !there.contains_key(RUN_FILE) {
            let open = match info.state {
                RunState::Recording => json.to_vec(),
                _ => as_open(info).map_err(|error| self.unreadable(&error))?,
            };
            let put = uploads
                .put_new(&self.at(RUN_FILE), open.clone().into())
                .await;
            match put {
                Ok(()) => drop(self.put.insert(RUN_FILE, (hash(&open), Instant::now()))),
                // Somebody was quicker; an answer that got lost looks the same.
                Err(failure) if failure.way == Way::Taken => {}
                Err(failure) => return Err(failure.into()),
            }
        }
        if !self.put.contains_key(RUN_FILE) {
            let bytes = self.read_run_file(uploads.objects).await?;
            self.check_same(uploads.objects, &bytes, info)?;
            self.is_there_with_more_rows = has_more_rows(&bytes, info);
            self.put.insert(RUN_FILE, (hash(&bytes), Instant::now()));
        }
        self.there = Some(there);
        Ok(())
    }

    /// Sends again what the root had and has no more, since what is here may be the only copy.
    async fn restore(
        &mut self,
        uploads: Uploads<'_>,
        progress: &Progress,
        parts: &[OutgoingPart],
    ) -> Result<(), Hindrance> {
        let there = self.list(uploads.objects).await?;
        self.put.retain(|&file, _| there.contains_key(file));
        self.there = Some(there);
        self.send_parts(uploads, progress, parts).await
    }

    /// That what has its place is the same recording.
    fn check_same(
        &self,
        objects: &Objects,
        json: &[u8],
        info: &RunInfo,
    ) -> Result<(), AccessError> {
        let there: Option<Key> = serde_json::from_slice(json).ok();
        let here = Key {
            hostname: info.hostname.clone(),
            clocks: info.clocks.clone(),
        };
        if there.as_ref().is_some_and(|there| there.is(&here)) {
            return Ok(());
        }
        let other = there
            .as_ref()
            .map_or_else(|| "of no known form".to_owned(), Key::in_words);
        Err(AccessError::blocked(format!(
            "two recordings have one key: {} exists there already, {other}, and differs from {}, \
             {}; upload one of them with another --run or --host, or remove the one that is there",
            self.destination(objects),
            self.source.display(),
            here.in_words()
        )))
    }

    async fn send_parts(
        &mut self,
        uploads: Uploads<'_>,
        progress: &Progress,
        parts: &[OutgoingPart],
    ) -> Result<(), Hindrance> {
        let there = self.there.get_or_insert_default();
        let is_missing = |part: &&OutgoingPart| there.get(&name(part)) != Some(&part.size);
        let missing: Vec<&OutgoingPart> = parts.iter().filter(is_missing).collect();
        let bytes = missing.iter().map(|part| part.size).sum();
        progress.expect(bytes, &self.below);
        let (arrived, hindrance) = self.send_all(uploads, progress, missing).await;
        for (part, put) in arrived {
            if put == Put::Sent {
                self.sent.parts += 1;
                self.sent.bytes += part.size;
            }
            let there = self.there.get_or_insert_default();
            there.insert(name(part), part.size);
        }
        match hindrance {
            Some(hindrance) => Err(hindrance),
            None if uploads.stop.is_wished() => Err(Hindrance::Stopped),
            None => Ok(()),
        }
    }

    /// Sends parts, some at once. Gives those that are there, and what hindered others.
    async fn send_all<'p>(
        &self,
        uploads: Uploads<'_>,
        progress: &Progress,
        parts: Vec<&'p OutgoingPart>,
    ) -> (Vec<(&'p OutgoingPart, Put)>, Option<Hindrance>) {
        let sent = stream::iter(parts)
            .take_while(|_| std::future::ready(!uploads.stop.is_wished()))
            .map(|part| async move { (part, self.send(uploads, part).await) })
            .buffer_unordered(AT_ONCE);
        let mut sent = std::pin::pin!(sent);
        let mut arrived = Vec::new();
        let mut hindrance = None;
        while let Some((part, outcome)) = sent.next().await {
            match outcome {
                Ok(Some(put)) => {
                    progress.note(part.size);
                    arrived.push((part, put));
                }
                Ok(None) => {}
                // All else is sent; what nobody but a person can mend is reported first.
                Err(other) if hindrance.is_none() || other.is_blocked() => hindrance = Some(other),
                Err(_) => {}
            }
        }
        (arrived, hindrance)
    }

    /// Sends a part; `None` where it is gone here, since another has taken its place.
    async fn send(
        &self,
        uploads: Uploads<'_>,
        part: &OutgoingPart,
    ) -> Result<Option<Put>, Hindrance> {
        let at = self.at(&name(part));
        let path = self.source.join(part.path());
        let unreadable = |error: io::Error| {
            AccessError::blocked(format!("failed to read {}: {error}", path.display())).into()
        };
        let file = match self.outgoing.open_part(part) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(error)),
        };
        let put = match part.is_of_findings() && self.is_there(part) {
            true => uploads.replace(&at, &file, part.size).await,
            false => uploads.create(&at, &file, part.size).await,
        };
        match put {
            Ok(put) => Ok(Some(put)),
            Err(NotPut::Stopped) => Err(Hindrance::Stopped),
            Err(NotPut::AccessError(failure)) => Err(failure.into()),
            Err(NotPut::Source(error)) => Err(unreadable(error)),
            Err(NotPut::Other { bytes }) => Err(AccessError::blocked(format!(
                "{} has {bytes} bytes there and {} has {} here: they are not the same part (one that was \
                 downsampled, or got rows, after its upload is another); \
                 upload the recording with another --run or --host, or remove the one that is \
                 there",
                uploads.objects.shown(&at),
                path.display(),
                part.size
            ))
            .into()),
        }
    }

    /// Whether there was something of its name at the last look.
    fn is_there(&self, part: &OutgoingPart) -> bool {
        let there = self.there.as_ref();
        there.is_some_and(|there| there.contains_key(&name(part)))
    }

    /// Removes there the parts whose place another has taken that is there.
    async fn remove_replaced(
        &mut self,
        objects: &Objects,
        replaced: &ReplacedParts,
        grace: Duration,
    ) -> Result<(), Hindrance> {
        let there = self.there.get_or_insert_default();
        let is_there = |path: &Path| path.to_str().is_some_and(|path| there.contains_key(path));
        let gone = there
            .keys()
            .filter(|path| replaced.contains(Path::new(path), is_there));
        let mut due = Vec::new();
        for path in gone {
            let since = self.replaced_since.entry(path.clone());
            if since.or_insert_with(Instant::now).elapsed() >= grace {
                due.push(path.clone());
            }
        }
        for path in due {
            let at = self.at(&path);
            objects.check_way(&at).await?;
            match objects.store.delete(&objects.path(&at)).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(objects.failure(&at, &error).into()),
            }
            self.there.get_or_insert_default().remove(&path);
            self.replaced_since.remove(&path);
        }
        Ok(())
    }

    /// Puts there what a recording says of itself, where it says something else by now.
    async fn put(
        &mut self,
        uploads: Uploads<'_>,
        file: &'static str,
        bytes: Vec<u8>,
        is_last: bool,
    ) -> Result<(), Hindrance> {
        let hash = hash(&bytes);
        let is_other = self.put.get(file).is_none_or(|(put, _)| *put != hash);
        if is_other && !bytes.is_empty() && (is_last || self.is_due(file)) {
            uploads.put_over(&self.at(file), bytes.into()).await?;
            self.put.insert(file, (hash, Instant::now()));
        }
        Ok(())
    }

    /// Whether a file that changes can be put there again.
    fn is_due(&self, file: &str) -> bool {
        let put = self.put.get(file);
        put.is_none_or(|(_, when)| when.elapsed() >= PACE)
    }

    /// What is wrong with its files, in a line for each.
    pub(super) fn problems(&self) -> Vec<String> {
        let reported = self.outgoing.problems();
        let reported = reported.map(|reported| reported.iter().map(ToString::to_string).collect());
        reported.unwrap_or_else(|error| vec![error.to_string()])
    }

    /// What is there, by its path in the recording.
    async fn list(&self, objects: &Objects) -> Result<HashMap<String, u64>, AccessError> {
        objects.check_way(&self.below).await?;
        let prefix = objects.path(&self.below);
        let listed = match objects.files(&self.below).await {
            Err(failure) if failure.way == Way::Absent && objects.dir().is_some() => {
                Listing::default()
            }
            listed => listed?,
        };
        let there = listed.files.into_iter().filter_map(|meta| {
            let path: Vec<_> = meta.location.prefix_match(&prefix)?.collect();
            let names: Vec<&str> = path.iter().map(AsRef::as_ref).collect();
            Some((names.join("/"), meta.size))
        });
        Ok(there.collect())
    }

    async fn read_run_file(&self, objects: &Objects) -> Result<Vec<u8>, AccessError> {
        let at = self.at(RUN_FILE);
        objects.check_way(&at).await?;
        let path = objects.path(&at);
        let range = 0..RUN_FILE_BYTES;
        let read = objects.store.get_range(&path, range).await;
        let read = read.map_err(|error| objects.failure(&at, &error))?;
        Ok(read.to_vec())
    }

    fn at(&self, path: &str) -> String {
        format!("{}/{path}", self.below)
    }

    fn unreadable(&self, error: &dyn std::error::Error) -> AccessError {
        let shown = self.source.display();
        let words = crate::http::in_words(error);
        AccessError::blocked(format!("failed to read the recording {shown}: {words}"))
    }
}

/// What tells a recording from another. Of what somebody else put at a root no more is kept: all of it,
/// understood, would take twenty times its length.
#[derive(Deserialize)]
struct Key {
    hostname: String,
    clocks: Vec<ClockReading>,
}

impl Key {
    fn is(&self, other: &Self) -> bool {
        self.hostname == other.hostname && self.clocks.first() == other.clocks.first()
    }

    fn in_words(&self) -> String {
        let started = self.clocks.first();
        let started = started.map_or_else(String::new, |clock| {
            format!(", started at {}", time(clock.wall_ns))
        });
        let hostname: String = self.hostname.chars().take(HOSTNAME_CHARS).collect();
        format!("of host {hostname}{started}")
    }
}

/// Stands for bytes that can be many.
type Hash = u64;

fn hash(bytes: &[u8]) -> Hash {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// A time as people read it.
fn time(wall: WallNs) -> String {
    let time = jiff::Timestamp::from_nanosecond(i128::from(wall.0));
    time.map_or_else(|_| wall.to_string(), |time| time.to_string())
}

/// The path of a part in its recording.
fn name(part: &OutgoingPart) -> String {
    part.path().to_string_lossy().into_owned()
}
