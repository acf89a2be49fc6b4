//! The Debian package.

use super::Release;
use super::programs::{HOST, Programs};
use super::toolchain::Toolchain;
use crate::sh;
use anyhow::{Result, bail};
use std::path::PathBuf;
use std::process::Command;

/// Makes it of the staged tree, which memtrace/Cargo.toml names.
pub(super) fn pack(
    programs: &Programs,
    toolchain: &Toolchain,
    release: &Release,
) -> Result<PathBuf> {
    let named = sh::root().join("target/packages").canonicalize();
    if named.ok() != release.dir.canonicalize().ok() {
        bail!("memtrace/Cargo.toml names target/packages: unset CARGO_TARGET_DIR");
    }
    let made = release
        .dir
        .join(format!("memtrace_{}-1_amd64.deb", release.version));
    sh::run(
        Command::new(toolchain.of_crate("cargo-deb"))
            .current_dir(sh::root())
            .args([
                "--package",
                "memtrace",
                "--no-build",
                "--no-strip",
                "--target",
                HOST.triple,
            ])
            .args(["--profile", "dist", "--output"])
            .arg(&made)
            .args((!programs.is_release).then_some("--fast"))
            .env("SOURCE_DATE_EPOCH", &release.epoch),
    )?;
    Ok(made)
}
