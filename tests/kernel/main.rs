//! memtrace with real processes, held against workloads whose answers are known.
//!
//! Every test here needs the machine to offer something; see `memtrace_tests::need`.

mod stacks;

use memtrace_model::{DiagKind, DiagRow, ProcessRow};
use memtrace_tests::beside::beside;
use memtrace_tests::need;
use memtrace_tests::recorder::Recorder;
use memtrace_tests::scenario::{self, Score, Settle};
use memtrace_tests::workload::Running;
use std::process::Command;

/// Fails with every score that is not full.
fn all_hold(scores: Vec<Score>) {
    let failed: Vec<_> = scores.iter().filter(|score| !score.is_full()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

mod needs_bpf {
    use super::*;

    const BPF: &[&str] = &["--backend", "bpf"];

    #[test]
    fn no_child_of_a_forkstorm_is_missing_and_every_peak_is_exact() -> anyhow::Result<()> {
        need::require("bpf");
        all_hold(scenario::forkstorm(BPF, 200)?);
        Ok(())
    }

    #[test]
    fn a_started_program_is_not_charged_the_memory_of_who_started_it() -> anyhow::Result<()> {
        need::require("bpf");
        all_hold(scenario::vforkchild(BPF)?);
        Ok(())
    }

    #[test]
    fn a_spike_between_two_samples_is_seen_at_its_height() -> anyhow::Result<()> {
        need::require("bpf");
        for kind in ["anon", "shm", "thp"] {
            all_hold(scenario::spikes(BPF, kind, 32 << 20, 5)?);
        }
        Ok(())
    }

    #[test]
    fn an_end_by_a_signal_says_who_sent_it() -> anyhow::Result<()> {
        need::require("bpf");
        all_hold(scenario::endings(BPF)?);
        Ok(())
    }

    mod needs_mount {
        use super::*;

        /// bpf_find_vma (5.17) tells whose page it was.
        #[test]
        fn a_tmpfs_that_is_full_when_a_process_ends_by_sigbus_is_recorded_so() -> anyhow::Result<()>
        {
            need::require("bpf");
            need::require("mount");
            all_hold(scenario::full_tmpfs(BPF)?);
            Ok(())
        }
    }

    /// There the parts of the counters are added to a maximum at larger steps.
    #[test]
    fn a_spike_is_seen_at_its_height_as_on_a_machine_of_many_cpus() -> anyhow::Result<()> {
        need::require("bpf");
        let words = [BPF, &["--few-cpus", "0"]].concat();
        for scores in beside(&["anon", "shm", "thp", "churn"], |kind| match *kind {
            "churn" => scenario::spikes_after_churn(&words, 20),
            kind => scenario::spikes(&words, kind, 32 << 20, 5),
        })? {
            all_hold(scores);
        }
        Ok(())
    }

    #[test]
    fn a_spike_that_begins_to_fall_by_little_is_seen_at_its_height() -> anyhow::Result<()> {
        need::require("bpf");
        all_hold(scenario::spikes_after_churn(BPF, 20)?);
        Ok(())
    }

    /// What it says of programs whose cause is known. With a budget that does not matter here.
    fn causes(names: &[&str]) -> anyhow::Result<()> {
        need::require("bpf");
        let insides = scenario::INSIDES.iter().copied();
        let insides: Vec<_> = insides
            .filter(|inside| names.contains(&inside.name))
            .collect();
        assert_eq!(insides.len(), names.len());
        let words = [BPF, &["--budget", "100"]].concat();
        all_hold(scenario::inside(&words, &insides)?);
        Ok(())
    }

    #[test]
    fn live_data_is_distinguished_from_what_an_allocator_keeps() -> anyhow::Result<()> {
        causes(&["live", "freed", "arenas", "mmapped"])
    }

    #[test]
    fn mappings_pinned_memory_copies_and_huge_pages_are_distinguished() -> anyhow::Result<()> {
        causes(&["equal", "pinned", "copies", "huge"])
    }

    #[test]
    fn address_space_that_nobody_touches_is_seen() -> anyhow::Result<()> {
        need::require("bpf");
        all_hold(scenario::reserve(BPF)?);
        Ok(())
    }

    #[test]
    fn marks_have_their_sender_and_the_kernels_clock() -> anyhow::Result<()> {
        need::require("bpf");
        all_hold(scenario::marks(BPF, 4, 500, 1_000)?.scores);
        Ok(())
    }

    #[test]
    fn marks_that_do_not_fit_are_counted() -> anyhow::Result<()> {
        need::require("bpf");
        all_hold(scenario::marks(BPF, 4, 10_000, 0)?.scores);
        Ok(())
    }

    #[test]
    fn the_report_finds_what_a_phase_added_and_what_each_step_keeps() -> anyhow::Result<()> {
        need::require("bpf");
        all_hold(scenario::phases(&[
            "--backend",
            "bpf",
            "--interval",
            "100ms",
        ])?);
        Ok(())
    }

    #[test]
    fn a_process_learns_what_its_descendants_held_as_the_recording_tells_it() -> anyhow::Result<()>
    {
        need::require("bpf");
        all_hold(scenario::sections(BPF, 64 << 20, 0)?);
        Ok(())
    }

    #[test]
    fn what_outlives_the_command_is_reported_and_left_alone() -> anyhow::Result<()> {
        need::require("bpf");
        all_hold(scenario::survivors(BPF, false)?);
        Ok(())
    }

    #[test]
    fn what_outlives_the_command_is_ended_when_that_was_asked_for() -> anyhow::Result<()> {
        need::require("bpf");
        all_hold(scenario::survivors(BPF, true)?);
        Ok(())
    }

    #[test]
    fn daemons_stay_in_the_tree() -> anyhow::Result<()> {
        need::require("bpf");
        all_hold(scenario::daemons(BPF)?);
        Ok(())
    }

    #[test]
    fn odd_names_and_long_command_lines_are_recorded_whole() -> anyhow::Result<()> {
        need::require("bpf");
        all_hold(scenario::execs(BPF)?);
        Ok(())
    }

    #[test]
    fn exec_from_a_thread_is_one_process() -> anyhow::Result<()> {
        need::require("bpf");
        all_hold(scenario::exec_from_thread(BPF)?);
        Ok(())
    }

    #[test]
    fn a_process_without_its_main_thread_is_still_seen() -> anyhow::Result<()> {
        need::require("bpf");
        all_hold(scenario::leader_exit(BPF)?);
        Ok(())
    }

    #[test]
    fn every_title_is_recorded() -> anyhow::Result<()> {
        need::require("bpf");
        all_hold(scenario::titles(BPF)?);
        Ok(())
    }

    #[test]
    fn a_zombie_holds_nothing_and_ended_when_it_did() -> anyhow::Result<()> {
        need::require("bpf");
        all_hold(scenario::zombie(BPF)?);
        Ok(())
    }

    #[test]
    fn memory_that_children_inherit_is_counted_once() -> anyhow::Result<()> {
        need::require("bpf");
        // The second is too much for a text that is walked in one go.
        let inherited = beside(&[(64 << 20, 4), (320 << 20, 8)], |&(bytes, readers)| {
            scenario::inherited(BPF, bytes, readers)
        });
        inherited?.into_iter().for_each(all_hold);
        Ok(())
    }

    #[test]
    fn memory_that_two_processes_share_as_one_is_counted_once() -> anyhow::Result<()> {
        need::require("bpf");
        all_hold(scenario::clone_vm(BPF)?);
        Ok(())
    }

    /// The ring is full after some thousand of them.
    #[test]
    fn nobody_is_missing_after_the_recorder_was_stopped() -> anyhow::Result<()> {
        need::require("bpf");
        let stop = std::time::Duration::from_secs(1);
        all_hold(scenario::stopped(BPF, 12_000, stop)?.0);
        Ok(())
    }

    #[test]
    fn a_flood_of_names_pushes_no_process_out() -> anyhow::Result<()> {
        need::require("bpf");
        all_hold(scenario::renames(BPF, 2_000, 50_000)?);
        Ok(())
    }

    #[test]
    fn a_recording_of_a_fork_storm_begins_and_ends() -> anyhow::Result<()> {
        need::require("bpf");
        for signal in [libc::SIGINT, libc::SIGTERM] {
            let took = scenario::storm_at_attach(BPF, 2_000, signal)?;
            // An emulated machine is slow; the benchmark asks for a second.
            assert!(took.as_secs() < 20, "{took:?}");
        }
        Ok(())
    }

    /// While the recorder is stopped, nobody reads the ring.
    #[test]
    fn what_a_stopped_recorder_could_not_learn_is_reported_first() -> anyhow::Result<()> {
        need::require("bpf");
        // Each exec tells its arguments, so that a few hundred fill the ring.
        let script = "read x; i=0; while [ $i -lt 900 ]; do /bin/true \"$0\"; i=$((i+1)); done; \
                      echo 1; read x; :";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg("x".repeat(4000));
        let mut target = Running::spawn(&mut command)?;
        let recorder = Recorder::start(&["--backend", "bpf", "-p", &target.pid().to_string()])?;
        recorder.signal(libc::SIGSTOP)?;
        target.go()?;
        target.line()?;
        recorder.signal(libc::SIGCONT)?;
        std::thread::sleep(std::time::Duration::from_millis(1_500));
        let recorded = recorder.stop()?;
        let root = target.pid();
        target.finish()?;

        let processes: Vec<ProcessRow> = recorded.recording.rows()?;
        assert_eq!(processes.len(), 901);
        // Who is gone is not taken to live on, and the target still does.
        for row in &processes {
            assert_eq!(row.exit_boot_ns.is_none(), row.tgid.0 == root, "{row:?}");
        }
        let unnamed = processes.iter().filter(|row| row.cmdline.is_none()).count();
        assert!(unnamed > 0, "the ring had room for all");
        let diags: Vec<DiagRow> = recorded.recording.rows()?;
        let shown: i64 = diags
            .iter()
            .filter(|row| row.kind == Some(DiagKind::LostEvents) && row.subject == "exec")
            .filter_map(|row| row.count)
            .sum();
        assert_eq!(shown, i64::try_from(unnamed)?, "{diags:#?}");
        let text = recorded.report_text(&[])?;
        let head: Vec<&str> = text.lines().take(24).collect();
        let is_reported = head
            .iter()
            .any(|line| line.contains("the event ring was full"));
        assert!(is_reported, "{head:#?}");
        Ok(())
    }

    #[test]
    fn calls_on_an_address_space_are_reported_by_the_end_of_system_calls() -> anyhow::Result<()> {
        need::require("bpf");
        all_hold(scenario::vm(&["--probes", "syscalls"], 1_000)?);
        Ok(())
    }

    #[test]
    fn shared_memory_that_eight_processes_map_is_one_object() -> anyhow::Result<()> {
        need::require("bpf");
        let objects = beside(&["posix", "memfd"], |kind| {
            scenario::object(BPF, kind, 64 << 20, 8)
        });
        objects?.into_iter().for_each(all_hold);
        Ok(())
    }

    #[test]
    fn the_pss_of_a_large_process_is_learned_in_pieces() -> anyhow::Result<()> {
        need::require("bpf");
        // A large budget: what is tested is the result and not the pace.
        let words = ["--backend", "bpf", "--budget", "100"];
        let settle = Settle::UntilRead;
        all_hold(scenario::large(&words, 1 << 30, 1, settle)?.scores);
        all_hold(scenario::large(&words, 256 << 20, 20_000, settle)?.scores);
        Ok(())
    }

    /// A million of them, and what the recorder then holds, is measured by `cargo xtask
    /// bench`: an emulated machine takes a minute for that.
    #[test]
    fn small_mappings_are_sums_and_no_rows() -> anyhow::Result<()> {
        need::require("bpf");
        let (scores, _) = scenario::vm_storm(&["--probes", "syscalls"], 100_000)?;
        all_hold(scores);
        Ok(())
    }

    mod needs_ray {
        use super::*;

        #[test]
        fn every_process_of_a_ray_session_has_its_role_its_store_counts_once_and_it_is_found_with_its_driver()
        -> anyhow::Result<()> {
            need::require("bpf");
            need::require("ray");
            all_hold(scenario::ray_session(BPF)?);
            Ok(())
        }
    }

    mod needs_fentry {
        use super::*;

        #[test]
        fn calls_on_an_address_space_are_reported_by_fentry() -> anyhow::Result<()> {
            need::require("bpf");
            need::require("fentry");
            all_hold(scenario::vm(&["--probes", "fentry"], 1_000)?);
            Ok(())
        }

        mod needs_kprobe {
            use super::*;

            #[test]
            fn every_way_tells_the_same_of_calls_on_an_address_space() -> anyhow::Result<()> {
                need::require("bpf");
                need::require("fentry");
                need::require("kprobe");
                all_hold(scenario::vm_ways(&["fentry", "kprobe", "syscalls"], 1_000)?);
                Ok(())
            }
        }
    }

    mod needs_kprobe {
        use super::*;

        #[test]
        fn calls_on_an_address_space_are_reported_by_kprobes() -> anyhow::Result<()> {
            need::require("bpf");
            need::require("kprobe");
            all_hold(scenario::vm(&["--probes", "kprobe"], 1_000)?);
            Ok(())
        }

        #[test]
        fn calls_that_kretprobes_miss_are_counted_or_said_to_be_unknown() -> anyhow::Result<()> {
            need::require("bpf");
            need::require("kprobe");
            all_hold(scenario::missed_by_kretprobes(64)?);
            Ok(())
        }
    }

    mod needs_memcg {
        use super::*;

        #[test]
        fn the_books_of_a_tree_of_every_kind_of_memory_close() -> anyhow::Result<()> {
            need::require("bpf");
            need::require("memcg");
            let words = ["--backend", "bpf", "--budget", "100"];
            all_hold(scenario::ledger(&words, 12, Settle::UntilRead)?);
            Ok(())
        }

        #[test]
        fn what_a_tree_holds_is_what_its_group_is_charged_within_the_stated_bound()
        -> anyhow::Result<()> {
            need::require("bpf");
            need::require("memcg");
            let words = ["--backend", "bpf", "--budget", "100"];
            let [within, known, lossless] = scenario::holdings(&words, 512 << 20)?;
            // The list of processes, the look at them and the taking of what was read are each half a
            // second apart; how they fall decides whether a look comes before all three.
            assert!(known.held * 20 >= known.cases * 19, "{known:?}");
            all_hold(vec![within, lossless]);
            Ok(())
        }

        #[test]
        fn what_a_command_holds_is_what_a_group_of_its_own_is_charged() -> anyhow::Result<()> {
            need::require("bpf");
            need::require("memcg");
            let workload = ["holdings", "--bytes", "128M", "--hold-ms", "2000"];
            all_hold(scenario::scope(BPF, &workload)?);
            Ok(())
        }

        #[test]
        fn the_books_of_a_sudden_peak_close() -> anyhow::Result<()> {
            need::require("bpf");
            need::require("memcg");
            all_hold(scenario::sudden(&["--backend", "bpf", "--budget", "100"])?);
            Ok(())
        }

        #[test]
        fn the_books_close_while_large_processes_come_and_go() -> anyhow::Result<()> {
            need::require("bpf");
            need::require("memcg");
            all_hold(scenario::mortal(BPF, 1 << 30, 3)?);
            Ok(())
        }

        #[test]
        fn an_oom_kill_in_the_recorders_own_cgroup_is_recorded() -> anyhow::Result<()> {
            need::require("bpf");
            need::require("memcg");
            all_hold(scenario::oom(BPF)?);
            Ok(())
        }

        #[test]
        fn the_culprit_of_an_oom_kill_is_named_where_it_is_not_the_victim() -> anyhow::Result<()> {
            need::require("bpf");
            need::require("memcg");
            all_hold(scenario::scapegoat(BPF)?);
            Ok(())
        }

        /// Kills whose cause is known.
        mod staged {
            use super::*;
            use scenario::Stage;

            fn stage(stage: Stage) -> anyhow::Result<()> {
                need::require("bpf");
                need::require("memcg");
                all_hold(scenario::staged(BPF, stage)?);
                Ok(())
            }

            #[test]
            fn of_one_that_grows_until_it_is_killed() -> anyhow::Result<()> {
                stage(Stage::Single)
            }

            #[test]
            fn of_one_that_grows_where_a_small_one_meets_the_limit() -> anyhow::Result<()> {
                stage(Stage::SmallTrigger)
            }

            #[test]
            fn of_a_spike_beside_a_leak() -> anyhow::Result<()> {
                stage(Stage::LeakBesideSpike)
            }

            #[test]
            fn of_a_file_of_a_tmpfs_that_nobody_maps() -> anyhow::Result<()> {
                stage(Stage::TmpfsWriter)
            }

            #[test]
            fn of_one_that_grows_where_another_was_offered() -> anyhow::Result<()> {
                stage(Stage::OfferedVictim)
            }

            #[test]
            fn of_children_that_write_to_what_they_inherited() -> anyhow::Result<()> {
                stage(Stage::CopyOnWrite)
            }

            #[test]
            fn of_one_that_grows_below_the_group_with_the_limit() -> anyhow::Result<()> {
                stage(Stage::ChildGroup)
            }

            #[test]
            fn of_one_that_grows_beside_the_recorder() -> anyhow::Result<()> {
                stage(Stage::RecorderInside)
            }

            #[test]
            fn of_the_root_of_the_tree() -> anyhow::Result<()> {
                stage(Stage::Root)
            }

            mod needs_disk {
                use super::*;

                #[test]
                fn of_one_that_grows_in_a_group_full_of_page_cache() -> anyhow::Result<()> {
                    need::require("disk");
                    stage(Stage::PageCache)
                }
            }
        }

        #[test]
        fn a_group_that_is_removed_while_it_is_recorded_is_no_failure() -> anyhow::Result<()> {
            need::require("bpf");
            need::require("memcg");
            all_hold(scenario::removed_group(BPF)?);
            Ok(())
        }

        mod needs_systemd {
            use super::*;

            #[test]
            fn the_command_of_a_session_gets_a_scope_beside_it() -> anyhow::Result<()> {
                need::require("bpf");
                need::require("memcg");
                need::require("systemd");
                let workload = ["holdings", "--bytes", "128M", "--hold-ms", "2000"];
                all_hold(scenario::scope(BPF, &workload)?);
                Ok(())
            }

            #[test]
            fn the_command_of_a_person_gets_a_scope_of_their_manager() -> anyhow::Result<()> {
                need::require("memcg");
                need::require("systemd");
                all_hold(scenario::scope_of_person()?);
                Ok(())
            }

            #[test]
            fn the_packages_service_sees_all_with_the_rights_that_its_unit_leaves()
            -> anyhow::Result<()> {
                need::require("bpf");
                need::require("systemd");
                all_hold(scenario::service()?);
                Ok(())
            }
        }

        mod needs_cgroup2 {
            use super::*;

            #[test]
            fn a_group_on_the_v2_hierarchy_tells_everything_up_to_the_kill() -> anyhow::Result<()> {
                need::require("bpf");
                need::require("memcg");
                need::require("cgroup2");
                all_hold(scenario::oom_on_v2(BPF)?);
                Ok(())
            }
        }
    }
}
