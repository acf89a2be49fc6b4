use memtrace::collect::procfs::*;
use memtrace::collect::*;
use memtrace::model::*;
use std::process::Command;
fn main() {
    let n: usize = std::env::args().nth(1).unwrap().parse().unwrap();
    let limit: usize = std::env::args().nth(2).unwrap().parse().unwrap();
    let mut kids: Vec<_> = (0..n)
        .map(|_| Command::new("sleep").arg("300").spawn().unwrap())
        .collect();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let t = Targets::Roots(vec![Tgid(std::process::id())]);
    let mut b = ProcfsBackend::new(
        std::path::Path::new("/proc"),
        t,
        ProcfsOptions {
            interval: DurationNs(100_000_000),
            descriptor_limit: limit,
        },
    );
    let mut w = World::default();
    let mut out = vec![];
    let z = ClockOffset::at(ClockReading {
        boot_ns: BootNs(0),
        monotonic_ns: 0,
        wall_ns: WallNs(0),
    });
    let mut costs = vec![];
    for i in 0..200 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let tick = Tick {
            boot: BootNs(now.tv_sec * 1_000_000_000 + now.tv_nsec),
            clock: z,
            is_keyframe: i % 100 == 50,
        };
        out.clear();
        b.collect(&tick, &mut w, &mut out).unwrap();
        w.write_changes(&mut out);
        let c = w.snapshot_cost().unwrap().0;
        costs.push((c, out.len()));
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    println!(
        "members {} first {:?} young(10) {:?}",
        w.len(),
        costs[0],
        costs[10]
    );
    let late: i64 = costs[120..].iter().map(|c| c.0).sum();
    println!(
        "mean young {:.2} us/process, late mean {:.2} us/process; worst late {:?}",
        costs[1..80].iter().map(|c| c.0).sum::<i64>() as f64 / 79e3 / w.len() as f64,
        late as f64 / 80e3 / w.len() as f64,
        costs[120..].iter().max()
    );
    for k in &mut kids {
        k.kill().unwrap();
        k.wait().unwrap();
    }
}
