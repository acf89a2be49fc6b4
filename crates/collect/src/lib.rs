//! Observers: each turns one source (BPF, /proc, cgroupfs, the platform) into records.
//!
//! The session calls every collector in turn on each tick, on one thread. A collector
//! keeps its own state, shares the [`ProcessTable`] with the others, and appends rows to the
//! batch; it never waits and never prints.

#[cfg(target_os = "linux")]
pub mod bpf;
mod ceiling;
#[cfg(target_os = "linux")]
pub mod cgroup;
pub mod clocks;
mod container;
#[cfg(target_os = "linux")]
pub mod cuda;
#[cfg(target_os = "linux")]
mod fields;
#[cfg(target_os = "linux")]
pub mod gpu;
#[cfg(target_os = "linux")]
mod kept;
#[cfg(target_os = "linux")]
pub mod leftovers;
#[cfg(target_os = "linux")]
pub mod limits;
#[cfg(target_os = "linux")]
pub mod marks;
pub mod node;
#[cfg(target_os = "linux")]
mod on_change;
#[cfg(target_os = "linux")]
pub mod oom;
#[cfg(target_os = "linux")]
mod pods;
mod process_table;
#[cfg(target_os = "linux")]
pub mod procfs;
#[cfg(target_os = "linux")]
mod ray;
mod roles;
mod section_news;
mod sections;
#[cfg(target_os = "linux")]
pub mod smaps;
#[cfg(target_os = "linux")]
pub mod stacks;
#[cfg(target_os = "linux")]
mod stop;
pub mod sysinfo;
mod targets;

pub use ceiling::{Ceiling, Part, Share};
pub use container::container_id;
#[cfg(target_os = "linux")]
pub use pods::PodCollector;
pub use process_table::{
    Birth, NAME_BYTES_KEPT, News, Peak, Process, ProcessTable, RoleDeclaration, exit_row,
};
#[cfg(target_os = "linux")]
pub use ray::RayDrivers;
pub use roles::Roles;
pub use section_news::{Reply, SectionNews};
pub use sections::Sections;
pub use targets::Targets;

use memtrace_model::{
    BootNs, Bytes, ClockOffset, DiagKind, DiagRow, DurationNs, GpuInfo, Record, Severity, Upid,
    WallNs,
};

/// The moment for which collectors are asked.
#[derive(Clone, Copy, Debug)]
pub struct Tick {
    /// Now, on the clock of the recording.
    pub boot: BootNs,
    /// How to tell wall time from boot time.
    pub clock: ClockOffset,
    /// Whether a full row of every process is due, changed or not.
    pub is_keyframe: bool,
}

impl Tick {
    /// A tick of a machine whose clocks began together.
    #[cfg(test)]
    pub(crate) fn at(boot: BootNs) -> Self {
        Self {
            boot,
            clock: ClockOffset::at(memtrace_model::ClockReading {
                boot_ns: BootNs(0),
                monotonic_ns: 0,
                wall_ns: WallNs(0),
            }),
            is_keyframe: false,
        }
    }

    /// The wall time of this tick.
    pub fn wall(&self) -> WallNs {
        self.clock.to_wall(self.boot)
    }

    /// A row of `diag` at this moment.
    pub fn diag(
        &self,
        severity: Severity,
        kind: DiagKind,
        subject: &str,
        count: Option<i64>,
        detail: impl Into<String>,
    ) -> Record {
        Record::Diag(DiagRow {
            ts: self.wall(),
            boot_ns: self.boot,
            severity: Some(severity),
            kind: Some(kind),
            subject: subject.to_owned(),
            count,
            detail: detail.into(),
        })
    }
}

/// What collectors observe with: when it is, whom they know of, and where rows go. The session
/// hands it from one to the next.
#[derive(Debug)]
pub struct Pass<'a> {
    /// When it is.
    pub tick: &'a Tick,
    /// The processes of the recording.
    pub table: &'a mut ProcessTable,
    /// The rows of this pass, and of others before it that are not handed over yet.
    pub out: &'a mut Vec<Record>,
}

impl<'a> Pass<'a> {
    /// A pass at that moment.
    pub fn new(tick: &'a Tick, table: &'a mut ProcessTable, out: &'a mut Vec<Record>) -> Self {
        Self { tick, table, out }
    }

    /// Writes a row.
    pub fn write(&mut self, row: impl Into<Record>) {
        self.out.push(row.into());
    }

    /// Writes a row of `diag` about something that is known less well than it could be.
    pub fn tell_degraded(
        &mut self,
        kind: DiagKind,
        subject: &str,
        count: Option<i64>,
        detail: impl Into<String>,
    ) {
        self.tell(Severity::Degraded, kind, subject, count, detail);
    }

    /// Writes a row of `diag`, as [`Tick::diag`] makes it.
    pub fn tell(
        &mut self,
        severity: Severity,
        kind: DiagKind,
        subject: &str,
        count: Option<i64>,
        detail: impl Into<String>,
    ) {
        self.write(self.tick.diag(severity, kind, subject, count, detail));
    }
}

/// Why a collector could not do its work. It goes on being asked; the session records the
/// error as a row of `diag`, once per distinct message.
#[derive(Debug, thiserror::Error)]
#[error("{subject}: {message}")]
pub struct CollectError {
    /// What failed: a file, a probe, a call.
    pub subject: String,
    /// Why, as a lower-case fragment.
    pub message: String,
}

impl CollectError {
    pub(crate) fn new(subject: impl Into<String>, error: impl std::error::Error) -> Self {
        Self {
            subject: subject.into(),
            message: error.to_string(),
        }
    }
}

/// One source of records.
pub trait Collector {
    /// Its name, as `diag` and the person see it.
    fn name(&self) -> &'static str;

    /// The least time between two calls. The session may call less often, never more.
    fn period(&self) -> DurationNs;

    /// Whether others fill up what this collector empties: then it is asked at its own
    /// pace, also when the session slows down to keep its budget.
    fn is_urged(&self) -> bool {
        false
    }

    /// Whether its figures are held against those of the processes: then it is asked ahead of
    /// its turn when those have moved far since it was last asked.
    fn follows_processes(&self) -> bool {
        false
    }

    /// Whether what it last reported is out of date by what the kernel says now: asked at every tick, so
    /// that it must cost little. Then it is asked ahead of its turn too.
    fn is_out_of_date(&mut self) -> bool {
        false
    }

    /// Observes and appends the rows of what was seen.
    ///
    /// # Errors
    /// When the source could not be read at all. A process that vanished is no error.
    fn collect(&mut self, pass: &mut Pass<'_>) -> Result<(), CollectError>;

    /// A descriptor that becomes readable (edge-triggered) when the collector wants to be
    /// drained before its next turn; none for collectors that only poll.
    #[cfg(unix)]
    fn wake_fd(&self) -> Option<std::os::fd::OwnedFd> {
        None
    }

    /// Takes what is waiting behind [`Collector::wake_fd`].
    ///
    /// # Errors
    /// As for [`Collector::collect`].
    fn drain(&mut self, _pass: &mut Pass<'_>) -> Result<(), CollectError> {
        Ok(())
    }

    /// Has those looked at for whose memory somebody was just killed: they can soon be gone. It must
    /// not wait for that.
    fn look_at_killed_for(&mut self, _table: &mut ProcessTable) {}

    /// Whether more is known than one drain took.
    fn is_behind(&self) -> bool {
        false
    }

    /// The GPUs that it observes, or why it observes none; `None` for a collector of other
    /// things, and for one that has not been reported yet.
    fn gpus(&self) -> Option<Result<Vec<GpuInfo>, String>> {
        None
    }

    /// What a process was last seen to hold on all GPUs that it observes. `None` from a
    /// collector that observes none; `Some(None)` when unknown.
    fn held_on_gpus(&self, _upid: Upid) -> Option<Option<Bytes>> {
        None
    }

    /// A last observation when the recording stops; by default the same as any other.
    ///
    /// # Errors
    /// As for [`Collector::collect`].
    fn finish(&mut self, pass: &mut Pass<'_>) -> Result<(), CollectError> {
        self.collect(pass)
    }
}
