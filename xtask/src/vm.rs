//! `cargo xtask vm`: boots Debian's kernels in an emulated machine, runs the kernel tests
//! there, and says by kernel which probes attached, by which way, and how each test ended.
//!
//! The emulation needs no right and no hardware (qemu's TCG); it is slow. What runs inside
//! is the `memtrace-guest` program of the tests crate, on the files of this build.

mod debian_kernel;
mod image;
mod machine;
mod package;
mod programs;
mod systemd;
mod verdict;

use crate::{debian, sh};
use anyhow::{Context, Result, bail};
use debian_kernel::Kernel;
use machine::Start;
use programs::Programs;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use verdict::Verdict;

/// The kernel of this machine, where no emulation is needed.
const NATIVE: &str = "native";
/// The newest kernel that exists as a package, under Debian's systemd.
const SYSTEMD: &str = "systemd";
/// Who has a user manager there.
const PERSON: &str = "person";
/// Every series of kernels that exists as a package.
const ALL: &str = "all";

/// Options of `cargo xtask vm`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A kernel: a series like 6.1 or 6.12 (the newest of Debian's cloud kernels), the whole
    /// name of a linux-image package, the .deb file of one (Ubuntu's, or another Debian's cloud kernel), `all`
    /// series, `native`, the one that runs here, or `systemd`, the newest under Debian's systemd (for
    /// tests that need that; as root).
    /// Can be repeated.
    #[arg(long = "kernel", value_name = "KERNEL", default_value = ALL)]
    kernels: Vec<String>,
    /// Only tests whose binary and name, as in `kernel needs_bpf::daemons`, contain this.
    /// Can be repeated.
    #[arg(long = "test", value_name = "FILTER")]
    tests: Vec<String>,
    /// How long one kernel may take, in minutes; after that its machine is switched off and
    /// the run has failed.
    #[arg(long, value_name = "MINUTES", default_value_t = 10)]
    patience: u64,
    /// How memtrace and its tests are built. An emulated machine spends most of its time in them,
    /// so that an optimised build pays for many tests; for a few that of the other tests does.
    #[arg(long, default_value = "quick")]
    profile: String,
    /// Measure too what the ways to see mmap and brk cost there (`memtrace doctor --measure`).
    /// In an emulated machine such ratios are those of the emulation.
    #[arg(long)]
    measure: bool,
    /// First install what is missing: qemu, binutils, e2fsprogs and mmdebstrap, from Debian packages
    /// (as root).
    #[arg(long)]
    install_tools: bool,
    /// Keep the part of each kernel's BTF that memtrace looks at in this directory; the unit
    /// tests have theirs in crates/collect/src/bpf/kernels.
    #[arg(long, value_name = "DIR")]
    btf: Option<PathBuf>,
    /// Name the kernels and the tests, and stop.
    #[arg(long)]
    list: bool,
}

/// Boots, runs and tells.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.install_tools {
        debian::install(&["qemu-system-x86", "binutils", "e2fsprogs", "mmdebstrap"])?;
    }
    let kernels = kernels(&args.kernels)?;
    let programs = Programs::build(&args.profile, &args.tests, args.measure)?;
    if args.list {
        kernels
            .iter()
            .for_each(|kernel| println!("{}", kernel.name()));
        programs.tests.iter().for_each(|test| println!("  {test}"));
        return Ok(());
    }
    let mut emulated = kernels.iter().filter_map(Place::package).peekable();
    if emulated.peek().is_some() {
        image::write(&machine::initramfs()?, &programs)?;
    }
    // Fetched one by one; from then on they are kept.
    emulated.try_for_each(|kernel| kernel.image().map(drop))?;
    let names: Vec<&str> = kernels.iter().map(Place::name).collect();
    println!("{} tests on {}", programs.tests.len(), names.join(", "));
    let patience = Duration::from_secs(args.patience * 60);
    let mut failed = Vec::new();
    let mut reported = Vec::new();
    for (kernel, (verdict, took)) in kernels.iter().zip(run_all(&kernels, &programs, patience)) {
        println!("{}", kernel.name());
        match verdict {
            Ok(verdict) => {
                print!("{verdict}");
                if !verdict.is_good() {
                    failed.push(kernel.name());
                }
                if let Some(dir) = &args.btf
                    && let Err(error) = verdict.keep_btf(dir)
                {
                    println!("  the kernel's BTF is not kept: {error:#}");
                }
                reported.push(verdict.summary(kernel.name(), took));
            }
            Err(error) => {
                println!("{error:#}");
                failed.push(kernel.name());
                reported.push(format!("{}: no result: {error:#}", kernel.name()));
            }
        }
    }
    println!();
    reported.iter().for_each(|line| println!("{line}"));
    if !failed.is_empty() {
        bail!("failed on {}", failed.join(", "));
    }
    Ok(())
}

/// Where tests run.
enum Place {
    /// The kernel of this machine.
    Native,
    /// A package's kernel in an emulated machine.
    Emulated(Kernel),
    /// The same under systemd.
    Systemd(Kernel),
}

impl Place {
    fn name(&self) -> &str {
        match self {
            Self::Native => NATIVE,
            Self::Emulated(kernel) => &kernel.package,
            Self::Systemd(_) => SYSTEMD,
        }
    }

    fn package(&self) -> Option<&Kernel> {
        match self {
            Self::Native => None,
            Self::Emulated(kernel) | Self::Systemd(kernel) => Some(kernel),
        }
    }
}

fn kernels(asked: &[String]) -> Result<Vec<Place>> {
    let mut kernels = Vec::new();
    for name in asked {
        match name.as_str() {
            NATIVE => kernels.push(Place::Native),
            ALL => {
                let packaged = Kernel::of_every_series()?;
                kernels.extend(packaged.into_iter().map(Place::Emulated));
            }
            SYSTEMD => kernels.extend(Kernel::of_every_series()?.pop().map(Place::Systemd)),
            name => kernels.push(Place::Emulated(Kernel::named(name)?)),
        }
    }
    Ok(kernels)
}

/// The verdict on each kernel, and how long that took. Emulated machines run on one thread of
/// ours each, so several run at a time; the kernel of this machine has it for itself.
fn run_all(
    kernels: &[Place],
    programs: &Programs,
    patience: Duration,
) -> Vec<(Result<Verdict>, Duration)> {
    let at_a_time = std::thread::available_parallelism().map_or(1, usize::from);
    let mut ended = Vec::new();
    let are_emulated = |one: &Place, other: &Place| one.package().and(other.package()).is_some();
    for alike in kernels.chunk_by(are_emulated) {
        for together in alike.chunks(at_a_time) {
            std::thread::scope(|scope| {
                let runs: Vec<_> = together
                    .iter()
                    .map(|kernel| scope.spawn(|| run_on(kernel, programs, patience)))
                    .collect();
                ended.extend(runs.into_iter().map(|run| match run.join() {
                    Ok(outcome) => outcome,
                    Err(panic) => std::panic::resume_unwind(panic),
                }));
            });
        }
    }
    ended
}

fn run_on(kernel: &Place, programs: &Programs, patience: Duration) -> (Result<Verdict>, Duration) {
    let start = Instant::now();
    let said =
        match kernel {
            Place::Native => machine::native(&programs.dir, patience),
            Place::Emulated(kernel) => Start::of_programs(kernel)
                .and_then(|start| machine::emulated(kernel, &start, patience)),
            Place::Systemd(kernel) => systemd::start(programs)
                .and_then(|start| machine::emulated(kernel, &start, patience)),
        };
    let verdict = said.and_then(|said| match kernel {
        Place::Systemd(_) => Verdict::read(&said, &systemd::tests(programs)),
        _ => Verdict::read(&said, &programs.tests),
    });
    (verdict, start.elapsed())
}

/// Where packages, images and logs are kept.
fn dir() -> Result<PathBuf> {
    let dir = sh::target_dir().join("vm");
    std::fs::create_dir_all(&dir).with_context(|| format!("failed to make {}", dir.display()))?;
    Ok(dir)
}
