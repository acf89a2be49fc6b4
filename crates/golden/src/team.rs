//! Runs whose processes have roles: a Ray job that serves with vLLM, and the same a version
//! later, for comparison.

use super::script::{Script, boot, mib, upid, wall};
use memtrace_model::tables::{MappingKind, ShmFamily, ShmObjectRow};
use memtrace_model::{Bytes, Tgid};

impl Script {
    /// A process is recognised.
    pub fn is(&mut self, tgid: u32, framework: &str, role: &str, rank: Option<&str>) {
        self.edit(tgid, |row| {
            row.framework = (!framework.is_empty()).then(|| framework.to_owned());
            row.role = Some(role.to_owned());
            row.rank = rank.map(str::to_owned);
        });
    }
}

/// The job, whose workers hold `weights` MiB each and grow by `leak` MiB in ten minutes.
fn job(weights: f64, leak: f64) -> Script {
    let mut run = Script::command(&["python3", "rollout.py"], 600.0);
    run.process(100, None, 0.0, "/venv/bin/python3 rollout.py");
    run.is(100, "Ray", "driver", None);
    run.mem(100, 1.0, [500.0, 100.0, 256.0]);
    run.process(
        110,
        Some(100),
        2.0,
        "/venv/ray/raylet/raylet --raylet_socket_name=x",
    );
    run.is(110, "Ray", "raylet", None);
    run.mem(110, 3.0, [20.0, 10.0, 0.0]);
    for (tgid, method) in [(120, "ray::Rollout.generate"), (121, "ray::Rollout")] {
        run.process(tgid, Some(110), 5.0, "/venv/bin/python3 default_worker.py");
        run.is(tgid, "Ray", "actor Rollout", None);
        run.title(tgid, 6.0, method);
        run.mem(tgid, 7.0, [300.0, 60.0, 256.0]);
    }
    run.process(130, Some(120), 10.0, "/venv/bin/python3 -c spawn_main");
    run.is(130, "vLLM", "engine core", None);
    run.title(130, 12.0, "VLLM::EngineCore");
    run.mem(130, 13.0, [700.0, 80.0, 0.0]);
    for (place, rank) in [(0, "TP0"), (1, "TP1")] {
        let tgid = 140 + place;
        run.process(tgid, Some(130), 15.0, "/venv/bin/python3 -c spawn_main");
        run.is(tgid, "vLLM", "worker", Some(rank));
        run.mem(tgid, 20.0, [weights, 90.0, 0.0]);
        run.title(tgid, 40.0, &format!("VLLM::Worker_{rank}"));
        for step in 1..60 {
            let grown = weights + leak * f64::from(step) / 59.0;
            run.mem(tgid, f64::from(step * 10) + 5.0, [grown, 90.0, 0.0]);
        }
    }
    run
}

/// The plasma object that the driver wrote and two actors read.
fn object() -> ShmObjectRow {
    ShmObjectRow {
        ts: wall(8.0),
        boot_ns: boot(8.0),
        device: "0:25".to_owned(),
        inode: 7,
        kind: Some(MappingKind::Tmpfs),
        name: Some("/dev/shm/plasmaA".to_owned()),
        is_deleted: false,
        family: Some(ShmFamily::RayPlasma),
        size_bytes: Some(Bytes(600 << 20)),
        allocated_bytes: Some(mib(256.0)),
        resident_bytes: Some(mib(256.0)),
        mapper_count: 4,
        mappers: [100, 110, 120, 121]
            .map(|tgid| upid(Tgid(tgid)).to_string())
            .join(" "),
        first_mapper_upid: Some(upid(Tgid(110))),
        ..ShmObjectRow::default()
    }
}

/// A Ray job that serves with vLLM.
pub fn ray_with_vllm() -> Script {
    let mut run = job(2048.0, 0.0);
    run.put(object());
    run
}

/// A version later: workers leak, and a data loader is new.
pub fn ray_with_vllm_later() -> Script {
    let mut run = job(2048.0, 600.0);
    run.put(object());
    run.process(150, Some(100), 30.0, "/venv/bin/python3 rollout.py");
    run.is(150, "PyTorch", "DataLoader worker", None);
    run.mem(150, 31.0, [600.0, 20.0, 0.0]);
    run
}
