use memtrace::collect::bpf::*;
use memtrace::collect::*;
use memtrace::model::*;
fn now(c: libc::clockid_t) -> i64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    unsafe { libc::clock_gettime(c, &mut t) };
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}
fn tick(k: bool) -> Tick {
    let r = ClockReading {
        boot_ns: BootNs(now(libc::CLOCK_BOOTTIME)),
        monotonic_ns: 0,
        wall_ns: WallNs(now(libc::CLOCK_REALTIME)),
    };
    Tick {
        boot: r.boot_ns,
        clock: ClockOffset::at(r),
        is_keyframe: k,
    }
}
fn main() {
    let mut world = World::default();
    let mut out = vec![];
    let t0 = std::time::Instant::now();
    let o = BpfOptions {
        targets: Targets::Roots(vec![Tgid(std::process::id())]),
        held: None,
        interval: DurationNs(100_000_000),
        page_size: PageSize(4096),
        possible_cpus: 2,
        online_cpus: 2,
        members_max: 16384,
    };
    let mut b = match BpfBackend::start(o, &tick(true), &mut world, &mut out) {
        Ok(b) => b,
        Err(e) => {
            println!("{e}");
            std::process::exit(1)
        }
    };
    let mut ru: libc::rusage = unsafe{std::mem::zeroed()}; unsafe{libc::getrusage(libc::RUSAGE_SELF,&mut ru)}; println!("start {:?} user {}us sys {}us", t0.elapsed(), ru.ru_utime.tv_usec, ru.ru_stime.tv_usec);
    let st = std::fs::read_to_string("/proc/self/status").unwrap();
    for l in st
        .lines()
        .filter(|l| l.starts_with("VmHWM") || l.starts_with("VmRSS"))
    {
        println!("{l}");
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut c = std::process::Command::new(&args[0])
        .args(&args[1..])
        .spawn()
        .unwrap();
    loop {
        std::thread::sleep(std::time::Duration::from_millis(100));
        b.collect(&tick(false), &mut world, &mut out).unwrap();
        if c.try_wait().unwrap().is_some() {
            break;
        }
    }
    b.finish(&tick(false), &mut world, &mut out).unwrap();
    world.write_changes(true, &mut out);
    for r in &out {
        println!("{r:?}");
    }
}
