//! `cargo xtask circles`: no files of a crate import each other in a circle. Who may import whom among
//! crates, their manifests say.

mod files;
mod paths;

use crate::sh;
use anyhow::{Context, Result, bail};
use files::Files;
pub(crate) use paths::{is_for_tests, test_modules};
use std::path::{Path, PathBuf};

/// The folders with sources, one for each crate that people get or build with.
pub(crate) fn sources() -> Result<Vec<PathBuf>> {
    let root = sh::root();
    let crates = root.join("crates");
    let entries = std::fs::read_dir(&crates)
        .with_context(|| format!("failed to read {}", crates.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        found.push(entry?.path().join("src"));
    }
    found.sort();
    let others = ["memtrace", "memtrace-ebpf", "memtrace-remote", "xtask"];
    found.extend(others.map(|name| root.join(name).join("src")));
    Ok(found)
}

/// Checks every crate.
pub(crate) fn run() -> Result<()> {
    let (mut file_count, mut circle_count) = (0, 0);
    for source in sources()? {
        let (files, count) = of_crate(&source)?;
        file_count += count;
        for circle in files.circles() {
            circle_count += 1;
            let place = source.strip_prefix(sh::root()).unwrap_or(&source);
            println!(
                "{}: {} > {}",
                place.display(),
                circle.join(" > "),
                circle[0]
            );
        }
    }
    if circle_count > 0 {
        bail!("{circle_count} circles of files that import each other");
    }
    println!("circles: none in {file_count} files");
    Ok(())
}

/// The files of a crate, and how many they are.
fn of_crate(source: &Path) -> Result<(Files, usize)> {
    let mut files = Vec::new();
    rust_files(source, &mut files)?;
    if files.is_empty() {
        bail!("{} has no Rust files", source.display());
    }
    let mut all = Files::default();
    let mut for_tests = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("failed to read {}", file.display()))?;
        let module = module_of(file.strip_prefix(source).unwrap_or(file));
        let parse = || format!("failed to parse {}", file.display());
        all.add(
            &module,
            &paths::of_file(&module, &text).with_context(parse)?,
        );
        for_tests.extend(paths::test_modules(&module, &text).with_context(parse)?);
    }
    for tests in &for_tests {
        all.leave_out(tests);
    }
    Ok((all, files.len()))
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
