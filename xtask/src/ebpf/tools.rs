//! The programs that build the BPF object: finding them, and installing them on Debian.

use super::stamp::{Stamp, Toolchain};
use crate::sh;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

const BPF_LINKER_VERSION: &str = "0.13.0";
/// The LLVM that bpf-linker is built against. rustc hands it bitcode, so rustc's own
/// LLVM must not be newer.
const LLVM_MAJOR: u32 = 22;
const LLVM_PREFIX: &str = "/usr/lib/llvm-22";
/// rustc-web is Debian's up-to-date rustc (kept for browsers), with a source package
/// that `-Z build-std` can use.
const PACKAGED_RUSTC: &str = "/usr/bin/rustc";
const PACKAGES: &[&str] = &[
    "rustc-web",
    "rust-web-src",
    "llvm-22-dev",
    "libpolly-22-dev",
    "libzstd-dev",
    "zlib1g-dev",
];

/// A compiler that can build `core` for the BPF target.
#[derive(Clone, Debug)]
struct Compiler {
    /// As given by `rustc --version`.
    version: String,
    /// The directory of the library's sources, by every name that rustc may use for it.
    library_sources: Vec<PathBuf>,
    /// The rustup toolchain to run, or the program itself.
    origin: Origin,
}

#[derive(Clone, Debug)]
enum Origin {
    Rustup(&'static str),
    Program(PathBuf),
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
    /// Finds the tools; where two compilers would do, takes the one in the stamp.
    pub(super) fn find(stamp: Option<&Stamp>) -> Result<Self> {
        let compilers = compilers();
        let wanted = stamp.map(|stamp| stamp.toolchain.rustc.as_str());
        let compiler = compilers
            .iter()
            .find(|compiler| Some(compiler.version.as_str()) == wanted)
            .or(compilers.first())
            .cloned()
            .context(
                "found no rustc with its library sources (a rustup nightly with rust-src, or \
                 Debian's rustc-web with rust-web-src); run `cargo xtask ebpf --install-tools`",
            )?;
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
        let mut command = match &self.compiler.origin {
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
        };
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

/// Installs what is missing and can be installed.
pub(super) fn install() -> Result<()> {
    let missing: Vec<&str> = PACKAGES
        .iter()
        .copied()
        .filter(|package| !is_installed(package))
        .collect();
    if !missing.is_empty() {
        if sh::find_in_path("apt-get").is_none() {
            bail!("this is not a Debian machine; the packages needed there are {missing:?}");
        }
        let is_root = sh::capture(Command::new("id").arg("-u"))?.trim() == "0";
        if !is_root {
            bail!("run as root: apt-get install {}", missing.join(" "));
        }
        sh::run(Command::new("apt-get").args(["-qq", "update"]))?;
        sh::run(
            Command::new("apt-get")
                .args(["-qq", "--no-install-recommends", "--yes", "install"])
                .args(&missing)
                .env("DEBIAN_FRONTEND", "noninteractive"),
        )?;
    }
    if find_bpf_linker().is_err() {
        sh::run(
            sh::cargo()
                .args(["install", "--locked", "--no-default-features"])
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

fn is_installed(package: &str) -> bool {
    sh::capture(Command::new("dpkg-query").args(["-W", "-f=${db:Status-Status}", package]))
        .is_ok_and(|status| status.trim() == "installed")
}

/// The compilers that can do it, best first.
fn compilers() -> Vec<Compiler> {
    let mut found = Vec::new();
    let mut rustup = Command::new("rustup");
    rustup.args(["run", "nightly", "rustc"]);
    let packaged = Command::new(PACKAGED_RUSTC);
    let candidates = [
        (rustup, Origin::Rustup("nightly")),
        (packaged, Origin::Program(PathBuf::from(PACKAGED_RUSTC))),
    ];
    for (rustc, origin) in candidates {
        match probe(&rustc, origin) {
            Ok(compiler) => found.push(compiler),
            Err(error) => eprintln!("not used: {error:#}"),
        }
    }
    found
}

fn probe(rustc: &Command, origin: Origin) -> Result<Compiler> {
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
    if llvm > LLVM_MAJOR {
        bail!("{version}: its LLVM {llvm} is newer than bpf-linker's {LLVM_MAJOR}");
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
