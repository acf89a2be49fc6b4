//! Samples of growth, against a program that knows what it holds.

mod needs_bpf {
    use anyhow::Result;
    use memtrace_tests::allocations::{mib, site};
    use memtrace_tests::recorder::record;
    use memtrace_tests::{need, workload};

    #[test]
    fn a_native_leak_is_named_and_what_was_given_back_is_not_resident() -> Result<()> {
        need::require("bpf");
        let command = workload::command(&["sites"])?;
        let recorded = record(&["--stacks"], &command)?;
        let report = recorded.report(&[])?;
        let kept = site(&report, "grow_and_keep")?;
        let given_back = site(&report, "grow_and_give_back")?;
        // 96 times 512 KiB, each, of which one sample in some 2 MiB is drawn.
        for one in [kept, given_back] {
            let grown = mib(one, "grown_bytes");
            let error = mib(one, "grown_error_bytes").max(10.0);
            assert!((grown - 48.0).abs() <= 4.0 * error, "{one}");
        }
        let resident = mib(kept, "resident_bytes") / mib(kept, "grown_bytes");
        assert!(resident > 0.95, "{kept}");
        assert!(mib(given_back, "resident_bytes") <= 4.0, "{given_back}");
        Ok(())
    }

    #[test]
    fn what_malloc_keeps_free_is_not_called_live() -> Result<()> {
        need::require("bpf");
        let command = workload::command(&["sites", "--rounds", "0", "--in-heap", "500"])?;
        let recorded = record(&["--stacks"], &command)?;
        let report = recorded.report(&[])?;
        // 500 blocks of 96 KiB each; the page that two of them share is of who touches it first. Of some
        // 45 samples a tenth are of such pages, give or take four in a hundred.
        for (function, key, other) in [
            ("grow_in_heap_and_keep", "live_bytes", "kept_bytes"),
            ("grow_in_heap_and_free", "kept_bytes", "live_bytes"),
        ] {
            let one = site(&report, function)?;
            let resident = mib(one, "resident_bytes");
            assert!(resident >= 20.0, "{one}");
            assert!(mib(one, key) >= 0.7 * resident, "{one}");
            assert!(mib(one, other) <= 0.3 * resident, "{one}");
        }
        let text = recorded.report_text(&[])?;
        assert!(text.contains("kept free by malloc"), "{text}");
        let text = recorded.report_text(&["--process", "sites"])?;
        assert!(text.contains("Who allocated it"), "{text}");
        Ok(())
    }
}
