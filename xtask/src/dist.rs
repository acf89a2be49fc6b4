//! `cargo xtask dist`: what is given to people, each file made from one build of the programs.
//!
//! `toolchain` has what builds, `programs` the programs, `stage` the files that every
//! package carries, `bill` licences and the list of what is inside; `tarball`, `wheel`, `deb` and `image`
//! pack, `sums` writes SHA-256 of all, and `trial` installs each into a clean root and records there.

mod bill;
mod deb;
mod image;
mod programs;
mod stage;
mod sums;
mod tarball;
mod toolchain;
mod trial;
mod wheel;

use crate::sh;
use anyhow::{Context, Result};
use programs::{HOST, OTHERS, Programs, Target};
use std::path::{Path, PathBuf};
use std::process::Command;
use toolchain::Toolchain;

/// Options of `cargo xtask dist`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The container image too.
    #[arg(long)]
    image: bool,
    /// All there is: the container image too, and the tarballs for other machines and C libraries, whose
    /// standard library is built from its sources.
    #[arg(long)]
    all: bool,
    /// First install what is missing: Debian packages (as root), the rest into target/dist-tools.
    #[arg(long)]
    install_tools: bool,
    /// Then install each into a clean root or environment, and record something there (as root).
    #[arg(long = "try")]
    is_tried: bool,
    /// Only see that packing works, with programs as tests have them: large and slow, and for the C library of
    /// this machine. What was packed before is written over.
    #[arg(long, conflicts_with_all = ["image", "all", "is_tried", "twice", "no_build"])]
    quick: bool,
    /// Then build the programs for this machine again, from nothing and elsewhere, and compare the packages.
    #[arg(long, conflicts_with = "no_build")]
    twice: bool,
    /// Leave the build out: pack, or only try, what an earlier call built.
    #[arg(long)]
    no_build: bool,
}

impl Args {
    /// The programs for this machine.
    fn programs_here(&self, toolchain: &Toolchain, release: &Release) -> Result<Programs> {
        match self.quick {
            true => Programs::of_tests(&release.dir),
            false => self.programs(&HOST, toolchain, release),
        }
    }

    fn programs(
        &self,
        target: &'static Target,
        toolchain: &Toolchain,
        release: &Release,
    ) -> Result<Programs> {
        let dir = sh::target_dir();
        let programs = match self.no_build {
            true => Programs::built_before(target, &dir),
            false => Programs::build(target, &dir, toolchain, release),
        }?;
        programs.check()?;
        Ok(programs)
    }

    fn has_image(&self) -> bool {
        self.image || self.all
    }
}

/// What the packages have in common.
struct Release {
    version: String,
    /// The commit that they are built from, with a mark where files were changed since.
    commit: String,
    /// When that was made, in seconds since 1970: the time of every file in every package.
    epoch: String,
    /// Where the packages go.
    dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let toolchain = Toolchain::new();
    if args.install_tools {
        toolchain.install(args)?;
    }
    let release = Release::of_checkout()?;
    let here = args.programs_here(&toolchain, &release)?;
    let mut made = pack(&here, &toolchain, &release, args.has_image())?;
    for target in OTHERS.iter().filter(|_| args.all) {
        let programs = args.programs(target, &toolchain, &release)?;
        let staged = stage::stage(&programs, &here, &toolchain, &release)?;
        made.push(tarball::pack(&staged, target, &release)?);
    }
    sums::write(&release.dir, &made)?;
    sums::show(&made)?;
    if args.twice {
        pack_again(args, &toolchain, &release)?;
    }
    if args.is_tried {
        trial::run(&release, &made)?;
    }
    Ok(())
}

fn pack(
    programs: &Programs,
    toolchain: &Toolchain,
    release: &Release,
    has_image: bool,
) -> Result<Vec<PathBuf>> {
    let staged = stage::stage(programs, programs, toolchain, release)?;
    let mut made = vec![
        tarball::pack(&staged, programs.target(), release)?,
        deb::pack(programs, toolchain, release)?,
    ];
    made.extend(wheel::pack(&staged, programs, toolchain, release)?);
    if has_image {
        made.push(image::pack(&staged, release)?);
    }
    Ok(made)
}

/// Makes what [`pack`] makes again: every file must be the same.
fn pack_again(args: &Args, toolchain: &Toolchain, release: &Release) -> Result<()> {
    let dir = emptied(sh::target_dir().join("dist-again"))?;
    let programs = Programs::build(&HOST, &dir, toolchain, release)?;
    let made = pack(&programs, toolchain, release, args.has_image())?;
    sums::check(&release.dir, &made)?;
    std::fs::remove_dir_all(&dir).with_context(|| format!("failed to remove {}", dir.display()))
}

impl Release {
    /// Its time, as RFC 3339 has it.
    fn time(&self) -> Result<String> {
        self.dated("--iso-8601=seconds")
    }

    /// Its time in a form that `date` knows.
    fn dated(&self, form: &str) -> Result<String> {
        let date = format!("--date=@{}", self.epoch);
        let said = sh::capture(Command::new("date").args(["--utc", form, &date]))?;
        Ok(said.trim().to_owned())
    }

    fn of_checkout() -> Result<Self> {
        let git = |words: &[&str]| {
            let said = sh::capture(Command::new("git").current_dir(sh::root()).args(words))?;
            Ok::<_, anyhow::Error>(said.trim().to_owned())
        };
        let is_changed = !git(&["status", "--porcelain"])?.is_empty();
        let suffix = if is_changed { ", with changes" } else { "" };
        let dir = packages_dir();
        std::fs::create_dir_all(&dir)
            .with_context(|| format!("failed to make {}", dir.display()))?;
        Ok(Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: git(&["rev-parse", "HEAD"])? + suffix,
            epoch: git(&["log", "-1", "--format=%ct"])?,
            dir,
        })
    }
}

/// The programs that were packed last for this machine.
pub(crate) fn staged_programs() -> Vec<PathBuf> {
    let bin = stage::dir(&packages_dir(), &HOST).join("bin");
    let paths = programs::PROGRAMS.iter().map(|program| bin.join(program));
    paths.collect()
}

fn packages_dir() -> PathBuf {
    sh::target_dir().join("packages")
}

/// An empty directory, whatever was there.
pub(crate) fn emptied(dir: PathBuf) -> Result<PathBuf> {
    if dir.exists() {
        std::fs::remove_dir_all(&dir)
            .with_context(|| format!("failed to empty {}", dir.display()))?;
    }
    std::fs::create_dir_all(&dir).with_context(|| format!("failed to make {}", dir.display()))?;
    Ok(dir)
}

fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)
            .with_context(|| format!("failed to make {}", parent.display()))?;
    }
    std::fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
}
