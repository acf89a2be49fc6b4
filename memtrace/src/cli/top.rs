//! `memtrace top`: a recording that runs, live on the terminal; or one of its own.

mod own;

use super::follower::{Follower, Kept};
use super::output::{has_color, print};
use super::recorded::Strictness;
use super::running::{self, Running};
use super::targets::{GROUP, Targets};
use super::values::{parse_interval, parse_view};
use anyhow::{Context, bail};
use memtrace_model::DurationNs;
use memtrace_store::Recordings;
use memtrace_top::{Feed, Options, Recorder, View, is_to_end, once, run as show};
use own::OwnRecorder;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// How long --once waits for what a recorder that has just started writes.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks meanwhile.
const PAUSE: Duration = Duration::from_millis(100);
/// Columns where there is no terminal.
const WIDTH: u16 = 100;

const WHICH: &str = "Which recording to show";
const HOW: &str = "How to show it";

/// Show a running recording live, with the peaks of processes that have ended
///
/// It reads what the recorder writes, so it needs no more rights than that. Without an option it
/// shows the running recording of this user, as `memtrace mark` finds it; with a command or another
/// target it records by itself, into a folder that is removed when it ends.
#[derive(Debug, clap::Args)]
#[command(override_usage = "memtrace top [OPTIONS] [-r DIR]\n       \
                            memtrace top [OPTIONS] -p PID | --match REGEX | --cgroup PATH | --ray | --vllm | -a\n       \
                            memtrace top [OPTIONS] -- COMMAND [ARG]...")]
#[command(group = clap::ArgGroup::new(GROUP).multiple(false).conflicts_with("recording"))]
#[command(after_help = "\
Examples:
  memtrace top                                    # the running recording
  memtrace top --once --view processes -p $$      # this shell, one screen as text
  memtrace top --stacks --view stacks -p $$       # which lines of it allocate, from now on
  memtrace top -- python3 -c 'bytearray(300_000_000)'  # a command, which it records

Keys: ? names them; q ends. What COMMAND writes goes to output.log next to its recording; if top
ends first, COMMAND gets SIGTERM.

Exit status: 0; 1 if no recording is running, recordings of different processes are running and
none was named, or it can't be read; 2 on a usage error.")]
pub(super) struct Args {
    /// The recording [default: the running one]
    #[arg(short, long, value_name = "DIR", help_heading = WHICH)]
    recording: Option<PathBuf>,

    #[command(flatten)]
    targets: Targets,

    /// Where to record, and save it; must not exist, or be empty
    #[arg(short, long, value_name = "DIR", requires = GROUP, help_heading = WHICH)]
    output: Option<PathBuf>,

    /// Save the recording that it makes, and say where it is
    #[arg(long, requires = GROUP, help_heading = WHICH)]
    save: bool,

    /// Time between two snapshots
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_interval, requires = GROUP, help_heading = WHICH)]
    interval: DurationNs,

    /// Sample which lines allocate, for the view `stacks`, as record --stacks does
    #[arg(long, requires = GROUP, help_heading = WHICH)]
    stacks: bool,

    /// What to show first: tree, roles, processes, ledger, gpus, phases, stacks
    #[arg(long, value_name = "VIEW", default_value = "tree", value_parser = parse_view, help_heading = HOW)]
    view: View,

    /// Time between two updates of the screen; more if one takes long
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_interval, help_heading = HOW)]
    refresh: DurationNs,

    /// Print one screen as text, and exit
    #[arg(long, help_heading = HOW)]
    once: bool,

    #[command(flatten)]
    pub(super) strictness: Strictness,
}

/// Shows it.
///
/// # Errors
/// When there is no recording to show, it can't be read, or there is no terminal.
pub(super) fn run(args: Args, recordings: &Recordings) -> anyhow::Result<ExitCode> {
    let is_on_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    if !(args.once || is_on_terminal) {
        bail!("top needs a terminal; for one screen as text: memtrace top --once");
    }
    let mut own = match args.targets.is_any() {
        true => Some(OwnRecorder::start(
            &args.targets,
            args.output.as_deref(),
            args.save,
            args.interval,
            args.stacks,
        )?),
        false => None,
    };
    let outcome = follow(&args, recordings, own.as_ref());
    if let Some(own) = &mut own {
        own.end();
    }
    outcome
}

fn follow(
    args: &Args,
    recordings: &Recordings,
    own: Option<&OwnRecorder>,
) -> anyhow::Result<ExitCode> {
    let dir = match (own, &args.recording) {
        (Some(own), _) => own.dir().to_path_buf(),
        (None, Some(dir)) => super::recorded::local_dir(Some(dir))?,
        (None, None) => running()?,
    };
    let mut follower = Follower::open(recordings, &dir, Kept::Everyone)?;
    if args.once {
        return print_once(&mut follower, args.view);
    }
    let options = Options {
        view: args.view,
        refresh: Duration::from_nanos(args.refresh.0.unsigned_abs()),
        has_color: has_color(),
    };
    show(&mut follower, &options).context("failed to show it on the terminal")?;
    Ok(ExitCode::SUCCESS)
}

/// Where the recording is that runs.
fn running() -> anyhow::Result<PathBuf> {
    let found = running::nobody_named();
    let found = found.context("to record now: memtrace top -- COMMAND, or -p PID, or -a")?;
    let dirs = found.into_iter().filter_map(|Running { dir, .. }| dir);
    // Several that record the same processes: the newest has the most to come.
    dirs.max().context("the running recording has no data yet")
}

fn print_once(follower: &mut Follower<'_>, view: View) -> anyhow::Result<ExitCode> {
    let begin = std::time::Instant::now();
    loop {
        follower.refresh()?;
        let has_memory = !follower.live().now().held_by.is_empty();
        let is_over = follower.recorder() != Recorder::Recording || begin.elapsed() >= PATIENCE;
        if has_memory || is_over || is_to_end() {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    let size = terminal_size::terminal_size_of(io::stdout());
    let width = size.map_or(WIDTH, |(width, _)| width.0);
    print(&once(
        follower,
        view,
        width,
        size.map(|(_, height)| height.0),
    ))
}
