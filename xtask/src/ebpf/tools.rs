//! The programs that build the BPF object: finding them, and installing them on Debian.

use crate::compiler::Compiler;
use crate::{debian, sh};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

const BPF_LINKER_VERSION: &str = "0.13.0";
/// The LLVM that bpf-linker is built against. rustc hands it bitcode, so rustc's own
/// LLVM must not be newer.
const LLVM_MAJOR: u32 = 22;
const LLVM_PREFIX: &str = "/usr/lib/llvm-22";
const PACKAGES: &[&str] = &[
    "rustc-web",
    "rust-web-src",
    "llvm-22-dev",
    "libpolly-22-dev",
    "libzstd-dev",
    "zlib1g-dev",
];

/// The programs that decide the bytes of the object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Toolchain {
    /// First line of `rustc --version`.
    pub(super) rustc: String,
    /// First line of `bpf-linker --version`.
    pub(super) bpf_linker: String,
    /// Version of the LLVM libraries installed, which bpf-linker is built against.
    pub(super) llvm: String,
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, LLVM {}", self.rustc, self.bpf_linker, self.llvm)
    }
}

/// Everything a build needs, found and fit.
#[derive(Debug)]
pub(super) struct Tools {
    compiler: Compiler,
    bpf_linker: PathBuf,
    objcopy: PathBuf,
    toolchain: Toolchain,
}

impl Tools {
    /// Finds the tools; where two compilers would do, takes the one that is wanted.
    pub(super) fn find(wanted: Option<&Toolchain>) -> Result<Self> {
        let wanted = wanted.map(|wanted| wanted.rustc.as_str());
        let compiler = Compiler::find(Some(LLVM_MAJOR), wanted)?;
        let bpf_linker = find_bpf_linker()?;
        let objcopy = find_objcopy()?;
        let toolchain = Toolchain {
            rustc: compiler.version.clone(),
            bpf_linker: version_line(&bpf_linker)?,
            llvm: llvm_version(&objcopy)?,
        };
        Ok(Self {
            compiler,
            bpf_linker,
            objcopy,
            toolchain,
        })
    }

    pub(super) fn toolchain(&self) -> Toolchain {
        self.toolchain.clone()
    }

    pub(super) fn library_sources(&self) -> &[PathBuf] {
        &self.compiler.library_sources
    }

    pub(super) fn objcopy(&self) -> Command {
        Command::new(&self.objcopy)
    }

    /// Cargo with this compiler, and with bpf-linker first in its `PATH`. (By path as a
    /// flag it would end up in the crates' metadata hashes, and so in symbol names.)
    pub(super) fn cargo(&self) -> Command {
        let mut command = self.compiler.cargo();
        let mut path = self
            .bpf_linker
            .parent()
            .map_or_else(Default::default, |dir| dir.as_os_str().to_owned());
        if let Some(rest) = std::env::var_os("PATH") {
            path.push(":");
            path.push(rest);
        }
        command.env("PATH", path);
        command
    }
}

/// Installs what a build needs, where it is missing and can be installed.
pub(super) fn install() -> Result<()> {
    debian::install(PACKAGES)?;
    if find_bpf_linker().is_err() {
        sh::run(
            sh::cargo()
                // LLVM does its work; its own code is not worth the time to optimise.
                .args(["install", "--debug", "--locked", "--no-default-features"])
                .args(["--features", &format!("llvm-{LLVM_MAJOR}")])
                .args(["--version", BPF_LINKER_VERSION, "--root"])
                .arg(tools_dir())
                .arg("bpf-linker")
                .env("LLVM_PREFIX", LLVM_PREFIX)
                .env_remove("CARGO_TARGET_DIR"),
        )?;
    }
    Ok(())
}

/// Programs that tasks install for themselves.
fn tools_dir() -> PathBuf {
    sh::target_dir().join("tools")
}

fn find_bpf_linker() -> Result<PathBuf> {
    let own = tools_dir().join("bin/bpf-linker");
    let wanted = format!("bpf-linker {BPF_LINKER_VERSION}");
    [Some(own), sh::find_in_path("bpf-linker")]
        .into_iter()
        .flatten()
        .find(|program| version_line(program).is_ok_and(|line| line == wanted))
        .with_context(|| format!("found no {wanted}; run `cargo xtask ebpf --install-tools`"))
}

fn find_objcopy() -> Result<PathBuf> {
    let names = [
        format!("llvm-objcopy-{LLVM_MAJOR}"),
        "llvm-objcopy".to_owned(),
    ];
    names
        .iter()
        .find_map(|name| sh::find_in_path(name))
        .context("found no llvm-objcopy; run `cargo xtask ebpf --install-tools`")
}

fn version_line(program: &Path) -> Result<String> {
    let text = sh::capture(Command::new(program).arg("--version"))?;
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

fn llvm_version(objcopy: &Path) -> Result<String> {
    let text = sh::capture(Command::new(objcopy).arg("--version"))?;
    text.split_whitespace()
        .skip_while(|word| *word != "version")
        .nth(1)
        .map(str::to_owned)
        .with_context(|| format!("{} does not tell its version", objcopy.display()))
}
