//! Starting the collectors: the backend of the plan, or the next best where the kernel
//! refuses it after all, and those that every recording has.

use super::Options;
#[cfg(target_os = "linux")]
use memtrace_collect::bpf::{BpfBackend, BpfOptions, FEW_CPUS, HeldCommand};
#[cfg(target_os = "linux")]
use memtrace_collect::cgroup::CgroupCollector;
use memtrace_collect::clocks::ClockCollector;
#[cfg(target_os = "linux")]
use memtrace_collect::limits::LimitCollector;
use memtrace_collect::node::NodeCollector;
#[cfg(target_os = "linux")]
use memtrace_collect::oom::{KmsgReader, OomCollector};
#[cfg(target_os = "linux")]
use memtrace_collect::procfs::{self, ProcfsBackend, ProcfsOptions, descriptor_limit};
#[cfg(target_os = "linux")]
use memtrace_collect::smaps::{SmapsCollector, SmapsOptions};
#[cfg(target_os = "linux")]
use memtrace_collect::stacks::StackCollector;
use memtrace_collect::sysinfo::SysinfoBackend;
#[cfg(target_os = "linux")]
use memtrace_collect::{Ceiling, PodCollector, RayDrivers};
use memtrace_collect::{Collector, Pass, ProcessTable, Targets};
use memtrace_host::{Backend, HostFacts, Plan, PlanError, is_running};
#[cfg(target_os = "linux")]
use memtrace_model::Framework;
use memtrace_model::{DiagKind, Severity, Target, Tgid};
use std::path::{Path, PathBuf};
#[cfg(target_os = "linux")]
use std::sync::Arc;

/// Part of the recorder's share of a CPU that goes to learning what the memory is.
#[cfg(target_os = "linux")]
const ATTRIBUTION_SHARE: f64 = 0.2;
/// The same of who laid it out.
#[cfg(target_os = "linux")]
const LAYOUT_SHARE: f64 = 0.05;
/// No more than this of one CPU, whatever the budget: PSS, which bounds what is held, must not wait for
/// it.
#[cfg(target_os = "linux")]
const LAYOUT_SHARE_MAX: f64 = 0.01;

/// The recording could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// What was asked for by name can't be had.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A process that was asked for by id does not exist.
    #[error("no process has pid {0}")]
    NoSuchProcess(Tgid),
    /// A process that was asked for by id is another user's, and /proc does not show it.
    #[error(
        "process {tgid} is hidden: it is another user's, and /proc is mounted with hidepid; {remedy}"
    )]
    Hidden {
        /// The id that was asked for.
        tgid: Tgid,
        /// What shows it.
        remedy: String,
    },
    /// A process that was asked for by id waits for its parent to take its exit code.
    #[error("process {0} has ended, and its parent has not waited for it yet")]
    HasEnded(Tgid),
    /// A process that was asked for by id is the kernel's.
    #[error("{tgid} is a kernel thread ({comm}), which has no memory of its own")]
    KernelThread {
        /// The id that was asked for.
        tgid: Tgid,
        /// The name of the thread.
        comm: String,
    },
    /// The id is a thread's.
    #[error("{tid} is a thread of process {tgid}; record it with -p {tgid}")]
    IsThread {
        /// The id that was asked for.
        tid: Tgid,
        /// The process that the thread is of.
        tgid: Tgid,
    },
    /// The regular expression is none.
    #[error("the pattern for --match: {0}")]
    Pattern(#[from] regex::Error),
    /// There is no such cgroup.
    #[error("no memory cgroup {path}: {reason}")]
    NoSuchCgroup {
        /// The path that was asked for.
        path: String,
        /// Why it is not one.
        reason: String,
    },
    /// There is no such session of a cluster.
    #[error("no Ray session in {directory}")]
    NoSuchSession {
        /// The directory that was asked for.
        directory: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Nothing but GPUs was asked for, and there is none.
    #[error("no GPU can be observed: {0}")]
    NoGpu(String),
    /// None of the GPUs that were asked for can be observed.
    #[error("no GPU {names} can be observed: {reason}")]
    NoSuchGpu {
        /// As they were asked for.
        names: String,
        /// Why they can't be observed.
        reason: String,
    },
    /// The backend can't record this kind of target.
    #[error("the {backend} backend can't record {what}")]
    Unsupported {
        /// The backend of the recording.
        backend: Backend,
        /// The kind of target.
        what: &'static str,
    },
    /// Stacks come from kernel probes.
    #[error("--stacks needs the bpf backend, and this recording takes {backend}: {reason}")]
    Stacks {
        /// The backend of the recording.
        backend: Backend,
        /// Why it is taken.
        reason: String,
    },
    /// Stacks of this architecture can't be unwound.
    #[error("--stacks works on x86-64 only; this is {0}")]
    StacksOf(&'static str),
    /// The backend that was asked for by name refused.
    #[error("the {backend} backend could not start: {reason}")]
    Backend {
        /// The backend that refused.
        backend: Backend,
        /// What it said.
        reason: String,
    },
}

/// A started backend.
pub(super) struct Started {
    pub(super) collectors: Vec<Box<dyn Collector>>,
    pub(super) backend: Backend,
    pub(super) reason: String,
}

/// Turns what was asked for into what backends look for.
pub(super) fn targets(
    target: &Target,
    held: Option<Tgid>,
    facts: &HostFacts,
    plan: &Plan,
) -> Result<Targets, StartError> {
    Ok(match target {
        Target::Command { .. } => Targets::Roots(held.into_iter().collect()),
        Target::Pids { tgids } => {
            let hidden_from = (plan.backend != Backend::Bpf).then_some(facts);
            let mut each = tgids.iter();
            each.try_for_each(|tgid| check_process(*tgid, hidden_from))?;
            Targets::Roots(tgids.clone())
        }
        Target::Match { regex } => Targets::Match(regex::Regex::new(regex)?),
        Target::Cgroup { path } => Targets::Cgroup(cgroup_directory(path, facts)?),
        Target::Framework { framework, session } => {
            let pattern = match session {
                Some(directory) => session_pattern(directory)?,
                None => framework.pattern().to_owned(),
            };
            Targets::Match(regex::Regex::new(&pattern)?)
        }
        Target::All => Targets::All,
    })
}

/// The directory of a session as its processes name it. They have it as Ray was given it, which
/// may lead through links, but for `session_latest`, which is a link to it.
fn session_pattern(directory: &str) -> Result<String, StartError> {
    let failed = |source| StartError::NoSuchSession {
        directory: directory.to_owned(),
        source,
    };
    let real = std::fs::canonicalize(directory).map_err(failed)?;
    // Without the slash at the end, which would have a link followed.
    let given: PathBuf = std::path::absolute(directory)
        .map_err(failed)?
        .components()
        .collect();
    let given = match (given.read_link(), given.parent()) {
        (Ok(target), Some(parent)) => parent.join(target),
        _ => given,
    };
    let [given, real] = [given, real].map(|path| regex::escape(&path.to_string_lossy()));
    Ok(format!("(?:{given}|{real})"))
}

/// That a process can be recorded. `polled_with` are the facts where /proc is all that is seen of it.
fn check_process(tgid: Tgid, polled_with: Option<&HostFacts>) -> Result<(), StartError> {
    if !is_running(tgid) {
        return Err(StartError::NoSuchProcess(tgid));
    }
    // /proc also answers to the ids of threads.
    #[cfg(target_os = "linux")]
    if let Ok(process) = ::procfs::process::Process::new(tgid.0.cast_signed())
        && let Ok(status) = process.status()
        && status.tgid != process.pid()
    {
        return Err(StartError::IsThread {
            tid: tgid,
            tgid: Tgid(status.tgid.cast_unsigned()),
        });
    }
    #[cfg(target_os = "linux")]
    match procfs::identity(Path::new("/proc"), tgid) {
        Ok(Some(identity)) if identity.is_kernel_thread => {
            let comm = identity.comm;
            return Err(StartError::KernelThread { tgid, comm });
        }
        Ok(Some(identity)) if identity.has_ended => return Err(StartError::HasEnded(tgid)),
        Ok(Some(_)) => {}
        Ok(None) if !is_running(tgid) => return Err(StartError::NoSuchProcess(tgid)),
        Ok(None) | Err(_) => {
            if let Some(facts) = polled_with.filter(|facts| facts.hides_processes().is_some()) {
                let remedy = facts.to_see_hidden();
                return Err(StartError::Hidden { tgid, remedy });
            }
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = polled_with;
    Ok(())
}

/// The directory of a cgroup that is given as a path below its mount point, or as the
/// directory itself.
fn cgroup_directory(path: &str, facts: &HostFacts) -> Result<PathBuf, StartError> {
    let error = |reason: &str| StartError::NoSuchCgroup {
        path: path.to_owned(),
        reason: reason.to_owned(),
    };
    let hierarchy = facts
        .memory_hierarchy
        .as_ref()
        .ok_or_else(|| error("no cgroup hierarchy with the memory controller is mounted"))?;
    let mount_point = &hierarchy.mount_point;
    let given = if Path::new(path).starts_with(mount_point) {
        PathBuf::from(path)
    } else {
        mount_point.join(path.trim_start_matches('/'))
    };
    // Not out of it again: what stands elsewhere is no cgroup, whatever its files are named.
    let directory = given
        .canonicalize()
        .map_err(|_| error(&format!("{} is not a cgroup", given.display())))?;
    if !directory.starts_with(mount_point) {
        return Err(error(&format!("{} is not a cgroup", given.display())));
    }
    if directory.join("cgroup.procs").exists() {
        Ok(directory)
    } else {
        Err(error(&format!("{} is not a cgroup", directory.display())))
    }
}

/// Whether the recording's process ids are those of this /proc: BPF tells those of the
/// initial pid namespace.
#[cfg(target_os = "linux")]
fn has_same_ids(backend: Backend, facts: &HostFacts) -> bool {
    backend != Backend::Bpf || facts.is_initial_pid_ns != Some(false)
}

/// Whether a process of the recording can be distinguished from every other by its id and its start in
/// this /proc: the platform's process list has starts in seconds.
#[cfg(target_os = "linux")]
pub(super) fn has_exact_identities(backend: &str, facts: &HostFacts) -> bool {
    let backend = Backend::ALL.into_iter().find(|one| one.as_str() == backend);
    backend.is_some_and(|backend| backend != Backend::Sysinfo && has_same_ids(backend, facts))
}

/// What has GPUs read at once.
#[cfg(target_os = "linux")]
pub(super) type Haste = memtrace_collect::gpu::Haste;
/// Elsewhere nothing has.
#[cfg(not(target_os = "linux"))]
pub(super) type Haste = std::convert::Infallible;

/// Starts the backend and the collectors that go with it.
pub(super) fn start(
    options: &Options,
    targets: &Targets,
    held: Option<Tgid>,
    facts: &HostFacts,
    plan: &Plan,
    haste: Option<Haste>,
    pass: &mut Pass<'_>,
) -> Result<Started, StartError> {
    let mut backend = plan.backend;
    let mut reason = match options.is_gpu_only {
        true => "enough to name who holds memory of GPUs".to_owned(),
        false => plan.reason(facts),
    };
    loop {
        let request = Request {
            options,
            targets,
            held,
            facts,
            plan,
            haste: haste.clone(),
        };
        // What a backend that failed has entered is not to be believed.
        *pass.table = ProcessTable::default();
        pass.out.clear();
        match request.start(backend, pass) {
            Ok(collectors) => {
                announce(backend, &reason, pass);
                if let Some(hidden) = hidden(backend, facts) {
                    pass.tell_degraded(DiagKind::Permission, "/proc", None, hidden);
                }
                return Ok(Started {
                    collectors,
                    backend,
                    reason,
                });
            }
            Err(StartError::Backend {
                backend: refused,
                reason: why,
            }) if plan.may_fall_back && !plan.are_probes_named && !options.has_stacks => {
                let next = Backend::ALL
                    .into_iter()
                    .skip_while(|other| *other != refused)
                    .nth(1);
                let Some(next) = next else {
                    return Err(StartError::Backend {
                        backend: refused,
                        reason: why,
                    });
                };
                reason = format!("{refused} could not start: {why}");
                backend = next;
            }
            Err(error) => return Err(error),
        }
    }
}

/// What a backend can't see of other users' processes.
fn hidden(backend: Backend, facts: &HostFacts) -> Option<String> {
    facts.hidden_processes().filter(|_| backend != Backend::Bpf)
}

fn announce(backend: Backend, reason: &str, pass: &mut Pass<'_>) {
    // Information only: a report says in its head what was taken instead of bpf.
    pass.tell(
        Severity::Info,
        DiagKind::Backend,
        backend.as_str(),
        None,
        reason,
    );
}

/// What every backend is started with.
struct Request<'a> {
    options: &'a Options,
    targets: &'a Targets,
    held: Option<Tgid>,
    facts: &'a HostFacts,
    plan: &'a Plan,
    haste: Option<Haste>,
}

impl Request<'_> {
    fn start(
        &self,
        backend: Backend,
        pass: &mut Pass<'_>,
    ) -> Result<Vec<Box<dyn Collector>>, StartError> {
        if self.options.has_stacks && cfg!(not(target_arch = "x86_64")) {
            return Err(StartError::StacksOf(std::env::consts::ARCH));
        }
        if self.options.has_stacks && backend != Backend::Bpf {
            return Err(StartError::Stacks {
                backend,
                reason: self.plan.reason(self.facts),
            });
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (self.held, self.facts, self.plan, &self.haste, pass);
        let mut collectors = match backend {
            #[cfg(target_os = "linux")]
            Backend::Bpf => self.bpf(pass)?,
            #[cfg(target_os = "linux")]
            Backend::Procfs => self.procfs(),
            _ => vec![self.sysinfo()?],
        };
        if !self.options.is_gpu_only {
            #[cfg(target_os = "linux")]
            self.add_linux_collectors(backend, &mut collectors, pass);
            collectors.push(Box::new(NodeCollector::new()));
        }
        collectors.push(Box::new(ClockCollector::new()));
        Ok(collectors)
    }

    /// What there is on Linux beside the processes.
    #[cfg(target_os = "linux")]
    fn add_linux_collectors(
        &self,
        backend: Backend,
        collectors: &mut Vec<Box<dyn Collector>>,
        pass: &mut Pass<'_>,
    ) {
        if backend != Backend::Bpf
            && let Ok(log) = KmsgReader::open()
        {
            let is_initial_pid_ns = self.facts.is_initial_pid_ns != Some(false);
            // Before the backend, which notices the victim's end.
            collectors.insert(0, Box::new(OomCollector::new(log, is_initial_pid_ns)));
        }
        if let Some(hierarchy) = &self.facts.memory_hierarchy {
            let has_same_ids = has_same_ids(backend, self.facts);
            let proc = has_same_ids.then_some(Path::new("/proc"));
            collectors.push(Box::new(CgroupCollector::new(hierarchy.clone(), proc)));
        }
        if has_same_ids(backend, self.facts) {
            collectors.push(Box::new(LimitCollector::new(Path::new("/proc"))));
        }
        if let Some(pods) = PodCollector::find() {
            collectors.push(Box::new(pods));
        }
        if backend != Backend::Sysinfo {
            let is_about_ray = matches!(
                self.options.target,
                Target::Framework {
                    framework: Framework::Ray,
                    ..
                }
            );
            collectors.push(Box::new(RayDrivers::new(Path::new("/proc"), is_about_ray)));
        }
        match self.smaps(backend, pass.table.ceiling()) {
            Ok(smaps) => collectors.push(Box::new(smaps)),
            Err(error) => {
                let detail = format!("kinds of memory and PSS are unknown: {error}");
                pass.tell_degraded(DiagKind::Unavailable, "smaps", None, detail);
            }
        }
    }

    /// What the memory of each process is.
    #[cfg(target_os = "linux")]
    fn smaps(&self, backend: Backend, ceiling: &Arc<Ceiling>) -> Result<SmapsCollector, String> {
        if !has_same_ids(backend, self.facts) {
            return Err("the kernel's process ids are not those of this /proc".to_owned());
        }
        let options = SmapsOptions {
            root: PathBuf::from("/proc"),
            share: self.options.cpu_budget * ATTRIBUTION_SHARE,
            layout_share: (self.options.cpu_budget * LAYOUT_SHARE).min(LAYOUT_SHARE_MAX),
            page_size: self.facts.page_size_bytes.0.cast_unsigned(),
            ceiling: Arc::clone(ceiling),
        };
        SmapsCollector::start(options).map_err(|error| error.to_string())
    }

    #[cfg(target_os = "linux")]
    fn bpf(&self, pass: &mut Pass<'_>) -> Result<Vec<Box<dyn Collector>>, StartError> {
        let online = self.facts.online_cpu_count.unwrap_or(1);
        let options = BpfOptions {
            targets: self.targets.clone(),
            held: self.held_command(),
            interval: self.options.interval,
            page_size: self.facts.page_size(),
            possible_cpus: self.facts.possible_cpu_count.unwrap_or(online),
            online_cpus: online,
            few_cpus: self.options.few_cpus.unwrap_or(FEW_CPUS),
            members_max: self.plan.members_max,
            ended_max: self.plan.ended_max,
            probes: self.plan.probes.clone(),
            are_probes_named: self.plan.are_probes_named,
            vm_min: self.options.vm_min,
            has_stacks: self.options.has_stacks,
            cuda: self.cuda(),
            gpu_haste: self.haste.clone(),
            memory_hierarchy: self.facts.memory_hierarchy.clone(),
        };
        match BpfBackend::start(options, pass) {
            Ok(mut backend) => {
                let stacks = backend.take_stacks();
                let mut collectors: Vec<Box<dyn Collector>> = vec![Box::new(backend)];
                if let Some(source) = stacks {
                    let collector = StackCollector::new(source, self.facts.page_size());
                    collectors.push(Box::new(collector));
                }
                Ok(collectors)
            }
            Err(error) => Err(StartError::Backend {
                backend: Backend::Bpf,
                reason: error.to_string(),
            }),
        }
    }

    /// Without a device and without a library nobody calls the CUDA driver.
    #[cfg(target_os = "linux")]
    fn cuda(&self) -> Option<Vec<PathBuf>> {
        let installed = memtrace_collect::cuda::installed();
        let is_there = self.facts.has_nvidia_device == Some(true) || !installed.is_empty();
        is_there.then_some(installed)
    }

    #[cfg(target_os = "linux")]
    fn held_command(&self) -> Option<HeldCommand> {
        match &self.options.target {
            Target::Command { argv } => self.held.map(|tgid| HeldCommand {
                tgid,
                cmdline: argv.join(" "),
            }),
            _ => None,
        }
    }

    #[cfg(target_os = "linux")]
    fn procfs(&self) -> Vec<Box<dyn Collector>> {
        let options = ProcfsOptions {
            interval: self.options.interval,
            command: self.held,
            descriptor_limit: descriptor_limit(self.facts.nofile_hard),
        };
        let backend = ProcfsBackend::new(Path::new("/proc"), self.targets.clone(), options);
        vec![Box::new(backend)]
    }

    fn sysinfo(&self) -> Result<Box<dyn Collector>, StartError> {
        if matches!(self.targets, Targets::Cgroup(_)) {
            return Err(StartError::Unsupported {
                backend: Backend::Sysinfo,
                what: "a cgroup",
            });
        }
        let backend = SysinfoBackend::new(self.targets.clone(), self.options.interval);
        backend
            .map(|backend| Box::new(backend) as Box<dyn Collector>)
            .map_err(|error| StartError::Backend {
                backend: Backend::Sysinfo,
                reason: error.to_string(),
            })
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::error::Error;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    #[test]
    fn a_session_is_found_by_the_path_that_ray_was_given_and_by_the_real_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().canonicalize().expect("its path");
        std::fs::create_dir_all(root.join("data/ray/session_1")).expect("a session");
        symlink("data", root.join("link")).expect("a link");
        let given = root.join("link/ray/session_1");
        let real = root.join("data/ray/session_1");
        for target in [given.as_path(), Path::new("session_1")] {
            let latest = root.join("link/ray/session_latest");
            let _ = std::fs::remove_file(&latest);
            symlink(target, &latest).expect("a link");
            for asked in [latest.join(""), latest, given.clone()] {
                let pattern = session_pattern(&asked.to_string_lossy()).expect("a session");
                let pattern = regex::Regex::new(&pattern).expect("a pattern");
                for path in [&given, &real] {
                    let cmdline = format!("raylet --socket={}/sockets/raylet", path.display());
                    assert!(pattern.is_match(&cmdline), "{asked:?}: {cmdline}");
                }
                assert!(!pattern.is_match("raylet --socket=/tmp/ray/session_2/sockets/raylet"));
            }
        }
    }

    #[test]
    fn the_cause_of_a_missing_session_is_reported_once() {
        let error = session_pattern("/no/such").expect_err("no session");
        let cause = error.source().expect("a cause").to_string();
        assert!(!error.to_string().contains(&cause), "{error}");
    }
}
