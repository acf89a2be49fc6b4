//! The report as a page: where it goes, and what opens it.

use super::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

fn recorded() -> Result<Recorded> {
    memtrace_tests::recorder::record(&["--quiet"], &shell("sleep 0.2"))
}

/// `report` with `script` for a browser. Gives what it said, and what the browser got.
fn opened(
    recorded: &Recorded,
    options: &[&str],
    script: &str,
) -> Result<(String, Option<PathBuf>)> {
    let dir = tempfile::tempdir()?;
    let browser = dir.path().join("browser");
    std::fs::write(&browser, format!("#!/bin/sh\n{script}\n"))?;
    std::fs::set_permissions(&browser, std::fs::Permissions::from_mode(0o755))?;
    let seen = dir.path().join("seen");
    let output = Command::new(program::memtrace()?)
        .arg("report")
        .arg(recorded.path())
        .args(options)
        .env("BROWSER", &browser)
        .env("SEEN", &seen)
        .env("PATH", dir.path())
        .env("TMPDIR", dir.path())
        .stdin(Stdio::null())
        .output()?;
    assert!(output.status.success(), "{}", words(&output));
    let page = std::fs::read_to_string(&seen).ok();
    let page = page.map(|page| PathBuf::from(page.trim()));
    if let Some(page) = &page {
        check(page)?;
        let mode = std::fs::metadata(page)?.mode() & 0o777;
        assert!(options.contains(&"-o") || mode == 0o600, "{mode:o}");
    }
    Ok((words(&output), page))
}

fn check(page: &Path) -> Result<()> {
    let html = std::fs::read_to_string(page)?;
    assert!(html.starts_with("<!DOCTYPE html>"));
    assert!(html.ends_with("</html>\n"));
    assert!(html.contains("default-src 'none'"));
    Ok(())
}

#[test]
fn a_page_goes_to_a_file_or_a_pipe_and_not_to_a_terminal() -> Result<()> {
    let recorded = recorded()?;
    let page = recorded.report_text(&["--format", "html"])?;
    assert!(page.contains("sleep 0.2"));
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("a.html");
    let shown = file.display().to_string();
    recorded.report_text(&["-f", "html", "-o", &shown])?;
    check(&file)?;
    let (ours, theirs) = pty::open(24, 80)?;
    let mut command = Command::new(program::memtrace()?);
    command.arg("report").arg(recorded.path());
    command
        .args(["-f", "html"])
        .stdout(theirs)
        .stdin(Stdio::null());
    let output = command.stderr(Stdio::piped()).spawn()?.wait_with_output()?;
    drop(ours);
    assert_eq!(output.status.code(), Some(1));
    let said = words(&output);
    assert!(
        said.contains("-o report.html") && said.contains("--open"),
        "{said}"
    );
    let refused = recorded.report_text(&["-f", "html", "--section", "roles"]);
    let refused = refused.expect_err("no page of a section").to_string();
    assert!(refused.contains("leave out --section roles"), "{refused}");
    Ok(())
}

#[test]
fn a_browser_gets_a_page_that_only_its_person_can_read() -> Result<()> {
    let recorded = recorded()?;
    let note = "echo \"$1\" > \"$SEEN\"";
    let (said, page) = opened(&recorded, &["--open"], note)?;
    let page = page.context("no browser was started")?;
    assert!(said.contains(&page.display().to_string()), "{said}");
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("mine.html");
    let shown = file.display().to_string();
    let (_, page) = opened(&recorded, &["--open", "-o", &shown], note)?;
    assert_eq!(page, Some(file));
    Ok(())
}

#[test]
fn where_no_browser_starts_the_place_of_the_page_is_said() -> Result<()> {
    let recorded = recorded()?;
    let (said, _) = opened(&recorded, &["--open"], "exit 3")?;
    assert!(said.contains("no browser could be started"), "{said}");
    assert!(said.contains(".html"), "{said}");
    Ok(())
}
