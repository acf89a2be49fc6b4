//! The session's side: takes what the thread found, and knows whose process ids those are.

use super::LibraryError;
use super::hang::Hang;
use super::merge::Listed;
use super::pace::Calls;
use super::steps::{Key, Stamp, Steps, Value, row};
use super::worker::{self, Found, Order, Past};
use crate::procfs::{Identity, identity};
use crate::stop::Stop;
use crate::{CollectError, Collector, Pass, Process, ProcessTable, Tick};
use memtrace_model::tables::GpuSource;
use memtrace_model::{BootNs, Bytes, DurationNs, GpuInfo, Record, Tgid, Upid, WallNs};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a recording that ends waits for a call that is going on.
const PATIENCE_AT_END: Duration = Duration::from_secs(1);
/// The same of a driver that has not reported its devices by then.
const PATIENCE_WITHOUT_DEVICES: Duration = Duration::from_millis(100);
/// Time between two looks at what was found.
const PERIOD: DurationNs = DurationNs(250_000_000);
/// The same where there is nothing to observe.
const IDLE_PERIOD: DurationNs = DurationNs(3_600_000_000_000);
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
    /// context on a device is never reported to hold zero bytes for want of knowing better.
    pub is_initial_pid_ns: bool,
    /// Whether there is no sign of a GPU: then it is no news that the library can't be asked.
    pub is_none_expected: bool,
}

/// Observes the memory of NVIDIA's GPUs.
#[derive(Debug)]
pub struct GpuCollector {
    options: GpuOptions,
    stop: Arc<Stop>,
    found: Receiver<Found>,
    thread: Option<JoinHandle<()>>,
    /// What the library answered, once it has.
    answer: Option<Result<Vec<GpuInfo>, LibraryError>>,
    /// Whether /proc, and so the recording, has the ids of this process's pid namespace, of
    /// which NVML speaks. It has not where the machine's is mounted into a container.
    are_ids_ours: bool,
    steps: Steps,
    /// Ended processes that were reported, by device, id and start.
    past: HashSet<(Arc<str>, u32, WallNs)>,
    started: Option<WallNs>,
    /// The latest reading that was taken: what stands is repeated for that time, since a
    /// newer one can be under way.
    latest: Option<Stamp>,
    hang: Hang,
}

/// Has the devices read, without waiting for their turn.
#[derive(Clone, Debug)]
pub struct Haste(Arc<Stop>);

impl Haste {
    /// Asks for it.
    pub fn ask(&self) {
        self.0.hurry();
    }
}

impl GpuCollector {
    /// Starts the thread, which loads the library and has the driver wake its devices: without
    /// a persistence daemon that takes seconds, in which the recording has long begun.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(options: GpuOptions) -> Result<Self, LibraryError> {
        let (tell, found) = sync_channel(FOUND_MAX);
        let stop = Arc::new(Stop::default());
        let order = Order {
            interval: options.interval,
            wanted: options.devices.clone(),
            proc: options.proc.clone(),
            is_initial_pid_ns: options.is_initial_pid_ns,
            calls: Calls::default(),
        };
        let hang = Hang::of(order.calls.clone());
        let its_stop = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("memtrace-nvml".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || worker::run(order, &its_stop, &tell))
            .map_err(|error| LibraryError::NoThread(error.to_string()))?;
        Ok(Self {
            are_ids_ours: is_of_our_namespace(&options.proc),
            options,
            stop,
            found,
            thread: Some(thread),
            answer: None,
            steps: Steps::default(),
            past: HashSet::new(),
            started: None,
            latest: None,
            hang,
        })
    }

    /// What has the devices read at once.
    pub fn haste(&self) -> Haste {
        Haste(Arc::clone(&self.stop))
    }

    /// Waits for the library's answer, at most so long.
    pub fn wait(&mut self, patience: Duration) {
        if self.answer.is_none() {
            self.answer = match self.found.recv_timeout(patience) {
                Ok(Found::Ready(gpus)) => Some(Ok(gpus)),
                Ok(Found::Failed(error)) => Some(Err(error)),
                // Nothing else comes first.
                Ok(_) | Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => {
                    let error = LibraryError::NoThread("it ended at once".to_owned());
                    Some(Err(error))
                }
            };
        }
    }

    /// What the library answered: its devices, or why there are none to be observed. `None`
    /// where it has not yet.
    pub fn answer(&self) -> Option<&Result<Vec<GpuInfo>, LibraryError>> {
        self.answer.as_ref()
    }

    /// Tells that there is nothing to observe, where that is news.
    pub fn unexpected(&self, error: &LibraryError, tick: &Tick) -> Option<Record> {
        let is_news = !self.options.is_none_expected || error.is_always_news();
        is_news.then(|| error.diag(tick))
    }

    fn take(&mut self, found: Found, pass: &mut Pass<'_>) {
        self.latest = found.stamp().or(self.latest);
        match found {
            Found::Ready(gpus) => self.answer = Some(Ok(gpus)),
            Found::Failed(error) => {
                pass.out.extend(self.unexpected(&error, pass.tick));
                self.answer = Some(Err(error));
            }
            Found::Device(row) => {
                self.hang.stands(&row);
                pass.write(*row);
            }
            Found::Processes(device, stamp, listed) => {
                self.take_processes(&device, stamp, &listed, pass);
            }
            Found::Unknown(device, stamp) => self.steps.forget_amounts(&device, stamp, pass.out),
            Found::Past(device, stamp, past) => self.take_past(&device, stamp, &past, pass),
            Found::Holders(device, stamp, holders) => {
                let holders = holders.into_iter().map(|tgid| {
                    let key = key(&device, GpuSource::Descriptor, tgid);
                    let value = self.who(&key, stamp, pass.table);
                    (key, value)
                });
                let holders = holders.collect();
                let scope = (&device, GpuSource::Descriptor);
                self.steps.update(scope, stamp, holders, pass.out);
            }
            Found::Diag(severity, kind, subject, detail) => {
                pass.tell(severity, kind, &subject, None, detail);
            }
        }
    }

    fn take_processes(
        &mut self,
        device: &Arc<str>,
        stamp: Stamp,
        listed: &[Listed],
        pass: &mut Pass<'_>,
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
                ..self.who(&key, stamp, pass.table)
            };
            (key, value)
        });
        let found: Vec<(Key, Value)> = found.collect();
        let upids = found.iter().filter_map(|(_, value)| value.upid);
        pass.table.news.on_gpus.extend(upids);
        self.steps
            .update((device, GpuSource::Nvml), stamp, found, pass.out);
    }

    /// Ended processes that no list showed, or not at their highest.
    fn take_past(&mut self, device: &Arc<str>, stamp: Stamp, past: &[Past], pass: &mut Pass<'_>) {
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
            let who = pass.table.who_was(key.tgid, at);
            let value = Value {
                upid: who.filter(|_| self.are_ids_ours),
                used: Some(Bytes(0)),
                ..Value::default()
            };
            if let Record::GpuProcess(mut row) = row(&key, &value, stamp) {
                row.peak_bytes = process.peak;
                pass.write(Record::GpuProcess(row));
            }
        }
    }

    /// Whose process id that is: a process of the recording, or what /proc tells of it.
    fn who(&self, key: &Key, stamp: Stamp, table: &ProcessTable) -> Value {
        if let Some(upid) = self.upid(key.tgid, stamp, table) {
            return Value {
                upid: Some(upid),
                ..Value::default()
            };
        }
        let known = self.steps.value(key);
        if let Some(known) = known.filter(|known| known.upid.is_none()) {
            return Value {
                comm: known.comm.clone(),
                cmdline: known.cmdline.clone(),
                ..Value::default()
            };
        }
        let recorded = known
            .and_then(|known| known.upid)
            .map(|upid| (upid, table.row(upid).and_then(|row| row.exit_boot_ns)));
        let identity = identity(&self.options.proc, key.tgid).ok().flatten();
        after_the_end(recorded, identity)
    }

    /// NVML speaks of the ids of our own pid namespace. Where the recording has those of
    /// another, the process counts whose innermost namespace is ours, and its id there.
    fn upid(&self, tgid: Tgid, stamp: Stamp, table: &ProcessTable) -> Option<Upid> {
        if self.are_ids_ours {
            return table.who_was(tgid, stamp.boot);
        }
        let namespace = |process: &str| {
            let link = self.options.proc.join(process).join("ns/pid");
            std::fs::read_link(link).ok()
        };
        let ours = namespace("self")?;
        let mut named = table
            .processes()
            .map(Process::row)
            .filter(|row| row.ns_tgid == Some(tgid))
            .filter(|row| namespace(&row.tgid.to_string()).is_some_and(|one| one == ours));
        named.next().map(|row| row.upid)
    }

    fn take_all(&mut self, pass: &mut Pass<'_>) {
        while let Ok(found) = self.found.try_recv() {
            self.take(found, pass);
        }
    }

    /// Tells of a call that hangs, and ends what was known before it.
    fn note_hang(&mut self, is_last: bool, pass: &mut Pass<'_>) {
        let Some(stamp) = self.hang.note(is_last, pass) else {
            return;
        };
        self.latest = Some(stamp);
        for device in self.hang.devices() {
            self.steps.forget_amounts(device, stamp, pass.out);
        }
    }

    /// Asks the thread for a last look and waits for it, as long as there is hope.
    fn stop(&mut self, mut take: impl FnMut(&mut Self, Found)) {
        self.stop.set();
        let Some(thread) = self.thread.take() else {
            return;
        };
        let asked = Instant::now();
        while !thread.is_finished() {
            let patience = match self.answer {
                Some(_) => PATIENCE_AT_END,
                None => PATIENCE_WITHOUT_DEVICES,
            };
            if asked.elapsed() > patience {
                // In a call that does not come back. It holds nothing that the recording
                // needs, and ends with this process.
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

/// Whether the process ids of a procfs are those that this process would see.
fn is_of_our_namespace(proc: &Path) -> bool {
    let own = std::process::id().to_string();
    // Where it can't be read there is nothing better to go by.
    std::fs::read_link(proc.join("self")).map_or(true, |link| link == Path::new(&own))
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

/// Whose memory that is where no recorded process that lives has the id: of the one that was
/// last known to hold it, with the time at which it ended, or of what /proc tells of.
fn after_the_end(recorded: Option<(Upid, Option<BootNs>)>, identity: Option<Identity>) -> Value {
    // What started before the end of the one that was known is that one, whose context the driver
    // still tears down (0.2 s), and not another that has got its id.
    let other = identity.filter(|identity| {
        let ended = recorded.and_then(|(_, ended)| ended);
        !identity.has_ended && ended.is_none_or(|ended| identity.start > ended)
    });
    Value {
        // A context can outlive its process; then the memory is still that one's.
        upid: recorded.filter(|_| other.is_none()).map(|(upid, _)| upid),
        comm: other.as_ref().map(|identity| identity.comm.clone()),
        cmdline: other.and_then(|identity| identity.cmdline),
        ..Value::default()
    }
}

impl Collector for GpuCollector {
    fn name(&self) -> &'static str {
        "nvml"
    }

    fn period(&self) -> DurationNs {
        match self.answer {
            Some(Err(_)) => IDLE_PERIOD,
            _ => PERIOD,
        }
    }

    fn is_urged(&self) -> bool {
        true
    }

    fn collect(&mut self, pass: &mut Pass<'_>) -> Result<(), CollectError> {
        self.started.get_or_insert_with(|| pass.tick.wall());
        self.take_all(pass);
        self.note_hang(false, pass);
        if let Some(stamp) = self.latest.filter(|_| pass.tick.is_keyframe) {
            self.steps.keyframe(stamp, pass.out);
        }
        Ok(())
    }

    fn gpus(&self) -> Option<Result<Vec<GpuInfo>, String>> {
        let answer = self.answer.clone()?;
        Some(answer.map_err(|error| error.to_string()))
    }

    fn held_on_gpus(&self, upid: Upid) -> Option<Option<Bytes>> {
        // Before the first reading nothing is known of anybody.
        match (&self.answer, self.latest) {
            (Some(Err(_)), _) => None,
            (_, None) => Some(None),
            (_, Some(_)) => Some(self.steps.held_by(upid)),
        }
    }

    fn finish(&mut self, pass: &mut Pass<'_>) -> Result<(), CollectError> {
        self.take_all(pass);
        self.stop(|collector, found| collector.take(found, pass));
        match self.answer {
            Some(_) => self.note_hang(true, pass),
            None => {
                let error = LibraryError::NoAnswer("by the end of the recording".to_owned());
                pass.out.extend(self.unexpected(&error, pass.tick));
                self.answer = Some(Err(error));
            }
        }
        Ok(())
    }
}

impl Drop for GpuCollector {
    fn drop(&mut self) {
        self.stop(|_, _| {});
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_proc(start: i64, has_ended: bool) -> Identity {
        Identity {
            comm: "python3".to_owned(),
            exe: None,
            cmdline: None,
            uid: None,
            cgroup: None,
            ns_tgid: None,
            start: BootNs(start),
            ppid: Tgid(1),
            is_kernel_thread: false,
            has_ended,
        }
    }

    #[test]
    fn memory_of_one_that_is_torn_down_is_its_own_until_another_has_the_id() {
        let recorded = Some((Upid(7), Some(BootNs(50))));
        let who = |recorded, identity| {
            let value = after_the_end(recorded, identity);
            (value.upid.map(|upid| upid.0), value.comm)
        };
        let other = (None, Some("python3".to_owned()));
        assert_eq!(who(recorded, None), (Some(7), None));
        assert_eq!(who(recorded, Some(on_proc(10, true))), (Some(7), None));
        assert_eq!(who(recorded, Some(on_proc(10, false))), (Some(7), None));
        assert_eq!(who(recorded, Some(on_proc(60, false))), other);
        assert_eq!(who(None, Some(on_proc(10, false))), other);
        assert_eq!(who(None, None), (None, None));
    }
}
