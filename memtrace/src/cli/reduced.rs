//! Reads the recordings of a run, some at a time, each to what it adds to the answer for the run.

use super::output::say;
use super::progress::Progress;
use super::recorded::{Rows, address_of};
use super::remote::reader;
use anyhow::{anyhow, bail};
use memtrace_analyze::{HostPart, Place, Unread};
use memtrace_model::{BootNs, Order, RunInfo};
use memtrace_report::visible;
use memtrace_store::{Placed, Recording, Recordings, Root};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Recordings that are read at a time: a few take all of a disk, and each takes memory.
const WORKERS_MAX: usize = 4;

/// Which of the recordings below a root are asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chosen<'a> {
    /// The run; else the newest.
    pub(super) run: Option<&'a str>,
    /// Only these hosts; else all.
    pub(super) hosts: &'a [String],
}

/// What was found of a run.
pub(super) struct Found {
    pub(super) run: String,
    pub(super) parts: Vec<HostPart>,
    pub(super) unread: Vec<Unread>,
}

/// The root at a path or an address, or the run of it that is meant; `None` where something else is
/// there.
pub(super) fn root_at(path: &Path, run: Option<&str>) -> anyhow::Result<Option<Root>> {
    let root = match address_of(path) {
        Some(address) => Root::open_remote(reader(address)?.into(), run),
        None => Root::open(path, run),
    };
    Ok(root?)
}

/// Reduces the recordings of a run, some at a time.
pub(super) fn reduced(
    recordings: &Recordings,
    root: &Root,
    chosen: &Chosen<'_>,
    shown: &str,
) -> anyhow::Result<Found> {
    let run = chosen_run(root, chosen, shown)?;
    let (mut places, refused) = root.recordings(&run)?;
    let unread = refused.into_iter().map(|error| Unread {
        place: Place {
            run: run.clone(),
            ..Place::default()
        },
        why: format!("{:#}", anyhow::Error::from(error)),
    });
    let mut unread: Vec<Unread> = unread.collect();
    if !chosen.hosts.is_empty() {
        let missing = chosen
            .hosts
            .iter()
            .find(|host| !places.iter().any(|place| place.host == **host));
        if let Some(host) = missing {
            bail!("the run {run} has no recording of a host {host}");
        }
        places.retain(|place| chosen.hosts.contains(&place.host));
        unread.clear();
    }
    for host in &unread {
        recordings.note_unread(Path::new(shown), host.why.clone());
    }
    let progress = Progress::of("reading the recordings of all hosts");
    let next = AtomicUsize::new(0);
    let outcomes: Mutex<Vec<(usize, anyhow::Result<HostPart>)>> = Mutex::default();
    let work = || {
        while let Some((number, place)) = {
            let number = next.fetch_add(1, Ordering::Relaxed);
            places.get(number).map(|place| (number, place))
        } {
            let outcome = reduce_one(recordings, root, place);
            outcomes
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .push((number, outcome));
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 1..cores.min(WORKERS_MAX).min(places.len()) {
            scope.spawn(work);
        }
        work();
    });
    drop(progress);
    let mut outcomes = outcomes
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    outcomes.order_by_key(|(number, _)| *number);
    let mut parts = Vec::new();
    for (number, outcome) in outcomes {
        match outcome {
            Ok(part) => parts.push(part),
            Err(error) => {
                let (placed, why) = (&places[number], format!("{error:#}"));
                recordings.note_unread(&root.path_of(placed), why.clone());
                let place = place_of(placed);
                unread.push(Unread { place, why });
            }
        }
    }
    Ok(Found { run, parts, unread })
}

/// The run that was asked for, or the newest; of several that is said.
fn chosen_run(root: &Root, chosen: &Chosen<'_>, shown: &str) -> anyhow::Result<String> {
    if let Some(run) = chosen.run {
        let names = root.run_names()?;
        if !names.iter().any(|name| name == run) {
            bail!(
                "{} has no run {run}; it has {}",
                visible(shown),
                names.join(", ")
            );
        }
        return Ok(run.to_owned());
    }
    let (runs, refused) = root.runs()?;
    let names = || runs.iter().map(|(run, _)| run.as_str());
    let Some(newest) = names().next() else {
        let none = format!(
            "{} has folders of runs, but no recording in them",
            visible(shown)
        );
        return Err(match refused.into_iter().next() {
            None => anyhow!(none),
            Some(error) => anyhow::Error::from(error).context(none),
        });
    };
    let others: Vec<&str> = names().skip(1).collect();
    if !others.is_empty() {
        say(&format!(
            "this is the newest run, {newest}; --run names another: {}",
            others.join(", ")
        ));
    }
    Ok(newest.to_owned())
}

pub(super) fn place_of(placed: &Placed) -> Place {
    Place {
        run: placed.run.clone(),
        host: placed.host.clone(),
        rec: placed.rec.clone(),
    }
}

pub(super) fn reduce_one(
    recordings: &Recordings,
    root: &Root,
    place: &Placed,
) -> anyhow::Result<HostPart> {
    let recording = recordings.open_placed(root, place)?;
    let last = recording.cut_off_boot_ns()?;
    let place_found = Some(place_of(place));
    reduce(&recording, &root.path_of(place), last, place_found)
}

/// Reduces a recording that was found at a place, or by its path alone.
pub(super) fn reduce(
    recording: &Recording,
    dir: &Path,
    last_boot_ns: Option<BootNs>,
    place: Option<Place>,
) -> anyhow::Result<HostPart> {
    let info = recording.info();
    let options = memtrace_analyze::Options {
        is_live: recording.is_live(),
        is_open: recording.is_open(),
        last_boot_ns,
        ..memtrace_analyze::Options::default()
    };
    let own = own_place(info);
    let by_path = || Placed::of_path(dir).map(|placed| place_of(&placed));
    let found = place.or_else(by_path);
    let other = found
        .as_ref()
        .zip(own.as_ref())
        .filter(|(found, own)| found != own);
    let other = other.map(|(_, own)| {
        format!(
            "run.json says that it is from host {} and run {}: {}",
            own.host, own.run, own.rec
        )
    });
    let place = found.or(own).unwrap_or_else(|| Place {
        run: String::new(),
        host: info.hostname.clone(),
        rec: started(info),
    });
    let part = memtrace_analyze::reduce(info, &Rows(recording), options, place)?;
    let problems = recording.problems();
    let mut problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    problems.extend(other);
    Ok(part.with_problems(&problems).checked()?)
}

fn own_place(info: &RunInfo) -> Option<Place> {
    let place = info.place.as_ref()?;
    Some(Place {
        run: place.run.to_string(),
        host: place.host.to_string(),
        rec: place.rec.to_string(),
    })
}

/// When a recording began, for one that says nothing of a place.
fn started(info: &RunInfo) -> String {
    let first = info.clocks.first();
    let time =
        first.and_then(|first| jiff::Timestamp::from_nanosecond(first.wall_ns.0.into()).ok());
    time.map_or_else(String::new, |time| {
        time.strftime("%Y%m%dT%H%M%SZ").to_string()
    })
}
