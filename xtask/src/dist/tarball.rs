//! A tarball to unpack anywhere.

use super::Release;
use super::programs::Target;
use crate::sh;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packs a staged tree below a directory that is named as the file is.
pub(super) fn pack(staged: &Path, target: &Target, release: &Release) -> Result<PathBuf> {
    let name = format!("memtrace-{}-{}", release.version, target.name);
    let tar = release.dir.join(format!("{name}.tar"));
    sh::run(
        Command::new("tar")
            .args([
                "--create",
                "--format=ustar",
                "--sort=name",
                "--numeric-owner",
            ])
            .args(["--owner=0", "--group=0", "--mode=go=rX,u+rw"])
            .arg(format!("--mtime=@{}", release.epoch))
            .arg(format!("--transform=s,^\\.,{name},"))
            .arg("--file")
            .arg(&tar)
            .arg("--directory")
            .args([staged, Path::new(".")]),
    )?;
    sh::run(
        Command::new("gzip")
            .args(["--force", "--no-name", "--best"])
            .arg(&tar),
    )?;
    let packed = release.dir.join(format!("{name}.tar.gz"));
    packed
        .metadata()
        .with_context(|| format!("{} was not made", packed.display()))?;
    Ok(packed)
}
