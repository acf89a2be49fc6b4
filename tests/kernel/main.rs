//! memtrace with real processes, held against workloads whose answers are known.
//!
//! Every test here needs the machine to offer something; see `memtrace_tests::need`.

use memtrace_tests::need;
use memtrace_tests::scenario::{self, Score};

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
    fn a_vforked_child_is_not_charged_its_parents_memory() -> anyhow::Result<()> {
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

    mod needs_memcg {
        use super::*;

        #[test]
        fn an_oom_kill_in_the_recorders_own_cgroup_is_recorded() -> anyhow::Result<()> {
            need::require("bpf");
            need::require("memcg");
            all_hold(scenario::oom(BPF)?);
            Ok(())
        }
    }
}
