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
        w.write_changes(false, &mut out);
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
    let facts = memtrace::host::HostFacts::read();
    let mut cg = memtrace::collect::cgroup::CgroupCollector::new(facts.memory_hierarchy.unwrap());
    let mut node = memtrace::collect::node::NodeCollector::new();
    let (mut a, mut d, mut rows) = (0, 0, 0);
    for i in 0..30 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let tick = Tick {
            boot: BootNs(now.tv_sec * 1_000_000_000 + now.tv_nsec),
            clock: z,
            is_keyframe: false,
        };
        out.clear();
        let t0 = memtrace::host::clock::thread_cpu().0;
        cg.collect(&tick, &mut w, &mut out).unwrap();
        let t1 = memtrace::host::clock::thread_cpu().0;
        node.collect(&tick, &mut w, &mut out).unwrap();
        let t2 = memtrace::host::clock::thread_cpu().0;
        if i > 0 {
            a += t1 - t0;
            d += t2 - t1;
            rows += out.len();
        }
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    println!(
        "cgroup {} us, node {} us a call, rows {rows}",
        a / 29_000,
        d / 29_000
    );
    for k in &mut kids {
        k.kill().unwrap();
        k.wait().unwrap();
    }
}
