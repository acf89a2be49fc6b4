//! What is inside: the licences of all that the programs are made of, and a list of it (CycloneDX).

use super::Release;
use super::programs::{Linkage, PROGRAMS, Target};
use super::toolchain::Toolchain;
use crate::sh;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    manifest_path: PathBuf,
    source: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    kind: Option<String>,
}

/// Writes both beside the other texts.
pub(super) fn write(
    doc: &Path,
    target: &Target,
    toolchain: &Toolchain,
    release: &Release,
) -> Result<()> {
    write_licences(&doc.join("THIRD-PARTY-LICENSES"), target, toolchain)?;
    for program in PROGRAMS {
        let name = format!("{program}.cdx");
        sh::run(
            std::process::Command::new(toolchain.of_crate("cargo-cyclonedx"))
                .arg("cyclonedx")
                .args([
                    "--format",
                    "json",
                    "--spec-version",
                    "1.5",
                    "--no-build-deps",
                ])
                .args(["--target", target.triple, "--override-filename", &name])
                .arg("--manifest-path")
                .arg(sh::root().join(program).join("Cargo.toml"))
                .env("SOURCE_DATE_EPOCH", &release.epoch),
        )?;
        // It writes one beside the manifest of every member of the workspace.
        let file = format!("{name}.json");
        let made = sh::root().join(program).join(&file);
        let text = std::fs::read_to_string(&made)
            .with_context(|| format!("failed to read {}", made.display()))?;
        remove_from_members(&file)?;
        super::write(&doc.join(&file), without_this_machine(&text)?)?;
    }
    Ok(())
}

fn remove_from_members(file: &str) -> Result<()> {
    for entry in std::fs::read_dir(sh::root())? {
        let dir = entry?.path();
        for dir in [dir.clone(), dir.join("nvml"), dir.join("try")] {
            let made = dir.join(file);
            if made.is_file() {
                std::fs::remove_file(&made)
                    .with_context(|| format!("failed to remove {}", made.display()))?;
            }
        }
    }
    Ok(())
}

/// Its serial number is drawn anew each time, and it names members by where they lie.
fn without_this_machine(text: &str) -> Result<String> {
    let mut list: serde_json::Value = serde_json::from_str(text)?;
    if let Some(object) = list.as_object_mut() {
        object.remove("serialNumber");
    }
    let root = sh::root().display().to_string();
    Ok(serde_json::to_string_pretty(&list)?.replace(&root, ""))
}

/// The texts of all licences, each once, under the crates that it belongs to.
fn write_licences(path: &Path, target: &Target, toolchain: &Toolchain) -> Result<()> {
    let metadata = sh::capture(
        sh::cargo()
            .current_dir(sh::root())
            .args(["metadata", "--locked", "--format-version", "1"])
            .args(["--filter-platform", target.triple]),
    )?;
    let metadata: Metadata = serde_json::from_str(&metadata)?;
    let linked = linked(&metadata);
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut unnamed = Vec::new();
    for package in metadata
        .packages
        .iter()
        .filter(|package| linked.contains(&package.id))
    {
        if package.source.is_none() {
            continue;
        }
        let licence = package.license.as_deref().unwrap_or("see its text");
        let line = format!("{} {} ({licence})", package.name, package.version);
        let found = texts_of(package)?;
        if found.is_empty() {
            unnamed.push(line.clone());
        }
        for text in found {
            texts.entry(text).or_default().push(line.clone());
        }
    }
    let mut page = String::from(
        "The programs contain what is named below, under these licences: Rust packages, uPlot in the \
         page of a report, and of the compiler what every program has of it. They also contain Rust's standard library, copyright The Rust Project \
         Contributors, under the licence Apache-2.0 or MIT; both have their texts below.\n",
    );
    if !unnamed.is_empty() {
        page.push_str(&format!(
            "\nWithout a text of their own:\n{}\n",
            unnamed.join("\n")
        ));
    }
    for (path, name) in no_crates(target, toolchain)? {
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("failed to read {}", path.display()))?;
        let text = text.trim().to_owned();
        texts.entry(text).or_default().push(name.to_owned());
    }
    for (text, packages) in texts {
        page.push_str(&format!(
            "\n{}\n{}\n\n{text}\n",
            "-".repeat(80),
            packages.join("\n")
        ));
    }
    super::write(path, page)
}

/// What they contain besides crates, by the place of its licence: zig links its own where the system's
/// libgcc would be, and its musl where there is no glibc.
fn no_crates(target: &Target, toolchain: &Toolchain) -> Result<Vec<(PathBuf, &'static str)>> {
    let zig = toolchain.zig()?;
    let mut found = vec![
        (
            sh::root().join("memtrace/src/page/vendor/LICENSE"),
            "uPlot (MIT)",
        ),
        (
            zig.join("lib/libunwind/LICENSE.TXT"),
            "libunwind of LLVM (Apache-2.0 WITH LLVM-exception)",
        ),
        (zig.join("LICENSE"), "compiler_rt of zig (MIT)"),
    ];
    if target.linkage == Linkage::StaticMusl {
        found.push((zig.join("lib/libc/musl/COPYRIGHT"), "musl (MIT)"));
    }
    Ok(found)
}

/// All that the programs are made of at run time, by their names in cargo's graph.
fn linked(metadata: &Metadata) -> BTreeSet<String> {
    let nodes: BTreeMap<&str, &Node> = metadata
        .resolve
        .nodes
        .iter()
        .map(|node| (node.id.as_str(), node))
        .collect();
    let is_program =
        |package: &&Package| package.source.is_none() && PROGRAMS.contains(&package.name.as_str());
    let mut open: Vec<&str> = metadata
        .packages
        .iter()
        .filter(is_program)
        .map(|package| package.id.as_str())
        .collect();
    let mut found = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !found.insert(id.to_owned()) {
            continue;
        }
        let deps = nodes.get(id).into_iter().flat_map(|node| &node.deps);
        let at_run_time = deps.filter(|dep| dep.dep_kinds.iter().any(|kind| kind.kind.is_none()));
        open.extend(at_run_time.map(|dep| dep.pkg.as_str()));
    }
    found
}

fn texts_of(package: &Package) -> Result<Vec<String>> {
    let dir = package
        .manifest_path
        .parent()
        .context("a manifest lies in a directory")?;
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path
                .file_name()
                .map(|name| name.to_string_lossy().to_uppercase());
            let begins = ["LICEN", "COPYING", "UNLICENSE", "NOTICE"];
            path.is_file()
                && name.is_some_and(|name| begins.iter().any(|begin| name.starts_with(begin)))
        })
        .collect();
    files.sort();
    let read = |path: &PathBuf| {
        std::fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))
    };
    files
        .iter()
        .map(|path| Ok(read(path)?.trim().replace("\r\n", "\n")))
        .collect()
}
