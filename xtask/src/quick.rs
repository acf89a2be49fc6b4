//! `cargo xtask quick`: what a change breaks most often, in the time in which one still remembers
//! it: format, clippy, and the tests of the packages whose files changed.

use crate::{sh, test};
use anyhow::{Result, bail};
use std::collections::BTreeSet;
use std::process::Command;

/// Options of `cargo xtask quick`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The commit since which files changed. What is not committed counts too. The default is where
    /// this branch left the main one: origin's, or where that is not known `main`.
    #[arg(long, value_name = "COMMIT")]
    since: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let changed = changed(&base(args)?)?;
    sh::run(sh::cargo().current_dir(sh::root()).args(["fmt", "--all"]))?;
    let is_code = |path: &String| {
        [".rs", ".toml", ".lock"]
            .iter()
            .any(|end| path.ends_with(end))
    };
    if changed.iter().any(is_code) {
        let words = ["clippy", "--locked", "--workspace", "--all-targets"];
        let mut clippy = sh::cargo();
        clippy.current_dir(sh::root()).args(words);
        sh::run(clippy.args(["--", "-D", "warnings"]))?;
    }
    let chosen = chosen(&changed);
    if chosen.is_empty() {
        println!("no file changed of which there are tests here");
        return Ok(());
    }
    if chosen.iter().any(Choice::runs_programs) {
        sh::build_programs(&[])?;
    }
    let mut test = sh::cargo();
    let words = [
        "nextest",
        "run",
        "--locked",
        "--workspace",
        "--no-fail-fast",
    ];
    test.current_dir(sh::root())
        .args(words)
        .arg("--no-tests=pass");
    let kinds: BTreeSet<_> = chosen.iter().flat_map(Choice::built).collect();
    test.args(kinds);
    let filters: Vec<String> = chosen.iter().map(Choice::filter).collect();
    let filters = [format!("({})", filters.join(" or ")), test::what_can_run()?];
    let filters = filters.iter().filter(|filter| !filter.is_empty());
    let filters: Vec<&str> = filters.map(String::as_str).collect();
    sh::run(test.arg("--filterset").arg(filters.join(" and ")))
}

/// Where changes are counted from.
fn base(args: &Args) -> Result<String> {
    if let Some(commit) = &args.since {
        return Ok(commit.clone());
    }
    let left = |branch: &str| git(&["merge-base", branch, "HEAD"]);
    left("origin/main")
        .or_else(|_| left("main"))
        .map(|commit| commit.trim().to_owned())
}

/// The files that changed, by their paths in the checkout.
fn changed(since: &str) -> Result<Vec<String>> {
    let tracked = git(&["diff", "-z", "--name-only", "--no-renames", since, "--"])?;
    let new = git(&["ls-files", "-z", "--others", "--exclude-standard"])?;
    let names = tracked.split('\0').chain(new.split('\0'));
    let names = names.filter(|name| !name.is_empty());
    Ok(names.map(str::to_owned).collect())
}

fn git(words: &[&str]) -> Result<String> {
    let said = sh::capture(Command::new("git").current_dir(sh::root()).args(words));
    match said {
        Ok(said) => Ok(said),
        Err(error) => bail!("{error:#}; name a commit with --since"),
    }
}

/// Tests of one place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Choice {
    Package(String),
    /// One of the programs of tests of the tests package.
    Binary(&'static str),
}

/// Folders with tests that run memtrace.
const BINARIES: &[&str] = &["cli", "gpu", "kernel", "polling", "truth"];
/// Folders with what all of those use.
const OF_BINARIES: &[&str] = &["src", "workloads", "nvml"];

fn chosen(changed: &[String]) -> BTreeSet<Choice> {
    changed.iter().flat_map(|path| choices(path)).collect()
}

/// The tests of a file; none of one that only Python or a page reads.
fn choices(path: &str) -> Vec<Choice> {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        ["crates", name, ..] => vec![Choice::Package(format!("memtrace-{name}"))],
        [
            name @ ("memtrace" | "memtrace-ebpf" | "memtrace-remote" | "xtask"),
            ..,
        ] => {
            vec![Choice::Package((*name).to_owned())]
        }
        ["tests", folder, ..] if OF_BINARIES.contains(folder) => {
            BINARIES.iter().map(|name| Choice::Binary(name)).collect()
        }
        ["tests", folder, ..] => {
            let found = BINARIES.iter().filter(|binary| *binary == folder);
            found.map(|binary| Choice::Binary(binary)).collect()
        }
        // Pages are held against what memtrace says, and have their links looked up.
        ["docs", ..] | ["README.md"] => {
            let shown = ["analyze", "host", "top", "traces"].map(|name| format!("memtrace-{name}"));
            let others = ["memtrace", "xtask"].map(str::to_owned);
            shown
                .into_iter()
                .chain(others)
                .map(Choice::Package)
                .collect()
        }
        _ => Vec::new(),
    }
}

impl Choice {
    /// As nextest chooses tests.
    fn filter(&self) -> String {
        match self {
            Self::Package(package) => format!("package({package})"),
            Self::Binary(binary) => format!("binary({binary})"),
        }
    }

    /// What has to be built of it.
    fn built(&self) -> &'static [&'static str] {
        match self {
            Self::Package(_) => &["--lib", "--bins", "--tests"],
            Self::Binary(_) => &["--tests"],
        }
    }

    fn runs_programs(&self) -> bool {
        match self {
            Self::Binary(_) => true,
            Self::Package(name) => name == "memtrace-remote",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(paths: &[&str]) -> Vec<Choice> {
        let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        chosen(&paths).into_iter().collect()
    }

    #[test]
    fn a_file_chooses_the_tests_of_its_package_or_program() {
        let package = |name: &str| Choice::Package(name.to_owned());
        assert_eq!(
            of(&["crates/analyze/src/held.rs", "memtrace/src/cli/x.rs"]),
            [package("memtrace"), package("memtrace-analyze")]
        );
        assert_eq!(of(&["tests/kernel/main.rs"]), [Choice::Binary("kernel")]);
        assert_eq!(of(&["xtask/src/ci.rs"]), [package("xtask")]);
        assert_eq!(of(&["tests/src/cgroup.rs"]).len(), BINARIES.len());
        assert_eq!(of(&["docs/page.md"]).len(), 6);
        assert_eq!(of(&["CHANGELOG.md", "tests/lab/trees.py"]), []);
    }
}
