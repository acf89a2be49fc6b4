//! `cargo xtask deny`: licences and origins of dependencies, by cargo's own account of them.
//!
//! Every licence must be one that deny.toml allows, every package of the index of crates, and no
//! dependency of ours without a version. Security advisories are not asked for: a new one would fail
//! a build that nobody changed. `cargo deny check advisories`, of cargo-deny, does.

use crate::sh;
use anyhow::{Context, Result, bail};
use cargo_metadata::{DependencyKind, Package};
use serde::Deserialize;
use spdx::{Expression, ParseMode};
use std::collections::BTreeSet;

/// The index of crates, whichever mirror of it the machine asks.
const INDEX: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// deny.toml, a part of what cargo-deny knows; nothing may stand there that is not looked at.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    graph: Graph,
    licenses: Licenses,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Graph {
    targets: Vec<String>,
    all_features: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Licenses {
    allow: Vec<String>,
}

pub(crate) fn run() -> Result<()> {
    let path = sh::root().join("deny.toml");
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("failed to read {}", path.display()))?;
    let rules: Rules =
        toml::from_str(&text).with_context(|| format!("failed to parse {}", path.display()))?;
    if !rules.graph.all_features {
        bail!("{}: all-features must be true", path.display());
    }
    let metadata = sh::metadata(&["--all-features"])?;
    let built = built(&rules.graph.targets)?;
    let name = |package: &Package| format!("{} v{}", package.name, package.version);
    let packages = metadata.packages.iter();
    let packages: Vec<_> = packages
        .filter(|package| built.contains(&name(package)))
        .collect();
    if packages.len() != built.len() {
        bail!("cargo tree and cargo metadata name other packages");
    }
    let of = |package: &&Package| breaches_of(package, &rules.licenses.allow);
    let breaches: Vec<String> = packages.iter().flat_map(of).collect();
    for breach in &breaches {
        println!("{breach}");
    }
    match breaches.len() {
        0 => println!("{} packages are what deny.toml allows", packages.len()),
        count => bail!("{count} breaches of what deny.toml allows"),
    }
    Ok(())
}

/// All that is built on these systems with every feature, tests included, as `name v1.0.0`. (`cargo
/// metadata` has features that are asked for on other systems alone.)
fn built(targets: &[String]) -> Result<BTreeSet<String>> {
    let mut built = BTreeSet::new();
    for target in targets {
        let mut tree = sh::cargo();
        tree.current_dir(sh::root())
            .args(["tree", "--locked", "--workspace", "--all-features"])
            .args(["--prefix", "none", "--format", "{p}", "--target", target]);
        let said = sh::capture(&mut tree)?;
        let names = said.lines().filter_map(|line| {
            let mut words = line.split(' ');
            Some(format!("{} {}", words.next()?, words.next()?))
        });
        built.extend(names);
    }
    Ok(built)
}

/// What is wrong with a package; of ours, only what it depends on can be.
fn breaches_of(package: &Package, allowed: &[String]) -> Vec<String> {
    let named = |what: String| format!("{} {}: {what}", package.name, package.version);
    let Some(source) = &package.source else {
        let ours = package.dependencies.iter();
        let without = ours.filter(|dependency| {
            let is_ours = dependency.path.is_some();
            !is_ours && dependency.req.comparators.is_empty()
        });
        return without
            .map(|dependency| {
                let kind = match dependency.kind {
                    DependencyKind::Normal => "dependency",
                    DependencyKind::Development => "dev-dependency",
                    _ => "build-dependency",
                };
                named(format!("{kind} {} has no version", dependency.name))
            })
            .collect();
    };
    let mut breaches = Vec::new();
    if source.repr != INDEX {
        breaches.push(named(format!("comes from {}", source.repr)));
    }
    match &package.license {
        None => breaches.push(named("names no licence".to_owned())),
        Some(licence) => match is_allowed(licence, allowed) {
            Ok(true) => {}
            Ok(false) => breaches.push(named(format!("its licence {licence} is not allowed"))),
            Err(error) => breaches.push(named(format!("its licence {licence}: {error:#}"))),
        },
    }
    breaches
}

/// Whether one may take a package by a licence, an expression of SPDX, with those allowed alone.
fn is_allowed(licence: &str, allowed: &[String]) -> Result<bool> {
    let expression = Expression::parse_mode(licence, ParseMode::LAX)
        .map_err(|error| anyhow::anyhow!("{}", error.reason))?;
    Ok(expression.evaluate(|needed| allowed.contains(&needed.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_licence_is_allowed_where_what_is_allowed_suffices() {
        let allowed = ["MIT".to_owned(), "Apache-2.0".to_owned()];
        let is_allowed = |licence| is_allowed(licence, &allowed).ok();
        assert_eq!(is_allowed("MIT"), Some(true));
        assert_eq!(is_allowed("MIT/Apache-2.0"), Some(true));
        assert_eq!(is_allowed("GPL-3.0-only OR MIT"), Some(true));
        assert_eq!(is_allowed("GPL-3.0-only AND MIT"), Some(false));
        assert_eq!(is_allowed("Apache-2.0 WITH LLVM-exception"), Some(false));
        assert_eq!(is_allowed("as you like"), None);
    }

    #[test]
    fn a_package_of_elsewhere_or_without_a_version_is_a_breach() {
        let package = |source: &str, more: &str| -> Package {
            let text = format!(
                r#"{{"name": "a", "version": "1.0.0", "id": "a", "source": {source},
                "dependencies": [{more}], "targets": [], "features": {{}},
                "manifest_path": "/a/Cargo.toml", "license": "MIT"}}"#
            );
            serde_json::from_str(&text).expect("a package")
        };
        let allowed = ["MIT".to_owned()];
        let index = format!("\"{INDEX}\"");
        assert!(breaches_of(&package(&index, ""), &allowed).is_empty());
        assert_eq!(breaches_of(&package(&index, ""), &[]).len(), 1);
        let of_git = breaches_of(&package("\"git+https://example.org/a\"", ""), &allowed);
        assert!(of_git[0].contains("comes from git"), "{of_git:?}");
        let dependency = |version: &str| {
            format!(
                r#"{{"name": "b", "req": "{version}", "kind": null, "optional": false,
                "uses_default_features": true, "features": []}}"#
            )
        };
        assert!(breaches_of(&package("null", &dependency("^1")), &allowed).is_empty());
        let any = breaches_of(&package("null", &dependency("*")), &allowed);
        assert_eq!(any, ["a 1.0.0: dependency b has no version"]);
    }
}
