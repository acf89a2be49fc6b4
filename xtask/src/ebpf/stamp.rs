//! The stamp beside the committed object: which sources and which toolchain it is from.

use super::tools::{Toolchain, Tools};
use super::{PROFILE, RUSTFLAGS};
use crate::hex::hexadecimal;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

const PACKAGE: &str = "memtrace-ebpf";

/// The contents of `memtrace.bpf.stamp`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp {
    /// Hash of the object.
    pub(super) object_sha256: String,
    /// Hash of the sources, their dependencies and the recipe.
    pub(super) sources_sha256: String,
    /// What built it.
    pub(super) toolchain: Toolchain,
}

impl Stamp {
    pub(super) fn of(root: &Path, tools: &Tools, object: &[u8]) -> Result<Self> {
        Ok(Self {
            object_sha256: sha256_hex(object),
            sources_sha256: hash_sources(root)?,
            toolchain: tools.toolchain(),
        })
    }

    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("failed to read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("failed to parse {}", path.display()))
    }

    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        std::fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
    }
}

/// The hash in lower-case hexadecimal.
pub(super) fn sha256_hex(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// One hash over everything that decides the object, apart from the toolchain.
pub(super) fn hash_sources(root: &Path) -> Result<String> {
    let package = root.join(PACKAGE);
    let mut inputs: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for file in source_files(&package)? {
        let name = file
            .strip_prefix(root)
            .unwrap_or(&file)
            .to_string_lossy()
            .into_owned();
        let bytes =
            std::fs::read(&file).with_context(|| format!("failed to read {}", file.display()))?;
        inputs.insert(name, bytes);
    }
    let workspace = read_toml(&root.join("Cargo.toml"))?;
    let manifest = read_toml(&package.join("Cargo.toml"))?;
    let lock = read_toml(&root.join("Cargo.lock"))?;
    inputs.insert(
        "workspace".to_owned(),
        inherited(&workspace, &manifest).into_bytes(),
    );
    inputs.insert("lock".to_owned(), locked(&lock, PACKAGE)?.into_bytes());
    let recipe = format!("{RUSTFLAGS:?} {PROFILE:?}");
    inputs.insert("recipe".to_owned(), recipe.into_bytes());

    let mut all = Vec::new();
    for (name, bytes) in inputs {
        // With the lengths, so that no two sets of inputs read as the same bytes.
        all.extend_from_slice(format!("{} {} {name}\n", name.len(), bytes.len()).as_bytes());
        all.extend_from_slice(&bytes);
    }
    Ok(sha256_hex(&all))
}

/// The manifest and every Rust file: what cargo compiles, and no editor's leftovers.
fn source_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let entries =
        std::fs::read_dir(dir).with_context(|| format!("failed to read {}", dir.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(source_files(&path)?);
        } else if path.extension().is_some_and(|end| end == "rs") || path.ends_with("Cargo.toml") {
            files.push(path);
        }
    }
    Ok(files)
}

fn read_toml(path: &Path) -> Result<toml::Table> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("failed to read {}", path.display()))?;
    text.parse()
        .with_context(|| format!("failed to parse {}", path.display()))
}

/// What the package takes over from the workspace: the edition, and its dependencies'
/// versions and features.
fn inherited(workspace: &toml::Table, manifest: &toml::Table) -> String {
    let shared = workspace.get("workspace");
    let mut text = String::new();
    let edition = shared
        .and_then(|table| table.get("package"))
        .and_then(|table| table.get("edition"));
    let _ = writeln!(text, "edition {edition:?}");
    let names = manifest
        .get("dependencies")
        .and_then(toml::Value::as_table)
        .into_iter()
        .flat_map(toml::Table::keys);
    for name in names {
        let entry = shared
            .and_then(|table| table.get("dependencies"))
            .and_then(|table| table.get(name));
        let _ = writeln!(text, "{name} {entry:?}");
    }
    text
}

/// The entries of Cargo.lock that a package reaches, itself included, one a line.
fn locked(lock: &toml::Table, package: &str) -> Result<String> {
    let entries: Vec<&toml::Value> = lock
        .get("package")
        .and_then(toml::Value::as_array)
        .context("Cargo.lock has no packages")?
        .iter()
        .collect();
    let mut reached = BTreeSet::new();
    let mut pending = vec![package.to_owned()];
    while let Some(wanted) = pending.pop() {
        // A dependency is written "name", or "name version" where the name is not enough.
        let mut words = wanted.split(' ');
        let (name, version) = (words.next(), words.next());
        for entry in &entries {
            let of = |key: &str| entry.get(key).and_then(toml::Value::as_str);
            if of("name") != name || (version.is_some() && of("version") != version) {
                continue;
            }
            let line = format!(
                "{} {} {}",
                of("name").unwrap_or_default(),
                of("version").unwrap_or_default(),
                of("checksum").unwrap_or_default()
            );
            if reached.insert(line) {
                let next = entry.get("dependencies").and_then(toml::Value::as_array);
                pending.extend(
                    next.into_iter()
                        .flatten()
                        .filter_map(|name| name.as_str().map(str::to_owned)),
                );
            }
        }
    }
    if reached.is_empty() {
        anyhow::bail!("Cargo.lock does not name {package}");
    }
    Ok(reached.into_iter().collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = r#"
        [[package]]
        name = "a"
        version = "1.0.0"
        dependencies = ["b 2.0.0", "c"]
        [[package]]
        name = "b"
        version = "1.0.0"
        checksum = "old"
        [[package]]
        name = "b"
        version = "2.0.0"
        checksum = "new"
        [[package]]
        name = "c"
        version = "1.0.0"
        dependencies = ["a"]
        [[package]]
        name = "unrelated"
        version = "1.0.0"
    "#;

    #[test]
    fn the_locked_entries_are_those_that_the_package_reaches() {
        let lock: toml::Table = LOCK.parse().unwrap();
        assert_eq!(
            locked(&lock, "a").unwrap(),
            "a 1.0.0 \nb 2.0.0 new\nc 1.0.0 "
        );
    }

    #[test]
    fn a_package_that_is_not_locked_is_an_error() {
        let lock: toml::Table = LOCK.parse().unwrap();
        assert!(locked(&lock, "absent").is_err());
    }

    #[test]
    fn a_changed_feature_in_the_workspace_changes_what_is_inherited() {
        let manifest: toml::Table = "[dependencies]\nz.workspace = true".parse().unwrap();
        let of = |text: &str| inherited(&text.parse().unwrap(), &manifest);
        let plain = of("[workspace.dependencies]\nz = \"1\"\nother = \"1\"");
        let other = of("[workspace.dependencies]\nz = \"1\"\nother = \"2\"");
        let featured = of("[workspace.dependencies]\nz = { version = \"1\", features = [\"x\"] }");
        assert_eq!(plain, other);
        assert_ne!(plain, featured);
    }

    #[test]
    fn the_hash_is_the_well_known_one() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sha256_hex(b""), empty);
    }
}
