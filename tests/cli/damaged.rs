//! A recording that is not whole: whatever is asked of it, what is missing is said.

use super::*;
use memtrace_tests::beside::beside;
use memtrace_tests::program::workload;
use std::path::{Path, PathBuf};

/// What is asked of the recording that stands for `@`; `+` stands for a folder to write to.
const VIEWS: &[&str] = &[
    "report @",
    "report @ --full",
    "report @ --tree",
    "report @ --at peak",
    "report @ --at +0.3s -f json",
    "report @ --steps",
    "report @ --steps -f csv",
    "report @ --phase step_*",
    "report @ --from +0.1s --to +0.6s",
    "report @ --from +0.1s --to +0.6s -f csv",
    "report @ --process memtrace-workload",
    "report @ --style startup",
    "report @ --top 1",
    "report @ --local-time",
    "report @ -f md",
    "report @ -f json",
    "report @ -f csv",
    "report @ -f html -o +page.html",
    "report @ -o +report.txt",
    "report @ --reduce",
    "diff @ @",
    "diff @ @ -f json",
    "diff @ @ --fail-above 5%",
    "diff @ @ -f html -o +diff.html",
    "export @ --force -o +",
    "export @ --force --to csv --interval 100ms -o +",
    "export @ --force --to jsonl -o +",
    "export @ --force --to summary -o +",
    "export @ --force --to gpu -o +",
    "export @ --force --to perfetto -o +",
    "top -r @ --once",
    "top -r @ --once --view processes",
];

/// Sections that need no option of their own.
fn sections() -> Result<Vec<String>> {
    let listed = String::from_utf8(memtrace(["report", "--list-sections"])?.stdout)?;
    let names = listed.lines().filter_map(|line| line.split(' ').next());
    let names = names.filter(|name| !["at", "phase", "process"].contains(name));
    Ok(names.map(str::to_owned).collect())
}

/// The answer of a view: what it wrote anywhere, what it said, and its status.
struct Answer {
    written: Vec<(PathBuf, Vec<u8>)>,
    said: String,
    status: Option<i32>,
}

fn ask(view: &str, recording: &Path, options: &[&str]) -> Result<Answer> {
    let folder = tempfile::tempdir()?;
    let words = view.split(' ').map(|word| match word.strip_prefix('+') {
        Some("") => folder.path().display().to_string(),
        Some(name) if name.contains(".html") || name.contains(".txt") => {
            folder.path().join(name).display().to_string()
        }
        _ if word == "@" => recording.display().to_string(),
        _ => word.to_owned(),
    });
    let options = options.iter().map(|option| (*option).to_owned());
    let output = memtrace(words.chain(options))?;
    let mut written = vec![(PathBuf::new(), output.stdout)];
    for entry in std::fs::read_dir(folder.path())? {
        let path = entry?.path();
        let bytes = std::fs::read(&path)?;
        written.push((path.file_name().context("a name")?.into(), bytes));
    }
    written.sort();
    Ok(Answer {
        written,
        said: String::from_utf8_lossy(&output.stderr).into_owned(),
        status: output.status.code(),
    })
}

fn part_of(recording: &Path, table: &str) -> Result<PathBuf> {
    let mut parts = std::fs::read_dir(recording.join(table))?;
    Ok(parts.next().context("no part")??.path())
}

#[test]
fn no_view_of_a_recording_that_is_not_whole_is_silent() -> Result<()> {
    let script = format!(
        "for n in 1 2 3; do {} mark step_$n; {} spike --count 1 --hold-ms 150 --bytes 64M; done",
        program::memtrace()?.display(),
        workload()?.display()
    );
    let recorded = Recorder::of_command(&[], &shell(&script))?.wait()?;
    let recording = recorded.path();
    let of_sections = sections()?;
    let of_sections = of_sections
        .iter()
        .map(|name| format!("report @ --section {name}"));
    let views: Vec<String> = VIEWS
        .iter()
        .map(|view| (*view).to_owned())
        .chain(of_sections)
        .collect();
    let whole = beside(&views, |view| ask(view, &recording, &["--strict"]))?;
    for (view, answer) in views.iter().zip(&whole) {
        assert_eq!(answer.status, Some(0), "{view}: {}", answer.said);
        assert!(!answer.said.contains(".parquet"), "{view}: {}", answer.said);
    }
    for (table, is_deleted) in [
        ("mem", false),
        ("mem", true),
        ("process", false),
        ("cgroup_mem", true),
    ] {
        let part = part_of(&recording, table)?;
        let bytes = std::fs::read(&part)?;
        if is_deleted {
            std::fs::remove_file(&part)?;
        } else {
            let mut damaged = bytes.clone();
            // Within the rows, which begin after the four letters of the format.
            damaged[bytes.len() / 4] ^= 0x10;
            std::fs::write(&part, damaged)?;
        }
        let answers = beside(&views, |view| {
            let told = ask(view, &recording, &[])?;
            Ok((told, ask(view, &recording, &["--strict"])?))
        })?;
        for ((view, before), (told, strict)) in views.iter().zip(&whole).zip(answers) {
            let case = format!("{view}, {table} deleted {is_deleted}: {}", told.said);
            let is_said = told.said.lines().any(|line| {
                line.starts_with(&format!("memtrace: {table}"))
                    || line.contains(&format!(": {table}"))
            });
            assert!(is_said || told.written == before.written, "{case}");
            // What can't be answered any more is an error, and said too.
            let expected = match told.status {
                Some(0) if is_said => Some(4),
                status => status,
            };
            assert_eq!(strict.status, expected, "{case}");
        }
        std::fs::write(&part, bytes)?;
    }
    Ok(())
}
