//! `cargo xtask test`: builds and runs every test that can run on this machine, and says
//! which can't and why.
//!
//! Tests that need something of the machine live in modules `needs_<word>`; the
//! `memtrace-needs` program of the tests crate tries each need. What is missing is left
//! out by name, so that it counts as skipped and never as passed.

use crate::sh;
use crate::venv::Venv;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

/// The Ray that roles are tested with, and what its test needs.
pub(crate) const RAY: &[&str] = &["ray==2.60.0", "numpy"];

/// Options of `cargo xtask test`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Skip the tests that need this, as if the machine did not have it: a word that
    /// `memtrace-needs` lists. Can be repeated.
    #[arg(long, value_name = "NEED")]
    without: Vec<String>,
    /// Skip every test that needs something of the machine.
    #[arg(long)]
    no_root: bool,
    /// Fail when a test has to be skipped.
    #[arg(long)]
    no_skips: bool,
    /// Words for the test runner: names of tests to run.
    #[arg(last = true)]
    runner: Vec<String>,
}

/// One need, as `memtrace-needs` prints it.
#[derive(Debug, Deserialize)]
struct Need {
    word: String,
    doc: String,
    missing: Option<String>,
}

/// Runs the tests.
pub(crate) fn run(args: &Args) -> Result<()> {
    // The tests call these programs, and cargo only builds those of their own package.
    sh::build_programs(&[])?;
    let is_left_out = |word: &str| args.no_root || args.without.iter().any(|out| out == word);
    if !is_left_out("ray")
        && let Err(error) = install_ray()
    {
        println!("Ray could not be installed: {error:#}");
    }
    let missing = missing(args, needs()?)?;

    let has_nextest = sh::capture(at_root().args(["nextest", "--version"])).is_ok();
    // A test may need several things, and is one test all the same.
    let mut skipped = BTreeSet::new();
    for need in &missing {
        let names = list(has_nextest, &Chosen::Module(module(need)))?;
        let reason = need.missing.as_deref().unwrap_or_default();
        println!(
            "skipping {} tests that need {}: {reason}",
            names.len(),
            need.word
        );
        println!("  ({} is {})", need.word, need.doc);
        for name in names {
            println!("  {name}");
            skipped.insert(name);
        }
    }

    // Left out by their own source, which must not read as having passed either.
    let ignored = list(has_nextest, &Chosen::Ignored)?;
    if !ignored.is_empty() {
        println!("skipping {} tests that are marked #[ignore]", ignored.len());
        ignored.iter().for_each(|name| println!("  {name}"));
        skipped.extend(ignored);
    }

    if has_nextest {
        let mut runner = at_root();
        runner.args([
            "nextest",
            "run",
            "--locked",
            "--workspace",
            "--no-fail-fast",
        ]);
        if !missing.is_empty() {
            runner.arg("--filterset").arg(filterset(&missing));
        }
        sh::run(runner.args(&args.runner))?;
        // The one kind of test that nextest does not run.
        sh::run(at_root().args(["test", "--locked", "--workspace", "--doc", "--quiet"]))?;
    } else {
        println!(
            "cargo-nextest is not installed; `cargo test` runs the same tests, one binary after \
             the other"
        );
        let mut runner = at_root();
        runner.args(["test", "--locked", "--workspace", "--no-fail-fast", "--"]);
        for need in &missing {
            runner.arg("--skip").arg(module(need));
        }
        sh::run(runner.args(&args.runner))?;
    }
    match skipped.len() {
        0 => println!("every test ran and passed"),
        count if args.no_skips => bail!("{count} tests were skipped; they are listed above"),
        count => println!("every test that can run here passed; {count} were skipped, see above"),
    }
    Ok(())
}

/// A filter that leaves out what can't run here, where tests were built before; empty where all can.
pub(crate) fn what_can_run() -> Result<String> {
    match needs_program().exists() {
        true => Ok(filterset(&missing(&named(""), needs()?)?)),
        false => Ok(String::new()),
    }
}

/// How many tests have this in their name, and how many of them can't run here.
pub(crate) fn count_named(name: &str) -> Result<[usize; 2]> {
    let has_nextest = sh::capture(at_root().args(["nextest", "--version"])).is_ok();
    let names = list(has_nextest, &Chosen::Module(name.to_owned()))?;
    let missing = missing(&named(name), needs()?)?;
    let can_not = |name: &&String| missing.iter().any(|need| name.contains(&module(need)));
    Ok([names.len(), names.iter().filter(can_not).count()])
}

/// Runs the tests that have this in their name, of those that can run here.
pub(crate) fn run_named(name: &str) -> Result<()> {
    run(&named(name))
}

fn named(name: &str) -> Args {
    Args {
        without: vec!["ray".to_owned()],
        no_root: false,
        no_skips: false,
        runner: vec![name.to_owned()],
    }
}

/// Ray in an environment of its own, as the tests of roles look for it.
fn install_ray() -> Result<()> {
    let venv = Venv::named("ray");
    if sh::capture(venv.python().args(["-c", "import ray, numpy"])).is_ok() {
        return Ok(());
    }
    venv.install(RAY)
}

fn at_root() -> Command {
    let mut command = sh::cargo();
    command.current_dir(sh::root());
    command
}

fn needs_program() -> PathBuf {
    sh::target_dir().join("debug/memtrace-needs")
}

fn needs() -> Result<Vec<Need>> {
    let text = sh::capture(&mut Command::new(needs_program()))?;
    text.lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("failed to parse {line}")))
        .collect()
}

/// The needs that are not met, or that the caller wants to be without.
fn missing(args: &Args, needs: Vec<Need>) -> Result<Vec<Need>> {
    if let Some(word) = args
        .without
        .iter()
        .find(|word| !needs.iter().any(|need| need.word == **word))
    {
        let known: Vec<_> = needs.iter().map(|need| need.word.as_str()).collect();
        bail!("no test needs {word}; the needs are {}", known.join(", "));
    }
    let mut missing = Vec::new();
    for mut need in needs {
        if args.no_root || args.without.contains(&need.word) {
            need.missing = Some("left out by the command line".to_owned());
        }
        if need.missing.is_some() {
            missing.push(need);
        }
    }
    Ok(missing)
}

fn module(need: &Need) -> String {
    format!("needs_{}::", need.word)
}

fn filterset(missing: &[Need]) -> String {
    let parts: Vec<String> = missing
        .iter()
        .map(|need| format!("not test({})", module(need)))
        .collect();
    parts.join(" and ")
}

/// Some of the tests.
enum Chosen {
    /// Those of a module.
    Module(String),
    /// Those that are marked `#[ignore]`.
    Ignored,
}

/// The names of some of the tests.
fn list(has_nextest: bool, chosen: &Chosen) -> Result<Vec<String>> {
    let mut command = at_root();
    if has_nextest {
        command.args(["nextest", "list", "--locked", "--workspace"]);
        command.args(["--message-format", "oneline"]);
        match chosen {
            Chosen::Module(module) => command.arg(format!("--filterset=test({module})")),
            Chosen::Ignored => command.args(["--run-ignored", "only"]),
        };
    } else {
        command.args([
            "test",
            "--locked",
            "--workspace",
            "--all-targets",
            "--quiet",
        ]);
        command.args(["--", "--list", "--format", "terse"]);
        match chosen {
            Chosen::Module(module) => command.arg(module),
            Chosen::Ignored => command.arg("--ignored"),
        };
    }
    Ok(names(&sh::capture(&mut command)?))
}

/// The names in a list by either runner: one a line, with what the program calls the
/// binary before it or the kind behind it.
fn names(list: &str) -> Vec<String> {
    list.lines()
        .filter(|line| !line.ends_with(": benchmark"))
        .map(|line| line.trim_end_matches(": test").trim().to_owned())
        .filter(|name| !name.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(word: &str, missing: Option<&str>) -> Need {
        Need {
            word: word.to_owned(),
            doc: "a thing".to_owned(),
            missing: missing.map(str::to_owned),
        }
    }

    fn args() -> Args {
        Args {
            without: Vec::new(),
            no_root: false,
            no_skips: false,
            runner: Vec::new(),
        }
    }

    fn words(args: &Args) -> Result<Vec<String>> {
        let needs = vec![need("bpf", None), need("memcg", Some("no hierarchy"))];
        Ok(missing(args, needs)?
            .into_iter()
            .map(|need| need.word)
            .collect())
    }

    #[test]
    fn a_need_that_is_met_is_not_skipped() {
        assert_eq!(words(&args()).unwrap(), ["memcg"]);
    }

    #[test]
    fn a_need_can_be_left_out_by_name_but_only_by_one_that_exists() {
        let mut args = args();
        args.without = vec!["bpf".to_owned()];
        assert_eq!(words(&args).unwrap(), ["bpf", "memcg"]);
        args.without = vec!["bfp".to_owned()];
        assert!(words(&args).is_err());
    }

    #[test]
    fn without_root_everything_that_needs_the_machine_is_left_out() {
        let mut args = args();
        args.no_root = true;
        assert_eq!(words(&args).unwrap(), ["bpf", "memcg"]);
    }

    #[test]
    fn names_are_read_from_the_lists_of_both_runners() {
        let nextest = "memtrace model::tests::a\nmemtrace-tests::kernel needs_bpf::b\n";
        assert_eq!(
            names(nextest),
            [
                "memtrace model::tests::a",
                "memtrace-tests::kernel needs_bpf::b"
            ]
        );
        assert_eq!(
            names("needs_bpf::b: test\nspeed: benchmark\n\n"),
            ["needs_bpf::b"]
        );
    }

    #[test]
    fn what_is_missing_is_left_out_by_module() {
        let missing = [need("bpf", None), need("gpu", None)];
        assert_eq!(
            filterset(&missing),
            "not test(needs_bpf::) and not test(needs_gpu::)"
        );
    }
}
