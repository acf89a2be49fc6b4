//! Loads the BPF object, sets its globals, attaches its programs, and holds what must stay
//! open. Beside this file only the reading of the ring (`backend`) and of run times (`cost`)
//! know aya.

use super::calls::{self, Calls};
use super::cuda::{self, CudaProbes};
use super::ended::EndedMap;
use super::error::{BTF_PATH, LoadError, refused};
use super::layout::{self, Counting, Resolved};
use super::object::{object, preallocating};
use super::probes::{MARK_VICTIM, On, Probe, TASK_ITERATOR};
use super::program::program;
use super::stacks::{self, StackSource};
use crate::cuda::Library;
use aya::maps::{Array, HashMap as BpfHashMap, MapData, MapError, PerCpuArray, RingBuf};
use aya::programs::{BtfTracePoint, FEntry, Iter, RawTracePoint, RawTracePointRunOptions, TestRun};
use aya::{Btf, Ebpf, EbpfLoader, Endianness};
use memtrace_abi::config::{MOVED_MAX, Member, OWN_ARRAYS, TOUCHED_SLOTS};
use memtrace_abi::{Config, Ended, EndedKey, LossClass, TaskSeen, names};
use memtrace_host::{ProbeWay, are_return_probes_harmless};
use memtrace_model::Tgid;
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::{AsFd, AsRawFd};
use zerocopy::{FromZeros, IntoBytes};

/// Insert only where there is nothing (include/uapi/linux/bpf.h).
const BPF_NOEXIST: u64 = 1;

/// Hashes that are allocated as they fill, where the kernel can do that.
const HASHES: &[&str] = &[
    names::MEMBERS,
    names::SPACES,
    names::TERMINATIONS,
    names::ENDED,
    names::VM_STATES,
    names::TARGET_CGROUPS,
    names::PYTHON,
    names::CUDA_ENTERED,
];

/// Most elements of a hash that has to be allocated up front.
const PREALLOCATED_MAX: u32 = 8 * 1024;

/// Programs that are not attached anywhere: user space runs them.
const RUN_BY_US: &[&str] = &[SWEEP, SWEEP_MOVED, LEARN_CPU, "vm_totals"];

const SWEEP: &str = "sweep";

/// Once for each CPU, where counters have per-CPU parts (6.2); its helper came with 5.19.
const LEARN_CPU: &str = "learn_cpu";

/// Where the kernel can (bpf_loop, 5.17); else every sweep is full.
const SWEEP_MOVED: &str = "sweep_moved";

/// What the programs are reported.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The ABI's configuration.
    pub config: Config,
    /// Most processes that can be members at once.
    pub members_max: u32,
    /// Most ends of processes that are kept while the ring is full.
    pub ended_max: u32,
    /// CPUs that exist or may appear.
    pub possible_cpus: u32,
    /// Ways to see calls on address spaces, in the order in which they are tried.
    pub probes: Vec<ProbeWay>,
}

/// Which members a sweep samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepScope {
    /// Those whose resident memory moved since the last sweep.
    Moved,
    /// Those of whom anything moved since they were last sampled, also only address space.
    Full,
    /// Every member, also those of whom nothing moved.
    Keyframe,
}

/// The loaded and attached programs. Dropping it detaches them.
pub struct Programs {
    ebpf: Ebpf,
    members: BpfHashMap<MapData, u32, [u8; size_of::<Member>()]>,
    target_cgroups: BpfHashMap<MapData, u64, u8>,
    losses: PerCpuArray<MapData, u64>,
    kept: PerCpuArray<MapData, u64>,
    ended: EndedMap,
    keyframe: u16,
    /// In the order in which they are attached.
    loaded: Vec<&'static Probe>,
    /// Features that this kernel lacks, each a sentence.
    pub missing: Vec<String>,
    /// What the counters in events are worth.
    pub counting: Counting,
    /// Whether kills by the OOM killer are seen as they happen.
    pub sees_oom_kills: bool,
    /// How calls on address spaces are seen.
    calls: Option<Calls>,
    /// Ways that the kernel refused, each a sentence.
    pub probe_refusals: Vec<String>,
    /// Calls of the CUDA driver; none where they are not followed.
    cuda: Option<CudaProbes>,
    /// Samples of growth, where they were asked for.
    pub stacks: Option<StackSource>,
}

/// Loads, and attaches what sees calls on address spaces: whether the kernel accepts a way
/// shows only then, and there are no members yet that it could tell of. The ring is handed
/// out on its own, because its reader borrows it for as long as an event is looked at.
///
/// # Errors
/// When a required program can't be had; the message names it and what the kernel said.
pub fn load(settings: &Settings) -> Result<(Programs, RingBuf<MapData>), LoadError> {
    // It parses the kernel's BTF for a moment, unasked: first, so that little is there beside that.
    let mut loader = EbpfLoader::new();
    loader.btf(None);
    let bytes = std::fs::read(BTF_PATH).map_err(LoadError::ReadBtf)?;
    let mut resolved = layout::resolve(&bytes, settings.possible_cpus)?;
    drop(bytes);
    let mut missing = std::mem::take(&mut resolved.missing);
    let mut ebpf = load_maps(loader, settings, &resolved, &mut missing)?;
    // Ids are all that aya asks the kernel's BTF for: there is nothing to relocate.
    let btf = Btf::parse(&resolved.attach_btf, Endianness::default())?;
    let loaded = load_programs(&mut ebpf, resolved.offered, &btf, &mut missing)?;
    load_for_us(&mut ebpf, resolved.layout.cpu_count)?;
    let mut probe_refusals = Vec::new();
    let calls = if resolved.has_calls {
        calls::take(&mut ebpf, &settings.probes, &btf, &mut probe_refusals)
    } else {
        probe_refusals.push("where the registers of a call are is not known".to_owned());
        None
    };
    let cuda = cuda_probes(&ebpf, settings, &mut missing);
    let mut counting = resolved.counting;
    if !are_offsets_learned(&ebpf, resolved.layout.cpu_count)? {
        counting = Counting::WithoutCpus;
        missing.push("exact counters: per-CPU parts are not added up".to_owned());
    }
    // Its thousands of small allocations are gone; give the pages back before the resident
    // memory of the recorder is locked.
    drop(btf);
    memtrace_host::release_free_memory();
    let ring = map(&mut ebpf, names::EVENTS, RingBuf::try_from)?;
    let stacks = match settings.config.has_stacks != 0 {
        true => Some(stacks::take(&mut ebpf, &resolved.layout, &mut missing)?),
        false => None,
    };
    let members = map(&mut ebpf, names::MEMBERS, BpfHashMap::try_from)?;
    let target_cgroups = map(&mut ebpf, names::TARGET_CGROUPS, |map| {
        BpfHashMap::try_from(map)
    })?;
    let losses = map(&mut ebpf, names::LOSSES, PerCpuArray::try_from)?;
    let kept = map(&mut ebpf, names::KEPT, PerCpuArray::try_from)?;
    let ended = EndedMap::new(ebpf.take_map(names::ENDED))?;
    Ok((
        Programs {
            ebpf,
            members,
            target_cgroups,
            losses,
            kept,
            ended,
            keyframe: 0,
            loaded,
            missing,
            counting,
            sees_oom_kills: false,
            calls,
            probe_refusals,
            cuda,
            stacks,
        },
        ring,
    ))
}

/// Makes the maps, as large as the settings ask for.
fn load_maps<'a>(
    mut loader: EbpfLoader<'a>,
    settings: &'a Settings,
    resolved: &'a Resolved,
    missing: &mut Vec<String>,
) -> Result<Ebpf, LoadError> {
    let ring_bytes = u32::try_from(settings.config.ring_bytes).unwrap_or(u32::MAX);
    let (object, most) = if resolved.allocates_elements {
        (Cow::Borrowed(object()), u32::MAX)
    } else {
        missing.push(format!(
            "more than {PREALLOCATED_MAX} processes at once: this kernel can't allocate the table \
             of processes as it fills"
        ));
        let bytes = preallocating(HASHES).ok_or(LoadError::Absent("table of processes"))?;
        (Cow::Owned(bytes), PREALLOCATED_MAX)
    };
    let members_max = settings.members_max.min(most);
    // What only samples with stacks need has next to no room without them.
    let has_stacks = settings.config.has_stacks != 0;
    let with_stacks = |entries| if has_stacks { entries } else { 1 };
    let stack_ring_bytes = match has_stacks {
        true => stacks::RING_BYTES,
        false => rustix::param::page_size() as u32,
    };
    Ok(loader
        .override_global(names::LAYOUT, resolved.layout.as_bytes(), true)
        .override_global(names::CONFIG, settings.config.as_bytes(), true)
        .map_max_entries(names::EVENTS, ring_bytes)
        .map_max_entries(names::MEMBERS, members_max)
        .map_max_entries(names::SPACES, members_max)
        .map_max_entries(names::TERMINATIONS, members_max)
        .map_max_entries(names::MOVED, (members_max / 8).clamp(1, MOVED_MAX))
        .map_max_entries(names::TARGET_CGROUPS, members_max)
        .map_max_entries(names::VM_STATES, vm_states_max(settings).min(most))
        .map_max_entries(names::STACKS, stack_ring_bytes)
        .map_max_entries(names::CUDA_ENTERED, cuda_entered_max(settings))
        .map_max_entries(names::PYTHON, with_stacks(members_max))
        .map_max_entries(names::TOUCHED, with_stacks(TOUCHED_SLOTS))
        .map_max_entries(names::OWN_TAGS, with_stacks(OWN_ARRAYS))
        .map_max_entries(names::ENDED, settings.ended_max.min(most))
        .load(&object)?)
}

/// Loads the offered programs, and gives those that the kernel takes: what is lost without the others is
/// in `missing`.
fn load_programs(
    ebpf: &mut Ebpf,
    offered: Vec<&'static Probe>,
    btf: &Btf,
    missing: &mut Vec<String>,
) -> Result<Vec<&'static Probe>, LoadError> {
    let mut loaded = Vec::with_capacity(offered.len());
    for probe in offered {
        match (load_probe(ebpf, probe, btf), probe.without) {
            (Ok(()), _) => loaded.push(probe),
            (Err(error), None) => return Err(error),
            (Err(error), Some(lost)) => missing.push(format!("{lost}: {error}")),
        }
    }
    Ok(loaded)
}

/// Loads the programs that are run and never attached, and has every CPU find its part of a counter.
fn load_for_us(ebpf: &mut Ebpf, cpu_count: u32) -> Result<(), LoadError> {
    let wanted = RUN_BY_US.iter();
    for name in wanted.filter(|name| cpu_count > 0 || **name != LEARN_CPU) {
        match load_one_for_us(ebpf, name) {
            Err(error) if *name == SWEEP_MOVED => {
                tracing::debug!("every sweep is a full one: {error}");
            }
            outcome => outcome?,
        }
    }
    for cpu in 0..cpu_count {
        run(ebpf, LEARN_CPU, u64::from(cpu))?;
    }
    Ok(())
}

impl Programs {
    /// Attaches every other program: fork first, so that a snapshot taken afterwards misses
    /// nobody.
    ///
    /// # Errors
    /// When a required program is refused.
    pub fn attach(&mut self) -> Result<(), LoadError> {
        for probe in &self.loaded {
            match (attach_probe(&mut self.ebpf, probe), probe.without) {
                (Ok(()), _) => self.sees_oom_kills |= probe.program == MARK_VICTIM,
                (Err(error), None) => return Err(error),
                (Err(error), Some(lost)) => self.missing.push(format!("{lost}: {error}")),
            }
        }
        Ok(())
    }

    /// Whether calls of the CUDA driver can be seen.
    pub fn sees_cuda(&self) -> bool {
        self.cuda.is_some()
    }

    /// Probes a copy of libcuda.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn attach_cuda(&mut self, library: &Library) -> Result<(), LoadError> {
        match &mut self.cuda {
            Some(cuda) => cuda.attach(library),
            None => Ok(()),
        }
    }

    /// Enters a process by its id; the next [`Programs::visit_tasks`] completes it.
    ///
    /// # Errors
    /// When the table of members is full.
    pub fn enter(&mut self, tgid: Tgid) -> Result<(), LoadError> {
        let member = Member::new_zeroed();
        let value: [u8; size_of::<Member>()] = zerocopy::transmute!(member);
        match self.members.insert(tgid.0, value, BPF_NOEXIST) {
            // Forked by a member meanwhile: the kernel knows more of it than we do.
            Err(MapError::SyscallError(error))
                if error.io_error.raw_os_error() == Some(libc::EEXIST) =>
            {
                Ok(())
            }
            outcome => outcome.map_err(|source| LoadError::Map {
                name: names::MEMBERS,
                source,
            }),
        }
    }

    /// Takes back what [`Programs::enter`] did; nothing to do where the process has ended.
    pub fn forget(&mut self, tgid: Tgid) {
        let _ = self.members.remove(&tgid.0);
    }

    /// Makes processes that call exec inside this cgroup members.
    ///
    /// # Errors
    /// When the table of target cgroups is full.
    pub fn add_target_cgroup(&mut self, id: u64) -> Result<(), LoadError> {
        self.target_cgroups
            .insert(id, 1, 0)
            .map_err(|source| LoadError::Map {
                name: names::TARGET_CGROUPS,
                source,
            })
    }

    /// Runs the task iterator once and gives every process it wrote.
    ///
    /// # Errors
    /// When the iterator can't be attached or read.
    pub fn visit_tasks(&mut self, mut visit: impl FnMut(&TaskSeen)) -> Result<(), LoadError> {
        let iterator: &mut Iter = program(&mut self.ebpf, TASK_ITERATOR)?;
        let attach = |error: &dyn std::fmt::Display| refused(TASK_ITERATOR, "attach", error);
        let id = iterator.attach().map_err(|error| attach(&error))?;
        let link = iterator.take_link(id).map_err(|error| attach(&error))?;
        let file: File = link.into_file().map_err(|error| attach(&error))?;
        let mut file = BufReader::with_capacity(64 << 10, file);
        let mut seen = TaskSeen::new_zeroed();
        loop {
            match file.read_exact(seen.as_mut_bytes()) {
                Ok(()) => visit(&seen),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(LoadError::Iterator(error)),
            }
        }
    }

    /// How many starts, execs and ends found the ring full so far and are kept.
    pub fn kept(&self) -> u64 {
        self.kept
            .get(&0, 0)
            .map_or(0, |counters| counters.iter().sum())
    }

    /// Moves the ends that are kept into `taken`.
    ///
    /// # Errors
    /// When the kernel refuses; what was moved before that is in `taken`.
    pub fn take_ended(&mut self, taken: &mut Vec<(EndedKey, Ended)>) -> Result<(), LoadError> {
        self.ended.take(taken).map_err(LoadError::Ended)
    }

    /// Samples members into the ring. False where that had no room for all: once it was read,
    /// [`Programs::go_on_sweeping`] does the rest.
    ///
    /// # Errors
    /// When the kernel refuses to run the program.
    pub fn sweep(&mut self, scope: SweepScope) -> Result<bool, LoadError> {
        if scope == SweepScope::Moved && is_loaded(&mut self.ebpf, SWEEP_MOVED) {
            let is_overfull = run(&mut self.ebpf, SWEEP_MOVED, 0)? != 0;
            if !is_overfull {
                return Ok(true);
            }
        }
        if scope == SweepScope::Keyframe {
            self.keyframe = self.keyframe.checked_add(1).unwrap_or(1);
        }
        self.go_on_sweeping(scope)
    }

    /// Samples members that the sweep before had no room for.
    ///
    /// # Errors
    /// As for [`Programs::sweep`].
    pub fn go_on_sweeping(&mut self, scope: SweepScope) -> Result<bool, LoadError> {
        let keyframe = match scope {
            SweepScope::Keyframe => self.keyframe,
            SweepScope::Moved | SweepScope::Full => 0,
        };
        run(&mut self.ebpf, SWEEP, u64::from(keyframe)).map(|is_cut_short| is_cut_short == 0)
    }

    /// Has the sums of calls that had no event sent, of every process that added to them.
    ///
    /// # Errors
    /// When the kernel refuses to run the program.
    pub fn tell_vm_totals(&mut self) -> Result<(), LoadError> {
        run(&mut self.ebpf, "vm_totals", 0).map(|_| ())
    }

    /// Losses so far, in the order of [`LossClass::ALL`], all CPUs together.
    pub fn losses(&self) -> [u64; LossClass::ALL.len()] {
        LossClass::ALL.map(|class| {
            self.losses
                .get(&(class as u32), 0)
                .map_or(0, |counters| counters.iter().sum())
        })
    }

    /// Run time in nanoseconds and runs of the programs that run in the context of traced
    /// processes, as far as BPF_ENABLE_STATS was on. What we run ourselves is in our own
    /// CPU time already.
    pub fn run_stats(&self) -> Option<(u64, u64)> {
        let mut total = (0, 0);
        for (_, text) in self.infos_in_context() {
            let text = text?;
            total.0 += fdinfo_number(&text, "run_time_ns:")?;
            total.1 += fdinfo_number(&text, "run_cnt:")?;
        }
        Some(total)
    }

    /// Runs so far that each program missed where traced processes run it, as far as the
    /// kernel tells (5.12; of kretprobes see [`Calls::missed`]).
    pub fn missed_runs(&self) -> Vec<(String, u64)> {
        let missed = |text: Option<String>| fdinfo_number(&text?, "recursion_misses:");
        // At page faults the ones left out are those of our own reads, which a sample makes inside.
        let programs = self.infos_in_context();
        let programs = programs.filter(|(name, _)| !stacks::FAULTS.contains(name));
        let mut runs: Vec<(String, u64)> = programs
            .map(|(name, text)| (name.to_owned(), missed(text).unwrap_or(0)))
            .collect();
        for (name, count) in &mut runs {
            if name == calls::KRETPROBE {
                *count += self.calls.as_ref().and_then(Calls::missed).unwrap_or(0);
            }
        }
        runs
    }

    /// How calls on address spaces are seen.
    pub fn probe_way(&self) -> Option<ProbeWay> {
        self.calls.as_ref().map(|calls| calls.way)
    }

    /// Whether calls that the probes miss are counted.
    pub fn are_misses_reported(&self) -> bool {
        self.calls
            .as_ref()
            .is_none_or(|calls| calls.missed().is_some())
    }

    /// What the kernel says of each loaded program that is not run by us.
    fn infos_in_context(&self) -> impl Iterator<Item = (&str, Option<String>)> {
        let is_ours = |name: &str| name == TASK_ITERATOR || RUN_BY_US.contains(&name);
        let programs = self.ebpf.programs().filter(move |(name, _)| !is_ours(name));
        let programs = programs
            .filter_map(|(name, program)| Some((name, program.fd().ok()?.as_fd().as_raw_fd())));
        let cuda = self.cuda.iter().flat_map(CudaProbes::programs);
        let cuda = cuda.map(|(name, fd)| (name, fd.as_raw_fd()));
        programs.chain(cuda).map(|(name, fd)| {
            let path = format!("/proc/self/fdinfo/{fd}");
            (name, std::fs::read_to_string(path).ok())
        })
    }
}

/// The programs for calls of the CUDA driver, where they are wanted and can do no harm.
fn cuda_probes(ebpf: &Ebpf, settings: &Settings, missing: &mut Vec<String>) -> Option<CudaProbes> {
    if settings.config.has_cuda == 0 {
        return None;
    }
    if !are_return_probes_harmless() {
        missing.push(
            "what the CUDA driver hands out is not seen: on this kernel a probe at the return of a \
             function ends programs whose seccomp filter does not know it, as in containers"
                .to_owned(),
        );
        return None;
    }
    let loaded = CudaProbes::load(ebpf);
    loaded
        .map_err(|error| {
            missing.push(format!(
                "what the CUDA driver hands out is not seen (Linux 6.6 has the probes for it): \
                 {error}"
            ));
        })
        .ok()
}

/// Room for calls of the CUDA driver, where they are seen.
fn cuda_entered_max(settings: &Settings) -> u32 {
    if settings.config.has_cuda != 0 {
        cuda::ENTERED_MAX
    } else {
        1
    }
}

/// Room for the state of every member, where it is kept.
fn vm_states_max(settings: &Settings) -> u32 {
    if settings.config.has_vm == 0 {
        1
    } else {
        settings.members_max
    }
}

fn fdinfo_number(text: &str, key: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(key))?
        .trim()
        .parse()
        .ok()
}

fn load_probe(ebpf: &mut Ebpf, probe: &Probe, btf: &Btf) -> Result<(), LoadError> {
    let (name, attached_to) = (probe.program, probe.attached_to());
    match probe.on {
        On::Tracepoint | On::TracepointOf(_) => {
            program::<BtfTracePoint>(ebpf, name)?.load(attached_to, btf)
        }
        On::FunctionEntry => program::<FEntry>(ebpf, name)?.load(attached_to, btf),
        On::TaskIterator => program::<Iter>(ebpf, name)?.load(attached_to, btf),
    }
    .map_err(|error| refused(name, "load", &error))
}

/// The iterator is attached anew for every pass.
fn attach_probe(ebpf: &mut Ebpf, probe: &Probe) -> Result<(), LoadError> {
    let name = probe.program;
    match probe.on {
        On::Tracepoint | On::TracepointOf(_) => {
            program::<BtfTracePoint>(ebpf, name)?.attach().map(drop)
        }
        On::FunctionEntry => program::<FEntry>(ebpf, name)?.attach().map(drop),
        On::TaskIterator => Ok(()),
    }
    .map_err(|error| refused(name, "attach", &error))
}

fn load_one_for_us(ebpf: &mut Ebpf, name: &'static str) -> Result<(), LoadError> {
    let program: &mut RawTracePoint = program(ebpf, name)?;
    program
        .load()
        .map_err(|error| refused(name, "load", &error))
}

/// Whether the programs found their way to every CPU's part of a counter, where there are
/// parts to add up.
fn are_offsets_learned(ebpf: &Ebpf, cpu_count: u32) -> Result<bool, LoadError> {
    let name = names::CPU_OFFSETS;
    // Not taken: a map that is dropped is gone for programs that are loaded later.
    let offsets = ebpf.map(name).ok_or(LoadError::Absent(name))?;
    let offsets: Array<&MapData, u64> =
        Array::try_from(offsets).map_err(|source| LoadError::Map { name, source })?;
    let is_known = |cpu| offsets.get(&cpu, 0).is_ok_and(|offset| offset != 0);
    Ok(cpu_count == 0 || (0..cpu_count).any(is_known))
}

/// Runs a program that is never attached and gives what it returned.
fn run(ebpf: &mut Ebpf, name: &'static str, argument: u64) -> Result<u32, LoadError> {
    let program: &mut RawTracePoint = program(ebpf, name)?;
    let mut options = RawTracePointRunOptions::new();
    options.args[0] = argument;
    program
        .test_run(options)
        .map(|result| result.return_value)
        .map_err(|error| refused(name, "run", &error))
}

fn is_loaded(ebpf: &mut Ebpf, name: &'static str) -> bool {
    ebpf.program(name)
        .is_some_and(|program| program.fd().is_ok())
}

fn map<M>(
    ebpf: &mut Ebpf,
    name: &'static str,
    convert: impl FnOnce(aya::maps::Map) -> Result<M, MapError>,
) -> Result<M, LoadError> {
    let map = ebpf.take_map(name).ok_or(LoadError::Absent(name))?;
    convert(map).map_err(|source| LoadError::Map { name, source })
}

#[cfg(test)]
mod tests;
