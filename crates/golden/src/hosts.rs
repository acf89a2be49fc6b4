//! Runs of several hosts.

use super::rows::Rows;
use super::script::{Script, boot, gib, wall};
use memtrace_model::tables::MarkKind::{Begin, End};
use memtrace_model::{
    BootNs, ClockReading, ClockRow, DurationNs, Record, RunInfo, RunState, WallNs,
};

/// A recording of a host in a run.
pub struct Member {
    /// The host's name.
    pub host: &'static str,
    /// The recording's name.
    pub rec: &'static str,
    /// What was recorded.
    pub script: Script,
}

/// A job's name, its recordings, and the hosts that it should have.
type Job = (&'static str, fn() -> Vec<Member>, &'static [&'static str]);

/// Every job there is.
pub const JOBS: &[Job] = &[
    ("eight_ranks", eight_ranks, &["node1", "node2"]),
    (
        "lost_host",
        lost_host,
        &["node1", "node2", "node3", "node4"],
    ),
    ("clock_off", clock_off, &[]),
    ("oom_chain", oom_chain, &[]),
    ("many_hosts", many_hosts, &[]),
];

impl Member {
    /// The recording as the analysis meets it, and its last sample if it goes on.
    pub fn recorded(self) -> (RunInfo, Rows, Option<BootNs>) {
        let (info, rows, _) = self.script.recorded();
        let last = rows.0.iter().filter_map(|row| match row {
            Record::Mem(row) => Some(row.boot_ns),
            _ => None,
        });
        let last = last.max().filter(|_| info.state == RunState::Recording);
        (info, rows, last)
    }
}

/// The recordings of a job.
pub fn job(name: &str) -> Vec<Member> {
    let job = JOBS.iter().find(|(one, ..)| *one == name);
    job.expect("a job").1()
}

const REC: &str = "20260301T120144Z";

fn member(host: &'static str, mut script: Script) -> Member {
    script.info.hostname = host.to_owned();
    Member {
        host,
        rec: REC,
        script,
    }
}

/// A node that torchrun's agent runs on, recorded from one second until another, with its clock.
fn node(from: f64, until: f64, clock: Clock) -> Script {
    let mut run = Script::command(&["torchrun", "train.py"], until);
    run.clocks(from, until, clock);
    run.process(
        100,
        None,
        from,
        "/usr/bin/python3 /usr/bin/torchrun train.py",
    );
    run.is(100, "PyTorch", "elastic agent", None);
    run.mem(100, from + 0.5, [120.0, 30.0, 0.0]);
    run
}

/// How the clock of a host stands.
#[derive(Clone, Copy)]
pub struct Clock {
    /// By how much it is ahead, in seconds.
    pub ahead: f64,
    /// `None` where nobody synchronizes it.
    pub error_ms: Option<i64>,
}

const GOOD: Clock = Clock {
    ahead: 0.0,
    error_ms: Some(2),
};

impl Script {
    /// The wall clock of its host, read at two times.
    pub fn clocks(&mut self, from: f64, until: f64, clock: Clock) {
        let readings = [from, until].map(|at| ClockReading {
            boot_ns: boot(at),
            monotonic_ns: boot(at).0,
            wall_ns: WallNs(wall(at).0 + (clock.ahead * 1e9) as i64),
        });
        self.info.clocks = readings.to_vec();
        for reading in readings {
            self.put(ClockRow {
                ts: reading.wall_ns,
                boot_ns: reading.boot_ns,
                monotonic_ns: DurationNs(reading.monotonic_ns),
                step_ns: None,
                is_synchronized: Some(clock.error_ms.is_some()),
                max_error_ns: Some(DurationNs(clock.error_ms.unwrap_or(16_000) * 1_000_000)),
                estimated_error_ns: None,
            });
        }
    }

    fn rank(&mut self, rank: u32, at: f64) -> u32 {
        let tgid = 200 + rank;
        self.process(tgid, Some(100), at, "/usr/bin/python3 -u train.py");
        self.is(tgid, "PyTorch", "rank", Some(&rank.to_string()));
        tgid
    }

    /// A step of a rank: what it holds within, in MiB, and from its end on.
    fn step(&mut self, tgid: u32, step: u32, (at, took): (f64, f64), [within, after]: [f64; 2]) {
        self.numbered_mark(Some(tgid), at, Begin, "step", Some(step));
        self.mem(tgid, at + took / 2.0, [within, 200.0, 0.0]);
        self.mem(tgid, at + took * 0.9, [after, 200.0, 0.0]);
        self.numbered_mark(Some(tgid), at + took, End, "step", Some(step));
    }

    fn ends_well(&mut self, tgids: impl IntoIterator<Item = u32>, at: f64) {
        for tgid in tgids {
            self.exit(tgid, at, 0);
        }
        self.exit(100, at + 0.5, 0);
    }
}

/// Eight ranks on two hosts: rank 3 holds 9 GiB more than the others, rank 5 grows with each step,
/// and rank 6 is slow. The second host is near to a limit.
fn eight_ranks() -> Vec<Member> {
    let hosts = [("node1", 0..4_u32), ("node2", 4..8)];
    let members = hosts.into_iter().map(|(host, ranks)| {
        let mut run = node(0.0, 430.0, GOOD);
        for rank in ranks.clone() {
            let tgid = run.rank(rank, 1.0 + f64::from(rank) * 0.01);
            let base = if rank == 3 { 29.0 } else { 20.0 } * 1_024.0;
            run.mem(tgid, 8.0, [base, 200.0, 0.0]);
            for step in 0..40_u32 {
                let at = 20.0 + f64::from(step) * 10.0 + f64::from(rank) * 0.001;
                let kept = if rank == 5 {
                    f64::from(step) * 40.0
                } else {
                    0.0
                };
                let noise = f64::from((step * 7 + rank) % 5);
                let took = if rank == 6 { 9.0 } else { 6.0 };
                let held = base + kept + noise;
                run.step(tgid, step, (at, took), [held + 512.0, held]);
            }
        }
        if host == "node2" {
            for tgid in [100]
                .into_iter()
                .chain(ranks.clone().map(|rank| 200 + rank))
            {
                run.edit(tgid, |row| row.cgroup = Some("/slurm/job_4711".into()));
            }
            for at in [100.0, 200.0, 300.0, 415.0] {
                run.cgroup(
                    at,
                    "/slurm/job_4711",
                    [84.0 + at / 415.0, 83.0, 0.0],
                    Some(gib(88.0)),
                );
            }
        }
        for at in [10.0, 210.0, 410.0] {
            run.node(at, gib(380.0));
        }
        run.ends_well(ranks.map(|rank| 200 + rank), 425.0);
        member(host, run)
    });
    members.collect()
}

/// One host is not heard of any more a minute before the others end, one comes late, and one that
/// was expected has no recording. The recorder of the first was started twice.
fn lost_host() -> Vec<Member> {
    let worked = |from: f64, until: f64, is_closed: bool, rank: u32| {
        let mut run = node(from, until, GOOD);
        let tgid = run.rank(rank, from + 1.0);
        let mut at = from + 2.0;
        while at < until - 2.0 {
            run.mem(tgid, at, [4_096.0 + at * 4.0, 200.0, 0.0]);
            at += 5.0;
        }
        match is_closed {
            true => run.ends_well([tgid], until - 0.6),
            false => {
                run.info.state = RunState::Recording;
                run.info.command_exit_code = None;
            }
        }
        run
    };
    vec![
        member("node1", worked(0.0, 80.0, true, 0)),
        Member {
            rec: "20260301T120314Z",
            ..member("node1", worked(90.0, 200.0, true, 0))
        },
        member("node2", worked(0.0, 138.0, false, 1)),
        member("node3", worked(60.0, 200.0, true, 2)),
    ]
}

/// Nobody synchronizes the clocks of two hosts: one is 3 s ahead, and begins its steps with the others;
/// of the other nothing is known.
fn clock_off() -> Vec<Member> {
    let loose = |ahead: f64| Clock {
        ahead,
        error_ms: None,
    };
    let hosts = [
        ("node1", 0_u32, GOOD),
        ("node2", 1, loose(3.0)),
        ("node3", 2, loose(0.4)),
    ];
    let members = hosts.into_iter().map(|(host, rank, clock)| {
        let mut run = node(0.0, 120.0, clock);
        let tgid = run.rank(rank, 1.0);
        run.mem(tgid, 2.0, [1_024.0, 200.0, 0.0]);
        for step in 0..10_u32 {
            let late = f64::from(step * (rank + 3) % 7) * 0.001;
            let at = 10.0 + f64::from(step) * 10.0 + late;
            match host {
                "node3" => run.mem(tgid, at + 2.0, [2_048.0, 200.0, 0.0]),
                _ => run.step(tgid, step, (at, 4.0), [9_216.0, 1_024.0]),
            }
        }
        run.kill_from(tgid, tgid, 112.0 + f64::from(rank) * 0.5, 6);
        run.exit(100, 115.0, 1);
        member(host, run)
    });
    members.collect()
}

/// The OOM killer takes a rank of one host, ranks of two others follow: one surely later, one within
/// what the clocks can be off.
fn oom_chain() -> Vec<Member> {
    let job = |rank: u32| {
        let mut run = node(0.0, 100.0, GOOD);
        let tgid = run.rank(rank, 1.0);
        for second in 0..18_u32 {
            let held = 2_048.0 + f64::from(second) * 3_200.0;
            let held = if rank == 1 { held } else { 2_048.0 };
            run.mem(tgid, 3.0 + f64::from(second) * 5.0, [held, 100.0, 0.0]);
        }
        (run, tgid)
    };
    let pod = "/kubepods/pod7f3a2c1e-0d1e-4f6a-9b7c-2d3e4f5a6b7c/trainer";
    let (mut first, killed) = job(1);
    first.edit(killed, |row| {
        row.cgroup = Some(pod.into());
        row.pod = Some("ml/trainer-1".into());
        row.container = Some("main".into());
    });
    for (at, current) in [(20.0, 12.0), (60.0, 38.0), (90.0, 55.0)] {
        first.cgroup(at, pod, [current, current - 0.5, 0.0], Some(gib(56.0)));
    }
    first.oom(killed, killed, 92.5, pod, gib(56.0));
    first.exit(100, 93.0, 1);
    let (mut same, tgid) = job(0);
    same.kill_from(tgid, tgid, 92.502, 6);
    same.exit(100, 94.5, 1);
    let (mut later, tgid) = job(2);
    later.exit(tgid, 94.0, 1);
    later.exit(100, 95.0, 1);
    let members = [("node1", same), ("node2", first), ("node3", later)];
    members
        .into_iter()
        .map(|(host, run)| member(host, run))
        .collect()
}

/// Thirty hosts that do the same, one of which holds much more in its role.
fn many_hosts() -> Vec<Member> {
    let names: [&'static str; 30] = [
        "h01", "h02", "h03", "h04", "h05", "h06", "h07", "h08", "h09", "h10", "h11", "h12", "h13",
        "h14", "h15", "h16", "h17", "h18", "h19", "h20", "h21", "h22", "h23", "h24", "h25", "h26",
        "h27", "h28", "h29", "h30",
    ];
    let members = names.into_iter().enumerate().map(|(place, host)| {
        let mut run = Script::command(&["vllm", "serve"], 60.0);
        run.process(130, None, 1.0, "/venv/bin/python3 /venv/bin/vllm serve");
        run.is(130, "vLLM", "engine core", None);
        let base = 2_000.0 + (place % 7) as f64;
        run.mem(130, 2.0, [base, 100.0, 0.0]);
        let most = if host == "h17" { 9_000.0 } else { 3_000.0 };
        run.mem(130, 20.25 + place as f64 / 40.0, [most, 100.0, 0.0]);
        run.mem(130, 40.0, [base, 100.0, 0.0]);
        run.node(20.0, gib(500.0 - place as f64));
        run.exit(130, 55.0, 0);
        member(host, run)
    });
    members.collect()
}
