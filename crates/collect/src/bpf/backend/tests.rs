//! The backend on the kernel that the tests run on.

use super::wait_after;
use memtrace_model::DurationNs;

#[test]
fn a_dear_full_sweep_is_made_more_rarely_but_never_given_up() {
    let ms = |ms: i64| DurationNs(ms * 1_000_000);
    assert_eq!(wait_after(DurationNs(100_000)), ms(1_000));
    assert_eq!(wait_after(ms(2)), ms(4_000));
    assert_eq!(wait_after(ms(300)), ms(10_000));
}

mod needs_bpf {
    use super::super::*;
    use crate::ProcessTable;
    use std::io::Write;
    use std::process::{Child, ChildStdin, Command, Stdio};

    fn tick() -> Tick {
        let reading = clock::read();
        Tick {
            boot: reading.boot_ns,
            clock: memtrace_model::ClockOffset::at(reading),
            is_keyframe: false,
        }
    }

    fn options(root: u32) -> BpfOptions {
        let online = std::thread::available_parallelism().unwrap().get();
        let possible = memtrace_host::HostFacts::read().possible_cpu_count;
        BpfOptions {
            targets: Targets::Roots(vec![Tgid(root)]),
            held: None,
            interval: DurationNs(100_000_000),
            page_size: PageSize(4096),
            possible_cpus: possible.unwrap(),
            online_cpus: u32::try_from(online).unwrap(),
            few_cpus: FEW_CPUS,
            has_stacks: false,
            cuda: None,
            gpu_haste: None,
            members_max: 64,
            ended_max: 64,
            probes: Vec::new(),
            are_probes_named: false,
            vm_min: Bytes(1 << 20),
            memory_hierarchy: None,
        }
    }

    /// A shell that waits for a line before each part of its script.
    fn shell(script: &str, argument: &str) -> Child {
        Command::new("sh")
            .args(["-c", script, argument])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Lets it do the first part, which ends with a line.
    fn go(parent: &mut Child) -> ChildStdin {
        let mut input = parent.stdin.take().unwrap();
        input.write_all(b"\n").unwrap();
        std::io::Read::read_exact(parent.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        input
    }

    fn lost(out: &[Record], class: LossClass) -> i64 {
        let of_class = |record: &Record| match record {
            Record::Diag(row) if row.subject == class.as_str() => {
                assert_eq!(row.severity, Some(Severity::Loss));
                row.count
            }
            _ => None,
        };
        out.iter().filter_map(of_class).sum()
    }

    #[test]
    fn members_beyond_the_room_for_them_are_counted_as_lost() {
        let script = "read x; for i in 1 2 3 4 5 6 7 8; do sleep 9 >/dev/null & \
                      pids=\"$pids $!\"; done; echo; read x; kill $pids";
        let mut parent = shell(script, "");
        let options = BpfOptions {
            members_max: 4,
            ..options(parent.id())
        };
        let (mut table, mut out) = (ProcessTable::default(), Vec::new());
        let mut backend =
            BpfBackend::start(options, &mut Pass::new(&tick(), &mut table, &mut out)).unwrap();
        let input = go(&mut parent);
        backend
            .collect(&mut Pass::new(&tick(), &mut table, &mut out))
            .unwrap();
        drop(input);
        parent.wait().unwrap();
        // The map gives out no less than it was made for, and may have a few more.
        assert!((4..9).contains(&table.len()), "{} processes", table.len());
        let lost = lost(&out, LossClass::Members);
        assert!(lost >= 1, "{out:#?}");
        assert_eq!(table.lost_event_count(), lost);
    }

    /// Each exec tells its arguments, so that a few hundred fill the ring.
    #[test]
    fn ends_that_neither_the_ring_nor_the_table_of_ends_has_room_for_are_counted() {
        let script = "read x; i=0; while [ $i -lt 900 ]; do /bin/true \"$0\"; \
                      i=$((i+1)); done; echo; read x";
        let mut parent = shell(script, &"x".repeat(4000));
        let (mut table, mut out) = (ProcessTable::default(), Vec::new());
        let options = options(parent.id());
        let mut backend =
            BpfBackend::start(options, &mut Pass::new(&tick(), &mut table, &mut out)).unwrap();
        let input = go(&mut parent);
        backend
            .collect(&mut Pass::new(&tick(), &mut table, &mut out))
            .unwrap();
        drop(input);
        parent.wait().unwrap();
        let lost = lost(&out, LossClass::Lifecycle);
        let known = table.entered_count() - 1;
        assert!(lost > 0, "{known} of 900");
        assert!(known + lost >= 900, "{known} known and {lost} lost");
    }
}
