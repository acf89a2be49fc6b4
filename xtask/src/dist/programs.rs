//! The programs, for each target.

use super::toolchain::Toolchain;
use super::{Release, emptied};
use crate::compiler::Compiler;
use crate::sh;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What every package carries.
pub(super) const PROGRAMS: &[&str] = &["memtrace", "memtrace-remote"];
/// The oldest glibc that the programs run with: that of CentOS 7, and of `manylinux2014`.
const GLIBC: &str = "2.17";

/// How programs find the C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Linkage {
    /// glibc, as the machine has it.
    Glibc,
    /// musl, in the program itself, which then loads no other library.
    StaticMusl,
}

/// What programs are built for.
#[derive(Debug)]
pub(super) struct Target {
    /// As Rust calls it.
    pub(super) triple: &'static str,
    /// As its packages are called.
    pub(super) name: &'static str,
    /// How its programs find the C library.
    pub(super) linkage: Linkage,
}

/// What every package is made for, and what packages are made on.
pub(super) static HOST: Target = Target {
    triple: "x86_64-unknown-linux-gnu",
    name: "linux-x86_64",
    linkage: Linkage::Glibc,
};

/// What there is a tarball for besides. The standard library of these is built from its sources.
pub(super) static OTHERS: &[Target] = &[
    // NVML is loaded when a recording starts, which a static program can't.
    Target {
        triple: "x86_64-unknown-linux-musl",
        name: "linux-x86_64-static-without-nvidia",
        linkage: Linkage::StaticMusl,
    },
    Target {
        triple: "aarch64-unknown-linux-gnu",
        name: "linux-aarch64",
        linkage: Linkage::Glibc,
    },
];

/// By which they are built.
const PROFILE: &str = "dist";

/// Programs that were built.
pub(super) struct Programs {
    target: &'static Target,
    dir: PathBuf,
    /// Whether people may be given them: else they are those of tests.
    pub(super) is_release: bool,
}

impl Programs {
    /// Those that tests call, without what debuggers need.
    pub(super) fn of_tests(packages: &Path) -> Result<Self> {
        let built = sh::build_programs(&[])?;
        let dir = emptied(packages.join("programs"))?;
        for program in PROGRAMS {
            let mut strip = Command::new("strip");
            sh::run(
                strip
                    .arg("-o")
                    .args([dir.join(program), built.join(program)]),
            )?;
        }
        Ok(Self {
            target: &HOST,
            dir,
            is_release: false,
        })
    }

    /// Builds them, in a directory of build output.
    pub(super) fn build(
        target: &'static Target,
        output: &Path,
        toolchain: &Toolchain,
        release: &Release,
    ) -> Result<Self> {
        let (mut cargo, library) = if target.triple == HOST.triple {
            (sh::cargo(), Vec::new())
        } else {
            let compiler = Compiler::find(None, None)?;
            (compiler.cargo(), compiler.library_sources)
        };
        cargo.arg("zigbuild");
        if target.triple != HOST.triple {
            cargo.arg("-Zbuild-std=std,panic_unwind");
        }
        for program in PROGRAMS {
            cargo.args(["--package", program, "--bin", program]);
        }
        sh::run(
            cargo
                .current_dir(sh::root())
                .args(["--locked", "--profile", PROFILE, "--target"])
                .arg(target.of_zigbuild())
                .env("PATH", toolchain.path())
                .env("MEMTRACE_COMMIT", &release.commit)
                .env("SOURCE_DATE_EPOCH", &release.epoch)
                .env("CARGO_TARGET_DIR", output)
                .env("RUSTFLAGS", target.flags(output, &library)?),
        )?;
        Self::built_before(target, output)
    }

    /// Those that an earlier call built.
    pub(super) fn built_before(target: &'static Target, output: &Path) -> Result<Self> {
        let dir = output.join(target.triple).join(PROFILE);
        for program in PROGRAMS {
            let file = dir.join(program);
            if !file.is_file() {
                bail!("{} is not built: leave --no-build out", file.display());
            }
        }
        Ok(Self {
            target,
            dir,
            is_release: true,
        })
    }

    /// What they are for.
    pub(super) fn target(&self) -> &'static Target {
        self.target
    }

    /// Where a program is.
    pub(super) fn path(&self, program: &str) -> PathBuf {
        self.dir.join(program)
    }

    /// That they run where the packages say.
    pub(super) fn check(&self) -> Result<()> {
        for program in PROGRAMS {
            let file = self.path(program);
            let shown = file.display();
            match self.target.linkage {
                Linkage::Glibc => {
                    let symbols = readelf(&["--wide", "--dyn-syms"], &file)?;
                    if let Some(newer) = newer_than(&symbols, version_of(GLIBC)?) {
                        bail!("{shown} needs more than glibc {GLIBC}: {newer}");
                    }
                }
                Linkage::StaticMusl => {
                    let segments = readelf(&["--wide", "--segments"], &file)?;
                    if asks_for_a_loader(&segments) {
                        bail!("{shown} is not static: it names a loader");
                    }
                }
            }
        }
        Ok(())
    }
}

impl Target {
    /// As cargo-zigbuild takes it, with the version of glibc.
    fn of_zigbuild(&self) -> String {
        match self.linkage {
            Linkage::Glibc => format!("{}.{GLIBC}", self.triple),
            Linkage::StaticMusl => self.triple.to_owned(),
        }
    }

    /// Paths of this machine have no place in what is given to people, and would make every build
    /// another; `library` are those of the standard library's sources.
    fn flags(&self, output: &Path, library: &[PathBuf]) -> Result<String> {
        let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
        let home = home.context("neither CARGO_HOME nor HOME is set")?;
        let root = sh::root();
        let mapped = [
            (home.as_path(), "/cargo"),
            (&root, "/memtrace"),
            (output, "/target"),
        ];
        let library = library.iter().map(|path| (path.as_path(), "/library"));
        let mut flags: Vec<String> = mapped
            .into_iter()
            .chain(library)
            .map(|(path, name)| format!("--remap-path-prefix={}={name}", path.display()))
            .collect();
        if self.linkage == Linkage::StaticMusl {
            // zig has musl; a compiler of a distribution has none for Rust to link.
            flags.push("-Clink-self-contained=no".to_owned());
            flags.push("-Ctarget-feature=+crt-static".to_owned());
        }
        Ok(flags.join(" "))
    }
}

fn readelf(options: &[&str], file: &Path) -> Result<String> {
    sh::capture(Command::new("readelf").args(options).arg(file))
}

fn asks_for_a_loader(segments: &str) -> bool {
    segments.contains("INTERP")
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
        let old = "1: 0 0 FUNC GLOBAL DEFAULT UND read@GLIBC_2.2.5 (2)\n\
                   2: 0 0 FUNC GLOBAL DEFAULT UND clock_gettime@GLIBC_2.17 (3)\n";
        let private = "3: 0 0 FUNC GLOBAL DEFAULT UND __libc_dlopen@GLIBC_PRIVATE (4)";
        assert_eq!(newer_than(old, (2, 17)), None);
        assert_eq!(newer_than(private, (2, 17)), Some(private));
        let new = format!("{old}4: 0 0 FUNC GLOBAL DEFAULT UND pthread_create@GLIBC_2.34 (5)");
        assert!(newer_than(&new, (2, 17)).is_some_and(|line| line.contains("pthread_create")));
    }

    #[test]
    fn a_program_that_names_a_loader_is_not_static() {
        let of_glibc = "INTERP 0x318 0x318 0x318 0x1c 0x1c R 0x1\n\
                        [Requesting program interpreter: /lib64/ld-linux-x86-64.so.2]\n";
        assert!(asks_for_a_loader(of_glibc));
        assert!(!asks_for_a_loader(
            "LOAD 0x0 0x400000 0x400000 0x1 0x1 R 0x1000\n"
        ));
    }

    #[test]
    fn only_a_static_program_is_linked_by_itself_and_only_glibc_has_a_version() {
        let [musl, arm] = OTHERS else {
            panic!("two others: {OTHERS:?}");
        };
        assert_eq!(HOST.of_zigbuild(), "x86_64-unknown-linux-gnu.2.17");
        assert_eq!(arm.of_zigbuild(), "aarch64-unknown-linux-gnu.2.17");
        assert_eq!(musl.of_zigbuild(), "x86_64-unknown-linux-musl");
        let is_static = |target: &Target| {
            target
                .flags(Path::new("/out"), &[])
                .unwrap()
                .contains("+crt-static")
        };
        assert_eq!([&HOST, musl, arm].map(is_static), [false, true, false]);
    }

    #[test]
    fn sources_of_the_standard_library_lose_their_place_too() {
        let flags = OTHERS[0]
            .flags(Path::new("/out"), &[PathBuf::from("/usr/src/library")])
            .unwrap();
        assert!(flags.contains("--remap-path-prefix=/usr/src/library=/library"));
    }
}
