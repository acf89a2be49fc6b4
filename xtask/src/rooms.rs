//! `cargo xtask rooms`: imports between the rooms of memtrace go one way, and files of a room do
//! not import each other in a circle.

mod circles;
mod paths;

use crate::sh;
use anyhow::{Context, Result, bail};
use circles::Files;
use paths::Use;
pub(crate) use paths::{is_for_tests, test_modules};
use std::path::{Path, PathBuf};

/// Who may import whom. A room that is not in the list does not exist.
const ROOMS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("host", &["model"]),
    ("store", &["model"]),
    ("sweep", &["model"]),
    ("import", &["model"]),
    ("page", &["model"]),
    ("perfetto", &["model"]),
    ("report", &["page", "model"]),
    ("analyze", &["sweep", "report", "perfetto", "model"]),
    ("top", &["analyze", "report", "model"]),
    ("traces", &["report", "perfetto", "model"]),
    ("collect", &["host", "model"]),
    ("session", &["collect", "store", "host", "model"]),
    (
        "cli",
        &[
            "top", "traces", "perfetto", "session", "import", "report", "analyze", "store", "host",
            "model",
        ],
    ),
];

/// Crates that one place knows and no other: the place is a path of modules.
const BORDERS: &[(&str, &str)] = &[
    ("memtrace_abi", "collect::bpf"),
    ("aya", "collect::bpf"),
    ("parquet", "store"),
    ("arrow", "store"),
    ("ratatui", "top"),
    ("nvml_wrapper", "collect::gpu"),
    ("nvml_wrapper_sys", "collect::gpu"),
];

/// One import that the rules do not allow.
#[derive(Debug, PartialEq, Eq)]
struct Breach {
    line: usize,
    text: String,
}

/// Checks every file of the library.
pub(crate) fn run() -> Result<()> {
    let source = sh::root().join("memtrace/src");
    let mut files = Vec::new();
    rust_files(&source, &mut files)?;
    files.sort();
    let mut breaches = 0;
    let mut all = Files::default();
    let mut for_tests = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("failed to read {}", file.display()))?;
        let inside = file.strip_prefix(&source).unwrap_or(file);
        let module = module_of(inside);
        let parse = || format!("failed to parse {}", file.display());
        let uses = paths::of_file(&module, &text).with_context(parse)?;
        for_tests.extend(paths::test_modules(&module, &text).with_context(parse)?);
        all.add(&module, &uses);
        for breach in check(&uses) {
            breaches += 1;
            println!(
                "memtrace/src/{}:{}: {}",
                inside.display(),
                breach.line,
                breach.text
            );
        }
    }
    if files.is_empty() {
        bail!("{} has no Rust files", source.display());
    }
    if breaches > 0 {
        bail!("{breaches} imports go the wrong way; xtask/src/rooms.rs says which may go where");
    }
    for tests in &for_tests {
        all.leave_out(tests);
    }
    let circles = all.circles();
    for circle in &circles {
        println!("a circle: {} > {}", circle.join(" > "), circle[0]);
    }
    if !circles.is_empty() {
        bail!("{} circles of files that import each other", circles.len());
    }
    println!("rooms: {} files import as they may", files.len());
    Ok(())
}

pub(crate) fn rust_files(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries =
        std::fs::read_dir(dir).with_context(|| format!("failed to read {}", dir.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            rust_files(&path, files)?;
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// The path of the module that a file holds: `cli/record.rs` is `cli::record`, and
/// `lib.rs` is the root.
pub(crate) fn module_of(file: &Path) -> Vec<String> {
    let mut module: Vec<String> = file
        .with_extension("")
        .components()
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect();
    if module.last().is_some_and(|name| name == "mod")
        || matches!(module.as_slice(), [name] if name == "lib" || name == "main")
    {
        module.pop();
    }
    module
}

/// The imports of one file that the rules do not allow.
fn check(uses: &[Use]) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for used in uses {
        if let Some(text) = refuse(used) {
            let line = used.line;
            let breach = Breach { line, text };
            if !breaches.contains(&breach) {
                breaches.push(breach);
            }
        }
    }
    breaches
}

/// Why an import is not allowed, if it is not.
fn refuse(used: &Use) -> Option<String> {
    let place = used.module.join("::");
    if !used.is_ours {
        let (krate, owner) = BORDERS.iter().find(|(krate, _)| used.path[0] == *krate)?;
        let is_inside = place == *owner || place.starts_with(&format!("{owner}::"));
        return (!is_inside).then(|| format!("only {owner} may name {krate}"));
    }
    let to = used.path.first()?;
    let known = |name: &str| ROOMS.iter().find(|(room, _)| *room == name);
    // The root of the library holds the rooms and may name them; anything else in it
    // (a macro) belongs to nobody.
    let from = used.module.first()?;
    if to == "*" {
        return Some(format!("{from} must name the rooms that it imports"));
    }
    if from == to || known(to).is_none() {
        return None;
    }
    let Some((_, allowed)) = known(from) else {
        return Some(format!("{from} is no room that xtask/src/rooms.rs knows"));
    };
    (!allowed.contains(&to.as_str())).then(|| format!("{from} must not import {to}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches(file: &str, source: &str) -> Vec<String> {
        let uses = paths::of_file(&module_of(Path::new(file)), source).unwrap();
        check(&uses)
            .into_iter()
            .map(|breach| format!("{}: {}", breach.line, breach.text))
            .collect()
    }

    #[test]
    fn an_allowed_import_passes() {
        assert!(breaches("store/spool.rs", "use crate::model::{Row, Table};").is_empty());
        assert!(breaches("cli/mod.rs", "use crate::session::Session;").is_empty());
        assert!(breaches("collect/bpf/load.rs", "use aya::Ebpf;").is_empty());
        assert!(breaches("lib.rs", "pub mod model; pub use crate::cli::main;").is_empty());
    }

    #[test]
    fn an_import_against_the_direction_is_found_with_its_line() {
        let found = breaches("model/cell.rs", "\nuse crate::store::Recording;");
        assert_eq!(found, ["2: model must not import store"]);
    }

    #[test]
    fn a_path_in_the_middle_of_code_is_found() {
        let source = "fn f() -> crate::analyze::Report { crate::collect::start() }";
        let found = breaches("report/mod.rs", source);
        assert_eq!(
            found,
            [
                "1: report must not import analyze",
                "1: report must not import collect"
            ]
        );
    }

    #[test]
    fn super_is_followed_out_of_the_room() {
        assert!(breaches("store/spool.rs", "use super::reader::Recording;").is_empty());
        let found = breaches("store/spool.rs", "use super::super::host::Facts;");
        assert_eq!(found, ["1: store must not import host"]);
        let inline = "mod tests { use super::super::super::host::Facts; }";
        assert_eq!(
            breaches("store/spool.rs", inline),
            ["1: store must not import host"]
        );
    }

    #[test]
    fn each_branch_of_a_group_is_followed() {
        let found = breaches("report/mod.rs", "use crate::{model, session::S};");
        assert_eq!(found, ["1: report must not import session"]);
        let found = breaches("report/mod.rs", "use crate::{self as root, store as s};");
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn the_whole_crate_by_another_name_is_not_a_way_around() {
        let found = breaches("model/mod.rs", "use crate as everything;");
        assert_eq!(found.len(), 1, "{found:?}");
        let found = breaches("model/mod.rs", "use crate::*;");
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn the_crate_by_its_own_name_counts_as_ours() {
        let found = breaches("model/mod.rs", "use memtrace::store::Recording;");
        assert_eq!(found, ["1: model must not import store"]);
    }

    #[test]
    fn a_crate_with_a_border_stays_behind_it() {
        let found = breaches("collect/mod.rs", "use memtrace_abi::Event;");
        assert_eq!(found, ["1: only collect::bpf may name memtrace_abi"]);
        let found = breaches(
            "host/facts.rs",
            "fn f() { let _ = ::aya::Btf::from_sys_fs(); }",
        );
        assert_eq!(found, ["1: only collect::bpf may name aya"]);
        let found = breaches("session/mod.rs", "extern crate parquet;");
        assert_eq!(found, ["1: only store may name parquet"]);
        let found = breaches("collect/bpfish.rs", "use aya as a;");
        assert_eq!(found, ["1: only collect::bpf may name aya"]);
    }

    #[test]
    fn paths_in_the_arguments_of_a_macro_are_seen() {
        let source = "fn f() { println!(\"{}\", crate::store::name()); }";
        assert_eq!(
            breaches("model/mod.rs", source),
            ["1: model must not import store"]
        );
        let source = "macro_rules! m { () => { $crate::store::name() } }";
        assert_eq!(
            breaches("model/mod.rs", source),
            ["1: model must not import store"]
        );
    }

    #[test]
    fn a_folder_that_is_no_room_is_found() {
        let found = breaches("attic/mod.rs", "use crate::model::Row;");
        assert_eq!(found.len(), 1, "{found:?}");
    }
}
