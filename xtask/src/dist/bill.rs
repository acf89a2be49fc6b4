//! What is inside: the licences of all that the programs are made of, and a list of it (CycloneDX).

use super::Release;
use super::programs::{Linkage, PROGRAMS, Target};
use super::toolchain::Toolchain;
use crate::sh;
use anyhow::{Context, Result, bail};
use cargo_metadata::{DependencyKind, Metadata, Node, NodeDep, Package, PackageId};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Writes both beside the other texts.
pub(super) fn write(
    doc: &Path,
    target: &Target,
    toolchain: &Toolchain,
    release: &Release,
) -> Result<()> {
    let metadata = sh::metadata(&["--filter-platform", target.triple])?;
    let licences = licences(&metadata, target, toolchain)?;
    super::write(&doc.join("THIRD-PARTY-LICENSES"), licences)?;
    let checksums = checksums()?;
    for program in PROGRAMS {
        let list = list(&metadata, program, &checksums, release)?;
        let text = serde_json::to_string_pretty(&list)?;
        super::write(&doc.join(format!("{program}.cdx.json")), text)?;
    }
    Ok(())
}

/// What a program is made of, as CycloneDX 1.5 has it.
fn list(
    metadata: &Metadata,
    program: &str,
    checksums: &BTreeMap<(String, String), String>,
    release: &Release,
) -> Result<Value> {
    let linked = linked(metadata, &[program]);
    let component = |package: &Package, kind: &str| {
        let (name, version) = (&package.name, &package.version);
        let purl = purl(package);
        let mut component = json!({
            "type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl,
        });
        if let Some(licence) = &package.license {
            // Some packages write as a stroke what is OR today.
            component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
        }
        if let Some(sum) = checksums.get(&(name.to_string(), version.to_string())) {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
        }
        component
    };
    let packages: Vec<&Package> = metadata
        .packages
        .iter()
        .filter(|package| linked.contains_key(&package.id))
        .collect();
    let is_program = |package: &&&Package| package.source.is_none() && package.name == program;
    let whole = packages.iter().find(is_program);
    let whole = whole.with_context(|| format!("{program} is no package"))?;
    let parts = packages.iter().filter(|package| package.id != whole.id);
    let depends = linked.iter().map(|(id, on)| {
        // One that is imported by two names is one.
        let on: BTreeSet<String> = on.iter().map(|id| purl(&metadata[id])).collect();
        json!({ "ref": purl(&metadata[id]), "dependsOn": on })
    });
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": release.time()?,
            "component": component(whole, "application"),
        },
        "components": parts.map(|part| component(part, "library")).collect::<Vec<_>>(),
        "dependencies": depends.collect::<Vec<_>>(),
    }))
}

/// The package as a package URL, in which `+` is escaped.
fn purl(package: &Package) -> String {
    let version = package.version.to_string().replace('+', "%2B");
    format!("pkg:cargo/{}@{version}", package.name)
}

/// SHA-256 of the packages of the index, by name and version.
fn checksums() -> Result<BTreeMap<(String, String), String>> {
    let path = sh::root().join("Cargo.lock");
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("failed to read {}", path.display()))?;
    let lock: toml::Table = text.parse()?;
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let of = |package: &toml::Value| {
        let text = |key: &str| Some(package.get(key)?.as_str()?.to_owned());
        Some(((text("name")?, text("version")?), text("checksum")?))
    };
    let found: BTreeMap<_, _> = packages.into_iter().flatten().filter_map(of).collect();
    if found.is_empty() {
        bail!("{} has no checksums", path.display());
    }
    Ok(found)
}

/// The texts of all licences, each once, under the crates that it belongs to.
fn licences(metadata: &Metadata, target: &Target, toolchain: &Toolchain) -> Result<String> {
    let linked = linked(metadata, PROGRAMS);
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut unnamed = Vec::new();
    for package in metadata
        .packages
        .iter()
        .filter(|package| linked.contains_key(&package.id))
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
    Ok(page)
}

/// What they contain besides crates, by the place of its licence: zig links its own where the system's
/// libgcc would be, and its musl where there is no glibc.
fn no_crates(target: &Target, toolchain: &Toolchain) -> Result<Vec<(PathBuf, &'static str)>> {
    let zig = toolchain.zig()?;
    let mut found = vec![
        (
            sh::root().join("crates/page/src/vendor/LICENSE"),
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

/// All that programs are made of at run time, with what each of it depends on.
fn linked(metadata: &Metadata, programs: &[&str]) -> BTreeMap<PackageId, Vec<PackageId>> {
    let is_program =
        |package: &&Package| package.source.is_none() && programs.contains(&package.name.as_str());
    let packages = metadata.packages.iter().filter(is_program);
    let mut open: Vec<&PackageId> = packages.map(|package| &package.id).collect();
    let nodes = metadata.resolve.iter().flat_map(|resolve| &resolve.nodes);
    let nodes: BTreeMap<&PackageId, &Node> = nodes.map(|node| (&node.id, node)).collect();
    let mut found = BTreeMap::new();
    while let Some(id) = open.pop() {
        if found.contains_key(id) {
            continue;
        }
        let is_at_run_time = |dep: &&NodeDep| {
            let mut kinds = dep.dep_kinds.iter();
            kinds.any(|dep| dep.kind == DependencyKind::Normal)
        };
        let deps = nodes.get(id).into_iter().flat_map(|node| &node.deps);
        let on: Vec<&PackageId> = deps.filter(is_at_run_time).map(|dep| &dep.pkg).collect();
        open.extend(&on);
        found.insert(id.clone(), on.into_iter().cloned().collect());
    }
    found
}

fn texts_of(package: &Package) -> Result<Vec<String>> {
    let manifest = package.manifest_path.as_std_path();
    let dir = manifest
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
