//! What else a phase costs at the same instants: memory of GPUs, and the machine's page cache.
//! Both are read from time to time, and a reading holds until the next.

use super::pair::Span;
use super::{DeviceLevel, Level};
use crate::RunClock;
use memtrace_model::tables::{GpuDeviceRow, NodeMemRow};
use memtrace_model::{BootNs, Bytes, RowSource};
use memtrace_timeline::{Gauge, Gauged, Readings};
use std::collections::HashMap;
use std::sync::Arc;

/// What the phases need of a row of `gpu_device`.
const DEVICE_COLUMNS: &[&str] = &[
    "ts",
    "boot_ns",
    "device",
    "parent_device",
    "device_index",
    "used_bytes",
    "is_unified",
];

/// What they need of a row of `node_mem`.
const NODE_COLUMNS: &[&str] = &[
    "ts",
    "boot_ns",
    "cached_bytes",
    "buffers_bytes",
    "shmem_bytes",
];

type Known = Readings<Option<Bytes>>;

/// What was in use on a device.
#[derive(Debug)]
struct KnownDevice {
    name: Arc<str>,
    index: Option<i32>,
    readings: Known,
}

/// GPUs and the page cache at the boundaries of phases.
#[derive(Debug)]
pub(crate) struct DeviceHistory<'a> {
    clock: &'a RunClock,
    devices: Vec<KnownDevice>,
    /// All devices together; `None` where none ever reported.
    gpu: Option<Known>,
    page_cache: Option<Readings<Reading>>,
}

/// An amount that says nothing of the time until the next reading.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Reading {
    at: BootNs,
    bytes: Option<Bytes>,
}

impl Gauged for Reading {
    const UNKNOWN: Self = Self {
        at: BootNs(i64::MIN),
        bytes: None,
    };

    fn height(&self) -> Option<Bytes> {
        self.bytes
    }
}

impl<'a> DeviceHistory<'a> {
    /// Reads `gpu_device` and `node_mem`.
    pub(super) fn read<S: RowSource>(
        source: &S,
        instants: &Arc<[BootNs]>,
        clock: &'a RunClock,
    ) -> Result<Self, S::Error> {
        if instants.is_empty() {
            return Ok(Self {
                clock,
                devices: Vec::new(),
                gpu: None,
                page_cache: None,
            });
        }
        let mut devices = Devices::new(instants);
        source.scan(DEVICE_COLUMNS, |row: GpuDeviceRow| devices.take(&row))?;
        let mut cache = Follow::new(instants);
        let mut is_cache_known = false;
        source.scan(NODE_COLUMNS, |row: NodeMemRow| {
            let reading = Reading {
                at: row.boot_ns,
                bytes: row.page_cache_bytes(),
            };
            is_cache_known |= reading.bytes.is_some();
            cache.take(row.boot_ns, reading);
        })?;
        let (devices, gpu) = devices.read();
        Ok(Self {
            clock,
            devices,
            gpu,
            page_cache: is_cache_known.then(|| cache.read()),
        })
    }

    /// What was in use on all devices together.
    pub(super) fn gpu(&self, span: &Span) -> Option<Level> {
        self.gpu.as_ref().map(|gpu| self.level(gpu, span))
    }

    /// What was in use on each device.
    pub(super) fn devices(&self, span: &Span) -> Vec<DeviceLevel> {
        let devices = (0..self.devices.len()).filter_map(|place| self.device(place, span));
        devices.collect()
    }

    pub(super) fn device_count(&self) -> usize {
        self.devices.len()
    }

    /// What was in use on one of them.
    pub(super) fn device(&self, place: usize, span: &Span) -> Option<DeviceLevel> {
        let device = self.devices.get(place)?;
        Some(DeviceLevel {
            device: Arc::clone(&device.name),
            device_index: device.index,
            level: self.level(&device.readings, span),
        })
    }

    /// Files in the page cache of the whole machine; `None` where it was not read within.
    pub(super) fn page_cache(&self, span: &Span) -> Option<Level> {
        let cache = self.page_cache.as_ref()?;
        let [begin, end] = [span.begin?, span.known_end()?].map(|at| cache.at(at));
        let ends = [begin.bytes, end.bytes];
        (begin.at != end.at).then(|| Level::of(ends, span.peak(cache, self.clock)))
    }

    fn level(&self, readings: &Known, span: &Span) -> Level {
        let ends = [span.begin, span.known_end()].map(|at| readings.at(at?));
        Level::of(ends, span.peak(readings, self.clock))
    }
}

/// A value that holds until the next.
#[derive(Debug)]
struct Follow<V> {
    gauge: Gauge<V>,
    now: Option<(BootNs, V)>,
}

impl<V: Gauged> Follow<V> {
    fn new(instants: &Arc<[BootNs]>) -> Self {
        Self {
            gauge: Gauge::new(Arc::clone(instants)),
            now: None,
        }
    }

    fn take(&mut self, at: BootNs, held: V) {
        if let Some((from, before)) = self.now.replace((at, held)) {
            self.gauge.hold(from, at, before);
        }
    }

    fn read(mut self) -> Readings<V> {
        if let Some((from, held)) = self.now {
            self.gauge.hold_to_the_end(from, held);
        }
        self.gauge.read()
    }
}

/// While `gpu_device` is read.
struct Devices {
    instants: Arc<[BootNs]>,
    places: HashMap<String, usize>,
    list: Vec<Device>,
    together: Follow<Option<Bytes>>,
}

struct Device {
    name: Arc<str>,
    index: Option<i32>,
    follow: Follow<Option<Bytes>>,
    /// Whether it ever reported what is in use.
    is_known: bool,
    /// Whether its memory is no part of another's, nor the machine's.
    is_whole: bool,
    now: Option<Bytes>,
}

impl Devices {
    fn new(instants: &Arc<[BootNs]>) -> Self {
        Self {
            instants: Arc::clone(instants),
            places: HashMap::new(),
            list: Vec::new(),
            together: Follow::new(instants),
        }
    }

    fn take(&mut self, row: &GpuDeviceRow) {
        let place = match self.places.get(&row.device) {
            Some(&place) => place,
            None => {
                self.places.insert(row.device.clone(), self.list.len());
                self.list.push(Device {
                    name: Arc::from(row.device.as_str()),
                    index: None,
                    follow: Follow::new(&self.instants),
                    is_known: false,
                    is_whole: row.parent_device.is_none(),
                    now: None,
                });
                self.list.len() - 1
            }
        };
        let device = &mut self.list[place];
        device.index = device.index.or(row.device_index);
        // What came before its first reading was no less, and is not known.
        device.is_whole &= row.is_unified != Some(true);
        if !device.is_known && row.used_bytes.is_some() && device.is_whole {
            self.together.gauge.forget_before(row.boot_ns);
        }
        device.is_known |= row.used_bytes.is_some();
        device.follow.take(row.boot_ns, row.used_bytes);
        device.now = row.used_bytes;
        let mut counted = self.list.iter().filter(|device| device.is_counted());
        let is_any = counted.clone().next().is_some();
        let sum: Option<Bytes> = counted.try_fold(Bytes(0), |sum, device| Some(sum + device.now?));
        self.together.take(row.boot_ns, sum.filter(|_| is_any));
    }

    fn read(self) -> (Vec<KnownDevice>, Option<Known>) {
        let is_any = self.list.iter().any(Device::is_counted);
        let list = self.list.into_iter();
        let devices = list.map(|device| KnownDevice {
            name: device.name,
            index: device.index,
            readings: device.follow.read(),
        });
        let devices = devices.collect();
        (devices, is_any.then(|| self.together.read()))
    }
}

impl Device {
    /// One that never reported what is in use is no part of the sum.
    fn is_counted(&self) -> bool {
        self.is_whole && self.is_known
    }
}
