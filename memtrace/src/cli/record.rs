//! `memtrace record`: what to record, where to, and what is said meanwhile.

mod afterwards;
mod arrival;
mod every;
mod findings;
mod inline;
mod keep;
mod load;
mod many_hosts;
mod named_files;
mod pusher;
mod requests;
mod said;
mod started;

use super::downsample;
use super::output::{print, say};
use super::recorded::no_option;
use super::targets::Targets;
use super::values::{
    BackendChoice, BackendParser, ProbeParser, ScopeParser, parse_interval, parse_percent,
    parse_seconds, parse_size,
};
use crate::session::{
    CommandError, CommandUser, Options, Outcome, OutputError, Progress, RecordError, ScopeChoice,
    record,
};
use anyhow::{Context, bail};
use every::Older;
use inline::Inline;
use keep::Keeper;
use many_hosts::ManyHosts;
#[cfg(target_os = "linux")]
use memtrace_host::enter_cgroup_namespace_of_the_machine;
use memtrace_host::{Backend, HostFacts, Person, ProbeChoice};
use memtrace_model::{Bytes, DurationNs, RunInfo, Target};
use memtrace_store::StoreError;
use named_files::rules;
use pusher::Pusher;
use said::{Beginning, end_progress, finish, save_findings, show_progress};
use started::Started;
use std::io::{ErrorKind, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Share of one CPU that the recorder may take before it looks less often.
const CPU_BUDGET_PERCENT: &str = "2";

/// How often processes are looked for that may hold memory of GPUs, where nothing else of them is
/// recorded.
const GPU_ONLY_INTERVAL: DurationNs = DurationNs(1_000_000_000);

const EXAMPLES: &str = "\
Examples:
  memtrace record -- python3 -c 'bytearray(300_000_000)'  # a command, from its start to its end
  memtrace record -d 5 -p $$                              # this shell, for five seconds
  memtrace record -d 5 -a                                 # the whole machine

More options, the exit status and signals: memtrace record --help";

const AFTER_LONG_HELP: &str = "\
Examples:
  memtrace record -- python3 -c 'bytearray(300_000_000)'  # a command, from its start to its end
  memtrace record -d 5 -p $$                              # this shell, for five seconds
  memtrace record -d 5 -a                                 # the whole machine

What was recorded is shown by `memtrace report`.

Exit status: that of COMMAND, 128 + n when signal n ended it; 127 if the command, or the interpreter
of a script, does not exist, 126 if it can't be executed; 1 after an error of memtrace or if no
process matched, 2 on a usage error. Where COMMAND is left running, the status is 0 with -d, and 130
when a second Ctrl-C ended the recording.

Signals, with COMMAND: SIGINT (Ctrl-C), SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed
on to it, and it is recorded to its end; one that ends by SIGTERM gives the status 143. A second
SIGINT ends the recording and leaves COMMAND running; on a terminal Ctrl-C reaches COMMAND as well,
which may end by it. A COMMAND that is stopped gives the terminal back to the shell, and fg has both
go on. Without COMMAND each of these signals ends the recording, with the status 0. While a
recording is closed, another one ends memtrace at once: `memtrace recover` then closes it.";

// The groups of options in the help, in their order; what to record comes first, and many hosts after
// where to.
const WHERE: &str = "Where to, and for how long";
const HOW: &str = "How to observe";
const GPUS: &str = "GPUs";
const MARKS: &str = "Marks and roles";
const COMMAND: &str = "The command";
const LOAD: &str = "Load on the command, a server";
const OTHER: &str = "Other options";

/// The arguments of `memtrace record`.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "memtrace record [OPTIONS] -- COMMAND [ARG]...\n       \
                            memtrace record [OPTIONS] -p PID | --match REGEX | --cgroup PATH | --ray | --vllm | -a"
)]
#[command(after_help = EXAMPLES, after_long_help = AFTER_LONG_HELP, disable_help_flag = true)]
#[command(group = clap::ArgGroup::new("target").multiple(false).required(true))]
#[command(group = clap::ArgGroup::new("lines").multiple(true))]
pub(super) struct Args {
    #[command(flatten)]
    targets: Targets,

    /// Directory to write; must not exist, or be empty [default: memtrace-<host>-<UTC time>]
    ///
    /// With --root, the directory that holds recordings until they are uploaded.
    #[arg(short, long, value_name = "DIR", help_heading = WHERE)]
    output: Option<PathBuf>,

    /// Stop after this time: 30s, 5m, 1h30m, or so many seconds [default: when the target ends]
    #[arg(short, long, value_name = "TIME", value_parser = parse_seconds, help_heading = WHERE)]
    duration: Option<DurationNs>,

    /// Begin a new recording after this time, and end the old one once the new one observes: 24h
    ///
    /// Until a signal ends it. Each has a name of its own below the current directory, or the place of
    /// its start below --root. --keep removes old ones.
    #[arg(long, value_name = "TIME", value_parser = every::parse_every, help_heading = WHERE,
          conflicts_with_all = ["command", "duration"])]
    every: Option<DurationNs>,

    /// Downsample older recordings by their age: 1d:1s,7d:10s
    ///
    /// As `memtrace downsample --tiers` does with those of the current directory, each hour.
    #[arg(long, value_name = "AGE:TIME,...", value_parser = downsample::checked_tiers,
          help_heading = WHERE, requires = "every", conflicts_with = "root")]
    downsample: Option<String>,

    /// Be a recorder of --every: say where it records, and end when standard input does
    #[arg(long, hide = true, conflicts_with_all = ["every", "command"])]
    in_turn: bool,

    #[command(flatten)]
    hosts: ManyHosts,

    /// Time between two snapshots
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_interval, help_heading = HOW)]
    interval: DurationNs,

    /// How to observe
    #[arg(long, default_value = "auto", value_parser = BackendParser, help_heading = HOW)]
    backend: BackendChoice,

    /// How to see mmap, munmap, mremap, brk and madvise (backend bpf)
    #[arg(hide_short_help = true, long, default_value = "auto", value_parser = ProbeParser, help_heading = HOW)]
    probes: ProbeChoice,

    /// Sum up such calls below this size instead of recording each
    #[arg(hide_short_help = true, long, value_name = "SIZE", default_value = "1MiB", value_parser = parse_size, help_heading = HOW)]
    vm_min_bytes: Bytes,

    /// Sample who touches new memory, with stacks of Python and machine code (backend bpf, x86-64)
    #[arg(long, help_heading = HOW)]
    stacks: bool,

    /// Take more CPUs than these for many (backend bpf). For tests: it trades the exactness of
    /// maxima for the cost of page faults, and the default is right
    #[arg(long, value_name = "CPUS", hide = true)]
    few_cpus: Option<u32>,

    /// Percent of one CPU that memtrace may take before it samples less often
    ///
    /// A fifth of it goes to PSS and kinds of memory, a twentieth to what is inside of processes.
    #[arg(long, value_name = "PERCENT", default_value = CPU_BUDGET_PERCENT, value_parser = parse_percent, help_heading = HOW)]
    budget: f64,

    /// Observe these GPUs only: index, UUID, or pci:ADDRESS, with commas between [default: all]
    ///
    /// May be repeated.
    #[arg(long, value_name = "GPU,...", value_delimiter = ',', help_heading = GPUS,
          value_parser = clap::builder::NonEmptyStringValueParser::new())]
    gpu: Vec<String>,

    /// Record the memory of GPUs alone and who holds it
    ///
    /// No memory of processes, no marks. New processes are looked for once a second (Linux).
    #[arg(long, help_heading = GPUS, conflicts_with_all = ["interval", "backend", "probes",
          "vm_min_bytes", "stacks", "lines", "roles"])]
    gpu_only: bool,

    /// Time between two readings of the memory of GPUs [default: 100ms]
    #[arg(hide_short_help = true, long, value_name = "TIME", value_parser = parse_interval, help_heading = GPUS)]
    gpu_interval: Option<DurationNs>,

    /// Take marks from what COMMAND writes to stdout and stderr (Linux)
    ///
    /// It is passed on as it is. vLLM's, SGLang's, Ray's and torchrun's start-up is known;
    /// --mark-rules adds more.
    #[arg(long, group = "lines", conflicts_with_all = ["pid", "pattern", "cgroup", "ray", "vllm", "all"], help_heading = MARKS)]
    marks_from_output: bool,

    /// Take marks from the lines that come to a log file; may be repeated (Linux)
    #[arg(long, value_name = "FILE", group = "lines", help_heading = MARKS)]
    marks_from: Vec<PathBuf>,

    /// Rules of your own for these lines, as TOML; see `memtrace schema --mark-rules`
    #[arg(hide_short_help = true, long, value_name = "FILE", requires = "lines", help_heading = MARKS)]
    mark_rules: Option<PathBuf>,

    /// Rules that name the roles of processes, applied before the built-in ones (docs/roles.md)
    #[arg(long, value_name = "FILE", help_heading = MARKS)]
    roles: Option<PathBuf>,

    /// Kill the command when memtrace itself is killed (Linux)
    #[arg(long, help_heading = COMMAND)]
    kill_child: bool,

    /// When the recording ends, end the processes of the tree that outlived its root (Linux)
    ///
    /// With SIGTERM, and SIGKILL after 3 s. One that you named (--match, --cgroup, --ray, --vllm) is
    /// ended only if its parent was killed or crashed, not if that exited with an error or was asked
    /// to end (SIGHUP, SIGINT, SIGPIPE, SIGTERM). Without this option they are only listed.
    #[arg(long, conflicts_with = "all", help_heading = COMMAND)]
    kill_survivors: bool,

    /// Have glibc name its memory, so that the kernel reports the names
    ///
    /// Sets glibc.mem.decorate_maps=1 in GLIBC_TUNABLES; needs glibc 2.38 and Linux 5.17 with
    /// CONFIG_ANON_VMA_NAME.
    #[arg(hide_short_help = true, long, conflicts_with_all = ["pid", "pattern", "cgroup", "ray", "vllm", "all"], help_heading = COMMAND)]
    name_maps: bool,

    /// Start the command in a memory cgroup of its own, so that the kernel counts what it holds
    /// (Linux)
    ///
    /// As root below the cgroup of memtrace, else through systemd in the slice of the session. auto
    /// goes on without one if it can't be made, and makes none in a step of Slurm.
    #[arg(long, default_value = "auto", value_parser = ScopeParser, help_heading = COMMAND,
          conflicts_with_all = ["pid", "pattern", "cgroup", "ray", "vllm", "all"])]
    scope: ScopeChoice,

    /// Run the command as root under sudo, not as the user who called it
    #[arg(long, help_heading = COMMAND)]
    as_root: bool,

    /// When the command is ready, send it the conditions of a plan, then end it (docs/load.md)
    ///
    /// It is ended by SIGINT, after 30 s by SIGTERM, and what each condition took is printed. Where
    /// --gpu and --gpu-interval are not given, GPU_INDICES and GPU_INTERVAL_MS are taken from the
    /// environment.
    #[arg(long, value_name = "PLAN", help_heading = LOAD, conflicts_with_all = ["pid", "pattern",
          "cgroup", "ray", "vllm", "all", "gpu_only"])]
    load: Option<PathBuf>,

    /// Where the command serves [default: VLLM_URL, else http://localhost:8000]
    #[arg(hide_short_help = true, long, value_name = "URL", requires = "load", help_heading = LOAD)]
    load_url: Option<String>,

    /// The model [default: MODEL_NAME, else the only one that the server has]
    #[arg(hide_short_help = true, long, value_name = "NAME", requires = "load", help_heading = LOAD)]
    load_model: Option<String>,

    /// After the plan, open a window of the server's profiler for so many requests (docs/engine.md)
    #[arg(hide_short_help = true, long, value_name = "REQUESTS", requires = "load", help_heading = LOAD)]
    load_profile: Option<usize>,

    /// Import the requests of a load generator when the recording is closed; may be repeated
    ///
    /// Its file, or a folder below which it writes one, or `auto`, which looks below the current
    /// directory and where COMMAND names a file or a folder (docs/load.md).
    #[arg(long, value_name = "PATH|auto", help_heading = OTHER, conflicts_with_all = ["gpu_only", "root"])]
    requests: Vec<PathBuf>,

    /// Do not save phases and the memory of roles as tables once the recording is closed
    ///
    /// They are what `memtrace report --save-findings` saves.
    #[arg(hide_short_help = true, long, help_heading = OTHER)]
    no_findings: bool,

    /// Write what each phase took beneath the lines of the command, as `report --style startup
    /// --follow` does (on stderr); marks are taken from those lines too, as by --marks-from-output
    #[arg(long, group = "lines", help_heading = OTHER, conflicts_with_all = ["gpu_only", "quiet"])]
    inline: bool,

    /// Say nothing but errors
    #[arg(short, long, help_heading = OTHER)]
    quiet: bool,

    /// Print this; -h is shorter
    #[arg(short, long, action = clap::ArgAction::Help, help_heading = OTHER)]
    help: Option<bool>,
}

/// Records.
///
/// # Errors
/// When the recording can't be started or closed. The command's own failure is no error:
/// its exit code is passed on.
pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(every) = args.every {
        if args.output.is_some() && args.hosts.root.is_none() {
            bail!(
                "with --every each recording gets a name of its own: leave out -o, and run it in the \
                 directory where they should be"
            )
        }
        let older = args.downsample.map(|tiers| Older {
            tiers,
            person: Person::behind(&HostFacts::read(), args.as_root),
        });
        return every::run(every, older);
    }
    // A command runs in the namespaces of who called.
    #[cfg(target_os = "linux")]
    if args.targets.command.is_empty() {
        enter_cgroup_namespace_of_the_machine();
    }
    match recorded(args) {
        Err(error) => match error.downcast::<CommandError>() {
            Ok(error) => {
                say(&error.to_string());
                Ok(ExitCode::from(error.exit_code()))
            }
            Err(error) => Err(error),
        },
        recorded => recorded,
    }
}

fn recorded(mut args: Args) -> anyhow::Result<ExitCode> {
    let facts = HostFacts::read();
    let target = args.targets.target();
    let person = Person::behind(&facts, args.as_root);
    let person = person.as_ref();
    let user = args.user(&facts);
    let owner = user.owner();
    let mut options = args.options(target, person)?;
    let placed = args
        .hosts
        .place(options.output.as_deref(), &options.target, &facts, person)?;
    if let Some(placed) = &placed {
        options.output = Some(placed.dir.clone());
        options.place = Some(placed.place.clone());
    }
    let root = placed.as_ref().and_then(|placed| placed.carried_to.clone());
    let mut carried = match placed.as_ref().zip(root.as_deref()) {
        Some((placed, root)) => Some(Pusher::fork(&placed.dir, root, &facts, args.as_root)?),
        None => None,
    };
    // What carries it has to be able to read it.
    let reader = carried.as_ref().and_then(Pusher::owner).cloned();
    let files_of = reader.as_ref().map(Person::ids).or(owner);
    let Started {
        marks,
        held,
        scope,
        sender,
    } = Started::start(&mut args, user, person, &facts)?;
    let beginning = Beginning {
        can_come: matches!(
            options.target,
            Target::Match { .. } | Target::Cgroup { .. } | Target::Framework { .. }
        ),
        is_gpu_only: args.gpu_only,
        has_nvidia_device: facts.has_nvidia_device == Some(true),
        hidden: facts.hidden_processes(),
    };
    // A command's own output belongs to the terminal; a line of ours would run into it.
    let has_progress = !args.quiet && held.is_none() && std::io::stderr().is_terminal();
    let uid = files_of.map_or(facts.euid, |(uid, _)| Some(uid));
    let mut keeper = None;
    let mut inline = None;
    let announce = |info: &RunInfo, dir: &Path, found: usize| {
        keeper = args.hosts.keep.zip(uid).map(|(bounds, uid)| {
            let local_root = placed.as_ref().map(|placed| placed.local_root.clone());
            let range = keep::Range {
                dir: local_root.unwrap_or_else(|| keep::beside(dir)),
                uid,
                root,
                is_quiet: args.quiet,
            };
            Keeper::start(bounds, range)
        });
        if !args.quiet {
            beginning.say(info, dir, found);
        }
        if args.in_turn {
            // Who reads it can be gone: then standard input ends.
            let _ = print(&format!("{}\n", dir.display()));
        }
        if args.inline {
            match Inline::start(dir, reader.as_ref().or(person)) {
                Ok(started) => inline = Some(started),
                Err(error) => say(&format!("phases can't be written here: {error}")),
            }
        }
    };
    let progress = |progress: &Progress| {
        if let Some(pusher) = carried.as_mut().filter(|_| !progress.is_closing) {
            pusher.look();
        }
        if has_progress {
            show_progress(progress);
        }
    };
    let outcome = record(&options, &facts, held, marks, files_of, announce, progress);
    if has_progress {
        end_progress();
    }
    drop(inline);
    drop(keeper);
    drop(scope);
    // It has its last words before those of the recording.
    drop(sender);
    let outcome = match outcome {
        Err(RecordError::Command(error)) => return Err(error.into()),
        Err(error) if is_place_refused(&error) => {
            return Err(error).context("failed to record here: -o DIR records elsewhere");
        }
        outcome => outcome.context("failed to record")?,
    };
    let status = finish(&outcome, carried.is_some(), args.quiet, &options);
    args.follow_up(&outcome, reader.as_ref().or(person), person);
    if let Some((pusher, placed)) = carried.zip(placed) {
        let has_more = args.saves_findings(&outcome);
        arrival::tell(pusher, &placed, &outcome, has_more, args.quiet);
    }
    Ok(status)
}

/// Whether no recording can be made where it was to go.
fn is_place_refused(error: &RecordError) -> bool {
    let RecordError::Output(OutputError::Store(StoreError::Io { doing, source, .. })) = error
    else {
        return false;
    };
    let refusals = [
        ErrorKind::PermissionDenied,
        ErrorKind::ReadOnlyFilesystem,
        ErrorKind::NotFound,
        ErrorKind::NotADirectory,
    ];
    *doing == "create" && refusals.contains(&source.kind())
}

impl Args {
    /// As whom the command runs, and with what in its environment.
    fn user(&self, facts: &HostFacts) -> CommandUser {
        let user = match self.as_root {
            true => CommandUser::same(),
            false => CommandUser::behind_sudo(facts),
        };
        match self.name_maps {
            true => user.with_named_maps(),
            false => user,
        }
    }

    /// What the session needs, of a recording that is for itself.
    fn options(&self, target: Target, person: Option<&Person>) -> anyhow::Result<Options> {
        let (gpus, gpu_interval) = load::gpus(self, |name| std::env::var(name).ok())?;
        Ok(Options {
            target,
            output: self.output.as_deref().map(no_option),
            place: None,
            rotate: self.hosts.rotation(),
            redacts: self.hosts.redact,
            duration: self.duration,
            interval: match self.gpu_only {
                true => GPU_ONLY_INTERVAL,
                false => self.interval,
            },
            backend: match self.gpu_only {
                true => Some(Backend::Procfs),
                false => self.backend.0,
            },
            probes: self.probes,
            vm_min: self.vm_min_bytes,
            has_stacks: self.stacks,
            few_cpus: self.few_cpus,
            roles: rules(self.roles.as_deref(), person)?,
            gpu_interval,
            gpus,
            is_gpu_only: self.gpu_only,
            cpu_budget: self.budget / 100.0,
            kills_survivors: self.kill_survivors,
            ends_with_stdin: self.in_turn,
        })
    }

    fn saves_findings(&self, outcome: &Outcome) -> bool {
        !self.no_findings && !self.gpu_only && outcome.storage_failure.is_none()
    }

    /// Does what was asked for once the recording is closed. `reader` may read the recording.
    fn follow_up(&self, outcome: &Outcome, reader: Option<&Person>, person: Option<&Person>) {
        if !self.requests.is_empty() && outcome.storage_failure.is_none() {
            requests::import(&self.requests, &outcome.dir, person, self.quiet);
        }
        if self.saves_findings(outcome) && outcome.process_count > 0 {
            save_findings(outcome, reader, self.quiet);
        }
        if self.load.is_some() && !self.quiet {
            load::report(&outcome.dir, self.as_root);
        }
    }
}

#[cfg(test)]
mod tests;
