//! The session's side: takes what the thread found, and knows whose process ids those are.

use super::LibraryError;
use super::merge::Listed;
use super::steps::{Key, Stamp, Steps, Value, row};
use super::worker::{self, Found, Order, Past};
use crate::collect::procfs::identity;
use crate::collect::stop::Stop;
use crate::collect::{CollectError, Collector, Tick, World};
use crate::model::tables::GpuSource;
use crate::model::{
    BootNs, Bytes, DiagKind, DurationNs, GpuInfo, Record, Severity, Tgid, Upid, WallNs,
};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a recording that begins waits for the driver to tell of its devices: without a
/// persistence daemon it takes seconds to wake them.
const PATIENCE_AT_START: Duration = Duration::from_secs(2);
/// How long a recording that ends waits for a call that is going on.
const PATIENCE_AT_END: Duration = Duration::from_secs(2);
/// Time between two looks at what was found.
const PERIOD: DurationNs = DurationNs(250_000_000);
/// A round tells of each device and of its processes; it waits where more has gathered.
const FOUND_MAX: usize = 256;
const STACK_BYTES: usize = 512 << 10;

/// What the collector is started with.
#[derive(Clone, Debug)]
pub struct GpuOptions {
    /// Time between two readings of the devices' memory.
    pub interval: DurationNs,
    /// Devices by index or UUID; all where none is named.
    pub devices: Vec<String>,
    /// Where procfs is mounted.
    pub proc: PathBuf,
    /// Whether this process is in the machine's own pid namespace, where a process with a
    /// context on a device is never told to hold zero bytes for want of knowing better.
    pub is_initial_pid_ns: bool,
    /// Whether the recording knows processes by the ids of this pid namespace.
    pub are_ids_ours: bool,
}

/// What came of starting.
#[derive(Debug)]
pub struct GpuStart {
    /// The collector; none where there is nothing to ask.
    pub collector: Option<GpuCollector>,
    /// The devices, where they are known by now.
    pub gpus: Vec<GpuInfo>,
    /// Why they are not.
    pub error: Option<LibraryError>,
}

/// Observes the memory of NVIDIA's GPUs.
#[derive(Debug)]
pub struct GpuCollector {
    options: GpuOptions,
    stop: Arc<Stop>,
    found: Receiver<Found>,
    thread: Option<JoinHandle<()>>,
    steps: Steps,
    /// Ended processes that were told of, by device, id and start.
    past: HashSet<(Arc<str>, u32, WallNs)>,
    started: Option<WallNs>,
    /// The latest reading that was taken: what stands is repeated for that time, since a
    /// newer one can be under way.
    latest: Option<Stamp>,
}

impl GpuCollector {
    /// Loads the library and starts the thread. Waits a moment for the devices.
    pub fn start(options: GpuOptions) -> GpuStart {
        let (tell, found) = sync_channel(FOUND_MAX);
        let stop = Arc::new(Stop::default());
        let order = Order {
            interval: options.interval,
            wanted: options.devices.clone(),
            proc: options.proc.clone(),
            is_initial_pid_ns: options.is_initial_pid_ns,
        };
        let its_stop = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("memtrace-nvml".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || worker::run(order, &its_stop, &tell));
        let failed = |error| GpuStart {
            collector: None,
            gpus: Vec::new(),
            error: Some(error),
        };
        let thread = match thread {
            Ok(thread) => thread,
            Err(error) => return failed(LibraryError::NoThread(error.to_string())),
        };
        let gpus = match found.recv_timeout(PATIENCE_AT_START) {
            Ok(Found::Ready(gpus)) => gpus,
            Ok(Found::Failed(error)) => return failed(error),
            // It starts behind our back, and what it finds counts from then on.
            Ok(_) | Err(RecvTimeoutError::Timeout) => Vec::new(),
            Err(RecvTimeoutError::Disconnected) => {
                return failed(LibraryError::NoThread("it ended at once".to_owned()));
            }
        };
        let collector = Self {
            options,
            stop,
            found,
            thread: Some(thread),
            steps: Steps::default(),
            past: HashSet::new(),
            started: None,
            latest: None,
        };
        GpuStart {
            collector: Some(collector),
            gpus,
            error: None,
        }
    }

    fn take(&mut self, found: Found, tick: &Tick, world: &World, out: &mut Vec<Record>) {
        self.latest = found.stamp().or(self.latest);
        match found {
            Found::Ready(_) => {}
            Found::Failed(error) => {
                let detail = format!("GPU memory is unknown: {error}");
                let (severity, kind) = (Severity::Degraded, DiagKind::Unavailable);
                out.push(tick.diag(severity, kind, "nvml", None, detail));
            }
            Found::Device(row) => out.push(Record::GpuDevice(*row)),
            Found::Processes(device, stamp, listed) => {
                self.take_processes(&device, stamp, &listed, world, out);
            }
            Found::Unknown(device, stamp) => self.steps.forget_amounts(&device, stamp, out),
            Found::Past(device, stamp, past) => self.take_past(&device, stamp, &past, world, out),
            Found::Holders(device, stamp, holders) => {
                let holders = holders.into_iter().map(|tgid| {
                    let key = key(&device, GpuSource::Descriptor, tgid);
                    let value = self.who(&key, stamp, world);
                    (key, value)
                });
                let holders = holders.collect();
                let scope = (&device, GpuSource::Descriptor);
                self.steps.update(scope, stamp, holders, out);
            }
            Found::Diag(severity, kind, subject, detail) => {
                out.push(tick.diag(severity, kind, &subject, None, detail));
            }
        }
    }

    fn take_processes(
        &mut self,
        device: &Arc<str>,
        stamp: Stamp,
        listed: &[Listed],
        world: &World,
        out: &mut Vec<Record>,
    ) {
        let found = listed.iter().map(|process| {
            let key = Key {
                gpu_instance: process.gpu_instance,
                compute_instance: process.compute_instance,
                ..key(device, GpuSource::Nvml, Tgid(process.pid))
            };
            let value = Value {
                kind: Some(process.kind),
                used: process.used,
                ..self.who(&key, stamp, world)
            };
            (key, value)
        });
        let found = found.collect();
        self.steps
            .update((device, GpuSource::Nvml), stamp, found, out);
    }

    /// Ended processes that no list showed, or not at their highest.
    fn take_past(
        &mut self,
        device: &Arc<str>,
        stamp: Stamp,
        past: &[Past],
        world: &World,
        out: &mut Vec<Record>,
    ) {
        for process in past {
            let is_of_before = self.started.is_none_or(|started| process.start < started);
            let id = (Arc::clone(device), process.pid, process.start);
            if is_of_before || !self.past.insert(id) {
                continue;
            }
            let key = key(device, GpuSource::Accounting, Tgid(process.pid));
            let age = stamp.ts.0.saturating_sub(process.start.0);
            // A moment after its start: the clocks agree to some milliseconds only.
            let at = BootNs(stamp.boot.0 - age + 20_000_000);
            let value = Value {
                upid: world
                    .who_was(key.tgid, at)
                    .filter(|_| self.options.are_ids_ours),
                used: Some(Bytes(0)),
                ..Value::default()
            };
            if let Record::GpuProcess(mut row) = row(&key, &value, stamp) {
                row.peak_bytes = process.peak;
                out.push(Record::GpuProcess(row));
            }
        }
    }

    /// Whose process id that is: a process of the recording, or what /proc tells of it.
    fn who(&self, key: &Key, stamp: Stamp, world: &World) -> Value {
        if let Some(upid) = self.upid(key.tgid, stamp, world) {
            return Value {
                upid: Some(upid),
                ..Value::default()
            };
        }
        if let Some(known) = self.steps.value(key).filter(|known| known.upid.is_none()) {
            return Value {
                comm: known.comm.clone(),
                cmdline: known.cmdline.clone(),
                ..Value::default()
            };
        }
        let identity = identity(&self.options.proc, key.tgid).ok().flatten();
        Value {
            comm: identity.as_ref().map(|identity| identity.comm.clone()),
            cmdline: identity.and_then(|identity| identity.cmdline),
            ..Value::default()
        }
    }

    /// NVML speaks of the ids of our own pid namespace. Where the recording has those of the
    /// machine, the id that a process has in its innermost namespace is compared, and counts
    /// where only one process has it.
    fn upid(&self, tgid: Tgid, stamp: Stamp, world: &World) -> Option<Upid> {
        if self.options.are_ids_ours {
            return world.who_was(tgid, stamp.boot);
        }
        let mut named = world
            .processes()
            .filter(|process| process.row().ns_tgid == Some(tgid));
        let first = named.next()?;
        named.next().is_none().then(|| first.row().upid)
    }

    fn take_all(&mut self, tick: &Tick, world: &World, out: &mut Vec<Record>) {
        while let Ok(found) = self.found.try_recv() {
            self.take(found, tick, world, out);
        }
    }

    /// Asks the thread for a last look and waits for it.
    fn stop(&mut self, mut take: impl FnMut(&mut Self, Found)) {
        self.stop.set();
        let Some(thread) = self.thread.take() else {
            return;
        };
        let asked = Instant::now();
        while !thread.is_finished() {
            if asked.elapsed() > PATIENCE_AT_END {
                // In a call that does not come back. It holds nothing that the recording
                // needs, and ends with this process.
                tracing::warn!("a call of NVML does not come back");
                return;
            }
            if let Ok(found) = self.found.recv_timeout(Duration::from_millis(1)) {
                take(self, found);
            }
        }
        while let Ok(found) = self.found.try_recv() {
            take(self, found);
        }
        let _ = thread.join();
    }
}

fn key(device: &Arc<str>, source: GpuSource, tgid: Tgid) -> Key {
    Key {
        device: Arc::clone(device),
        source,
        tgid,
        gpu_instance: None,
        compute_instance: None,
        client: None,
    }
}

impl Collector for GpuCollector {
    fn name(&self) -> &'static str {
        "nvml"
    }

    fn period(&self) -> DurationNs {
        PERIOD
    }

    fn is_urged(&self) -> bool {
        true
    }

    fn collect(
        &mut self,
        tick: &Tick,
        world: &mut World,
        out: &mut Vec<Record>,
    ) -> Result<(), CollectError> {
        self.started.get_or_insert_with(|| tick.wall());
        self.take_all(tick, world, out);
        if let Some(stamp) = self.latest.filter(|_| tick.is_keyframe) {
            self.steps.keyframe(stamp, out);
        }
        Ok(())
    }

    fn finish(
        &mut self,
        tick: &Tick,
        world: &mut World,
        out: &mut Vec<Record>,
    ) -> Result<(), CollectError> {
        self.take_all(tick, world, out);
        self.stop(|collector, found| collector.take(found, tick, world, out));
        Ok(())
    }
}

impl Drop for GpuCollector {
    fn drop(&mut self) {
        self.stop(|_, _| {});
    }
}
