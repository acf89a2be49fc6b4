//! A recording that is being made: its collectors, the loop that asks each in turn, its end.
//! One task on one thread does all that; the writing thread has the disk.

mod command;
mod movement;
mod turns;

use super::alarm::Alarm;
use super::gpu_only::GpuOnly;
use super::marks::Logs;
use super::outcome::{Outcome, Progress, RecordError};
use super::output::Output;
use super::pace::Pace;
use super::signals::{Signals, signals_end_us_again};
use super::start::{self, Started};
use super::{Held, Leftovers, Marks, Options, OutputError, gpus, held};
use command::{Followed, enter_command, outlive};
#[cfg(target_os = "linux")]
use memtrace_collect::procfs;
use memtrace_collect::{Pass, ProcessTable, Roles, Sections, Targets, Tick, exit_row};
use memtrace_host::{Backend, HostFacts, Plan, clock, mark_sockets};
use memtrace_model::{
    BootNs, Bytes, ClockOffset, DescendantsSource, DiagKind, DurationNs, Record, RunInfo, RunState,
    SCHEMA_VERSION, Severity, Target, Tgid,
};
use memtrace_store::StoreError;
use movement::Movement;
use std::collections::HashSet;
use std::os::fd::OwnedFd;
#[cfg(target_os = "linux")]
use std::path::Path;
use std::task::Poll;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use turns::{CLOCK_PERIOD, KEYFRAME_PERIOD, Turn};

/// So often what came meanwhile is taken at the end: more than the kernel can have kept, and an
/// end also where a storm of forks goes on.
const LAST_DRAINS_MAX: usize = 64;

/// While the disk is behind, how often is looked whether the recording is over.
const BEHIND_PERIOD: DurationNs = DurationNs(200_000_000);
/// The disk was behind for less than this: what is missing is less than a look or two.
const BEHIND_LEAST: DurationNs = DurationNs(100_000_000);

/// Why the loop ended.
pub(super) struct End {
    storage_failure: Option<StoreError>,
    is_command_running: bool,
    /// A signal came: somebody waits for our end.
    is_asked: bool,
    is_interrupted: bool,
}

/// A recording that is being made.
pub(super) struct Session {
    pub(super) info: RunInfo,
    pub(super) output: Output,
    table: ProcessTable,
    logs: Logs,
    roles: Roles,
    sections: Sections,
    turns: Vec<Turn>,
    pace: Pace,
    batch: Vec<Record>,
    movement: Movement,
    gpu_only: Option<GpuOnly>,
    reported: HashSet<String>,
    started: BootNs,
    next_keyframe: BootNs,
    next_flush: BootNs,
    /// When the recorder's own cost was last written, with its anonymous memory.
    noted_cost: Option<(BootNs, Bytes)>,
    /// The events that were lost until then.
    noted_losses: i64,
    next_clock: BootNs,
    /// Since when nothing is looked at, for the disk is behind.
    behind_since: Option<BootNs>,
    /// Whether others read parts of it already, by a `run.json` that is written anew.
    is_rotating: bool,
    /// The memory cgroup of the recorder, whose memory is in that group's figures.
    own_cgroup: Option<String>,
}

impl Session {
    #[expect(
        clippy::too_many_arguments,
        reason = "a session needs all that is there before it"
    )]
    pub(super) fn start(
        options: &Options,
        facts: &HostFacts,
        plan: &Plan,
        targets: &Targets,
        held: Option<&Held>,
        gpus: gpus::Starting,
        marks: Marks,
        owner: Option<(u32, u32)>,
    ) -> Result<Self, RecordError> {
        let command = held.map(Held::tgid);
        let mut table = ProcessTable::default();
        let mut batch = Vec::new();
        let first_reading = clock::read();
        let tick = Tick {
            boot: first_reading.boot_ns,
            clock: ClockOffset::at(first_reading),
            is_keyframe: false,
        };
        let Started {
            mut collectors,
            backend,
            reason,
        } = start::start(
            options,
            targets,
            command,
            facts,
            plan,
            gpus.haste(),
            &mut Pass::new(&tick, &mut table, &mut batch),
        )?;
        if let Some(held) = held {
            enter_command(held, &tick, &mut table);
        }
        table.set_memory(facts.mem_total_bytes);
        let gpus = gpus.complete(options, &tick, &mut collectors, &mut batch)?;
        let mut logs = Logs::default();
        let listening = (!options.is_gpu_only).then(|| marks.listen(&table));
        let mark_socket = listening.map(|listening| {
            let listening = listening?;
            // Behind the backend, which knows the processes that marks come from.
            collectors.push(listening.collector);
            logs = listening.logs;
            listening.path
        });
        if let Some(Err(error)) = &mark_socket {
            let detail = format!("marks are not received: {error}");
            let (severity, kind) = (Severity::Degraded, DiagKind::Unavailable);
            batch.push(tick.diag(severity, kind, "mark", None, detail));
        }
        let info = RunInfo {
            root_tgid: command.or_else(|| single_pid(&options.target)),
            backend: backend.to_string(),
            backend_reason: reason,
            clocks: vec![first_reading],
            mark_socket: mark_socket.and_then(Result::ok),
            gpus: gpus.infos,
            gpu_note: gpus.note,
            downsampled: None,
            ..info(options, facts, plan)
        };
        let are_roots_main = matches!(options.target, Target::Command { .. } | Target::Pids { .. });
        let dir = super::output::directory(options.output.as_deref(), &info);
        let output = Output::create(
            &dir,
            &info,
            owner,
            options.rotate,
            options.redacts,
            table.ceiling(),
        )?;
        if let Some(socket) = &info.mark_socket
            && let Err(error) = mark_sockets::link_recording(socket.as_ref(), output.dir())
        {
            tracing::warn!("`memtrace mark` can't tell this recording from others: {error}");
        }
        let now = clock::boot();
        let turns = collectors.into_iter();
        let turns = turns.map(|collector| Turn::new(collector, now));
        Ok(Self {
            info,
            output,
            table,
            logs,
            roles: Roles::new(options.roles.clone(), are_roots_main),
            sections: Sections::new(match backend {
                Backend::Bpf => DescendantsSource::Events,
                Backend::Procfs | Backend::Sysinfo => DescendantsSource::Poll,
            }),
            turns: turns.collect(),
            pace: Pace::new(options.interval, options.cpu_budget),
            batch,
            movement: Movement::default(),
            gpu_only: options.is_gpu_only.then(GpuOnly::default),
            reported: HashSet::new(),
            started: now,
            next_keyframe: now + KEYFRAME_PERIOD,
            next_flush: now,
            noted_cost: None,
            noted_losses: 0,
            next_clock: now + CLOCK_PERIOD,
            behind_since: None,
            is_rotating: options.rotate.is_some(),
            own_cgroup: own_cgroup(),
        })
    }

    /// The loop, until the target ends, a signal or the duration says so, or the disk is
    /// full.
    pub(super) async fn run(
        &mut self,
        options: &Options,
        command: Option<Tgid>,
        signals: &mut Signals,
        progress: &mut impl FnMut(&Progress),
    ) -> Result<End, RecordError> {
        let wakes = self.wakes().map_err(RecordError::Loop)?;
        let alarm = Alarm::new().map_err(RecordError::Loop)?;
        let ends_with_members = matches!(options.target, Target::Pids { .. });
        let deadline = options.duration.map(|duration| self.started + duration);
        // It may have ended before its signal was listened to.
        let is_running = command.is_some_and(|command| !self.reap(command));
        let mut command = Followed::new(command, is_running);
        let mut storage_failure = None;
        // Of many processes what attaching found is much, and goes out before more is added.
        self.hand_over(false);
        loop {
            let is_behind = self.is_disk_behind();
            let mut until = match is_behind {
                true => clock::boot() + BEHIND_PERIOD,
                false => self.next_turn(),
            };
            if let Some(deadline) = deadline {
                until = BootNs(until.0.min(deadline.0));
            }
            let now = clock::boot();
            if let Some(settled) = command.settled(now) {
                if now >= settled || !self.table.has_outlived() {
                    break;
                }
                until = BootNs(until.0.min(settled.0));
            }
            tokio::select! {
                rung = alarm.at(until) => {
                    rung.map_err(RecordError::Loop)?;
                    if !is_behind {
                        self.take_turns(progress);
                    }
                },
                () = readable(&wakes), if !is_behind => self.drain(),
                () = self.output.room(), if is_behind => {}
                request = signals.next() => {
                    if command.is_end(request, |command| self.reap(command)) {
                        break;
                    }
                },
            }
            storage_failure = self.output.take_failure();
            let is_over = storage_failure.is_some()
                || (ends_with_members && self.table.is_empty())
                || deadline.is_some_and(|deadline| clock::boot() >= deadline);
            if is_over {
                break;
            }
        }
        Ok(End {
            storage_failure,
            is_command_running: command.is_running,
            is_asked: command.is_asked,
            is_interrupted: command.is_interrupted,
        })
    }

    /// What wakes the loop between two turns.
    fn wakes(&self) -> std::io::Result<Vec<AsyncFd<OwnedFd>>> {
        let wake_fds = self.turns.iter();
        let wake_fds = wake_fds.filter_map(|turn| turn.collector.wake_fd());
        // SAFETY: an owned descriptor, which nobody closes or replaces while it is
        // registered: `wake` owns it and drops it after deregistering.
        let register = |fd| unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
        wake_fds.map(|fd| Ok(register(fd)?)).collect()
    }

    /// Whether so much waits for the disk that nothing more is looked at until it takes some.
    /// What happens meanwhile the kernel keeps or counts; for how long that was is reported.
    fn is_disk_behind(&mut self) -> bool {
        let now = clock::boot();
        if !self.output.has_room() {
            self.behind_since.get_or_insert(now);
            self.output.tell_stall();
            return true;
        }
        self.end_of_behind(now);
        false
    }

    fn end_of_behind(&mut self, now: BootNs) {
        let behind = self.behind_since.take().map(|since| now - since);
        if let Some(behind) = behind.filter(|behind| *behind >= BEHIND_LEAST) {
            let detail = format!(
                "the disk was behind: nothing was sampled for {:.1} s",
                behind.0 as f64 / 1e9
            );
            let (severity, kind) = (Severity::Loss, DiagKind::Storage);
            let tick = tick(false);
            self.pass(&tick).tell(severity, kind, "disk", None, detail);
        }
    }

    /// Goes on observing while the session does something else.
    #[cfg(target_os = "linux")]
    pub(super) fn observe(&mut self) {
        if self.is_disk_behind() {
            return;
        }
        self.drain();
        if self.next_turn() <= clock::boot() {
            self.take_turns(&mut |_| {});
        }
    }

    /// What collectors observe with at that moment.
    fn pass<'a>(&'a mut self, tick: &'a Tick) -> Pass<'a> {
        Pass::new(tick, &mut self.table, &mut self.batch)
    }

    /// The processes as they are known.
    pub(super) fn table(&self) -> &ProcessTable {
        &self.table
    }

    /// What a process was last seen to hold on GPUs; `None` when unknown, and without a GPU.
    #[cfg(target_os = "linux")]
    pub(super) fn held_on_gpus(&self, upid: memtrace_model::Upid) -> Option<Bytes> {
        let given = self.turns.iter();
        let mut given = given
            .filter_map(|turn| turn.collector.held_on_gpus(upid))
            .peekable();
        given.peek()?;
        given.sum()
    }

    #[cfg(target_os = "linux")]
    pub(super) fn put(&mut self, rows: impl Iterator<Item = Record>) {
        self.batch.extend(rows);
    }

    /// Takes the command's end, if it has ended.
    fn reap(&mut self, command: Tgid) -> bool {
        let Some(end) = held::wait(command) else {
            return false;
        };
        self.info.command_exit_code = Some(end.exit_code());
        let tick = tick(false);
        // What the kernel reported of its end is in the ring; a poll knows it from here.
        self.drain();
        let was_alive = self
            .table
            .note_wait(command, tick.boot, end.wait_status, end.max_rss);
        if let Some(upid) = was_alive {
            self.batch
                .push(Record::Mem(exit_row(upid, tick.boot, &tick)));
        }
        true
    }

    /// Gives up a recording whose command never ran.
    pub(super) fn abandon(self) {
        self.output.discard();
    }

    /// A last look, then the collectors go, then the files are closed. Where the disk was
    /// full the command goes on without us; its end is awaited for its exit code.
    pub(super) async fn finish(
        mut self,
        end: End,
        leftovers: Leftovers,
        command: Option<Tgid>,
        signals: &mut Signals,
        progress: &mut impl FnMut(&Progress),
    ) -> Result<Outcome, RecordError> {
        let tick = tick(true);
        let must_wait = end.storage_failure.is_some() && end.is_command_running;
        if !must_wait {
            // The collectors may have to wait, for a reader of the command's output say.
            signals_end_us_again(end.is_asked);
        }
        // Before anything is waited for.
        self.output.tell_stall();
        self.end_of_behind(tick.boot);
        let turns = std::mem::take(&mut self.turns);
        for mut turn in turns {
            let collector = &mut turn.collector;
            let mut result = collector.drain(&mut self.pass(&tick));
            for _ in 0..LAST_DRAINS_MAX {
                if result.is_err() || !collector.is_behind() {
                    break;
                }
                self.hand_over(false);
                result = collector.drain(&mut self.pass(&tick));
            }
            let finished = collector.finish(&mut self.pass(&tick));
            if let Err(error) = result.and(finished) {
                let name = turn.collector.name();
                self.report(&tick, DiagKind::Unavailable, name, &error.to_string());
            }
            gpus::note(turn.collector.as_ref(), &mut self.info);
            self.hand_over(false);
        }
        self.hand_over(true);
        self.note_cost(&tick, true);
        self.info.clocks.push(clock::read());
        if let (true, Some(command)) = (must_wait, command) {
            self.info.command_exit_code = Some(outlive(command, signals).await);
            signals_end_us_again(true);
        }
        self.info.state = RunState::Closed;
        let dir = self.output.dir().to_owned();
        let mut outcome = Outcome {
            dir,
            command_exit_code: self.info.command_exit_code,
            process_count: self.table.entered_count(),
            row_count: 0,
            written_bytes: Bytes(0),
            absent_logs: self.logs.absent(),
            storage_failure: end.storage_failure,
            is_interrupted: end.is_interrupted,
            leftovers,
        };
        progress(&self.progress(true));
        // Closing the files takes memory of its own.
        drop((self.table, self.roles, self.sections));
        super::limits::release();
        match self.output.finish(self.info, end.is_asked).await {
            Ok(stats) => {
                outcome.row_count = stats.row_count;
                outcome.written_bytes = stats.written_bytes;
                Ok(outcome)
            }
            // The first failure says it; the rest follows from it.
            Err(_) if outcome.storage_failure.is_some() => Ok(outcome),
            Err(OutputError::Store(failure)) if failure.ends_with_what_is_there() => {
                outcome.storage_failure = Some(failure);
                Ok(outcome)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// The memory cgroup that memtrace lives in.
pub(super) fn own_cgroup() -> Option<String> {
    cgroup_of(Tgid(std::process::id()))
}

#[cfg(target_os = "linux")]
pub(super) fn cgroup_of(tgid: Tgid) -> Option<String> {
    procfs::identity(Path::new("/proc"), tgid).ok()??.cgroup
}

#[cfg(not(target_os = "linux"))]
pub(super) fn cgroup_of(_: Tgid) -> Option<String> {
    None
}

/// What is known of a recording before its collectors start.
fn info(options: &Options, facts: &HostFacts, plan: &Plan) -> RunInfo {
    RunInfo {
        schema_version: SCHEMA_VERSION,
        memtrace_version: env!("CARGO_PKG_VERSION").to_owned(),
        id: None,
        state: RunState::Recording,
        hostname: facts.hostname.clone(),
        kernel: facts.kernel.clone(),
        arch: facts.arch.clone(),
        page_size_bytes: facts.page_size_bytes,
        cpu_count: facts.online_cpu_count.unwrap_or(0),
        mem_total_bytes: facts.mem_total_bytes,
        target: options.target.clone(),
        root_tgid: None,
        backend: String::new(),
        backend_reason: String::new(),
        interval_ns: options.interval,
        clocks: Vec::new(),
        command_exit_code: None,
        mark_socket: None,
        gpus: Vec::new(),
        gpu_note: None,
        downsampled: None,
        place: options.place.clone(),
        host: serde_json::to_value(facts).unwrap_or_default(),
        plan: serde_json::to_value(plan).unwrap_or_default(),
    }
}

fn single_pid(target: &Target) -> Option<Tgid> {
    match target {
        Target::Pids { tgids } => match tgids.as_slice() {
            [tgid] => Some(*tgid),
            _ => None,
        },
        _ => None,
    }
}

/// The present moment.
pub(super) fn tick(is_keyframe: bool) -> Tick {
    let reading = clock::read();
    Tick {
        boot: reading.boot_ns,
        clock: ClockOffset::at(reading),
        is_keyframe,
    }
}

/// Waits until a collector asks to be drained; for ever where none ever does.
async fn readable(wakes: &[AsyncFd<OwnedFd>]) {
    std::future::poll_fn(|context| {
        let mut is_readable = false;
        for wake in wakes {
            if let Poll::Ready(Ok(mut guard)) = wake.poll_read_ready(context) {
                guard.clear_ready();
                is_readable = true;
            }
        }
        match is_readable {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}
