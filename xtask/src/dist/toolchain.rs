//! What builds and packs.

use crate::venv::Venv;
use crate::{debian, sh};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// From the Python index: zig links against an old glibc, cargo-zigbuild calls it, and the rest makes
/// Python packages.
const PYTHON_TOOLS: &[&str] = &[
    "ziglang==0.15.1",
    "cargo-zigbuild==0.24.0",
    "maturin==1.16.0",
    "build==1.6.1",
    "wheel==0.48.0",
];
/// From the index of crates.
const CRATES: &[(&str, &str)] = &[("cargo-deb", "3.8.0")];
const DEBIAN: &[&str] = &["binutils", "dpkg-dev"];
const DEBIAN_FOR_IMAGES: &[&str] = &["buildah", "mmdebstrap"];
/// A compiler with the sources of the standard library.
const DEBIAN_FOR_OTHERS: &[&str] = &["rustc-web", "rust-web-src"];
const DEBIAN_FOR_TRIALS: &[&str] = &["mmdebstrap", "lintian", "systemd"];
const DEBIAN_FOR_TRIALS_OF_OTHERS: &[&str] =
    &["busybox-static", "qemu-user-static", "libc6-arm64-cross"];

/// The programs, where [`Toolchain::install`] puts them.
pub(super) struct Toolchain {
    venv: Venv,
    crates: PathBuf,
}

impl Toolchain {
    pub(super) fn new() -> Self {
        Self {
            venv: Venv::named("dist-tools"),
            crates: sh::target_dir().join("tools"),
        }
    }

    /// Installs what is missing.
    pub(super) fn install(&self, wanted: &super::Args) -> Result<()> {
        let lists = [
            (true, DEBIAN),
            (wanted.has_image(), DEBIAN_FOR_IMAGES),
            (wanted.all, DEBIAN_FOR_OTHERS),
            (wanted.is_tried, DEBIAN_FOR_TRIALS),
            (wanted.is_tried && wanted.all, DEBIAN_FOR_TRIALS_OF_OTHERS),
        ];
        for (_, packages) in lists.iter().filter(|(is_needed, _)| *is_needed) {
            debian::install(packages)?;
        }
        self.venv.install(PYTHON_TOOLS)?;
        for (name, version) in CRATES {
            if !self.of_crate(name).is_file() {
                // They run for seconds: not worth minutes of optimising.
                sh::run(
                    sh::cargo()
                        .args(["install", "--debug", "--locked", "--version", version])
                        .arg("--root")
                        .args([&self.crates, Path::new(name)]),
                )?;
            }
        }
        Ok(())
    }

    /// Python with the tools among its modules.
    pub(super) fn python(&self) -> PathBuf {
        self.venv.program("python3")
    }

    /// Where zig is, with what it links into programs.
    pub(super) fn zig(&self) -> Result<PathBuf> {
        let code = "import os, ziglang; print(os.path.dirname(ziglang.__file__))";
        let dir = sh::capture(Command::new(self.python()).args(["-c", code]))?;
        Ok(PathBuf::from(dir.trim()))
    }

    /// A program of the index of crates.
    pub(super) fn of_crate(&self, name: &str) -> PathBuf {
        self.crates.join("bin").join(name)
    }

    /// PATH with the programs of the Python index first.
    pub(super) fn path(&self) -> std::ffi::OsString {
        let mut path = self.venv.dir().join("bin").into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        path
    }
}
