//! Finding a rustc that can build the standard library for another target: a rustup
//! nightly with rust-src, or Debian's.

use crate::sh;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// rustc-web is Debian's up-to-date rustc (kept for browsers), with a source package
/// that `-Z build-std` can use.
const PACKAGED_RUSTC: &str = "/usr/bin/rustc";

/// A compiler that can build the standard library for a target.
#[derive(Clone, Debug)]
pub(crate) struct Compiler {
    /// As given by `rustc --version`.
    pub(crate) version: String,
    /// The directory of the library's sources, by every name that rustc may use for it.
    pub(crate) library_sources: Vec<PathBuf>,
    /// The rustup toolchain to run, or the program itself.
    origin: Origin,
}

#[derive(Clone, Debug)]
enum Origin {
    Rustup(&'static str),
    Program(PathBuf),
}

impl Compiler {
    /// The best one here whose LLVM is not too new; where several would do, the one of
    /// the wanted version.
    pub(crate) fn find(newest_llvm: Option<u32>, wanted: Option<&str>) -> Result<Self> {
        let compilers = compilers(newest_llvm);
        compilers
            .iter()
            .find(|compiler| Some(compiler.version.as_str()) == wanted)
            .or(compilers.first())
            .cloned()
            .context(
                "found no rustc with its library sources (a rustup nightly with rust-src, or \
                 Debian's rustc-web with rust-web-src); --install-tools installs the latter",
            )
    }

    /// Cargo with this compiler, free to use unstable options.
    pub(crate) fn cargo(&self) -> Command {
        match &self.origin {
            Origin::Rustup(toolchain) => {
                let mut command = Command::new("rustup");
                command
                    .args(["run", toolchain, "cargo"])
                    .env_remove("RUSTC");
                command
            }
            Origin::Program(rustc) => {
                let mut command = sh::cargo();
                // build-std is an unstable option of cargo, and core needs unstable
                // features of rustc, both of which a released one allows only so.
                command.env("RUSTC", rustc).env("RUSTC_BOOTSTRAP", "1");
                command
            }
        }
    }
}

/// The compilers that can do it, best first.
fn compilers(newest_llvm: Option<u32>) -> Vec<Compiler> {
    let mut found = Vec::new();
    let mut rustup = Command::new("rustup");
    rustup.args(["run", "nightly", "rustc"]);
    let packaged = Command::new(PACKAGED_RUSTC);
    let candidates = [
        (rustup, Origin::Rustup("nightly")),
        (packaged, Origin::Program(PathBuf::from(PACKAGED_RUSTC))),
    ];
    for (rustc, origin) in candidates {
        match probe(&rustc, origin, newest_llvm) {
            Ok(compiler) => found.push(compiler),
            Err(error) => eprintln!("not used: {error:#}"),
        }
    }
    found
}

fn probe(rustc: &Command, origin: Origin, newest_llvm: Option<u32>) -> Result<Compiler> {
    let ask = |argument: &str| {
        let mut command = Command::new(rustc.get_program());
        // The rustup proxy that started this task pins its own toolchain.
        command
            .args(rustc.get_args())
            .env_remove("RUSTUP_TOOLCHAIN");
        sh::capture(command.arg(argument))
    };
    let verbose = ask("-vV")?;
    let version = verbose.lines().next().unwrap_or_default().to_owned();
    let llvm = verbose
        .lines()
        .find_map(|line| line.strip_prefix("LLVM version: "))
        .and_then(|version| version.split('.').next()?.parse::<u32>().ok())
        .with_context(|| format!("{version} does not tell its LLVM"))?;
    if let Some(newest) = newest_llvm
        && llvm > newest
    {
        bail!("{version}: its LLVM {llvm} is newer than {newest}, which links what it emits");
    }
    let sysroot = ask("--print=sysroot")?;
    let library_source = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library");
    if !library_source.join("core/Cargo.toml").is_file() {
        bail!("{version}: it has no library sources");
    }
    // Debian's is a link out of the sysroot.
    let real = library_source.canonicalize()?;
    Ok(Compiler {
        version,
        library_sources: vec![library_source, real],
        origin,
    })
}
