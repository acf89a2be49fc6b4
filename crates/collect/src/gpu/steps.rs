//! The memory of each process on each device as a step function: a row where something
//! changed, one of zero where it has left.

use memtrace_host::clock;
use memtrace_model::tables::{GpuProcessRow, GpuSource, GpuUse};
use memtrace_model::{BootNs, Bytes, ClockOffset, Record, Tgid, Upid, WallNs};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What a step function is of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) device: Arc<str>,
    pub(super) source: GpuSource,
    pub(super) tgid: Tgid,
    pub(super) gpu_instance: Option<u32>,
    pub(super) compute_instance: Option<u32>,
    pub(super) client: Option<i64>,
}

/// What it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) upid: Option<Upid>,
    /// Of a process that is not of the recording.
    pub(super) comm: Option<String>,
    pub(super) cmdline: Option<String>,
    pub(super) kind: Option<GpuUse>,
    pub(super) used: Option<Bytes>,
    pub(super) host: Option<Bytes>,
    pub(super) sharer_count: Option<i32>,
}

/// When something was so.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    pub(super) ts: WallNs,
    pub(super) boot: BootNs,
}

impl Stamp {
    pub(super) fn now() -> Self {
        let reading = clock::read();
        Self {
            ts: ClockOffset::at(reading).to_wall(reading.boot_ns),
            boot: reading.boot_ns,
        }
    }
}

/// The value that each key has until its next step.
#[derive(Debug, Default)]
pub(super) struct Steps(HashMap<Key, Value>);

impl Steps {
    /// What stands for a key.
    pub(super) fn value(&self, key: &Key) -> Option<&Value> {
        self.0.get(key)
    }

    /// What a process holds on all devices; `None` when that of any is unknown.
    pub(super) fn held_by(&self, upid: Upid) -> Option<Bytes> {
        let own = self
            .0
            .iter()
            .filter(|(key, value)| value.upid == Some(upid) && key.source != GpuSource::Descriptor);
        own.map(|(_, value)| value.used).sum()
    }

    /// Takes everything that there is now of one source on one device.
    pub(super) fn update(
        &mut self,
        (device, source): (&Arc<str>, GpuSource),
        stamp: Stamp,
        found: Vec<(Key, Value)>,
        out: &mut Vec<Record>,
    ) {
        let keys: HashSet<&Key> = found.iter().map(|(key, _)| key).collect();
        let has_left =
            |key: &Key| key.device == *device && key.source == source && !keys.contains(key);
        let left: Vec<Key> = self.0.keys().filter(|key| has_left(key)).cloned().collect();
        for key in left {
            if let Some(value) = self.0.remove(&key) {
                out.push(closing(&key, value, stamp));
            }
        }
        for (key, value) in found {
            let known = self.0.get(&key);
            if known == Some(&value) {
                continue;
            }
            // The id is another process's by now.
            if let Some(known) = known.filter(|known| known.upid != value.upid) {
                out.push(closing(&key, known.clone(), stamp));
            }
            out.push(row(&key, &value, stamp));
            self.0.insert(key, value);
        }
    }

    /// Nothing is known any longer of what is on a device.
    pub(super) fn forget_amounts(&mut self, device: &str, stamp: Stamp, out: &mut Vec<Record>) {
        for (key, value) in &mut self.0 {
            if &*key.device == device && value.used.is_some() {
                value.used = None;
                out.push(row(key, value, stamp));
            }
        }
    }

    /// All of it once more.
    pub(super) fn keyframe(&self, stamp: Stamp, out: &mut Vec<Record>) {
        out.extend(self.0.iter().map(|(key, value)| row(key, value, stamp)));
    }
}

fn closing(key: &Key, value: Value, stamp: Stamp) -> Record {
    let value = Value {
        used: Some(Bytes(0)),
        host: value.host.map(|_| Bytes(0)),
        ..value
    };
    row(key, &value, stamp)
}

/// A row; of a peak that accounting mode tells there is no step function.
pub(super) fn row(key: &Key, value: &Value, stamp: Stamp) -> Record {
    let id = |id: Option<u32>| id.and_then(|id| i32::try_from(id).ok());
    Record::from(GpuProcessRow {
        ts: stamp.ts,
        boot_ns: stamp.boot,
        device: key.device.to_string(),
        upid: value.upid,
        tgid: key.tgid,
        comm: value.comm.clone(),
        cmdline: value.cmdline.clone(),
        source: Some(key.source),
        kind: value.kind,
        used_bytes: value.used,
        peak_bytes: None,
        host_bytes: value.host,
        gpu_instance_id: id(key.gpu_instance),
        compute_instance_id: id(key.compute_instance),
        client_id: key.client,
        sharer_count: value.sharer_count,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tgid: u32) -> Key {
        Key {
            device: Arc::from("GPU-1"),
            source: GpuSource::Nvml,
            tgid: Tgid(tgid),
            gpu_instance: None,
            compute_instance: None,
            client: None,
        }
    }

    fn value(upid: i64, used: Option<i64>) -> Value {
        Value {
            upid: Some(Upid(upid)),
            used: used.map(Bytes),
            ..Value::default()
        }
    }

    /// Upid and bytes of the rows that a state of the device makes.
    fn updated(steps: &mut Steps, found: Vec<(Key, Value)>) -> Vec<(i64, Option<i64>)> {
        let stamp = Stamp {
            ts: WallNs(0),
            boot: BootNs(0),
        };
        let mut out = Vec::new();
        steps.update(
            (&Arc::from("GPU-1"), GpuSource::Nvml),
            stamp,
            found,
            &mut out,
        );
        reported(&out)
    }

    fn reported(out: &[Record]) -> Vec<(i64, Option<i64>)> {
        let rows = out.iter().map(|record| match record {
            Record::GpuProcess(row) => (row.upid.map_or(0, |u| u.0), row.used_bytes.map(|b| b.0)),
            other => panic!("{other:?}"),
        });
        rows.collect()
    }

    #[test]
    fn a_row_stands_where_something_changed_and_zero_where_it_left() {
        let mut steps = Steps::default();
        let one = || vec![(key(1), value(7, Some(10)))];
        assert_eq!(updated(&mut steps, one()), [(7, Some(10))]);
        assert_eq!(updated(&mut steps, one()), []);
        let grown = vec![(key(1), value(7, Some(20)))];
        assert_eq!(updated(&mut steps, grown), [(7, Some(20))]);
        assert_eq!(updated(&mut steps, vec![]), [(7, Some(0))]);
        assert_eq!(updated(&mut steps, vec![]), []);
    }

    #[test]
    fn a_reused_id_closes_one_process_and_opens_another() {
        let mut steps = Steps::default();
        updated(&mut steps, vec![(key(1), value(7, Some(10)))]);
        let other = vec![(key(1), value(8, Some(10)))];
        assert_eq!(updated(&mut steps, other), [(7, Some(0)), (8, Some(10))]);
    }

    #[test]
    fn a_lost_device_leaves_amounts_unknown_and_not_zero() {
        let mut steps = Steps::default();
        updated(&mut steps, vec![(key(1), value(7, Some(10)))]);
        let mut out = Vec::new();
        let stamp = Stamp {
            ts: WallNs(0),
            boot: BootNs(1),
        };
        steps.forget_amounts("GPU-2", stamp, &mut out);
        assert_eq!(reported(&out), []);
        steps.forget_amounts("GPU-1", stamp, &mut out);
        assert_eq!(reported(&out), [(7, None)]);
    }
}
