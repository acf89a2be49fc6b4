//! Reads one recording and finds what there is to tell of it, and saves that where it is asked for.

use super::recorded::{Rows, open, zone};
use anyhow::{Context, bail};
use memtrace_analyze::Moment;
use memtrace_model::Finding;
use memtrace_report::{Format, visible};
use memtrace_store::{FindingsWriter, Problem, ProblemKind, Recordings};
use std::path::Path;

/// What is asked of a recording beside what is always reported.
#[derive(Default)]
pub(super) struct Wanted {
    pub(super) at: Option<Moment>,
    pub(super) phase: Option<String>,
    pub(super) process: Option<String>,
    pub(super) from: Option<Moment>,
    pub(super) to: Option<Moment>,
    /// Whether wall-clock times are those of the reader's time zone, and not UTC.
    pub(super) is_local: bool,
    /// Whether findings are saved as tables.
    pub(super) saves: bool,
    /// Whether findings are saved and nothing is shown.
    pub(super) only_saves: bool,
    /// Whether each marked phase is reported by itself.
    pub(super) is_unfolded: bool,
    /// Whether memory over time is wanted.
    pub(super) has_curves: bool,
    /// Whether lines of machine code are wanted.
    pub(super) has_source_lines: bool,
}

impl Wanted {
    /// What a format needs.
    pub(super) fn by(format: &Format) -> Self {
        Self {
            has_curves: format.is_page,
            ..Self::default()
        }
    }
}

/// Saves what is found as tables beside a recording.
pub(super) fn save_findings(recordings: &Recordings, dir: &Path) -> anyhow::Result<()> {
    let wanted = Wanted {
        saves: true,
        only_saves: true,
        ..Wanted::default()
    };
    analyzed(recordings, dir, wanted).map(drop)
}

pub(super) fn analyzed(
    recordings: &Recordings,
    dir: &Path,
    wanted: Wanted,
) -> anyhow::Result<memtrace_analyze::Report> {
    let (recording, last_boot_ns) = open(recordings, dir)?;
    let shown = dir.display().to_string();
    let shown = visible(&shown);
    let doing = || format!("failed to read the recording {shown}");
    let options = memtrace_analyze::Options {
        at: wanted.at,
        instants: Vec::new(),
        phase: wanted.phase,
        process: wanted.process,
        from: wanted.from,
        to: wanted.to,
        is_unfolded: wanted.is_unfolded,
        has_curves: wanted.has_curves,
        has_bins: false,
        has_source_lines: wanted.has_source_lines,
        only_saves: wanted.only_saves,
        zone: zone(wanted.is_local),
        path: Some(dir.display().to_string()),
        is_live: recording.is_live(),
        is_open: recording.is_open(),
        last_boot_ns,
    };
    let saving = "failed to save phases and roles as tables";
    let mut writer = wanted
        .saves
        .then(|| FindingsWriter::create(&recording))
        .transpose()
        .context(saving)?;
    let mut append = writer.as_mut().map(|writer| |row| writer.append(&row));
    let save = append
        .as_mut()
        .map(|append| append as &mut dyn FnMut(Finding));
    let report = memtrace_analyze::analyze_into(recording.info(), &Rows(&recording), options, save);
    let mut report = match report {
        Err(memtrace_analyze::AnalyzeError::Moment(error)) => {
            return Err(error).context("--at can't be answered");
        }
        Err(memtrace_analyze::AnalyzeError::Window(error)) => {
            return Err(error).context("the window of --from and --to can't be shown");
        }
        Err(memtrace_analyze::AnalyzeError::Phase(error)) => {
            return Err(error).context("those phases can't be shown");
        }
        Err(memtrace_analyze::AnalyzeError::Process(error)) => {
            return Err(error).context("--process can't be answered");
        }
        analyzed => analyzed.with_context(doing)?,
    };
    // Damage shows only while reading.
    let problems = recording.problems();
    if let Some(writer) = writer {
        check_whole(&problems, &shown).context(saving)?;
        writer.finish().context(saving)?;
    }
    report.analysis.problems = problems.iter().map(ToString::to_string).collect();
    Ok(report)
}

/// That no damage makes findings poorer than those that were saved before. What was put aside
/// when the recording was closed has been missing since then, and nothing brings it back.
fn check_whole(problems: &[Problem], shown: &str) -> anyhow::Result<()> {
    let problems = problems
        .iter()
        .filter(|problem| problem.kind != ProblemKind::PutAside);
    let damage: Vec<String> = problems.map(ToString::to_string).collect();
    let Some(first) = damage.first() else {
        return Ok(());
    };
    let others = match damage.len() - 1 {
        0 => String::new(),
        count => format!("; and {count} more"),
    };
    bail!(
        "the recording is damaged ({first}{others}), and tables that were there stay as they are; \
         restore it, or see what is left of it with: memtrace report {shown}"
    );
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use memtrace_analyze::{HostPart, Options, Place};
    use memtrace_golden::{JOBS, Member, RUNS, measured_by_itself};
    use memtrace_model::{FINDINGS, RunState};
    use memtrace_report::{FORMATS, Style};
    use memtrace_store::{Writer, recover};
    use std::path::PathBuf;

    fn at(at: Option<Moment>) -> Wanted {
        Wanted {
            at,
            ..Wanted::default()
        }
    }

    fn with_findings_saved() -> Wanted {
        Wanted {
            saves: true,
            ..Wanted::default()
        }
    }

    fn reported(report: &memtrace_analyze::Report) -> String {
        written(report, &FORMATS[0])
    }

    fn written(report: &memtrace_analyze::Report, format: &Format) -> String {
        let mut out = Vec::new();
        format
            .write(&mut report.clone(), &Style::default(), &mut out)
            .expect("a Vec takes it");
        String::from_utf8(out).expect("a report is UTF-8")
    }

    /// Writes a run as a recorder would, its rows up to two seconds late; one that was cut off
    /// stays unclosed.
    pub(in crate::cli) fn store(dir: &Path, script: fn() -> memtrace_golden::Script) {
        let (info, rows, _) = script().recorded();
        let rows = rows.arrived(|time| time / 1_000 * 7_919 % 2_000_000_000);
        let mut writer = Writer::create(dir, &info).expect("a new recording");
        for record in &rows.0 {
            writer.append(record).expect("a row");
        }
        if info.state == RunState::Closed {
            writer.finish(info).expect("a closed recording");
        } else {
            writer.flush().expect("a spool");
        }
    }

    #[test]
    fn a_stored_recording_is_reported_like_the_rows_it_was_written_from() {
        let root = tempfile::tempdir().expect("a directory");
        for (name, script, moment) in RUNS {
            let dir = root.path().join(name);
            store(&dir, *script);
            let asked = moment.map(|moment| moment.parse().expect("a moment"));
            let mut stored = analyzed(&Recordings::default(), &dir, at(asked))
                .expect("a recording that can be read");
            let (info, rows, _) = script().recorded();
            let options = Options {
                at: asked,
                ..Options::default()
            };
            let direct = memtrace_analyze::analyze(&info, &rows, options);
            let direct = direct.expect("a run that can be analysed");
            stored.analysis.path.clone_from(&direct.analysis.path);
            if stored.analysis.info.state == RunState::Closed {
                let problems = &stored.analysis.problems;
                assert!(problems.is_empty(), "{problems:?}");
            }
            assert_eq!(reported(&stored), reported(&direct), "{name}");
        }
    }

    fn reduced(member: Member) -> HostPart {
        let place = Place {
            run: "4711".to_owned(),
            host: member.host.to_owned(),
            rec: member.rec.to_owned(),
        };
        let (info, rows, last_boot_ns) = member.recorded();
        let options = Options {
            last_boot_ns,
            ..Options::default()
        };
        let part = memtrace_analyze::reduce(&info, &rows, options, place);
        part.expect("a run that can be analysed")
    }

    /// `cargo xtask python` has them kept, and reads them with the Python package.
    #[test]
    fn findings_saved_beside_a_recording_change_nothing_of_what_is_reported() {
        let root = tempfile::tempdir().expect("a directory");
        let kept = std::env::var_os("MEMTRACE_GOLDEN_DIR").map(PathBuf::from);
        let root = kept.as_deref().unwrap_or(root.path());
        let json = FORMATS.iter().find(|format| format.name == "json");
        let json = json.expect("a format");
        let page = FORMATS.iter().find(|format| format.is_page);
        let page = page.expect("a format");
        let more = ("measured_by_itself", measured_by_itself as fn() -> _, None);
        for (name, script, _) in RUNS.iter().chain([&more]) {
            let dir = root.join(name);
            store(&dir, *script);
            if script().info.state != RunState::Closed {
                let refused = analyzed(&Recordings::default(), &dir, with_findings_saved())
                    .expect_err("it is not closed");
                let refused = format!("{refused:#}");
                assert!(refused.contains("memtrace recover"), "{refused}");
                recover(&dir).expect("it can be closed");
            }
            // Where it lies is no part of what is found: the files are the same in any place.
            let found = |wanted| {
                let mut found = analyzed(&Recordings::default(), &dir, wanted).expect("findings");
                found.analysis.path = Some((*name).to_owned());
                found
            };
            let report = written(&found(with_findings_saved()), json);
            let beside = found(Wanted::default());
            assert_eq!(report, written(&beside, json), "{name}");
            for table in FINDINGS {
                let files = std::fs::read_dir(dir.join(table.name)).expect("a folder");
                assert_eq!(files.count(), 1, "{name}: one part of {}", table.name);
            }
            std::fs::write(root.join(format!("{name}.json")), report).expect("a report");
            let shown = written(&found(Wanted::by(page)), page);
            assert!(shown.contains("<html"), "{name}: a page of it");
            std::fs::write(root.join(format!("{name}.html")), shown).expect("a page");
            let (recording, last) = open(&Recordings::default(), &dir).expect("a recording");
            let rows = Rows(&recording);
            let mut trace = Vec::new();
            let written =
                memtrace_analyze::perfetto(recording.info(), &rows, last, &mut trace, |_, _| ());
            written.expect("a recording").expect("a trace");
            std::fs::write(root.join(format!("{name}.pftrace")), trace).expect("a trace");
        }
        // What the page of a run is made of.
        for (name, members, _) in JOBS {
            let parts = members().into_iter().map(reduced);
            let lines = parts.map(|part| serde_json::to_string(&part).expect("JSON") + "\n");
            let file = root.join(format!("{name}.parts"));
            std::fs::write(file, lines.collect::<String>()).expect("parts");
        }
    }

    #[test]
    fn a_table_without_a_file_is_a_problem_and_mem_is_not_called_empty() {
        let root = tempfile::tempdir().expect("a directory");
        let dir = root.path().join("run");
        store(&dir, RUNS[0].1);
        std::fs::remove_dir_all(dir.join("mem")).expect("a table");
        let analysis = analyzed(&Recordings::default(), &dir, Wanted::default())
            .expect("a recording that can be read");
        let report = reported(&analysis);
        assert!(
            report.contains("mem/part-00001.parquet: is missing, with"),
            "{report}"
        );
        assert!(report.contains("could not be read"), "{report}");
    }

    #[test]
    fn findings_of_a_damaged_recording_do_not_replace_those_from_before() {
        let root = tempfile::tempdir().expect("a directory");
        let dir = root.path().join("run");
        store(&dir, RUNS[0].1);
        analyzed(&Recordings::default(), &dir, with_findings_saved()).expect("findings");
        let saved = || {
            let tables = FINDINGS.iter().map(|table| dir.join(table.name));
            let files = tables.map(|folder| folder.join("part-00001.parquet"));
            let contents = files.map(|file| std::fs::read(file).expect("a table"));
            contents.collect::<Vec<_>>()
        };
        let before = saved();
        let refused = |what: &str| {
            let refused = analyzed(&Recordings::default(), &dir, with_findings_saved())
                .expect_err("it is damaged");
            let refused = format!("{refused:#}");
            assert!(refused.contains(what), "{refused}");
            assert!(refused.contains("memtrace report"), "{refused}");
            assert_eq!(saved(), before);
        };
        let part = dir.join("mem/part-00001.parquet");
        let mut bytes = std::fs::read(&part).expect("a table");
        bytes.truncate(bytes.len() / 2);
        std::fs::write(&part, bytes).expect("half a table");
        refused("mem/part-00001.parquet");
        std::fs::remove_dir_all(dir.join("mem")).expect("a table");
        refused("mem/part-00001.parquet: is missing, with");
        analyzed(&Recordings::default(), &dir, Wanted::default())
            .expect("what is left can be read");
    }

    #[test]
    fn a_directory_without_a_recording_says_so_and_names_it() {
        let empty = tempfile::tempdir().expect("a directory");
        let error = analyzed(&Recordings::default(), empty.path(), Wanted::default())
            .expect_err("no recording");
        let message = format!("{error:#}");
        assert!(message.contains("not a recording"), "{message}");
        assert!(
            message.contains(&empty.path().display().to_string()),
            "{message}"
        );
    }

    #[test]
    fn a_path_that_is_not_there_is_reported_without_its_escape_codes() {
        let error = analyzed(
            &Recordings::default(),
            Path::new("/nope\x1b[2J"),
            Wanted::default(),
        )
        .expect_err("no directory");
        assert_eq!(format!("{error:#}"), "no such directory: /nope\\x1b[2J");
    }

    #[test]
    fn an_instant_outside_of_the_recording_is_named_as_the_cause() {
        let root = tempfile::tempdir().expect("a directory");
        let dir = root.path().join("run");
        store(&dir, RUNS[0].1);
        let moment = Some("+9h".parse().expect("a moment"));
        let message = format!(
            "{:#}",
            analyzed(&Recordings::default(), &dir, at(moment)).expect_err("too late")
        );
        assert!(message.contains("--at"), "{message}");
        assert!(message.contains("after the recording"), "{message}");
    }
}
