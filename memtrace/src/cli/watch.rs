//! `memtrace watch`: says when something happens while a recording is made, and has a program do
//! something about it.

mod event;
mod program;

use super::newest::Newest;
use super::output::is_heard;
use super::values::parse_percent;
use clap::ValueEnum;
use event::{EventKind, Events};
use memtrace_host::clock;
use memtrace_store::Recordings;
use memtrace_top::{end_with_signals, is_to_end_within};
use program::Program;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Between two looks. What a recorder sees is in its recording a second later at the latest.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Say when a process is killed, crashes or grows, or a limit is near, as it happens
///
/// A line for each event, while a recording is made. What happened before this started is left out: `memtrace
/// report` has it. PROGRAM is started for each event, one at a time, and gets it as JSON on its
/// standard input: what happened, to whom, and what the report says of that instant. One that takes
/// longer than a minute is ended. Its output goes to standard error. Where more than 100 events wait for
/// it the rest is left out, and the next one says how many.
///
/// It reads what the recorder wrote, and needs no rights but those of a reader.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "memtrace watch [OPTIONS] [DIR] [-- PROGRAM [ARG]...]",
    after_help = "\
Examples:
  memtrace watch
  memtrace watch /var/lib/memtrace --on oom-kill,crash -- ./notify.sh
  memtrace watch -f json > events.jsonl

Exit status: 0 when a signal ends it, or the recording ends where DIR is one; 1 if it can't be read;
2 on a usage error."
)]
pub(super) struct Args {
    /// A recording that is being made, or a directory of recordings, whose newest is followed from one
    /// to the next [default: here]
    #[arg(value_name = "DIR", default_value = ".", hide_default_value = true)]
    dir: PathBuf,
    /// What to report [default: everything]
    #[arg(long, value_name = "EVENT,...", value_delimiter = ',')]
    on: Vec<EventKind>,
    /// From which share of a limit on `limit` is reported, by the working set: what is in use without the
    /// file pages that the kernel would reclaim first
    #[arg(long, value_name = "PERCENT", default_value = "90", value_parser = parse_percent)]
    limit: f64,
    /// How to write a line
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "text")]
    format: Format,
    /// What to start for each event, behind `--`
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For a person
    Text,
    /// An object a line
    Json,
}

/// Watches until a signal comes, or the recording ends where it is one.
///
/// # Errors
/// When nothing can be read, or standard output can't be written.
pub(super) fn run(args: Args, recordings: &Recordings) -> anyhow::Result<ExitCode> {
    let mut events = Events::after(clock::boot(), &args.on, args.limit / 100.0);
    let mut newest = Newest::open_with(recordings, &args.dir, events.kept())?;
    let program = Program::start(args.program)?;
    end_with_signals();
    loop {
        let looked = Instant::now();
        newest.follow()?;
        for event in events.look(&newest) {
            let line = match args.format {
                Format::Text => format!("{event}\n"),
                Format::Json => format!("{}\n", event.as_json()),
            };
            let is_heard = is_heard(&line)?;
            match &program {
                Some(program) => program.start_for(event)?,
                None if !is_heard => return Ok(ExitCode::SUCCESS),
                None => (),
            }
        }
        if newest.is_over() {
            break;
        }
        if is_to_end_within(LOOK_EVERY.saturating_sub(looked.elapsed())) {
            break;
        }
    }
    if let Some(program) = program {
        program.finish();
    }
    Ok(ExitCode::SUCCESS)
}
