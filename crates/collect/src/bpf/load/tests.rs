//! The programs on the kernel that the tests run on.

mod needs_bpf {
    use super::super::*;
    use crate::bpf::decode::{Event, decode};
    use std::collections::BTreeSet;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

    /// Settings under which nothing but sweeps sends samples.
    fn settings(members_max: u32, possible_cpus: u32) -> Settings {
        let config = Config {
            has_vm: 1,
            has_cuda: 1,
            drift_pages: i64::MAX >> 8,
            ring_bytes: 1 << 16,
            wake_bytes: 1 << 13,
            ..Config::new_zeroed()
        };
        Settings {
            config,
            members_max,
            ended_max: 64,
            possible_cpus,
            probes: vec![ProbeWay::Syscalls],
        }
    }

    /// The number of CPUs is a constant to the verifier, which walks the sum over them
    /// once for every counter.
    #[test]
    fn the_programs_load_whatever_the_number_of_cpus() {
        for possible_cpus in [1, 2, 64, 192, 512, 1024] {
            let loaded = load(&settings(64, possible_cpus));
            let (programs, _ring) = loaded.unwrap();
            assert_eq!(programs.missing, [""; 0], "{possible_cpus} CPUs");
            assert_eq!(programs.probe_way(), Some(ProbeWay::Syscalls));
        }
    }

    /// As on kernels before 6.1, where programs can't allocate.
    #[test]
    fn the_object_can_be_had_with_tables_that_are_allocated_up_front() {
        let flags = |object: &[u8]| {
            let ebpf = EbpfLoader::new().btf(None).load(object).unwrap();
            let of_map = |name: &str| match ebpf.map(name) {
                Some(aya::maps::Map::HashMap(data)) => data.info().unwrap().map_flags(),
                other => panic!("{name}: {other:?}"),
            };
            HASHES.iter().map(|name| of_map(name)).collect::<Vec<u32>>()
        };
        const NO_PREALLOC: u32 = 1;
        assert_eq!(flags(object()), [NO_PREALLOC; HASHES.len()]);
        let preallocating = preallocating(HASHES).unwrap();
        assert_eq!(flags(&preallocating), [0; HASHES.len()]);
    }

    #[test]
    fn a_way_that_the_kernel_refuses_gives_place_to_the_next() {
        let settings = Settings {
            probes: ProbeWay::ALL.to_vec(),
            ..settings(64, 2)
        };
        let (programs, _ring) = load(&settings).unwrap();
        let taken = programs.probe_way().unwrap();
        let place = ProbeWay::ALL.iter().position(|way| *way == taken);
        assert_eq!(place, Some(programs.probe_refusals.len()));
        let refused = programs.probe_refusals.iter().zip(ProbeWay::ALL);
        for (refusal, way) in refused {
            assert!(refusal.starts_with(way.as_str()), "{refusal}");
        }
    }

    /// A shell that takes 8 MiB when it is asked to.
    struct Grower {
        process: Child,
        orders: ChildStdin,
        answers: BufReader<ChildStdout>,
    }

    impl Grower {
        fn start() -> Self {
            let script = "read order; x=xxxxxxxx; \
                          for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do \
                          x=$x$x; done; echo grown; read order";
            let mut process = Command::new("sh")
                .args(["-c", script])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let orders = process.stdin.take().unwrap();
            let answers = BufReader::new(process.stdout.take().unwrap());
            Self {
                process,
                orders,
                answers,
            }
        }

        fn grow(&mut self) {
            self.orders.write_all(b"grow\n").unwrap();
            let mut answer = String::new();
            self.answers.read_line(&mut answer).unwrap();
            assert_eq!(answer, "grown\n");
        }

        fn end(mut self) {
            drop(self.orders);
            assert!(self.process.wait().unwrap().code().is_some());
        }
    }

    /// The processes that the ring holds samples of.
    fn sampled(ring: &mut RingBuf<MapData>) -> BTreeSet<u32> {
        let mut tgids = BTreeSet::new();
        while let Some(item) = ring.next() {
            if let Ok(Event::Sample(sample)) = decode(&item) {
                tgids.insert(sample.header.tgid);
            }
        }
        tgids
    }

    /// Records `count` growers, grows all but the last, and sweeps those that moved: who was
    /// grown, and who was sampled.
    fn sweep_of_moved(members_max: u32, count: usize) -> (BTreeSet<u32>, BTreeSet<u32>) {
        let mut growers: Vec<Grower> = (0..count).map(|_| Grower::start()).collect();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let (mut programs, mut ring) = load(&settings(members_max, cpus as u32)).unwrap();
        programs.attach().unwrap();
        for grower in &growers {
            programs.enter(Tgid(grower.process.id())).unwrap();
        }
        let mut members = 0;
        programs
            .visit_tasks(|seen| members += seen.is_member as usize)
            .unwrap();
        assert_eq!(members, count);
        // A shell that was still starting when it was entered has moved: take that away.
        std::thread::sleep(std::time::Duration::from_millis(50));
        programs.sweep(SweepScope::Moved).unwrap();
        programs.sweep(SweepScope::Keyframe).unwrap();
        sampled(&mut ring);

        let (_, grown) = growers.split_last_mut().unwrap();
        grown.iter_mut().for_each(Grower::grow);
        let grown = grown.iter().map(|grower| grower.process.id()).collect();
        programs.sweep(SweepScope::Moved).unwrap();
        let sampled = sampled(&mut ring);
        growers.into_iter().for_each(Grower::end);
        (grown, sampled)
    }

    #[test]
    fn a_sweep_samples_whoever_moved_and_nobody_else() {
        let (grown, sampled) = sweep_of_moved(64, 3);
        assert_eq!(sampled, grown);
    }

    #[test]
    fn a_sweep_samples_whoever_moved_also_when_more_did_than_it_can_remember() {
        // Room for 8 members is room for one that moved.
        let (grown, sampled) = sweep_of_moved(8, 4);
        assert_eq!(sampled, grown);
    }
}
