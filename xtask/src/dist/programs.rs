//! The programs, for each target.

use super::Release;
use super::toolchain::Toolchain;
use crate::sh;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;

/// What every package carries.
pub(super) const PROGRAMS: &[&str] = &["memtrace", "memtrace-remote"];
/// The oldest glibc that the programs run with: that of CentOS 7, and of `manylinux2014`.
const GLIBC: &str = "2.17";
const PROFILE: &str = "dist";

/// What programs are built for.
pub(super) struct Target {
    /// As Rust calls it.
    pub(super) triple: &'static str,
    /// As its packages are called.
    pub(super) name: &'static str,
    /// As Python calls the system.
    pub(super) wheel_platform: &'static str,
}

/// What packages are made for. Not for musl: NVML is loaded when a recording starts, which a static
/// program can't.
pub(super) const TARGET: Target = Target {
    triple: "x86_64-unknown-linux-gnu",
    name: "linux-x86_64",
    wheel_platform: "manylinux2014_x86_64",
};

/// Programs that were built.
pub(super) struct Programs {
    dir: PathBuf,
}

impl Programs {
    /// Builds them.
    pub(super) fn build(toolchain: &Toolchain, release: &Release) -> Result<Self> {
        let mut cargo = sh::cargo();
        cargo.arg("zigbuild");
        for program in PROGRAMS {
            cargo.args(["--package", program, "--bin", program]);
        }
        sh::run(
            cargo
                .current_dir(sh::root())
                .args(["--locked", "--profile", PROFILE, "--target"])
                .arg(format!("{}.{GLIBC}", TARGET.triple))
                .env("PATH", toolchain.path())
                .env("MEMTRACE_COMMIT", &release.commit)
                .env("SOURCE_DATE_EPOCH", &release.epoch)
                .env("RUSTFLAGS", flags()?),
        )?;
        Self::built_before()
    }

    /// Those that an earlier call built.
    pub(super) fn built_before() -> Result<Self> {
        let dir = sh::target_dir().join(TARGET.triple).join(PROFILE);
        for program in PROGRAMS {
            let file = dir.join(program);
            if !file.is_file() {
                bail!("{} is not built: leave --no-build out", file.display());
            }
        }
        Ok(Self { dir })
    }

    /// Where a program is.
    pub(super) fn path(&self, program: &str) -> PathBuf {
        self.dir.join(program)
    }

    /// That they run where the packages say.
    pub(super) fn check(&self) -> Result<()> {
        for program in PROGRAMS {
            let file = self.path(program);
            let symbols = sh::capture(Command::new("objdump").arg("-T").arg(&file))?;
            if let Some(newer) = newer_than(&symbols, version_of(GLIBC)?) {
                bail!("{} needs more than glibc {GLIBC}: {newer}", file.display());
            }
        }
        Ok(())
    }
}

/// Paths of this machine have no place in what is given to people, and would make every build another.
fn flags() -> Result<String> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let home = home.context("neither CARGO_HOME nor HOME is set")?;
    let (root, target) = (sh::root(), sh::target_dir());
    let mapped = [
        (&home, "/cargo"),
        (&root, "/memtrace"),
        (&target, "/target"),
    ];
    let flags = mapped.map(|(path, name)| format!("--remap-path-prefix={}={name}", path.display()));
    Ok(flags.join(" "))
}

/// The first line with a symbol of a later glibc.
fn newer_than(symbols: &str, most: (u32, u32)) -> Option<&str> {
    symbols.lines().find(|line| {
        let version = line.split("GLIBC_").nth(1);
        let version = version.and_then(|text| text.split([')', ' ']).next());
        version.is_some_and(|version| !version_of(version).is_ok_and(|version| version <= most))
    })
}

/// "2.17", or "2.2.5" of which the first two parts count.
fn version_of(text: &str) -> Result<(u32, u32)> {
    let mut parts = text.split('.');
    let mut next = || parts.next().context("no such version");
    Ok((next()?.parse()?, next()?.parse()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_of_a_later_glibc_is_found_and_older_ones_are_not() {
        let old = "0 DF *UND* 0 (GLIBC_2.2.5) read\n0 DF *UND* 0 (GLIBC_2.17) clock_gettime\n";
        let private = "0 DF *UND* 0 (GLIBC_PRIVATE) __libc_dlopen";
        assert_eq!(newer_than(old, (2, 17)), None);
        assert_eq!(newer_than(private, (2, 17)), Some(private));
        let new = format!("{old}0 DF *UND* 0 (GLIBC_2.34) pthread_create");
        assert!(newer_than(&new, (2, 17)).is_some_and(|line| line.ends_with("pthread_create")));
    }
}
