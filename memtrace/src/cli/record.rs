//! `memtrace record`: what to record, where to, and what is said meanwhile.

mod afterwards;
mod arrival;
mod findings;
mod keep;
mod load;
mod many_hosts;
mod named_files;
mod pusher;
mod requests;

use super::leftovers;
use super::output::say;
use super::recorded::no_option;
use super::targets::Targets;
use super::values::{
    BackendChoice, BackendParser, ProbeParser, ScopeParser, parse_interval, parse_percent,
    parse_seconds, parse_size,
};
use crate::session::{
    CommandError, CommandUser, Held, Marks, Options, Outcome, Progress, RecordError, Scope,
    ScopeChoice, record,
};
use anyhow::Context;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use keep::Keeper;
use many_hosts::ManyHosts;
#[cfg(target_os = "linux")]
use memtrace_host::enter_cgroup_namespace_of_the_machine;
use memtrace_host::{Backend, HostFacts, Person, ProbeChoice};
use memtrace_model::{Bytes, DurationNs, GpuInfo, RunInfo, Target, quoted};
use memtrace_report::words;
use named_files::{check_log, mark_rules, rules};
use pusher::Pusher;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Share of one CPU that the recorder may take before it looks less often.
const CPU_BUDGET_PERCENT: &str = "2";

/// How often processes are looked for that may hold memory of GPUs, where nothing else of them is
/// recorded.
const GPU_ONLY_INTERVAL: DurationNs = DurationNs(1_000_000_000);

const AFTER_HELP: &str = "\
Examples:
  memtrace record -- python3 -c 'bytearray(300_000_000)'  # a command, from its start to its end
  memtrace record -d 5 -p $$                              # this shell, for five seconds
  memtrace record -d 5 -a                                 # the whole machine

What was recorded is shown by `memtrace report`.

Exit status: that of COMMAND, 128 + n when signal n ended it; 127 if the command, or the interpreter
of a script, does not exist, 126 if it can't be executed; 1 after an error of memtrace or if no
process matched, 2 on a usage error. With -d, or when a second Ctrl-C ends the recording, COMMAND is
left running and the status is 0.

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
#[command(after_help = AFTER_HELP, disable_help_flag = true)]
#[command(group = clap::ArgGroup::new("target").multiple(false).required(true))]
#[command(group = clap::ArgGroup::new("lines").multiple(true))]
pub(super) struct Args {
    #[command(flatten)]
    targets: Targets,

    /// Directory to write; must not exist, or be empty [default: memtrace-<host>-<UTC time>]. With
    /// --root, the directory that holds recordings until they are uploaded
    #[arg(short, long, value_name = "DIR", help_heading = WHERE)]
    output: Option<PathBuf>,

    /// Stop after this time: 30s, 5m, 1h30m, or so many seconds [default: when the target ends]
    #[arg(short, long, value_name = "TIME", value_parser = parse_seconds, help_heading = WHERE)]
    duration: Option<DurationNs>,

    #[command(flatten)]
    hosts: ManyHosts,

    /// Time between two snapshots
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_interval, help_heading = HOW)]
    interval: DurationNs,

    /// How to observe
    #[arg(long, default_value = "auto", value_parser = BackendParser, help_heading = HOW)]
    backend: BackendChoice,

    /// How to see mmap, munmap, mremap, brk and madvise (backend bpf)
    #[arg(long, default_value = "auto", value_parser = ProbeParser, help_heading = HOW)]
    probes: ProbeChoice,

    /// Sum up such calls below this size instead of recording each
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = parse_size, help_heading = HOW)]
    vm_min_bytes: Bytes,

    /// Sample who touches new memory, with stacks of Python and machine code (backend bpf, x86-64)
    #[arg(long, help_heading = HOW)]
    stacks: bool,

    /// Take more CPUs than these for many (backend bpf). For tests: it trades the exactness of
    /// maxima for the cost of page faults, and the default is right
    #[arg(long, value_name = "CPUS", hide = true)]
    few_cpus: Option<u32>,

    /// Percent of one CPU that memtrace may take before it samples less often; a fifth of it goes
    /// to PSS and kinds of memory, a twentieth to what is inside of processes
    #[arg(long, value_name = "PERCENT", default_value = CPU_BUDGET_PERCENT, value_parser = parse_percent, help_heading = HOW)]
    budget: f64,

    /// Observe these GPUs only: index, UUID, or pci:ADDRESS, with commas between; may be repeated
    /// [default: all]
    #[arg(long, value_name = "GPU,...", value_delimiter = ',', help_heading = GPUS,
          value_parser = clap::builder::NonEmptyStringValueParser::new())]
    gpu: Vec<String>,

    /// Record the memory of GPUs alone and who holds it: no memory of processes, no marks. New
    /// processes are looked for once a second (Linux)
    #[arg(long, help_heading = GPUS, conflicts_with_all = ["interval", "backend", "probes",
          "vm_min_bytes", "stacks", "lines", "roles"])]
    gpu_only: bool,

    /// Time between two readings of the memory of GPUs [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = parse_interval, help_heading = GPUS)]
    gpu_interval: Option<DurationNs>,

    /// Take marks from what COMMAND writes to stdout and stderr, which is passed on as it is:
    /// vLLM's, SGLang's, Ray's and torchrun's start-up (Linux)
    #[arg(long, group = "lines", conflicts_with_all = ["pid", "pattern", "cgroup", "ray", "vllm", "all"], help_heading = MARKS)]
    marks_from_output: bool,

    /// Take marks from the lines that come to a log file; may be repeated (Linux)
    #[arg(long, value_name = "FILE", group = "lines", help_heading = MARKS)]
    marks_from: Vec<PathBuf>,

    /// Rules of your own for these lines, as TOML; see `memtrace schema --mark-rules`
    #[arg(long, value_name = "FILE", requires = "lines", help_heading = MARKS)]
    mark_rules: Option<PathBuf>,

    /// Rules that name the roles of processes, applied before the built-in ones (docs/roles.md)
    #[arg(long, value_name = "FILE", help_heading = MARKS)]
    roles: Option<PathBuf>,

    /// Kill the command when memtrace itself is killed (Linux)
    #[arg(long, help_heading = COMMAND)]
    kill_child: bool,

    /// When the recording ends, end the processes of the tree that outlived its root: SIGTERM, and
    /// SIGKILL after 3 s. One that you named (--match, --cgroup, --ray, --vllm) is ended only if its
    /// parent was killed or crashed, not if that exited with an error or was asked to end (SIGHUP,
    /// SIGINT, SIGPIPE, SIGTERM). Without this option they are only listed (Linux)
    #[arg(long, conflicts_with = "all", help_heading = COMMAND)]
    kill_survivors: bool,

    /// Have glibc name its memory, so that the kernel reports the names (sets
    /// glibc.mem.decorate_maps=1 in GLIBC_TUNABLES; glibc 2.38 and Linux 5.17 with
    /// CONFIG_ANON_VMA_NAME)
    #[arg(long, conflicts_with_all = ["pid", "pattern", "cgroup", "ray", "vllm", "all"], help_heading = COMMAND)]
    name_maps: bool,

    /// Start the command in a memory cgroup of its own, so that the kernel counts what it holds
    /// (Linux): as root below the cgroup of memtrace, else through systemd in the slice of the
    /// session. auto goes on without one if it can't be made, and makes none in a step of Slurm
    #[arg(long, default_value = "auto", value_parser = ScopeParser, help_heading = COMMAND,
          conflicts_with_all = ["pid", "pattern", "cgroup", "ray", "vllm", "all"])]
    scope: ScopeChoice,

    /// Run the command as root under sudo, not as the user who called it
    #[arg(long, help_heading = COMMAND)]
    as_root: bool,

    /// When the command is ready, send it the conditions of a plan, then end it by SIGINT, after
    /// 30 s by SIGTERM, and say what each condition took (docs/load.md). Where --gpu and
    /// --gpu-interval are not given, GPU_INDICES and GPU_INTERVAL_MS are taken from the environment
    #[arg(long, value_name = "PLAN", help_heading = LOAD, conflicts_with_all = ["pid", "pattern",
          "cgroup", "ray", "vllm", "all", "gpu_only"])]
    load: Option<PathBuf>,

    /// Where the command serves [default: VLLM_URL, else http://localhost:8000]
    #[arg(long, value_name = "URL", requires = "load", help_heading = LOAD)]
    load_url: Option<String>,

    /// The model [default: MODEL_NAME, else the only one that the server has]
    #[arg(long, value_name = "NAME", requires = "load", help_heading = LOAD)]
    load_model: Option<String>,

    /// After the plan, open a window of the server's profiler for so many requests (docs/engine.md)
    #[arg(long, value_name = "REQUESTS", requires = "load", help_heading = LOAD)]
    load_profile: Option<usize>,

    /// When the recording is closed, import the requests of a load generator: its file, or a folder
    /// below which it writes one, or `auto`, which looks below the current directory and where
    /// COMMAND names a file or a folder; may be repeated (docs/load.md)
    #[arg(long, value_name = "PATH|auto", help_heading = OTHER, conflicts_with_all = ["gpu_only", "root"])]
    requests: Vec<PathBuf>,

    /// Do not save phases and the memory of roles as tables once the recording is closed: what
    /// `memtrace report --save-findings` does
    #[arg(long, help_heading = OTHER)]
    no_findings: bool,

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
    // A command runs in the namespaces of who called.
    #[cfg(target_os = "linux")]
    if args.targets.command.is_empty() {
        enter_cgroup_namespace_of_the_machine();
    }
    let facts = HostFacts::read();
    let (gpus_observed, gpu_interval) = load::gpus(&args, |name| std::env::var(name).ok())?;
    let target = args.targets.target();
    let person = Person::behind(&facts, args.as_root);
    let person = person.as_ref();
    let roles = rules(args.roles.as_deref(), person)?;
    let user = if args.as_root {
        CommandUser::same()
    } else {
        CommandUser::behind_sudo(&facts)
    };
    let user = match args.name_maps {
        true => user.with_named_maps(),
        false => user,
    };
    let owner = user.owner();
    let output = args.output.as_deref().map(no_option);
    let placed = args
        .hosts
        .place(output.as_deref(), &target, &facts, person)?;
    let root = placed.as_ref().and_then(|placed| placed.carried_to.clone());
    let mut carried = match placed.as_ref().zip(root.as_deref()) {
        Some((placed, root)) => Some(Pusher::fork(&placed.dir, root, &facts, args.as_root)?),
        None => None,
    };
    // What carries it has to be able to read it.
    let reader = carried.as_ref().and_then(Pusher::owner).cloned();
    let files_of = reader.as_ref().map(Person::ids).or(owner);
    // Before any thread is started and before anything large is read: until it runs, the
    // command is a copy of this process.
    let mut marks = match args.gpu_only {
        true => Marks::none(),
        false => Marks::bind(owner, args.marks_from_output)
            .context("failed to pass on what the command writes")?,
    };
    let forked = || Held::fork(&args.targets.command, user, &marks, args.kill_child);
    let held = match &target {
        Target::Command { .. } => match forked() {
            Ok(held) => Some(held),
            Err(error) => return Ok(command_failed(&error)),
        },
        _ => None,
    };
    let has_command = held.is_some();
    let mut scope = None;
    if let Some(held) = &held {
        let hierarchy = facts.memory_hierarchy.as_ref();
        scope = Scope::start(args.scope, hierarchy, held.tgid()).context(
            "failed to give the command a cgroup of its own (--scope never does without)",
        )?;
        marks
            .pass_on(held.tgid())
            .context("failed to pass on what the command writes")?;
    }
    let server = held.as_ref().map(Held::tgid);
    let sender = match args.load.as_deref().zip(server) {
        Some((plan, server)) => Some(load::Sender::start(&args, plan, server, &marks)?),
        None => None,
    };
    if args.marks_from_output || !args.marks_from.is_empty() {
        let rules = mark_rules(args.mark_rules.as_deref(), person)?;
        args.marks_from
            .iter()
            .try_for_each(|file| check_log(file, person))?;
        marks.read_lines(rules, args.marks_from, person.cloned());
    }
    let options = Options {
        target,
        output: match &placed {
            Some(placed) => Some(placed.dir.clone()),
            None => output,
        },
        place: placed.as_ref().map(|placed| placed.place.clone()),
        rotate: args.hosts.rotation(),
        redacts: args.hosts.redact,
        duration: args.duration,
        interval: match args.gpu_only {
            true => GPU_ONLY_INTERVAL,
            false => args.interval,
        },
        backend: match args.gpu_only {
            true => Some(Backend::Procfs),
            false => args.backend.0,
        },
        probes: args.probes,
        vm_min: args.vm_min_bytes,
        has_stacks: args.stacks,
        few_cpus: args.few_cpus,
        roles,
        gpu_interval,
        gpus: gpus_observed,
        is_gpu_only: args.gpu_only,
        cpu_budget: args.budget / 100.0,
        kills_survivors: args.kill_survivors,
    };
    let (is_gpu_only, as_root) = (args.gpu_only, args.as_root);
    let requests = args.requests;
    let (is_quiet, saves_findings) = (args.quiet, !args.no_findings && !args.gpu_only);
    // A command's own output belongs to the terminal; a line of ours would run into it.
    let has_progress = !is_quiet && !has_command && std::io::stderr().is_terminal();
    let has_nvidia_device = facts.has_nvidia_device == Some(true);
    let keep = args.hosts.keep;
    let uid = files_of.map_or(facts.euid, |(uid, _)| Some(uid));
    let local_root = placed.as_ref().map(|placed| placed.local_root.clone());
    let mut keeper = None;
    let announce = |info: &RunInfo, dir: &Path, found: usize| {
        keeper = keep.zip(uid).map(|(bounds, uid)| {
            let dir = local_root.unwrap_or_else(|| keep::beside(dir));
            let range = keep::Range {
                dir,
                uid,
                root,
                is_quiet,
            };
            Keeper::start(bounds, range)
        });
        if !is_quiet {
            say(&format!(
                "recording with {} ({}) to {}",
                info.backend,
                info.backend_reason,
                dir.display()
            ));
            let can_come = matches!(
                options.target,
                Target::Match { .. } | Target::Cgroup { .. } | Target::Framework { .. }
            );
            if found == 0 && can_come && !is_gpu_only {
                say("no process matches yet: waiting for one; Ctrl-C ends");
            }
            if !info.gpus.is_empty() {
                say(&format!("with the memory of {}", gpus(&info.gpus)));
            }
            // Without a GPU there is nothing to be missed.
            if let Some(note) = info.gpu_note.as_ref().filter(|_| has_nvidia_device) {
                say(&format!("without the memory of NVIDIA GPUs: {note}"));
            }
        }
    };
    let progress = |progress: &Progress| {
        if let Some(pusher) = carried.as_mut().filter(|_| !progress.is_closing) {
            pusher.look();
        }
        if has_progress && is_in_foreground() {
            show_progress(progress);
        }
    };
    let outcome = record(&options, &facts, held, marks, files_of, announce, progress);
    if has_progress && is_in_foreground() {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
    drop(keeper);
    drop(scope);
    let has_load = sender.is_some();
    // It has its last words before those of the recording.
    drop(sender);
    match outcome {
        Ok(outcome) => {
            let status = finish(&outcome, carried.is_some(), is_quiet, &options);
            if !requests.is_empty() && outcome.storage_failure.is_none() {
                requests::import(&requests, &outcome.dir, person, is_quiet);
            }
            let saves_findings = saves_findings && outcome.storage_failure.is_none();
            if saves_findings && outcome.process_count > 0 {
                save_findings(&outcome, reader.as_ref().or(person), is_quiet);
            }
            if has_load && !is_quiet {
                load::report(&outcome.dir, as_root);
            }
            if let Some((pusher, placed)) = carried.zip(placed) {
                arrival::tell(pusher, &placed, &outcome, saves_findings, is_quiet);
            }
            Ok(status)
        }
        Err(RecordError::Command(error)) => Ok(command_failed(&error)),
        Err(error) => Err(error).context("failed to record"),
    }
}

/// The GPUs in a line: what each is, and how many of them.
fn gpus(gpus: &[GpuInfo]) -> String {
    let mut kinds: Vec<(&str, usize)> = Vec::new();
    for gpu in gpus {
        let name = gpu.name.as_deref().unwrap_or(&gpu.device);
        match kinds.iter_mut().find(|(kind, _)| *kind == name) {
            Some((_, count)) => *count += 1,
            None => kinds.push((name, 1)),
        }
    }
    let reported = kinds.iter().map(|(name, count)| match count {
        1 => (*name).to_owned(),
        count => format!("{count} × {name}"),
    });
    reported.collect::<Vec<_>>().join(", ")
}

/// The end, reported in a line; the exit code is the command's.
fn finish(outcome: &Outcome, is_carried: bool, is_quiet: bool, options: &Options) -> ExitCode {
    for log in &outcome.absent_logs {
        say(&format!(
            "{} never appeared: it gave no marks",
            log.display()
        ));
    }
    if !is_quiet || outcome.storage_failure.is_some() {
        let can_end = !matches!(options.target, Target::All);
        leftovers::words(&outcome.leftovers, can_end)
            .iter()
            .for_each(|line| say(line));
        say(&closing_words(outcome, is_carried, options.is_gpu_only));
    }
    match outcome.command_exit_code {
        Some(code) => ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)),
        None if outcome.storage_failure.is_some() => ExitCode::FAILURE,
        // A script that goes on to read the recording should not find out there.
        None if outcome.process_count == 0 => ExitCode::FAILURE,
        None => ExitCode::SUCCESS,
    }
}

fn save_findings(outcome: &Outcome, person: Option<&Person>, is_quiet: bool) {
    let Err(mut reason) = findings::save(outcome, person, is_quiet) else {
        return;
    };
    // What is said of damage has its own way out.
    if !reason.contains("memtrace report") {
        let dir = quoted(&outcome.dir.display().to_string());
        reason.push_str(&format!(
            "; for them: memtrace report --save-findings {dir}"
        ));
    }
    if !is_quiet {
        say(&format!(
            "phases and roles are not saved as tables: {reason}"
        ));
    }
}

fn closing_words(outcome: &Outcome, is_carried: bool, is_gpu_only: bool) -> String {
    let dir = outcome.dir.display();
    if let Some(failure) = &outcome.storage_failure {
        return format!("stopped recording: {failure}; what was written so far is in {dir}");
    }
    let counted = match outcome.process_count {
        _ if is_gpu_only => "GPUs and who held their memory".to_owned(),
        0 => return format!("no process matched: {dir} holds figures of the machine only"),
        1 => "1 process".to_owned(),
        count => format!("{count} processes"),
    };
    if is_carried {
        return format!("{counted} in {dir}");
    }
    let typed = quoted(&dir.to_string());
    format!("{counted} in {dir}; see it with: memtrace report {typed}")
}

fn command_failed(error: &CommandError) -> ExitCode {
    say(&error.to_string());
    ExitCode::from(error.exit_code())
}

/// A command without `--` before it is the commonest slip: says so.
pub(super) fn advise(mut error: clap::Error) -> clap::Error {
    let word = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) if !word.starts_with('-') => word.clone(),
        _ => return error,
    };
    let usage = error.get(ContextKind::Usage).map(ToString::to_string);
    let is_about_record = usage.is_some_and(|usage| usage.contains("memtrace record"));
    if error.kind() == ErrorKind::UnknownArgument && is_about_record {
        let tip = format!("to record a command, put '--' before it: '-- {word}'");
        let tips = ContextValue::StyledStrs(vec![tip.into()]);
        error.insert(ContextKind::Suggested, tips);
    }
    error
}

/// Whether the terminal is ours: a shell can have put memtrace behind itself.
#[cfg(unix)]
fn is_in_foreground() -> bool {
    // SAFETY: both take and give plain numbers.
    unsafe { libc::tcgetpgrp(libc::STDERR_FILENO) == libc::getpgrp() }
}

#[cfg(not(unix))]
fn is_in_foreground() -> bool {
    true
}

fn show_progress(progress: &Progress) {
    if progress.is_closing {
        let rows = words::count(progress.row_count);
        let _ = write!(
            std::io::stderr(),
            "\rmemtrace: closing the recording of {rows} rows\x1b[K"
        );
        return;
    }
    let seconds = progress.elapsed.0 / 1_000_000_000;
    let _ = write!(
        std::io::stderr(),
        "\rmemtrace: {:02}:{:02}:{:02}  {} processes, {} rows, {} KiB written; Ctrl-C to stop\x1b[K",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        progress.process_count,
        progress.row_count,
        progress.written_bytes.0 / 1024,
    );
}

#[cfg(test)]
mod tests;
