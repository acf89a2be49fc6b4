//! `memtrace report ROOT`: one answer for recordings of many hosts.

use super::*;
use serde_json::Value;
use std::path::Path;

/// A recording of a shell that holds so much for a while.
fn recorded(bytes: u64) -> Result<Recorded> {
    let workload = program::workload()?;
    let spike = format!("spike --count 1 --hold-ms 400 --gap-ms 50 --bytes {bytes}");
    Recorder::of_command(&[], &shell(&format!("{} {spike}", workload.display())))?.wait()
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &to)?,
            false => drop(std::fs::copy(entry.path(), to)?),
        }
    }
    Ok(())
}

/// A run of two hosts, and an older run of one.
fn root() -> Result<tempfile::TempDir> {
    let root = tempfile::tempdir()?;
    let (small, large) = (recorded(32 << 20)?, recorded(96 << 20)?);
    for (place, of) in [
        ("run=4711/host=node1/rec=20261123T121913Z", &small),
        ("run=4711/host=node2/rec=20261123T121914Z", &large),
        ("run=old/host=node1/rec=20261122T121913Z", &small),
    ] {
        copy(&of.path(), &root.path().join(place))?;
    }
    Ok(root)
}

fn report(path: &Path, words: &[&str]) -> Result<Output> {
    let first = [OsStr::new("report"), path.as_os_str()];
    memtrace(first.into_iter().chain(words.iter().map(OsStr::new)))
}

fn json(output: &Output) -> Result<Value> {
    serde_json::from_slice(&output.stdout).with_context(|| words(output))
}

#[test]
fn the_newest_run_of_a_root_is_one_answer_and_parts_merge_to_the_same_bytes() -> Result<()> {
    let root = root()?;
    let whole = report(root.path(), &["-f", "json"])?;
    assert!(
        words(&whole).contains("--run names another: old"),
        "{}",
        words(&whole)
    );
    let reported = json(&whole)?;
    assert_eq!(
        (&reported["run"], &reported["host_count"]),
        (&"4711".into(), &2.into())
    );
    let hosts = reported["hosts"].as_array().context("hosts")?;
    let highest = |host: &str| {
        let line = hosts.iter().find(|line| line["host"] == host)?;
        line["peak_bytes"].as_i64()
    };
    assert!(highest("node2") >= Some(96 << 20), "{hosts:#?}");
    assert!(highest("node1") < highest("node2"), "{hosts:#?}");

    let lines = report(root.path(), &["--reduce"])?;
    assert_eq!(
        lines.stdout.iter().filter(|byte| **byte == b'\n').count(),
        2
    );
    let parts = root.path().join("parts");
    std::fs::write(&parts, &lines.stdout)?;
    let merged = memtrace([
        OsStr::new("report"),
        "-f".as_ref(),
        "json".as_ref(),
        "--merge".as_ref(),
        parts.as_ref(),
    ])?;
    assert_eq!(merged.stdout, whole.stdout, "{}", words(&merged));

    // What one recording adds is the same by itself.
    let one = root.path().join("run=4711/host=node1/rec=20261123T121913Z");
    let alone = report(&one, &["--reduce"])?;
    assert!(lines.stdout.starts_with(&alone.stdout), "{}", words(&alone));
    Ok(())
}

#[test]
fn a_run_a_host_and_what_is_expected_can_be_named() -> Result<()> {
    let root = root()?;
    for (path, words) in [
        ("", &["--run", "old"][..]),
        ("run=old", &[]),
        ("run=old/host=node1", &[]),
    ] {
        let reported = report(&root.path().join(path), &[words, &["-f", "json"]].concat())?;
        let reported = json(&reported)?;
        assert_eq!(
            (&reported["run"], &reported["host_count"]),
            (&"old".into(), &1.into()),
            "{path}"
        );
    }
    let narrow = json(&report(root.path(), &["--host", "node2", "-f", "json"])?)?;
    assert_eq!(narrow["hosts"][0]["host"], "node2");
    assert_eq!(narrow["host_count"], 1);
    let reported = report(root.path(), &["--expect-hosts", "node[1-3]"])?;
    let text = String::from_utf8_lossy(&reported.stdout).into_owned();
    assert!(
        text.contains("1 of 3 expected hosts has no recording: node3"),
        "{text}"
    );
    let csv = report(root.path(), &["-f", "csv", "--section", "roles"])?;
    let csv = String::from_utf8_lossy(&csv.stdout).into_owned();
    assert!(csv.starts_with("role,hosts,processes,"), "{csv}");
    Ok(())
}

#[test]
fn what_can_not_be_read_is_reported_and_the_rest_is_used() -> Result<()> {
    let root = root()?;
    let broken = root.path().join("run=4711/host=node3/rec=20261123T121915Z");
    std::fs::create_dir_all(&broken)?;
    std::fs::write(broken.join("run.json"), "{}")?;
    let link = root.path().join("run=4711/host=node4");
    std::os::unix::fs::symlink(root.path().join("run=4711/host=node1"), link)?;
    let whole = report(root.path(), &["-f", "json"])?;
    let reported = json(&whole)?;
    assert_eq!(reported["host_count"], 2);
    let problems = reported["problems"].as_array().context("problems")?;
    assert_eq!(problems.len(), 2, "{problems:#?}");
    assert!(
        problems.iter().any(|one| one["host"] == "node3"),
        "{problems:#?}"
    );
    assert!(problems.iter().any(|one| {
        one["text"]
            .as_str()
            .is_some_and(|text| text.contains("link"))
    }));

    // Also in lines, and in the line of that recording by itself.
    let lines = report(root.path(), &["--reduce"])?;
    let parts = root.path().join("parts");
    std::fs::write(&parts, &lines.stdout)?;
    let words_of_merge = ["report", "-f", "json", "--merge"].map(OsStr::new);
    let merged = memtrace(words_of_merge.into_iter().chain([parts.as_ref()]))?;
    assert_eq!(merged.stdout, whole.stdout, "{}", words(&merged));
    assert_eq!(merged.status.code(), Some(0));
    let words_of_merge = ["report", "--strict", "--merge"].map(OsStr::new);
    let strict = memtrace(words_of_merge.into_iter().chain([parts.as_ref()]))?;
    assert_eq!(strict.status.code(), Some(4), "{}", words(&strict));
    assert!(words(&strict).contains("host=node3"), "{}", words(&strict));
    let alone = report(&broken, &["--reduce"])?;
    assert!(!alone.status.success(), "{}", words(&alone));
    let all = String::from_utf8_lossy(&lines.stdout).into_owned();
    let line = String::from_utf8_lossy(&alone.stdout).into_owned();
    assert!(!line.is_empty() && all.contains(&line), "{all}\n{line}");
    Ok(())
}

#[test]
fn a_run_of_which_nothing_can_be_listed_says_why() -> Result<()> {
    let root = tempfile::tempdir()?;
    std::fs::create_dir_all(root.path().join("run=4711"))?;
    let link = root.path().join("run=4711/host=node1");
    std::os::unix::fs::symlink(root.path(), link)?;
    let reported = report(root.path(), &[])?;
    let reported = words(&reported);
    assert!(
        reported.contains("link") && reported.contains("node1"),
        "{reported}"
    );
    Ok(())
}

#[test]
fn options_of_one_recording_and_of_a_root_are_refused_where_they_mean_nothing() -> Result<()> {
    let root = root()?;
    let one = root.path().join("run=old/host=node1/rec=20261122T121913Z");
    for (path, options, says) in [
        (
            root.path(),
            &["--at", "peak"][..],
            "--at is for one recording",
        ),
        (root.path(), &["--steps"], "--steps is for one recording"),
        (
            root.path(),
            &["-f", "html", "--section", "hosts"],
            "leave out --section hosts",
        ),
        (
            root.path(),
            &["--run", "4712"],
            "has no run 4712; it has 4711, old",
        ),
        (
            root.path(),
            &["--host", "node7"],
            "no recording of a host node7",
        ),
        (
            root.path(),
            &["--expect-hosts", "node["],
            "can't be understood",
        ),
        (
            &one,
            &["--host", "node1"],
            "--host is for the recordings of many hosts",
        ),
        (
            &one,
            &["--section", "hosts"],
            "the section hosts belongs to a run of many hosts",
        ),
    ] {
        let refused = report(path, options)?;
        assert_eq!(refused.status.code(), Some(1), "{options:?}");
        assert!(
            words(&refused).contains(says),
            "{options:?}: {}",
            words(&refused)
        );
    }
    let parts = root.path().join("parts");
    std::fs::write(&parts, "{\"format\":\"memtrace-report\",\"version\":2}\n")?;
    let refused = memtrace([OsStr::new("report"), "--merge".as_ref(), parts.as_ref()])?;
    assert!(words(&refused).contains("line 1 of"), "{}", words(&refused));
    Ok(())
}

#[test]
fn the_page_of_a_run_and_the_next_command_name_what_is_there() -> Result<()> {
    let root = root()?;
    let reported = report(root.path(), &["--run", "4711"])?;
    let text = String::from_utf8_lossy(&reported.stdout).into_owned();
    let place = root.path().join("run=4711/host=");
    let next = format!("memtrace report {}", place.display());
    assert!(text.contains(&next), "{text}");
    // As it was named: from within the run too.
    let mut inside = Command::new(program::memtrace()?);
    inside
        .arg("report")
        .current_dir(root.path().join("run=4711"));
    let inside = inside.stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&inside.stdout).into_owned();
    let next = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("memtrace report "));
    let next = next.with_context(|| text.clone())?;
    assert!(root.path().join("run=4711").join(next).is_dir(), "{text}");

    let page = root.path().join("page.html");
    let shown = page.display().to_string();
    let made = report(root.path(), &["--run", "4711", "-f", "html", "-o", &shown])?;
    assert!(made.status.success(), "{}", words(&made));
    let html = std::fs::read_to_string(&page)?;
    assert!(html.starts_with("<!DOCTYPE html>") && html.contains("memtrace: run 4711"));
    Ok(())
}

#[test]
fn sections_are_those_of_what_is_asked_for() -> Result<()> {
    let root = root()?;
    let one = root.path().join("run=old/host=node1/rec=20261122T121913Z");
    for (path, is_run) in [(root.path(), true), (&*one, false)] {
        let listed = report(path, &["--list-sections"])?;
        let listed = String::from_utf8(listed.stdout)?;
        let names: Vec<&str> = (listed.lines())
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        assert_eq!(names.contains(&"outliers"), is_run, "{listed}");
        assert_eq!(names.contains(&"survivors"), !is_run, "{listed}");
        let refused = report(path, &["--section", "sections"])?;
        assert_eq!(refused.status.code(), Some(2), "{}", words(&refused));
        let said = words(&refused);
        assert!(
            said.contains("has no section sections") && said.contains(&names.join(", ")),
            "{said}"
        );
    }
    Ok(())
}
