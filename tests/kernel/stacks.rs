//! Samples of growth, against a program that knows what it holds.

use memtrace_tests::allocations::mib;
use serde_json::Value;

/// What a line touched whose page is known: not where another thread's page fault came between.
fn mib_known(site: &Value) -> f64 {
    let known = mib(site, "grown_bytes") - mib(site, "unknown_bytes");
    assert!(known >= 0.5 * mib(site, "grown_bytes"), "{site}");
    known
}

mod needs_bpf {
    use super::mib_known;
    use anyhow::{Context, Result};
    use memtrace_tests::allocations::{mib, site};
    use memtrace_tests::recorder::record;
    use memtrace_tests::{need, workload};

    #[test]
    fn a_native_leak_is_named_and_what_was_given_back_is_not_resident() -> Result<()> {
        need::require("bpf");
        // Before 6.2 a thread holds back what its last 64 faults brought, which another place then hands in.
        let command = workload::command(&["sites", "--bytes", "4194304", "--rounds", "24"])?;
        let recorded = record(&["--stacks"], &command)?;
        let report = recorded.report(&[])?;
        let kept = site(&report, "grow_and_keep")?;
        let given_back = site(&report, "grow_and_give_back")?;
        // 24 times 4 MiB, each, of which one sample in some 2 MiB is drawn.
        for one in [kept, given_back] {
            let grown = mib(one, "grown_bytes");
            let error = mib(one, "grown_error_bytes").max(14.0);
            assert!((grown - 96.0).abs() <= 4.0 * error, "{one}");
        }
        assert!(
            mib(kept, "resident_bytes") > 0.95 * mib_known(kept),
            "{kept}"
        );
        assert!(mib(given_back, "resident_bytes") <= 8.0, "{given_back}");
        // All samples of the process are all that it touched, which is little beside these.
        let process = &report["allocations"][0];
        let (all, error) = (
            mib(process, "grown_bytes"),
            mib(process, "grown_error_bytes"),
        );
        assert!((all - 192.0).abs() <= 4.0 * error + 4.0, "{process}");
        let unnamed = mib(process, "unnamed_bytes");
        assert!(unnamed <= 0.1 * mib(process, "resident_bytes"), "{process}");
        Ok(())
    }

    /// It was held for a fraction of the time between two rows, and half of it after that.
    #[test]
    fn the_peak_is_named_also_where_all_of_it_was_given_back() -> Result<()> {
        need::require("bpf");
        let command = workload::command(&["sites", "--rounds", "6", "--peak", "402653184"])?;
        let recorded = record(&["--stacks"], &command)?;
        let report = recorded.report(&[])?;
        let held = &report["held_by_line"];
        let first = &held["lines"][0];
        let frames = first["stack"].as_array().context("no stack")?;
        let mut names = frames.iter().filter_map(|one| one["function"].as_str());
        assert!(
            names.any(|name| name.contains("hold_for_a_moment")),
            "{first}"
        );
        let (all, error) = (
            mib(first, "not_returned_bytes"),
            mib(first, "not_returned_error_bytes").max(20.0),
        );
        assert!((all - 384.0).abs() <= 4.0 * error, "{held}");
        let most = mib(&report["peak"], "held_at_most_bytes");
        assert!(
            mib(held, "not_returned_bytes") <= most + 1.0,
            "{most} MiB: {held}"
        );
        let text = recorded.report_text(&["--at", "peak"])?;
        assert!(text.contains("all processes together"), "{text}");
        Ok(())
    }

    /// Linux 6.0: anon_vma.num_active_vmas.
    #[test]
    fn copies_of_what_a_fork_shares_are_named_and_counted_once() -> Result<()> {
        need::require("bpf");
        let command = workload::command(&["sites", "--rounds", "0", "--inherited", "100663296"])?;
        let recorded = record(&["--stacks"], &command)?;
        let report = recorded.report(&[])?;
        let grown = |function| site(&report, function).map(|one| mib(one, "grown_bytes"));
        // Also what was read first, and what the child that is left alone touches anew.
        for function in ["write_to_shared", "read_and_write_to_empty", "grow_alone"] {
            let one = site(&report, function)?;
            let error = mib(one, "grown_error_bytes").max(10.0);
            assert!((grown(function)? - 96.0).abs() <= 4.0 * error, "{one}");
            let resident = mib(one, "resident_bytes");
            assert!(resident > 0.95 * mib_known(one), "{one}");
            let copied = if function == "write_to_shared" {
                resident
            } else {
                0.0
            };
            assert!((mib(one, "copied_bytes") - copied).abs() < 1.0, "{one}");
        }
        // Nobody else had it, so that nothing was copied.
        for function in ["write_to_own", "write_to_empty_again"] {
            let written = grown(function).unwrap_or(0.0);
            assert!(written <= 4.0, "{function}: {written} MiB");
        }
        Ok(())
    }

    mod needs_parts {
        use anyhow::Result;
        use memtrace_tests::allocations::{mib, site};
        use memtrace_tests::recorder::record;
        use memtrace_tests::{need, workload};

        /// Whether what samples say of functions is within four standard errors of what is so in MiB; a function's
        /// error is no less than a part of that.
        fn are_known(flags: &[&str], key: &str, truth: &[(&str, f64)], least: f64) -> Result<()> {
            need::require("bpf");
            need::require("parts");
            let command = workload::command(&[&["sites", "--rounds", "0"], flags].concat())?;
            let report = record(&["--stacks"], &command)?.report(&[])?;
            for (function, all) in truth {
                let one = site(&report, function)?;
                let sampled = mib(one, key);
                let error = mib(one, "grown_error_bytes").max(least * all);
                assert!(error < 0.6 * all, "{one}");
                assert!((sampled - all).abs() <= 4.0 * error, "{one}");
                assert!(sampled >= 0.2 * all, "{one}");
            }
            Ok(())
        }

        /// Counters are handed in when a large buffer goes, so that what is kept beside it lies at the same place of
        /// each batch.
        #[test]
        fn what_is_kept_in_step_with_a_large_buffer_is_not_missed() -> Result<()> {
            // 300 times 16 pages by each: of some 48 samples a second a tenth, in nine seconds.
            let held = 300.0 / 16.0;
            let truth = [("keep_before_buffer", held), ("keep_within_buffer", held)];
            are_known(&["--requests", "300"], "resident_bytes", &truth, 0.2)
        }

        /// A huge page is handed in together with what other pages left in the counter, and system calls fill memory
        /// with page faults and without.
        #[test]
        fn huge_pages_and_what_system_calls_fill_are_sampled_once() -> Result<()> {
            let truth = [
                ("keep_a_huge_page", 120.0),
                ("keep_what_is_read", 15.0),
                ("keep_what_is_populated", 15.0),
            ];
            are_known(&["--ways", "60"], "grown_bytes", &truth, 0.05)
        }
    }
}
