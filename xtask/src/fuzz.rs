//! `cargo xtask fuzz`: arbitrary bytes for all that reads what others wrote (tests/fuzz), under
//! AddressSanitizer, from the inputs in tests/fuzz/corpus.tgz on.
//!
//! libFuzzer comes with the crate `libfuzzer-sys`, and what it needs of the compiler are options that
//! the one of the workspace has too: neither nightly Rust nor cargo-fuzz is asked for.

use crate::sh;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Options of `cargo xtask fuzz`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only these; all where none is given.
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// For how long each is tried.
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    /// Keep what it found that reaches more code, as small as that gets, in tests/fuzz/corpus.tgz.
    #[arg(long)]
    keep: bool,
    /// Run memtrace's unit tests under the sanitizer instead; those with a TARGET in their names
    /// where one is given.
    #[arg(long, conflicts_with_all = ["keep", "seconds"])]
    tests: bool,
}

/// Named, so that what runs while it is built has no part in it.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// The inputs that are kept: thousands of small files, in one.
const KEPT: &str = "tests/fuzz/corpus.tgz";
/// None of them is larger, so that the repository stays small.
const KEPT_BYTES_MAX: u64 = 16 << 10;
/// What a reader may take of memory, and for how long it may read what is no larger than a few MiB.
const LIMITS: [&str; 2] = ["-rss_limit_mb=1024", "-timeout=20"];

/// What libFuzzer asks of the compiler.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing";

/// Builds, and tries each for its time, two at once.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.tests {
        return run_tests(&args.targets);
    }
    let program = build()?;
    // Without the name of one it prints them all.
    let known = sh::capture(&mut Command::new(&program))?;
    let known: Vec<&str> = known.lines().collect();
    if let Some(unknown) = args
        .targets
        .iter()
        .find(|name| !known.contains(&name.as_str()))
    {
        bail!(
            "there is no target {unknown}; they are {}",
            known.join(", ")
        );
    }
    unpack()?;
    let is_chosen =
        |name: &&str| args.targets.is_empty() || args.targets.iter().any(|one| one == name);
    let chosen: Vec<&str> = known.into_iter().filter(is_chosen).collect();
    let mut failed = Vec::new();
    for pair in chosen.chunks(2) {
        let started = pair.iter().map(|&name| {
            let target = Target {
                program: &program,
                name,
            };
            Ok((name, target.start(args.seconds)?))
        });
        for (name, mut child) in started.collect::<Result<Vec<_>>>()? {
            if !child.wait()?.success() {
                failed.push(name);
            }
        }
    }
    for name in chosen {
        let target = Target {
            program: &program,
            name,
        };
        println!("{}", target.reported()?);
        if failed.contains(&name) {
            println!("{}", target.log()?);
        }
        if args.keep {
            target.keep()?;
        }
    }
    if args.keep {
        pack()?;
    }
    if !failed.is_empty() {
        bail!(
            "failed: {}; inputs are below {}",
            failed.join(" "),
            place("failures").display()
        );
    }
    Ok(())
}

fn place(below: &str) -> PathBuf {
    sh::target_dir().join("fuzz").join(below)
}

fn unpack() -> Result<()> {
    let kept = place("kept");
    let _ = std::fs::remove_dir_all(&kept);
    std::fs::create_dir_all(&kept)?;
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(sh::root().join(KEPT));
    sh::capture(tar.current_dir(kept)).map(drop)
}

/// The same inputs make the same file.
fn pack() -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--mtime=@0", "--owner=0", "--group=0"])
        .args(["--numeric-owner", "-I", "gzip -9n", "-cf"])
        .arg(sh::root().join(KEPT))
        .arg(".");
    sh::capture(tar.current_dir(place("kept"))).map(drop)
}

fn build() -> Result<PathBuf> {
    let package = sh::root().join("tests/fuzz");
    // The dependencies of the workspace, as its lock has them.
    std::fs::copy(sh::root().join("Cargo.lock"), package.join("Cargo.lock"))?;
    let mut cargo = sanitized(&["build"], &place(""));
    sh::run(cargo.current_dir(&package).env("MEMTRACE_RUSTC", COVERAGE))?;
    Ok(place(TRIPLE).join("debug/memtrace-fuzz"))
}

/// They look for glibc's own heap in their process, and the sanitizer has another.
const OF_GLIBC: [&str; 4] = [
    "each_part_is_reported_by_what_stands_in_it",
    "the_parts_add_up_to_what_the_kernel_counts",
    "what_is_freed_in_an_arena_shows_as_free",
    "both_ways_find_the_same_in_this_process",
];

fn run_tests(names: &[String]) -> Result<()> {
    let words = ["test", "--locked", "--workspace"];
    let mut cargo = sanitized(&words, &place("tests"));
    cargo
        .current_dir(sh::root())
        .args(["--lib", "--bins", "--"]);
    cargo.args(OF_GLIBC.iter().flat_map(|name| ["--skip", name]));
    sh::run(cargo.args(names))
}

/// Cargo, with AddressSanitizer in what it builds of memtrace's own crates.
fn sanitized(words: &[&str], target_dir: &Path) -> Command {
    let mut cargo = sh::cargo();
    cargo
        .args(words)
        .args(["--target", TRIPLE, "--target-dir"])
        .arg(target_dir)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTC_WRAPPER", sh::root().join("tests/fuzz/rustc.sh"));
    cargo
}

struct Target<'a> {
    program: &'a Path,
    name: &'a str,
}

impl Target<'_> {
    /// What was found on this machine, and what is kept for all.
    fn corpora(&self) -> Result<[PathBuf; 2]> {
        let found = place("corpus").join(self.name);
        let kept = place("kept").join(self.name);
        for dir in [&found, &kept] {
            std::fs::create_dir_all(dir)
                .with_context(|| format!("failed to make {}", dir.display()))?;
        }
        Ok([found, kept])
    }

    fn log_path(&self) -> PathBuf {
        place(&format!("{}.log", self.name))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.program);
        command.env("MEMTRACE_FUZZ", self.name).stdin(Stdio::null());
        command
    }

    fn start(&self, seconds: u32) -> Result<std::process::Child> {
        let failures = place("failures");
        std::fs::create_dir_all(&failures)?;
        let log = std::fs::File::create(self.log_path())?;
        let child = self
            .command()
            .args(self.corpora()?)
            .args(LIMITS)
            .args([
                &format!("-max_total_time={seconds}"),
                "-print_final_stats=1",
            ])
            .arg(format!(
                "-artifact_prefix={}/{}-",
                failures.display(),
                self.name
            ))
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn();
        child.with_context(|| format!("failed to start {}", self.program.display()))
    }

    fn log(&self) -> Result<String> {
        let log = std::fs::read(self.log_path())?;
        Ok(String::from_utf8_lossy(&log).into_owned())
    }

    /// How many inputs were tried, and how much code they reached.
    fn reported(&self) -> Result<String> {
        let log = self.log()?;
        let stat = |name: &str| {
            let line = log.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.rsplit(' ').next())
                .unwrap_or("?")
                .to_owned()
        };
        let covered = log
            .lines()
            .rev()
            .find_map(|line| line.split(" cov: ").nth(1));
        let covered = covered
            .and_then(|rest| rest.split(' ').next())
            .unwrap_or("?");
        Ok(format!(
            "{:10} {:>9} inputs, {covered:>6} places in the code, peak of {} MiB",
            self.name,
            stat("stat::number_of_executed_units"),
            stat("stat::peak_rss_mb"),
        ))
    }

    /// Adds to what is kept what was found here and reaches more.
    fn keep(&self) -> Result<()> {
        let [found, kept] = self.corpora()?;
        let small = place("small").join(self.name);
        let _ = std::fs::remove_dir_all(&small);
        std::fs::create_dir_all(&small)?;
        for entry in std::fs::read_dir(&found)? {
            let entry = entry?;
            if entry.metadata()?.len() <= KEPT_BYTES_MAX {
                std::fs::copy(entry.path(), small.join(entry.file_name()))?;
            }
        }
        let mut merge = self.command();
        merge.arg("-merge=1").args(LIMITS).arg(kept).arg(small);
        sh::capture(&mut merge).map(drop)
    }
}
