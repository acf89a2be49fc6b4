//! `memtrace report` by the options that say what to look at.

use super::*;

/// A recording of a script that marks phases.
fn recorded() -> Result<Recorded> {
    let script = format!(
        "for phase in step_3_rollout step_3_train 'a*b' other; do \
           for end in --begin --end; do \"{}\" mark -q \"$phase\" $end; sleep 0.05; done; \
         done",
        program::memtrace()?.display()
    );
    memtrace_tests::recorder::record(&["--quiet"], &shell(&script))
}

#[test]
fn a_pattern_of_phases_shows_each_and_what_changed_over_all_of_them() -> Result<()> {
    let recorded = recorded()?;
    let names = |pattern: &str| -> Result<Vec<String>> {
        let report = recorded.report(&["--phase", pattern])?;
        let phases = report["phase"]["phases"].as_array().context("phases")?;
        let names = phases.iter().filter_map(|phase| phase["name"].as_str());
        Ok(names.map(str::to_owned).collect())
    };
    assert_eq!(names("step_3_*")?, ["step_3_rollout", "step_3_train"]);
    assert_eq!(names("*tr?in")?, ["step_3_train"]);
    assert_eq!(names("*")?.len(), 4);
    // The name itself comes first.
    assert_eq!(names("a*b")?, ["a*b"]);
    let text = recorded.report_text(&["--phase", "step_3_*"])?;
    assert!(text.contains("Phase step_3_*: 2 times from "), "{text}");
    let refused = recorded.report_text(&["--phase", "step_4_*"]);
    let refused = refused.expect_err("no such phase").to_string();
    assert!(
        refused.contains(r#"no phase "step_4_*"; it has "a*b""#),
        "{refused}"
    );
    Ok(())
}

#[test]
fn a_window_is_shown_as_a_phase_that_lies_there() -> Result<()> {
    let recorded = recorded()?;
    let phase = &recorded.report(&["--phase", "step_3_train"])?["phase"];
    let at = |end: &str| -> Result<String> {
        let offset = phase[end]["offset_ns"].as_i64().context("an offset")?;
        Ok(format!(
            "+{}.{:09}s",
            offset / 1_000_000_000,
            offset % 1_000_000_000
        ))
    };
    let (from, to) = (at("begin")?, at("end")?);
    let words = ["--from", &from, "--to", &to];
    let window = &recorded.report(&words)?["phase"];
    assert_eq!(window["name"], "window");
    for key in ["begin", "end", "tree", "roles", "holders", "page_cache"] {
        assert_eq!(window[key], phase[key], "{key}");
    }
    let text = recorded.report_text(&words)?;
    assert!(text.contains("Window: from "), "{text}");
    for half in [&["--from", &*from][..], &["--to", &*to]] {
        recorded.report_text(half)?;
    }
    let whole = recorded.report(&[])?;
    let window = recorded.report(&words)?;
    assert_eq!(window["phases"]["count"], whole["phases"]["count"]);
    for (wrong, said) in [
        (["--from", "+9h"], "after the recording"),
        (["--to", "peak"], "`--at peak` shows when"),
    ] {
        let refused = recorded.report_text(&wrong).expect_err("no window");
        let refused = format!("{refused:#}");
        assert!(
            refused.contains("the window of --from and --to"),
            "{refused}"
        );
        assert!(refused.contains(said), "{refused}");
    }
    Ok(())
}

#[test]
fn times_are_local_where_that_is_asked_for_and_name_their_offset() -> Result<()> {
    let recorded = recorded()?;
    let report = |words: &[&str]| {
        let mut command = Command::new(program::memtrace()?);
        command.arg("report").arg(recorded.path()).args(words);
        let output = command
            .env("TZ", "<+05>-5:30")
            .env("COLUMNS", "10000")
            .output()?;
        let text = String::from_utf8(output.stdout.clone())?;
        Ok::<_, anyhow::Error>((output, text))
    };
    let (_, utc) = report(&[])?;
    assert!(utc.contains(" UTC") && !utc.contains("+05:30"), "{utc}");
    let (_, local) = report(&["--local-time"])?;
    assert!(
        local.contains(" +05:30") && !local.contains(" UTC"),
        "{local}"
    );
    // A time of day that was copied from there is understood there.
    let shown = local.split(" +05:30").next().context("a time")?;
    let time = shown.split_whitespace().last().context("a time")?;
    let (output, text) = report(&["--local-time", "--at", time])?;
    assert!(output.status.success(), "{}", words(&output));
    assert!(text.contains("+05:30"), "{text}");
    let (output, _) = report(&["--at", time])?;
    assert_eq!(output.status.code(), Some(1));
    assert!(
        words(&output).contains("times of day are UTC without --local-time"),
        "{}",
        words(&output)
    );
    Ok(())
}

#[test]
fn a_time_that_is_none_is_refused_with_what_would_do() -> Result<()> {
    for wrong in ["+3x", "noon", "3s"] {
        let output = memtrace(["report", "--at", wrong, "no-such-recording"])?;
        let text = words(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        for form in [
            "peak",
            "+83.2s",
            "+1h02m",
            "12:03:07",
            "2026-03-01T12:03:07Z",
        ] {
            assert!(text.contains(&format!("`{form}`")), "{text}");
        }
    }
    Ok(())
}

#[test]
fn the_exit_status_stands_in_the_help_of_report_record_and_diff() -> Result<()> {
    for (command, codes) in [
        ("report", &["0, even if", "1 if", "2 on"][..]),
        (
            "record",
            &["128 + n", "127 if", "126 if", "1 after", "2 on"],
        ),
        ("diff", &["3 with", "1 after", "2 on"]),
    ] {
        let help = String::from_utf8(memtrace([command, "--help"])?.stdout)?;
        let words: Vec<&str> = help.split_whitespace().collect();
        let text = words.join(" ");
        let (_, status) = text.split_once("Exit status:").context("exit status")?;
        for code in codes {
            assert!(status.contains(code), "{command}: {code}: {status}");
        }
    }
    Ok(())
}

/// A recording that is kept.
fn kept() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("recordings/2.7/recording")
}

#[test]
fn in_a_pipe_of_a_narrow_terminal_text_fits_the_terminal_and_a_file_does_not_depend_on_it()
-> Result<()> {
    let widest = |columns, out: Stdio| -> Result<Option<usize>> {
        let (_ours, theirs) = pty::open(24, columns)?;
        let mut command = Command::new(program::memtrace()?);
        command.arg("report").arg(kept()).env_remove("COLUMNS");
        let output = command
            .stdout(out)
            .stderr(theirs)
            .spawn()?
            .wait_with_output()?;
        let text = String::from_utf8(output.stdout)?;
        Ok(text.lines().map(|line| line.chars().count()).max())
    };
    let narrow = widest(80, Stdio::piped())?;
    assert!(
        narrow.is_some_and(|widest| (70..=80).contains(&widest)),
        "{narrow:?}"
    );
    let wide = widest(300, Stdio::piped())?;
    assert!(
        wide.is_some_and(|widest| (90..=100).contains(&widest)),
        "{wide:?}"
    );
    let file = tempfile::NamedTempFile::new()?;
    assert_eq!(widest(80, Stdio::from(file.reopen()?))?, None);
    let text = std::fs::read_to_string(file.path())?;
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert_eq!(widest, wide);
    Ok(())
}

#[test]
fn how_to_read_a_ledger_is_explained() -> Result<()> {
    let mut command = Command::new(program::memtrace()?);
    command.arg("report").arg(kept()).arg("--explain");
    let text = String::from_utf8(command.output()?.stdout)?;
    let (_, how) = text
        .split_once("How to read it")
        .context("an explanation")?;
    for word in ["Ledger: ", "\"kernel's sum\" under KNOWN", "Residual is"] {
        assert!(
            how.split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
                .contains(word),
            "{how}"
        );
    }
    Ok(())
}
