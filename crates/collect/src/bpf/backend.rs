//! The running backend: what it is asked to do, and the order in which it does it.

mod attach;
mod cuda;
mod late;

use super::apply::Apply;
use super::decode::{DecodeError, decode};
use super::error::LoadError;
use super::kills::Kills;
use super::layout::Counting;
use super::load::{Programs, Settings, SweepScope};
use super::misses::Misses;
use super::peaks::Peaks;
use super::stacks::StackSource;
use super::{cost, load};
use crate::cgroup::CgroupPaths;
use crate::cuda::FileId;
use crate::gpu::Haste;
use crate::procfs::own_processes;
use crate::{CollectError, Collector, Pass, Targets, Tick};
use aya::maps::{MapData, RingBuf};
use late::Late;
use memtrace_abi::{Config, LossClass};
use memtrace_host::{MemoryHierarchy, ProbeWay, clock};
use memtrace_model::{
    BootNs, Bytes, DiagKind, DiagRow, DurationNs, PageSize, Pages, Record, Severity, Tgid, Upid,
};
use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// What the backend is asked to do.
#[derive(Clone, Debug)]
pub struct BpfOptions {
    /// Whom to record.
    pub targets: Targets,
    /// The command that memtrace holds, where there is one; it is also a root of `targets`.
    pub held: Option<HeldCommand>,
    /// Time between two sweeps.
    pub interval: DurationNs,
    /// Size of a base page.
    pub page_size: PageSize,
    /// CPUs that exist or may appear.
    pub possible_cpus: u32,
    /// CPUs that are online.
    pub online_cpus: u32,
    /// On more CPUs than these their parts of the counters are added to a new maximum at larger
    /// steps; see [`FEW_CPUS`].
    pub few_cpus: u32,
    /// Most processes that can belong to the recording at once.
    pub members_max: u32,
    /// Most ends of processes that the kernel keeps while nobody reads its events.
    pub ended_max: u32,
    /// Ways to see calls on address spaces, in the order in which they are tried.
    pub probes: Vec<ProbeWay>,
    /// Whether the one way there is must be had.
    pub are_probes_named: bool,
    /// Such calls of fewer bytes are summed and have no row.
    pub vm_min: Bytes,
    /// Whether growth is sampled with stacks.
    pub has_stacks: bool,
    /// Installed copies of libcuda; `None` where calls of the CUDA driver are not followed.
    pub cuda: Option<Vec<PathBuf>>,
    /// Has the GPUs read at once: when a context was made, what it takes is known.
    pub gpu_haste: Option<Haste>,
    /// Where memory cgroups are, to name those of processes.
    pub memory_hierarchy: Option<MemoryHierarchy>,
}

/// The command that memtrace holds until the probes are attached.
#[derive(Clone, Debug)]
pub struct HeldCommand {
    /// Its process: until it runs, a copy of memtrace.
    pub tgid: Tgid,
    /// The command line it is going to have.
    pub cmdline: String,
}

/// Of so many CPUs the parts of the counters are added up every few pages of a new maximum. The
/// parts of more are as many lines of other CPUs' caches, and are added at steps of what stands out
/// from the last sample, a quarter of the drift.
pub const FEW_CPUS: u32 = 16;
/// RSS moves by at least this much before a sample is sent on the spot.
const DRIFT_BYTES_MIN: i64 = 1 << 20;
/// Sustained, one process sends at most one sample on the spot per this time ...
const DRIFT_INTERVAL_NS: u64 = 1_000_000;
/// ... after a burst of so many.
const DRIFT_BURST: u64 = 32;
/// A full sweep finds what moved without a page that came or went: address space. Two of them are so far
/// apart, and further where they would take a larger share of a CPU than that.
const FULL_SWEEP_EVERY: DurationNs = DurationNs(1_000_000_000);
const FULL_SWEEP_AT_LEAST_EVERY: DurationNs = DurationNs(10_000_000_000);
const FULL_SWEEP_SHARE: f64 = 0.0005;
/// The kernel is asked so often what was lost: a system call for each class.
const LOSSES_EVERY: DurationNs = DurationNs(1_000_000_000);
/// CPU time per turn for looking up in /proc who was found running.
const NAMING: DurationNs = DurationNs(20_000_000);
/// A sweep fills the ring at most so often: half a million processes.
const SWEEPS_MAX: usize = 32;
const RING_BYTES: u64 = 2 << 20;
/// The reader is woken when this much waits; else it comes by at every tick.
const WAKE_BYTES: u64 = RING_BYTES / 8;

/// Sustained, one process has at most one row of `vm_event` per this time, two hundred a
/// second ...
const VM_INTERVAL_NS: u64 = 5_000_000;
/// ... after a burst of so many.
pub(super) const VM_BURST: u64 = 2_000;

/// Growth is sampled no more densely than once in so many bytes: what a CPU gathers in its part of a
/// counter, on a machine of up to 16.
const STACK_INTERVAL_BYTES: i64 = 128 << 10;

/// The running backend.
pub struct BpfBackend {
    programs: Programs,
    ring: RingBuf<MapData>,
    apply: Apply,
    options: BpfOptions,
    losses: [u64; LossClass::ALL.len()],
    undecoded: Undecoded,
    misses: Misses,
    cost: cost::RunTime,
    kills: Kills,
    cgroup_scan: attach::CgroupScan,
    last_full_sweep: BootNs,
    /// Until the next one.
    full_sweep_wait: DurationNs,
    next_losses: BootNs,
    /// Entered by id and not yet found by the kernel.
    entered: Vec<Tgid>,
    /// Processes that no pattern makes a member.
    own_processes: Vec<Tgid>,
    /// An event about the life of a process was lost since the last reconciliation.
    has_lost_lifecycle: bool,
    /// A name was lost since names were last looked at.
    has_lost_titles: bool,
    /// Not everybody who runs and belongs is entered yet.
    is_incomplete: bool,
    /// Starts and ends that found the ring full.
    late: Late,
    /// The event that comes after what is late.
    waiting: Option<Vec<u8>>,
    /// A row of every process is due, because some have none.
    wants_keyframe: bool,
    /// Copies of libcuda that were probed, or can't be.
    looked_at: HashSet<FileId>,
    /// Processes on GPUs that were asked what they have mapped.
    asked_for_cuda: HashSet<Upid>,
}

/// Events that could not be decoded since the last report.
#[derive(Default)]
struct Undecoded {
    count: i64,
    first: Option<DecodeError>,
}

impl BpfBackend {
    /// Loads and attaches the probes and enters everyone who is running and belongs.
    ///
    /// # Errors
    /// When the kernel refuses a program that a recording can't do without.
    pub fn start(options: BpfOptions, pass: &mut Pass<'_>) -> Result<Self, LoadError> {
        let settings = settings(&options);
        let (mut programs, ring) = load::load(&settings)?;
        programs.attach()?;
        if options.are_probes_named && programs.probe_way().is_none() {
            return Err(LoadError::Probes(programs.probe_refusals.join("; ")));
        }
        pass.write(probes_diag(&programs, &options, pass.tick));
        for what in &programs.missing {
            pass.tell_degraded(DiagKind::Unavailable, "bpf", None, what);
        }
        let cgroups = options.memory_hierarchy.clone().map(CgroupPaths::new);
        let own_processes = match &options.targets {
            Targets::Match(_) => own_processes(Path::new("/proc")),
            _ => Vec::new(),
        };
        let peaks = Peaks {
            page_size: options.page_size,
            noise: match programs.counting {
                Counting::Exact | Counting::WithoutCpus => {
                    counter_error(options.online_cpus, options.page_size)
                }
                Counting::WithoutThreads => Bytes(0),
            },
            counting: programs.counting,
        };
        if peaks.counting != Counting::WithoutThreads {
            pass.table.note_peaks_are_seen(peaks.noise);
        }
        let mut backend = Self {
            programs,
            ring,
            apply: Apply::new(peaks, cgroups),
            options,
            losses: [0; LossClass::ALL.len()],
            undecoded: Undecoded::default(),
            misses: Misses::default(),
            cost: cost::RunTime::default(),
            kills: Kills::new(),
            cgroup_scan: attach::CgroupScan::default(),
            last_full_sweep: BootNs(0),
            full_sweep_wait: FULL_SWEEP_EVERY,
            next_losses: BootNs(0),
            entered: Vec::new(),
            own_processes,
            has_lost_lifecycle: false,
            has_lost_titles: false,
            is_incomplete: false,
            late: Late::default(),
            waiting: None,
            wants_keyframe: false,
            looked_at: HashSet::new(),
            asked_for_cuda: HashSet::new(),
        };
        if backend.programs.sees_oom_kills || backend.kills.has_log() {
            pass.table.observe_oom_kills();
        }
        backend.find_cuda(pass);
        backend.enter_running(pass)?;
        backend.find_mapped_cuda(pass);
        Ok(backend)
    }

    /// Hands out the samples of growth, where they were asked for.
    pub fn take_stacks(&mut self) -> Option<StackSource> {
        self.programs.stacks.take()
    }

    /// Takes every event that is in the ring, and what found it full.
    fn take_events(&mut self, pass: &mut Pass<'_>) -> Result<(), LoadError> {
        self.look_for_late(pass.table)?;
        let mut reader = Reader {
            late: &mut self.late,
            apply: &mut self.apply,
            kills: &mut self.kills,
            undecoded: &mut self.undecoded,
            targets: &self.options.targets,
        };
        if let Some(bytes) = self.waiting.take()
            && !reader.take(&bytes, pass)
        {
            self.waiting = Some(bytes);
            return Ok(());
        }
        // No more than the ring holds: whoever fills it faster than we read must not keep us
        // from everything else. What is left wakes us again.
        let mut taken = 0;
        while taken < RING_BYTES
            && let Some(item) = self.ring.next()
        {
            taken += item.len() as u64;
            if !reader.take(&item, pass) {
                self.waiting = Some(item.to_vec());
                return Ok(());
            }
        }
        let is_all_applied = reader.take_late(u64::MAX, pass);
        if taken < RING_BYTES && is_all_applied {
            pass.table.note_lifecycle_until(pass.tick.boot);
        }
        Ok(())
    }

    /// Samples members and takes what that sends, as often as it takes where they are more than
    /// the ring has room for.
    fn sweep(&mut self, scope: SweepScope, pass: &mut Pass<'_>) -> Result<(), LoadError> {
        let begin = clock::thread_cpu();
        let mut is_whole = self.programs.sweep(scope)?;
        if scope == SweepScope::Full {
            self.full_sweep_wait = wait_after(DurationNs(clock::thread_cpu().0 - begin.0));
        }
        for _ in 1..SWEEPS_MAX {
            if is_whole {
                break;
            }
            self.take_events(pass)?;
            if !self.late.is_empty() {
                // The ring waits for it.
                break;
            }
            is_whole = self.programs.go_on_sweeping(scope)?;
        }
        Ok(())
    }

    /// Whom this tick samples.
    fn scope(&mut self, tick: &Tick) -> SweepScope {
        let since_full = tick.boot.0 - self.last_full_sweep.0;
        let is_keyframe = tick.is_keyframe || std::mem::take(&mut self.wants_keyframe);
        if !is_keyframe && since_full < self.full_sweep_wait.0 {
            return SweepScope::Moved;
        }
        self.last_full_sweep = tick.boot;
        if is_keyframe {
            SweepScope::Keyframe
        } else {
            SweepScope::Full
        }
    }

    /// Has the sums of calls on address spaces sent, where that is due.
    fn ask_for_sums(&mut self, pass: &mut Pass<'_>) -> Result<(), CollectError> {
        if self.programs.probe_way().is_none() || !self.apply.sums.are_due(pass.tick.boot) {
            return Ok(());
        }
        self.apply.sums.forget_ended(pass.table);
        self.programs.tell_vm_totals().map_err(collect_error)
    }

    /// Writes what was lost since the last call.
    fn report_losses(&mut self, pass: &mut Pass<'_>) {
        let losses = self.programs.losses();
        for ((class, now), then) in LossClass::ALL.iter().zip(losses).zip(self.losses) {
            let count = now.saturating_sub(then).cast_signed();
            if count > 0 {
                match class {
                    LossClass::Lifecycle => {
                        self.has_lost_lifecycle = true;
                        pass.table.note_lost_lifecycle();
                    }
                    LossClass::Title => self.has_lost_titles = true,
                    LossClass::Cuda => self.apply.cuda.note_loss(),
                    _ => {}
                }
                pass.table.add_lost_events(count);
                let severity = match class {
                    LossClass::Sample
                    | LossClass::Title
                    | LossClass::Sender
                    | LossClass::Stack
                    | LossClass::Cuda => Severity::Degraded,
                    _ => Severity::Loss,
                };
                pass.tell(
                    severity,
                    DiagKind::LostEvents,
                    class.as_str(),
                    Some(count),
                    class.meaning(),
                );
            }
        }
        self.losses = losses;
        if let Some(first) = self.undecoded.first.take() {
            pass.table.add_lost_events(self.undecoded.count);
            // It may have been about the life of a process.
            pass.table.note_lost_lifecycle();
            pass.tell(
                Severity::Loss,
                DiagKind::UndecodedEvents,
                "ring",
                Some(self.undecoded.count),
                format!("events could not be decoded; the first: {first}"),
            );
            self.undecoded.count = 0;
        }
    }
}

/// How long to wait after a full sweep that took so much of a CPU.
fn wait_after(cost: DurationNs) -> DurationNs {
    let wait = (cost.0 as f64 / FULL_SWEEP_SHARE) as i64;
    DurationNs(wait.clamp(FULL_SWEEP_EVERY.0, FULL_SWEEP_AT_LEAST_EVERY.0))
}

/// Those parts of the backend that an event changes while the ring is borrowed.
struct Reader<'a> {
    late: &'a mut Late,
    apply: &'a mut Apply,
    kills: &'a mut Kills,
    undecoded: &'a mut Undecoded,
    targets: &'a Targets,
}

impl Reader<'_> {
    /// Applies one event, after what is late and came before it. False where that was too much
    /// for one turn, and the event must wait.
    fn take(&mut self, bytes: &[u8], pass: &mut Pass<'_>) -> bool {
        let event = match decode(bytes) {
            Ok(event) => event,
            Err(error) => {
                self.undecoded.count += 1;
                self.undecoded.first.get_or_insert(error);
                return true;
            }
        };
        if !self.take_late(event.boot_ns(), pass) {
            return false;
        }
        if let Some(kill) = self.apply.event(event, self.targets, pass) {
            self.kills.note(kill);
        }
        true
    }

    /// Applies what is late and came before this.
    fn take_late(&mut self, boot_ns: u64, pass: &mut Pass<'_>) -> bool {
        self.late.apply_until(boot_ns, self.apply, pass)
    }
}

impl Collector for BpfBackend {
    fn name(&self) -> &'static str {
        "bpf"
    }

    fn period(&self) -> DurationNs {
        self.options.interval
    }

    fn collect(&mut self, pass: &mut Pass<'_>) -> Result<(), CollectError> {
        self.cost.tick(&self.programs, pass.table);
        let started = clock::thread_cpu();
        let scope = self.scope(pass.tick);
        let result = self.sweep(scope, pass).map_err(collect_error);
        let summed = self.ask_for_sums(pass);
        let taken = self.take_events(pass).map_err(collect_error);
        let reconciled = self.reconcile(pass).map_err(collect_error);
        let adopted = self.adopt_strangers(pass).map_err(collect_error);
        self.follow_cuda(pass);
        self.ask_for_contexts();
        self.write_cuda(pass);
        self.kills.write(false, pass);
        if pass.tick.boot >= self.next_losses {
            self.next_losses = pass.tick.boot + LOSSES_EVERY;
            self.report_losses(pass);
            self.report_unnamed(pass);
        }
        let titled = self.look_at_names(pass).map_err(collect_error);
        self.apply.name_some(NAMING, pass);
        if scope == SweepScope::Keyframe && self.misses.write(&self.programs, pass) {
            self.has_lost_lifecycle = true;
            pass.table.note_lost_lifecycle();
        }
        let cost = DurationNs(clock::thread_cpu().0 - started.0);
        // What was kept while the ring was full can be of the time before.
        if !self.is_behind() {
            pass.table.note_snapshot(pass.tick.boot, cost);
        }
        result
            .and(summed)
            .and(taken)
            .and(reconciled)
            .and(adopted)
            .and(titled)
    }

    fn is_behind(&self) -> bool {
        !self.late.is_empty() || self.waiting.is_some()
    }

    fn wake_fd(&self) -> Option<OwnedFd> {
        self.ring.as_fd().try_clone_to_owned().ok()
    }

    fn drain(&mut self, pass: &mut Pass<'_>) -> Result<(), CollectError> {
        self.take_events(pass).map_err(collect_error)?;
        self.follow_cuda(pass);
        self.ask_for_contexts();
        self.adopt_strangers(pass).map_err(collect_error)
    }

    fn finish(&mut self, pass: &mut Pass<'_>) -> Result<(), CollectError> {
        let last = Tick {
            is_keyframe: true,
            ..*pass.tick
        };
        let pass = &mut Pass::new(&last, pass.table, pass.out);
        // The sums find room in a ring that was just emptied.
        let taken = self.take_events(pass).map_err(collect_error);
        self.apply.sums.ask_again();
        let collected = self.collect(pass);
        self.kills.write(true, pass);
        taken.and(collected)
    }
}

pub(super) fn settings(options: &BpfOptions) -> Settings {
    let page = options.page_size.0;
    let drift = (DRIFT_BYTES_MIN / page).max(drift_bound_pages(options.online_cpus));
    Settings {
        config: Config {
            is_all: u32::from(matches!(options.targets, Targets::All)),
            offers_strangers: u32::from(matches!(options.targets, Targets::Match(_))),
            has_target_cgroups: u32::from(matches!(options.targets, Targets::Cgroup(_))),
            held_tgid: options.held.as_ref().map_or(0, |held| held.tgid.0),
            drift_pages: drift,
            few_cpus: options.few_cpus.into(),
            drift_interval_ns: DRIFT_INTERVAL_NS,
            drift_burst: DRIFT_BURST,
            ring_bytes: RING_BYTES,
            wake_bytes: WAKE_BYTES,
            page_bytes: page.cast_unsigned(),
            tick_ns: clock::tick().0.cast_unsigned(),
            vm_min_bytes: options.vm_min.0.cast_unsigned(),
            vm_interval_ns: VM_INTERVAL_NS,
            vm_burst: VM_BURST,
            has_vm: u32::from(!options.probes.is_empty()),
            vm_calls: super::calls::numbers(),
            has_stacks: u32::from(options.has_stacks),
            stack_interval_pages: (STACK_INTERVAL_BYTES / page) as u32,
            has_cuda: u32::from(options.cuda.is_some()),
            reserved: 0,
        },
        members_max: options.members_max,
        ended_max: options.ended_max,
        possible_cpus: options.possible_cpus,
        probes: options.probes.clone(),
    }
}

/// Which way calls on address spaces are seen, what that costs and leaves out, or that they
/// are not.
fn probes_diag(programs: &Programs, options: &BpfOptions, tick: &Tick) -> Record {
    let (kind, mut detail) = match programs.probe_way() {
        Some(way) => {
            let (summary, unseen) = (way.summary(), way.unseen());
            let reported = format!(
                "mmap, munmap, mremap, brk and madvise are seen by {way}. {summary}. Not seen: \
                 {unseen}"
            );
            (DiagKind::Backend, reported)
        }
        None if options.probes.is_empty() => {
            let why = "no probes were asked for, or none are available; see memtrace doctor";
            (DiagKind::Unavailable, format!("{UNSEEN}: {why}"))
        }
        None => (DiagKind::Unavailable, UNSEEN.to_owned()),
    };
    if !programs.are_misses_reported() {
        detail.push_str(". This kernel does not report how many calls the probes miss");
    }
    for refusal in &programs.probe_refusals {
        detail.push_str(". Refused: ");
        detail.push_str(refusal);
    }
    // Information only: what is resident is known without them.
    tick.diag(Severity::Info, kind, DiagRow::PROBES, None, detail)
}

const UNSEEN: &str = "mmap, munmap, mremap, brk and madvise are not seen";

/// How far one per-CPU counter, read without its parts, can be off: batch × CPUs with
/// batch = max(32, 2 × CPUs) (compute_batch_value in lib/percpu_counter.c).
fn drift_bound_pages(cpus: u32) -> i64 {
    i64::from(cpus) * i64::from(cpus.saturating_mul(2).max(32))
}

/// The bound for RSS, which adds up three counters.
fn counter_error(cpus: u32, page_size: PageSize) -> Bytes {
    Pages(3 * drift_bound_pages(cpus)).to_bytes(page_size)
}

fn collect_error(error: LoadError) -> CollectError {
    CollectError::new("bpf", error)
}

#[cfg(test)]
mod tests;
