//! `memtrace report ROOT`: one answer for a job of many hosts. Each recording is reduced by itself,
//! some at a time, and what comes of it is merged; `--reduce` and `--merge` are the two halves.

use super::{Args, section_of};
use crate::cli::recorded::{no_option, open, recording_dir};
use crate::cli::reduced::{Chosen, Found, place_of, reduce, reduce_one, reduced, root_at};
use anyhow::{Context, bail};
use memtrace_analyze::{HostPart, Line, Place, RunReport, Unread};
use memtrace_model::parse_host_list;
use memtrace_report::{Section, Style, visible, write_line};
use memtrace_store::{Placed, Recordings, Root};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A part of a host is some tens of KiB; what is longer is none.
const PART_BYTES_MAX: u64 = 64 << 20;

/// Which of the recordings below a root to report, and how.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Many hosts")]
pub(super) struct Options {
    /// Report that run of a root [default: the newest]
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    /// Report only that host of a root; may be repeated
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// The hosts that a run should have: names with commas, `node[1-3,7]`, or @FILE with one list a
    /// line [default: what the recordings say]
    #[arg(long, value_name = "LIST|@FILE")]
    expect_hosts: Option<String>,
    /// Write what a recording adds to the report of its run, as one line of JSON; for a root, a
    /// line for each recording
    #[arg(long, conflicts_with_all = ["merge", "format", "section", "top", "full", "explain", "open"])]
    reduce: bool,
    /// Merge what --reduce wrote into the report of a run: files with a part on each line, `-` for
    /// the standard input
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "recording")]
    merge: Vec<PathBuf>,
    /// With --merge, the root of the recordings, so that the report can name the recording to look
    /// at next
    #[arg(long, value_name = "ROOT", requires = "merge")]
    root: Option<PathBuf>,
}

impl Options {
    pub(super) fn chosen(&self) -> Chosen<'_> {
        Chosen {
            run: self.run.as_deref(),
            hosts: &self.host,
        }
    }

    /// The first of the options that only a root, or what came of one, has a use for.
    fn only_for_a_root(&self) -> Option<&'static str> {
        let given = [
            ("--run", self.run.is_some()),
            ("--host", !self.host.is_empty()),
            ("--expect-hosts", self.expect_hosts.is_some()),
        ];
        given
            .iter()
            .find(|(_, is_given)| *is_given)
            .map(|(name, _)| *name)
    }
}

/// Reports a run of many hosts where that is asked for; `None` where it is one recording.
pub(super) fn run(args: &Args, recordings: &Recordings) -> anyhow::Result<Option<ExitCode>> {
    if !args.hosts.merge.is_empty() {
        check(args)?;
        let (parts, unread) = read_lines(&args.hosts.merge)?;
        let found = Found {
            run: run_of(&parts, &unread)?,
            parts,
            unread,
        };
        let root = args.hosts.root.as_deref();
        for Unread { place, why } in &found.unread {
            let Place { run, host, rec } = place.clone();
            let root = root.unwrap_or(Path::new(""));
            let path = match host.is_empty() {
                true => root.to_owned(),
                false => Root::path_below(root, &Placed { run, host, rec }),
            };
            recordings.note_unread(&path, why.clone());
        }
        let path_of = |place: &Placed| Some(Root::path_below(root?, place));
        return tell(args, found, path_of).map(Some);
    }
    let path = args.recording.as_deref().unwrap_or(Path::new("."));
    let shown = path.display().to_string();
    let doing = || format!("failed to look for recordings in {}", visible(&shown));
    if let Some(root) = root_at(path, args.hosts.run.as_deref()).with_context(doing)? {
        check(args)?;
        let found = reduced(recordings, &root, &args.hosts.chosen(), &shown).with_context(doing)?;
        if args.hosts.reduce {
            write_lines(args, &found)?;
            return Ok(Some(ExitCode::SUCCESS));
        }
        return tell(args, found, |place| Some(root.path_of(place))).map(Some);
    }
    if let Some(option) = args.hosts.only_for_a_root() {
        bail!(
            "{option} is for the recordings of many hosts below a root (ROOT/run=ID/host=NAME/rec=START), \
             and {} is none",
            visible(&shown)
        );
    }
    if args.hosts.reduce {
        check(args)?;
        let dir = recording_dir(args.recording.as_deref())?;
        let part = open(recordings, &dir)
            .and_then(|(recording, last)| reduce(&recording, &dir, last, None));
        let (failure, parts, unread) = match part {
            Ok(part) => (None, vec![part], Vec::new()),
            Err(error) => {
                let unread = unread_at(recordings, &dir);
                (Some(error), Vec::new(), unread.into_iter().collect())
            }
        };
        let run = String::new();
        write_lines(args, &Found { run, parts, unread })?;
        return match failure {
            Some(error) => Err(error),
            None => Ok(Some(ExitCode::SUCCESS)),
        };
    }
    Ok(None)
}

/// That nothing is asked for that only the report of one recording has.
fn check(args: &Args) -> anyhow::Result<()> {
    let only_of_one = [
        ("--at", args.at.is_some()),
        ("--phase", args.phase.is_some()),
        ("--phases", args.phases),
        ("--steps", args.steps),
        ("--from", args.from.is_some()),
        ("--to", args.to.is_some()),
        ("--last", args.last.is_some()),
        ("--process", args.process.is_some()),
        ("--tree", args.tree),
        ("--style", args.style.is_some()),
        ("--follow", args.follow),
        ("--local-time", args.local_time),
        ("--save-findings", args.save_findings),
    ];
    if let Some((option, _)) = only_of_one.iter().find(|(_, is_given)| *is_given) {
        bail!(
            "{option} is for one recording, not for a run of many hosts: name one, as in memtrace report \
             ROOT/run=ID/host=NAME/rec=START {option}"
        );
    }
    if args.hosts.reduce {
        return Ok(());
    }
    let format = args.writing.format()?;
    let Some(name) = args.section.as_deref() else {
        return Ok(());
    };
    let is_csv = format.name == "csv";
    section_of::<RunReport>("a run of many hosts", name, is_csv)?;
    if format.is_page {
        bail!(
            "{} shows the whole run: leave out --section {name}",
            format.name
        );
    }
    Ok(())
}

/// Writes the report; `path_of` says where a recording is, where that is known.
fn tell(
    args: &Args,
    found: Found,
    path_of: impl FnOnce(&Placed) -> Option<PathBuf>,
) -> anyhow::Result<ExitCode> {
    let expected = args
        .hosts
        .expect_hosts
        .as_deref()
        .map(expected_hosts)
        .transpose()?;
    let format = args.writing.format()?;
    let merge = match format.is_page {
        true => memtrace_analyze::merge_with_curves,
        false => memtrace_analyze::merge,
    };
    let mut report = merge(&found.run, found.parts, found.unread, expected);
    report.next_path = report.next().and_then(|Place { run, host, rec }| {
        let path = path_of(&Placed { run, host, rec })?;
        Some(no_option(&path).display().to_string())
    });
    let section = args
        .section
        .as_deref()
        .and_then(Section::<RunReport>::named);
    let style = Style {
        is_full: args.full,
        has_explanations: args.explain || args.full,
        section: section.map(|section| section.name),
        ..args.writing.style()
    };
    args.writing
        .write(|out| format.write(&mut report, &style, out))?;
    Ok(ExitCode::SUCCESS)
}

fn write_lines(args: &Args, found: &Found) -> anyhow::Result<()> {
    args.writing.write(|out| {
        found
            .parts
            .iter()
            .try_for_each(|part| write_line(part, out))?;
        found
            .unread
            .iter()
            .try_for_each(|unread| write_line(&unread.line(), out))
    })
}

/// Why a recording with a place below a root can't be read, as the report of that root would say.
fn unread_at(recordings: &Recordings, dir: &Path) -> Option<Unread> {
    let placed = Placed::of_path(dir)?;
    let host = root_at(dir.parent()?, None).ok()??;
    let error = reduce_one(recordings, &host, &placed).err()?;
    Some(Unread {
        place: place_of(&placed),
        why: format!("{error:#}"),
    })
}

fn expected_hosts(list: &str) -> anyhow::Result<Vec<String>> {
    let doing = || format!("--expect-hosts {list} can't be understood");
    let text = match list.strip_prefix('@') {
        Some(file) => {
            let text = std::fs::read_to_string(file);
            let text = text.with_context(|| format!("failed to read {file}"))?;
            text.lines()
                .map(str::trim)
                .filter(|line| !line.is_empty())
                .collect::<Vec<_>>()
                .join(",")
        }
        None => list.to_owned(),
    };
    let hosts = parse_host_list(&text).with_context(doing)?;
    Ok(hosts.into_iter().map(String::from).collect())
}

/// The run that all parts are of.
fn run_of(parts: &[HostPart], unread: &[Unread]) -> anyhow::Result<String> {
    let places = parts.iter().map(|part| &part.place);
    let mut runs = places
        .chain(unread.iter().map(|unread| &unread.place))
        .map(|place| &place.run);
    let Some(run) = runs.next() else {
        bail!("there is nothing to merge: no line is a part that --reduce wrote");
    };
    if let Some(other) = runs.find(|other| *other != run) {
        bail!("these are parts of two runs, {run} and {other}: merge each by itself");
    }
    Ok(run.clone())
}

/// The parts in files, one on each line, and recordings that could not be read.
fn read_lines(files: &[PathBuf]) -> anyhow::Result<(Vec<HostPart>, Vec<Unread>)> {
    let (mut parts, mut unread) = (Vec::new(), Vec::new());
    for file in files {
        let shown = file.display().to_string();
        let shown = visible(&shown).into_owned();
        let reader: Box<dyn Read> = match file.as_os_str() == "-" {
            true => Box::new(io::stdin().lock()),
            false => {
                let opened = File::open(file);
                Box::new(opened.with_context(|| format!("failed to open {shown}"))?)
            }
        };
        let mut reader = BufReader::new(reader);
        for number in 1.. {
            let mut line = String::new();
            let read = reader.by_ref().take(PART_BYTES_MAX).read_line(&mut line);
            if read.with_context(|| format!("failed to read {shown}"))? == 0 {
                break;
            }
            if line.trim().is_empty() {
                continue;
            }
            let line = Line::parse(&line);
            match line.with_context(|| format!("line {number} of {shown} can't be merged"))? {
                Line::Part(part) => parts.push(*part),
                Line::Unread(one) => unread.push(one),
            }
        }
    }
    Ok((parts, unread))
}
