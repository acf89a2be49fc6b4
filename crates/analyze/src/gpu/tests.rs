//! From rows to ledgers: whatever a driver tells, their lines add up; and who held what by role.

use super::GpuLedger;
use crate::golden::{Reported, Script, card, gib, left_by_a_killed, on_card};
use crate::{Analysis, GpuPeak};
use memtrace_model::Bytes;
use memtrace_model::tables::{GpuDeviceRow, GpuProcessRow, GpuSource};
use proptest::prelude::*;

/// A reading of a device and of two processes on it, in GiB; `None` is not available.
type Reading = (u8, i32, Option<f64>, Option<f64>, [Option<f64>; 2]);

fn amount() -> impl Strategy<Value = Option<f64>> {
    proptest::option::of((0..4096_i32).prop_map(|quarters| f64::from(quarters) / 64.0))
}

fn readings() -> impl Strategy<Value = Vec<Reading>> {
    let reading = (0..20_u8, 0..3_i32, amount(), amount(), [amount(), amount()]);
    proptest::collection::vec(reading, 1..40)
}

/// A whole device, one that is divided into the third, and DRM clients that are shared.
fn recorded(readings: &[Reading]) -> Analysis {
    let mut readings = readings.to_vec();
    readings.sort_by_key(|(at, ..)| *at);
    let mut run = Script::command(&["a"], 30.0);
    for tgid in [10, 11] {
        run.process(tgid, (tgid > 10).then_some(10), 0.0, "a");
        run.mem(tgid, 1.0, [10.0, 1.0, 0.0]);
    }
    for (at, index, used, reserved, held) in readings {
        let at = f64::from(at);
        run.put(GpuDeviceRow {
            parent_device: (index == 2).then(|| "GPU-1a7b".to_owned()),
            used_bytes: used.map(gib),
            reserved_bytes: reserved.map(gib),
            ..card(index, at, 0.0)
        });
        for (tgid, held) in [10, 11].into_iter().zip(held) {
            let is_drm = index == 0;
            run.put(GpuProcessRow {
                source: Some(if is_drm {
                    GpuSource::Drm
                } else {
                    GpuSource::Nvml
                }),
                client_id: is_drm.then_some(7),
                gpu_instance_id: (index == 2).then_some(1),
                ..on_card(index, tgid, at, held.map(gib))
            });
        }
    }
    run.analyzed(Some("+15s"))
}

fn assert_closes(held_on_gpus: &GpuLedger) {
    let Some(used) = held_on_gpus.used_bytes else {
        assert_eq!(held_on_gpus.unattributed_bytes, None);
        return;
    };
    let lines = held_on_gpus
        .lines
        .iter()
        .filter(|line| !line.is_counted_elsewhere);
    let processes: Bytes = lines.filter_map(|line| line.bytes).sum();
    let reserved = held_on_gpus.reserved_bytes.unwrap_or(Bytes(0));
    let rest = held_on_gpus.unattributed_bytes.expect("what is left over");
    assert_eq!(processes + reserved + rest, used, "{held_on_gpus:?}");
}

proptest! {
    #[test]
    fn the_books_of_every_device_close_to_the_byte_at_every_instant(readings in readings()) {
        let analysis = recorded(&readings);
        let gpus = analysis.gpus.as_ref().expect("a GPU");
        let peaks = gpus.devices.iter().filter_map(|device| device.peak.as_ref());
        let instants = [&analysis.peak, &analysis.at];
        let instants = instants.into_iter().flatten();
        for held_on_gpus in instants.flat_map(|state| &state.gpus).chain(peaks) {
            assert_closes(held_on_gpus);
        }
    }
}

#[test]
fn memory_on_a_gpu_is_the_roles_that_the_process_had_then() {
    let mut run = Script::command(&["a"], 60.0);
    run.process(1, None, 0.0, "a");
    run.mem(1, 1.0, [10.0, 1.0, 0.0]);
    run.process(2, Some(1), 1.0, "python3 default_worker.py");
    run.mem(2, 2.0, [60.0, 0.0, 0.0]);
    let becomes = |run: &mut Script, at: f64, role: &str| {
        run.edit(2, |row| {
            row.framework = Some("Ray".to_owned());
            row.role = Some(role.to_owned());
        });
        run.title(2, at, &format!("ray::{role}"));
    };
    becomes(&mut run, 3.0, "task load");
    run.put(card(0, 5.0, 30.0));
    run.put(on_card(0, 2, 5.0, Some(gib(30.0))));
    run.put(on_card(0, 2, 8.0, Some(gib(10.0))));
    // It holds on to what it has while it becomes something else.
    becomes(&mut run, 10.0, "task train");
    run.put(on_card(0, 2, 20.0, Some(gib(25.0))));
    let analysis = run.analyzed(None);
    let of = |name: &str| {
        let role = analysis.roles.iter().find(|role| &*role.name == name);
        role.expect("a role")
            .gpu
            .map(|gpu| gpu.highest.certain_bytes())
    };
    assert_eq!(of("Ray task load"), Some(Some(gib(30.0))));
    assert_eq!(of("Ray task train"), Some(Some(gib(25.0))));
    assert_eq!(of("a"), None, "it was on no GPU");
}

#[test]
fn what_a_killed_process_leaves_on_a_device_is_reported() {
    let analysis = left_by_a_killed().analyzed(None);
    let gpus = analysis.gpus.as_ref().expect("a GPU");
    let left = gpus.devices[0].left_at_end().expect("it is much more");
    assert_eq!(left.unattributed_bytes, Some(gib(20.4)));
    let [fall] = &gpus.falls[..] else {
        panic!("{:?}", gpus.falls);
    };
    let stayed = fall.stayed_bytes.expect("it stayed");
    assert!((stayed - gib(20.1)).0.abs() < 1 << 20, "{stayed}");
}

#[test]
fn a_peak_is_a_lower_bound_where_the_driver_did_not_tell_or_accounting_knows_of_more() {
    let peak = |second: GpuProcessRow| -> GpuPeak {
        let mut run = Script::command(&["a"], 30.0);
        run.process(1, None, 0.0, "a");
        run.mem(1, 1.0, [10.0, 1.0, 0.0]);
        run.put(card(0, 2.0, 10.0));
        run.put(on_card(0, 1, 2.0, Some(gib(10.0))));
        run.put(second);
        run.analyzed(None).gpus.expect("a GPU").recorded
    };
    let known = peak(on_card(0, 1, 5.0, Some(gib(4.0))));
    assert_eq!(known.certain_bytes(), Some(gib(10.0)));
    let unknown = peak(on_card(0, 1, 5.0, None));
    assert_eq!(unknown.certain_bytes(), None);
    assert_eq!(unknown.bytes, Some(gib(10.0)));
    let accounted = peak(GpuProcessRow {
        source: Some(GpuSource::Accounting),
        peak_bytes: Some(gib(12.0)),
        ..on_card(0, 1, 5.0, Some(Bytes(0)))
    });
    assert!(accounted.is_lower_bound);
}
