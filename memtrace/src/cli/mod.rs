//! The command line: one file per subcommand, each with its arguments and a `run`.

mod analyzed;
mod browser;
mod caller;
mod diff;
mod doctor;
mod downsample;
mod export;
mod follow;
mod follower;
mod import;
mod leftovers;
mod list;
mod mark;
mod mcp;
mod newest;
mod once;
mod output;
mod own_program;
mod packaging;
mod part;
mod probe_costs;
mod progress;
mod ray;
mod record;
mod recorded;
mod recover;
mod reduced;
mod remote;
mod report;
pub mod running;
mod schema;
mod targets;
mod top;
mod traces;
mod values;
mod version;
mod watch;
mod writing;
mod wrong_use;

pub use newest::Newest;
pub use output::say;
pub use packaging::write_manual;
pub use values::parse_size;
pub use version::build_version;

use clap::{Parser, Subcommand};
use memtrace_host::give_up_capabilities;
use memtrace_store::Recordings;
use std::io::IsTerminal;
use std::process::ExitCode;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Records where the memory of a process tree goes, and reports it.
#[derive(Debug, Parser)]
#[command(name = "memtrace", version, long_version = version::long(), max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Record the memory of a process tree into a directory of Parquet tables
    Record(Box<record::Args>),
    /// Say who held the memory, from a recording alone
    Report(report::Args),
    List(list::Args),
    Top(top::Args),
    Watch(watch::Args),
    Diff(diff::Args),
    Mark(mark::Args),
    Load(remote::Load),
    Engine(remote::Engine),
    Push(remote::Push),
    Ray(ray::Args),
    Export(export::Args),
    Traces(traces::Args),
    Mcp(mcp::Args),
    Import(import::Args),
    Recover(recover::Args),
    Downsample(downsample::Args),
    Schema(schema::Args),
    /// Say what this host lets memtrace see, and what would let it see more
    Doctor(doctor::Args),
    Completions(packaging::Completions),
    Man(packaging::Man),
}

/// Parses the command line, runs it, and gives the exit code: the command's own for
/// `record`, 1 after an error, 2 for a usage error, 3 for `diff` where memory rose too much, 4 with
/// `--strict` or a limit for `diff` where a recording is not whole.
pub fn main() -> ExitCode {
    log_to_stderr();
    let cli = Cli::try_parse().unwrap_or_else(|error| wrong_use::advise(error).exit());
    // What its file may do is for observing processes, not for reading files that a user names.
    if !matches!(cli.command, Command::Record(_) | Command::Doctor(_)) {
        give_up_capabilities();
    }
    let recordings = Recordings::default();
    let is_strict = cli.command.is_strict();
    let outcome = match cli.command {
        Command::Record(args) => record::run(*args),
        Command::Report(args) => report::run(args, &recordings),
        Command::List(args) => list::run(args, &recordings),
        Command::Top(args) => top::run(args, &recordings),
        Command::Watch(args) => watch::run(args, &recordings),
        Command::Diff(args) => diff::run(args, &recordings),
        Command::Mark(args) => mark::run(args),
        Command::Load(args) => remote::load(args),
        Command::Engine(args) => remote::engine(args),
        Command::Push(args) => remote::push(args),
        Command::Ray(args) => ray::run(args),
        Command::Export(args) => export::run(args, &recordings),
        Command::Traces(args) => traces::run(args),
        Command::Mcp(args) => mcp::run(&args),
        Command::Import(args) => import::run(args, &recordings),
        Command::Recover(args) => recover::run(args),
        Command::Downsample(args) => downsample::run(args, &recordings),
        Command::Schema(args) => schema::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Completions(args) => packaging::completions::<Cli>(&args),
        Command::Man(args) => packaging::man::<Cli>(&args),
    };
    let code = match outcome {
        Ok(code) => Some(code),
        Err(error) => {
            // A wrong use that shows only when it is known what is there.
            if let Some(wrong_use) = error.downcast_ref::<clap::Error>() {
                wrong_use.exit();
            }
            output::say(&format!("{error:#}"));
            None
        }
    };
    let is_damaged = recorded::say_problems(&recordings);
    let is_damaged = is_strict && recorded::say_cut_off(&recordings) || is_damaged;
    match code {
        // What rose is reported by a status of its own.
        Some(ExitCode::SUCCESS) if is_strict && is_damaged => ExitCode::from(EXIT_DAMAGED),
        code => code.unwrap_or(ExitCode::FAILURE),
    }
}

/// What a command with `--strict` ends with where a recording is not whole.
const EXIT_DAMAGED: u8 = 4;

impl Command {
    fn is_strict(&self) -> bool {
        match self {
            Self::Report(args) => args.strictness.strict,
            Self::List(args) => args.strictness.strict,
            Self::Top(args) => args.strictness.strict,
            Self::Diff(args) => args.is_strict(),
            Self::Export(args) => args.strictness.strict,
            _ => false,
        }
    }
}

/// What goes wrong without failing is said on stderr; `MEMTRACE_LOG=debug` says more, the
/// verifier's whole log for one.
fn log_to_stderr() {
    let asked = std::env::var("MEMTRACE_LOG").ok();
    let asked = asked.filter(|text| !text.is_empty());
    let filter = asked.map(|text| {
        text.parse::<Targets>().unwrap_or_else(|error| {
            output::say(&format!(
                "MEMTRACE_LOG={} is not a filter ({error}): write debug, or \
                 memtrace_collect=debug",
                memtrace_report::visible(&text)
            ));
            Targets::default()
        })
    });
    let filter = filter.unwrap_or_default();
    let filter = match filter.default_level() {
        Some(_) => filter,
        None => filter.with_default(LevelFilter::WARN),
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .with_target(false);
    tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .init();
}
