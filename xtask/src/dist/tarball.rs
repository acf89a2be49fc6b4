//! A tarball to unpack anywhere.

use super::Release;
use super::programs::Target;
use crate::sh;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a target's tarball is called, and the directory in it.
pub(super) fn name(target: &Target, release: &Release) -> String {
    format!("memtrace-{}-{}", release.version, target.name)
}

/// Packs a staged tree below a directory that is named as the file is.
pub(super) fn pack(staged: &Path, target: &Target, release: &Release) -> Result<PathBuf> {
    let name = name(target, release);
    let tar = release.dir.join(format!("{name}.tar"));
    sh::run(
        archive(&tar, staged, release)
            .arg(format!("--transform=s,^\\.,{name},"))
            .arg("."),
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

/// A call of tar, to which the names of what it packs below a directory are added: the same files give the
/// same bytes.
pub(super) fn archive(tar: &Path, dir: &Path, release: &Release) -> Command {
    let mut command = Command::new("tar");
    command
        .args(["--create", "--format=ustar", "--sort=name"])
        .args(["--numeric-owner", "--owner=0", "--group=0"])
        .arg("--mode=go=rX,u+rw")
        .arg(format!("--mtime=@{}", release.epoch))
        .arg("--file")
        .arg(tar)
        .arg("--directory")
        .arg(dir);
    command
}
