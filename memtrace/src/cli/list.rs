//! `memtrace list`: the recordings in a directory, without reading what they hold of memory.

use super::recorded::{Strictness, listed, open, zone};
use super::writing::{data_format_names, write_data};
use jiff::tz::TimeZone;
use memtrace_analyze::Moment;
use memtrace_model::tables::{OomRow, ProcessRow};
use memtrace_model::{Bytes, DurationNs, RunState, WallNs};
use memtrace_report::{
    Cell, Chapter, FORMATS, Style, Table, TableOf, Written, words, write_object,
};
use memtrace_store::{Recording, Recordings, size_of_recording};
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// List the recordings in a directory: when each began, how it ended, what it takes
///
/// The newest comes first. Those of a root (ROOT/run=…/host=…/rec=…) are among them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  memtrace list
  memtrace list --at 03:12
  memtrace list -f json

Exit status: 0, even if there is no recording; 1 if the directory can't be read; 2 on a usage
error; 4 with --strict if part of a recording could not be read or is missing.")]
pub(super) struct Args {
    /// Where to look [default: here]
    #[arg(value_name = "DIR", default_value = ".", hide_default_value = true)]
    dir: PathBuf,
    /// Only those that have this time: `12:03:07` (UTC without --local-time), or RFC 3339
    #[arg(long, value_name = "TIME")]
    at: Option<Moment>,
    /// Show times in your time zone instead of UTC, and read --at that way. json and csv keep UTC
    #[arg(long)]
    local_time: bool,
    /// How to write
    #[arg(short, long, value_name = "FORMAT", value_parser = data_format_names("one line per recording (RFC 4180)"),
          default_value = FORMATS[0].name)]
    format: String,
    #[command(flatten)]
    pub(super) strictness: Strictness,
}

/// Lists the recordings.
pub(super) fn run(args: Args, recordings: &Recordings) -> anyhow::Result<ExitCode> {
    let zone = zone(args.local_time);
    let mut found = Vec::new();
    for dir in listed(&args.dir)? {
        let read = open(recordings, &dir).and_then(|(recording, last)| {
            let has_it = |at: Moment| at.is_in(recording.info(), last, zone.clone());
            let is_wanted = args.at.is_none_or(has_it);
            let listed = || Listed::of(&recording, &dir, last.map(|last| last.0));
            is_wanted.then(listed).transpose()
        });
        match read {
            Ok(listed) => found.extend(listed),
            Err(error) if args.at.is_none() => found.push(Listed {
                path: dir.display().to_string(),
                error: Some(format!("{error:#}")),
                ..Listed::default()
            }),
            // Whether it has that time is not known.
            Err(error) => recordings.note_unread(&dir, format!("{error:#}")),
        }
    }
    let mut listing = Listing {
        format: "memtrace-list",
        version: 1,
        dir: args.dir.display().to_string(),
        recordings: found,
        zone,
    };
    write_data(&mut listing, &args.format)?;
    Ok(ExitCode::SUCCESS)
}

/// The recordings of a directory: the object of the JSON.
#[derive(Debug, Serialize)]
struct Listing {
    format: &'static str,
    /// Within a version no key is renamed, removed or given another meaning.
    version: u32,
    dir: String,
    recordings: Vec<Listed>,
    #[serde(skip)]
    zone: Option<TimeZone>,
}

/// A recording of the list. Of one that can't be read only its path and the reason are known.
#[derive(Debug, Default, Serialize)]
struct Listed {
    path: String,
    /// The wall clock at its start.
    start_wall_ns: Option<WallNs>,
    /// How long it is, or was until its last row.
    duration_ns: Option<DurationNs>,
    state: Option<State>,
    command_exit_code: Option<i32>,
    process_count: Option<usize>,
    /// Of its processes, not of others on the machine.
    oom_kill_count: Option<usize>,
    /// The highest RSS that one process had.
    process_peak_rss_bytes: Option<Bytes>,
    /// What its files take.
    size_bytes: Option<Bytes>,
    host: Option<String>,
    /// What was recorded, in words.
    target: Option<String>,
    /// Why it can't be read.
    error: Option<String>,
}

/// How far a recording came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    /// A recorder writes to it.
    Running,
    /// Its recorder was killed.
    CutOff,
    /// Its recorder closed it while the command ran.
    Stopped,
    /// It ended with its command.
    Ended,
}

impl Listed {
    fn of(recording: &Recording, dir: &Path, last_ns: Option<i64>) -> anyhow::Result<Self> {
        let info = recording.info();
        let (mut process_count, mut peak) = (0, 0);
        recording.scan(&["peak_rss_bytes"], |row: ProcessRow| {
            process_count += 1;
            peak = peak.max(row.peak_rss_bytes.map_or(0, |bytes| bytes.0));
        })?;
        let mut oom_kill_count = 0;
        recording.scan(&["victim_upid"], |row: OomRow| {
            oom_kill_count += usize::from(row.victim_upid.is_some());
        })?;
        let readings = info.clocks.first().zip(info.clocks.last());
        let duration = readings.map(|(first, last)| {
            let end = last_ns.unwrap_or(last.boot_ns.0).max(last.boot_ns.0);
            DurationNs(end - first.boot_ns.0)
        });
        Ok(Self {
            path: dir.display().to_string(),
            start_wall_ns: info.clocks.first().map(|reading| reading.wall_ns),
            duration_ns: duration,
            state: Some(State::of(recording)),
            command_exit_code: info.command_exit_code,
            process_count: Some(process_count),
            oom_kill_count: Some(oom_kill_count),
            process_peak_rss_bytes: (peak > 0).then_some(Bytes(peak)),
            // A recorder can replace a file meanwhile.
            size_bytes: size_of_recording(dir).ok(),
            host: Some(info.host_name().to_owned()),
            target: Some(words::target(&info.target)),
            error: None,
        })
    }

    /// How it ended, in words.
    fn end(&self) -> String {
        let mut words = match (self.state, self.command_exit_code) {
            (None, _) => self.error.clone().unwrap_or_default(),
            (Some(State::Running), _) => "running".to_owned(),
            (Some(State::CutOff), _) => "cut off".to_owned(),
            (Some(_), Some(code)) => format!("exit {code}"),
            (Some(_), None) => "stopped".to_owned(),
        };
        if let Some(count @ 1..) = self.oom_kill_count {
            words += ", ";
            words += &words::counted(count, "OOM kill", "OOM kills");
        }
        words
    }
}

impl State {
    fn of(recording: &Recording) -> Self {
        let info = recording.info();
        match info.state {
            RunState::Recording if recording.is_live() => Self::Running,
            RunState::Recording | RunState::Recovered => Self::CutOff,
            RunState::Closed if info.command_exit_code.is_some() => Self::Ended,
            RunState::Closed => Self::Stopped,
        }
    }
}

impl Listing {
    fn table(&self) -> Table {
        let started = match &self.zone {
            None => "STARTED (UTC)",
            Some(_) => "STARTED",
        };
        TableOf::of(&self.recordings)
            .words(("started", started), 0, |row| {
                let at = |zone| {
                    row.start_wall_ns
                        .and_then(|wall| words::date_and_time(wall, zone))
                };
                let shown = at(self.zone.as_ref());
                let shown = shown.map(|shown| shown.trim_end_matches(" UTC").to_owned());
                Cell::Both {
                    shown: shown.unwrap_or_else(|| words::UNKNOWN.to_owned()),
                    data: at(None).unwrap_or_default(),
                }
            })
            .figures(("duration_s", "RAN"), 1, |row| Cell::Took(row.duration_ns))
            .words("ended", 0, |row| row.end())
            .figures("processes", 2, |row| Cell::known(row.process_count))
            .figures(("process_peak_rss_bytes", "LARGEST"), 0, |row| {
                row.process_peak_rss_bytes
            })
            .figures("size_bytes", 3, |row| row.size_bytes)
            .words("recording", 0, |row| Cell::Both {
                shown: Path::new(&row.path)
                    .strip_prefix(&self.dir)
                    .map_or(row.path.clone(), |name| name.display().to_string()),
                data: row.path.clone(),
            })
            .flexible("what", |row| row.target.clone().unwrap_or_default())
            .data("host", |row| row.host.clone().unwrap_or_default())
            .done()
    }
}

impl Written for Listing {
    fn chapters(&self, _style: &Style) -> Vec<Chapter> {
        let count = self.recordings.len();
        let counted = words::counted(count, "recording", "recordings");
        let mut chapter = Chapter::new(format!("{counted} in {}", self.dir));
        if count > 0 {
            chapter.table(self.table());
            chapter.quiet("LARGEST is the highest RSS that one of its processes had.");
        }
        vec![chapter]
    }

    fn tables<'a>(&'a self, _style: &Style) -> Box<dyn Iterator<Item = Table> + 'a> {
        Box::new(std::iter::once(self.table()))
    }

    fn json(&mut self, _style: &Style, out: &mut dyn io::Write) -> io::Result<()> {
        write_object(self, out)
    }

    fn page(
        &mut self,
        _style: &Style,
        _reported: &[Chapter],
        _out: &mut dyn io::Write,
    ) -> io::Result<()> {
        Err(io::Error::other("a list has no page"))
    }
}
