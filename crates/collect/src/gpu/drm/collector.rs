//! The DRM collector: whose descriptors to look at, and the rows.

use super::cards::{Card, cards};
use super::clients::{IsDrm, clients, descriptors, is_drm};
use crate::gpu::steps::{Key, Stamp, Steps, Value};
use crate::{CollectError, Collector, Pass, ProcessTable, Tick};
use memtrace_model::tables::{GpuDeviceRow, GpuSource};
use memtrace_model::{BootNs, Bytes, DurationNs, GpuInfo, Record, Tgid, Upid};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

/// Time between two looks at the clients that are known.
const PERIOD: DurationNs = DurationNs(1_000_000_000);
/// A process without a descriptor of a GPU is looked at again after so long.
const IDLE_PERIOD: DurationNs = DurationNs(10_000_000_000);
/// Processes whose descriptors are listed in one turn.
const PROCESSES_MAX: usize = 64;
/// Descriptors of one process that are looked at.
const DESCRIPTORS_MAX: usize = 4_096;

/// What the collector is started with.
#[derive(Clone, Debug)]
pub struct DrmOptions {
    /// Where procfs is mounted.
    pub proc: PathBuf,
    /// Where sysfs is mounted.
    pub sys: PathBuf,
    /// Devices by name (`pci:0000:03:00.0`); all where none is named.
    pub devices: Vec<String>,
}

/// Observes the memory of the GPUs of AMD and Intel.
#[derive(Debug)]
pub struct DrmCollector {
    options: DrmOptions,
    is_drm: IsDrm,
    cards: Vec<(Card, Arc<str>)>,
    looked: HashMap<Upid, Look>,
    steps: Steps,
    last: HashMap<Arc<str>, (BootNs, Option<Bytes>, Option<i32>)>,
}

/// What is known of a process.
#[derive(Debug)]
struct Look {
    tgid: Tgid,
    next: BootNs,
    files: Vec<PathBuf>,
}

impl DrmCollector {
    /// A collector; `None` where there is no such GPU.
    pub fn new(options: DrmOptions) -> Option<Self> {
        let cards = cards(&options.sys).into_iter();
        let cards = cards.filter(|card| {
            let names = &options.devices;
            names.is_empty() || names.contains(&card.info.device)
        });
        let cards: Vec<_> = cards
            .map(|card| {
                let device = Arc::from(card.info.device.as_str());
                (card, device)
            })
            .collect();
        (!cards.is_empty()).then(|| Self {
            options,
            is_drm,
            cards,
            looked: HashMap::new(),
            steps: Steps::default(),
            last: HashMap::new(),
        })
    }

    /// The devices that it observes.
    pub fn cards(&self) -> impl Iterator<Item = &GpuInfo> {
        self.cards.iter().map(|(card, _)| &card.info)
    }

    /// Finds the descriptors of the processes whose turn it is: those that have some each
    /// time, the others rarely, and a few at a time.
    fn look(&mut self, now: BootNs, table: &ProcessTable) {
        let living: HashSet<Upid> = table
            .processes()
            .map(|process| process.row().upid)
            .collect();
        self.looked.retain(|upid, _| living.contains(upid));
        let looked = &self.looked;
        let mut due: Vec<(BootNs, Upid, Tgid)> = table
            .processes()
            .filter_map(|process| {
                let row = process.row();
                let next = looked.get(&row.upid).map_or(BootNs(0), |look| look.next);
                (next <= now).then_some((next, row.upid, row.tgid))
            })
            .collect();
        due.sort_unstable();
        due.truncate(PROCESSES_MAX);
        for (_, upid, tgid) in due {
            let files = descriptors(&self.options.proc, tgid, DESCRIPTORS_MAX, self.is_drm);
            let wait = if files.is_empty() {
                IDLE_PERIOD
            } else {
                PERIOD
            };
            let next = now + wait;
            self.looked.insert(upid, Look { tgid, next, files });
        }
    }

    /// Every client of every card with who holds it.
    fn held(&self) -> HashMap<Arc<str>, Vec<(Key, Value)>> {
        let mut all = Vec::new();
        let mut sharers: HashMap<(String, i64), i32> = HashMap::new();
        for (upid, look) in &self.looked {
            for (id, client) in clients(&look.files) {
                *sharers.entry(id.clone()).or_default() += 1;
                all.push((*upid, look.tgid, id, client));
            }
        }
        let mut held: HashMap<Arc<str>, Vec<(Key, Value)>> = HashMap::new();
        for (upid, tgid, id, client) in all {
            let card = self.cards.iter().find(|(card, _)| card.pdev == client.pdev);
            let Some((_, device)) = card else {
                continue;
            };
            let key = Key {
                device: Arc::clone(device),
                source: GpuSource::Drm,
                tgid,
                gpu_instance: None,
                compute_instance: None,
                client: Some(client.id),
            };
            let value = Value {
                upid: Some(upid),
                used: Some(client.device_bytes),
                host: Some(client.host_bytes),
                sharer_count: sharers.get(&id).copied(),
                ..Value::default()
            };
            held.entry(Arc::clone(device))
                .or_default()
                .push((key, value));
        }
        held
    }

    /// The row of a card, where something changed.
    fn device_row(&mut self, place: usize, tick: &Tick) -> Option<Record> {
        let (card, device) = &self.cards[place];
        let (used, busy) = (card.used(), card.busy_percent());
        let is_new = self
            .last
            .get(device)
            .is_none_or(|last| (last.1, last.2) != (used, busy));
        if !is_new && !tick.is_keyframe {
            return None;
        }
        self.last
            .insert(Arc::clone(device), (tick.boot, used, busy));
        let total = card.info.total_bytes;
        Some(Record::from(GpuDeviceRow {
            ts: tick.wall(),
            boot_ns: tick.boot,
            device: card.info.device.clone(),
            device_index: card.info.index.and_then(|index| i32::try_from(index).ok()),
            name: card.info.name.clone(),
            source: Some(GpuSource::Drm),
            total_bytes: total,
            used_bytes: used,
            free_bytes: total.zip(used).map(|(total, used)| total - used),
            utilization_percent: busy,
            ..GpuDeviceRow::default()
        }))
    }
}

impl Collector for DrmCollector {
    fn name(&self) -> &'static str {
        "drm"
    }

    fn period(&self) -> DurationNs {
        PERIOD
    }

    fn held_on_gpus(&self, upid: Upid) -> Option<Option<Bytes>> {
        Some(self.steps.held_by(upid))
    }

    fn collect(&mut self, pass: &mut Pass<'_>) -> Result<(), CollectError> {
        self.look(pass.tick.boot, pass.table);
        let mut held = self.held();
        let stamp = Stamp {
            ts: pass.tick.wall(),
            boot: pass.tick.boot,
        };
        for place in 0..self.cards.len() {
            pass.out.extend(self.device_row(place, pass.tick));
            let device = Arc::clone(&self.cards[place].1);
            let found = held.remove(&device).unwrap_or_default();
            self.steps
                .update((&device, GpuSource::Drm), stamp, found, pass.out);
        }
        if pass.tick.is_keyframe {
            self.steps.keyframe(stamp, pass.out);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Birth;
    use memtrace_host::clock;
    use memtrace_model::tables::GpuProcessRow;
    use memtrace_model::{ClockOffset, FirstSeenBy};
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use tempfile::TempDir;

    /// /proc and /sys of a machine with one card.
    struct Machine(TempDir);

    impl Machine {
        fn new() -> Self {
            let machine = Self(tempfile::tempdir().unwrap());
            let device = machine.path("sys/devices/pci/0000:03:00.0");
            std::fs::create_dir_all(&device).unwrap();
            std::fs::create_dir_all(machine.path("sys/class/drm/card1")).unwrap();
            symlink(&device, machine.path("sys/class/drm/card1/device")).unwrap();
            std::fs::create_dir_all(machine.path("sys/class/drm/card1-DP-1")).unwrap();
            let uevent = "DRIVER=amdgpu\nPCI_CLASS=30000\nPCI_SLOT_NAME=0000:03:00.0\n";
            std::fs::write(device.join("uevent"), uevent).unwrap();
            std::fs::write(device.join("mem_info_vram_total"), "17163091968\n").unwrap();
            std::fs::write(device.join("mem_info_vram_used"), "3000000000\n").unwrap();
            machine
        }

        fn path(&self, below: &str) -> PathBuf {
            self.0.path().join(below)
        }

        /// A descriptor of a client that holds so many MiB; without a client it is a file.
        fn open(&self, tgid: u32, fd: u32, client: Option<(u32, u32)>) {
            let dir = self.path(&format!("proc/{tgid}"));
            for sub in ["fd", "fdinfo"] {
                std::fs::create_dir_all(dir.join(sub)).unwrap();
            }
            let target = if client.is_some() {
                "renderD128"
            } else {
                "file"
            };
            symlink(target, dir.join(format!("fd/{fd}"))).unwrap();
            let text = match client {
                Some((id, mib)) => format!(
                    "drm-pdev:\t0000:03:00.0\ndrm-client-id:\t{id}\ndrm-resident-vram:\t{mib} MiB\n"
                ),
                // Must not be opened: what it says would count.
                None => "drm-pdev:\t0000:03:00.0\ndrm-client-id:\t1\ndrm-resident-vram:\t9 MiB\n"
                    .to_owned(),
            };
            std::fs::write(dir.join(format!("fdinfo/{fd}")), text).unwrap();
        }

        fn collector(&self) -> DrmCollector {
            let options = DrmOptions {
                proc: self.path("proc"),
                sys: self.path("sys"),
                devices: Vec::new(),
            };
            let mut collector = DrmCollector::new(options).unwrap();
            let is_drm = |path: &Path| {
                std::fs::read_link(path).is_ok_and(|target| target.starts_with("renderD128"))
            };
            collector.is_drm = is_drm;
            collector
        }
    }

    fn tick(seconds: i64) -> Tick {
        Tick {
            boot: BootNs(seconds * 1_000_000_000),
            clock: ClockOffset::at(clock::read()),
            is_keyframe: false,
        }
    }

    fn enter(table: &mut ProcessTable, tgid: u32) -> Upid {
        let birth = Birth {
            tgid: Tgid(tgid),
            start: BootNs(0),
            seen_by: FirstSeenBy::Poll,
            parent: None,
            comm: String::new(),
        };
        table.enter(birth, BootNs(0))
    }

    fn rows(collector: &mut DrmCollector, at: i64, table: &mut ProcessTable) -> Vec<GpuProcessRow> {
        let mut out = Vec::new();
        collector
            .collect(&mut Pass::new(&tick(at), table, &mut out))
            .unwrap();
        let rows = out.into_iter().filter_map(|record| match record {
            Record::GpuProcess(row) => Some(*row),
            _ => None,
        });
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by_key(|row| (row.tgid, row.client_id));
        rows
    }

    #[test]
    fn a_client_of_several_descriptors_and_processes_is_reported_with_its_sharers() {
        let machine = Machine::new();
        machine.open(10, 3, Some((7, 100)));
        machine.open(10, 4, Some((7, 100)));
        machine.open(10, 5, None);
        machine.open(11, 3, Some((7, 100)));
        machine.open(11, 4, Some((8, 50)));
        let mut table = ProcessTable::default();
        let [first, second] = [10, 11].map(|tgid| enter(&mut table, tgid));
        enter(&mut table, 12);
        let mut collector = machine.collector();
        let found: Vec<_> = rows(&mut collector, 1, &mut table)
            .iter()
            .map(|row| (row.upid, row.client_id, row.used_bytes, row.sharer_count))
            .collect();
        let mib = |mib: i64| Some(Bytes(mib << 20));
        assert_eq!(
            found,
            [
                (Some(first), Some(7), mib(100), Some(2)),
                (Some(second), Some(7), mib(100), Some(2)),
                (Some(second), Some(8), mib(50), Some(1)),
            ]
        );
        std::fs::remove_dir_all(machine.path("proc/11")).unwrap();
        let left = rows(&mut collector, 3, &mut table);
        let left: Vec<_> = left
            .iter()
            .map(|row| (row.tgid.0, row.used_bytes))
            .collect();
        // The one that stayed is alone with its client now.
        assert_eq!(left, [(10, mib(100)), (11, mib(0)), (11, mib(0))]);
    }

    #[test]
    fn the_card_is_reported_from_sysfs() {
        let machine = Machine::new();
        let mut collector = machine.collector();
        let gpus: Vec<_> = collector.cards().collect();
        assert_eq!(gpus[0].device, "pci:0000:03:00.0");
        let mut out = Vec::new();
        collector
            .collect(&mut Pass::new(
                &tick(1),
                &mut ProcessTable::default(),
                &mut out,
            ))
            .unwrap();
        let [Record::GpuDevice(row)] = &out[..] else {
            panic!("{out:?}");
        };
        assert_eq!(row.used_bytes, Some(Bytes(3_000_000_000)));
        let sum = row
            .used_bytes
            .zip(row.free_bytes)
            .map(|(used, free)| used + free);
        assert_eq!(sum, row.total_bytes);
    }

    #[test]
    fn without_a_card_there_is_no_collector() {
        let root = tempfile::tempdir().unwrap();
        let options = DrmOptions {
            proc: root.path().to_owned(),
            sys: root.path().to_owned(),
            devices: Vec::new(),
        };
        assert!(DrmCollector::new(options).is_none());
    }
}
